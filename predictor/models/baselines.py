"""Baselines for tables of errors: the ratio of FLOPs to peak, a line and an interpolation over batch sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from predictor.catalogue.modes import MODE_COLUMNS, mode_words
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.base import FeatureTablePredictor, Floats, finite, numbers_of, times_of
from predictor.models.founding import warn_of_negative_times
from predictor.models.methods.laws import LinearLaw, LogPoints, fit_linear_law

__all__ = ["FlopsRatio", "Interpolation", "Line", "rows_by_series"]

_RATIO_COLUMNS = (
    "gpu",
    "gpu_name",
    "cnn",
    "image_size",
    "batch_size",
    "precision",
    "peak_tflop_per_s",
    "training_flops_per_image",
)
_RATIO_SERIES = ("cnn", "image_size", "precision")
_LIKENESS = (  # columns in which a training row equals the row to predict, closest first
    ("gpu_name", *_RATIO_SERIES, "batch_size"),
    ("gpu_name", *_RATIO_SERIES),
    (*_RATIO_SERIES, "batch_size"),
    _RATIO_SERIES,
)

Anchors = tuple[pd.DataFrame, ArrayLike]


class FlopsRatio(FeatureTablePredictor):
    """Iteration time proportional to FLOPs / the GPU's peak rate at the row's precision.

    Parameters
    ----------
    by_cnn : bool, default=True
        Whether to keep the training CNNs' own medians; without them only anchors tell CNNs apart, and no training row
        is kept.

    Attributes
    ----------
    per_image_ : dict of str -> float
        Median of time x peak / batch size, in 10^9 FLOP, over the training rows alike in the columns named.
    per_flop_ : dict of str -> float
        Median of time x peak / training FLOPs by precision: the inverse of the share of the peak reached.

    Notes
    -----
    X is a feature table, y is `iteration_time_ms`. A CNN timed on this GPU scales with the batch size:
    t = t_a batch / batch_a. Timed on other GPUs only: t = t_a peak_a / peak, at the same batch size if there is one.
    The median is taken over all a. Never timed: FLOPs / (median share of the peak x peak).
    """

    uses_anchors: ClassVar[bool] = True

    def __init__(self, by_cnn: bool = True) -> None:
        self.by_cnn = by_cnn

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> FlopsRatio:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing, a GPU has no peak rate at the row's precision, or a time is not above 0.
        """
        table = self._checked(X, _RATIO_COLUMNS)
        per_image = _reached_per_image(table, y)
        flops_per_image = table["training_flops_per_image"].to_numpy(dtype=float)
        self.per_image_ = _medians_by_likeness(table, per_image) if self.by_cnn else {}
        self.per_flop_ = _medians(table, ("precision",), per_image / flops_per_image)
        return self

    def predict(self, X: pd.DataFrame, anchors: Anchors | None = None) -> Floats:
        """Predict iteration times in milliseconds, of shape (n,), for a feature table of n rows.

        Parameters
        ----------
        X : DataFrame of n rows
        anchors : (DataFrame of m rows, array of shape (m,)), optional
            More measurements of the same CNNs, with their times in milliseconds.

        Raises
        ------
        OutOfRangeError
            If a GPU has no peak rate at the row's precision (it is named), or if a CNN without layer table,
            or a precision, was not in the training rows.
        """
        self._check_fitted("per_image_")
        table = self._checked(X, _RATIO_COLUMNS)
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

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("per_image_")
        return {"per_flop": self.per_flop_, "per_image": self.per_image_}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.per_flop_ = {name: finite(value) for name, value in learned["per_flop"].items()}
        self.per_image_ = {name: finite(value) for name, value in learned["per_image"].items()}

    def _medians_of(self, anchors: Anchors | None) -> dict[str, float]:
        if anchors is None or not len(anchors[0]):
            return {}
        table = self._checked(anchors[0], _RATIO_COLUMNS)
        return _medians_by_likeness(table, _reached_per_image(table, anchors[1]))


def _reached_per_image(table: pd.DataFrame, y: ArrayLike) -> Floats:
    """Time x peak / batch size: FLOPs per image at the peak rate in that time, in 10^9."""
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
            "precision, or a layer_table_of that has this CNN."
        )


_SERIES_COLUMNS = ("gpu", "cnn", "image_size", "batch_size")
_LINE_SERIES = ("gpu", "cnn", "image_size", *MODE_COLUMNS)


