#!/usr/bin/env bash
# Under torch.autocast('cuda') every up-sampling, group norm, layer norm, softmax and sum of a 16-bit map gives float32,
# so that what is joined to a resized map is wide, too; instance norms, batch norms, means, GELU and pixel shuffles stay
# in 16 bits. Under torch.autocast('cpu') up-sampling, group norm and sum stay in 16 bits.
# Guess before: only what loses accuracy (norms, softmax, losses) is computed in float32, alike on both devices;
# resizing by nearest is a copy and stays in 16 bits.
# Seen: torch 2.11.0 with CUDA 13.0, NVIDIA H200, 2026-11-28.
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
import torch
from torch.nn import functional

OPERATORS = {
    "nearest": lambda maps: functional.interpolate(maps, scale_factor=2),
    "bilinear": lambda maps: functional.interpolate(maps, scale_factor=2, mode="bilinear"),
    "bicubic": lambda maps: functional.interpolate(maps, scale_factor=2, mode="bicubic"),
    "group norm": lambda maps: functional.group_norm(maps, 2),
    "layer norm": lambda maps: functional.layer_norm(maps, maps.shape[1:]),
    "softmax": lambda maps: functional.softmax(maps, 1),
    "sum": lambda maps: maps.sum(1),
    "cat with a resized one": lambda maps: torch.cat([maps, functional.interpolate(maps, size=maps.shape[2:])], 1),
    "instance norm": functional.instance_norm,
    "mean": lambda maps: maps.mean(1),
    "gelu": functional.gelu,
    "pixel shuffle": lambda maps: functional.pixel_shuffle(maps, 2),
    "area": lambda maps: functional.interpolate(maps, size=8, mode="area"),
}
wide = {}
for device in ("cuda", "cpu"):
    maps = torch.randn(2, 8, 16, 16, device=device, dtype=torch.bfloat16)
    with torch.autocast(device, dtype=torch.bfloat16):
        wide[device] = {name for name, operator in OPERATORS.items() if operator(maps).dtype == torch.float32}
    print(torch.__version__, device, "float32:", sorted(wide[device]))
upsampling = {"nearest", "bilinear", "bicubic", "cat with a resized one"}
assert wide["cuda"] == upsampling | {"group norm", "layer norm", "softmax", "sum"}
assert not wide["cpu"] & upsampling
PROGRAM
"$PYTHON" -W ignore seen.py
