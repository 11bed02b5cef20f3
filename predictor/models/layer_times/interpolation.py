"""Interpolates operator times measured on one GPU: over batch sizes, among like shapes, and by regression trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array, weighted_sums
from predictor.catalogue.devices import Rates
from predictor.errors import ArtifactError
from predictor.operator_types import ACTIVATION_KINDS, OPERATOR_TYPES
from predictor.operators.columns import OperatorColumns, row_keys
from predictor.operators.operators import ON_CHIP_STATE, Operator
from predictor.operators.work import SHAPE_COLUMNS, operator_work, roofline_ms, shape_columns

TILE_COLUMNS = (
    *("twos_in_channels", "twos_out_channels", "twos_out_width", "twos_positions", "out_width"),
    *("kernel_height", "kernel_width", "inner_size", "outer_size", "all_in_channels", "all_out_channels"),
    *("all_positions", "tiles", "last_wave", "all_outputs", "all_inputs", "weight_tiles"),
)
"""Columns of `tile_columns`."""

_TILE_ROWS, _TILE_COLUMNS = 128, 64
_USUAL_SM_COUNT = 128  # for devices whose count is unknown; it only scales waves
_NOT_FEATURES = 5  # first values of `_sizes`, from which tiles are counted
_CHANNELS_DIVIDE, _MAPS_DIVIDE = 6, 4  # kernels do not distinguish sizes by higher powers of two


def tile_columns(operators: Sequence[Operator], batch_sizes: Array, sm_count: int | None) -> Array:
    """Columns of every operator at every batch size, of shape (n_operators, n_batches, len(TILE_COLUMNS)).

    Per image and group: forward (positions x output channels, inner size input channels x kernel), weight gradient
    (input channels x kernel x output channels, inner size positions). A wave is one tile on each multiprocessor.
    """
    n, m = len(operators), batch_sizes.size
    shape = np.array([_sizes(operator) for operator in operators], dtype=float).reshape(n, -1)
    positions, ins, outs, inner, groups = (column[:, None] for column in shape[:, :_NOT_FEATURES].T)
    rows = positions * batch_sizes
    across = np.ceil(outs / _TILE_COLUMNS) * groups
    tiles = np.ceil(rows / _TILE_ROWS) * across
    waves = tiles / (sm_count or _USUAL_SM_COUNT)
    weight_tiles = np.broadcast_to(np.ceil(inner / _TILE_ROWS) * across, (n, m))
    outputs, inputs = rows * outs * groups, rows * ins * groups
    logs = [np.log2(values) for values in (rows, tiles, outputs, inputs, weight_tiles)]
    by_batch = [*logs[:2], waves / np.ceil(waves), *logs[2:]]
    by_shape = np.broadcast_to(shape[:, None, _NOT_FEATURES:], (n, m, shape.shape[1] - _NOT_FEATURES))
    return np.concatenate([by_shape, np.stack(by_batch, axis=2)], axis=2)


@lru_cache(maxsize=65536)
def _sizes(operator: Operator) -> tuple[float, ...]:
    groups = operator.groups or 1
    ins = max(1, (operator.in_channels or 1) // groups)
    outs = max(1, (operator.out_channels or operator.in_channels or 1) // groups)
    height, width = operator.out_height or 1, operator.out_width or 1
    kernel_height, kernel_width = operator.kernel_height or 1, operator.kernel_width or 1
    inner, outer = ins * kernel_height * kernel_width, outs * kernel_height * kernel_width
    twos = [_twos(channels, _CHANNELS_DIVIDE) for channels in (ins, outs)]
    twos += [_twos(pixels, _MAPS_DIVIDE) for pixels in (width, height * width)]
    sizes = float(np.log2(inner)), float(np.log2(outer)), ins * groups, outs * groups
    return height * width, ins, outs, inner, groups, *twos, width, kernel_height, kernel_width, *sizes


def _twos(number: int, most: int) -> int:
    """Exponent of two in a number, at most `most`."""
    return min(most, (number & -number).bit_length() - 1)


_ROUNDING = 1e-9  # of ln of a batch size


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Batch sizes at which operators were measured; `at` holds the ln of all, ascending.

    `patterns` (n_patterns, n_batches) are the distinct sets of measured batch sizes, `member` (n_operators,) the
    number of each operator's set.
    """

    at: Array
    patterns: NDArray[np.bool_]
    member: NDArray[np.intp]

    @classmethod
    def of(cls, batch_sizes: Array, is_measured: NDArray[np.bool_]) -> Curves:
        """Curves over ascending `batch_sizes`; `is_measured` (n_operators, n_batches) marks those of each operator."""
        number: dict[bytes, int] = {}
        keys = row_keys(np.packbits(is_measured, axis=1))
        members = np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.intp)
        _, first = np.unique(members, return_index=True)
        return cls(np.log(batch_sizes), is_measured[first], members)

    def filled(self, rows: NDArray[np.intp], values: Array) -> Array:
        """Values of the operators at the positions `rows` at all of `at`, from their measured `values`, (n_rows, n_at).

        A curve is constant beyond its ends; it is 0 for an operator without measurements.
        """
        member = self.member[rows]
        curves = np.zeros((rows.size, self.at.size))
        for number in np.flatnonzero(np.bincount(member, minlength=len(self.patterns))):
            alike, measured = np.flatnonzero(member == number), np.flatnonzero(self.patterns[number])
            if measured.size:
                curves[alike] = between(self.at[measured], self.at, values[np.ix_(alike, measured)])
        return curves

    def beyond(self, rows: NDArray[np.intp], batch_sizes: Array) -> NDArray[np.int8]:
        """-1 below, 1 above the measured batch sizes of the operators at the positions `rows`, else 0."""
        log_sizes = np.log(batch_sizes)
        is_measured = self.patterns[self.member[rows]]
        least, greatest = (
            np.where(is_measured.any(axis=1), end, default)[:, None]
            for end, default in (
                (self.at[is_measured.argmax(axis=1)], -np.inf),
                (self.at[self.at.size - 1 - is_measured[:, ::-1].argmax(axis=1)], np.inf),
            )
        )
        above, below = log_sizes > greatest + _ROUNDING, log_sizes < least - _ROUNDING
        return above.astype(np.int8) - below.astype(np.int8)


