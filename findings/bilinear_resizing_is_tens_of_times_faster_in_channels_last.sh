#!/usr/bin/env bash
# Bilinear resizing of small maps of many images and channels takes tens of times as long in NCHW as in channels-last,
# forward and backward, and nearest does not: the NCHW kernel runs over positions and loops over images and channels. Of
# large maps with few channels both take as long.
# Guess before: both move the same bytes and take about as long; bilinear at most twice nearest.
# Seen: torch 2.11.0 with CUDA 13.0, NVIDIA H200, 2026-11-28: 64 x 120 channels, 14 to 28 pixels: 3.02 ms in NCHW, 0.21
# in channels-last (nearest 0.23 and 0.19); 16 x 64, 128 to 256: 1.08 and 1.21. In 16 bits NCHW's backward pass is
# slower than in 32.
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


def forward_backward_ms(images, channels, side, mode, memory_format):
    maps = torch.randn(images, channels, side, side, device="cuda").to(memory_format=memory_format).requires_grad_()
    options = {} if mode == "nearest" else {"align_corners": False}
    gradient = None
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(12):
        maps.grad = None
        torch.cuda.synchronize()
        start.record()
        resized = functional.interpolate(maps, scale_factor=2, mode=mode, **options)
        gradient = torch.ones_like(resized) if gradient is None else gradient
        resized.backward(gradient)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


ratios = {}
for images, channels, side in ((64, 120, 14), (16, 64, 128)):
    for mode in ("bilinear", "nearest"):
        nchw = forward_backward_ms(images, channels, side, mode, torch.contiguous_format)
        last = forward_backward_ms(images, channels, side, mode, torch.channels_last)
        ratios[side, mode] = nchw / last
        print(f"{torch.__version__} {images} x {channels} x {side} px, {mode}: NCHW {nchw:.3f} ms, channels-last {last:.3f} ms")
assert ratios[14, "bilinear"] > 10
assert ratios[14, "nearest"] < 4
assert ratios[128, "bilinear"] < 3
PROGRAM
"$PYTHON" -W ignore seen.py
