"""The designed convolutions: families of shapes, each spread evenly over its part of the space.

A family is one line: which kernels, how large its maps, how many channels, and how many shapes of it the
smallest library has. Convolutions get most of a library because their efficiency changes with every side of
their shape (which kernels cuDNN takes), while the rest is bound by bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from predictor.operators.operators import Operator
from proxy_cnns.operator_shapes import conv, conv_transpose
from proxy_cnns.spread import Draw, draws

__all__ = ["CONVOLUTION_FAMILIES", "ConvolutionFamily", "convolutions"]

Kernel = tuple[int, int]

_MOST_CHANNELS = 8192
_MOST_NUMBERS = 6_000_000  # of a map of one image
_MOST_WEIGHTS = 60_000_000


@dataclass(frozen=True, slots=True)
class ConvolutionFamily:
    """Shapes that cuDNN treats alike.

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

CONVOLUTION_FAMILIES: dict[str, ConvolutionFamily] = {
    "1x1": ConvolutionFamily(240, ((1, 1),), spans=(400, 60_000), ratios=_RATIOS_1X1, bias=0.12),
    "1x1 small maps": ConvolutionFamily(16, ((1, 1),), (1,), (2, 6), (128, 4096), _RATIOS_1X1),
    "1x1 single positions": ConvolutionFamily(8, ((1, 1),), (1,), (1, 1), (64, 2500), _RATIOS_1X1),
    "1x1 stride 2": ConvolutionFamily(28, ((1, 1),), (2,), (7, 130), (1200, 40_000), (0.8, 10)),
    "1x1 stride 2 small maps": ConvolutionFamily(3, ((1, 1),), (2,), (2, 6), (500, 5000), (0.8, 4)),
    "1x1 vectors": ConvolutionFamily(50, ((1, 1),), (1,), (1, 1), (4, 7500), (1 / 70, 70), bias=1),
    "3x3": ConvolutionFamily(
        110, ((3, 3),), (1,), (4, 230), (300, 16_000), (0.2, 5), bias=0.25, unpadded=0.1
    ),
    "3x3 small maps": ConvolutionFamily(12, ((3, 3),), (1,), (2, 4), (256, 2048), (0.5, 2)),
    "3x3 single positions": ConvolutionFamily(5, ((3, 3),), (1,), (1, 1), (64, 1024), (0.25, 2)),
    "3x3 stride 2 small maps": ConvolutionFamily(5, ((3, 3),), (2,), (2, 6), (400, 3000), (0.5, 2)),
    "3x3 stride 2": ConvolutionFamily(
        44, ((3, 3),), (2,), (7, 230), (600, 16_000), (0.5, 5), bias=0.1, unpadded=0.2
    ),
    "3x3 depthwise": ConvolutionFamily(56, ((3, 3),), (1,), (7, 240), (700, 55_000), group_widths=(1,)),
    "3x3 depthwise stride 2": ConvolutionFamily(
        32, ((3, 3),), (2,), (9, 260), (1000, 50_000), group_widths=(1,)
    ),
    "5x5 depthwise": ConvolutionFamily(34, ((5, 5),), (1,), (7, 80), (1500, 45_000), group_widths=(1,)),
    "5x5 depthwise stride 2": ConvolutionFamily(
        22, ((5, 5),), (2,), (12, 160), (2000, 45_000), group_widths=(1,)
    ),
    "7x7 depthwise": ConvolutionFamily(
        22, ((7, 7),), (1,), (7, 64), (3000, 16_000), group_widths=(1,), bias=0.8, wide=0.7
    ),
    "3x3 depthwise small maps": ConvolutionFamily(
        10, ((3, 3),), (1,), (1, 6), (100, 3000), group_widths=(1,)
    ),
    "3x3 depthwise stride 2 small maps": ConvolutionFamily(
        6, ((3, 3),), (2,), (2, 8), (150, 4000), group_widths=(1,)
    ),
    "5x5 depthwise small maps": ConvolutionFamily(8, ((5, 5),), (1,), (1, 6), (600, 4000), group_widths=(1,)),
    "5x5 depthwise stride 2 small maps": ConvolutionFamily(
        4, ((5, 5),), (2,), (2, 10), (800, 4000), group_widths=(1,)
    ),
    "large depthwise": ConvolutionFamily(
        6, ((9, 9), (11, 11)), (1,), (7, 56), (2000, 12_000), group_widths=(1,)
    ),
    "3x3 grouped": ConvolutionFamily(
        60, ((3, 3),), (1,), (7, 100), (1500, 60_000), group_widths=_GROUP_WIDTHS
    ),
    "3x3 grouped stride 2": ConvolutionFamily(
        52, ((3, 3),), (2,), (12, 200), (2500, 180_000), group_widths=_GROUP_WIDTHS
    ),
    "3x3 grouped small maps": ConvolutionFamily(
        6, ((3, 3),), (1, 1, 2), (1, 6), (700, 6000), group_widths=_GROUP_WIDTHS
    ),
    "asymmetric 7": ConvolutionFamily(20, ((1, 7), (7, 1)), (1,), (7, 40), (1200, 6000), (0.6, 2)),
    "asymmetric 3": ConvolutionFamily(14, ((1, 3), (3, 1)), (1,), (7, 40), (1200, 8000), (0.6, 2)),
    "5x5": ConvolutionFamily(18, ((5, 5),), (1,), (7, 60), (80, 4000), (0.5, 6), bias=0.5, unpadded=0.2),
    "7x7": ConvolutionFamily(5, ((7, 7),), (1, 2), (14, 120), (400, 3000), (0.5, 2)),
    "4x4": ConvolutionFamily(10, ((4, 4),), (2,), (8, 64), (800, 4000), (1, 3)),
    "4x4 to a vector": ConvolutionFamily(
        2, ((4, 4),), (1,), (4, 4), (800, 4000), (1 / 500, 1 / 4), unpadded=1
    ),
    "2x2 patches": ConvolutionFamily(
        14, ((2, 2),), (2,), (10, 72), (3000, 16_000), (1.5, 2.5), bias=1, wide=0.7
    ),
    "dilated": ConvolutionFamily(8, ((3, 3),), (1,), (14, 66), (4000, 20_000), (0.3, 1.5), dilations=(2, 4)),
    "stem 3x3": ConvolutionFamily(
        14, ((3, 3),), (1, 2, 2), (28, 420), (1, 1), channels=(3,), outputs=(16, 80), bias=0.2, unpadded=0.2
    ),
    "stem 5-11": ConvolutionFamily(
        8,
        ((5, 5), (7, 7), (11, 11)),
        (1, 2, 4),
        (28, 300),
        (1, 1),
        channels=(3,),
        outputs=(16, 100),
        bias=0.3,
    ),
    "stem 4x4": ConvolutionFamily(2, ((4, 4),), (2,), (32, 128), (1, 1), channels=(3,), outputs=(32, 128)),
    "stem patches": ConvolutionFamily(
        4, ((4, 4),), (4,), (96, 384), (1, 1), channels=(3,), outputs=(64, 220), bias=1
    ),
    "stem grey": ConvolutionFamily(
        4, ((3, 3), (5, 5)), (1,), (24, 64), (1, 1), channels=(1,), outputs=(6, 64), bias=1
    ),
}


