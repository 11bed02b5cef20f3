"""Linear least squares that knows where it can answer: the fit inside the founding predictors and the line.

Called by gpu_specs, proxy_times and line; calls nothing of ours.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LinearLaw", "fit_linear_law", "warn_of_negative_times"]

Floats = NDArray[np.float64]

_RANK_TOLERANCE = 1e-10  # of the largest singular value; every column has been scaled to length 1
_OUTSIDE = 1e-6  # part of a row outside the training rows' span, beyond rounding


@dataclass(frozen=True, slots=True)
class LinearLaw:
    """intercept + slopes . row, with the directions in which the training rows pinned it down."""

    columns: tuple[str, ...]
    intercept: float
    slopes: Floats  # (n_columns,)
    rank: int
    scales: Floats  # (1 + n_columns,), length of each column of the design, intercept first
    directions: Floats  # (rank, 1 + n_columns), orthonormal rows

    def predict(self, design: Floats) -> Floats:
        """Values of shape (n_rows,) for a design of shape (n_rows, n_columns)."""
        return np.asarray(self.intercept + design @ self.slopes, dtype=float)

    def estimable(self, design: Floats) -> NDArray[np.bool_]:
        """Whether training rows determine each row's value; others get the smallest law's, one of many."""
        rows = _with_ones(design) / self.scales
        outside = rows - rows @ self.directions.T @ self.directions
        return np.asarray(np.linalg.norm(outside, axis=1) <= _OUTSIDE * np.linalg.norm(rows, axis=1))

    def coefficients(self) -> dict[str, float]:
        """Name of the column -> its slope; the intercept under `intercept`."""
        return {"intercept": self.intercept} | dict(zip(self.columns, map(float, self.slopes), strict=True))


def fit_linear_law(columns: tuple[str, ...], design: Floats, y: Floats, relative: bool = False) -> LinearLaw:
    """Least squares of y on the columns and an intercept.

    Parameters
    ----------
    columns : tuple of str
    design : ndarray of shape (n_rows, n_columns)
    y : ndarray of shape (n_rows,)
        Above zero if `relative`.
    relative : bool
        Minimise the sum of ((prediction - y) / y)^2 instead of (prediction - y)^2.

    Notes
    -----
    Singular value decomposition. Columns are scaled first: CUDA cores count thousands, L2 a few MiB, and a
    cut-off on raw columns (scikit-learn's LinearRegression has one) would silently drop the latter. Where
    columns depend on each other, the law with the smallest scaled coefficients is taken.
    """
    weights = 1 / y if relative else np.ones_like(y)
    weighted = _with_ones(design) * weights[:, None]
    lengths = np.linalg.norm(weighted, axis=0)
    scales = np.where(lengths > 0, lengths, 1.0)
    left, strengths, right = np.linalg.svd(weighted / scales, full_matrices=False)
    rank = int(np.sum(strengths > _RANK_TOLERANCE * strengths[0]))
    solved = right[:rank].T @ ((left[:, :rank].T @ (y * weights)) / strengths[:rank]) / scales
    return LinearLaw(columns, float(solved[0]), solved[1:], rank, scales, right[:rank])


def warn_of_negative_times(times: Floats, who: str) -> None:
    """Warn that a linear law left the positive numbers: nothing in least squares keeps a time above zero."""
    n = int(np.sum(times <= 0))
    if n:
        warnings.warn(
            f"{who}: {n} of {times.size} predicted times are not above zero.", RuntimeWarning, stacklevel=3
        )


def _with_ones(design: Floats) -> Floats:
    return np.column_stack([np.ones(len(design)), design])
