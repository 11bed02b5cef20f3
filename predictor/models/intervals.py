"""Interval widths: variance components of residuals by maximum likelihood, conformal factors from held-out groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from predictor.catalogue.devices import find_gpu
from predictor.errors import OutOfRangeError
from predictor.models.residuals import PARTS, Locations, covariances, gp_posterior

__all__ = ["Calibration", "calibrate", "fit_variances", "interval_factor", "sites_of"]

Array = NDArray[np.float64]

_MOST_SITES = 500
_LEAST, _MOST = 1e-6, 1.0
_START = 0.005


@dataclass(frozen=True, slots=True, eq=False)
class _Likelihood:
    parts: list[Array]
    residual: Array

    def __call__(self, log_variances: Array) -> tuple[float, Array]:
        """Negative log likelihood and gradient of a centred Gaussian with the summed covariance."""
        variances = np.exp(log_variances)
        total = sum(
            (v * part for v, part in zip(variances, self.parts, strict=True)), np.zeros_like(self.parts[0])
        )
        factor = cho_factor(total + 1e-9 * np.eye(len(total)), lower=True)
        alpha = cho_solve(factor, self.residual)
        inverse = cho_solve(factor, np.eye(len(total)))
        value = 0.5 * float(self.residual @ alpha) + float(np.log(np.diag(factor[0])).sum())
        slope = [0.5 * float(np.sum(inverse * part) - alpha @ part @ alpha) for part in self.parts]
        return value, np.array(slope) * variances


def fit_variances(
    sites: Locations, residual: Array, names: tuple[str, ...] = PARTS, seed: int = 0
) -> dict[str, float]:
    """Variance of each named component, by maximum likelihood.

    Residuals are clipped at 3 times their rms. At most 500 sites are used, drawn with `seed`.
    """
    if len(sites) > _MOST_SITES:
        chosen = np.sort(np.random.default_rng(seed).choice(len(sites), _MOST_SITES, replace=False))
        sites, residual = sites.take(chosen), residual[chosen]
    rms = float(np.sqrt(np.median(residual**2) / 0.455))  # 0.455: median of a squared standard normal
    parts = covariances(sites, sites)
    matrices = [np.eye(len(sites)) if name == "noise" else parts[name] for name in names]
    likelihood = _Likelihood(matrices, np.clip(residual, -3 * rms, 3 * rms))
    bounds = [(np.log(_LEAST), np.log(_MOST))] * len(names)
    start = np.full(len(names), np.log(_START))
    found = minimize(likelihood, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60}).x
    return dict(zip(names, map(float, np.exp(found)), strict=True))


def interval_factor(residual: Array, variance: Array, coverage: float) -> float:
    """Factor of the standard deviation with which intervals hold a share `coverage` of the residuals.

    The split-conformal quantile (Vovk et al. 2005) of |residual| / standard deviation.
    """
    scores = np.abs(residual) / np.sqrt(variance)
    level = min(1.0, np.ceil((scores.size + 1) * coverage) / scores.size)
    return float(np.quantile(scores, level, method="higher"))


Predict = Callable[[NDArray[np.intp]], Array]
"""Positions of rows to leave out -> times of all rows, in ms, predicted by a model fitted without these."""

_N_GROUPS = 4
_LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(slots=True)
class Calibration:
    """Variances of residual components and interval factors, for a GPU and for a CNN outside the training data.

    `variances` maps ``gpu`` (GPU outside the data) and ``cnn`` (CNN outside the data) to variances by component.
    `factors` maps these keys, and ``anchored-gpu`` and ``anchored-cnn`` for predictions corrected by anchors, to
    factors by coverage.
    """

    gpus: tuple[str, ...] = ()
    cnns: tuple[str, ...] = ()
    variances: dict[str, dict[str, float]] = field(default_factory=dict)
    factors: dict[str, dict[float, float]] = field(default_factory=dict)

    def _check_known(self) -> None:
        if not self.variances:
            raise OutOfRangeError(
                f"the fit has one CNN ({', '.join(self.cnns)}) on one chip ({', '.join(self.gpus)}), from which no "
                "error elsewhere can be estimated. Add measurements of another CNN or GPU."
            )

    def variances_for(self, gpu: str, cnn: str) -> dict[str, float]:
        """Variances that apply to a CNN on a GPU."""
        self._check_known()
        new_cnn, new_gpu = self.variances["cnn"], self.variances["gpu"]
        if gpu in self.gpus:
            return new_cnn
        if cnn in self.cnns:
            return new_gpu
        return {part: max(new_cnn.get(part, 0.0), new_gpu.get(part, 0.0)) for part in PARTS}

    def factor_for(self, gpu: str, coverage: float, *, anchored: bool) -> float:
        """Standard deviations from the middle to the end of the interval, interpolated between calibrated levels."""
        self._check_known()
        kind = ("anchored-" if anchored else "") + ("cnn" if gpu in self.gpus else "gpu")
        levels = self.factors[kind]
        return float(np.interp(coverage, list(levels), list(levels.values())))


def sites_of(X: pd.DataFrame) -> Locations:
    """Locations of the residuals of a feature table's rows."""
    modes = [
        X[c].astype(object).fillna("").astype(str)
        for c in ("framework", "precision", "xla", "memory_format")
        if c in X
    ]
    return Locations(
        [find_gpu(name) for name in X["gpu"]],
        [str(name) for name in X["cnn"]],
        [int(size) for size in X["image_size"]],
        [float(size) for size in X["batch_size"]],
        ["|".join(words) for words in zip(*modes, strict=True)] if modes else [""] * len(X),
    )


