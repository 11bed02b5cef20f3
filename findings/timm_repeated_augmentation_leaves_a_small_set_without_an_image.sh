#!/usr/bin/env bash
# timm's RepeatAugSampler (--aug-repeats 3) gives each epoch a multiple of 256 images, so a set of 1,000 gives 768 of
# which a third are different, and a set of fewer than 256 gives none: the epoch is empty, without a warning.
# Guess before: three views of each image, or as many images as the set has.
# Seen: timm 1.0.22, torch 2.13.0, 2026-11-28, one process.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps timm==1.0.22
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import importlib.util
import sysconfig
from pathlib import Path

# The module alone: all of timm would import torchvision, which this needs nothing of.
path = Path(sysconfig.get_path("purelib")) / "timm/data/distributed_sampler.py"
spec = importlib.util.spec_from_file_location("distributed_sampler", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
RepeatAugSampler = module.RepeatAugSampler

drawn = {}
for images in (200, 1_000, 50_000):
    indices = list(RepeatAugSampler(range(images), num_replicas=1, rank=0, num_repeats=3))
    drawn[images] = len(indices), len(set(indices))
    print(f"a set of {images:,}: {drawn[images][0]:,} drawn, {drawn[images][1]:,} different")
assert drawn == {200: (0, 0), 1_000: (768, 256), 50_000: (49_920, 16_640)}
PYTHON
