#!/usr/bin/env bash
# torch.autograd.set_detect_anomaly costs by the depth at which modules are nested: each node of autograd keeps a
# traceback, whose lines are formatted in the forward pass. The same layers, each in eight more `Sequential`, take
# several times as long to watch, with no search for NaN at all (check_nan=False).
# Guess before: it costs the search for NaN in each gradient, whatever the modules around a layer.
# Seen: torch 2.11.0 with CUDA 13.0, NVIDIA H200, 2026-11-29: 4 to 10 us a line of 16 to 24, half or more of all that
# anomaly detection costs the host in seven of nine modes of five CNNs. torch 2.13.0 on a busy CPU, below: 47 us a node,
# and 119 to 210 nested.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
if [ -z "${PYTHON:-}" ]; then
  python3 -m venv env
  PYTHON="$folder/env/bin/python"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check torch==2.11.0 numpy
fi
cat > seen.py <<'PROGRAM'
import time

import torch

NODES, DEEP = 50, 8


def step_us(depth, watched):
    """Least time of forward and backward pass of a chain of small layers, us a layer; each in `depth` containers."""
    layers = []
    for _ in range(NODES):
        layer = torch.nn.Tanh()
        for _ in range(depth):
            layer = torch.nn.Sequential(layer)
        layers.append(layer)
    chain, numbers = torch.nn.Sequential(*layers), torch.ones(4, requires_grad=True)
    times = []
    with torch.autograd.set_detect_anomaly(watched, check_nan=False):
        for _ in range(30):
            started = time.perf_counter()
            chain(numbers).sum().backward()
            times.append(time.perf_counter() - started)
    return min(times) / NODES * 1e6


flat, nested = (step_us(depth, True) - step_us(depth, False) for depth in (0, DEEP))
print(f"torch {torch.__version__}: a traceback takes {flat:.0f} us a node, {nested:.0f} in {DEEP} more containers")
assert nested > 1.5 * flat, "tracebacks no longer grow with the depth of modules"
PROGRAM
"$PYTHON" -W ignore seen.py
