"""The same work on a table of rows by pandas and, where it is installed, by cuDF on a GPU, in the same run.

Run it as `python benchmarks/bench_cudf.py [--rows N]`. It is the work around a bulk prediction: read rows from Parquet,
find the answer of each in a table of the distinct questions (a join on CNN, GPU and batch size), sum the epoch times by
GPU, and write the rows with their answers to Parquet. Least wall time of three runs after a first one; pandas reads and
writes by Arrow with one thread. The joined tables must agree in every row.
"""

# ruff: noqa: TID253 - a benchmark may need Arrow

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from bench_bulk import write_parquet  # isort: skip - it limits BLAS to one thread before numpy is imported

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from machine import machine

KEYS = ["cnn", "gpu", "batch_size"]
REPEATS = 3
MOST_APART = 1e-9  # sums of millions, in another order


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table [10 million]")
    n_rows = parser.parse_args().rows
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    libraries = [pd, *cudf_if_installed()]
    names = ", ".join(f"{each.__name__} {each.__version__}" for each in libraries)
    print(f"cuDF beside pandas | {datetime.now(UTC):%Y-%m-%d} | {machine()} | {names}\n")
    with tempfile.TemporaryDirectory() as folder:
        rows, answers = Path(folder) / "rows.parquet", Path(folder) / "answers.parquet"
        write_parquet(rows, n_rows)
        pq.write_table(answers_to(rows), answers)
        times, sums = {}, []
        for library in libraries:
            times[library.__name__], found = steps(library, rows, answers, Path(folder) / "out.parquet")
            sums.append(found)
    print(f"{n_rows:,} rows, s{'':18}" + "".join(f"{name:>10}" for name in times))
    for step in times["pandas"]:
        print(f"{step:28}" + "".join(f"{each[step]:10.3f}" for each in times.values()))
    print(f"{'rows/s':28}" + "".join(f"{n_rows / sum(each.values()):10,.0f}" for each in times.values()))
    apart = max(float(np.abs(each / sums[0] - 1).max()) for each in sums)
    print(f"largest relative difference of a GPU's sum: {apart:.1e}")
    return int(apart > MOST_APART)


def cudf_if_installed() -> list[ModuleType]:
    try:
        import cudf
    except ImportError:
        print("cuDF is not installed (pip install cudf-cu13): pandas alone is measured.", file=sys.stderr)
        return []
    return [cudf]


def answers_to(rows: Path) -> pa.Table:
    """A time for each distinct question of the rows; which time does not matter here."""
    asked = pq.read_table(rows, columns=KEYS).group_by(KEYS).aggregate([])
    return asked.append_column("epoch_time_s", pa.array(1.0 + np.arange(len(asked)) / 7.0))


def steps(library: ModuleType, rows: Path, answers: Path, out: Path) -> tuple[dict[str, float], np.ndarray]:
    """Least seconds of each step, and the sum of epoch times of each GPU, by name."""
    times: dict[str, list[float]] = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        found = work()
        if library.__name__ == "cudf":
            import cupy

            cupy.cuda.runtime.deviceSynchronize()
        times.setdefault(step, []).append(time.perf_counter() - started)
        return found

    for _ in range(1 + REPEATS):
        asked = timed("read Parquet", lambda: library.read_parquet(str(rows)))
        known = library.read_parquet(str(answers))
        joined = timed("join the answers", lambda a=asked, b=known: a.merge(b, on=KEYS, how="left"))
        sums = timed("sum by GPU", lambda a=joined: a.groupby("gpu")["epoch_time_s"].sum().sort_index())
        timed("write Parquet", lambda a=joined: a.to_parquet(str(out)))
        if joined["epoch_time_s"].isna().any():
            raise RuntimeError("the join left rows without an answer.")
    least = {step: min(each[1:]) for step, each in times.items()}
    return least, np.asarray(sums.to_numpy(), dtype=float)


if __name__ == "__main__":
    sys.exit(main())
