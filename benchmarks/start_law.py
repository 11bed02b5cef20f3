"""The laws of the host beside a loader and of the start, refitted on whole epochs without the CNN or GPU judged.

Run it as `python benchmarks/start_law.py`. It reads the epochs of PyTorch that `real_epochs.py` measured first, and of
their forecasts what does not depend on these laws.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from real_epochs import CASES, Task, table_of

from predictor.catalogue.data_sets import find_training_set
from predictor.catalogue.loading_rates import find_loader
from predictor.models.epoch_start import grouped_shapes, shapes

_HERE = Path(__file__).parent
_GPUS = ("h100", "h200")


class Numbers(NamedTuple):
    """What is fitted: the host's factor, seconds for a shape, and for a grouped one at one batch size."""

    host: float
    shape_s: float
    grouped_s: float


def main() -> int:
    rows = epochs()
    print(f"{len(rows)} epochs; fitted on all: {_words(fitted(rows))}\n")
    print("left out: mean error of a later epoch, of the first")
    _show("before", lambda _: (rows["epoch_time_s"], rows["epoch_time_s"]), rows)
    for group in ("cnn", "gpu"):
        numbers = {name: fitted(rows[rows[group] != name]) for name in rows[group].unique()}
        print(
            f"without its {group}: " + "; ".join(f"{name}: {_words(each)}" for name, each in numbers.items())
        )
        _show("  all", lambda row_numbers: forecast(rows, row_numbers), rows, numbers, group)
        for what, changed in (("host", {"host": 1.0}), ("shape_s", {"shape_s": 0.0})):
            other = {name: each._replace(**changed) for name, each in numbers.items()}
            _show(f"  without {what}", lambda row_numbers: forecast(rows, row_numbers), rows, other, group)
    return 0


def epochs() -> pd.DataFrame:
    """Measured epochs beside what their forecasts say of training alone."""
    measured = pd.concat([pd.read_csv(_HERE / f"real_epochs_{gpu}.csv") for gpu in _GPUS])
    forecasts = pd.read_csv(_HERE / "real_epochs_forecast.csv").drop_duplicates(["case", "gpu"])
    names = ["case", "gpu", "training_time_ms", "host_time_ms", "gpu_time_ms", "epoch_time_s"]
    rows = measured[measured["error"].isna()].merge(forecasts[names], on=["case", "gpu"])
    cases = {case.name: case for case in CASES if case.framework == "pytorch"}
    rows = rows[rows["case"].isin(list(cases))].reset_index(drop=True)
    found = rows["case"].map(cases)
    rows["cnn"] = [case.cnn for case in found]
    rows["n_gpus"] = [case.n_gpus for case in found]
    rows["workers"] = [case.task.workers for case in found]
    rows["one_worker_s"] = [case.local_batch_size * _image_s(case.task) for case in found]
    tables = {cnn: table_of(cnn) for cnn in rows["cnn"].unique()}
    rows["shapes"] = [len(shapes(tables[case.cnn])) for case in found]
    rows["grouped"] = [
        len(grouped_shapes(tables[case.cnn])) * (case.mode.memory_format == "channels_last") for case in found
    ]
    middle_s = rows["middle_ms"] / 1000
    iterations_s = rows["iterations"] * middle_s
    rows["later_s"] = rows["second_epoch_s"].fillna(iterations_s)
    rows["calls_s"] = rows["first_iteration_s"] - rows["first_wait_s"] - middle_s
    rows["end_s"] = rows["epoch_s"] - (rows["first_iteration_s"] - middle_s) - iterations_s
    return rows


def _image_s(task: Task) -> float:
    """Seconds of one image on a busy vCPU."""
    data_set = find_training_set(task.data_set)
    loader = find_loader("torchvision", data_set.stored)
    return loader.sample_us(data_set, task.image_size) / loader.vcpu_share / 1e6


def fitted(rows: pd.DataFrame) -> Numbers:
    """Geometric means of what was measured over what the law has; grouped shapes: the median, 0 if there are none."""
    loading_ms = 1000 * rows["one_worker_s"] / rows["workers"]
    of_host = (
        (rows["host_time_ms"] > 0.8 * rows["gpu_time_ms"])
        & (1000 * rows["waited_s"] / rows["iterations"] < 1)
        & (loading_ms < 0.7 * rows["middle_ms"])
        & (rows["n_gpus"] == 1)
    )
    decided, plain, grouped = rows[of_host], rows[rows["grouped"] == 0], rows[rows["grouped"] > 0]
    shape_s = _mean(plain["calls_s"] / plain["shapes"])
    once = (grouped["calls_s"] - shape_s * grouped["shapes"]) / grouped["grouped"]
    again = grouped["end_s"] / grouped["grouped"]
    grouped_s = float(np.median([*once, *again])) if len(grouped) else 0.0
    return Numbers(_mean(decided["middle_ms"] / decided["alone_ms"]), shape_s, grouped_s)


def forecast(rows: pd.DataFrame, numbers: Numbers) -> tuple[pd.Series, pd.Series]:
    """Seconds of a later epoch and of the first."""
    loading_ms = 1000 * rows["one_worker_s"] / rows["workers"]
    iteration_ms = np.maximum(
        np.maximum(rows["training_time_ms"], numbers.host * rows["host_time_ms"]), loading_ms
    )
    later_s = iteration_ms * rows["iterations"] / 1000
    calls_s = numbers.shape_s * rows["shapes"] + 2 * numbers.grouped_s * rows["grouped"]
    return later_s, later_s + rows["one_worker_s"] + calls_s


def _show(
    what: str,
    forecast_by: Callable[[Numbers], tuple[pd.Series, pd.Series]],
    rows: pd.DataFrame,
    numbers: dict[str, Numbers] | None = None,
    group: str = "cnn",
) -> None:
    errors: list[list[float]] = [[], []]
    for name, some in rows.groupby(group):
        found = forecast_by(numbers[str(name)] if numbers else Numbers(1.0, 0.0, 0.0))
        for which, (seconds, measured) in enumerate(zip(found, ("later_s", "epoch_s"), strict=True)):
            errors[which] += list((seconds[some.index] / some[measured] - 1).abs())
    print(f"{what}: {100 * np.mean(errors[0]):.1f} %, {100 * np.mean(errors[1]):.1f} %")


def _mean(values: pd.Series) -> float:
    return float(np.exp(np.log(values).mean()))


def _words(numbers: Numbers) -> str:
    return (
        f"host x {numbers.host:.2f}, {numbers.shape_s:.3f} s a shape, {numbers.grouped_s:.2f} s a grouped one"
    )


if __name__ == "__main__":
    sys.exit(main())
