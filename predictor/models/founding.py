"""The founding study's two approaches: regression on GPU specifications, and on times of proxy CNNs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import PROXY_TIME_PREFIX, proxy_counts
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.features import FOUNDING_SPECIFICATIONS
from predictor.models.base import FeatureTablePredictor, Floats, numbers_of, times_of
from predictor.models.methods.laws import (
    LinearLaw,
    fit_linear_law,
    proxy_columns,
    specs_columns,
    unknown_shapes,
)

__all__ = ["GpuSpecs", "ProxyTimes", "warn_of_negative_times"]


def warn_of_negative_times(times: Floats, who: str) -> None:
    """Warn of predicted times that are not above zero, which least squares does not exclude."""
    n = int(np.sum(times <= 0))
    if n:
        warnings.warn(
            f"{who}: {n} of {times.size} predicted times are not above zero.", RuntimeWarning, stacklevel=3
        )


_SPECS = tuple(f"gpu_{name}" for name in FOUNDING_SPECIFICATIONS)
_SPECS_COLUMNS = ("gpu", "cnn", "batch_size", "layer_table", *_SPECS)


class GpuSpecs(FeatureTablePredictor):
    """Epoch time, linear in GPU specifications, counts of each proxy layer, and batch size.

    Parameters
    ----------
    relative : bool, default=False
        False: plain least squares, as in the founding slides. True: least squares of the relative error.

    Attributes
    ----------
    law_ : LinearLaw
    shapes_ : tuple of str
        Convolution shapes with a coefficient, as proxy names.
    mode_ : dict
        Precision, framework, ... and samples_per_epoch of the training rows: one value each.

    Notes
    -----
    X is a feature table with `samples_per_epoch`; y is `epoch_time_s`:
    a + b batch_size + sum_j c_j spec_j + sum_k d_k count_k(CNN). Nothing keeps a prediction above zero, and
    nothing multiplies GPU with CNN: this is the study's model, for comparison with it (docs/decisions/001).
    """

    answer: ClassVar[str] = "epoch_time_s"

    def __init__(self, relative: bool = False) -> None:
        self.relative = relative

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> GpuSpecs:
        """Learn from a feature table of n rows and their epoch times in seconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing or empty, if the rows mix modes or sample counts, or if a time is not above
            0.
        """
        table = self._checked(X, (*_SPECS_COLUMNS, "samples_per_epoch"))
        times = times_of(y, len(table), "epoch_time_s")
        self._learn_mode(table, extra=("samples_per_epoch",))
        counts = _counts_by_cnn(table, SchemaError)
        self.shapes_ = tuple(sorted({shape for of_cnn in counts for shape in of_cnn}))
        design = _specs_design(table, counts, self.shapes_, SchemaError)
        self.law_: LinearLaw = fit_linear_law(
            specs_columns(self.shapes_), design, times, relative=self.relative
        )
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Predict epoch times in seconds, of shape (n,), for a feature table of n rows.

        Raises
        ------
        OutOfRangeError
            If a CNN has convolution shapes that no training CNN had (all are listed), if a specification is
            missing (GPU and column are named), or if mode or sample count are not those of the training rows.
        """
        design = self._design(X)
        times = self.law_.predict(design)
        warn_of_negative_times(times, type(self).__name__)
        return times

    def coefficients(self) -> dict[str, float]:
        """Column -> seconds per unit of it; `intercept` in seconds."""
        self._check_fitted("law_")
        return self.law_.coefficients()

    def _design(self, X: pd.DataFrame) -> Floats:
        self._check_fitted("law_")
        table = self._checked(X, (*_SPECS_COLUMNS, "samples_per_epoch"))
        self._check_mode(table)
        counts = _counts_by_cnn(table, OutOfRangeError)
        self._refuse_new_shapes(table, counts)
        return _specs_design(table, counts, self.shapes_, OutOfRangeError)

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("law_")
        return {"mode": self.mode_, "shapes": list(self.shapes_), "law": self.law_.to_json()}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.mode_, self.shapes_ = dict(learned["mode"]), tuple(learned["shapes"])
        self.law_ = LinearLaw.from_json(specs_columns(self.shapes_), learned["law"])

    def _refuse_new_shapes(self, table: pd.DataFrame, counts: list[dict[str, int]]) -> None:
        new = {
            (cnn, shape)
            for cnn, of_cnn in zip(table["cnn"], counts, strict=True)
            for shape in of_cnn
            if shape not in self.shapes_
        }
        if new:
            cnns, shapes = (sorted({pair[i] for pair in new}) for i in (0, 1))
            raise unknown_shapes(type(self).__name__, cnns, shapes, len(self.shapes_))


