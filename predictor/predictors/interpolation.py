"""`interpolation`: the other baseline of problem scaling, a piecewise power law through one CNN's measured times.

Called through `predictor.predictors.PREDICTORS`; calls base and the series of `line`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from predictor.errors import OutOfRangeError, SchemaError
from predictor.predictors.base import FeatureTablePredictor, Floats, numbers_of, times_of
from predictor.predictors.line import rows_by_series

__all__ = ["Interpolation"]

_COLUMNS = ("gpu", "cnn", "image_size", "batch_size")


class Interpolation(FeatureTablePredictor):
    """ln time linear in ln batch size between neighbours, for each series of one GPU, CNN, image size and mode.

    Attributes
    ----------
    points_ : dict of tuple of str -> (ndarray, ndarray)
        ln batch size and ln time of each series, ascending; what was measured twice is averaged.

    Notes
    -----
    Beyond the measured batch sizes the outermost piece goes on, which any series of two points or more has.
    """

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Interpolation:
        """Keep the times, in milliseconds, of a feature table.

        Raises
        ------
        SchemaError
            If a column is missing or empty, or if a time is not above 0.
        """
        table = self._checked(X, _COLUMNS)
        times = np.log(times_of(y, len(table), "iteration_time_ms"))
        sizes = np.log(numbers_of(table, "batch_size", SchemaError))
        self.points_: dict[tuple[str, ...], tuple[Floats, Floats]] = {}
        for series, rows in rows_by_series(table).items():
            at, member = np.unique(sizes[rows], return_inverse=True)
            if at.size > 1:
                mean = np.bincount(member, times[rows]) / np.bincount(member)
                self.points_[series] = (at, mean)
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Predict iteration times in milliseconds, of shape (n,), for a feature table of n rows.

        Raises
        ------
        OutOfRangeError
            If a row's series had fewer than two batch sizes in the training rows.
        """
        self._check_fitted("points_")
        table = self._checked(X, _COLUMNS)
        sizes = np.log(numbers_of(table, "batch_size", OutOfRangeError))
        times = np.empty(len(table))
        for series, rows in rows_by_series(table).items():
            at, known = self._points_of(series)
            right = np.clip(np.searchsorted(at, sizes[rows]), 1, at.size - 1)
            slope = (known[right] - known[right - 1]) / (at[right] - at[right - 1])
            times[rows] = np.exp(known[right - 1] + slope * (sizes[rows] - at[right - 1]))
        return times

    def coefficients(self) -> dict[str, float]:
        """`<series>:<batch size>` -> milliseconds."""
        self._check_fitted("points_")
        return {
            f"{' '.join(series)}:{np.exp(size):.0f}": float(np.exp(time))
            for series, (at, known) in self.points_.items()
            for size, time in zip(at, known, strict=True)
        }

    def _points_of(self, series: tuple[str, ...]) -> tuple[Floats, Floats]:
        if series not in self.points_:
            raise OutOfRangeError(
                f"Interpolation has no two batch sizes of {series[1]} at image size {series[2]} on {series[0]}. "
                "Measure two, or use a predictor that carries over between GPUs and CNNs."
            )
        return self.points_[series]
