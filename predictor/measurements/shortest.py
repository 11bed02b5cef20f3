"""Refuses times that no GPU can reach: far below the CNN's arithmetic at the GPU's peak rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, find_gpu, is_cpu, peak_tflop_per_s
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError, UnknownCnnError
from predictor.operators.work import PASSES, cnn_flops

if TYPE_CHECKING:
    import pandas as pd

LEAST_SHARE = 1 / 3
"""Share of the arithmetic bound below which a time is refused.

Winograd's algorithm saves products and clocks rise above the nominal boost: published times reach 0.55."""

_TIMES = ("iteration_time_ms", "gpu_time_ms")
_PASSES = {"forward": PASSES[:1], "forward_backward": PASSES, "training": PASSES}
_OF_CNNS = ("target", "proxy")


def check_not_too_short(
    time_ms: float, what: str, table: LayerTable, gpu: Gpu, precision: str, batch_size: int
) -> None:
    """Refuse the time of a training iteration on one GPU below a third of its arithmetic bound; a CPU has none.

    `what`: name of the time, for the message. `batch_size`: images per mini-batch of this GPU. OutOfRangeError if it is
    shorter; the message has the bound.
    """
    if is_cpu(gpu.name):
        return
    bound_ms = batch_size * _flops_per_image(table) / (peak_tflop_per_s(gpu, precision) * 1e9)
    if time_ms < LEAST_SHARE * bound_ms:
        raise _too_short(what, time_ms, table.cnn, gpu.name, precision, batch_size, bound_ms)


@lru_cache(maxsize=64)
def _flops_per_image(table: LayerTable) -> float:
    return cnn_flops(table, 1)


def check_rows_not_too_short(
    frame: pd.DataFrame, label: str, place: str = "row", numbers: Sequence[int] | None = None
) -> None:
    """Refuse a measurement table with a CNN's time below a third of its arithmetic bound.

    `frame`: as of `check_measurements`, whose CNNs are the zoo's, or of `feature_table`. CNNs of unknown layers pass.
    `label`, `place`, `numbers`: as of `check_measurements`. OutOfRangeError naming the first such row.
    """
    shares = shares_of_bound(frame)
    wrong = np.flatnonzero(shares < LEAST_SHARE)
    if wrong.size:
        i = int(wrong[0])
        row = frame.iloc[i]
        time_ms = min(float(row[name]) for name in _TIMES if row.get(name) == row.get(name))
        name = f"{label}, {place} {i if numbers is None else numbers[i]}: the time"
        raise _too_short(
            name, time_ms, row["cnn"], row["gpu"], row["precision"], row["batch_size"], time_ms / shares[i]
        )


def shares_of_bound(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Shortest time of each row over its arithmetic bound, FLOPs / peak rate; NaN where either is unknown.

    Single forward passes count as such; `n_gpus` share the images.
    """
    times = frame[[name for name in _TIMES if name in frame]].min(axis="columns").to_numpy(dtype=float)
    tables = frame["layer_table"] if "layer_table" in frame else [None] * len(frame)
    names = ("cnn", "image_size", "gpu", "precision")
    passes = frame["pass"].fillna("training") if "pass" in frame else ["training"] * len(frame)
    kinds = frame["kind"].fillna("target") if "kind" in frame else ["target"] * len(frame)
    timed = [pass_ if kind in _OF_CNNS else None for pass_, kind in zip(passes, kinds, strict=True)]
    rows: list[Any] = list(zip(tables, *(frame[name].tolist() for name in names), timed, strict=True))
    bounds = {row: _image_bound_ms(*row) for row in dict.fromkeys(rows)}
    image_ms = np.array([bounds[row] for row in rows])
    n_gpus = frame["n_gpus"].fillna(1.0).to_numpy(dtype=float) if "n_gpus" in frame else 1.0
    return np.asarray(times / (image_ms * frame["batch_size"].to_numpy(dtype=float) / n_gpus))


def _image_bound_ms(
    table: LayerTable | None, cnn: str, image_size: int, gpu: str, precision: str, pass_: str | None
) -> float:
    """Arithmetic bound of one image, in ms; NaN where it is unknown."""
    if pass_ not in _PASSES or is_cpu(gpu):
        return math.nan
    try:
        layers = zoo_cnn(cnn, int(image_size)) if table is None else table
    except (UnknownCnnError, OutOfRangeError):  # one's own, which is checked where its layers are known
        return math.nan
    flops = cnn_flops(layers, 1, _PASSES[pass_]) / layers.parts
    return flops / (peak_tflop_per_s(find_gpu(gpu), precision) * 1e9)


def _too_short(
    what: str, time_ms: float, cnn: str, gpu: str, precision: str, batch_size: int, bound_ms: float
) -> OutOfRangeError:
    return OutOfRangeError(
        f"{what} of {time_ms:.4g} ms is impossible: {cnn} at batch {batch_size} takes {bound_ms:.4g} ms of arithmetic "
        f"at the peak rate of {gpu} in {precision}, and measured times are never below a third of that. "
        "Check its unit (milliseconds), its CNN, batch size and precision."
    )