def between(at: Array, new_at: Array, values: Array) -> Array:
    """Piecewise linear, constant beyond the ends; values (n, len(at)) -> (n, len(new_at))."""
    if at.size == 1:
        return np.repeat(values, new_at.size, axis=1)
    right = np.clip(np.searchsorted(at, new_at), 1, at.size - 1)
    share = np.clip((new_at - at[right - 1]) / (at[right] - at[right - 1]), 0.0, 1.0)
    return values[:, right - 1] * (1.0 - share) + values[:, right] * share


def needed(at: Array, new_at: Array) -> NDArray[np.intp]:
    """Positions in `at`, ascending, that `between` reads for these batch sizes."""
    right = np.clip(np.searchsorted(at, new_at), 0, at.size - 1)
    left = np.where((new_at >= at[right]) | (right == 0), right, right - 1)
    read = np.zeros(at.size, dtype=bool)
    read[left] = read[right] = True
    return np.flatnonzero(read)


N_NEIGHBOURS = 12
FAR = 2.0 + 1e-6  # and what processors round
"""Distance above which the nearest shape counts as far: two doublings of one size, scaled by `_SCALES`."""

_POWER = 2.0
_REACH = 1.5  # distance at which a neighbour's residual is shrunk by half
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


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """Nearest measured operators of each operator to be interpolated.

    `rows` and `weights` have shape (n_asked, k): positions in the library, and their shares, which sum to 1.
    `distance` (n_asked,) is that of the nearest; infinite, with weights 0, where no operator of the type was measured.
    `closeness` (n_asked,) is the factor, from 0 to 1, by which the neighbours' residuals are shrunk.
    """

    rows: NDArray[np.intp]
    weights: Array
    distance: Array
    closeness: Array

    def mean(self, values: Array) -> Array:
        """Weighted means (n_asked, ...) of the library's `values` (n_library, ...) over each operator's neighbours."""
        return weighted_sums(self.weights, values[self.rows])

    def shrunk(self, rows: NDArray[np.intp], values: Array) -> Array:
        """`mean` of the operators at positions `rows`, times their `closeness`: 0 where no neighbour is near."""
        near = weighted_sums(self.weights[rows], values[self.rows[rows]])
        shrunk: Array = self.closeness[rows].reshape(-1, *[1] * (near.ndim - 1)) * near
        return shrunk


