"""Whole epochs that were forecast before they were trained: what their rows say, and what is fitted on them.

The programs that forecast and trained them are those of the tag `campaigns` (commit 96df2659).
"""

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from ratios_fit import measured_cnn
from scipy.optimize import least_squares

from predictor.answers.loading import STARTS
from predictor.catalogue.data_sets import find_training_set
from predictor.catalogue.loading_rates import find_loader
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_names
from predictor.errors import SchemaError
from predictor.models.epoch_start import compiled_shapes, million_values
from predictor.models.ratios import Ratios, ratios_of

HERE = Path(__file__).parent

SETS = {
    "": ("real_epochs_forecast.csv", ("real_epochs_h200.csv", "real_epochs_h100.csv")),
    "new": ("real_epochs_forecast_2.csv", ("real_epochs_h100_2.csv",)),
    "strangers": ("real_epochs_forecast_3.csv", ("real_epochs_h100_3.csv",)),
    "more strangers": ("real_epochs_forecast_4.csv", ("real_epochs_h200_4.csv",)),
    "last strangers": ("real_epochs_forecast_5.csv", ("real_epochs_h200_5.csv",)),
}
"""Forecasts that were committed first, and the epochs trained after, by set."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a CNN is trained on: a data set that its images are like, and the workers of each GPU."""

    data_set: str
    image_size: int
    workers: int
    from_files: bool = False


_TASKS = {
    "resnet50": Task("imagenet", 224, 16, from_files=True),
    "vgg_cifar": Task("cifar10", 32, 8),
    "mobilenet_v2": Task("imagenet", 224, 16, from_files=True),
    "resnet18_cifar": Task("cifar10", 32, 8),
}
_USUAL_TASK = Task("stl10", 96, 8)
"""Task of every other CNN."""

_MODES = {
    "tf32": Mode("pytorch", "tf32"),
    "amp": Mode("pytorch", "amp_bf16", "channels_last"),
    "tf32compiled": Mode("pytorch", "tf32", capture="compile"),
    "ampcompiled": Mode("pytorch", "amp_bf16", "channels_last", capture="compile"),
}
_CHAINER_MODES = {"tf32": Mode("chainer", "tf32"), "amp": Mode("chainer", "amp_fp16")}
"""Chainer has neither bf16 nor channels-last."""

_NAME = re.compile(
    rf"(?P<cnn>.+)_(?P<framework>pytorch|chainer)_(?P<n_gpus>\d+)x(?P<local_batch_size>\d+)_(?P<mode>{'|'.join(_MODES)})"
)


@dataclass(frozen=True, slots=True)
class EpochCase:
    """A CNN trained for an epoch; the batch size is that of each GPU."""

    cnn: str
    n_gpus: int
    local_batch_size: int
    mode: Mode

    @classmethod
    def named(cls, name: str) -> "EpochCase":
        """Case of a name such as ``resnet50_pytorch_2x128_amp``; a SchemaError if it is no such name."""
        words = _NAME.fullmatch(name)
        if words is None:
            raise SchemaError(
                f"{name!r} is no case; one is resnet50_pytorch_2x128_amp, modes are {', '.join(_MODES)}."
            )
        modes = _CHAINER_MODES if words["framework"] == "chainer" else _MODES
        return cls(words["cnn"], int(words["n_gpus"]), int(words["local_batch_size"]), modes[words["mode"]])

    @property
    def task(self) -> Task:
        """Data set and workers of the case's training."""
        return _TASKS.get(self.cnn, _USUAL_TASK)

    @property
    def table(self) -> LayerTable:
        """Layer table of the case's CNN at the image size of its task."""
        return _table_of(self.cnn, self.task.image_size)


@lru_cache
def _table_of(cnn: str, image_size: int) -> LayerTable:
    own = {"own": "own_cnn.make_model", "own_plain": "own_plain_cnn.make_model"}
    name = cnn if cnn in zoo_names() else own.get(cnn, f"other_families.{cnn}")
    return measured_cnn(name, image_size)[0]


