"""The estimators `Roofline` and `Anchored`: kernels and specifications, corrected by measured iterations."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from predictor.catalogue.devices import find_gpu
from predictor.errors import SchemaError
from predictor.models.base import FeatureTablePredictor, Floats, times_of
from predictor.models.intervals import Predict, calibrate, sites_of
from predictor.models.residuals import Locations, gp_posterior, prior_variance
from predictor.models.roofline.features import FAMILIES, FAMILY_OF
from predictor.models.roofline.fit import (
    Fitted,
    Ridge,
    RooflineObjective,
    Rows,
    device_times,
    iteration_times,
    operator_times,
    profile_times,
    rows_of,
    single_passes,
)
from predictor.operators.kernels import KERNEL_CLASSES

__all__ = ["Anchored", "Roofline"]

_REFIT_ITERATIONS = 80
_ORDER = ("gpu", "cnn", "image_size", "batch_size", "precision", "pass", "iteration_time_ms")
_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "precision", "layer_table")


class Roofline(FeatureTablePredictor):
    """Sum of kernels, each its roofline time x exp(features . coefficients), joined with the host's time.

    Parameters
    ----------
    ridge : Ridge, optional
        Strength of the ridge penalty, by kind of coefficient.
    operator_weight : float
        Weight of a single layer timed alone, relative to a whole iteration.
    profile_weight : float
        Weight of a profiler's time of a group of kernels that takes a fifth or more of its iteration.
    device_weight : float
        Weight of `gpu_time_ms` against `iteration_time_ms` in rows that have both; the two weights sum to 1, so such
        rows do not count double.
    partial_weight : float
        Weight of an iteration without optimizer (forward and backward alone).
    max_iterations : int
        Iteration limit of the optimiser (L-BFGS).
    calibrate : bool
        Whether to calibrate intervals, which refits the model eight times, starting from the fitted coefficients.
    random_state : int
        Random seed of the groups of CNNs and chips that calibration leaves out.

    Attributes
    ----------
    fitted_ : Fitted
    calibration_ : Calibration
    n_without_structure_ : int
        Training rows left out because their CNN has no layer table.
    """

    uses_operators: ClassVar[bool] = True

    def __init__(
        self,
        ridge: Ridge | None = None,
        operator_weight: float = 0.015,
        profile_weight: float = 0.03,
        device_weight: float = 0.5,
        partial_weight: float = 0.3,
        max_iterations: int = 300,
        calibrate: bool = True,
        random_state: int = 0,
    ) -> None:
        self.ridge = ridge
        self.operator_weight = operator_weight
        self.profile_weight = profile_weight
        self.device_weight = device_weight
        self.partial_weight = partial_weight
        self.max_iterations = max_iterations
        self.calibrate = calibrate
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Roofline:
        """Fit on a feature table; y is `iteration_time_ms` of every row (of single layers too)."""
        frame = self._checked(X, _COLUMNS)
        frame = frame.assign(iteration_time_ms=times_of(y, len(frame), "iteration_time_ms"))
        operator, whole = self._split(_in_order(frame))
        problem = self._problem(whole, operator)
        self.fitted_ = problem.solve(max_iterations=self.max_iterations)
        if self.calibrate:
            predict = self._refit(problem, whole, operator)
            sites = self._sites(whole)
            self.calibration_ = calibrate(whole, problem.time_ms, predict, self.random_state, sites)
        self._keep(whole, problem)
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Iteration time in ms, shape (n_rows,)."""
        self._check_fitted("fitted_")
        return _times(self.fitted_, rows_of(self._checked(X, _COLUMNS)))

    def predict_interval(self, X: pd.DataFrame, *, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Ends of the intervals that hold a share `coverage` of the true times, in ms."""
        middle = self.predict(X)
        width = self._deviations(X, None, coverage)
        return middle * np.exp(-width), middle * np.exp(width)

    def coefficients(self) -> dict[str, float]:
        """Every coefficient, by ``class|feature|tag``."""
        self._check_fitted("fitted_")
        return {"|".join(term): value for term, value in self.fitted_.terms.items()}

    def _split(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rows of single layers, and rows of whole CNNs with a layer table."""
        operator = (
            (frame["kind"] == "operator").to_numpy() if "kind" in frame else np.zeros(len(frame), dtype=bool)
        )
        unknown = frame["layer_table"].isna().to_numpy() & ~operator
        self.n_without_structure_ = int(unknown.sum())
        whole = frame[~operator & ~unknown]
        if whole.empty:
            raise SchemaError("Roofline needs rows of whole CNNs whose layers are known; got none.")
        return frame[operator], whole

    def _problem(self, whole: pd.DataFrame, operator: pd.DataFrame) -> RooflineObjective:
        times = whole["iteration_time_ms"].to_numpy(dtype=float)
        rows = rows_of(whole)
        design = rows.design()
        known = (
            operator_times(operator, self.operator_weight),
            profile_times(whole, times, design, self.profile_weight),
            device_times(whole, design, self.device_weight),
        )
        kernel_times = [each for each in known if each is not None]
        return RooflineObjective.of(
            design, rows.layout(), times, self._weights(whole), kernel_times, self.ridge
        )

    def _refit(self, problem: RooflineObjective, whole: pd.DataFrame, operator: pd.DataFrame) -> Predict:
        """Refit without some rows, in a few steps from the fitted coefficients."""
        chips = np.array([find_gpu(name).chip for name in whole["gpu"]])
        operator_chips = np.array([find_gpu(name).chip for name in single_passes(operator)["gpu"]])

        def refit(group: NDArray[np.intp]) -> Floats:
            gone = np.zeros(len(whole), dtype=bool)
            gone[group] = True
            unseen = sorted(set(chips[gone]) - set(chips[~gone]))
            masks = [
                gone[times.row] if times.design is problem.design else np.isin(operator_chips, unseen)
                for times in problem.kernel_times
            ]
            without = problem.without(gone, masks)
            return without.times(without.solve(self.fitted_, _REFIT_ITERATIONS))

        return refit

    def _sites(self, X: pd.DataFrame) -> Locations:
        """Locations of the rows' residuals; `anchored` adds the work of each row."""
        return sites_of(X)

    def _keep(self, whole: pd.DataFrame, problem: RooflineObjective) -> None:
        """Do nothing; `anchored` keeps the training rows' residuals here."""

    def _deviations(self, X: pd.DataFrame, variance: Floats | None, coverage: float) -> Floats:
        """Half widths of the intervals of ln time, from `variance` or else the prior variance."""
        self._check_fitted("calibration_")
        known = self.calibration_
        cells = [(str(gpu), str(cnn)) for gpu, cnn in zip(X["gpu"], X["cnn"], strict=True)]
        factor = np.array(
            [known.factor_for(gpu, coverage, anchored=variance is not None) for gpu, _ in cells]
        )
        prior = {cell: prior_variance(known.variances_for(*cell)) for cell in set(cells)}
        width: Floats = factor * np.sqrt(
            np.array([prior[cell] for cell in cells]) if variance is None else variance
        )
        return width

    def _weights(self, frame: pd.DataFrame) -> Floats:
        whole = np.ones(len(frame))
        if "pass" in frame:
            whole = np.where(frame["pass"].fillna("training") == "training", 1.0, self.partial_weight)
        if "fit_weight" in frame:
            whole = frame["fit_weight"].fillna(1.0).to_numpy(dtype=float) * whole
        if "gpu_time_ms" not in frame:
            return whole
        return np.where(frame["gpu_time_ms"].notna(), 1.0 - self.device_weight, 1.0) * whole


def _in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort the rows, since the last digits of a fit depend on the order of sums."""
    columns = [name for name in _ORDER if name in frame]
    return frame.sort_values(columns, kind="stable", ignore_index=True)


def _times(fitted: Fitted, rows: Rows) -> Floats:
    design = rows.design()
    known = [term for term in design.entries if term in fitted.terms]
    exponent = design.matrix(known) @ np.array([fitted.terms[term] for term in known])
    return iteration_times(fitted, rows.layout(), design.sums() @ np.exp(exponent + design.log_base))


_SMALL_MS = 0.3  # added to each family's time, so that negligible families do not count as different
_APART_BY_TIME, _APART_BY_SIZE = 2.0, 1.0  # length scales, in ln of time and of size

Anchors = tuple[pd.DataFrame, ArrayLike]


class Anchored(Roofline):
    """Roofline x exp(posterior mean of a Gaussian process over the residuals of anchors and training rows).

    `predict` takes ``anchors=(X, y)``: measurements of the predicted CNN on any GPU, among the training rows or not.
    Unlike `roofline` it keeps its training rows' residuals, so it serves evaluation and notebooks and is not shipped.

    Attributes
    ----------
    sites_ : Locations
        Locations of the training rows.
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

    def _keep(self, whole: pd.DataFrame, problem: RooflineObjective) -> None:
        self.sites_ = self._sites(whole)
        self.residual_ = np.log(problem.time_ms / problem.times(self.fitted_))

    def _sites(self, X: pd.DataFrame) -> Locations:
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
            mean[rows], variance[rows] = gp_posterior(known, residual, asked.take(rows), variances)
        return mean, variance

    def _with_anchors(self, anchors: Anchors | None) -> tuple[Locations, Floats]:
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
    """Work of each row, scaled: ln of each family's roofline time, of the batch size and of the image size."""
    design = rows_of(X).design()
    family = np.array([FAMILY_OF[name] for name in KERNEL_CLASSES])[design.class_of]
    ms = [design.sums() @ (np.exp(design.log_base) * (family == name)) for name in FAMILIES]
    size = np.log(X[["batch_size", "image_size"]].to_numpy(dtype=float))
    return np.hstack([np.log(np.stack(ms, axis=1) + _SMALL_MS) / _APART_BY_TIME, size / _APART_BY_SIZE])


def _keys(sites: Locations) -> tuple[list[object], ...]:
    return (
        [g.name for g in sites.gpus],
        list(sites.cnns),
        list(sites.image_sizes),
        list(sites.batch_sizes),
        list(sites.modes),
    )


def _joined(a: Locations, b: Locations) -> Locations:
    return Locations(
        [*a.gpus, *b.gpus],
        [*a.cnns, *b.cnns],
        [*a.image_sizes, *b.image_sizes],
        [*a.batch_sizes, *b.batch_sizes],
        [*a.modes, *b.modes],
        None if a.work is None or b.work is None else np.concatenate([a.work, b.work]),
    )