@dataclass(frozen=True, slots=True, eq=False)
class KnownShapes:
    """Shapes of a library's operators, computed for each type when it is first needed."""

    operators: OperatorColumns
    positions: dict[str, NDArray[np.intp]]
    _computed: dict[str, _Shapes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, operators: OperatorColumns) -> KnownShapes:
        """Shapes of these operators."""
        return cls(operators, _by_family(operators))

    def of_type(self, type_: str) -> _Shapes:
        """Shapes of all operators of one type."""
        if type_ not in self._computed:
            self._computed[type_] = _Shapes.of(self.operators.rows(self.positions[type_]))
        return self._computed[type_]


@dataclass(frozen=True, slots=True, eq=False)
class _Shapes:
    columns: Array
    squares: Array
    kinds: NDArray[np.str_]

    @classmethod
    def of(cls, operators: OperatorColumns) -> _Shapes:
        columns = shape_columns(operators) * _SCALE
        return cls(columns, (columns**2).sum(axis=1), operators.text("kind").astype(np.str_))

    def of_rows(self, places: NDArray[np.intp]) -> _Shapes:
        return _Shapes(self.columns[places], self.squares[places], self.kinds[places])


def neighbourhoods(unmeasured: OperatorColumns, measured: KnownShapes) -> Neighbourhood:
    """Find the nearest operators of the same type, in doublings of their sizes."""
    k = min(N_NEIGHBOURS, len(measured.operators))
    rows, weights = np.zeros((len(unmeasured), k), dtype=np.intp), np.zeros((len(unmeasured), k))
    nearest = np.full(len(unmeasured), np.inf)
    shapes = _Shapes.of(unmeasured)
    for type_, at in _by_family(unmeasured).items():
        if type_ not in measured.positions:
            continue
        own, of_type = shapes.of_rows(at), measured.of_type(type_)
        squares = own.squares[:, None] + of_type.squares[None] - 2.0 * own.columns @ of_type.columns.T
        squares = np.maximum(squares, 0.0)
        if of_type.kinds.any() or own.kinds.any():
            squares += _OTHER_KIND**2 * (own.kinds[:, None] != of_type.kinds[None])
        order, near = _nearest(squares, k)
        share = 1.0 / np.maximum(near, _CLOSEST) ** _POWER
        rows[at, : order.shape[1]] = measured.positions[type_][order]
        weights[at, : order.shape[1]] = share / share.sum(axis=1, keepdims=True)
        nearest[at] = near[:, 0]
    return Neighbourhood(rows, weights, nearest, 1.0 / (1.0 + (nearest / _REACH) ** 2))


_IN_FP32 = "in fp32"
WIDE_WINDOWS = "wide windows"
"""Family of depthwise convolutions whose time follows their operations: 2 to 3 TFLOP/s on an H100, in 16 bits
channels-last 1, for windows of 9 x 9 to 31 x 31."""


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


def _by_family(operators: OperatorColumns) -> dict[str, NDArray[np.intp]]:
    families = np.array(families_of(operators), dtype=object)
    return {family: np.flatnonzero(families == family) for family in dict.fromkeys(families.tolist())}


