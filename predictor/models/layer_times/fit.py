"""Fits what turns times of single operators into iteration times: bases, trees, weights, host times.

Operators measured on another card, or in a mode that runs nearly the same kernels, say more about an operator that was
not measured here than its shape does: a base carries them over, the library's own measurements correct it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.cnns.layer_table import LayerTable
from predictor.errors import BackendUnavailableError
from predictor.models.forecast import COVERAGE
from predictor.models.intervals import interval_factor
from predictor.models.layer_times.files import most_similar
from predictor.models.layer_times.interpolation import (
    FOREST_OF,
    FP32_PRODUCT,
    WIDE_WINDOWS,
    Forest,
    families_of,
    forest_features,
    forests_of,
)
from predictor.models.layer_times.law import SIZES, OperatorTotals, SummingLaw, layer_sums
from predictor.models.layer_times.library import CarriedOver, OperatorLibrary
from predictor.models.layer_times.times import DeviceMode, cards_of_the_chip
from predictor.operator_types import RECURRENT_TYPES, RESIZING_TYPES, VOLUME_TYPES
from predictor.operators.columns import OperatorColumns
from predictor.operators.operators import Operator, counted_operators
from predictor.operators.work import device_rates, device_sm_count, roofline_ms
from predictor.stopping import check_stop

_Z = NormalDist().inv_cdf(0.5 + COVERAGE / 2)
_ERROR, _ERROR_UNMEASURED = 0.02, 0.10  # relative error of a sum of measured, and of interpolated operators
_HUBER, _ROUNDS = 2.0, 8
_FEW = 0.2  # a CNN counts as measured if less than this share of its time is interpolated
_LEAST_SPREAD = 0.005  # GPU times differ by this between machines
_HOST_ERROR = 0.1  # of a host's time: repeats of one command differ by 4 % in the median, by 21 % at most
_HOST_PULL = 0.1  # hosts launch a CNN's operators two or three times as fast as operators alone
_LEAST_HOST_SPREAD = 0.1  # 90 % of repeated runs of one command differ by less than 9 %
_LEAST_CNNS = 3  # needed for intervals by leaving each CNN out in turn
# Prior standard deviations: the common weight has mean 1 and deviation 1, all others mean 0.
_OPERATOR_MS, _ITERATION_MS = 0.002, 0.1
_OF_SIZE = 2.0
_LEAST_WEIGHT, _LEAST_OF_SIZE = 0.4, -0.3  # their sum is above 0: no operator's time becomes negative
_N_SIZES = len(SIZES) - 1
_N_COLUMNS = 1 + _N_SIZES + 2


@dataclass(frozen=True, slots=True, eq=False)
class LayerRows:
    """Whole CNNs measured in one mode: layer table, batch size, GPU time and host time of each row (NaN: unknown).

    `fp32_products` (n_rows,) is as of `Mode`.
    """

    tables: list[LayerTable]
    batch_sizes: Array
    gpu_ms: Array
    host_ms: Array
    fp32_products: NDArray[np.bool_]

    def finite(self) -> LayerRows:
        """The rows whose GPU time is known."""
        at = np.flatnonzero(np.isfinite(self.gpu_ms))
        batch_sizes, gpu_ms, host_ms = (
            values[at] for values in (self.batch_sizes, self.gpu_ms, self.host_ms)
        )
        return LayerRows([self.tables[i] for i in at], batch_sizes, gpu_ms, host_ms, self.fp32_products[at])

    def groups(self) -> list[tuple[LayerTable, bool, NDArray[np.intp]]]:
        """Rows of each CNN and image size, those with matrix products in fp32 apart."""
        rows_by_cell: dict[tuple[int, bool], list[int]] = {}
        for i, cell in enumerate(zip(map(id, self.tables), self.fp32_products.tolist(), strict=True)):
            rows_by_cell.setdefault(cell, []).append(i)  # rows of a CNN share its table: comparing is slow
        return [(self.tables[rows[0]], cell[1], np.array(rows)) for cell, rows in rows_by_cell.items()]


@dataclass(frozen=True, slots=True, eq=False)
class _Design:
    """Class sums of all rows, (n_rows, n_columns), beside the measured times; `cnn` names each row's CNN.

    `host_parts` (n_rows, 2, 3) is `OperatorTotals.host_parts` without and with gradient sums apart;
    `unmeasured` is the share of a row's time that comes from interpolated operators.
    """

    columns: Array
    gpu_ms: Array
    host_parts: Array
    host_ms: Array
    unmeasured: Array
    cnn: NDArray[np.str_]

    def rows(self, chosen: NDArray[np.bool_]) -> _Design:
        return _Design(*(getattr(self, name)[chosen] for name in self.__slots__))

    @classmethod
    def joined(cls, designs: Collection[_Design]) -> _Design:
        return cls(*(np.concatenate([getattr(design, name) for design in designs]) for name in cls.__slots__))


def fit_laws(
    libraries: Mapping[DeviceMode, OperatorLibrary],
    rows: Mapping[DeviceMode, LayerRows],
    earlier: Mapping[DeviceMode, SummingLaw],
    pull: float,
    *,
    calibrate: bool,
) -> dict[DeviceMode, SummingLaw]:
    """Fit the law of each mode; its prior is the law in `earlier`, else the one fitted on all modes together.

    A mode without targets gets the law in `earlier`, else that of its library's base or of the most similar mode here.
    With `calibrate`, half widths come from leaving each CNN out in turn.
    """
    designs = {mode: _design(libraries[mode], rows[mode]) for mode in libraries if mode in rows}
    designs = {mode: design for mode, design in designs.items() if design.gpu_ms.size}
    together = _fitted(_Design.joined(designs.values()), SummingLaw(), pull) if designs else SummingLaw()
    laws: dict[DeviceMode, SummingLaw] = {}
    for mode, design in designs.items():
        prior = earlier.get(mode, together)
        law = _fitted(design, prior, pull)
        laws[mode] = _calibrated(law, design, libraries[mode], rows[mode], prior, pull) if calibrate else law
    fitted = dict(laws)
    for mode in libraries.keys() - designs.keys():
        base = libraries[mode].base
        source = None if base is None else base.source.mode
        lender = source if source in fitted else most_similar(mode, fitted)
        borrowed = fitted[lender].borrowed(str(lender)) if lender else together
        laws[mode] = earlier.get(mode, borrowed)
    return laws


def _design(library: OperatorLibrary, rows: LayerRows) -> _Design:
    n = len(rows.tables)
    columns, host, blind = np.zeros((n, _N_COLUMNS)), np.zeros((n, 2, 3)), np.zeros(n)
    for table, fp32_products, at in rows.groups():
        check_stop()
        sums = _sums(library, table, tuple(rows.batch_sizes[at].tolist()), fp32_products)
        extra = np.tile([[sums.n_operators], [1.0]], at.size)
        columns[at] = np.concatenate([sums.class_ms.sum(axis=0, keepdims=True), sums.size_ms, extra]).T
        host[at] = [sums.host_parts(apart=apart) for apart in (False, True)]
        blind[at] = sum(sums.shares.values())
    names = np.array([table.cnn for table in rows.tables], dtype=np.str_)
    design = _Design(columns, rows.gpu_ms, host, rows.host_ms, blind, names)
    return design.rows(np.isfinite(rows.gpu_ms))


@lru_cache(maxsize=2048)
def _sums(
    library: OperatorLibrary, table: LayerTable, batch_sizes: tuple[float, ...], fp32_products: bool
) -> OperatorTotals:
    """`layer_sums`, cached: leaving CNNs out in turn needs the same sums again and again."""
    return layer_sums(library, table, np.array(batch_sizes), fp32_products)


def _fitted(design: _Design, prior: SummingLaw, pull: float) -> SummingLaw:
    if not design.gpu_ms.size:
        return prior
    sizes = np.array([1.0, *[_OF_SIZE] * _N_SIZES, _OPERATOR_MS, _ITERATION_MS])
    expected = np.array([prior.weight, *prior.size_weights, prior.operator_ms, prior.iteration_ms])
    weight, *by_size, operator_ms, iteration_ms = _robust(design, np.sqrt(pull) / sizes, expected).tolist()
    trained_on = f"{design.gpu_ms.size} iterations of {len(set(design.cnn))} CNNs"
    law = replace(_with_host(prior, design), weight=weight, size_weights=tuple(by_size))
    return replace(law, operator_ms=operator_ms, iteration_ms=iteration_ms, trained_on=trained_on)


def _robust(design: _Design, held: Array, expected: Array) -> Array:
    """Weights of least relative error, bounded from below; outlying rows are down-weighted.

    Iteratively reweighted least squares with Huber's weights: a switch of algorithm at one batch size barely changes
    the fit at the others.
    """
    from scipy.optimize import nnls

    error = np.hypot(_ERROR, _ERROR_UNMEASURED * np.sqrt(design.unmeasured))
    relative, trust = design.columns / design.gpu_ms[:, None], _ERROR / error
    pulled, towards = np.diag(held), held * expected
    least = np.array([_LEAST_WEIGHT] + [_LEAST_OF_SIZE] * _N_SIZES + [0.0, 0.0])
    solved = expected
    for _ in range(_ROUNDS):
        off = np.abs(np.log(np.maximum(relative @ solved, 1e-9)))
        weight = trust * np.sqrt(np.minimum(1.0, _HUBER * error / np.maximum(off, 1e-12)))
        rows = np.vstack([weight[:, None] * relative, pulled])
        above, _ = nnls(rows, np.concatenate([weight, towards]) - rows @ least, maxiter=1000)
        solved = least + above
    return np.asarray(solved, dtype=float)


def _with_host(prior: SummingLaw, design: _Design) -> SummingLaw:
    """Fit the weight of the operators' host times, the host time per operator and per iteration.

    Cross-validation over CNNs decides whether gradient sums are weighted like other operators.
    """
    timed = design.rows(np.isfinite(design.host_ms))
    if not timed.host_ms.size:
        return prior
    names = sorted(set(timed.cnn))
    missed = dict.fromkeys((False, True), 0.0)
    for name in names if len(names) >= _LEAST_CNNS else ():
        check_stop()
        out = timed.cnn == name
        for apart in missed:
            weights = _host_weights(timed.rows(~out), apart=apart)
            columns, unweighted = _host_columns(timed.rows(out), apart=apart)
            host_ms = columns @ weights + unweighted
            missed[apart] += float(np.mean(np.abs(host_ms / timed.host_ms[out] - 1.0)))
    chosen = missed[True] < missed[False]
    weight, operator_ms, iteration_ms = _host_weights(timed, apart=chosen).tolist()
    law = replace(prior, host_weight=weight, host_operator_ms=operator_ms, host_iteration_ms=iteration_ms)
    return replace(law, gradients_apart=chosen)


def _host_columns(design: _Design, *, apart: bool) -> tuple[Array, Array]:
    """Columns of the three host weights, and the host time that is added unweighted."""
    own, added, n = design.host_parts[:, int(apart)].T
    return np.column_stack([np.nan_to_num(own), n, np.ones(len(n))]), added


def _host_weights(design: _Design, *, apart: bool) -> Array:
    """Non-negative host weights of least relative error; outliers (a full launch queue) are down-weighted."""
    from scipy.optimize import nnls

    columns, added = _host_columns(design, apart=apart)
    measured = np.isfinite(design.host_parts[:, 0, 0]).all()
    sizes, expected = np.array([1.0, 0.02, 1.0]), np.array([1.0 if measured else 0.0, 0.0, 0.0])
    held = np.diag(np.sqrt(_HOST_PULL) / sizes)
    relative, target = columns / design.host_ms[:, None], 1.0 - added / design.host_ms
    weight = np.ones(len(target))
    for _ in range(_ROUNDS):
        rows = np.vstack([weight[:, None] * relative, held])
        solved, _ = nnls(rows, np.concatenate([weight * target, held @ expected]))
        off = np.abs(relative @ solved - target)
        weight = np.sqrt(np.minimum(1.0, _HOST_ERROR / np.maximum(off, 1e-12)))
    return np.asarray(solved, dtype=float)


def _calibrated(
    law: SummingLaw,
    design: _Design,
    library: OperatorLibrary,
    rows: LayerRows,
    prior: SummingLaw,
    pull: float,
) -> SummingLaw:
    """Half widths by leaving each CNN out in turn, with and without the operators that occur only in it."""
    names = sorted(set(design.cnn))
    if len(names) < _LEAST_CNNS:
        return law
    cnns_of: dict[Operator, set[str]] = {}
    for table, fp32_products, _ in rows.groups():
        for operator in counted_operators(table, fp32_products)[0]:
            cnns_of.setdefault(operator, set()).add(table.cnn)
    missed: list[Array] = []
    jumps: dict[bool, list[float]] = {True: [], False: []}
    hosts: list[float] = []
    finite_rows = rows.finite()
    for name in names:
        check_stop()
        left = _fitted(design.rows(design.cnn != name), prior, pull)
        own = {operator for operator, cnns in cnns_of.items() if cnns == {name}}
        lesser = library if own.isdisjoint(library.operators) else library.without(list(own))
        for table, fp32_products, at in finite_rows.groups():
            if table.cnn != name:
                continue
            truth = np.log(finite_rows.gpu_ms[at])
            for source in (library, lesser):
                sums = _sums(source, table, tuple(finite_rows.batch_sizes[at].tolist()), fp32_products)
                error = truth - np.log(left.gpu_ms(sums))
                missed.append(np.column_stack([np.abs(error), sums.unmeasured(), sums.strange()]))
                jumps[bool(sums.unmeasured().mean() < _FEW)] += _jumps(finite_rows.batch_sizes[at], error)
                measured_ms, host_ms = finite_rows.host_ms[at], left.host_ms(sums)
                if host_ms > 0:
                    hosts += np.abs(np.log(measured_ms[np.isfinite(measured_ms)] / host_ms)).tolist()
    spread, unmeasured, strange = _half_widths(np.concatenate(missed))
    # Measured CNNs first: errors of interpolated operators are either equal at all batch sizes or erratic.
    chosen = jumps[True] or jumps[False]
    rough = interval_factor(chosen, 1.0, COVERAGE) / _Z if chosen else law.roughness
    near = spread + unmeasured
    host = max(interval_factor(hosts, 1.0, COVERAGE), _LEAST_HOST_SPREAD) if hosts else law.host_spread
    law = replace(law, spread=spread, spread_near=near, spread_strange=strange)
    return replace(law, roughness=rough, host_spread=host)


def _jumps(batch_sizes: Array, error: Array) -> list[float]:
    """Distance of each batch size's error from the line between its two neighbours' errors."""
    sizes = np.log(np.unique(batch_sizes))
    mean = np.array([error[batch_sizes == size].mean() for size in np.unique(batch_sizes)])
    if sizes.size <= 2:
        return []
    share = (sizes[1:-1] - sizes[:-2]) / (sizes[2:] - sizes[:-2])
    between = (1.0 - share) * mean[:-2] + share * mean[2:]
    return list(np.abs(mean[1:-1] - between) / np.sqrt(1.0 + share**2 + (1.0 - share) ** 2))


def _half_widths(missed: Array) -> tuple[float, float, float]:
    """Half width with all operators measured, and its increase by the interpolated and extrapolated shares.

    `missed` has the columns error, interpolated share, extrapolated share. Quantile regression, scaled by the
    conformal quantile of error / width.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack

    error, unmeasured, strange = missed.T
    columns = np.column_stack([np.ones(len(error)), np.sqrt(unmeasured), strange])
    n, k = columns.shape
    cost = np.concatenate([np.zeros(k), np.full(n, COVERAGE), np.full(n, 1.0 - COVERAGE)])
    identity = eye_array(n)  # width + missed above - missed below = error
    balance = hstack([csr_array(columns), identity, -identity]).tocsr()
    solved = linprog(cost, A_eq=balance, b_eq=error, bounds=(0.0, None)).x[:k]
    solved[0] = max(solved[0], _LEAST_SPREAD)
    scale = interval_factor(error / (columns @ solved), 1.0, COVERAGE)
    spread, near, far = (float(value) for value in solved * scale)
    return max(spread, _LEAST_SPREAD), near, far


