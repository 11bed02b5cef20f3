"""Turns a predictor of epoch times, such as the founding study's, into one of iteration times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone

from predictor.models.base import UnfittedError
from predictor.models.epochs import iterations_per_epoch

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SAMPLES_PER_EPOCH", "IterationFromEpoch"]

SAMPLES_PER_EPOCH = 50_000
"""CIFAR's training set, as in the founding study."""

_MS_PER_S = 1000.0


class IterationFromEpoch(RegressorMixin, BaseEstimator):
    """Turns a predictor of `epoch_time_s` into one of `iteration_time_ms`, by an epoch of a fixed number of samples.

    Parameters
    ----------
    epoch : estimator of epoch_time_s
    samples : int
        Images of the epoch that it is fitted on and predicts.

    Attributes
    ----------
    epoch_ : fitted estimator
    """

    def __init__(self, epoch: Any, samples: int = SAMPLES_PER_EPOCH) -> None:
        self.epoch = epoch
        self.samples = samples

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> IterationFromEpoch:
        """Fit on iteration times in ms."""
        epoch_time_s = np.asarray(y, dtype=float) * self._iterations(X) / _MS_PER_S
        self.epoch_ = clone(self.epoch).fit(self._of_samples(X), epoch_time_s)
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Milliseconds of one iteration of each row."""
        self._check_fitted()
        return self._per_iteration(X, self.epoch_.predict(self._of_samples(X)))

    def to_json(self) -> dict[str, Any]:
        """Samples and the fitted predictor of epochs."""
        self._check_fitted()
        return {"samples": self.samples, "epoch": self.epoch_.to_json()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any], epoch: Any) -> IterationFromEpoch:
        """A fitted estimator from `to_json`, whose predictor of epochs is of the class `epoch`."""
        inner = epoch.from_json(found["epoch"])
        made = cls(clone(inner), int(found["samples"]))
        made.epoch_ = inner
        return made

    def _check_fitted(self) -> None:
        if not hasattr(self, "epoch_"):
            raise UnfittedError(f"{type(self).__name__} has not been fitted yet. Call fit(X, y) first.")

    def _of_samples(self, X: pd.DataFrame) -> pd.DataFrame:
        return X.assign(samples_per_epoch=self.samples)

    def _iterations(self, X: pd.DataFrame) -> NDArray[np.float64]:
        return iterations_per_epoch(self.samples, X["batch_size"].to_numpy())

    def _per_iteration(self, X: pd.DataFrame, epoch_time_s: ArrayLike) -> NDArray[np.float64]:
        return np.asarray(epoch_time_s, dtype=float) * _MS_PER_S / self._iterations(X)
