"""Boosted trees in arrays: how near operators of any shape come to their roofline, by what was measured of all.

Called by operator_library, with numpy alone; `predictor.predictors.operator_forests` grows them. Trees are plain
numbers, so that they lie in the same file as the library; they stay within what was measured, as a mean does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.layers import ACTIVATION_KINDS
from predictor.operator_tiles import N_TILE_COLUMNS, tile_columns
from predictor.operator_work import OPERATOR_CLASSES, operator_work, roofline_ms, shape_columns
from predictor.operators import Operator
from predictor.roofline.rates import Rates

__all__ = ["FOREST_OF", "Forest", "forest_features"]

Array = NDArray[np.float64]

FOREST_OF = {
    type_: "convolution" if type_.startswith("conv") else "none" if type_ == "permute" else "other"
    for type_ in OPERATOR_CLASSES
}
"""Type of an operator -> the forest that knows it; ``other`` tells types and activations apart by flags.

A permute is often a view, which takes no time: nothing for logarithms, so that no forest knows it."""

_TYPES = tuple(type_ for type_, forest in FOREST_OF.items() if forest == "other")
_LEAF = -1
_DIGITS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Nodes of all trees, of shape (n_nodes,); the answer is `start` + the sum of the leaves reached.

    A row goes to `left` where its `feature` is at most `threshold`, else to `right`; leaves have feature -1.
    """

    start: float
    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Array
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: Array

    def predict(self, rows: Array) -> Array:
        """Answers of shape (n_rows,) for features of shape (n_rows, n_features)."""
        flat, n_features = np.ascontiguousarray(rows).ravel(), rows.shape[1]
        children = np.concatenate([self.right, self.left])  # the left one lies n_nodes further
        n_nodes = self.feature.size
        at = np.tile(self.roots, len(rows)).astype(np.intp)
        going = np.flatnonzero(self.feature.take(at) != _LEAF)
        cell = np.repeat(np.arange(len(rows)) * n_features, self.roots.size)[going]
        node = at[going]
        while going.size:
            goes_left = flat.take(cell + self.feature.take(node)) <= self.threshold.take(node)
            node = children.take(node + n_nodes * goes_left).astype(np.intp)
            at[going] = node
            inner = np.flatnonzero(self.feature.take(node) != _LEAF)
            going, cell, node = going.take(inner), cell.take(inner), node.take(inner)
        total: Array = self.start + self.value.take(at).reshape(len(rows), -1).sum(axis=1)
        return total

    @classmethod
    def mean(cls, forests: Sequence[Forest]) -> Forest:
        """One forest that answers the mean of several."""
        n = len(forests)
        sizes = [forest.feature.size for forest in forests]
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        moved = {
            name: np.concatenate(
                [getattr(forest, name) + offset for forest, offset in zip(forests, offsets, strict=True)]
            ).astype(np.int32)
            for name in ("roots", "left", "right")
        }
        return cls(
            float(np.mean([forest.start for forest in forests])),
            moved["roots"],
            np.concatenate([forest.feature for forest in forests]),
            np.concatenate([forest.threshold for forest in forests]),
            moved["left"],
            moved["right"],
            np.concatenate([forest.value for forest in forests]) / n,
        )

    def as_json(self) -> dict[str, Any]:
        """Plain numbers, rounded."""
        return {
            "start": self.start,
            "roots": self.roots.tolist(),
            "feature": self.feature.tolist(),
            "threshold": self.threshold.tolist(),  # in full: rows lie on thresholds, or next to them
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            "value": [round(each, _DIGITS) for each in self.value.tolist()],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Forest:
        """Back from plain numbers; ValueError where they are no forest of these features."""
        whole = {
            name: np.array(found[name], dtype=np.int32) for name in ("roots", "feature", "left", "right")
        }
        split, value = (np.array(found[name], dtype=float) for name in ("threshold", "value"))
        n = value.size
        children = np.concatenate([whole["left"], whole["right"]])[np.tile(whole["feature"] != _LEAF, 2)]
        inner = np.flatnonzero(whole["feature"] != _LEAF)
        if (
            any(whole[name].size != n for name in ("feature", "left", "right"))
            or split.size != n
            or not np.isfinite(np.concatenate([split, value, [float(found["start"])]])).all()
            or not ((whole["feature"] >= _LEAF) & (whole["feature"] < N_FEATURES)).all()
            or not ((whole["roots"] >= 0) & (whole["roots"] < n)).all()
            or (children.size and not (children < n).all())
            or not (np.minimum(whole["left"], whole["right"])[inner] > inner).all()  # so that every way ends
        ):
            raise ValueError("the trees are damaged")
        return cls(
            float(found["start"]),
            whole["roots"],
            whole["feature"],
            split,
            whole["left"],
            whole["right"],
            value,
        )


def forest_features(
    operators: Sequence[Operator], batch_sizes: Array, rates: Rates, sm_count: int | None = None
) -> Array:
    """Features of every operator at every batch size, of shape (n_operators, n_batches, N_FEATURES)."""
    n, m = len(operators), batch_sizes.size
    batch = np.log2(batch_sizes)
    shapes = shape_columns(operators)
    flops, elements, fixed = np.array([operator_work(each)[:3] for each in operators]).reshape(-1, 3).T
    computed = np.log2(flops[:, None] * batch_sizes + 1.0)
    moved = np.log2(elements[:, None] * batch_sizes + fixed[:, None] + 1.0)
    least = np.log2(roofline_ms(operators, batch_sizes, rates))
    flags = np.array(
        [
            [each.type == type_ for type_ in _TYPES] + [each.kind == kind for kind in ACTIVATION_KINDS]
            for each in operators
        ],
        dtype=float,
    )
    by_batch = np.stack([np.broadcast_to(batch, (n, m)), computed, moved, computed - moved, least], axis=2)
    by_shape = np.concatenate([shapes, flags], axis=1)
    tiles = tile_columns(operators, batch_sizes, sm_count)
    tiles[[i for i, each in enumerate(operators) if FOREST_OF[each.type] != "convolution"]] = 0.0
    joined: Array = np.concatenate([np.repeat(by_shape[:, None], m, axis=1), by_batch, tiles], axis=2)
    return joined


N_FEATURES = (
    len(shape_columns([Operator("loss", in_channels=1)])[0])
    + len(_TYPES)
    + len(ACTIVATION_KINDS)
    + 5
    + N_TILE_COLUMNS
)