_LEAST_OPERATORS = 60  # needed to grow trees; fewer are interpolated by neighbours alone
_N_GROUPS = 3
_N_TREES, _RATE, _LEAVES, _LEAST_ROWS, _FEATURES = 60, 0.2, 64, 3, 0.3
_CACHED = 48  # libraries; folds that leave a CNN out mostly share their operators

_cache: dict[bytes, OperatorLibrary] = {}


def with_forests(library: OperatorLibrary, seed: int = 0) -> OperatorLibrary:
    """The library with a forest for convolutions and one for all other operators, each if it has 60 or more; no base.

    `seed`: random seed of each tree's features.
    """
    names = ";".join(f"{operator.name}{operator.kind}" for operator in library.operators)
    words = f"{library.mode}|{library.host}|{seed}|{names}".encode()
    numbers = (values.tobytes() for values in (library.batch_sizes, library.log_ms, library.host_ms))
    key = blake2b(b"|".join([words, *numbers])).digest()
    grown = _cache.pop(key, None) or _with_forests(replace(library, base=None), seed)
    _cache[key] = grown  # the last one, whether it was there or not
    for old in [*_cache][:-_CACHED]:
        _cache.pop(old, None)
    return grown


def _with_forests(library: OperatorLibrary, seed: int) -> OperatorLibrary:
    rates = device_rates(library.mode.gpu, library.mode.precision)
    sm_count = device_sm_count(library.mode.gpu)
    ratio = library.log_ms - np.log(roofline_ms(library.operators, library.batch_sizes, rates))
    features = forest_features(library.operators, library.batch_sizes, rates, sm_count)
    seldom = ~np.isin(library.batch_sizes, library.usual_sizes)
    group = _groups(library.operators)
    expected = np.full(ratio.shape, np.nan)
    forests: dict[str, Forest] = {}
    for name in sorted({*FOREST_OF.values(), FP32_PRODUCT} - {"none"}):
        rows = np.array(forests_of(OperatorColumns.of(library.operators))) == name
        if rows.sum() >= _LEAST_OPERATORS:
            learned = np.where(seldom, np.nan, ratio[rows])
            forests[name], expected[rows] = _cross_fitted(features[rows], learned, group[rows], seed)
    return replace(library, forests=forests, expected=np.where(np.isfinite(ratio), expected, np.nan))


