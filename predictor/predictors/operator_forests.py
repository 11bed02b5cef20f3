"""Grows the trees of an operator library, and says of each measured operator what they expect without having seen it.

Called by the `layer-times` estimator and fitting; calls operator_library and scikit-learn. What a forest expects of an
operator comes from trees grown without its group, so that neighbours' errors, and intervals, are honest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from predictor.operator_library import OperatorLibrary
from predictor.operator_trees import FOREST_OF, Forest, forest_features
from predictor.operator_work import device_rates, roofline_ms
from predictor.operators import Operator

__all__ = ["with_forests"]

Array = NDArray[np.float64]

_LEAST_OPERATORS = 60  # fewer are asked as neighbours alone
_N_GROUPS = 3
_N_TREES, _RATE, _LEAVES, _LEAST_ROWS = 300, 0.08, 64, 3


def with_forests(
    library: OperatorLibrary, owners: Mapping[Operator, str] | None = None, seed: int = 0
) -> OperatorLibrary:
    """The library with trees, one forest of convolutions and one of all else, where it has enough of them.

    Parameters
    ----------
    library : OperatorLibrary
    owners : mapping of Operator to str, optional
        Operators of one owner (the one CNN that has them) are left out together; others each by itself.
    seed : int
    """
    rates = device_rates(library.mode.gpu, library.mode.precision)
    ratio = library.log_ms - np.log(roofline_ms(library.operators, library.batch_sizes, rates))
    features = forest_features(library.operators, library.batch_sizes, rates)
    group = _groups(library.operators, owners or {}, seed)
    expected = np.full(ratio.shape, np.nan)
    forests: dict[str, Forest] = {}
    for name in sorted(set(FOREST_OF.values()) - {"none"}):
        rows = np.array([FOREST_OF[operator.type] == name for operator in library.operators], dtype=bool)
        if rows.sum() < _LEAST_OPERATORS:
            continue
        forests[name] = _grown(features[rows], ratio[rows], seed)
        for number in range(_N_GROUPS):
            out = rows & (group == number)
            if out.any():
                forest = _grown(features[rows & ~out], ratio[rows & ~out], seed)
                flat = forest.predict(features[out].reshape(-1, features.shape[2]))
                expected[out] = flat.reshape(ratio[out].shape)
    return replace(library, forests=forests, expected=np.where(np.isfinite(ratio), expected, np.nan))


def _groups(operators: tuple[Operator, ...], owners: Mapping[Operator, str], seed: int) -> NDArray[np.intp]:
    names = [owners.get(operator, operator.name) for operator in operators]
    distinct = sorted(set(names))
    dealt = np.random.default_rng(seed).permutation(len(distinct)) % _N_GROUPS
    number = dict(zip(distinct, dealt, strict=True))
    return np.array([number[name] for name in names], dtype=np.intp)


def _grown(features: Array, ratio: Array, seed: int) -> Forest:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    known = np.isfinite(ratio)
    rows, answers = features[known], ratio[known]
    empty = HistGradientBoostingRegressor(
        max_iter=_N_TREES,
        learning_rate=_RATE,
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=_LEAST_ROWS,
        max_features=0.5,
        early_stopping=False,
        random_state=seed,
    )
    with threadpool_limits(limits=1):  # threads that wait for each other take longer than one that works
        boosted = empty.fit(rows, answers)
    trees = _as_arrays([predictors[0].nodes for predictors in boosted._predictors])
    return replace(trees, start=float(boosted.predict(rows[:1])[0] - trees.predict(rows[:1])[0]))


def _as_arrays(trees: list[NDArray[np.void]]) -> Forest:
    """Scikit-learn's nodes, tree after tree; their layout is its own affair, so that a test compares the answers."""
    sizes = [tree.size for tree in trees]
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    nodes, shift = np.concatenate(trees), np.repeat(offsets, sizes)
    leaf = nodes["is_leaf"].astype(bool)
    own = np.arange(leaf.size)
    left, right = (np.where(leaf, own, nodes[side] + shift).astype(np.int32) for side in ("left", "right"))
    feature = np.where(leaf, -1, nodes["feature_idx"]).astype(np.int32)
    threshold = np.where(leaf, 0.0, nodes["num_threshold"])
    return Forest(0.0, offsets, feature, threshold, left, right, np.where(leaf, nodes["value"], 0.0))
