"""How far estimated peak memory lies from the peaks that PyTorch reached on our H200, and whether largest batches fit.

Run it as `python benchmarks/bench_memory.py`. A peak is what PyTorch's allocator held at most, so the CUDA context is
left out of the estimate here. Only CNNs above half a GiB are compared: smaller ones fit on every GPU.
"""

import argparse
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from machine import machine

from predictor.answers.sizes import largest_batch_size
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.files import data_root
from predictor.measurements.table import read_measurements
from predictor.operators.memory import CONTEXT_GIB, peak_memory_gib

LEAST_GIB = 0.5
MEMORIES_GIB = (4, 6, 8, 11, 12, 16, 24, 32, 40, 48, 80, 94, 141)
MODE = ["precision", "memory_format"]
# Written by an earlier program: its peaks hold what CNNs before left behind (datasets/README.md).
UNCLEAN = "h200_pytorch_targets.csv.gz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measurements", type=Path, help="folder of measurement tables [ours]")
    folder = parser.parse_args().measurements or data_root() / "measurements"
    paths = [path for path in sorted(folder.glob("h200_pytorch_*targets.csv.gz")) if path.name != UNCLEAN]
    if not paths:
        print(f"memory: not run: {folder} has no h200_pytorch_*targets.csv.gz")
        return 0
    print(f"memory | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    rows = compared(pd.concat([read_measurements(path) for path in paths], ignore_index=True))
    show(rows)
    show_largest(rows)
    return 0


def compared(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with a measured peak, each configuration once, and `error`: estimated / measured - 1."""
    frame = frame[frame["peak_memory_mib"].notna()].drop_duplicates(
        ["cnn", "image_size", "batch_size", *MODE]
    )
    frame = frame.assign(measured_gib=frame["peak_memory_mib"] / 1024)
    frame = frame[frame["measured_gib"] > LEAST_GIB]
    estimated = [
        peak_memory_gib(
            zoo_cnn(row.cnn, int(row.image_size)),
            int(row.batch_size),
            Mode(precision=row.precision, memory_format=row.memory_format),
        )
        - CONTEXT_GIB
        for row in frame.itertuples()
    ]
    return frame.assign(error=estimated / frame["measured_gib"] - 1.0)


def show_largest(rows: pd.DataFrame) -> None:
    """Of the largest batch sizes that the estimate allows in memories of these sizes, the share that fits by the peaks.

    Between measured batch sizes the peak is interpolated; 1.5 % of the memory is the driver's.
    """
    tried, too_large = 0, []
    for (cnn, image_size, precision, memory_format), group in rows.groupby(["cnn", "image_size", *MODE]):
        table = zoo_cnn(str(cnn), int(image_size))
        mode = Mode(precision=precision, memory_format=memory_format)
        known = group.sort_values("batch_size")
        for memory_gib in MEMORIES_GIB:
            gpu = replace(find_gpu("H200"), memory_gib=float(memory_gib))
            size = largest_batch_size(table, gpu, mode) or 0
            if not known["batch_size"].min() <= size < known["batch_size"].max():
                continue
            peak = np.interp(size, known["batch_size"], known["measured_gib"] + CONTEXT_GIB)
            tried += 1
            if peak > 0.985 * memory_gib:
                too_large.append(f"{cnn} {precision} {memory_gib} GiB: {peak:.1f} at batch {size}")
    print(
        f"\nlargest batch sizes: {tried}, of which {tried - len(too_large)} fit; not: {'; '.join(too_large)}"
    )


def show(rows: pd.DataFrame) -> None:
    print(f"{'mode':26}{'peaks':>7}{'median':>9}{'mean':>8}{'10 % low':>10}{'10 % high':>11}  lowest")
    for mode, group in [(("all", ""), rows), *rows.groupby(MODE)]:
        error, worst = group["error"], group.loc[group["error"].idxmin()]
        print(
            f"{' '.join(mode):26}{len(group):7}{error.abs().median():9.1%}{error.abs().mean():8.1%}"
            f"{(error < -0.1).mean():10.1%}{(error > 0.1).mean():11.1%}  "
            f"{worst['error']:+.0%}: {worst['cnn']}, {worst['image_size']:.0f} px, batch {worst['batch_size']:.0f}, "
            f"{worst['measured_gib']:.1f} GiB"
        )


if __name__ == "__main__":
    sys.exit(main())