def _groups(operators: Sequence[Operator]) -> NDArray[np.intp]:
    """Cross-fitting group of each operator: a hash of its name, independent of the rest of the library."""
    return np.array([crc32(operator.name.encode()) % _N_GROUPS for operator in operators], dtype=np.intp)


def _cross_fitted(features: Array, ratio: Array, group: NDArray[np.intp], seed: int) -> tuple[Forest, Array]:
    """Mean of forests that each leave a group out, and out-of-fold predictions of each operator."""
    expected = np.full(ratio.shape, np.nan)
    forests: list[Forest] = []
    for number in range(_N_GROUPS):
        out = group == number
        forests.append(_grown(features[~out], ratio[~out], seed + number))
        cells = out[:, None] & np.isfinite(ratio)
        expected[cells] = forests[-1].predict(features[cells])
    return Forest.mean(forests), expected


def _grown(features: Array, ratio: Array, seed: int) -> Forest:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    check_stop()
    finite = np.isfinite(ratio)
    varying = np.flatnonzero(np.ptp(features[finite], axis=0) > 0)
    rows, answers = features[finite][:, varying], ratio[finite]
    empty = HistGradientBoostingRegressor(
        max_iter=_N_TREES,
        learning_rate=_RATE,
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=_LEAST_ROWS,
        max_features=_FEATURES,
        early_stopping=False,
        random_state=seed,
    )
    with threadpool_limits(limits=1):  # small fits are slower on several threads
        boosted = empty.fit(rows, answers)
    trees = _as_arrays(_nodes_of(boosted))
    start = float(boosted.predict(rows[:1])[0] - trees.predict(rows[:1])[0])
    feature = np.where(trees.feature < 0, -1, varying[trees.feature]).astype(np.int32)
    return replace(trees, start=start, feature=feature)


