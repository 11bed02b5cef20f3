"""Efficiency of operators that nobody measured, from measured ones of like shape.

Called by operator_library; calls operator_work for what shapes look like. numpy alone: a library is asked while a
user waits. A weighted mean of neighbours stays within what was measured, unlike a polynomial, which does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.operator_work import SHAPE_COLUMNS, shape_columns
from predictor.operators import Operator

__all__ = ["FAR", "N_NEIGHBOURS", "Neighbourhood", "neighbourhoods"]

Array = NDArray[np.float64]

N_NEIGHBOURS = 12
FAR = 2.0
"""Distance beyond which the nearest shape is no neighbour: two doublings of one size, as `_SCALES` count them."""

_POWER = 2.0
_REACH = 1.5  # distance at which half of what surprised at a neighbour is expected
_CLOSEST = (
    0.05  # distances below it count alike, so that one neighbour cannot rule out all others by rounding
)
_OTHER_KIND = 1.5  # distance between two kinds of activation
_SCALES = {  # how much a doubling, or a flag, tells about efficiency
    "in_channels": 1.0,
    "out_channels": 1.0,
    "groups": 0.7,
    "positions": 0.7,
    "map_ratio": 0.7,
    "kernel": 1.0,
    "elongation": 0.7,
    "stride": 1.0,
    "dilation": 1.0,
    "uneven_in": 1.0,
    "uneven_out": 1.0,
    "uneven_map": 0.5,
    "input_gradient": 2.0,
    "in_place": 2.0,
    "wide_input": 2.0,
    "bias": 0.3,
    "n_tensors": 1.0,
    "forward": 4.0,
    "broadcast": 4.0,
}
_SCALE = np.array([_SCALES[name] for name in SHAPE_COLUMNS])


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """Nearest measured operators of each operator asked about.

    `rows` and `weights` have shape (n_asked, k): positions in the library, and their shares, which sum to 1.
    `distance` (n_asked,) is that of the nearest; infinite, with weights 0, where no operator of the type is known.
    `closeness` (n_asked,) is how much of what surprised at the neighbours is to be expected here, from 0 to 1.
    """

    rows: NDArray[np.intp]
    weights: Array
    distance: Array
    closeness: Array

    def mean(self, values: Array) -> Array:
        """Weighted mean of the library's `values` (n_library, ...) for each operator asked about."""
        found: Array = np.einsum("ak,ak...->a...", self.weights, values[self.rows])
        return found

    def shrunk(self, i: int, values: Array) -> Array:
        """Weighted mean of `values` (n_library, ...) for the i-th operator, drawn to 0 where neighbours are far."""
        found: Array = self.closeness[i] * np.tensordot(self.weights[i], values[self.rows[i]], axes=1)
        return found


def neighbourhoods(asked: Sequence[Operator], known: Sequence[Operator]) -> Neighbourhood:
    """Find the nearest operators of the same type, in doublings of their sizes."""
    k = min(N_NEIGHBOURS, len(known))
    rows, weights = np.zeros((len(asked), k), dtype=np.intp), np.zeros((len(asked), k))
    nearest = np.full(len(asked), np.inf)
    for type_ in sorted({operator.type for operator in asked}):
        at = [i for i, operator in enumerate(asked) if operator.type == type_]
        there = np.array([i for i, operator in enumerate(known) if operator.type == type_], dtype=np.intp)
        if not there.size:
            continue
        distance = _distances([asked[i] for i in at], [known[i] for i in there])
        order, near = _nearest(distance, k)
        share = 1.0 / np.maximum(near, _CLOSEST) ** _POWER
        rows[at, : order.shape[1]] = there[order]
        weights[at, : order.shape[1]] = share / share.sum(axis=1, keepdims=True)
        nearest[at] = near[:, 0]
    closeness = 1.0 / (1.0 + (nearest / _REACH) ** 2)
    return Neighbourhood(rows, weights, nearest, closeness)


def _nearest(distance: Array, k: int) -> tuple[NDArray[np.intp], Array]:
    """Positions and distances of the k nearest, nearest first."""
    if distance.shape[1] <= k:
        some = np.broadcast_to(np.arange(distance.shape[1]), distance.shape)
    else:
        some = np.sort(np.argpartition(distance, k - 1, axis=1)[:, :k], axis=1)
    near = np.take_along_axis(distance, some, axis=1)
    order = np.argsort(near, axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1), np.take_along_axis(near, order, axis=1)


def _distances(asked: Sequence[Operator], known: Sequence[Operator]) -> Array:
    a, b = shape_columns(asked) * _SCALE, shape_columns(known) * _SCALE
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2.0 * a @ b.T
    kinds = np.array([x.kind or "" for x in asked])[:, None] != np.array([y.kind or "" for y in known])[None]
    distance: Array = np.sqrt(np.maximum(squares, 0.0) + _OTHER_KIND**2 * kinds)
    return distance
