"""Base of all predictors: it checks the feature table before a fit or a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError as SklearnNotFittedError

from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import MODE_COLUMNS, UNKNOWN, Mode, mode_words
from predictor.cnns.layer_table import LayerTable
from predictor.errors import NotFittedError, OutOfRangeError, SchemaError, nearest
from predictor.measurements.features import grid_rows

__all__ = ["FeatureTablePredictor", "Floats", "UnfittedError", "finite", "numbers_of", "times_of"]

Floats = NDArray[np.float64]


class UnfittedError(NotFittedError, SklearnNotFittedError):
    """Subclass of this project's and of scikit-learn's `NotFittedError`: either `except` clause catches it."""


class FeatureTablePredictor(RegressorMixin, BaseEstimator):
    """Base of the estimators whose X is a feature table (`predictor.measurements.features.feature_table`).

    `answer` is the quantity in y and of `predict`; with `uses_operators` the training rows may contain single layers,
    with `uses_anchors` `predict` takes measurements of the predicted CNNs, without which one that `needs_anchors` is no
    answer of its own. A subclass that inherits `fit` learns the same by it, and evaluations fit one of them for both.
    """

    answer: ClassVar[str] = "iteration_time_ms"
    uses_operators: ClassVar[bool] = False
    uses_anchors: ClassVar[bool] = False
    needs_anchors: ClassVar[bool] = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.no_validation = True  # X has text and objects in it; `_checked` validates instead
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        tags.target_tags.positive_only = True
        return tags

    def grid(
        self, tables: Sequence[LayerTable], devices: Sequence[tuple[Gpu, Mode]], batch_sizes: Sequence[int]
    ) -> Floats:
        """Predict every CNN on every GPU at every batch size.

        Returns
        -------
        ndarray of shape (n_tables, n_devices, n_batches)
            What `predict` gives for these rows; a predictor shares the arithmetic of rows of one CNN.
        """
        predicted = self.predict(grid_rows(tables, devices, batch_sizes))
        return np.asarray(predicted, dtype=float).reshape(len(tables), len(devices), len(batch_sizes))

    def to_json(self) -> dict[str, Any]:
        """Parameters and what was learned, as plain lists and dicts."""
        return {"parameters": self.get_params(deep=False), "learned": self._learned()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """A fitted estimator from `to_json`; a KeyError, TypeError or ValueError if it is damaged."""
        given = found["parameters"].items()
        made = cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in given})
        made._restore(found["learned"])
        return made

    def _learned(self) -> dict[str, Any]:
        """Learned attributes as plain lists and dicts."""
        raise NotImplementedError(f"{type(self).__name__} has no JSON form.")

    def _restore(self, learned: Mapping[str, Any]) -> None:
        """Set the learned attributes from `_learned`."""
        raise NotImplementedError(f"{type(self).__name__} has no JSON form.")

    def _checked(self, X: Any, columns: Sequence[str]) -> pd.DataFrame:
        """Return X if it is a table with rows, these columns, and rows of trained CNNs alone."""
        name = type(self).__name__
        if not isinstance(X, pd.DataFrame):
            raise SchemaError(
                f"{name} needs a feature table (pandas DataFrame), got {type(X).__name__}. "
                "Build it with predictor.measurements.features.feature_table."
            )
        for column in columns:
            if column not in X:
                like = nearest(column, map(str, X.columns))
                raise SchemaError(f"{name} needs the column {column!r}. Nearest: {like}.")
        if X.empty:
            raise SchemaError(f"{name} got a feature table without rows.")
        if not self.uses_operators:
            _refuse_values(X, "kind", ("proxy", "target"), name)
            _refuse_values(X, "pass", ("training",), name)
        return X

    def _check_fitted(self, attribute: str) -> None:
        if not hasattr(self, attribute):
            raise UnfittedError(f"{type(self).__name__} has not been fitted yet. Call fit(X, y) first.")

    def _learn_mode(self, X: pd.DataFrame, extra: tuple[str, ...] = ()) -> None:
        """Store the mode of the training rows; refuse several modes, which one model cannot fit."""
        words = mode_words(X, (*MODE_COLUMNS, *extra))
        self.mode_: dict[str, str] = {}
        for column in map(str, words):
            known = sorted(set(words[column]) - {UNKNOWN})
            if len(known) > 1:
                raise SchemaError(
                    f"{type(self).__name__} is fitted on rows of one {column}, got {', '.join(known)}. "
                    f"Select one before fitting."
                )
            self.mode_[column] = known[0] if known else UNKNOWN

    def _check_mode(self, X: pd.DataFrame) -> None:
        words = mode_words(X, tuple(self.mode_))
        for column, learned in self.mode_.items():
            others = sorted(set(words[column]) - {UNKNOWN, learned})
            if others and learned != UNKNOWN:
                raise OutOfRangeError(
                    f"{type(self).__name__} was fitted on {column} {learned}, asked for {', '.join(others)}. "
                    f"Fit it on measurements of that {column}."
                )


def finite(value: Any) -> float:
    """A number read from JSON; ValueError if it is not finite."""
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


def numbers_of(
    X: pd.DataFrame, column: str, error: type[SchemaError | OutOfRangeError], subject: str = "gpu"
) -> Floats:
    """One column as finite numbers of shape (n_rows,); `error` names the column and the subjects without a value."""
    values = pd.to_numeric(X[column], errors="coerce").to_numpy(dtype=float)
    bad = ~np.isfinite(values)
    if bad.any():
        whose = sorted({str(value) for value in X.loc[bad, subject]}) if subject in X else ["some rows"]
        raise error(
            f"column {column!r} has no value for {', '.join(whose[:5])}{' ...' if len(whose) > 5 else ''}. "
            "Fill it in, or use a predictor that does not need it."
        )
    return values


def times_of(y: ArrayLike | None, n_rows: int, name: str) -> Floats:
    """Training times of shape (n_rows,), checked to be finite and above zero; `name` carries the unit."""
    if y is None:
        raise SchemaError(f"fit requires y, one {name} per row; got None.")
    times = np.asarray(y, dtype=float)
    if times.shape != (n_rows,):
        raise SchemaError(f"y has shape {times.shape}, X has {n_rows} rows: pass one {name} per row.")
    bad = np.flatnonzero(~(np.isfinite(times) & (times > 0)))
    if bad.size:
        raise SchemaError(
            f"{name} must be above 0 and finite; row {bad[0]} has {times[bad[0]]:g} ({bad.size} such rows). "
            "Check the unit, or leave the row out."
        )
    return times


def _refuse_values(X: pd.DataFrame, column: str, allowed: tuple[str, ...], name: str) -> None:
    others = sorted(set(mode_words(X, (column,))[column]) - {*allowed, UNKNOWN})
    if others:
        raise SchemaError(
            f"{name} takes rows whose {column} is {' or '.join(allowed)}, got {', '.join(others)}. "
            "Leave these rows out."
        )