_NODES = ("is_leaf", "left", "right", "feature_idx", "num_threshold", "value")


def _nodes_of(boosted: Any) -> list[NDArray[np.void]]:
    """Nodes of each tree of a HistGradientBoostingRegressor.

    scikit-learn has no public way to them, and its public forests give other numbers: this is the only place that reads
    its private layout. BackendUnavailableError if this scikit-learn keeps them another way.
    """
    rounds = getattr(boosted, "_predictors", None) or [[None]]
    trees: list[Any] = [getattr(predictors[0], "nodes", None) for predictors in rounds]
    if any(set(_NODES) - set(getattr(getattr(nodes, "dtype", None), "names", None) or ()) for nodes in trees):
        from sklearn import __version__

        raise BackendUnavailableError(
            f"scikit-learn {__version__} keeps the trees of HistGradientBoostingRegressor otherwise than 1.6 to 1.9, "
            "so operators cannot be fitted. Install one of these."
        )
    return trees


def _as_arrays(trees: list[NDArray[np.void]]) -> Forest:
    """Scikit-learn's nodes, tree after tree; a test compares the predictions with its own."""
    sizes = [tree.size for tree in trees]
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    nodes, shift = np.concatenate(trees), np.repeat(offsets, sizes)
    leaf = nodes["is_leaf"].astype(bool)
    own = np.arange(leaf.size)
    left, right = (np.where(leaf, own, nodes[side] + shift).astype(np.int32) for side in ("left", "right"))
    feature = np.where(leaf, -1, nodes["feature_idx"]).astype(np.int32)
    threshold = np.where(leaf, 0.0, nodes["num_threshold"])
    return Forest(0.0, offsets, feature, threshold, left, right, np.where(leaf, nodes["value"], 0.0))


