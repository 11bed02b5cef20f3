"""The operators of the presets `quick` and `library`: designed to have neighbours for the layers of any CNN.

A family of shapes is one line: how its shapes are drawn, and how many of them the smallest library has.
Convolutions get most of a library because their efficiency changes with every side of their shape (which kernels
cuDNN takes). The time of the other operators follows their bytes, so a ladder of sizes is enough.

A library has two parts: designed shapes, which no CNN of the zoo has, and the convolutions of a few common CNNs, for
whose shapes cuDNN has kernels of their own. So a library covers any other CNN of the zoo as well as
a user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice
from typing import Any

from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.spread import Draw, draws

Make = Callable[[Draw], Operator | None]
"""Makes the shape at one point of the space; None where it is larger than layers of CNNs."""


def from_to(type_: str, of: tuple[int, int, int], to: tuple[int, int, int], **more: Any) -> Operator:
    """Operator from one shape (channels, height, width) to another."""
    parts = ("channels", "height", "width")
    shape: dict[str, Any] = {
        f"{side}_{part}": size
        for side, sizes in (("in", of), ("out", to))
        for part, size in zip(parts, sizes, strict=True)
    }
    return Operator(type_, **shape, **more)


def _window(kernel: tuple[int, int], stride: int, padding: tuple[int, int]) -> dict[str, Any]:
    return {
        "kernel_height": kernel[0],
        "kernel_width": kernel[1],
        "stride_height": stride,
        "stride_width": stride,
        "padding_height": padding[0],
        "padding_width": padding[1],
    }


def conv(
    in_channels: int,
    side: int,
    out_channels: int,
    kernel: tuple[int, int],
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
    padded: bool = True,
    bias: bool = False,
    first: bool = False,
    wide: bool = False,
) -> Operator:
    """Convolution; `padded` keeps the size at stride 1. Patches (kernel = stride) are never padded."""
    high, across = (dilation * (k - 1) // 2 * (padded and k != stride) for k in kernel)
    height, width = (
        (side + 2 * p - dilation * (k - 1) - 1) // stride + 1
        for k, p in zip(kernel, (high, across), strict=True)
    )
    return from_to(
        "conv2d",
        (in_channels, side, side),
        (out_channels, height, width),
        **_window(kernel, stride, (high, across)),
        dilation=dilation,
        groups=groups,
        parameters=in_channels // groups * out_channels * kernel[0] * kernel[1] + bias * out_channels,
        input_gradient=not first,
        wide_input=wide or first,
    )


Sides = tuple[int, int, int]
_POINT, _CUBE = (1, 1, 1), (3, 3, 3)


def conv_3d(
    in_channels: int,
    sides: Sides,
    out_channels: int,
    kernel: Sides,
    stride: Sides = (1, 1, 1),
    groups: int = 1,
    transposed: bool = False,
    first: bool = False,
) -> Operator:
    """Convolution over (depth, height, width), padded to keep the size at stride 1.

    A transposed one multiplies the size by its stride; kernel - stride must be even.
    """
    if transposed:
        padding = [(k - s) // 2 for k, s in zip(kernel, stride, strict=True)]
        out = [size * s for size, s in zip(sides, stride, strict=True)]
    else:
        padding = [k // 2 if k != s else 0 for k, s in zip(kernel, stride, strict=True)]
        out = [
            (size + 2 * p - k) // s + 1 for size, p, k, s in zip(sides, padding, kernel, stride, strict=True)
        ]
    return from_to(
        "conv_transpose3d" if transposed else "conv3d",
        (in_channels, sides[0] * sides[1], sides[2]),
        (out_channels, out[0] * out[1], out[2]),
        **_window((kernel[0] * kernel[1], kernel[2]), stride[2], (padding[1], padding[2]))
        | {"stride_height": stride[0] * stride[1]},
        in_depth=sides[0],
        out_depth=out[0],
        kernel_depth=kernel[0],
        stride_depth=stride[0],
        padding_depth=padding[0],
        dilation=1,
        groups=groups,
        parameters=in_channels // groups * out_channels * kernel[0] * kernel[1] * kernel[2],
        input_gradient=not first,
        wide_input=first,
    )


def conv_transpose(in_channels: int, side: int, out_channels: int, kernel: int, stride: int) -> Operator:
    """Transposed convolution that multiplies the size by its stride; from a vector (side 1), the CNN's first layer.

    kernel - stride must be even, but for a vector's.
    """
    first = side == 1
    padding = 0 if first else (kernel - stride) // 2
    out = (side - 1) * stride - 2 * padding + kernel
    return from_to(
        "conv_transpose2d",
        (in_channels, side, side),
        (out_channels, out, out),
        **_window((kernel, kernel), stride, (padding, padding)),
        dilation=1,
        groups=1,
        parameters=in_channels * out_channels * kernel * kernel,
        input_gradient=not first,
        wide_input=first,
    )


def linear(in_channels: int, out_channels: int, side: int = 1, wide: bool = False) -> Operator:
    """Linear layer with bias over the channels, at each position of a map; side 1: on vectors."""
    shapes = (in_channels, side, side), (out_channels, side, side)
    return from_to("linear", *shapes, parameters=(in_channels + 1) * out_channels, wide_input=wide)


def pool(type_: str, channels: int, side: int, kernel: int, stride: int, padding: int = 0) -> Operator:
    """``max_pool`` or ``avg_pool``; a global one has kernel = stride = side."""
    out = (side + 2 * padding - kernel) // stride + 1
    window = _window((kernel, kernel), stride, (padding, padding))
    return from_to(type_, (channels, side, side), (channels, out, out), **window)


def adaptive_pool(channels: int, side: int, out: int) -> Operator:
    """``avg_pool`` to a fixed size, which may be larger than its input; kernel and stride as in layer tables."""
    kernel = -(-side // out)
    window = _window((kernel, kernel), side // out, (0, 0))
    return from_to("avg_pool", (channels, side, side), (channels, out, out), **window)


def same_shape(type_: str, channels: int, side: int, **more: Any) -> Operator:
    """Operator whose output has the shape of its input: norms, activations, sums, products, concats."""
    parameters = 2 * channels if OPERATOR_TYPES[type_].weights == "scale_and_shift" else 0
    shape = (channels, side, side)
    return replace(from_to(type_, shape, shape, parameters=parameters), **more)


def optimizer(n_tensors: int, parameters: int) -> Operator:
    """Update of `n_tensors` tensors with `parameters` numbers in all."""
    return Operator("optimizer", n_tensors=n_tensors, parameters=parameters)


Kernel = tuple[int, int]
_1X1, _3X3, _4X4, _5X5 = (((side, side),) for side in (1, 3, 4, 5))

_MOST_CHANNELS = 8192
_MOST_NUMBERS_OF_CONVOLUTIONS = 6_000_000  # of a map of one image
_MOST_WEIGHTS = 60_000_000


@dataclass(frozen=True, slots=True)
class Convolutions:
    """Shapes that cuDNN runs with the same kinds of kernels.

    `sides` are heights of the input, `spans` its channels x height (in CNNs channels grow as maps shrink),
    `ratios` output over input channels: each the least and the most. `group_widths` are input channels of a
    group: () dense, (1,) depthwise. `bias`, `wide`, `unpadded` are shares of the shapes that have it.
    """

    count: int
    kernels: tuple[Kernel, ...]
    strides: tuple[int, ...] = (1,)
    sides: tuple[int, int] = (7, 150)
    spans: tuple[float, float] = (400, 40_000)
    ratios: tuple[float, float] = (1, 1)
    group_widths: tuple[int, ...] = ()
    dilations: tuple[int, ...] = (1,)
    bias: float = 0.0
    wide: float = 0.0
    unpadded: float = 0.0
    channels: tuple[int, ...] = ()
    outputs: tuple[int, int] = (0, 0)


_GROUP_WIDTHS = (4, 8, 8, 16, 16, 24, 24, 32, 40, 48, 64, 80, 112, 128, 160, 224, 256)
_RATIOS_1X1 = (1 / 12, 8)

_CONVOLUTIONS: dict[str, Convolutions] = {
    "1x1": Convolutions(240, _1X1, spans=(400, 60_000), ratios=_RATIOS_1X1, bias=0.12),
    "1x1 small maps": Convolutions(16, _1X1, (1,), (2, 6), (128, 4096), _RATIOS_1X1),
    "1x1 single positions": Convolutions(8, _1X1, (1,), (1, 1), (64, 2500), _RATIOS_1X1),
    "1x1 stride 2": Convolutions(28, _1X1, (2,), (7, 130), (1200, 40_000), (0.8, 10)),
    "1x1 stride 2 small maps": Convolutions(3, _1X1, (2,), (2, 6), (500, 5000), (0.8, 4)),
    "1x1 vectors": Convolutions(50, _1X1, (1,), (1, 1), (4, 7500), (1 / 70, 70), bias=1),
    "3x3": Convolutions(110, _3X3, (1,), (4, 230), (300, 16_000), (0.2, 5), bias=0.25, unpadded=0.1),
    "3x3 small maps": Convolutions(12, _3X3, (1,), (2, 4), (256, 2048), (0.5, 2)),
    "3x3 single positions": Convolutions(5, _3X3, (1,), (1, 1), (64, 1024), (0.25, 2)),
    "3x3 stride 2 small maps": Convolutions(5, _3X3, (2,), (2, 6), (400, 3000), (0.5, 2)),
    "3x3 stride 2": Convolutions(44, _3X3, (2,), (7, 230), (600, 16_000), (0.5, 5), bias=0.1, unpadded=0.2),
    "3x3 depthwise": Convolutions(56, _3X3, (1,), (7, 240), (700, 55_000), group_widths=(1,)),
    "3x3 depthwise stride 2": Convolutions(32, _3X3, (2,), (9, 260), (1000, 50_000), group_widths=(1,)),
    "5x5 depthwise": Convolutions(34, _5X5, (1,), (7, 80), (1500, 45_000), group_widths=(1,)),
    "5x5 depthwise stride 2": Convolutions(22, _5X5, (2,), (12, 160), (2000, 45_000), group_widths=(1,)),
    "7x7 depthwise": Convolutions(
        22, ((7, 7),), (1,), (7, 64), (3000, 16_000), group_widths=(1,), bias=0.8, wide=0.7
    ),
    "3x3 depthwise small maps": Convolutions(10, _3X3, (1,), (1, 6), (100, 3000), group_widths=(1,)),
    "3x3 depthwise stride 2 small maps": Convolutions(6, _3X3, (2,), (2, 8), (150, 4000), group_widths=(1,)),
    "5x5 depthwise small maps": Convolutions(8, _5X5, (1,), (1, 6), (600, 4000), group_widths=(1,)),
    "5x5 depthwise stride 2 small maps": Convolutions(4, _5X5, (2,), (2, 10), (800, 4000), group_widths=(1,)),
    "large depthwise": Convolutions(6, ((9, 9), (11, 11)), (1,), (7, 56), (2000, 12_000), group_widths=(1,)),
    "3x3 grouped": Convolutions(60, _3X3, (1,), (7, 100), (1500, 60_000), group_widths=_GROUP_WIDTHS),
    "3x3 grouped stride 2": Convolutions(
        52, _3X3, (2,), (12, 200), (2500, 180_000), group_widths=_GROUP_WIDTHS
    ),
    "3x3 grouped small maps": Convolutions(
        6, _3X3, (1, 1, 2), (1, 6), (700, 6000), group_widths=_GROUP_WIDTHS
    ),
    "asymmetric 7": Convolutions(20, ((1, 7), (7, 1)), (1,), (7, 40), (1200, 6000), (0.6, 2)),
    "asymmetric 3": Convolutions(14, ((1, 3), (3, 1)), (1,), (7, 40), (1200, 8000), (0.6, 2)),
    "5x5": Convolutions(18, _5X5, (1,), (7, 60), (80, 4000), (0.5, 6), bias=0.5, unpadded=0.2),
    "7x7": Convolutions(5, ((7, 7),), (1, 2), (14, 120), (400, 3000), (0.5, 2)),
    "4x4": Convolutions(10, _4X4, (2,), (8, 64), (800, 4000), (1, 3)),
    "4x4 to a vector": Convolutions(2, _4X4, (1,), (4, 4), (800, 4000), (1 / 500, 1 / 4), unpadded=1),
    "2x2 patches": Convolutions(14, ((2, 2),), (2,), (10, 72), (3000, 16_000), (1.5, 2.5), bias=1, wide=0.7),
    "dilated": Convolutions(8, _3X3, (1,), (14, 66), (4000, 20_000), (0.3, 1.5), dilations=(2, 4)),
    "stem 3x3": Convolutions(
        14, _3X3, (1, 2, 2), (28, 420), (1, 1), channels=(3,), outputs=(16, 80), bias=0.2, unpadded=0.2
    ),
    "stem 5-11": Convolutions(
        8,
        ((5, 5), (7, 7), (11, 11)),
        (1, 2, 4),
        (28, 300),
        (1, 1),
        channels=(3,),
        outputs=(16, 100),
        bias=0.3,
    ),
    "stem 4x4": Convolutions(2, _4X4, (2,), (32, 128), (1, 1), channels=(3,), outputs=(32, 128)),
    "stem patches": Convolutions(4, _4X4, (4,), (96, 384), (1, 1), channels=(3,), outputs=(64, 220), bias=1),
    "stem grey": Convolutions(
        4, ((3, 3), (5, 5)), (1,), (24, 64), (1, 1), channels=(1,), outputs=(6, 64), bias=1
    ),
}


def _convolution(draw: Draw, family: Convolutions) -> Operator | None:
    """Return the shape at one point of the space, or None if it is larger than layers of CNNs."""
    kernel, stride = draw.one_of(family.kernels), draw.one_of(family.strides)
    side = draw.side(*family.sides)
    first = bool(family.channels)
    wanted = draw.between(*family.spans) / side
    in_channels = draw.one_of(family.channels) if first else draw.channels(wanted)
    wanted = draw.between(*family.outputs) if first else in_channels * draw.between(*family.ratios)
    in_channels, out_channels, groups = _grouped(draw, family, in_channels, wanted)
    operator = conv(
        in_channels,
        side,
        out_channels,
        kernel,
        stride,
        groups,
        draw.one_of(family.dilations),
        padded=not draw.happens(family.unpadded),
        bias=draw.happens(family.bias),
        first=first,
        wide=draw.happens(family.wide),
    )
    return operator if _usual(operator) else None


def _grouped(draw: Draw, family: Convolutions, in_channels: int, wanted: float) -> tuple[int, int, int]:
    """Input channels, output channels and groups."""
    if not family.group_widths:
        return in_channels, draw.channels(wanted), 1
    width = draw.one_of(family.group_widths)
    groups = max(2, round(in_channels / width))
    return groups * width, groups * width, groups


def _usual(operator: Operator) -> bool:
    channels = (operator.in_channels or 0, operator.out_channels or 0)
    sides = (operator.in_height or 0, operator.out_height or 0)
    numbers = max(c * side * side for c, side in zip(channels, sides, strict=True))
    least_side = min(sides[1], operator.out_width or 0)
    small = max(channels) <= _MOST_CHANNELS and numbers <= _MOST_NUMBERS_OF_CONVOLUTIONS
    return small and operator.parameters <= _MOST_WEIGHTS and least_side > 0


def _transposed(draw: Draw) -> Operator:
    """Upsampling, as generators do it."""
    side, kernel = draw.side(4, 64), draw.one_of((2, 4, 4))
    in_channels = draw.channels(draw.between(1000, 4000) / side)
    return conv_transpose(in_channels, side, draw.channels(in_channels * draw.between(0.04, 1)), kernel, 2)


def _transposed_vectors(draw: Draw) -> Operator:
    """First layer of a generator: a random vector becomes a small map."""
    ins = draw.channels(draw.between(50, 200))
    return conv_transpose(ins, 1, draw.channels(draw.between(100, 1000)), 4, 1)


_MOST_NUMBERS = 20_000_000  # of a map of one image


def _size(draw: Draw, low: int = 4, high: int = 240) -> tuple[int, int]:
    """Channels and side of a map."""
    side = draw.side(low, high)
    return draw.channels(min(7500, draw.between(350, 60_000) / side)), side


def _plain(draw: Draw, type_: str, low: int = 4, high: int = 240, wide: float = 0.0, **more: Any) -> Operator:
    channels, side = _size(draw, low, high)
    return same_shape(type_, channels, side, wide_input=draw.happens(wide), **more)


def _shuffle(draw: Draw) -> Operator:
    """A channel shuffle of two groups, which copies; only changing the layout moves nothing."""
    channels, side = _size(draw, 7, 64)
    return same_shape("permute", channels + channels % 2, side, groups=2)


def _small_map(draw: Draw, type_: str, even: bool = False, **more: Any) -> Operator:
    """On the last maps of a CNN for images of 32 pixels: one to six positions a side."""
    side = draw.side(1, 6)
    channels = draw.channels(draw.between(300, 3000) / side)
    return same_shape(type_, channels + channels % 2 * even, side, **more)


def _vector(draw: Draw, type_: str, low: float, high: float, **more: Any) -> Operator:
    return same_shape(type_, draw.channels(draw.between(low, high)), 1, **more)


def _activation(kind: str, in_place: bool = False, vectors: float = 0.0) -> Make:
    def make(draw: Draw) -> Operator:
        more: dict[str, Any] = {"kind": kind, "in_place": in_place}
        if draw.happens(vectors):
            return _vector(draw, "activation", 3, 7000, **more)
        return _plain(draw, "activation", **more)

    return make


def _small(draw: Draw, kind: str) -> Operator:
    """Activation of a small CNN's map, as of LeNet-5."""
    channels = draw.channels(draw.between(4, 256))
    return same_shape("activation", channels, draw.side(1, 64), kind=kind)