class Line(FeatureTablePredictor):
    """Iteration time a + b batch_size, for each series of one GPU, CNN, image size and mode apart.

    Attributes
    ----------
    laws_ : dict of tuple of str -> LinearLaw
        By GPU, CNN, image size and MODE_COLUMNS; series of a single batch size have none.

    Notes
    -----
    X is a feature table, y is `iteration_time_ms`. Least squares of the relative error: small batches weigh
    as much as large ones.
    """

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Line:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing or empty, or if a time is not above 0.
        """
        table = self._checked(X, _SERIES_COLUMNS)
        times = times_of(y, len(table), "iteration_time_ms")
        batch_size = numbers_of(table, "batch_size", SchemaError)
        self.laws_: dict[tuple[str, ...], LinearLaw] = {}
        for series, rows in rows_by_series(table).items():
            if np.unique(batch_size[rows]).size >= 2:
                design = batch_size[rows][:, None]
                self.laws_[series] = fit_linear_law(("batch_size",), design, times[rows], relative=True)
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Predict iteration times in milliseconds, of shape (n,), for a feature table of n rows.

        Raises
        ------
        OutOfRangeError
            If a row's series had fewer than two batch sizes in the training rows.
        """
        self._check_fitted("laws_")
        table = self._checked(X, _SERIES_COLUMNS)
        batch_size = numbers_of(table, "batch_size", OutOfRangeError)
        times = np.empty(len(table))
        for series, rows in rows_by_series(table).items():
            times[rows] = self._law_of(series).predict(batch_size[rows][:, None])
        warn_of_negative_times(times, type(self).__name__)
        return times

    def coefficients(self) -> dict[str, float]:
        """`<series>:intercept` in milliseconds, `<series>:batch_size` in milliseconds per image."""
        self._check_fitted("laws_")
        return {
            f"{' '.join(series)}:{column}": value
            for series, law in self.laws_.items()
            for column, value in law.coefficients().items()
        }

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("laws_")
        return {"laws": [{"series": list(series), **law.to_json()} for series, law in self.laws_.items()]}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.laws_ = {
            tuple(law["series"]): LinearLaw.from_json(("batch_size",), law) for law in learned["laws"]
        }

    def _law_of(self, series: tuple[str, ...]) -> LinearLaw:
        if series not in self.laws_:
            gpu, cnn, image_size, *mode = series
            known = [word for word in mode if word != "unknown"]
            raise OutOfRangeError(
                f"Line has no two batch sizes of {cnn} at image size {image_size} on {gpu} "
                f"({', '.join(known)}). "
                "Measure two, or use a predictor that carries over between GPUs and CNNs."
            )
        return self.laws_[series]


def rows_by_series(table: pd.DataFrame) -> dict[tuple[str, ...], list[int]]:
    """Positions of the rows of each series: one GPU, CNN, image size and mode."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for i, series in enumerate(mode_words(table, _LINE_SERIES).itertuples(index=False, name=None)):
        rows.setdefault(series, []).append(i)
    return rows


class Interpolation(FeatureTablePredictor):
    """ln time linear in ln batch size between neighbours, for each series of one GPU, CNN, image size and mode.

    Attributes
    ----------
    points_ : dict of tuple of str -> LogPoints
        The measured batch sizes of each series; repeated measurements are averaged.

    Notes
    -----
    Beyond the measured batch sizes the outermost piece is extrapolated.
    """

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Interpolation:
        """Keep the times, in milliseconds, of a feature table.

        Raises
        ------
        SchemaError
            If a column is missing or empty, or if a time is not above 0.
        """
        table = self._checked(X, _SERIES_COLUMNS)
        times = times_of(y, len(table), "iteration_time_ms")
        sizes = numbers_of(table, "batch_size", SchemaError)
        self.points_: dict[tuple[str, ...], LogPoints] = {}
        for series, rows in rows_by_series(table).items():
            points = LogPoints.of(sizes[rows], times[rows])
            if points.log_sizes.size > 1:
                self.points_[series] = points
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Predict iteration times in milliseconds, of shape (n,), for a feature table of n rows.

        Raises
        ------
        OutOfRangeError
            If a row's series had fewer than two batch sizes in the training rows.
        """
        self._check_fitted("points_")
        table = self._checked(X, _SERIES_COLUMNS)
        sizes = numbers_of(table, "batch_size", OutOfRangeError)
        times = np.empty(len(table))
        for series, rows in rows_by_series(table).items():
            times[rows] = self._points_of(series).predict(sizes[rows])
        return times

    def coefficients(self) -> dict[str, float]:
        """`<series>:<batch size>` -> milliseconds."""
        self._check_fitted("points_")
        return {
            f"{' '.join(series)}:{np.exp(size):.0f}": float(np.exp(time))
            for series, points in self.points_.items()
            for size, time in zip(points.log_sizes, points.log_ms, strict=True)
        }

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("points_")
        return {
            "points": [
                {
                    "series": list(series),
                    "log_batch_size": each.log_sizes.tolist(),
                    "log_ms": each.log_ms.tolist(),
                }
                for series, each in self.points_.items()
            ]
        }

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.points_ = {
            tuple(each["series"]): LogPoints(
                np.array([finite(value) for value in each["log_batch_size"]]),
                np.array([finite(value) for value in each["log_ms"]]),
            )
            for each in learned["points"]
        }

    def _points_of(self, series: tuple[str, ...]) -> LogPoints:
        if series not in self.points_:
            raise OutOfRangeError(
                f"Interpolation has no two batch sizes of {series[1]} at image size {series[2]} on {series[0]}. "
                "Measure two, or use a predictor that carries over between GPUs and CNNs."
            )
        return self.points_[series]
