"""Variances of the parts of a model's residuals, by maximum likelihood, and the width that intervals need.

Called by the `roofline` and `anchored` estimators; calls `predictor.kriging`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from predictor.kriging import PARTS, Sites, covariances

__all__ = ["fit_variances", "interval_factor"]

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
    sites: Sites, residual: Array, names: tuple[str, ...] = PARTS, seed: int = 0
) -> dict[str, float]:
    """Variance of each named part that makes the residuals most likely.

    Large residuals are drawn in to 3 times the rms. At most 500 sites are used, drawn with `seed`.
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
    """By what the standard deviation is multiplied so that the interval holds a share `coverage` of the residuals.

    The split-conformal quantile (Vovk et al. 2005) of |residual| / standard deviation.
    """
    scores = np.abs(residual) / np.sqrt(variance)
    level = min(1.0, np.ceil((scores.size + 1) * coverage) / scores.size)
    return float(np.quantile(scores, level, method="higher"))
