"""`anchored`: the roofline model, corrected by measurements of the CNN on other GPUs or at other batch sizes.

Called by evaluation and fitting; calls `roofline` and kriging. Serving does the same with `predictor.model`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from predictor.kriging import Sites, krige
from predictor.predictors.base import Floats, times_of
from predictor.predictors.calibration import sites_of
from predictor.predictors.roofline import Roofline
from predictor.roofline.fitting import Problem

__all__ = ["Anchored"]

Anchors = tuple[pd.DataFrame, ArrayLike]


class Anchored(Roofline):
    """Roofline times exp(the residual kriged from anchors and from the training rows).

    `predict` takes ``anchors=(X, y)``: measurements that the fit need not have seen, of the CNN in question on any GPU.
    Unlike `roofline` it keeps its training rows' residuals, so it is for evaluation and notebooks, not for shipping.

    Attributes
    ----------
    sites_ : Sites
        Where the training rows lie.
    residual_ : ndarray, shape (n_training_rows,)
        ln(measured / model) there.
    """

    uses_anchors: ClassVar[bool] = True

    def predict(self, X: pd.DataFrame, anchors: Anchors | None = None) -> Floats:
        """Iteration time in ms, shape (n_rows,)."""
        return super().predict(X) * np.exp(self._kriged(X, anchors)[0])

    def predict_interval(
        self, X: pd.DataFrame, anchors: Anchors | None = None, *, coverage: float = 0.9
    ) -> tuple[Floats, Floats]:
        """Ends of the intervals that hold a share `coverage` of the true times, in ms."""
        mean, variance = self._kriged(X, anchors)
        middle = super().predict(X) * np.exp(mean)
        width = self._deviations(X, variance, coverage)
        return middle * np.exp(-width), middle * np.exp(width)

    def _keep(self, whole: pd.DataFrame, problem: Problem) -> None:
        self.sites_ = sites_of(whole)
        self.residual_ = np.log(problem.time_ms / problem.times(self.fitted_))

    def _kriged(self, X: pd.DataFrame, anchors: Anchors | None) -> tuple[Floats, Floats]:
        self._check_fitted("residual_")
        known, residual = self._with_anchors(anchors)
        asked = sites_of(X)
        mean, variance = np.empty(len(X)), np.empty(len(X))
        cells = np.array([f"{gpu}|{cnn}" for gpu, cnn in zip(X["gpu"], X["cnn"], strict=True)])
        for cell in sorted(set(cells)):
            rows = np.flatnonzero(cells == cell)
            variances = self.calibration_.variances_for(*cell.split("|", 1))
            mean[rows], variance[rows] = krige(known, residual, asked.take(rows), variances)
        return mean, variance

    def _with_anchors(self, anchors: Anchors | None) -> tuple[Sites, Floats]:
        if anchors is None or not len(anchors[0]):
            return self.sites_, self.residual_
        frame, y = anchors
        times = times_of(y, len(frame), "iteration_time_ms")
        own = sites_of(frame)
        seen = {*zip(*_keys(self.sites_), strict=True)}
        new = np.flatnonzero([key not in seen for key in zip(*_keys(own), strict=True)])
        if not new.size:
            return self.sites_, self.residual_
        residual = np.log(times / super().predict(frame))[new]
        return _joined(self.sites_, own.take(new)), np.concatenate([self.residual_, residual])


def _keys(sites: Sites) -> tuple[list[object], ...]:
    return (
        [g.name for g in sites.gpus],
        list(sites.cnns),
        list(sites.image_sizes),
        list(sites.batch_sizes),
        list(sites.modes),
    )


def _joined(a: Sites, b: Sites) -> Sites:
    return Sites(
        [*a.gpus, *b.gpus],
        [*a.cnns, *b.cnns],
        [*a.image_sizes, *b.image_sizes],
        [*a.batch_sizes, *b.batch_sizes],
        [*a.modes, *b.modes],
    )