_HALF_PRECISIONS = ("amp_bf16", "amp_fp16")  # the same kernels but for the type of their numbers
_SAMPLE = 1000
"""Operators above which a library knows its shapes better than kernels of another precision or memory format do."""

_CARRIED = (
    *VOLUME_TYPES, *RECURRENT_TYPES, *(f"{name} on chip" for name in RECURRENT_TYPES), *RESIZING_TYPES,
    "instance_norm", "pad", "softmax", "softmax of maps", WIDE_WINDOWS,
)  # fmt: skip
"""Families without trees, measured on one card."""
_FEW_HELD_OUT = 12  # operators below which no held-out error can be estimated


def with_bases(
    libraries: Mapping[DeviceMode, OperatorLibrary],
    earlier: Callable[[DeviceMode], OperatorLibrary | None],
    grow: Callable[[OperatorLibrary], OperatorLibrary],
) -> dict[DeviceMode, OperatorLibrary]:
    """Each library on its base, or with trees over the roofline where these predict its held-out operators better.

    A richer library of this mode on a card of the chip is the base; else a like mode's if it does better than trees. A
    base has more measurements than the library, so that no two are each other's base. `earlier`: operators measured
    earlier on a GPU in a mode; None where there are none. `grow`: grows the trees of a library that has no base.
    """
    based: dict[DeviceMode, OperatorLibrary] = {}
    for mode in sorted(libraries, key=lambda candidate: (-libraries[candidate].n_measured, candidate)):
        library = replace(libraries[mode], base=None, forests={}, expected=None)
        same = [earlier(mode), *(based.get(card) or earlier(card) for card in cards_of_the_chip(mode))]
        like = [based.get(like_mode) or earlier(like_mode) for like_mode in _like_modes(mode, len(library))]
        on_cards, on_like_modes = (
            [
                library.on_base(CarriedOver(source, mode))
                for source in sources
                if source is not None and source.n_measured > library.n_measured
            ]
            for sources in (same, like)
        )
        if mode.autotune and on_like_modes:
            based[mode] = on_like_modes[0]
        elif on_cards:
            based[mode] = max(on_cards, key=_likeness)
        elif on_like_modes:
            based[mode] = min([grow(library), *on_like_modes], key=held_out_error)
        else:
            based[mode] = grow(library)
    return based


