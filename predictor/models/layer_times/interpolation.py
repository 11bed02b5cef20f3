"""Interpolates operator times measured on one GPU: over batch sizes, among like shapes, and by regression trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array, sums_in_order, weighted_sums
from predictor.catalogue.devices import Rates
from predictor.errors import ArtifactError
from predictor.operator_types import ACTIVATION_KINDS, OPERATOR_TYPES
from predictor.operators.columns import FIELDS, UNKNOWN, OperatorColumns, kept
from predictor.operators.operators import ON_CHIP_STATE, Operator
from predictor.operators.work import SHAPE_COLUMNS, roofline_ms, shape_columns, work_of_each

TILE_COLUMNS = (
    *("twos_in_channels", "twos_out_channels", "twos_out_width", "twos_positions", "out_width"),
    *("kernel_height", "kernel_width", "inner_size", "outer_size", "all_in_channels", "all_out_channels"),
    *("all_positions", "tiles", "last_wave", "all_outputs", "all_inputs", "weight_tiles"),
)
"""Columns of `tile_columns`."""

_TILE_ROWS, _TILE_COLUMNS = 128, 64
_USUAL_SM_COUNT = 128  # for devices whose count is unknown; it only scales waves
_CHANNELS_DIVIDE, _MAPS_DIVIDE = 6, 4  # kernels do not distinguish sizes by higher powers of two


def tile_columns(operators: OperatorColumns, rows: Any, batch_sizes: Array, sm_count: int | None) -> Array:
    """`TILE_COLUMNS` of the operators in `rows` at every batch size, of shape (n_rows, n_batches, len(TILE_COLUMNS)).

    Per image and group: forward (positions x output channels, inner size input channels x kernel), weight gradient
    (input channels x kernel x output channels, inner size positions). A wave is one tile on each multiprocessor.
    """
    sizes, by_shape = _tile_sizes(operators)
    positions, ins, outs, inner, groups = sizes[:, rows, None]
    all_positions = positions * batch_sizes
    across = np.ceil(outs / _TILE_COLUMNS) * groups
    tiles = np.ceil(all_positions / _TILE_ROWS) * across
    waves = tiles / (sm_count or _USUAL_SM_COUNT)
    weight_tiles = np.broadcast_to(np.ceil(inner / _TILE_ROWS) * across, tiles.shape)
    outputs, inputs = all_positions * outs * groups, all_positions * ins * groups
    logs = [np.log2(values) for values in (all_positions, tiles, outputs, inputs, weight_tiles)]
    by_batch = np.stack([*logs[:2], waves / np.ceil(waves), *logs[2:]], axis=2)
    return np.concatenate([np.repeat(by_shape[rows, None], batch_sizes.size, axis=1), by_batch], axis=2)


@kept
def _tile_sizes(operators: OperatorColumns) -> tuple[Array, Array]:
    """What tiles are counted from, (5, n_operators), and the first of `TILE_COLUMNS`, which no batch size changes."""
    numbers = operators.numbers
    groups, channels = numbers("groups"), numbers("in_channels")
    filters = np.where(numbers("out_channels", 0) > 0, numbers("out_channels"), channels)
    ins, outs = (np.maximum(1, of_all // groups) for of_all in (channels, filters))
    width, positions = numbers("out_width"), numbers("out_height") * numbers("out_width")
    kernel = numbers("kernel_height"), numbers("kernel_width")
    inner, outer = (n * kernel[0] * kernel[1] for n in (ins, outs))
    twos = [_twos(n, _CHANNELS_DIVIDE) for n in (ins, outs)]
    twos += [_twos(n, _MAPS_DIVIDE) for n in (width, positions)]
    columns = [*twos, width, *kernel, np.log2(inner), np.log2(outer), ins * groups, outs * groups]
    return np.array([positions, ins, outs, inner, groups], dtype=float), np.stack(columns, axis=1)


def _twos(numbers: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Exponent of two in each number, at most `most`."""
    exponents: NDArray[np.int64] = (numbers[:, None] % 2 ** np.arange(1, most + 1) == 0).sum(axis=1)
    return exponents


