#!/usr/bin/env bash
# torch.onnx.export of a module in training mode folds its batch norms into the convolutions, as in evaluation mode: the
# file holds no trace of them. With optimize=False they stay, in both modes.
# Guess before: in training mode, where folding changes what is computed, they stay.
# Seen: torch 2.13.0, onnx 1.23.2, onnxscript 0.7.1, CPU, 2026-11-28. Who reckons a training by such a file misses half
# of its memory traffic.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6 onnx==1.23.2 onnxscript==0.7.1
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
from collections import Counter

import torch
from torch import nn

module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
norms = {}
for training in (True, False):
    for optimize in (True, False):
        program = torch.onnx.export(module.train(training), (torch.randn(1, 3, 32, 32),), optimize=optimize, verbose=False)
        types = Counter(node.op_type for node in program.model_proto.graph.node)
        norms[training, optimize] = types["BatchNormalization"]
        print(f"training={training}, optimize={optimize}: {dict(types)}")
        assert types["Conv"] == 2
assert norms == {(True, True): 0, (True, False): 2, (False, True): 0, (False, False): 2}
PYTHON