def with_volumes(libraries: Mapping[DeviceMode, OperatorLibrary]) -> dict[DeviceMode, OperatorLibrary]:
    """Each library with what another card of its chip measured of `_CARRIED` types, carried over.

    No trees predict these, and few were measured on each card; of other types each card has its own.
    """
    completed = dict(libraries)
    for mode in libraries:
        for card in cards_of_the_chip(mode):
            more = _volumes(libraries[card], completed[mode]) if card in libraries else None
            completed[mode] = completed[mode].with_carried(more) if more is not None else completed[mode]
    return completed


def _volumes(source: OperatorLibrary, lacking: OperatorLibrary) -> OperatorLibrary | None:
    columns, own = OperatorColumns.of(source.operators), OperatorColumns.of(lacking.operators)
    is_new = own.places_of(columns) < 0
    rows = [i for i, family in enumerate(families_of(columns)) if family in _CARRIED and is_new[i]]
    if not rows:
        return None
    operators = tuple(source.operators[i] for i in rows)
    ms = CarriedOver(source, lacking.mode).times(operators, source.batch_sizes).gpu_ms
    log_ms = np.where(np.isfinite(source.log_ms[rows]), np.log(ms), np.nan)
    unknown = np.full(len(rows), np.nan)  # the host was that of another machine
    return OperatorLibrary(lacking.mode, operators, source.batch_sizes, log_ms, unknown)


