#!/usr/bin/env bash
# On the meta device PyTorch's convolutions, transposed convolutions, group norms, pixel shuffles and reflection pads
# give NCHW maps of channels-last ones, which stay channels-last on a CPU. Fake tensors keep the layout of a
# convolution.
# Guess before: a meta tensor has the strides of the real one, since strides are all that it has.
# Seen: torch 2.13.0, CPU, 2026-11-28. Who plans memory or traffic by strides of meta tensors plans other kernels than
# run.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import copy

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

LAYOUT = torch.channels_last
keeps = {
    "Conv2d": nn.Conv2d(8, 16, 3),
    "ConvTranspose2d": nn.ConvTranspose2d(8, 4, 2),
    "GroupNorm": nn.GroupNorm(2, 8),
    "PixelShuffle": nn.PixelShuffle(2),
    "ReflectionPad2d": nn.ReflectionPad2d(1),
    "BatchNorm2d": nn.BatchNorm2d(8),
    "MaxPool2d": nn.MaxPool2d(2),
    "Upsample": nn.Upsample(scale_factor=2),
}
on_meta = {}
for name, layer in keeps.items():
    real = layer(torch.randn(2, 8, 16, 16).to(memory_format=LAYOUT))
    meta = copy.deepcopy(layer).to("meta")(torch.empty(2, 8, 16, 16, device="meta").to(memory_format=LAYOUT))
    on_meta[name] = meta.is_contiguous(memory_format=LAYOUT)
    print(f"{name:16} CPU {real.is_contiguous(memory_format=LAYOUT)!s:6} meta {on_meta[name]}")
    assert real.is_contiguous(memory_format=LAYOUT), name
with FakeTensorMode():
    image, weight = torch.empty(2, 8, 16, 16), torch.empty(16, 8, 3, 3)
    fake = nn.functional.conv2d(image.to(memory_format=LAYOUT), weight)
print("Conv2d of fake tensors", fake.is_contiguous(memory_format=LAYOUT))
forget = {"Conv2d", "ConvTranspose2d", "GroupNorm", "PixelShuffle", "ReflectionPad2d"}
assert {name for name, kept in on_meta.items() if not kept} == forget
assert fake.is_contiguous(memory_format=LAYOUT)
PYTHON