def convolutions() -> Iterator[tuple[str, int, Iterator[Operator]]]:
    """Family by family: its name, how many shapes the smallest library takes, and its endless shapes."""
    for name, family in CONVOLUTION_FAMILIES.items():
        yield name, family.count, _shapes(name, family)
    yield "transposed", 8, _transposed()
    yield "transposed vectors", 1, _transposed_vectors()


def _shapes(name: str, family: ConvolutionFamily) -> Iterator[Operator]:
    for draw in draws(name):
        operator = _shape(draw, family)
        if operator is not None:
            yield operator


def _shape(draw: Draw, family: ConvolutionFamily) -> Operator | None:
    """Return the shape at one point of the space, or None where it is larger than CNNs are."""
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


def _grouped(draw: Draw, family: ConvolutionFamily, in_channels: int, wanted: float) -> tuple[int, int, int]:
    """Input channels, output channels and groups."""
    if not family.group_widths:
        return in_channels, draw.channels(wanted), 1
    width = draw.one_of(family.group_widths)
    groups = max(2, round(in_channels / width))
    return groups * width, groups * width, groups


def _usual(operator: Operator) -> bool:
    channels = (operator.in_channels or 0, operator.out_channels or 0)
    sides = ((operator.in_height or 0), (operator.out_height or 0))
    numbers = max(c * side * side for c, side in zip(channels, sides, strict=True))
    small_enough = max(channels) <= _MOST_CHANNELS and numbers <= _MOST_NUMBERS
    return (
        small_enough
        and operator.parameters <= _MOST_WEIGHTS
        and min(operator.out_height or 0, operator.out_width or 0) > 0
    )


def _transposed() -> Iterator[Operator]:
    """Upsampling, as generators do it."""
    for draw in draws("transposed"):
        side, kernel = draw.side(4, 64), draw.one_of((2, 4, 4))
        in_channels = draw.channels(draw.between(1000, 4000) / side)
        yield conv_transpose(in_channels, side, draw.channels(in_channels * draw.between(0.04, 1)), kernel, 2)


def _transposed_vectors() -> Iterator[Operator]:
    """First layer of a generator: a random vector becomes a small map."""
    for draw in draws("transposed vectors"):
        yield conv_transpose(
            draw.channels(draw.between(50, 200)), 1, draw.channels(draw.between(100, 1000)), 4, 1
        )