def read_rows(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file of this folder."""
    with (HERE / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def trained_epochs(name: str) -> Iterator[tuple[EpochCase, dict[str, str], dict[str, str]]]:
    """Case, forecast and measurement of each epoch of one of `SETS` that was trained to its end."""
    forecast_file, measured_files = SETS[name]
    forecasts: dict[tuple[str, str], dict[str, str]] = {}
    for row in read_rows(forecast_file):
        forecasts.setdefault((row["case"], row["gpu"]), row)
    for file_name in measured_files:
        for row in read_rows(file_name):
            if not row["error"]:
                yield EpochCase.named(row["case"]), forecasts[row["case"], row["gpu"]], row


def forecast_and_measured(
    forecast: dict[str, str], row: dict[str, str], *, later: bool
) -> tuple[list[float], float]:
    """Seconds of an epoch, forecast with both ends of the interval, and measured.

    The first epoch has its start in it. A later one is the second, else one with new workers, where one was trained,
    else iterations as those of the middle half of the first.
    """
    ends = [float(forecast[name]) for name in ("epoch_time_s", "epoch_low_s", "epoch_high_s")]
    if later:
        second_s = row["second_epoch_s"] or row.get("anew_whole_s")
        return ends, float(second_s or int(row["iterations"]) * float(row["middle_ms"]) / 1000)
    starts = [float(forecast.get(name) or 0.0) for name in STARTS]
    return [end + start for end, start in zip(ends, starts, strict=True)], float(row["epoch_s"])


def pytorch_epochs() -> pd.DataFrame:
    """Measured eager epochs of PyTorch beside the forecast of their iterations without loading.

    `start_s` is what the first iteration takes beside an iteration and the wait for its mini-batch; with the end of the
    epoch where kernels are compiled for its last mini-batch.
    """
    columns = ["case", "gpu", "training_time_ms", "host_time_ms", "gpu_time_ms"]
    tables = []
    for forecast_file, measured_files in SETS.values():
        forecasts = pd.read_csv(HERE / forecast_file).drop_duplicates(["case", "gpu"])[columns]
        tables += [pd.read_csv(HERE / name).merge(forecasts, on=["case", "gpu"]) for name in measured_files]
    rows = pd.concat(tables)
    rows = rows[rows["error"].isna() & ~rows["case"].str.contains("chainer|compiled")].reset_index(drop=True)
    cases = [EpochCase.named(name) for name in rows["case"]]
    middle_s = rows["middle_ms"] / 1000
    depthwise = np.array([len(compiled_shapes(case.table, case.mode)) for case in cases])
    one_worker_s = np.array([case.local_batch_size * _image_s(case.task) for case in cases])
    end_s = rows["epoch_s"] - (rows["first_iteration_s"] - middle_s) - rows["iterations"] * middle_s
    return rows.assign(
        cnn=[case.cnn for case in cases],
        n_gpus=[case.n_gpus for case in cases],
        workers=[case.task.workers for case in cases],
        from_files=[float(case.task.from_files) for case in cases],
        million_values=[case.local_batch_size * million_values(case.table) for case in cases],
        one_worker_s=one_worker_s,
        depthwise=depthwise,
        start_s=rows["first_iteration_s"] - middle_s - one_worker_s + np.where(depthwise > 0, end_s, 0.0),
    )


def _image_s(task: Task) -> float:
    """Seconds of one image on a busy vCPU."""
    data_set = find_training_set(task.data_set)
    loader = find_loader("torchvision", data_set.stored)
    return loader.sample_us(data_set.megapixels, task.image_size) / loader.vcpu_share / 1e6


def held_out_starts(epochs: pd.DataFrame) -> pd.DataFrame:
    """Starts of these epochs in s, predicted by ratios fitted without the CNN; rows in the order of `epochs`."""
    tables = []
    for cnn, rows in epochs.groupby("cnn"):
        start = fit_start(epochs[epochs["cnn"] != cnn])
        seconds = _start_designs(rows) @ np.array(list(start.values()))
        tables.append(rows[["gpu", "cnn"]].assign(measured=rows["start_s"], predicted=seconds))
    judged = pd.concat(tables)
    within = math.exp(ratios_of("start").spread)
    return judged.assign(low=judged["predicted"] / within, high=judged["predicted"] * within)


def fit_start(epochs: pd.DataFrame) -> dict[str, float]:
    """Ratios' entry ``start``, seconds by name, fitted by least squares of ln seconds with a soft-L1 loss."""
    designs, measured = _start_designs(epochs), np.log(epochs["start_s"])
    solution = least_squares(
        lambda numbers: np.log(designs @ numbers) - measured,
        np.ones(designs.shape[1]),
        bounds=(1e-3, np.inf),
        loss="soft_l1",
        f_scale=0.3,
    )
    names = ("first_calls_s", "jpeg_s", "depthwise_shape_s", "million_values_s")
    return dict(zip(names, map(float, solution.x), strict=True))


def _start_designs(epochs: pd.DataFrame) -> NDArray[np.float64]:
    columns = epochs["from_files"], 2 * epochs["depthwise"], epochs["million_values"]
    return np.column_stack([np.ones(len(epochs)), *columns])


def fit_epochs() -> dict[str, Ratios]:
    """Entries ``host``, ``loader`` and ``start`` of the ratios, fitted on whole epochs of PyTorch.

    The spread of a host's file: the 0.9 quantile of iterations without a loader over those forecast by it, of epochs
    that the host decided. `host` of a loader: geometric mean of these epochs' iterations over those without a loader;
    its spread as shipped. `workers_s`: median of what an epoch with new workers takes beside its iterations and its
    first mini-batch. The spread of the start is the 0.9 quantile of CNNs left out.
    """
    rows = pytorch_epochs()
    loading_ms = 1000 * rows["one_worker_s"] / rows["workers"]
    decided = rows[
        (rows["host_time_ms"] > 0.8 * rows["gpu_time_ms"])
        & (1000 * rows["waited_s"] / rows["iterations"] < 1)
        & (loading_ms < 0.7 * rows["middle_ms"])
        & (rows["n_gpus"] == 1)
    ]
    alone = abs(np.log(decided["alone_ms"] / decided["training_time_ms"]))
    host = round(float(np.exp(np.log(decided["middle_ms"] / decided["alone_ms"]).mean())), 1)
    anew_s = rows["anew_whole_s"] - rows["iterations"] * rows["anew_middle_ms"] / 1000 - rows["one_worker_s"]
    starts = held_out_starts(rows)
    spread = np.quantile(abs(np.log(starts["predicted"] / starts["measured"])), 0.9)
    loader = {"host": host, "workers_s": round(float(anew_s.median()), 2)}
    start = {name: float(f"{seconds:.2g}") for name, seconds in fit_start(rows).items()}
    return {
        "host": replace(ratios_of("host"), host_spread=round(float(np.quantile(alone, 0.9)), 2)),
        "loader": replace(ratios_of("loader"), numbers=loader),
        "start": replace(ratios_of("start"), numbers=start, spread=round(float(spread), 2)),
    }
