"""The numbers of a layer or operator that a framework's constructor takes, each checked when it is read.

What a framework makes of them is a table in its backend, from type to constructor. Beside them the inputs of a single
measured operator, and how many copies of it one iteration holds. No framework is imported here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, gcd, prod
from typing import Any, TypeVar, cast

from predictor.cnns.layer_table import DIMENSIONS, Layer, layer_complaint, side
from predictor.errors import SchemaError, nearest
from predictor.operator_types import RECURRENT_TYPES, VOLUME_TYPES
from predictor.operators.operators import Operator, has_bias
from proxy_cnns.configuration import MEASURE_WHOLE

DROPPED = {"dropout": 0.5, "stochastic_depth": 0.1}
"""Probability with which each drops. A layer table does not hold it, and no kernel's time depends on it."""

_SIDES = ("height", "width")

_T = TypeVar("_T")
Pair = tuple[int, int]


def made(layer: Layer | Operator, makers: "Mapping[str, Callable[[Numbers], _T]]", framework: str) -> _T:
    """Layer with a single input as the framework's maker of its type makes it.

    SchemaError if the framework has no maker of its type, it lacks a number, or its output is not of the size it says.
    """
    if layer.type not in makers:
        raise SchemaError(
            f"layer {layer.name!r} is of type {layer.type!r}, which {framework} cannot run from a layer table. "
            f"{MEASURE_WHOLE}"
        )
    if layer.type == "multiply" and not layer.parameters:
        raise SchemaError(f"layer {layer.name!r} multiplies a single input, but has no parameters.")
    numbers = Numbers(layer)
    if layer.type == "conv2d":
        for dimension, free, stride in zip(_SIDES, numbers.free, numbers.window[1], strict=True):
            numbers.check_size(dimension, free // stride + 1)
    return makers[layer.type](numbers)


CPU_CACHE_BYTES = 2**24
"""Cache that copies of an operator exceed on a CPU."""

_MOST_COPIES = 16

Function = Callable[..., Any]


def copies_of(bytes_of_one: int, cache_bytes: int) -> int:
    """Copies that together exceed the cache twice; at least 1, at most 16."""
    return max(1, min(_MOST_COPIES, ceil(2 * cache_bytes / max(1, bytes_of_one))))


def n_copies(operator: Operator, batch_size: int, element_bytes: int, cache_bytes: int) -> int:
    """Copies that together exceed the cache twice with what one reads and writes in its forward pass."""
    out = [getattr(operator, f"out_{dimension}") or 0 for dimension in ("channels", "height", "width")]
    elements = sum(map(prod, input_shapes(operator, batch_size))) + batch_size * prod(out)
    return copies_of(elements * element_bytes + 4 * operator.parameters, cache_bytes)


def n_optimizer_copies(operator: Operator, cache_bytes: int, most_tensors: int) -> int:
    """Copies of an optimizer step: as many as exceed the cache twice, with at most `most_tensors` tensors in all."""
    return max(1, min(copies_of(12 * operator.parameters, cache_bytes), most_tensors // operator.n_tensors))


def functions_of(
    operator: Operator, copies: int, plain: Mapping[str, Function], layer: Callable[[], Function]
) -> list[Function]:
    """The function of each copy; SchemaError for ``flatten``, a view that takes no time.

    `plain`: functions without parameters, which all copies share, by type. `layer`: makes the function of any other
    type, one for each copy where the operator has parameters, else one for all.
    """
    if operator.type == "flatten":
        raise SchemaError("flatten is a view: it takes no time and cannot be measured.")
    if operator.type in plain and not (operator.type == "multiply" and operator.parameters):
        return [plain[operator.type]] * copies
    return [layer() for _ in range(copies)] if operator.parameters else [layer()] * copies


def input_shapes(operator: Operator, batch_size: int) -> list[tuple[int, ...]]:
    """Shape of each input of an operator.

    A map is (batch, channels, height, width), a vector (batch, channels); linear layers and layer norms on maps read
    (batch, height, width, channels). A product without parameters multiplies a map by factors for each channel.
    """
    sizes = [getattr(operator, f"in_{dimension}") for dimension in ("channels", "height", "width")]
    if None in sizes:
        raise SchemaError(f"operator {operator.name!r} lacks its input's size: it cannot be run.")
    channels, height, width = map(int, sizes)
    shape = (batch_size, channels, height, width)
    is_flat = operator.type == "linear" or operator.kind == "softmax"
    if operator.type == "loss" or (is_flat and height == width == 1):
        return [(batch_size, channels)]
    if operator.type in ("linear", "layer_norm"):
        return [(batch_size, height, width, channels)]
    if operator.type == "add":
        return [shape, shape]
    if operator.type == "multiply" and not operator.parameters:
        return [(batch_size, channels, 1, 1), shape]
    if operator.type in ("matmul", "attention"):
        return _product_shapes(operator, batch_size)
    if operator.type in RECURRENT_TYPES:
        return [(batch_size, height * width, channels)]
    if operator.type in VOLUME_TYPES:
        return [(batch_size, channels, *Numbers(operator).volume.size)]
    if operator.type == "concat":
        others = [max(1, channels // operator.n_tensors)] * (operator.n_tensors - 1)
        parts = [max(1, channels - sum(others)), *others]  # equal, the first with the remainder
        return [(batch_size, n_channels, height, width) for n_channels in parts]
    return [shape]


def _product_shapes(operator: Operator, batch_size: int) -> list[tuple[int, ...]]:
    """Shapes of the factors of a ``matmul``, or of queries, keys and values; `groups` products for each image."""
    numbers = Numbers(operator)
    groups, rows = numbers.number("groups"), numbers.in_height
    inner, columns = (n_channels // groups for n_channels in numbers.channels)
    if operator.type == "matmul":
        return [(batch_size, groups, rows, inner), (batch_size, groups, inner, columns)]
    keys = numbers.kernel_height
    return [(batch_size, groups, n, size) for n, size in ((rows, inner), (keys, inner), (keys, columns))]


Sides = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Volume:
    """A convolution over (depth, height, width)."""

    size: Sides
    out_size: Sides
    window: tuple[Sides, Sides, Sides]
    """Kernel, stride and padding."""
    dilation: int

    @property
    def output_padding(self) -> Sides:
        """Sides that a transposed convolution writes beyond the size that its window gives."""
        sides = zip(self.size, self.out_size, *self.window, strict=True)
        depth, height, width = (
            out - ((size - 1) * stride - 2 * padding + self.dilation * (kernel - 1) + 1)
            for size, out, kernel, stride, padding in sides
        )
        return depth, height, width


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a layer; those of two sides are (height, width). SchemaError where one is missing or wrong."""

    layer: Layer | Operator

    def __getattr__(self, name: str) -> int:
        """A column of the layer, which must be known and at least 1."""
        return self.number(name)

    def number(self, name: str, least: int = 1) -> int:
        """Value of a column that must be known and at least `least`; SchemaError names the layer."""
        value = getattr(self.layer, name)
        if value is None or value < least:
            raise SchemaError(
                f"layer {self.layer.name!r} of type {self.layer.type!r} has {name} {value!r}: to run it, every size "
                f"must be known and at least {least}. Complete the layer table."
            )
        return int(value)

    def pair(self, name: str, least: int = 1) -> Pair:
        """Values of ``{name}_height`` and ``{name}_width``."""
        return self.number(f"{name}_height", least), self.number(f"{name}_width", least)

    @property
    def channels(self) -> Pair:
        """Input and output channels."""
        return self.in_channels, self.out_channels

    @property
    def in_size(self) -> Pair:
        """Size of the input."""
        return self.pair("in")

    @property
    def out_size(self) -> Pair:
        """Size of the output."""
        return self.pair("out")

    @property
    def window(self) -> tuple[Pair, Pair, Pair]:
        """Kernel, stride and padding."""
        return self.pair("kernel"), self.pair("stride"), self._padding

    @property
    def dilation(self) -> int:
        """Dilation."""
        return self.layer.dilation or 1

    @property
    def groups(self) -> int:
        """Groups of a convolution."""
        return self.layer.groups or 1

    @property
    def norm_groups(self) -> int:
        """Groups of a group norm: 32 as in the paper (arXiv:1803.08494), or the most that divide the channels."""
        return self.layer.groups or gcd(self.in_channels, 32)

    @property
    def bias(self) -> bool:
        """Whether the layer has a bias."""
        return has_bias(self.layer)

    @property
    def _padding(self) -> Pair:
        return self.layer.padding_height or 0, self.layer.padding_width or 0

    @property
    def free(self) -> list[int]:
        """How far the window can move on each side."""
        sides = zip(self.in_size, *self.window, strict=True)
        return [size + 2 * p - self.dilation * (k - 1) - 1 for size, k, _, p in sides]

    def check_size(self, dimension: str, size: int) -> None:
        """Refuse a layer whose window gives another `part` (height, width) than its table states; SchemaError."""
        stated = getattr(self.layer, f"out_{dimension}")
        if size != stated:
            raise SchemaError(
                f"layer {self.layer.name!r}: its kernel, stride and padding give {dimension} {size}, but "
                f"out_{dimension} is {stated}. Correct the layer table."
            )

    def activation(self, kinds: Mapping[str, _T]) -> _T:
        """The activation of its kind; SchemaError with the known kinds."""
        kind = self.layer.kind
        if kind is None or kind not in kinds:
            raise SchemaError(
                f"layer {self.layer.name!r} is an activation of kind {kind!r}. "
                f"Nearest: {nearest(str(kind), kinds)}; known: {', '.join(kinds)}."
            )
        return kinds[kind]

    @property
    def output_padding(self) -> Pair:
        """Rows and columns that a transposed convolution writes beyond the size that its window gives."""
        extra, sizes = [], (self.in_size, self.out_size)
        for dimension, size, out, kernel, stride, padding in zip(_SIDES, *sizes, *self.window, strict=True):
            size_by_window = (size - 1) * stride - 2 * padding + self.dilation * (kernel - 1) + 1
            extra.append(out - size_by_window)
            if not 0 <= extra[-1] < max(stride, self.dilation):
                self.check_size(dimension, size_by_window)
        return extra[0], extra[1]

    @property
    def added(self) -> list[Pair]:
        """Rows above and below, and columns left and right, that a pad adds."""
        more = [out - size for size, out in zip(self.in_size, self.out_size, strict=True)]
        return [(n_added // 2, n_added - n_added // 2) for n_added in more]

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        """Dimensions of (batch, channels, height, width) that a ``mean`` reduces to 1: those whose size changes."""
        sizes = [(self.number(f"in_{side}"), self.number(f"out_{side}")) for side in ("channels", *_SIDES)]
        reduced = tuple(axis for axis, (size, out) in enumerate(sizes, 1) if size != out)
        if not reduced or any(sizes[axis - 1][1] != 1 for axis in reduced):
            raise SchemaError(
                f"layer {self.layer.name!r} is a mean that reduces no whole dimension of its input: it cannot be run "
                f"from a layer table. {MEASURE_WHOLE}"
            )
        return reduced

    @property
    def volume(self) -> Volume:
        """Sizes of a convolution over volumes; SchemaError where they are unknown or contradict each other."""
        for quantity in ("in", "out", "kernel", "stride"):
            for dimension in DIMENSIONS:
                self.number(f"{quantity}_{dimension}")
        complaint = layer_complaint(cast(Layer, self.layer))
        if complaint is not None:
            raise SchemaError(f"layer {self.layer.name!r}: {complaint}. Correct the layer table.")
        size, out_size, kernel, stride, padding = (
            cast(Sides, tuple(side(self.layer, quantity, dimension) or 0 for dimension in DIMENSIONS))
            for quantity in ("in", "out", "kernel", "stride", "padding")
        )
        return Volume(size, out_size, (kernel, stride, padding), self.dilation)

    @property
    def pool_rounds_up(self) -> bool | None:
        """Whether a pool's output size is rounded up; None where no window gives it: an adaptive pool.

        SchemaError if it is neither.
        """
        kernel, stride = self.pair("kernel"), self.pair("stride", 0)
        if 0 not in stride:
            for up in (False, True):
                if self._pooled_size(up) == self.out_size:
                    return up
        sizes = list(zip(self.in_size, self.out_size, strict=True))
        adaptive = tuple(-(-size // out) for size, out in sizes), tuple(size // out for size, out in sizes)
        if (kernel, stride) != adaptive or self._padding != (0, 0):
            for dimension, size in zip(_SIDES, self._pooled_size(up=False), strict=True):
                self.check_size(dimension, size)
        return None

    def _pooled_size(self, up: bool) -> tuple[int, ...]:
        """Output size of a pool; rounded up, its last window begins inside the input or left padding."""
        sizes, sides = [], (self.in_size, self.free, self.pair("stride"), self._padding)
        for size, free, stride, padding in zip(*sides, strict=True):
            out = (free + (stride - 1) * up) // stride + 1
            sizes.append(out - 1 if up and (out - 1) * stride >= size + padding else out)
        return tuple(sizes)
