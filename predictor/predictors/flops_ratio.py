"""`flops-ratio`: what people do on a napkin, kept so that every table shows what the models add.

Called through `predictor.predictors.PREDICTORS`; calls base.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from predictor.errors import OutOfRangeError, SchemaError
from predictor.mode_columns import mode_words
from predictor.predictors.base import FeatureTablePredictor, Floats, numbers_of, times_of

__all__ = ["FlopsRatio"]

_COLUMNS = (
    "gpu",
    "cnn",
    "image_size",
    "batch_size",
    "precision",
    "peak_tflop_per_s",
    "training_flops_per_image",
)
_SERIES = ("cnn", "image_size", "precision")
_CELL = (*_SERIES, "batch_size")


class FlopsRatio(FeatureTablePredictor):
    """Iteration time that goes with FLOPs and against the GPU's peak rate at the row's precision.

    Attributes
    ----------
    cells_ : dict of (cnn, image_size, precision, batch_size) -> float
        Median of time x peak over the training rows, in 10^9 FLOP.
    series_ : dict of (cnn, image_size, precision) -> float
        The same per image.
    precisions_ : dict of (precision,) -> float
        Median of time x peak / FLOPs, the inverse of the share of the peak that is reached.

    Notes
    -----
    X is a feature table, y is `iteration_time_ms`. The CNN timed on GPU a at this batch size: t = t_a peak_a
    / peak, the median over all a. Timed at other batch sizes only: the same, in proportion to the batch.
    Never timed: training FLOPs / (median share of the peak at this precision x peak).
    """

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> FlopsRatio:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing, a GPU has no peak rate at the row's precision, or a time is not above 0.
        """
        table = self._checked(X, _COLUMNS)
        times = times_of(y, len(table), "iteration_time_ms")
        batch_size = numbers_of(table, "batch_size", SchemaError)
        reached = times * numbers_of(table, "peak_tflop_per_s", SchemaError)
        flops_per_image = table["training_flops_per_image"].to_numpy(
            dtype=float
        )  # NaN: no layer table, left out
        self.cells_ = _medians(table, _CELL, reached)
        self.series_ = _medians(table, _SERIES, reached / batch_size)
        self.precisions_ = _medians(table, ("precision",), reached / batch_size / flops_per_image)
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Predict iteration times in milliseconds, of shape (n,), for a feature table of n rows.

        Raises
        ------
        OutOfRangeError
            If a GPU has no peak rate at the row's precision (it is named), or if a CNN without layer table,
            or a precision, was not in the training rows.
        """
        self._check_fitted("cells_")
        table = self._checked(X, _COLUMNS)
        batch_size = numbers_of(table, "batch_size", OutOfRangeError)
        peak = numbers_of(table, "peak_tflop_per_s", OutOfRangeError)
        flops_per_image = table["training_flops_per_image"].to_numpy(dtype=float)
        same_batch = _looked_up(table, _CELL, self.cells_)
        other_batch = _looked_up(table, _SERIES, self.series_) * batch_size
        never_timed = _looked_up(table, ("precision",), self.precisions_) * batch_size * flops_per_image
        work = np.where(
            np.isnan(same_batch), np.where(np.isnan(other_batch), never_timed, other_batch), same_batch
        )
        _refuse_unknown(table, work)
        return np.asarray(work / peak, dtype=float)

    def coefficients(self) -> dict[str, float]:
        """Medians under `precision`, `cnn@image_size precision` (per image) and the same with `batch b`."""
        self._check_fitted("cells_")
        medians = self.precisions_ | self.series_ | self.cells_
        return {_label(key): value for key, value in medians.items()}


def _label(key: tuple[str, ...]) -> str:
    if len(key) == 1:
        return key[0]
    cnn, image_size, precision, *batch_size = key
    return f"{cnn}@{image_size} {precision}" + "".join(f" batch {size}" for size in batch_size)


def _medians(table: pd.DataFrame, columns: tuple[str, ...], values: Floats) -> dict[tuple[str, ...], float]:
    words = mode_words(table, columns)
    medians = words.assign(value=values).dropna().groupby(list(columns))["value"].median()
    return {_as_tuple(key): float(value) for key, value in medians.items()}


def _as_tuple(key: Any) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)


def _looked_up(table: pd.DataFrame, columns: tuple[str, ...], known: dict[tuple[str, ...], float]) -> Floats:
    keys = mode_words(table, columns).itertuples(index=False, name=None)
    return np.array([known.get(key, np.nan) for key in keys], dtype=float)


def _refuse_unknown(table: pd.DataFrame, work: Floats) -> None:
    missing = np.isnan(work)
    if missing.any():
        first = table.loc[missing].iloc[0]
        raise OutOfRangeError(
            f"{first['cnn']} at image size {first['image_size']} was not timed in {first['precision']}, "
            f"and has no layer table or no CNN was ({missing.sum()} such rows). Add a measurement at this "
            "precision, or a layer_table_of that knows this CNN."
        )
