"""What runs of one's own are worth: answers with none, one or two of them, by the path that answers questions.

Run it as `python benchmarks/own_runs.py --published FOLDER`. The law is fitted from nothing without the CNN that is
asked about, and the hosts are unknown, as for a user.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pandas as pd
from machine import machine

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.errors import EpochcastError
from predictor.files import published_data_root
from predictor.measurements.published import published_features
from predictor.models.forecast import Anchor
from predictor.models.layer_times.files import LayerModels
from predictor.models.roofline.model import Roofline
from predictor.models.served import Model

_MODE = Mode("tensorflow")
_MIDDLE = 64


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", help="folder of published measurements ($EPOCHCAST_PUBLISHED_DATA)")
    parser.add_argument("--out", help="CSV file of every tested row")
    options = parser.parse_args(arguments)
    try:
        features = published_features(published_data_root(options.published))
    except EpochcastError as error:
        print(f"own_runs: not run: {error}")
        return 1 if options.published else 0
    print(f"own runs | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    started = time.perf_counter()
    judged = pd.concat([pd.DataFrame(_judged(features, cnn)) for cnn in _cnns(features)], ignore_index=True)
    print(_table(judged).to_string())
    if options.out:
        judged.to_csv(options.out, index=False)
    print(f"\n{time.perf_counter() - started:.0f} s")
    return 0


def _cnns(features: pd.DataFrame) -> list[str]:
    return sorted(features.loc[_is_target(features), "cnn"].unique())


def _is_target(features: pd.DataFrame) -> "pd.Series[bool]":
    return (features["source"] == "profet") & (features["kind"].fillna("target") == "target")


def _judged(features: pd.DataFrame, cnn: str) -> Iterator[dict[str, object]]:
    """Rows of a CNN: errors without and with runs of it; the law is fitted on the other CNNs and on single layers."""
    of_profet = _is_target(features) | (features["kind"] == "operator")
    train = features[of_profet & (features["cnn"] != cnn)]
    law = Roofline().fit(train, train["iteration_time_ms"]).law_
    model = replace(Model.load(), roofline=law, layers=LayerModels())
    rows = features[_is_target(features) & (features["cnn"] == cnn)]
    for _, of_size in rows.groupby("image_size"):
        for gpu, asked in of_size.groupby("gpu"):
            for kind, runs in _runs(of_size, str(gpu)):
                yield from _errors(model, asked, runs, cnn, kind)


def _runs(rows: pd.DataFrame, gpu: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each way in which one or two runs of the CNN are known, with these runs."""
    here, elsewhere = rows[rows["gpu"] == gpu], rows[rows["gpu"] != gpu]
    smallest, largest = here["batch_size"].min(), here["batch_size"].max()
    yield "one here, at 64", here[here["batch_size"] == _MIDDLE]
    yield "one here, at the smallest", here[here["batch_size"] == smallest]
    yield "one here, at the largest", here[here["batch_size"] == largest]
    yield "two here, at both ends", here[here["batch_size"].isin([smallest, largest])]
    middle = elsewhere[elsewhere["batch_size"] == _MIDDLE]
    for _, one in middle.groupby("gpu"):
        yield "one elsewhere, at 64", one
    yield "three elsewhere, at 64", middle


def _errors(
    model: Model, asked: pd.DataFrame, runs: pd.DataFrame, cnn: str, kind: str
) -> Iterator[dict[str, object]]:
    known = set(runs.index)
    test = asked[[index not in known for index in asked.index]]
    if runs.empty or test.empty:
        return
    first = test.iloc[0]
    gpu, sizes, table = find_gpu(first["gpu"]), test["batch_size"].to_numpy(), first["layer_table"]
    anchors = [
        Anchor(
            str(row["gpu"]), int(row["batch_size"]), float(row["iteration_time_ms"]), table.image_size, "fp32"
        )
        for row in runs.to_dict("records")
    ]
    without = model.forecast(table, gpu, _MODE, sizes, method="roofline")
    found = model.forecast(table, gpu, _MODE, sizes, anchors, "anchored")
    for i, measured in enumerate(test["iteration_time_ms"]):
        yield {
            "kind": kind,
            "cnn": cnn,
            "gpu": gpu.name,
            "without": abs(without.iteration_time_ms[i] / measured - 1),
            "with": abs(found.iteration_time_ms[i] / measured - 1),
            "inside": found.low_ms[i] <= measured <= found.high_ms[i],
        }


def _table(judged: pd.DataFrame) -> pd.DataFrame:
    """By kind: errors in %, share inside the interval, and the GPU and the CNN that gain least, in points."""
    found = 100 * judged.groupby("kind")[["without", "with", "inside"]].mean()
    cost = judged.assign(cost=100 * (judged["with"] - judged["without"]))
    for group in ("gpu", "cnn"):
        means = cost.pivot_table("cost", "kind", group)
        found[f"worst {group}"] = [
            f"{value:+.1f} {name}"
            for value, name in zip(means.max(axis=1), means.idxmax(axis=1), strict=True)
        ]
    found["rows"] = judged.groupby("kind").size()
    return found.round(1)


if __name__ == "__main__":
    sys.exit(main())
