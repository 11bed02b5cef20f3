"""Grows the trees of an operator library, and says of each measured operator what they expect without having seen it.

Called by the `layer-times` estimator and fitting; calls operator_library and scikit-learn. Operators are dealt into
groups; each group is left out by the trees of one forest, whose mean is asked about shapes that nobody measured. So
what is expected of a measured operator, and with it neighbours' errors and intervals, is honest.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from hashlib import blake2b
from threading import Lock
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from predictor.operator_library import OperatorLibrary
from predictor.operator_trees import FOREST_OF, Forest, forest_features
from predictor.operator_work import device_rates, device_sm_count, roofline_ms
from predictor.operators import Operator

__all__ = ["with_forests"]

Array = NDArray[np.float64]

_LEAST_OPERATORS = 60  # fewer are asked as neighbours alone
_N_GROUPS = 3
_N_TREES, _RATE, _LEAVES, _LEAST_ROWS, _FEATURES = 60, 0.2, 64, 3, 0.3
_REMEMBERED = 48  # libraries: CNNs held out in turn mostly leave the same operators

_grown_before: OrderedDict[bytes, OperatorLibrary] = OrderedDict()
_lock = Lock()


def with_forests(library: OperatorLibrary, seed: int = 0) -> OperatorLibrary:
    """The library with trees, one forest of convolutions and one of all else, where it has enough of them.

    Parameters
    ----------
    library : OperatorLibrary
    seed : int
        Draws what each tree sees.
    """
    key = _fingerprint(library, seed)
    with _lock:
        if key in _grown_before:
            _grown_before.move_to_end(key)
            return _grown_before[key]
    grown = _with_forests(library, seed)
    with _lock:
        _grown_before[key] = grown
        while len(_grown_before) > _REMEMBERED:
            _grown_before.popitem(last=False)
    return grown


def _fingerprint(library: OperatorLibrary, seed: int) -> bytes:
    names = ";".join(f"{operator.name}{operator.kind}" for operator in library.operators)
    numbers = (library.batch_sizes, library.log_ms, library.host_ms)
    told = [f"{library.mode}|{library.host}|{seed}|{names}".encode(), *(each.tobytes() for each in numbers)]
    return blake2b(b"|".join(told)).digest()


def _with_forests(library: OperatorLibrary, seed: int) -> OperatorLibrary:
    rates, sm_count = (
        device_rates(library.mode.gpu, library.mode.precision),
        device_sm_count(library.mode.gpu),
    )
    ratio = library.log_ms - np.log(roofline_ms(library.operators, library.batch_sizes, rates))
    features = forest_features(library.operators, library.batch_sizes, rates, sm_count)
    seldom = ~np.isin(library.batch_sizes, library.usual_sizes)
    group = _groups(library.operators)
    expected = np.full(ratio.shape, np.nan)
    forests: dict[str, Forest] = {}
    for name in sorted(set(FOREST_OF.values()) - {"none"}):
        rows = np.array([FOREST_OF[operator.type] == name for operator in library.operators], dtype=bool)
        if rows.sum() >= _LEAST_OPERATORS:
            learned = np.where(seldom, np.nan, ratio[rows])
            forests[name], expected[rows] = _cross_fitted(features[rows], learned, group[rows], seed)
    return replace(library, forests=forests, expected=np.where(np.isfinite(ratio), expected, np.nan))


def _groups(operators: tuple[Operator, ...]) -> NDArray[np.intp]:
    """Group of each operator, by its name: the same whatever else is in the library."""
    return np.array([crc32(each.name.encode()) % _N_GROUPS for each in operators], dtype=np.intp)


def _cross_fitted(features: Array, ratio: Array, group: NDArray[np.intp], seed: int) -> tuple[Forest, Array]:
    """Mean of forests that each leave a group out, and what the one that left it out expects of each operator."""
    expected = np.full(ratio.shape, np.nan)
    forests: list[Forest] = []
    for number in range(_N_GROUPS):
        out = group == number
        forests.append(_grown(features[~out], ratio[~out], seed + number))
        asked = out[:, None] & np.isfinite(ratio)
        expected[asked] = forests[-1].predict(features[asked])
    return Forest.mean(forests), expected


def _grown(features: Array, ratio: Array, seed: int) -> Forest:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    known = np.isfinite(ratio)
    told = np.flatnonzero(np.ptp(features[known], axis=0) > 0)
    rows, answers = features[known][:, told], ratio[known]
    empty = HistGradientBoostingRegressor(
        max_iter=_N_TREES,
        learning_rate=_RATE,
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=_LEAST_ROWS,
        max_features=_FEATURES,
        early_stopping=False,
        random_state=seed,
    )
    with threadpool_limits(limits=1):  # threads that wait for each other take longer than one that works
        boosted = empty.fit(rows, answers)
    trees = _as_arrays([predictors[0].nodes for predictors in boosted._predictors])
    start = float(boosted.predict(rows[:1])[0] - trees.predict(rows[:1])[0])
    return replace(
        trees, start=start, feature=np.where(trees.feature < 0, -1, told[trees.feature]).astype(np.int32)
    )


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
