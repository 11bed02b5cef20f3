"""How fast 100,000 rows of a CSV are predicted, beside the bare numpy product of as many rows.

Run it as `python benchmarks/bench_bulk.py`; BLAS is held to one thread, since the goal is for one core.
"""

# ruff: noqa: E402 - BLAS reads its number of threads when numpy is imported

import csv
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np
from machine import machine

from predictor.answers.bulk import predict_rows
from predictor.answers.knowledge import load_model

ROWS = 100_000
CNNS = ("resnet18", "resnet50", "vgg16", "mobilenet_v2", "densenet121")
GPUS = ("K80", "M60", "T4", "V100-SXM2-16GB", "P100-PCIE-16GB", "RTX 2080 Ti", "RTX 3090", "A100-SXM4-40GB")
BATCH_SIZES = range(1, 513)
FEATURES = 32
REPEATS = 5
GOAL_S = 2.0


def main() -> int:
    model = load_model(None)
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "rows.csv", Path(folder) / "predictions.csv"
        write_questions(asked)
        cold_s = timed(lambda: predict_rows(asked, answered, model=model))
        warm_s = statistics.median(
            timed(lambda: predict_rows(asked, answered, model=model)) for _ in range(REPEATS)
        )
        bare_s = statistics.median(timed(lambda: copy(asked, answered)) for _ in range(REPEATS))
    product_s = numpy_product_s()
    print(f"bulk | {datetime.now(UTC):%Y-%m-%d} | {machine()} | {ROWS:,} rows, one core\n")
    print(f"{'what':44}{'seconds':>9}{'rows/s':>12}{'x product':>11}{'goal':>8}")
    for name, seconds, goal in (
        (f"numpy: ({ROWS:,} x {FEATURES}) @ ({FEATURES},)", product_s, ""),
        ("csv: read and write as many rows", bare_s, ""),
        ("predict_rows, first call", cold_s, f"~ {GOAL_S:g} s"),
        ("predict_rows, later calls", warm_s, f"~ {GOAL_S:g} s"),
    ):
        print(f"{name:44}{seconds:9.4f}{ROWS / seconds:12,.0f}{seconds / product_s:11,.0f}{goal:>8}")
    return 0


def write_questions(path: Path) -> None:
    """Write every CNN on every GPU at drawn batch sizes, in random order."""
    draw = np.random.default_rng(0)
    cnns, gpus, sizes = (draw.integers(len(each), size=ROWS) for each in (CNNS, GPUS, BATCH_SIZES))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["cnn", "image_size", "gpu", "batch_size", "precision", "samples"])
        writer.writerows(
            [CNNS[cnn], 224, GPUS[gpu], BATCH_SIZES[size], "fp32", 1_281_167]
            for cnn, gpu, size in zip(cnns, gpus, sizes, strict=True)
        )


def copy(asked: Path, answered: Path) -> None:
    with asked.open(newline="") as source, answered.open("w", newline="") as target:
        csv.writer(target).writerows(
            [*row, *["1.2345678901234"] * 5, "roofline", "", ""] for row in csv.reader(source)
        )


def numpy_product_s() -> float:
    features = np.random.default_rng(0).random((ROWS, FEATURES))
    weights = np.ones(FEATURES)
    return statistics.median(timed(lambda: features @ weights) for _ in range(20))


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
