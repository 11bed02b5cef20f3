#!/usr/bin/env bash
# Lightning's table of peaks, by which its throughput monitor says which share of a GPU's peak a training reaches, has
# dense figures for an H100 SXM and those of sparse matrices for an H200 SXM, which is the same chip: the same training
# reaches half of the share on an H200. An H100 NVL is counted like two chips.
# Guess before: both chips have one peak, 989 TFLOP/s in bf16.
# Seen: lightning-fabric 2.6.6, 2026-11-28: bf16 989.4 (H100 SXM), 2,000 (H200 SXM); TF32 494.7 and 990.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6 lightning-fabric==2.6.6
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import torch
from lightning_fabric.utilities.throughput import _CUDA_FLOPS

for kind in (torch.bfloat16, "tfloat32"):
    h100, h200, nvl = (_CUDA_FLOPS[gpu][kind] / 1e12 for gpu in ("h100 sxm", "h200 sxm1", "h100 nvl"))
    print(f"{kind}: H100 SXM {h100:g}, H200 SXM {h200:g}, H100 NVL {nvl:g} TFLOP/s")
    assert 1.99 < h200 / h100 < 2.03
    assert 1.99 < nvl / h100 < 2.01
PYTHON
