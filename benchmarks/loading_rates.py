"""What loading an image takes: CPU time of each stage, and images a second of a DataLoader's workers.

    python benchmarks/loading_rates.py measure --out FILE.csv
    python benchmarks/loading_rates.py fit FILE.csv ...

`fit` prints the numbers of `datasets/loaders.csv` that its rates say. `measure` needs PyTorch and torchvision.
"""

import argparse
import csv
import io
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from machine import machine
from scipy.optimize import least_squares

from predictor.catalogue.loading_rates import find_loader
from proxy_cnns.input_pipeline import rate_of
from proxy_cnns.pictures import pillow, write_images
from proxy_cnns.pipelines import DEVIATION, MEAN

STORED = ((160, 213), (256, 341), (375, 500), (768, 1024), (1536, 2048))
"""Height and width of JPEGs."""

SIZES = (32, 64, 128, 224, 384)
_ARRAYS = (28, 32, 64, 96)
_IMAGES = 24
_BATCH = 32
_WORKERS = (0, 1, 2, 4, 8, 12, 16)
_COLUMNS = ("what", "stored", "image_size", "workers", "value", "machine", "at")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    steps = parser.add_subparsers(required=True)
    measuring = steps.add_parser("measure")
    measuring.add_argument("--out", type=Path, required=True, help="CSV file; rows are added as they come")
    measuring.add_argument("--seconds", type=float, default=1.2, help="of each number of workers")
    measuring.add_argument("--budget", type=float, default=120, help="seconds after which nothing begins")
    measuring.set_defaults(step=measure)
    fitting = steps.add_parser("fit")
    fitting.add_argument("files", type=Path, nargs="+")
    fitting.set_defaults(step=fit)
    options = parser.parse_args(arguments)
    return int(options.step(options) or 0)