def _nearest(squares: Array, k: int) -> tuple[NDArray[np.intp], Array]:
    """Positions and distances of the k nearest, nearest first; of equally near ones the first, on every processor."""
    squares = squares + _ROUNDING * np.arange(squares.shape[1])
    unordered = np.argpartition(squares, min(k, squares.shape[1]) - 1, axis=1)[:, :k]
    near = np.take_along_axis(squares, unordered, axis=1)
    order = np.argsort(near, axis=1)
    return np.take_along_axis(unordered, order, axis=1), np.sqrt(np.take_along_axis(near, order, axis=1))


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


def forests_of(operators: OperatorColumns) -> list[str]:
    """The forest that predicts each operator; ``none`` without one."""
    forests = []
    for type_, family in zip(operators.text("type").tolist(), families_of(operators), strict=True):
        forest = FOREST_OF.get(type_, "none")
        if forest != "none" and family != type_:
            forest = FP32_PRODUCT if family == f"{type_} {_IN_FP32}" else "none"
        forests.append(forest)
    return forests


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


@dataclass(frozen=True, eq=False)
class Forest:
    """Nodes of all trees, of shape (n_nodes,); the prediction is `start` + the sum of the leaves reached.

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
        """Predictions of shape (n_rows,) for features of shape (n_rows, n_features)."""
        flat, n_features, n_nodes = np.ascontiguousarray(rows).ravel(), rows.shape[1], self.feature.size
        is_leaf, children, feature = self._steps
        at = np.tile(self.roots, len(rows)).astype(np.intp)
        going, node = np.arange(at.size), at
        cell = np.repeat(np.arange(len(rows)) * n_features, self.roots.size)
        while going.size:
            for _ in range(_LEVELS_AT_ONCE):
                goes_left = flat.take(cell + feature.take(node)) <= self.threshold.take(node)
                node = children.take(node + n_nodes * goes_left)
            at[going] = node
            inner = np.flatnonzero(~is_leaf.take(node))
            going, cell, node = going.take(inner), cell.take(inner), node.take(inner)
        total: Array = self.start + self.value.take(at).reshape(len(rows), -1).sum(axis=1)
        return total

    @cached_property
    def _steps(self) -> tuple[NDArray[np.bool_], NDArray[np.intp], NDArray[np.intp]]:
        """Whether each node is a leaf, which leads to itself; right children, then left ones; the features read."""
        is_leaf = self.feature == _LEAF
        children = np.where(is_leaf, np.arange(is_leaf.size), [self.right, self.left]).ravel()
        return is_leaf, children, np.where(is_leaf, 0, self.feature).astype(np.intp)

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


def forest_features(
    operators: Sequence[Operator], batch_sizes: Array, rates: Rates, sm_count: int | None = None
) -> Array:
    """Features of every operator at every batch size, of shape (n_operators, n_batches, len(FEATURES))."""
    n, m = len(operators), batch_sizes.size
    batch = np.log2(batch_sizes)
    shapes = shape_columns(operators)
    work = np.array([operator_work(operator)[:3] for operator in operators]).reshape(-1, 3)
    flops, elements, fixed = work.T
    computed = np.log2(flops[:, None] * batch_sizes + 1.0)
    moved = np.log2(elements[:, None] * batch_sizes + fixed[:, None] + 1.0)
    least = np.log2(roofline_ms(operators, batch_sizes, rates))
    of_type = [[operator.type == type_ for type_ in _TYPES] for operator in operators]
    of_kind = [[operator.kind == kind for kind in ACTIVATION_KINDS] for operator in operators]
    by_batch = np.stack([np.broadcast_to(batch, (n, m)), computed, moved, computed - moved, least], axis=2)
    by_shape = np.column_stack([shapes, of_type, of_kind])
    tiles = tile_columns(operators, batch_sizes, sm_count)
    tiles[[forest != "convolution" for forest in forests_of(OperatorColumns.of(operators))]] = 0.0
    return np.concatenate([np.repeat(by_shape[:, None], m, axis=1), by_batch, tiles], axis=2)
