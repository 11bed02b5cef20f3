"""Makes predictors of epoch times of predictors of iteration times, as questions are answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone

from predictor.catalogue.modes import Mode
from predictor.errors import NotFittedError
from predictor.models.epochs import Epochs, Iteration, epoch_times_s, last_mini_batch
from predictor.models.fit import between_iterations


class EpochTime(RegressorMixin, BaseEstimator):
    """Epoch time from iteration time as a question is answered, or the plain product of iterations and their time.

    `iteration`: predicts the iteration's time; without one the measured column `iteration_time_ms` is read. `overhead`:
    whether to count the validation pass and what lies between iterations; otherwise the plain product is given.
    `epochs_`: the ratios that turn iterations into epochs. A smaller last one takes its share of a measured iteration.
    """

    def __init__(self, iteration: Any = None, overhead: bool = True) -> None:
        self.iteration = iteration
        self.overhead = overhead

    @property
    def needs_anchors(self) -> bool:
        """Whether the iteration's predictor needs anchors."""
        return getattr(self.iteration, "needs_anchors", False)

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> EpochTime:
        """Fit on rows with measured `iteration_time_ms`; `y` is `epoch_time_s`."""
        measured_ms = X["iteration_time_ms"].to_numpy(dtype=float)
        self.iteration_ = None
        if self.iteration is not None:
            self.iteration_ = clone(self.iteration).fit(X.drop(columns="iteration_time_ms"), measured_ms)
        # Fitted on measured iterations, so that it does not correct the iteration predictor's bias.
        timed = X.assign(epoch_time_s=np.asarray(y))
        self.epochs_ = Epochs(between_iterations(timed) if self.overhead else {})
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Seconds of one epoch, shape (n_rows,); NotFittedError before `fit`."""
        if not hasattr(self, "epochs_"):
            raise NotFittedError("EpochTime has not been fitted yet. Call fit(X, y) first.")
        samples, sizes = (X[name].to_numpy(dtype=np.int64) for name in ("samples_per_epoch", "batch_size"))
        validation = np.zeros(len(X), dtype=np.int64)
        if self.overhead and "validation_samples" in X:
            validation = X["validation_samples"].fillna(0).to_numpy(dtype=np.int64)
        mini_batches = sizes, *(last_mini_batch(n_samples, sizes) for n_samples in (samples, validation))
        if self.iteration_ is None:
            image_ms = X["iteration_time_ms"].to_numpy(dtype=float) / sizes
            times_ms = [n_images * image_ms for n_images in mini_batches]
        else:
            cases = X.drop(columns="iteration_time_ms")
            times_ms = [self.iteration_.predict(cases.assign(batch_size=n)) for n in mini_batches]
        seconds, usual = np.empty(len(X)), Mode().framework
        frameworks = X["framework"].fillna(usual) if "framework" in X else pd.Series(usual, X.index)
        for name in frameworks.unique():
            rows = (frameworks == name).to_numpy()
            iterations = [Iteration(time_ms[rows]) for time_ms in times_ms]
            images = sizes[rows], samples[rows], validation[rows]
            seconds[rows] = epoch_times_s(iterations, *images, self.epochs_, Mode(name))
        return seconds


def as_epoch_time(predictors: dict[str, Any]) -> dict[str, Any]:
    """Turn predictors of iteration time into predictors of epoch time, after two that read measured times."""
    return {
        "measured iteration": EpochTime(overhead=False),
        "measured iteration + overhead": EpochTime(),
        **{f"{name} + overhead": EpochTime(iteration) for name, iteration in predictors.items()},
    }