def filled(at: Array, values: Array) -> Array:
    """Values (n, n_at) at all of `at`, from measured ones: NaN elsewhere. Constant beyond these; 0 without any."""
    is_measured, place = np.isfinite(values), np.arange(at.size)
    left = np.maximum.accumulate(np.where(is_measured, place, -1), axis=1)
    right = np.minimum.accumulate(np.where(is_measured, place, at.size)[:, ::-1], axis=1)[:, ::-1]
    left, right = np.where(left < 0, right, left) % at.size, np.where(right == at.size, left, right) % at.size
    curves = _joined(values, left, right, _share(at, at, left, right))
    return np.where(is_measured.any(axis=1, keepdims=True), curves, 0.0)


def between(at: Array, new_at: Array, values: Array) -> Array:
    """Piecewise linear, constant beyond the ends; values (n, len(at)), `new_at` (m,) or (n, m) -> (n, m)."""
    left, right = sides(at, new_at)
    return _joined(values, left, right, _share(at, new_at, left, right))


def sides(at: Array, new_at: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions in `at` on both sides of each of `new_at`, which `between` reads; the same on one and beyond all."""
    right = np.minimum(np.searchsorted(at, new_at), at.size - 1)
    return np.where((new_at >= at[right]) | (right == 0), right, right - 1), right


def _share(at: Array, new_at: Array, left: NDArray[np.intp], right: NDArray[np.intp]) -> Array:
    """Share of the way from the left side to the right one."""
    apart = left < right
    return np.where(apart, new_at - at[left], 0.0) / np.where(apart, at[right] - at[left], 1.0)


def _joined(values: Array, left: NDArray[np.intp], right: NDArray[np.intp], share: Array) -> Array:
    flat, row = values.ravel(), np.arange(len(values))[:, None] * values.shape[1]
    joined: Array = flat.take(row + left) * (1.0 - share) + flat.take(row + right) * share
    return joined


N_NEIGHBOURS = 12
FAR = 2.0 + 1e-6  # and what processors round
"""Distance above which the nearest shape counts as far: two doublings of one size, scaled by `_SCALES`."""

_POWER = 2.0
_CLOSEST = 0.05  # lower bound of distances: keeps rounding errors out of the weights
_WIDE = 9  # least side of the windows that are a family of their own
_OTHER_KIND = 1.5  # distance between two kinds of activation
_ROUNDING = 1e-10  # of squared distances, well above what processors round differently
_SCALES = {  # distance of a doubling of a size, or of a flag
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


class Neighbourhood(NamedTuple):
    """Nearest measured operators of each operator to be interpolated.

    `rows` and `weights` have shape (n_asked, k): positions in the library, and their shares, which sum to 1.
    `distance` (n_asked,) is that of the nearest; infinite, with weights 0, where no operator of the type was measured.
    """

    rows: NDArray[np.intp]
    weights: Array
    distance: Array

    def mean(self, values: Array) -> Array:
        """Weighted means (n_asked, ...) of `values` of each one's neighbours, (n_asked x k, ...)."""
        return weighted_sums(self.weights, values.reshape(*self.rows.shape, *values.shape[1:]))


class _Shapes(NamedTuple):
    """Scaled shapes of operators, and in float32, with their squared lengths; and the codes of their kinds."""

    columns: Array
    single: NDArray[np.float32]
    squares: NDArray[np.float32]
    kinds: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Array, kinds: NDArray[np.int64]) -> _Shapes:
        """Shapes of these scaled columns."""
        single = columns.astype(np.float32)
        return cls(columns, single, (single**2).sum(axis=1), kinds)


@kept
def _shapes(operators: OperatorColumns) -> _Shapes:
    return _Shapes.of(shape_columns(operators) * _SCALE, operators.cells[FIELDS.index("kind")])


def neighbourhoods(
    operators: OperatorColumns, unmeasured: NDArray[np.intp], measured: OperatorColumns
) -> Neighbourhood:
    """Find the nearest operators of the same family, in doublings of their sizes, of those at these positions."""
    n, k = unmeasured.size, min(N_NEIGHBOURS, len(measured))
    rows, weights, nearest = np.zeros((n, k), dtype=np.intp), np.zeros((n, k)), np.full(n, np.inf)
    shapes = _shapes(operators)._replace(kinds=measured.codes_of(operators, "kind"))
    families = np.array(families_of(operators), dtype=object)[unmeasured]
    for family in positions_of(measured).keys() & families.tolist():
        at, of_family = np.flatnonzero(families == family), positions_of(measured)[family]
        if family not in measured.kept:
            measured.kept[family] = _shapes(measured.rows(of_family))
        own = _Shapes._make(values[unmeasured[at]] for values in shapes)
        order, near = _nearest(own, measured.kept[family], k)
        share = 1.0 / np.maximum(near, _CLOSEST) ** _POWER
        rows[at, : order.shape[1]] = of_family[order]
        weights[at, : order.shape[1]] = share / share.sum(axis=1, keepdims=True)
        nearest[at] = near[:, 0]
    return Neighbourhood(rows, weights, nearest)


