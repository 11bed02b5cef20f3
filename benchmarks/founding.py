"""How far the founding study's approaches lie from measurements in its three scalings, by form, beside the default.

Run it as `python benchmarks/founding.py`: our tables in TF32 (H200 and H100), fp32 (H200 and CPUs) and of Chainer.
Approach 1 on published GPUs: `epochcast evaluate --predictor gpu-specs --scenario unseen-gpu-specs`.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from machine import heading

from predictor.evaluation.run import EvaluationResult, evaluate, registered_predictors
from predictor.evaluation.scenarios import DEFAULT, SCALINGS
from predictor.files import data_root
from predictor.measurements.table import read_measurements
from predictor.models.founding import GpuSpecs, ProxyTimes
from predictor.models.named import rows_of_measurements

_TABLES = ("proxies", "cnns", "targets", "resnet50", "vgg_cifar", "more")
_MODES = {
    "tf32": {"framework": "pytorch", "precision": "tf32", "memory_format": "nchw", "device_kind": "gpu"},
    "fp32": {"framework": "pytorch", "precision": "fp32", "memory_format": "nchw"},
    "chainer": {"framework": "chainer", "precision": "fp32", "device_kind": "gpu"},
}
"""Rows that are judged together: H200 and H100, an H200 and processors, Chainer on H200 and H100."""

_FORMS = {
    "gpu-specs": GpuSpecs(),
    "gpu-specs, any sign": GpuSpecs(positive=False),
    "gpu-specs, squares": GpuSpecs(power=2.0),
    "proxy-times": ProxyTimes(),
    "proxy-times, sum": ProxyTimes(power=1.0),
    "proxy-times, sum of any sign": ProxyTimes(power=1.0, positive=False),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measurements", type=Path, default=data_root() / "measurements", help="folder of tables"
    )
    parser.add_argument("--mode", nargs="+", choices=_MODES, default=list(_MODES), help="rows to judge")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--out", help="CSV file for `epochcast fit --accuracy`")
    options = parser.parse_args(arguments)
    print(heading("founding"))
    summaries = []
    for name in options.mode:
        rows = founding_rows(options.measurements, name)
        result = judged(rows, options.jobs)
        table = result.table()
        shown = ["scenario", "predictor", "n", "mape", "median", "p90", "worst_mape", "worst_mape_group"]
        print(f"{name}\n{table[shown].round(3).to_string(index=False)}\n", flush=True)
        summaries.append(table.assign(rows=name))
    if options.out and summaries:
        pd.concat(summaries).to_csv(options.out, index=False)
    return 0


def founding_rows(folder: Path, mode: str) -> pd.DataFrame:
    """Feature table of our proxies and CNNs in a mode, on GPUs with proxies in it; some CNNs are in no fit."""
    paths = [path for kind in _TABLES for path in sorted(folder.glob(f"*_{kind}.csv.gz"))]
    tables = pd.concat([read_measurements(path) for path in paths], ignore_index=True)
    chosen = np.logical_and.reduce([tables[column] == word for column, word in _MODES[mode].items()])
    rows = rows_of_measurements(tables[chosen & (tables["source"] == "epochcast")])
    measured = rows.loc[rows["kind"] == "proxy", ["gpu", "autotune"]].drop_duplicates()
    return rows.merge(measured, on=["gpu", "autotune"]).reset_index(drop=True)


def judged(rows: pd.DataFrame, n_jobs: int = 1) -> EvaluationResult:
    """All forms of both approaches, the default and a baseline, in the three scalings."""
    return evaluate(
        rows, list(SCALINGS.values()), _FORMS | registered_predictors([DEFAULT, "flops-ratio"]), n_jobs=n_jobs
    )


if __name__ == "__main__":
    sys.exit(main())
