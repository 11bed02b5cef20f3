"""`flops-ratio`: what people do on a napkin, kept so that every table shows what the models add.

Called through `predictor.predictors.PREDICTORS`; calls base.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from predictor.errors import OutOfRangeError, SchemaError
from predictor.mode_columns import mode_words
from predictor.predictors.base import FeatureTablePredictor, Floats, numbers_of, times_of

__all__ = ["FlopsRatio"]

_COLUMNS = (
    "gpu",
    "gpu_name",
    "cnn",
    "image_size",
    "batch_size",
    "precision",
    "peak_tflop_per_s",
    "training_flops_per_image",
)
_SERIES = ("cnn", "image_size", "precision")
_LIKENESS = (  # what a training row shares with the row asked about, closest first
    ("gpu_name", *_SERIES, "batch_size"),
    ("gpu_name", *_SERIES),
    (*_SERIES, "batch_size"),
    _SERIES,
)

Anchors = tuple[pd.DataFrame, ArrayLike]


class FlopsRatio(FeatureTablePredictor):
    """Iteration time that goes with FLOPs and against the GPU's peak rate at the row's precision.

    Attributes
    ----------
    per_image_ : dict of str -> float
        Median of time x peak / batch size, in 10^9 FLOP, over the training rows alike in the columns named.
    per_flop_ : dict of str -> float
        Median of time x peak / training FLOPs by precision: the inverse of the share of the peak reached.

    Notes
    -----
    X is a feature table, y is `iteration_time_ms`. What is known of the CNN on this GPU goes with the batch
    size: t = t_a batch / batch_a. Known on other GPUs only: t = t_a peak_a / peak, at the same batch size if
    there is one. The median is taken over all a. Never timed: FLOPs / (median share of the peak x peak).
    """

    uses_anchors: ClassVar[bool] = True

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> FlopsRatio:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing, a GPU has no peak rate at the row's precision, or a time is not above 0.
        """
        table = self._checked(X, _COLUMNS)
        per_image = _reached_per_image(table, y)
        flops_per_image = table["training_flops_per_image"].to_numpy(dtype=float)
        self.per_image_ = _medians_by_likeness(table, per_image)
        self.per_flop_ = _medians(table, ("precision",), per_image / flops_per_image)
        return self

    def predict(self, X: pd.DataFrame, anchors: Anchors | None = None) -> Floats:
        """Predict iteration times in milliseconds, of shape (n,), for a feature table of n rows.

        Parameters
        ----------
        X : DataFrame of n rows
        anchors : (DataFrame of m rows, array of shape (m,)), optional
            More measurements of the CNNs asked about, with their times in milliseconds.

        Raises
        ------
        OutOfRangeError
            If a GPU has no peak rate at the row's precision (it is named), or if a CNN without layer table,
            or a precision, was not in the training rows.
        """
        self._check_fitted("per_image_")
        table = self._checked(X, _COLUMNS)
        peak = numbers_of(table, "peak_tflop_per_s", OutOfRangeError)
        known = self.per_image_ | self._medians_of(anchors)
        flops_per_image = table["training_flops_per_image"].to_numpy(dtype=float)
        per_image = _looked_up(table, ("precision",), self.per_flop_) * flops_per_image
        for columns in reversed(_LIKENESS):
            closer = _looked_up(table, columns, known)
            per_image = np.where(np.isnan(closer), per_image, closer)
        _refuse_unknown(table, per_image)
        return np.asarray(per_image * numbers_of(table, "batch_size", OutOfRangeError) / peak, dtype=float)

    def coefficients(self) -> dict[str, float]:
        """Every median by the values that its rows share."""
        self._check_fitted("per_image_")
        return self.per_flop_ | self.per_image_

    def _medians_of(self, anchors: Anchors | None) -> dict[str, float]:
        if anchors is None or not len(anchors[0]):
            return {}
        table = self._checked(anchors[0], _COLUMNS)
        return _medians_by_likeness(table, _reached_per_image(table, anchors[1]))


def _reached_per_image(table: pd.DataFrame, y: ArrayLike) -> Floats:
    """Time x peak / batch size: the FLOPs per image that the peak would have done, in 10^9."""
    times = times_of(y, len(table), "iteration_time_ms")
    peak = numbers_of(table, "peak_tflop_per_s", SchemaError)
    return times * peak / numbers_of(table, "batch_size", SchemaError)


def _medians_by_likeness(table: pd.DataFrame, values: Floats) -> dict[str, float]:
    return {key: median for columns in _LIKENESS for key, median in _medians(table, columns, values).items()}


def _medians(table: pd.DataFrame, columns: tuple[str, ...], values: Floats) -> dict[str, float]:
    known = pd.Series(values, index=_labels(table, columns)).dropna()  # NaN: a CNN without layer table
    return {str(key): float(median) for key, median in known.groupby(level=0).median().items()}


def _looked_up(table: pd.DataFrame, columns: tuple[str, ...], known: dict[str, float]) -> Floats:
    return np.array([known.get(label, np.nan) for label in _labels(table, columns)], dtype=float)


def _labels(table: pd.DataFrame, columns: tuple[str, ...]) -> list[str]:
    rows = mode_words(table, columns).itertuples(index=False, name=None)
    return [", ".join(f"{column} {word}" for column, word in zip(columns, row, strict=True)) for row in rows]


def _refuse_unknown(table: pd.DataFrame, work: Floats) -> None:
    missing = np.isnan(work)
    if missing.any():
        first = table.loc[missing].iloc[0]
        raise OutOfRangeError(
            f"{first['cnn']} at image size {first['image_size']} was not timed in {first['precision']}, "
            f"and has no layer table or no CNN was ({missing.sum()} such rows). Add a measurement at this "
            "precision, or a layer_table_of that knows this CNN."
        )