_PARTS, _PRODUCT, _SINGLE = 256, 2**18, 0.01
"""Parts of the measured operators; multiplications that OpenBLAS does in one thread; more than what float32 rounds of
squared distances."""


def _nearest(own: _Shapes, measured: _Shapes, k: int) -> tuple[NDArray[np.intp], Array]:
    """Positions and distances of the k nearest, nearest first; of equally near ones the first, on every processor.

    Only what lies within the k-th least distance of some, in float32, is computed to the last digit and sorted: of the
    least of each of `_PARTS` parts. Products are of blocks so small that OpenBLAS wakes no threads, which would spin.
    """
    n, m, turned = len(own.single), len(measured.single), -2.0 * own.single.T
    block = max(1, min(64, _PRODUCT // turned.size))
    whole, squares = m - m % block, np.empty((m, n), dtype=np.float32)
    blocks = measured.single[:whole].reshape(-1, block, len(turned))
    np.matmul(blocks, turned, out=squares[:whole].reshape(-1, block, n))
    np.matmul(measured.single[whole:], turned, out=squares[whole:])
    squares += measured.squares[:, None]  # less the own ones, which no order depends on
    if (own.kinds != UNKNOWN).any() or (measured.kinds != UNKNOWN).any():
        squares += np.float32(_OTHER_KIND**2) * (measured.kinds[:, None] != own.kinds)
    k, parts = min(k, m), min(m, _PARTS)
    least = squares[: m // parts * parts].reshape(-1, parts, n).min(axis=0)
    is_near = squares <= np.partition(least.T, k - 1)[:, k - 1] + np.float32(_SINGLE)
    column, row = np.divmod(np.flatnonzero(is_near), n)
    near = sums_in_order((own.columns[row] - measured.columns[column]) ** 2, axis=1)
    near += _OTHER_KIND**2 * (own.kinds[row] != measured.kinds[column]) + _ROUNDING * column
    order = np.lexsort((near, row))
    chosen = order[np.searchsorted(row[order], np.arange(n))[:, None] + np.arange(k)]
    return column[chosen], np.sqrt(near[chosen])


_IN_FP32 = "in fp32"
WIDE_WINDOWS = "wide windows"
"""Family of depthwise convolutions whose time follows their operations: 2 to 3 TFLOP/s on an H100, in 16 bits
channels-last 1, for windows of 9 x 9 to 31 x 31."""


@kept
def families_of(operators: OperatorColumns) -> list[str]:
    """Family of each operator, within which it has neighbours: its type, or the part that runs kernels of its own.

    A softmax reads its channels three times, and depthwise windows from 9 x 9 are PyTorch's slowest: by other
    activations and by small windows, an H100 was answered a sixth of the time of a softmax over 150 classes, and a
    tenth of that of windows of 31 x 31. A recurrent layer with weights on chip waits for no launches.
    """
    families, numbers = operators.text("type"), operators.numbers
    types = families.copy()
    is_softmax, groups = operators.text("kind") == "softmax", numbers("groups")
    of_map = numbers("in_height") * numbers("in_width") > 1
    depthwise = operators.of_types(lambda entry: entry.product == "convolution") & (groups > 1)
    depthwise &= groups == numbers("in_channels")
    side = np.maximum(numbers("kernel_height"), numbers("kernel_width"))
    is_on_chip = operators.of_types(lambda entry: entry.is_recurrent)
    is_on_chip &= numbers("out_channels", 0) <= ON_CHIP_STATE * groups
    families[depthwise & (side >= _WIDE)] = WIDE_WINDOWS
    families[is_softmax] = "softmax"
    families[is_softmax & of_map] = "softmax of maps"
    for own, words in ((operators.flags("fp32_product"), _IN_FP32), (is_on_chip, "on chip")):
        families[own] = [f"{type_} {words}" for type_ in types[own]]
    names: list[str] = families.tolist()
    return names


@kept
def positions_of(operators: OperatorColumns) -> dict[str, NDArray[np.intp]]:
    """Positions of the operators of each family."""
    families = families_of(operators)
    number = {family: i for i, family in enumerate(dict.fromkeys(families))}
    numbers = np.array([number[family] for family in families], dtype=np.intp)
    return {family: np.flatnonzero(numbers == i) for family, i in number.items()}


_WITHOUT_TREES = ("permute",)

FOREST_OF = {
    name: "none"
    if name in _WITHOUT_TREES or not entry.is_measured
    else "convolution"
    if entry.is_convolution
    else "other"
    for name, entry in OPERATOR_TYPES.items()
    if not entry.is_view
}
"""Type of an operator -> the forest that predicts it; ``other`` distinguishes types and activations by flags.

Permutes are excluded: many are views that take no time, and log(0) is undefined."""

FP32_PRODUCT = "fp32_product"
"""The forest of matrix products in fp32 in a mode of TF32."""


@kept
def forests_of(operators: OperatorColumns) -> NDArray[np.object_]:
    """The forest that predicts each operator; ``none`` without one."""
    forests = []
    for type_, family in zip(operators.text("type").tolist(), families_of(operators), strict=True):
        forest = FOREST_OF.get(type_, "none")
        if forest != "none" and family != type_:
            forest = FP32_PRODUCT if family == f"{type_} {_IN_FP32}" else "none"
        forests.append(forest)
    return np.array(forests, dtype=object)


_TYPES = tuple(type_ for type_, forest in FOREST_OF.items() if forest == "other")
FEATURES = (
    *SHAPE_COLUMNS,
    *(f"type {name}" for name in _TYPES),
    *(f"kind {name}" for name in ACTIVATION_KINDS),
    *("batch_size", "flops", "elements", "flops_per_element", "roofline_ms"),
    *TILE_COLUMNS,
)
"""Columns of `forest_features`. A file of trees names its own, so that a type entered later shifts none."""

_LEAF, _LEVELS_AT_ONCE = -1, 4
_NODES = ("roots", "left", "right")  # arrays of numbers of nodes
NODE_ARRAYS = ("roots", "feature", "threshold", "left", "right", "value")


class _Levels(NamedTuple):
    """Nodes of a forest by levels, (n_nodes,): right of a left child is the right one; a leaf's is itself."""

    feature: NDArray[np.intp]
    threshold: Array
    left: NDArray[np.intp]
    value: Array


@dataclass(frozen=True, eq=False)
class Forest:
    """Nodes of all trees, of shape (n_nodes,); the prediction is `start` + the sum of the leaves reached.

    A row goes to `left` where its `feature` is at most `threshold`, else to `right`; leaves have feature -1.
    """

    start: float
    roots: NDArray[np.int32]
    feature: NDArray[np.signedinteger[Any]]
    threshold: Array
    left: NDArray[np.signedinteger[Any]]
    right: NDArray[np.signedinteger[Any]]
    value: Array

    def predict(self, rows: Array) -> Array:
        """Predictions of shape (n_rows,) for features of shape (n_rows, n_features)."""
        flat, nodes = np.ascontiguousarray(rows).ravel(), self._by_level
        root = slice(self.roots.size)
        is_right = rows.take(nodes.feature[root], axis=1) > nodes.threshold[root]
        at = node = (nodes.left[root] + is_right).ravel()
        going, cell = np.arange(at.size), np.repeat(np.arange(len(rows)) * rows.shape[1], self.roots.size)
        while going.size:
            for _ in range(_LEVELS_AT_ONCE):
                is_right = flat.take(cell + nodes.feature.take(node)) > nodes.threshold.take(node)
                node = nodes.left.take(node) + is_right
            at[going] = node
            inner = np.flatnonzero(nodes.threshold.take(node) < np.inf)
            going, cell, node = going.take(inner), cell.take(inner), node.take(inner)
        total: Array = self.start + nodes.value.take(at).reshape(len(rows), -1).sum(axis=1)
        return total

    @cached_property
    def _by_level(self) -> _Levels:
        levels, level = [self.roots], self.roots
        while level.size:
            level = level[self.feature[level] != _LEAF]
            level = np.stack([self.left[level], self.right[level]], axis=1).ravel()
            levels.append(level)
        order = np.concatenate(levels)
        is_leaf, place = self.feature[order] == _LEAF, np.empty(self.feature.size, dtype=np.intp)
        place[order] = np.arange(order.size)
        left = np.where(is_leaf, np.arange(order.size), place[self.left[order]])
        feature = np.where(is_leaf, 0, self.feature[order]).astype(np.intp)
        threshold = np.where(is_leaf, np.inf, self.threshold[order])
        return _Levels(feature, threshold, left, self.value[order])

    @classmethod
    def mean(cls, forests: Sequence[Forest]) -> Forest:
        """One forest that predicts the mean of the predictions of `forests`."""
        offsets = np.cumsum([0, *(forest.feature.size for forest in forests[:-1])]).astype(np.int32)
        pairs = list(zip(forests, offsets, strict=True))
        joined = {
            name: np.concatenate(
                [getattr(forest, name) + offset * (name in _NODES) for forest, offset in pairs]
            )
            for name in NODE_ARRAYS
        }
        start = float(np.mean([forest.start for forest in forests]))
        return cls(start, **joined | {"value": joined["value"] / len(forests)})

    @classmethod
    def of(cls, names: Sequence[str], start: float, nodes: Mapping[str, ArrayLike]) -> Forest:
        """Forest of the arrays `NODE_ARRAYS`, whose features, of these names, may stand in another order.

        ArtifactError if its features are not `FEATURES`; ValueError if the numbers do not describe a forest.
        """
        differing = [f"{name!r} lacks" for name in FEATURES if name not in names]
        differing += [f"{name!r} is unknown" for name in names if name not in FEATURES]
        if differing or len(names) != len(FEATURES):
            raise ArtifactError(
                f"its trees have other features than this epochcast: {', '.join(differing) or 'a name repeats'}. Refit "
                "it with `epochcast fit`; a type of operator that the trees did not learn is entered without "
                "is_measured."
            )
        columns = np.array([FEATURES.index(name) for name in names], dtype=np.intp)
        arrays: dict[str, Any] = {
            name: np.asarray(nodes[name], dtype=float if name in ("threshold", "value") else np.int32)
            for name in NODE_ARRAYS
        }
        roots, feature, left, right = (arrays[name] for name in ("roots", "feature", "left", "right"))
        n, inner = feature.size, np.flatnonzero(feature != _LEAF)
        if any(values.size != n for name, values in arrays.items() if name != "roots"):
            raise ValueError("the trees are damaged")
        children = np.stack([left, right])[:, inner]
        if (
            not np.isfinite([arrays["threshold"], arrays["value"], np.full(n, start)]).all()
            or not ((feature >= _LEAF) & (feature < columns.size)).all()
            or not ((roots >= 0) & (roots < n)).all()
            or not (children < n).all()
            or not (children.min(axis=0) > inner).all()  # children follow their parents: no cycles
        ):
            raise ValueError("the trees are damaged")
        own = np.where(feature == _LEAF, _LEAF, columns[feature]).astype(np.int32)
        return cls(start, **arrays | {"feature": own})


@kept
def _features_by_shape(operators: OperatorColumns) -> Array:
    """The first of `FEATURES`, which batch sizes do not change, of each operator."""
    types, kinds = operators.text("type"), operators.text("kind")
    shapes = [shape_columns(operators), types[:, None] == [_TYPES], kinds[:, None] == [ACTIVATION_KINDS]]
    return np.concatenate(shapes, axis=1)


def forest_features(
    operators: Sequence[Operator],
    batch_sizes: Array,
    rates: Rates,
    sm_count: int | None = None,
    rows: Any = slice(None),
) -> Array:
    """Features of the operators in `rows` at every batch size, of shape (n_rows, n_batches, len(FEATURES))."""
    columns, m = OperatorColumns.of(operators), batch_sizes.size
    flops, elements, fixed = (values[rows, None] for values in work_of_each(operators).T[:3])
    computed = np.log2(flops * batch_sizes + 1.0)
    moved = np.log2(elements * batch_sizes + fixed + 1.0)
    least = np.log2(roofline_ms(operators, batch_sizes, rates)[rows])
    batch = np.broadcast_to(np.log2(batch_sizes), moved.shape)
    by_batch = np.stack([batch, computed, moved, computed - moved, least], axis=2)
    by_shape = np.repeat(_features_by_shape(columns)[rows, None], m, axis=1)
    at, tiles = np.arange(len(columns))[rows], np.zeros((*moved.shape, len(TILE_COLUMNS)))
    is_convolution = forests_of(columns)[at] == "convolution"
    tiles[is_convolution] = tile_columns(columns, at[is_convolution], batch_sizes, sm_count)
    return np.concatenate([by_shape, by_batch, tiles], axis=2)
