"""`line`: the baseline of problem scaling, a straight line through one CNN's times over batch size.

Called through `predictor.predictors.PREDICTORS` and by interpolation; calls base and least_squares.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from predictor.errors import OutOfRangeError, SchemaError
from predictor.mode_columns import MODE_COLUMNS, mode_words
from predictor.predictors.base import FeatureTablePredictor, Floats, numbers_of, times_of
from predictor.predictors.least_squares import LinearLaw, fit_linear_law, warn_of_negative_times

__all__ = ["Line", "rows_by_series"]

_COLUMNS = ("gpu", "cnn", "image_size", "batch_size")
_SERIES = ("gpu", "cnn", "image_size", *MODE_COLUMNS)


class Line(FeatureTablePredictor):
    """Iteration time a + b batch_size, for each series of one GPU, CNN, image size and mode apart.

    Attributes
    ----------
    laws_ : dict of tuple of str -> LinearLaw
        By GPU, CNN, image size and MODE_COLUMNS; series of a single batch size have none.

    Notes
    -----
    X is a feature table, y is `iteration_time_ms`. Least squares of the relative error, so that small batches
    count as much as large ones.
    """

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Line:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing or empty, or if a time is not above 0.
        """
        table = self._checked(X, _COLUMNS)
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
        table = self._checked(X, _COLUMNS)
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
    for i, series in enumerate(mode_words(table, _SERIES).itertuples(index=False, name=None)):
        rows.setdefault(series, []).append(i)
    return rows