def calibrate(
    X: pd.DataFrame, times: Array, predict: Predict, seed: int, sites: Locations | None = None
) -> Calibration:
    """Fit variances and factors by cross-validation: leave groups of CNNs, then of chips, out of `X` in turn.

    `X` holds whole CNNs alone; `predict` refits without a group. `sites` are the locations of its rows, by default
    `sites_of(X)`.
    """
    everywhere = sites_of(X) if sites is None else sites
    chips = np.array([find_gpu(name).chip for name in X["gpu"]], dtype=np.str_)
    held_out = {"cnn": _groups(X["cnn"].to_numpy(dtype=np.str_), seed), "gpu": _groups(chips, seed)}
    found = Calibration(tuple(sorted(set(X["gpu"]))), tuple(sorted(set(X["cnn"].astype(str)))))
    for kind, groups in held_out.items():
        parts = _parts(kind, everywhere)
        left_out = [_held_out(X, times, predict, group) for group in groups]
        if not left_out:
            continue
        sites = everywhere.take(np.concatenate([each.held_out for each in left_out]))
        variances = fit_variances(sites, np.concatenate([each.residual for each in left_out]), parts, seed)
        found.variances[kind] = variances
        for name, anchored in ((kind, False), (f"anchored-{kind}", True)):
            scores = [each.scores(everywhere, variances, anchored=anchored) for each in left_out]
            residual, variance = (np.concatenate(column) for column in zip(*scores, strict=True))
            found.factors[name] = {level: interval_factor(residual, variance, level) for level in _LEVELS}
    return _completed(found)


@dataclass(frozen=True, slots=True, eq=False)
class _HeldOut:
    kept: NDArray[np.intp]
    held_out: NDArray[np.intp]
    kept_residual: Array
    residual: Array

    def scores(self, sites: Locations, variances: dict[str, float], *, anchored: bool) -> tuple[Array, Array]:
        known = self.kept if anchored else self.kept[:0]
        residual = self.kept_residual if anchored else self.kept_residual[:0]
        mean, variance = gp_posterior(sites.take(known), residual, sites.take(self.held_out), variances)
        return self.residual - mean, variance


def _held_out(X: pd.DataFrame, times: Array, predict: Predict, group: NDArray[np.intp]) -> _HeldOut:
    kept = np.setdiff1d(np.arange(len(X)), group)
    residual = np.log(times / predict(group))
    return _HeldOut(kept, group, residual[kept], residual[group])


def _parts(kind: str, sites: Locations) -> tuple[str, ...]:
    """Components of the residuals of new GPUs, or of new CNNs.

    On a new GPU the `work` component is dropped: iterations with similar work err alike on every GPU, so the error
    belongs to the CNN.
    """
    if kind == "gpu":
        return PARTS
    return PARTS[1:] if sites.work is None else (*PARTS[1:-1], "work", PARTS[-1])


def _groups(labels: NDArray[np.str_], seed: int) -> Sequence[NDArray[np.intp]]:
    """Split the labels at random into at most four groups; none if there is only one label."""
    names = np.random.default_rng(seed).permutation(sorted(set(labels)))
    if len(names) < 2:
        return []
    return [
        np.flatnonzero(np.isin(labels, part)) for part in np.array_split(names, min(_N_GROUPS, len(names)))
    ]


def _completed(found: Calibration) -> Calibration:
    """With one GPU in the data, use the figures for new CNNs for new GPUs too; with one CNN, the reverse."""
    for missing, other in (("gpu", "cnn"), ("cnn", "gpu")):
        if missing not in found.variances and other in found.variances:
            found.variances[missing] = found.variances[other]
            for prefix in ("", "anchored-"):
                found.factors[prefix + missing] = found.factors[prefix + other]
    return found
