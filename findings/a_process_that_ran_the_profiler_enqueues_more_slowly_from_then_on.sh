#!/usr/bin/env bash
# A process that has run torch.profiler over CUDA once takes longer to enqueue the same kernels from then on, although
# no profiler is active any more. With TEARDOWN_CUPTI=1 in its environment it does not.
# Guess before: the profiler costs while it is on, and nothing after it.
# Seen: torch 2.11.0 with CUDA 13.0, NVIDIA H200, 2026-11-28: 6.5 to 9.5 us a kernel before, 8.6 to 12.7 after, medians
# of 180 bursts; x 1.33 in the middle of three processes, 0.99 with TEARDOWN_CUPTI=1. Whole iterations on H100s: 1.3 to
# 1.7 times, 14 of 14 processes.
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
import json
import os
import statistics
import subprocess
import sys
import time

import torch


def enqueue_us():
    """Median time to enqueue one small kernel, in us, over 200 bursts of 200."""
    numbers = torch.zeros(16, device="cuda")
    times = []
    for _ in range(200):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(200):
            numbers.add_(1.0)
        times.append((time.perf_counter() - started) / 200 * 1e6)
    return statistics.median(times[20:])


if len(sys.argv) > 1:
    enqueue_us()
    before = enqueue_us()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]):
        torch.zeros(16, device="cuda").add_(1.0)
        torch.cuda.synchronize()
    enqueue_us()
    print(json.dumps([before, enqueue_us()]))
    sys.exit()
ratios = {}
for teardown in ("", "1"):
    environment = {name: value for name, value in os.environ.items() if name != "TEARDOWN_CUPTI"}
    environment |= {"TEARDOWN_CUPTI": teardown} if teardown else {}
    runs = []
    for _ in range(5):
        output = subprocess.run([sys.executable, __file__, "child"], env=environment, capture_output=True, text=True, check=True)
        before, after = json.loads(output.stdout.splitlines()[-1])
        runs.append(after / before)
        print(f"TEARDOWN_CUPTI={teardown or 'unset'}: {before:.2f} us a kernel before, {after:.2f} after: x {after / before:.2f}")
    ratios[teardown] = statistics.median(runs)
print(torch.__version__, ratios)
assert ratios[""] > 1.15
assert ratios["1"] < 1.1
PROGRAM
"$PYTHON" -W ignore seen.py
