"""`anchored`: the roofline model, corrected by measurements of the CNN on other GPUs or at other batch sizes.

Called by evaluation and fitting; calls `roofline` and kriging. Serving does the same with `predictor.model`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from predictor.kernels import KERNEL_CLASSES
from predictor.kriging import Sites, krige
from predictor.predictors.base import Floats, times_of
from predictor.predictors.roofline import Roofline
from predictor.roofline.features import FAMILIES, FAMILY_OF
from predictor.roofline.fitting import Problem
from predictor.roofline.rows import rows_of

__all__ = ["Anchored"]

_SMALL_MS = 0.3  # a family of kernels that takes less matters little, and how much less not at all
_APART_BY_TIME, _APART_BY_SIZE = 2.0, 1.0  # steps of a logarithm at which two iterations are no longer alike

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
        self.sites_ = self._sites(whole)
        self.residual_ = np.log(problem.time_ms / problem.times(self.fitted_))

    def _sites(self, X: pd.DataFrame) -> Sites:
        return replace(super()._sites(X), work=_work(X))

    def _kriged(self, X: pd.DataFrame, anchors: Anchors | None) -> tuple[Floats, Floats]:
        self._check_fitted("residual_")
        known, residual = self._with_anchors(anchors)
        asked = self._sites(X)
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
        own = self._sites(frame)
        seen = {*zip(*_keys(self.sites_), strict=True)}
        new = np.flatnonzero([key not in seen for key in zip(*_keys(own), strict=True)])
        if not new.size:
            return self.sites_, self.residual_
        residual = np.log(times / super().predict(frame))[new]
        return _joined(self.sites_, own.take(new)), np.concatenate([self.residual_, residual])


def _work(X: pd.DataFrame) -> Floats:
    """What the rows' work is like: ln of each family's roofline time, of the batch size and of the image size."""
    design = rows_of(X).design()
    family = np.array([FAMILY_OF[name] for name in KERNEL_CLASSES])[design.class_of]
    ms = [design.sums() @ (np.exp(design.log_base) * (family == name)) for name in FAMILIES]
    size = np.log(X[["batch_size", "image_size"]].to_numpy(dtype=float))
    return np.hstack([np.log(np.stack(ms, axis=1) + _SMALL_MS) / _APART_BY_TIME, size / _APART_BY_SIZE])


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
        None if a.work is None or b.work is None else np.concatenate([a.work, b.work]),
    )
