#!/usr/bin/env bash
# torch.utils.flop_counter.FlopCounterMode counts the forward pass of a grouped convolution rightly, and its backward
# pass (1 + groups) / 2 times: the gradient of the weights is counted as if every channel met every other one.
# Guess before: forward and backward passes are both right, or both wrong by one factor.
# Seen: torch 2.13.0, CPU, 2026-11-28: 1.0, 1.5, 4.5, 32.5 times for 1, 2, 8, 64 groups of 64 channels. A depthwise
# network's training step is counted up to tens of times too high.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

for groups in (1, 2, 8, 64):
    convolution = nn.Conv2d(64, 64, 3, padding=1, groups=groups, bias=False)
    images = torch.randn(2, 64, 8, 8, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        maps = convolution(images)
    with FlopCounterMode(display=False) as backward:
        maps.sum().backward()
    multiply_adds = 2 * 8 * 8 * 64 * 9 * 64 // groups  # images x positions x out channels x window x in channels / groups
    forward_ratio = forward.get_total_flops() / (2 * multiply_adds)
    backward_ratio = backward.get_total_flops() / (4 * multiply_adds)
    print(f"{groups:3} groups: forward x {forward_ratio:.2f}, backward x {backward_ratio:.2f}")
    assert forward_ratio == 1.0
    assert backward_ratio == (1 + groups) / 2
PYTHON