def _likeness(library: OperatorLibrary) -> tuple[bool, int]:
    """Whether a library's base was measured on the same card, then the number of its times."""
    source = library.base.source if library.base is not None else library
    return source.mode.gpu == library.mode.gpu, source.n_measured


def held_out_error(library: OperatorLibrary) -> float:
    """Mean absolute error of ln time of operators left out by thirds; 0 for few operators with a base.

    The base still knows them. Operators weigh by the square root of their time: large ones decide a CNN's time.
    """
    if len(library) < _FEW_HELD_OUT:
        return 0.0 if library.base is not None else np.inf
    group = _groups(library.operators)
    errors, weights = [], []
    for number in range(_N_GROUPS):
        rows = np.flatnonzero(group == number)
        left_out = [library.operators[int(i)] for i in rows]
        lesser = replace(library.without(left_out), base=library.base)
        if not rows.size or not len(lesser):
            continue
        truth = library.log_ms[rows]
        predicted = np.log(lesser.times(left_out, library.batch_sizes).gpu_ms)
        at = np.isfinite(truth)
        errors.append(np.abs(predicted - truth)[at])
        weights.append(np.exp(truth[at] / 2.0))
    return float(np.average(np.concatenate(errors), weights=np.concatenate(weights)))


def _like_modes(mode: DeviceMode, n_operators: int) -> Iterator[DeviceMode]:
    """Modes of the same card whose operators may be a base; for an autotuned mode, those without autotuning."""
    if mode.autotune:
        yield mode._replace(autotune=False)
        return
    if mode.precision in _HALF_PRECISIONS:
        yield from (mode._replace(precision=half) for half in _HALF_PRECISIONS if half != mode.precision)
    if n_operators > _SAMPLE:
        return
    if mode.memory_format != "nchw":
        yield mode._replace(memory_format="nchw")
    if mode.precision != "tf32":
        yield mode._replace(precision="tf32")
    if mode.memory_format != "nchw" and mode.precision != "tf32":
        yield mode._replace(precision="tf32", memory_format="nchw")
