"""Converts predictors of iteration times to predictors of epoch times and back, so that all fit in every scenario.

The founding predictors predict the epoch time at a fixed number of samples, all others the time of an iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone

from predictor.errors import NotFittedError
from predictor.models.epochs import EpochOverhead, fit_epoch_overhead
from predictor.models.per_epoch import IterationFromEpoch

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EpochTime", "as_epoch_time", "as_iteration_time"]


class EpochTime(RegressorMixin, BaseEstimator):
    """Epoch time as iterations x iteration time, with or without a fitted overhead.

    Parameters
    ----------
    iteration : estimator of iteration_time_ms, optional
        Predicts the iteration's time; without one the measured column `iteration_time_ms` is read.
    overhead : bool
        Whether to fit the overhead of an epoch; otherwise the plain product is given.

    Attributes
    ----------
    overhead_ : EpochOverhead
    iteration_ : fitted estimator, or None
    """

    def __init__(self, iteration: Any = None, overhead: bool = True) -> None:
        self.iteration = iteration
        self.overhead = overhead

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> EpochTime:
        """Fit on rows with measured `iteration_time_ms`; `y` is `epoch_time_s`."""
        measured_ms = X["iteration_time_ms"].to_numpy(dtype=float)
        self.iteration_ = None
        if self.iteration is not None:
            self.iteration_ = clone(self.iteration).fit(X.drop(columns="iteration_time_ms"), measured_ms)
        # Fitted on measured iterations, so that it does not correct the iteration predictor's bias.
        self.overhead_ = fit_epoch_overhead(y, measured_ms, *_sizes(X)) if self.overhead else EpochOverhead()
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Seconds of one epoch of each row."""
        _check_fitted(self, "overhead_")
        if self.iteration_ is None:
            time_ms = X["iteration_time_ms"].to_numpy(dtype=float)
        else:
            time_ms = self.iteration_.predict(X.drop(columns="iteration_time_ms"))
        return self.overhead_.epoch_time_s(time_ms, *_sizes(X))


def as_iteration_time(predictors: dict[str, Any]) -> dict[str, Any]:
    """Turn those predictors whose `answer` is ``epoch_time_s`` into predictors of iteration time."""
    return {
        name: IterationFromEpoch(each) if getattr(each, "answer", "") == "epoch_time_s" else each
        for name, each in predictors.items()
    }


def as_epoch_time(predictors: dict[str, Any]) -> dict[str, Any]:
    """Turn predictors of iteration time into predictors of epoch time, after two that read measured times."""
    return {
        "measured iteration": EpochTime(overhead=False),
        "measured iteration + overhead": EpochTime(),
        **{f"{name} + overhead": EpochTime(each) for name, each in predictors.items()},
    }


def _sizes(X: pd.DataFrame) -> list[NDArray[np.float64]]:
    """Give samples, batch size, image size and validation samples (0 if none are stated) of each row."""
    sizes = [X[column].to_numpy(dtype=float) for column in ("samples_per_epoch", "batch_size", "image_size")]
    validation = X["validation_samples"] if "validation_samples" in X else np.zeros(len(X))
    return [*sizes, np.nan_to_num(np.asarray(validation, dtype=float))]


def _check_fitted(estimator: Any, attribute: str) -> None:
    if not hasattr(estimator, attribute):
        raise NotFittedError(f"{type(estimator).__name__} has not been fitted yet. Call fit(X, y) first.")