def measure(options: argparse.Namespace) -> None:
    """Stages first, then rates: those of most interest before others."""
    import torch

    torch.set_num_threads(1)
    end = time.perf_counter() + options.budget
    with options.out.open("a", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        if not file.tell():
            rows.writerow(_COLUMNS)

        def say(what: str, stored: str, image_size: int, workers: int | str, value: float) -> None:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            rows.writerow((what, stored, image_size, workers, f"{value:.5g}", machine(), now))
            file.flush()

        with tempfile.TemporaryDirectory() as folder:
            pictures = [pillow().open(path).convert("RGB") for path in write_images(Path(folder), _IMAGES)]
        _stages(pictures, say)
        files = {size: [_jpeg(each, size) for each in pictures] for size in STORED[:4]}
        for workers in _WORKERS:
            for what, stored, image_size, data in _data_sets(pictures, files):
                usual = what in ("array_crop", "jpeg_random_crop") and stored in ("32", "375x500")
                if time.perf_counter() < end and (usual or workers in (0, 1, 4, 16)):
                    say(what, stored, image_size, workers, _rate(data, workers, options.seconds))


def _jpeg(picture: Any, size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    picture.resize(size[::-1], pillow().Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def _stages(pictures: Sequence[Any], say: Callable[..., None]) -> None:
    """CPU microseconds of an image: median over images, each taken once after one to warm up."""
    import torch
    from torchvision import transforms as t

    to_tensor, normalise = t.ToTensor(), t.Normalize(MEAN, DEVIATION)
    for size in STORED:
        name, files = (
            f"{size[0]}x{size[1]}",
            [_jpeg(each, size) for each in pictures[: 6 if size[0] > 700 else 24]],
        )
        images = [pillow().open(io.BytesIO(each)).convert("RGB") for each in files]
        say("decode", name, 0, "", _us(lambda file: pillow().open(io.BytesIO(file)).convert("RGB"), files))
        for side in SIZES:
            if size[0] > side:
                drafts = [(file, side) for file in files]
                say("decode_draft", name, side, "", _us(_drafted, drafts))
            say("random_resized_crop", name, side, "", _us(t.RandomResizedCrop(side), images * 3))
            say("resize", name, side, "", _us(t.Resize((side, side)), images))
            say(
                "resize_and_centre",
                name,
                side,
                "",
                _us(t.Compose([t.Resize(side * 8 // 7), t.CenterCrop(side)]), images),
            )
    for side in (*_ARRAYS, 128, 224, 384):
        images = [each.resize((side, side)) for each in pictures]
        tensors = [to_tensor(each) for each in images]
        arrays = [np.asarray(each) for each in images]
        say("from_array", "", side, "", _us(pillow().fromarray, arrays))
        say("flip", "", side, "", _us(t.RandomHorizontalFlip(1.0), images))
        say("padded_crop", "", side, "", _us(t.RandomCrop(side, padding=4), images))
        say("to_tensor", "", side, "", _us(to_tensor, images))
        say("normalise", "", side, "", _us(normalise, tensors))
        batch = [(each, 1) for each in tensors] * 4
        say("collate", "", side, "", _us(torch.utils.data.default_collate, [batch] * 6) / len(batch))


def _drafted(file_and_side: tuple[bytes, int]) -> Any:
    """Decoded at the least of 1/1, 1/2, 1/4, 1/8 of its size that is not below the side."""
    image = pillow().open(io.BytesIO(file_and_side[0]))
    image.draft("RGB", (file_and_side[1],) * 2)
    return image.convert("RGB")


def _us(step: Callable[[Any], Any], inputs: Sequence[Any]) -> float:
    step(inputs[0])
    times = []
    for each in inputs:
        start = time.perf_counter()
        step(each)
        times.append(1e6 * (time.perf_counter() - start))
    return median(times)


class Images:
    """A data set in memory without an end: of JPEGs (bytes) or arrays."""

    def __init__(self, stored: Sequence[Any], augment: Callable[[Any], Any]) -> None:
        self._stored, self._augment = stored, augment

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, i: int) -> tuple[Any, int]:
        each = self._stored[i % len(self._stored)]
        if isinstance(each, bytes):
            return self._augment(pillow().open(io.BytesIO(each)).convert("RGB")), 1
        return self._augment(pillow().fromarray(each)), 1


def _data_sets(
    pictures: Sequence[Any], files: dict[tuple[int, int], list[bytes]]
) -> list[tuple[str, str, int, Any]]:
    from torchvision import transforms as t

    ends = [t.ToTensor(), t.Normalize(MEAN, DEVIATION)]
    found: list[tuple[str, str, int, Any]] = []
    for side in _ARRAYS[1::2]:
        arrays = [np.asarray(each.resize((side, side))) for each in pictures]
        moved = t.Compose([t.RandomCrop(side, padding=4), t.RandomHorizontalFlip(), *ends])
        found.append(("array_crop", str(side), side, Images(arrays, moved)))
    grey = [np.asarray(each.resize((28, 28)).convert("L")) for each in pictures]
    found.append(("array", "28", 28, Images(grey, t.Compose([ends[0], t.Normalize((0.1307,), (0.3081,))]))))
    for size, side in ((STORED[2], 224), (STORED[0], 128), (STORED[3], 224)):
        cropped = t.Compose([t.RandomResizedCrop(side), t.RandomHorizontalFlip(), *ends])
        found.append(("jpeg_random_crop", f"{size[0]}x{size[1]}", side, Images(files[size], cropped)))
    resized = t.Compose([t.Resize((64, 64)), *ends])
    found.append(("jpeg_resize", "375x500", 64, Images(files[STORED[2]], resized)))
    return found


def _rate(data: Any, workers: int, seconds: float) -> float:
    """Images a second, after three rounds of workers."""
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(data, _BATCH, num_workers=workers)
    batches = (len(images) for images, _ in loader)
    return rate_of(batches, seconds, time.perf_counter, 3 * max(1, workers))


def fit(options: argparse.Namespace) -> None:
    """Fit a core's microseconds and the share of a busy vCPU to images/s, and say how far the shipped numbers are off.

    Rate = workers / core's time x share^(workers / vCPUs); with 0 workers that of a core.
    """
    rows = pd.concat(map(pd.read_csv, options.files))
    for what, form in (("jpeg_random_crop", "jpeg"), ("array_crop", "array")):
        own = rows[(rows["what"] == what) & rows["workers"].notna()]
        sides = own["stored"].astype(str).str.split("x")
        source = np.array([math.prod(map(int, each)) for each in sides]) / 1e6
        design = np.column_stack([np.ones(len(own)), source, own["image_size"] ** 2 / 1e6])
        if form == "array":
            design[:, 1] = 0.0  # as large as the target
        workers, vcpus = (
            own["workers"].to_numpy(float),
            own["machine"].str.extract(r"(\d+) cores")[0].astype(float),
        )
        shipped = find_loader("torchvision", form)
        start = (
            shipped.fixed_us,
            shipped.us_per_source_megapixel,
            shipped.us_per_megapixel,
            shipped.vcpu_share,
        )

        def wrong(numbers: Any, design: Any, workers: Any, busy: Any, value: Any) -> Any:
            rates = 1e6 * np.maximum(workers, 1) / (design @ numbers[:3]) * numbers[3] ** busy
            return np.log(rates / value)

        told = (design, workers, (workers / vcpus).to_numpy(), own["value"].to_numpy())
        found = least_squares(
            wrong, np.maximum(start, 1e-3), bounds=(1e-6, np.inf), loss="soft_l1", f_scale=0.1, args=told,
            x_scale=(100.0, 1e4, 1e4, 0.5),
        )  # fmt: skip
        off = [100 * np.abs(np.expm1(wrong(numbers, *told))).mean() for numbers in (found.x, np.array(start))]
        names = ("fixed_us", "us_per_source_megapixel", "us_per_megapixel", "vcpu_share")
        print(form, *(f"{name} {value:.4g}" for name, value in zip(names, found.x, strict=True)), sep="  ")
        print(f"  {len(own)} rates: {off[0]:.0f} % off, as shipped {off[1]:.0f} %")


if __name__ == "__main__":
    sys.exit(main())
