"""How far the founding study's two approaches lie from our measurements in its three scalings, beside the default.

Run it as `python benchmarks/founding.py`. Both are fitted on one GPU: on its proxies and CNNs, approach 2 on the
proxies of the
other GPU, too. The default answers the same rows as shipped; CNNs of the first GPU are among its training rows.
`--nested` chooses weights and ridges anew inside the training part of every fold, by CNNs left out there, and judges
these.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from machine import machine

from predictor.files import data_root
from predictor.measurements.table import read_measurements
from predictor.models import founding
from predictor.models.base import cases_of
from predictor.models.named import rows_of_measurements
from predictor.models.registry import new_predictor
from predictor.models.served import Model

_METHODS = ("gpu-specs", "proxy-times")
_TABLES = ("proxies", "cnns", "targets", "resnet50")
_MODE = {"framework": "pytorch", "precision": "tf32", "memory_format": "nchw"}
_FIRST, _SECOND = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
_SIZE_GROUPS, _CNN_GROUPS = 4, 5
_OF_BYTES = {"_FLOP_PER_BYTE": (0.0, 20.0, 60.0, 200.0)}
_SETTINGS = {
    "gpu-specs": _OF_BYTES | {"_OF_PROXIES": (1.0, 3.0, 10.0), "_OF_MODES": (0.15, 0.5, 1.5)},
    "proxy-times": _OF_BYTES | {"_NEAR_GENERAL": (0.03, 0.1, 0.3, 1.0)},
}
"""Alternatives from which `--nested` chooses."""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    print(f"founding | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    started = time.perf_counter()
    rows = founding_rows(options.measurements)
    judged = pd.concat([judge(rows, name, nested=options.nested) for name in _METHODS])
    summary = summary_of(judged, rows)
    print(summary.round(3).to_string(index=False))
    if options.out:
        summary.to_csv(options.out, index=False)
    print(f"{time.perf_counter() - started:.0f} s")
    return 0


def founding_rows(folder: Path) -> pd.DataFrame:
    """Our proxies and CNNs in modes whose proxies were measured, as a feature table; no fit reads some of them."""
    paths = [path for kind in _TABLES for path in sorted(folder.glob(f"*_{kind}.csv.gz"))]
    tables = pd.concat([read_measurements(path) for path in paths], ignore_index=True)
    rows = rows_of_measurements(tables[(tables["source"] == "epochcast") & (tables["device_kind"] != "cpu")])
    mode = ["framework", "precision", "memory_format"]
    known = rows.loc[rows["kind"] == "proxy", mode].drop_duplicates()
    return rows.merge(known, on=mode).reset_index(drop=True)


def folds(rows: pd.DataFrame) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Scaling, CNNs to fit on and CNNs to predict, as truth values of the rows."""
    cnn, first, second = rows["kind"] == "target", rows["gpu"] == _FIRST, rows["gpu"] == _SECOND
    ours = np.logical_and.reduce([rows[name] == value for name, value in _MODE.items()])
    sizes = rows["batch_size"].map({size: k for k, size in enumerate(sorted(set(rows["batch_size"])))})
    series = rows.where(cnn & first & ours).groupby(["cnn", "image_size"])["batch_size"]
    inner = cnn & first & ours & (rows["batch_size"] > series.transform("min"))
    inner &= rows["batch_size"] < series.transform("max")
    for k in range(_SIZE_GROUPS):
        out = sizes % _SIZE_GROUPS == k
        yield "proxies-batch-size", cnn & first & ~(out & inner), out & inner
        yield "proxies-both", cnn & first & ~out, cnn & second & ours & out
    yield "proxies-gpu", cnn & first, cnn & second & ours
    group = rows.groupby("cnn").ngroup() % _CNN_GROUPS
    for k in range(_CNN_GROUPS):
        yield "proxies-cnn", cnn & first & (group != k), cnn & first & ours & (group == k)
    chainer = rows["framework"] == "chainer"
    yield "proxies-chainer", cnn & first & ~chainer, cnn & chainer


def judge(rows: pd.DataFrame, name: str, *, nested: bool = False) -> pd.DataFrame:
    """|predicted / measured - 1| of each row that is predicted, by scaling."""
    proxies = (rows["kind"] == "proxy") & ((rows["gpu"] == _FIRST) | (name == "proxy-times"))
    found: list[pd.DataFrame] = []
    for scaling, train, test in folds(rows):
        known, settings = rows[proxies | train], {}
        if nested:
            settings = chosen(known, name)
            print(f"{name}, {scaling}: {settings}", file=sys.stderr)
        error = errors(known, rows[test], name, settings)
        found.append(pd.DataFrame({"scenario": scaling, "predictor": name, "error": error}))
    return pd.concat(found)


def errors(known: pd.DataFrame, asked: pd.DataFrame, name: str, settings: Mapping[str, float]) -> pd.Series:
    """|predicted / measured - 1| of the rows asked, by a fit of the known ones in these settings."""
    with _set(settings):
        predicted = new_predictor(name).fit(known, known["iteration_time_ms"]).predict(asked)
    return np.abs(predicted / asked["iteration_time_ms"] - 1)


def chosen(known: pd.DataFrame, name: str) -> dict[str, float]:
    """Settings, one after the other, that miss CNNs left out of these rows least, as the mean of their errors."""
    group = known.groupby("cnn").ngroup() % _CNN_GROUPS
    is_proxy, found = known["kind"] == "proxy", {}
    for setting, values in _SETTINGS[name].items():
        missed = {
            value: np.mean(
                [
                    errors(known[is_proxy | (group != k)], out, name, {**found, setting: value}).mean()
                    for k in range(_CNN_GROUPS)
                    if len(out := known[~is_proxy & (group == k)])
                ]
            )
            for value in values
        }
        found[setting] = min(missed, key=missed.__getitem__)
    return found


@contextmanager
def _set(settings: Mapping[str, float]) -> Iterator[None]:
    """Other values of the module's constants."""
    before = {name: getattr(founding, name) for name in settings}
    try:
        _put(settings)
        yield
    finally:
        _put(before)


def _put(settings: Mapping[str, float]) -> None:
    for name, value in settings.items():
        setattr(founding, name, value)
    for cached in (founding.proxy_work, founding._nearest, founding._shape_of_proxy):
        cached.cache_clear()


def summary_of(judged: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The columns of a summary that `epochcast fit --accuracy` reads, with the default's errors on the same rows."""
    asked = rows.loc[sorted(set(judged.index))]
    by_default, model = pd.Series(np.nan, asked.index), Model.load()
    for case, places in cases_of(asked):
        answer = model.forecast(case.table, case.gpu, case.mode, case.batch_sizes)
        by_default.iloc[places] = answer.iteration_time_ms
    error = (by_default / asked["iteration_time_ms"] - 1).abs()
    of_default = judged[judged["predictor"] == _METHODS[0]].assign(predictor="default")
    everything = pd.concat([judged, of_default.assign(error=error.reindex(of_default.index))])
    grouped = everything.groupby(["scenario", "predictor"], sort=False)["error"]
    summary = grouped.agg(n="size", mape="mean", median="median", p90=lambda each: each.quantile(0.9))
    return summary.reset_index().assign(coverage=np.nan, worst_coverage=np.nan)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measurements", type=Path, default=data_root() / "measurements", help="folder of tables"
    )
    parser.add_argument("--nested", action="store_true", help="choose settings inside every training part")
    parser.add_argument("--out", help="CSV file for `epochcast fit --accuracy`")
    return parser


if __name__ == "__main__":
    sys.exit(main())
