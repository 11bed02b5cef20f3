#!/usr/bin/env bash
# torchinfo counts the multiply-adds of a linear layer by its weights and the mini-batch, whatever positions it runs over:
# a ConvNeXt-T, whose blocks are linear layers over maps, comes out at 0.3 instead of 4.5 billion an image.
# Guess before: a linear layer over 256 positions counts 256 times as much as over one.
# Seen: torchinfo 1.8.0, torch 2.13.0, 2026-11-28: 4,096 multiply-adds over 1 and over 256 positions.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6 torchinfo==1.8.0
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import torch
from torch import nn
from torchinfo import summary

linear = nn.Linear(64, 64, bias=False)
for side in (1, 16):
    counted = summary(linear, input_data=torch.zeros(1, side, side, 64), verbose=0).total_mult_adds
    print(f"{side * side:3} positions: {counted:,} multiply-adds, {side * side * 64 * 64:,} really")
    assert counted == 64 * 64
PYTHON
