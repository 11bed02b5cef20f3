"""`proxy-times`: approach 2 of the founding study, a CNN's epoch time from its proxies' on the same GPU.

Called through `predictor.predictors.PREDICTORS`; calls proxies, base and least_squares.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from predictor.errors import OutOfRangeError, SchemaError
from predictor.predictors.base import FeatureTablePredictor, Floats, numbers_of, times_of
from predictor.predictors.least_squares import LinearLaw, fit_linear_law, warn_of_negative_times
from predictor.proxies import PROXY_TIME_PREFIX

__all__ = ["ProxyTimes", "ProxyTimesRelative"]

_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "samples_per_epoch")


class ProxyTimes(FeatureTablePredictor):
    """A CNN's epoch time, linear in batch size and in the epoch times of proxies on the same GPU.

    Parameters
    ----------
    proxies : tuple of str, optional
        Names of the proxies to use; all that the training table has by default.
    relative : bool, default=False
        False: plain least squares, as in the founding slides. True: least squares of the relative error.

    Attributes
    ----------
    proxies_ : tuple of str
    laws_ : dict of (cnn, image_size) -> LinearLaw
    mode_ : dict
        Precision, framework, ... and samples_per_epoch of the training rows: one value each.

    Notes
    -----
    X is a feature table with `samples_per_epoch` and `proxy_epoch_time_s_<proxy>`, y is `epoch_time_s`. Each
    CNN has a law of its own, a + b batch_size + sum_k c_k time_k(gpu, batch_size), learned on GPU 1 and used
    on GPU 2, where only the proxies were measured.
    """

    answer: ClassVar[str] = "epoch_time_s"

    def __init__(self, proxies: tuple[str, ...] | None = None, relative: bool = False) -> None:
        self.proxies = proxies
        self.relative = relative

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> ProxyTimes:
        """Learn from a feature table of n rows and their epoch times in seconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing or empty, if rows mix modes or sample counts, if a time is not above 0, or
            if a CNN has fewer rows than its law has coefficients.
        """
        table = self._checked(X, _COLUMNS)
        times = times_of(y, len(table), "epoch_time_s")
        proxies = self._chosen(table)
        self._checked(table, tuple(PROXY_TIME_PREFIX + proxy for proxy in proxies))
        self._learn_mode(table, extra=("samples_per_epoch",))
        design = _design(table, proxies, SchemaError)
        columns = ("batch_size", *(PROXY_TIME_PREFIX + proxy for proxy in proxies))
        laws: dict[tuple[str, int], LinearLaw] = {}
        for cnn, rows in _rows_of(table).items():
            _check_enough(cnn, len(rows), columns)
            laws[cnn] = fit_linear_law(columns, design[rows], times[rows], relative=self.relative)
        self.proxies_, self.laws_ = proxies, laws
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Predict epoch times in seconds, of shape (n,), for a feature table of n rows.

        Raises
        ------
        OutOfRangeError
            If a CNN was not in the training rows, if a proxy was not measured on the row's GPU at its batch
            size (both are named), or if mode or sample count are not those of the training rows.
        """
        self._check_fitted("laws_")
        table = self._checked(X, (*_COLUMNS, *(PROXY_TIME_PREFIX + proxy for proxy in self.proxies_)))
        self._check_mode(table)
        design = _design(table, self.proxies_, OutOfRangeError)
        times = np.empty(len(table))
        for cnn, rows in _rows_of(table).items():
            times[rows] = self._law_of(cnn).predict(design[rows])
        warn_of_negative_times(times, type(self).__name__)
        return times

    def coefficients(self) -> dict[str, float]:
        """`<cnn>@<image_size>:<column>` -> coefficient, seconds per unit of the column."""
        self._check_fitted("laws_")
        return {
            f"{cnn}@{image_size}:{column}": value
            for (cnn, image_size), law in self.laws_.items()
            for column, value in law.coefficients().items()
        }

    def _chosen(self, table: pd.DataFrame) -> tuple[str, ...]:
        columns = sorted(column for column in map(str, table) if column.startswith(PROXY_TIME_PREFIX))
        measured = [column.removeprefix(PROXY_TIME_PREFIX) for column in columns]
        chosen = tuple(measured if self.proxies is None else self.proxies)
        if not chosen:
            raise SchemaError(
                f"{type(self).__name__} found no proxy's epoch times (columns {PROXY_TIME_PREFIX}*). "
                "Put rows of kind 'proxy' with epoch_time_s into the measurement table."
            )
        return chosen

    def _law_of(self, cnn: tuple[str, int]) -> LinearLaw:
        if cnn not in self.laws_:
            known = ", ".join(f"{name} at {size}" for name, size in sorted(self.laws_))
            raise OutOfRangeError(
                f"{type(self).__name__} has no law for {cnn[0]} at image size {cnn[1]}; it has {known}. "
                "Measure this CNN on one GPU together with the proxies, and fit again."
            )
        return self.laws_[cnn]


class ProxyTimesRelative(ProxyTimes):
    """`proxy-times-relative`: ProxyTimes fitted so that relative errors are smallest."""

    def __init__(self, proxies: tuple[str, ...] | None = None, relative: bool = True) -> None:
        super().__init__(proxies=proxies, relative=relative)


def _rows_of(table: pd.DataFrame) -> dict[tuple[str, int], list[int]]:
    rows: dict[tuple[str, int], list[int]] = {}
    for i, (cnn, image_size) in enumerate(zip(table["cnn"], table["image_size"], strict=True)):
        rows.setdefault((str(cnn), int(image_size)), []).append(i)
    return rows


def _design(
    table: pd.DataFrame, proxies: tuple[str, ...], error: type[SchemaError | OutOfRangeError]
) -> Floats:
    where = table.assign(where=table["gpu"].astype(str) + " at batch size " + table["batch_size"].astype(str))
    columns = ("batch_size", *(PROXY_TIME_PREFIX + proxy for proxy in proxies))
    return np.column_stack([numbers_of(where, column, error, subject="where") for column in columns])


def _check_enough(cnn: tuple[str, int], n_rows: int, columns: tuple[str, ...]) -> None:
    if n_rows < 1 + len(columns):
        raise SchemaError(
            f"{cnn[0]} at image size {cnn[1]} has {n_rows} rows, its law {1 + len(columns)} coefficients "
            f"(intercept, batch size, {len(columns) - 1} proxies). Measure more batch sizes, or choose fewer "
            "proxies."
        )
