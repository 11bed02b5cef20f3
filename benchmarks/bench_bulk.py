"""How many rows per second bulk prediction answers on one core, from CSV and from Parquet, and in how much memory.

Run it as `python benchmarks/bench_bulk.py`. Rows are drawn from 5 CNNs x 8 GPUs x 512 batch sizes; `distinct` has each
of these combinations once. Processor time of one thread each for BLAS and Arrow, since other work on the machine
changes it least. At last `--rows` rows (10 million) go through a process of its own that may take 2 GiB of addresses.
"""

# ruff: noqa: E402, TID253 - BLAS reads its number of threads when numpy is imported; a benchmark may need Arrow

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from machine import machine

from predictor.answers.bulk import predict_rows

CNNS = ("resnet18", "resnet50", "vgg16", "mobilenet_v2", "densenet121")
GPUS = ("K80", "M60", "T4", "V100-SXM2-16GB", "P100-PCIE-16GB", "RTX 2080 Ti", "RTX 3090", "A100-SXM4-40GB")
BATCH_SIZES = range(1, 513)
OF_A_BATCH = 500_000
REPEATS = 3
MOST_GIB = 2
GOAL = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="rows of the last measurement [10 million]"
    )
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if options.child:
        return in_little_memory(*options.child)
    print(
        f"bulk | {datetime.now(UTC):%Y-%m-%d} | {machine()} | one core, goal {GOAL:,} rows/s from Parquet\n"
    )
    print(f"{'what':52}{'rows':>12}{'CPU s':>9}{'rows/s':>12}{'MiB at most':>13}")
    with tempfile.TemporaryDirectory() as folder:
        for name, n_rows, seconds in measurements(Path(folder)):
            show(name, n_rows, seconds)
        asked, answered = Path(folder) / "rows.parquet", Path(folder) / "predictions.parquet"
        write_parquet(asked, options.rows)
        command = [sys.executable, __file__, "--child", str(asked), str(answered)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            print(found.stderr, file=sys.stderr)
            return 1
        seconds, mib = map(float, found.stdout.split())
        show(f"predict_rows, Parquet, at most {MOST_GIB} GiB, with the start", options.rows, seconds, mib)
    return 0


def measurements(folder: Path) -> Iterator[tuple[str, int, float]]:
    """Each measurement's name, rows, and least processor time in s."""
    table, parquet = (
        (folder / "rows.csv", folder / "out.csv"),
        (folder / "rows.parquet", folder / "out.parquet"),
    )
    write_csv(table[0], 100_000)
    yield "csv: read and write as many rows", 100_000, best_s(lambda: copy(*table))
    yield "predict_rows, CSV", 100_000, best_s(lambda: predict_rows(*table))
    write_csv(table[0], 1_000_000)
    yield "predict_rows, CSV", 1_000_000, best_s(lambda: predict_rows(*table))
    for n_rows in (100_000, 1_000_000):
        write_parquet(parquet[0], n_rows)
        yield "predict_rows, Parquet", n_rows, best_s(lambda: predict_rows(*parquet))
    cells = list(product(range(len(CNNS)), range(len(GPUS)), range(len(BATCH_SIZES))))
    pq.write_table(as_table(*np.array(cells).T), parquet[0])
    yield "predict_rows, Parquet, distinct", len(cells), best_s(lambda: predict_rows(*parquet))


def show(name: str, n_rows: int, seconds: float, mib: float | None = None) -> None:
    memory = "" if mib is None else f"{mib:,.0f}"
    print(f"{name:52}{n_rows:12,}{seconds:9.2f}{n_rows / seconds:12,.0f}{memory:>13}", flush=True)


def in_little_memory(asked: str, answered: str) -> int:
    """Answer a file with a bound on this process's addresses; print its processor time in s and its peak in MiB."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_GIB * 2**30, MOST_GIB * 2**30))
    predict_rows(asked, answered)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
    return 0


def drawn(n_rows: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Indices of CNN, GPU and batch size of each row."""
    draw = np.random.default_rng(seed)
    return (draw.integers(len(each), size=n_rows) for each in (CNNS, GPUS, BATCH_SIZES))


def write_csv(path: Path, n_rows: int) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["cnn", "image_size", "gpu", "batch_size", "precision", "samples"])
        writer.writerows(
            [CNNS[cnn], 224, GPUS[gpu], BATCH_SIZES[size], "fp32", 1_281_167]
            for cnn, gpu, size in zip(*drawn(n_rows), strict=True)
        )


def write_parquet(path: Path, n_rows: int) -> None:
    with pq.ParquetWriter(path, as_table(*drawn(1)).schema) as writer:
        for start in range(0, n_rows, OF_A_BATCH):
            writer.write_table(as_table(*drawn(min(OF_A_BATCH, n_rows - start), seed=start)))


def as_table(cnn: np.ndarray, gpu: np.ndarray, size: np.ndarray) -> pa.Table:
    n_rows = len(cnn)
    return pa.table(
        {
            "cnn": pa.array(np.array(CNNS, dtype=object)[cnn]),
            "image_size": np.full(n_rows, 224),
            "gpu": pa.array(np.array(GPUS, dtype=object)[gpu]),
            "batch_size": np.array(BATCH_SIZES)[size],
            "precision": pa.array(["fp32"] * n_rows),
            "samples": np.full(n_rows, 1_281_167),
        }
    )


def copy(asked: Path, answered: Path) -> None:
    with asked.open(newline="") as source, answered.open("w", newline="") as target:
        csv.writer(target).writerows(
            [*row, *["1.2345678901234"] * 11, "true", "pytorch", "roofline", "", ""]
            for row in csv.reader(source)
        )


def best_s(work: Callable[[], object]) -> float:
    """Least processor time of several runs, in s."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