def _counts_by_cnn(table: pd.DataFrame, error: type[SchemaError | OutOfRangeError]) -> list[dict[str, int]]:
    """Proxy counts of each row's CNN; each layer table is counted once."""
    unknown = sorted({str(cnn) for cnn in table.loc[~table["layer_table"].map(_is_layer_table), "cnn"]})
    if unknown:
        raise error(
            f"column 'layer_table' has no value for {', '.join(unknown[:5])}. "
            "Give feature_table a layer_table_of that has these CNNs."
        )
    counted = {id(layers): layers for layers in table["layer_table"]}
    counts = {key: proxy_counts(layers) for key, layers in counted.items()}
    return [counts[id(layers)] for layers in table["layer_table"]]


def _is_layer_table(value: Any) -> bool:
    return isinstance(value, LayerTable)


def _specs_design(
    table: pd.DataFrame,
    counts: list[dict[str, int]],
    shapes: tuple[str, ...],
    error: type[SchemaError | OutOfRangeError],
) -> Floats:
    specs = [numbers_of(table, column, error) for column in ("batch_size", *_SPECS)]
    matrix = np.zeros((len(table), len(shapes)))
    place = {shape: i for i, shape in enumerate(shapes)}
    for row, of_cnn in enumerate(counts):
        for shape, count in of_cnn.items():
            matrix[row, place[shape]] = count  # a shape that this CNN does not have occurs 0 times in it
    return np.column_stack([*specs, matrix])


_PROXY_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "samples_per_epoch")


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
    batch_sizes_ : dict of (cnn, image_size) -> (int, int)
        Smallest and largest batch size that a law was fitted on.
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
        table = self._checked(X, _PROXY_COLUMNS)
        times = times_of(y, len(table), "epoch_time_s")
        proxies = self._chosen(table)
        self._checked(table, tuple(PROXY_TIME_PREFIX + proxy for proxy in proxies))
        self._learn_mode(table, extra=("samples_per_epoch",))
        design = _proxy_design(table, proxies, SchemaError)
        columns = proxy_columns(proxies)
        laws: dict[tuple[str, int], LinearLaw] = {}
        self.batch_sizes_: dict[tuple[str, int], tuple[int, int]] = {}
        for cnn, rows in _rows_of(table).items():
            _check_enough(cnn, len(rows), columns)
            laws[cnn] = fit_linear_law(columns, design[rows], times[rows], relative=self.relative)
            low, high = design[rows, 0].min(), design[rows, 0].max()
            self.batch_sizes_[cnn] = (int(low), int(high))
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
        table, design = self._design(X)
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

    def _design(self, X: pd.DataFrame) -> tuple[pd.DataFrame, Floats]:
        self._check_fitted("laws_")
        table = self._checked(X, (*_PROXY_COLUMNS, *(PROXY_TIME_PREFIX + proxy for proxy in self.proxies_)))
        self._check_mode(table)
        return table, _proxy_design(table, self.proxies_, OutOfRangeError)

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("laws_")
        laws = [
            {"cnn": cnn[0], "image_size": cnn[1], "batch_sizes": self.batch_sizes_[cnn], **law.to_json()}
            for cnn, law in self.laws_.items()
        ]
        return {"mode": self.mode_, "proxies": list(self.proxies_), "laws": laws}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.mode_, self.proxies_ = dict(learned["mode"]), tuple(learned["proxies"])
        columns = proxy_columns(self.proxies_)
        known = {(str(law["cnn"]), int(law["image_size"])): law for law in learned["laws"]}
        self.laws_ = {cnn: LinearLaw.from_json(columns, law) for cnn, law in known.items()}
        ranges = {cnn: law["batch_sizes"] for cnn, law in known.items()}
        self.batch_sizes_ = {cnn: (int(low), int(high)) for cnn, (low, high) in ranges.items()}

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


def _rows_of(table: pd.DataFrame) -> dict[tuple[str, int], list[int]]:
    rows: dict[tuple[str, int], list[int]] = {}
    for i, (cnn, image_size) in enumerate(zip(table["cnn"], table["image_size"], strict=True)):
        rows.setdefault((str(cnn), int(image_size)), []).append(i)
    return rows


def _proxy_design(
    table: pd.DataFrame, proxies: tuple[str, ...], error: type[SchemaError | OutOfRangeError]
) -> Floats:
    where = table.assign(where=table["gpu"].astype(str) + " at batch size " + table["batch_size"].astype(str))
    columns = proxy_columns(proxies)
    return np.column_stack([numbers_of(where, column, error, subject="where") for column in columns])


def _check_enough(cnn: tuple[str, int], n_rows: int, columns: tuple[str, ...]) -> None:
    if n_rows < 1 + len(columns):
        raise SchemaError(
            f"{cnn[0]} at image size {cnn[1]} has {n_rows} rows, its law {1 + len(columns)} coefficients "
            f"(intercept, batch size, {len(columns) - 1} proxies). Measure more batch sizes, or choose fewer "
            "proxies."
        )
