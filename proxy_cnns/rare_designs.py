"""Designed shapes of the operators that few CNNs have: group norms, interpolation, products of maps, 1-d and 3-d."""

from collections.abc import Callable
from functools import partial

from predictor.operators.operators import Operator
from proxy_cnns.operator_shapes import from_to, same_shape
from proxy_cnns.spread import Draw

__all__ = ["RARE_FAMILIES"]

Make = Callable[[Draw], Operator]

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
    return from_to(
        "conv2d",
        (ins, 1, length),
        (outs, 1, length),
        **_window(1, kernel),
        dilation=1,
        groups=1,
        parameters=ins * outs * kernel,
    )


def _convolution_3d(draw: Draw) -> Operator:
    """Over depth, height and width; a row holds depth x height as height."""
    side, depth, kernel = draw.side(4, 56), draw.one_of((4, 8, 16)), draw.one_of((1, 3, 3))
    ins = max(4, round(min(256, draw.between(200, 2000) / side) / 4) * 4)
    outs = max(4, round(ins * draw.between(0.5, 2) / 4) * 4)
    window = _window(kernel * kernel, kernel) | {"padding_height": None}
    return from_to(
        "conv3d",
        (ins, depth * side, side),
        (outs, depth * side, side),
        **window,
        groups=1,
        parameters=ins * outs * kernel**3,
    )


def _window(height: int, width: int) -> dict[str, int | None]:
    """Of stride 1, padded to keep the size."""
    return {
        "kernel_height": height,
        "kernel_width": width,
        "stride_height": 1,
        "stride_width": 1,
        "padding_height": 0,
        "padding_width": width // 2,
    }


RARE_FAMILIES: dict[str, tuple[int, Make]] = {
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
}
"""Name of a family -> how many shapes of it the smallest library has, and how one is made from a draw."""
