#!/usr/bin/env bash
# torch.use_deterministic_algorithms(True) makes a CNN's iteration some percent longer, almost all of it because every
# new tensor is filled with NaN; with torch.utils.deterministic.fill_uninitialized_memory = False the cost is gone.
# Guess before: the deterministic kernels of convolutions and pools are what costs.
# Seen: torch 2.11.0 with CUDA 13.0, NVIDIA H200, 2026-11-28: a plain CNN of twelve convolutions at batch 128: 39.7 ms,
# 41.3 with deterministic algorithms, 40.1 without the filling.
set -euo pipefail
nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || { echo "no NVIDIA GPU here"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
if [ -z "${PYTHON:-}" ]; then
  python3 -m venv env
  PYTHON="$folder/env/bin/python"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check torch==2.11.0 numpy
fi
cat > seen.py <<'PROGRAM'
import statistics
import time

import torch
from torch import nn


def network():
    layers, channels = [], 3
    for width in (64, 128, 256, 512):
        for repeat in range(3):
            layers += [nn.Conv2d(channels, width, 3, 2 if repeat == 0 else 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 14 * 14, 100)).cuda()


def iteration_ms(images):
    torch.manual_seed(0)
    module, batch = network(), torch.randn(images, 3, 224, 224, device="cuda")
    labels = torch.zeros(images, dtype=torch.long, device="cuda")
    optimizer = torch.optim.SGD(module.parameters(), 0.01, momentum=0.9)
    times = []
    for _ in range(40):
        torch.cuda.synchronize()
        started = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(batch), labels).backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times[10:])


def state(deterministic, fill):
    torch.use_deterministic_algorithms(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = fill
    return iteration_ms(128)


state(False, True)
seen = {"default": [], "deterministic": [], "without filling": []}
for _ in range(3):
    seen["default"].append(state(False, True))
    seen["deterministic"].append(state(True, True))
    seen["without filling"].append(state(True, False))
medians = {name: statistics.median(times) for name, times in seen.items()}
print(torch.__version__, "ms an iteration:", {name: round(time, 2) for name, time in medians.items()})
assert medians["deterministic"] > 1.03 * medians["default"]
assert medians["without filling"] < 1.02 * medians["default"]
PROGRAM
"$PYTHON" -W ignore seen.py