def _layer_scale(draw: Draw) -> Operator:
    channels, side = draw.channels(draw.between(64, 1600)), draw.side(7, 60)
    return same_shape("multiply", channels, side, parameters=channels)


def _concat(draw: Draw) -> Operator:
    """Tensors of one width each, as dense blocks and branches join them; up to 49 in DenseNet."""
    side = draw.side(7, 72)
    n_tensors = round(draw.between(2, 49.4))
    total = draw.between(1500, 24_000) / side
    each = max(8, draw.channels(total / n_tensors))
    return same_shape("concat", n_tensors * each, side, n_tensors=n_tensors)


def _concat_small(draw: Draw) -> Operator:
    """As dense blocks join them on small maps: many narrow tensors."""
    side, n_tensors = draw.side(1, 6), round(draw.between(2, 26))
    return same_shape("concat", n_tensors * draw.channels(draw.between(16, 96)), side, n_tensors=n_tensors)


def _concat_forward(draw: Draw) -> Operator:
    channels, side = _size(draw, 7, 60)
    return same_shape("concat", channels // 2 * 2 or 2, side, n_tensors=2, passes="forward")


def _linear_vectors(draw: Draw) -> Operator:
    wide = draw.happens(0.2)
    return linear(draw.channels(draw.between(64, 26_000)), draw.channels(draw.between(8, 4500)), wide=wide)


def _linear_maps(draw: Draw) -> Operator:
    """Linear layers on maps widen or narrow them four times, in CNNs that borrow from transformers."""
    side, widen = draw.side(7, 60), draw.happens(0.5)
    narrow = draw.channels(draw.between(4500, 12_000) / side)
    return linear(narrow, 4 * narrow, side, wide=True) if widen else linear(4 * narrow, narrow, side)


def _pool(type_: str, kernel: int, stride: int, padding: int = 0, low: int = 8, high: int = 230) -> Make:
    def make(draw: Draw) -> Operator:
        channels, side = _size(draw, low, high)
        return pool(type_, channels, side, kernel, stride, padding)

    return make


def _pool_up(draw: Draw) -> Operator:
    """An adaptive pool that widens: a classifier made for larger images reads a small map."""
    side, out = round(draw.between(1, 3.4)), draw.one_of((6, 7))
    return adaptive_pool(draw.channels(draw.between(128, 1024)), side, out)


def _global_pool(draw: Draw, low: int = 4, high: int = 300) -> Operator:
    channels, side = _size(draw, low, high)
    return replace(pool("avg_pool", channels, side, side, side), wide_input=draw.happens(0.1))


def _optimizer(draw: Draw) -> Operator:
    n_tensors = round(draw.between(7, 1000))
    return optimizer(n_tensors, max(100 * n_tensors, round(draw.between(4e4, 4e8))))


def _loss(draw: Draw) -> Operator:
    return same_shape(
        "loss", draw.channels(draw.between(1, 22_000)), 1, out_channels=None, out_height=None, out_width=None
    )


_HEAD_WIDTHS = (16, 32, 32, 64, 64, 96)
_HEADS = (1, 2, 3, 4, 6, 8, 12, 16)


def _map_size(draw: Draw, low: int = 4, high: int = 128, most: int = 2048) -> tuple[int, int]:
    """Channels, a multiple of 8, and side of a map."""
    side = draw.side(low, high)
    return max(8, round(min(most, draw.between(500, 20_000) / side) / 8) * 8), side


def _group_norm(draw: Draw) -> Operator:
    channels, side = _map_size(draw)
    return same_shape("group_norm", channels, side, wide_input=draw.happens(0.2))


def _same(draw: Draw, type_: str) -> Operator:
    return same_shape(type_, *_map_size(draw))


def _upsample(draw: Draw) -> Operator:
    """Mostly by two, as decoders and feature pyramids do."""
    channels, side = _map_size(draw, 4, 64, 1024)
    factor = draw.one_of((2, 2, 2, 4))
    return from_to("upsample", (channels, side, side), (channels, factor * side, factor * side))


def _mean(draw: Draw) -> Operator:
    """Over channels, as spatial attention has it, or over rows."""
    channels, side = _map_size(draw)
    reduced = (1, side, side) if draw.happens(0.7) else (channels, 1, side)
    return from_to("mean", (channels, side, side), reduced)


def _tokens(draw: Draw) -> int:
    """Positions of a map of 4 to 32 pixels a side, flattened."""
    return int(draw.side(4, 32)) ** 2


def _scores(draw: Draw) -> Operator:
    """Queries times keys: every position by every other."""
    rows, heads, width = _tokens(draw), draw.one_of(_HEADS), draw.one_of(_HEAD_WIDTHS)
    return from_to("matmul", (heads * width, rows, 1), (heads * rows, rows, 1), groups=heads)


def _mixed(draw: Draw) -> Operator:
    """Weights times values."""
    rows, heads, width = _tokens(draw), draw.one_of(_HEADS), draw.one_of(_HEAD_WIDTHS)
    return from_to("matmul", (heads * rows, rows, 1), (heads * width, rows, 1), groups=heads)


def _attention(draw: Draw) -> Operator:
    rows, heads, width = _tokens(draw), draw.one_of(_HEADS), draw.one_of(_HEAD_WIDTHS)
    shape = (heads * width, rows, 1)
    return from_to("attention", shape, shape, groups=heads, kernel_height=rows, kernel_width=1)


def _convolution_1d(draw: Draw) -> Operator:
    """Along a line of samples: one row of a map."""
    length, kernel = round(draw.between(64, 4096)), draw.one_of((3, 3, 5, 7, 9))
    ins = max(4, draw.channels(min(1024, draw.between(15_000, 250_000) / length)))
    outs = max(4, draw.channels(min(1024, ins * draw.between(0.5, 2))))
    window = _window((1, kernel), 1, (0, kernel // 2)) | {"dilation": 1, "groups": 1}
    return from_to("conv2d", (ins, 1, length), (outs, 1, length), **window, parameters=ins * outs * kernel)


def _convolution_3d(draw: Draw) -> Operator:
    """Over depth, height and width; a row holds depth x height as height."""
    side, depth, kernel = draw.side(4, 56), draw.one_of((4, 8, 16)), draw.one_of((_POINT, _CUBE, _CUBE))
    ins = max(4, round(min(256, draw.between(200, 2000) / side) / 4) * 4)
    outs = max(4, round(ins * draw.between(0.5, 2) / 4) * 4)
    return conv_3d(ins, (depth, side, side), outs, kernel)


def _factored_3d(draw: Draw) -> Operator:
    """Over height and width or only over depth, and strided cubes, of widths that video CNNs have."""
    side, depth = draw.one_of((7, 14, 28, 56)), draw.one_of((4, 8, 16))
    kernel, stride = draw.one_of((((1, 3, 3), _POINT), ((3, 1, 1), _POINT), (_CUBE, (2, 2, 2))))
    ins = draw.one_of((16, 32, 64)) * max(1, 56 // side)
    return conv_3d(ins, (depth, side, side), ins * draw.one_of((1, 2)), kernel, stride)


def _transposed_3d(draw: Draw) -> Operator:
    side, ins = draw.one_of((4, 8, 16, 32)), draw.one_of((64, 128, 256))
    kernel = draw.one_of((2, 4))
    return conv_3d(ins, (side, side, side), ins // 2, (kernel, kernel, kernel), (2, 2, 2), transposed=True)


FAMILIES: dict[str, tuple[int, Make]] = {
    **{name: (family.count, partial(_convolution, family=family)) for name, family in _CONVOLUTIONS.items()},
    "transposed": (8, _transposed),
    "transposed vectors": (1, _transposed_vectors),
    "batch norm": (72, partial(_plain, type_="batch_norm", low=2, high=300)),
    "batch norm, small maps": (10, partial(_small_map, type_="batch_norm")),
    "batch norm, vectors": (4, partial(_vector, type_="batch_norm", low=64, high=4096)),
    "relu in place": (44, _activation("relu", in_place=True)),
    "relu in place, vectors": (9, _activation("relu", in_place=True, vectors=1)),
    "relu in place, small maps": (4, partial(_small_map, type_="activation", kind="relu", in_place=True)),
    "relu": (12, _activation("relu")),
    "silu in place": (24, _activation("silu", in_place=True)),
    "silu in place, vectors": (8, _activation("silu", in_place=True, vectors=1)),
    "silu": (5, _activation("silu")),
    "relu6 in place": (8, _activation("relu6", in_place=True)),
    "relu6 in place, small maps": (2, partial(_small_map, type_="activation", kind="relu6", in_place=True)),
    "leaky relu in place": (6, _activation("leaky_relu", in_place=True)),
    "hardswish in place": (11, _activation("hardswish", in_place=True, vectors=0.3)),
    "hardsigmoid": (7, _activation("hardsigmoid", vectors=0.85)),
    "sigmoid": (16, _activation("sigmoid", vectors=0.8)),
    "gelu": (14, _activation("gelu")),
    "tanh": (6, partial(_small, kind="tanh")),
    "softmax": (3, _activation("softmax", vectors=1)),
    "add": (32, partial(_plain, type_="add", low=4, wide=0.2)),
    "add of gradients": (32, partial(_plain, type_="add", low=4, passes="forward")),
    "add, small maps": (4, partial(_small_map, type_="add")),
    "add of gradients, small maps": (4, partial(_small_map, type_="add", passes="forward")),
    "multiply, small maps": (4, partial(_small_map, type_="multiply")),
    "multiply": (32, partial(_plain, type_="multiply", low=7)),
    "layer scale": (10, _layer_scale),
    "concat": (60, _concat),
    "concat, small maps": (6, _concat_small),
    "concat of gradients, small maps": (
        2,
        partial(_small_map, type_="concat", even=True, n_tensors=2, passes="forward"),
    ),
    "concat of gradients": (8, _concat_forward),
    "copy": (4, partial(_plain, type_="concat", low=7, high=64)),
    "layer norm": (16, partial(_plain, type_="layer_norm", low=7, high=64, wide=0.5)),
    "layer norm, vectors": (3, partial(_vector, type_="layer_norm", low=256, high=2048, wide_input=True)),
    "linear, vectors": (28, _linear_vectors),
    "linear, maps": (20, _linear_maps),
    "dropout": (6, partial(_plain, type_="dropout", low=2, high=40)),
    "dropout, vectors": (6, partial(_vector, type_="dropout", low=64, high=10_000)),
    "stochastic depth": (24, partial(_plain, type_="stochastic_depth", low=7, wide=0.3)),
    "stochastic depth, small maps": (3, partial(_small_map, type_="stochastic_depth")),
    "channel shuffle, small maps": (4, partial(_small_map, type_="permute", even=True, groups=2)),
    "channel shuffle": (16, _shuffle),
    "permute": (6, partial(_plain, type_="permute", low=7, high=64, wide=0.5)),
    "permute, vectors": (2, partial(_vector, type_="permute", low=512, high=2048, wide_input=True)),
    "max pool 2/2": (14, _pool("max_pool", 2, 2, low=2)),
    "max pool 3/2": (14, _pool("max_pool", 3, 2)),
    "max pool 3/2 padded": (9, _pool("max_pool", 3, 2, 1, 14, 240)),
    "max pool 3/2, small maps": (3, _pool("max_pool", 3, 2, 0, 3, 7)),
    "max pool 3/2 padded, small maps": (3, _pool("max_pool", 3, 2, 1, 2, 12)),
    "max pool 3/1": (9, _pool("max_pool", 3, 1, 1, 7, 60)),
    "average pool 2/2": (9, _pool("avg_pool", 2, 2)),
    "average pool 2/2, small maps": (2, _pool("avg_pool", 2, 2, 0, 2, 7)),
    "average pool 3/1": (7, _pool("avg_pool", 3, 1, 1, 7, 60)),
    "pool to the same size": (3, _pool("avg_pool", 1, 1, 0, 7, 14)),
    "pool to a larger size": (4, _pool_up),
    "global pool, small maps": (6, partial(_global_pool, low=1, high=3)),
    "global pool": (34, _global_pool),
    "loss": (6, _loss),
    "optimizer": (28, _optimizer),
    "group norm": (20, _group_norm),
    "interpolation": (12, _upsample),
    "clamp": (6, partial(_same, type_="clamp")),
    "roll": (6, partial(_same, type_="roll")),
    "mean": (8, _mean),
    "products of maps, to scores": (10, _scores),
    "products of maps, from scores": (6, _mixed),
    "attention": (16, _attention),
    "convolutions along a line": (12, _convolution_1d),
    "convolutions over depth": (12, _convolution_3d),
    "convolutions over depth, factored": (8, _factored_3d),
    "transposed over depth": (4, _transposed_3d),
}
"""Name of a family -> how many shapes of it the smallest library has, and how one is made from a draw."""


def _shapes(name: str, make: Make) -> Iterator[Operator]:
    """Endless shapes of a family."""
    for operator in filter(None, map(make, draws(name))):
        sizes = (operator.in_channels or 1, operator.in_height or 1, operator.in_width or 1)
        if sizes[0] * sizes[1] * sizes[2] <= _MOST_NUMBERS and operator.parameters <= 7e8:
            yield operator


COMMON_CNNS = ("resnet18", "resnet50", "vgg16", "mobilenet_v2")
"""CNNs whose convolutions `quick` has; ResNet-34, -101 and -152 and the other VGGs have the same ones."""

LIBRARY_CNNS = (*COMMON_CNNS, "densenet121", "inception_v3", "efficientnet_b0", "resnext50_32x4d")
"""CNNs whose convolutions `library` has."""


@lru_cache(maxsize=4)
def designed_operators(scale: float = 1.0) -> tuple[Operator, ...]:
    """Designed shapes, none of them a shape of a CNN of the zoo.

    `scale`: 1 for the smallest library; a larger one holds the shapes of every smaller one.
    """
    real = _real_shapes()
    shapes = (
        islice(_new(_shapes(name, make), real), round(count * scale))
        for name, (count, make) in FAMILIES.items()
    )
    return tuple(dict.fromkeys(chain.from_iterable(shapes)))  # families touch where small maps begin


def common_operators(cnns: tuple[str, ...] = COMMON_CNNS) -> tuple[Operator, ...]:
    """Distinct convolutions of named CNNs of the zoo at their usual image size."""
    found = chain.from_iterable(operators_of(zoo_cnn(name)) for name in cnns)
    return tuple(dict.fromkeys(operator for operator in found if operator.type == "conv2d"))


def same_work(operator: Operator) -> Operator:
    """Return the shape without flags that hardly change its time: operators that are equal here count as one shape."""
    if operator.type in ("optimizer", "loss"):
        return operator
    return replace(operator, parameters=0, input_gradient=True, in_place=False, wide_input=False)


def _new(shapes: Iterator[Operator], real: frozenset[Operator]) -> Iterator[Operator]:
    """Shapes that are neither a CNN's of the zoo nor repeated."""
    seen: set[Operator] = set()
    for operator in shapes:
        shape = same_work(operator)
        if shape not in real and shape not in seen:
            seen.add(shape)
            yield operator


@lru_cache(maxsize=1)
def _real_shapes() -> frozenset[Operator]:
    tables = map(zoo_cnn, zoo_names())
    return frozenset(same_work(operator) for table in tables for operator in operators_of(table))
