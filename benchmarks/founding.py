"""How far approach 2 of the founding study lies from measurements: proxies and CNNs of one GPU, proxies of another.

Run it as `python benchmarks/founding.py`. The laws are fitted on one GPU alone; the default is judged on the same rows,
which no fit reads.
"""

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from machine import machine

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.files import data_root
from predictor.measurements.features import PROXY_TIME_PREFIX, feature_table
from predictor.measurements.table import read_measurements
from predictor.models.methods.fit import as_epochs
from predictor.models.per_epoch import IterationFromEpoch
from predictor.models.registry import new_predictor
from predictor.models.served import Model

_METHODS = ("proxy-times", "proxy-times-relative")
_TABLES = ("proxies", "cnns", "targets")
_MODE = Mode(precision="tf32")
_LEAST_ROWS = 5  # of a CNN: two proxies need four, and one more


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    print(f"founding | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    started = time.perf_counter()
    features, summaries = founding_features(options.measurements), []
    gpus = list(features["gpu"].value_counts().index)
    for second in gpus[1:]:
        judged = judge(features[features["gpu"] == gpus[0]], features[features["gpu"] == second])
        summaries.append(summary_of(judged))
        print(f"{gpus[0]} -> {second}\n{summaries[-1].round(3).to_string(index=False)}\n")
    if options.out:
        pd.concat(summaries).to_csv(options.out, index=False)
    print(f"{time.perf_counter() - started:.0f} s")
    return 0


def founding_features(folder: Path) -> pd.DataFrame:
    """Whole CNNs in TF32 with the proxies' epoch times on their GPU; tables that no fit reads are among them."""
    paths = [path for kind in _TABLES for path in sorted(folder.glob(f"*_{kind}.csv.gz"))]
    rows = pd.concat([read_measurements(path) for path in paths], ignore_index=True)
    mode = ("framework", "precision", "memory_format")
    chosen = np.logical_and.reduce([rows[name] == getattr(_MODE, name) for name in mode])
    one = rows[chosen & (rows["source"] == "epochcast")]
    features = feature_table(as_epochs(one).reset_index(drop=True))
    proxies = [column for column in map(str, features) if column.startswith(PROXY_TIME_PREFIX)]
    known = features[proxies].notna().all(axis=1) & (features["kind"] == "target")
    return features[known].reset_index(drop=True)


def judge(known: pd.DataFrame, asked: pd.DataFrame) -> pd.DataFrame:
    """|predicted / measured - 1| of each row of CNNs known on the first GPU, a column for each method."""
    model = Model.load()
    cell = ["cnn", "image_size"]
    sizes = known.groupby(cell)["batch_size"].transform("size")
    train = known[sizes >= _LEAST_ROWS]
    test = asked.merge(train[cell].drop_duplicates(), on=cell)
    measured = test["iteration_time_ms"].to_numpy(dtype=float)
    found: dict[str, np.ndarray] = {}
    for name in _METHODS:
        law = new_predictor(name).set_params(proxies=model.named_methods().fitted[name][0].law.proxies)
        found[name] = IterationFromEpoch(law).fit(train, train["iteration_time_ms"]).predict(test)
    found["default"] = np.array([_by_default(model, row) for row in test.to_dict("records")])
    return pd.DataFrame({name: np.abs(times / measured - 1) for name, times in found.items()})


def _by_default(model: Model, row: dict[str, object]) -> float:
    """Iteration time of a row by the path that answers questions."""
    gpu = find_gpu(str(row["gpu"]))
    return float(model.forecast(row["layer_table"], gpu, _MODE, [row["batch_size"]]).iteration_time_ms[0])


def summary_of(judged: pd.DataFrame) -> pd.DataFrame:
    """The columns of an evaluation's summary that `epochcast fit --accuracy` reads."""
    found = [
        {
            "scenario": "another-gpu-by-proxies",
            "predictor": name,
            "n": len(errors),
            "mape": errors.mean(),
            "median": errors.median(),
            "p90": errors.quantile(0.9),
            "coverage": np.nan,
            "worst_coverage": np.nan,
        }
        for name, errors in judged.items()
    ]
    return pd.DataFrame(found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measurements", type=Path, default=data_root() / "measurements", help="folder of tables"
    )
    parser.add_argument("--out", help="CSV file for `epochcast fit --accuracy`")
    return parser


if __name__ == "__main__":
    sys.exit(main())
