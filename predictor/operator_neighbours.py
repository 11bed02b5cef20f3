"""Efficiency of operators that nobody measured, from measured ones of like shape.

Called by operator_library; calls operator_work for what shapes look like. numpy alone: a library is asked while a
user waits. A weighted mean of neighbours stays within what was measured, unlike a polynomial, which does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from predictor.operator_work import SHAPE_COLUMNS, shape_columns
from predictor.operators import Operator

__all__ = ["FAR", "N_NEIGHBOURS", "KnownShapes", "Neighbourhood", "neighbourhoods"]

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

    def shrunk(self, rows: Sequence[int], values: Array) -> Array:
        """Mean of the library's `values` for some of the operators asked about, drawn to 0 where neighbours are far."""
        near = np.einsum("ak,ak...->a...", self.weights[rows], values[self.rows[rows]])
        found: Array = self.closeness[rows].reshape(-1, *[1] * (near.ndim - 1)) * near
        return found


@dataclass(frozen=True, slots=True, eq=False)
class KnownShapes:
    """What distances to a library's operators are measured from: their shapes, computed once a type is asked about."""

    operators: Sequence[Operator]
    positions: dict[str, NDArray[np.intp]]
    _computed: dict[str, _Shapes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, operators: Sequence[Operator]) -> KnownShapes:
        """Shapes of these operators."""
        return cls(operators, _by_type(operators))

    def of_rows(self, kept: NDArray[np.bool_]) -> KnownShapes:
        """Those of some operators alone."""
        moved = np.cumsum(kept) - 1
        found = KnownShapes([each for each, keep in zip(self.operators, kept, strict=True) if keep], {})
        for type_, rows in self.positions.items():
            some = kept[rows]
            if some.any():
                found.positions[type_] = moved[rows[some]]
                if type_ in self._computed:
                    found._computed[type_] = self._computed[type_].of_rows(some)
        return found

    def of_type(self, type_: str) -> _Shapes:
        """Shapes of all operators of one type."""
        if type_ not in self._computed:
            self._computed[type_] = _Shapes.of([self.operators[int(i)] for i in self.positions[type_]])
        return self._computed[type_]


@dataclass(frozen=True, slots=True, eq=False)
class _Shapes:
    columns: Array
    squares: Array
    kinds: NDArray[np.str_]

    @classmethod
    def of(cls, operators: Sequence[Operator]) -> _Shapes:
        columns = shape_columns(operators) * _SCALE
        kinds = np.array([each.kind or "" for each in operators], dtype=np.str_)
        return cls(columns, (columns**2).sum(axis=1), kinds)

    def of_rows(self, kept: NDArray[np.bool_]) -> _Shapes:
        return _Shapes(self.columns[kept], self.squares[kept], self.kinds[kept])


def neighbourhoods(asked: Sequence[Operator], known: KnownShapes) -> Neighbourhood:
    """Find the nearest operators of the same type, in doublings of their sizes."""
    k = min(N_NEIGHBOURS, len(known.operators))
    rows, weights = np.zeros((len(asked), k), dtype=np.intp), np.zeros((len(asked), k))
    nearest = np.full(len(asked), np.inf)
    for type_, at in _by_type(asked).items():
        if type_ not in known.positions:
            continue
        here, there = _Shapes.of([asked[int(i)] for i in at]), known.of_type(type_)
        order, near = _nearest(_distances(here, there), k)
        share = 1.0 / np.maximum(near, _CLOSEST) ** _POWER
        rows[at, : order.shape[1]] = known.positions[type_][order]
        weights[at, : order.shape[1]] = share / share.sum(axis=1, keepdims=True)
        nearest[at] = near[:, 0]
    closeness = 1.0 / (1.0 + (nearest / _REACH) ** 2)
    return Neighbourhood(rows, weights, nearest, closeness)


def _by_type(operators: Sequence[Operator]) -> dict[str, NDArray[np.intp]]:
    found: dict[str, list[int]] = {}
    for i, operator in enumerate(operators):
        found.setdefault(operator.type, []).append(i)
    return {type_: np.array(rows, dtype=np.intp) for type_, rows in found.items()}


def _nearest(distance: Array, k: int) -> tuple[NDArray[np.intp], Array]:
    """Positions and distances of the k nearest, nearest first."""
    if distance.shape[1] <= k:
        some = np.broadcast_to(np.arange(distance.shape[1]), distance.shape)
    else:
        some = np.sort(np.argpartition(distance, k - 1, axis=1)[:, :k], axis=1)
    near = np.take_along_axis(distance, some, axis=1)
    order = np.argsort(near, axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1), np.take_along_axis(near, order, axis=1)


def _distances(asked: _Shapes, known: _Shapes) -> Array:
    squares = asked.squares[:, None] + known.squares[None] - 2.0 * asked.columns @ known.columns.T
    distance = np.maximum(squares, 0.0)
    if known.kinds.any() or asked.kinds.any():
        distance += _OTHER_KIND**2 * (asked.kinds[:, None] != known.kinds[None])
    return np.sqrt(distance)
