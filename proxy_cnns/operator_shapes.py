"""Operators from the few numbers that describe them; output sizes and parameters follow. Maps are square."""

from dataclasses import replace
from typing import Any

from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.operators import Operator

__all__ = ["adaptive_pool", "conv", "conv_transpose", "from_to", "linear", "optimizer", "pool", "same_shape"]


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
    padding = [dilation * (k - 1) // 2 * (padded and k != stride) for k in kernel]
    height, width = (
        (side + 2 * p - dilation * (k - 1) - 1) // stride + 1 for k, p in zip(kernel, padding, strict=True)
    )
    shape = _map("in", in_channels, side) | {
        "out_channels": out_channels,
        "out_height": height,
        "out_width": width,
    }
    weights = in_channels // groups * out_channels * kernel[0] * kernel[1]
    return Operator(
        "conv2d",
        **shape,
        **_window(kernel, stride, (padding[0], padding[1])),
        dilation=dilation,
        groups=groups,
        parameters=weights + bias * out_channels,
        input_gradient=not first,
        wide_input=wide or first,
    )


def conv_transpose(in_channels: int, side: int, out_channels: int, kernel: int, stride: int) -> Operator:
    """Transposed convolution that multiplies the size by its stride; from a vector (side 1), the CNN's first layer.

    kernel - stride must be even, but for a vector's.
    """
    first = side == 1
    padding = 0 if first else (kernel - stride) // 2
    return Operator(
        "conv_transpose2d",
        **_map("in", in_channels, side),
        **_map("out", out_channels, (side - 1) * stride - 2 * padding + kernel),
        **_window((kernel, kernel), stride, (padding, padding)),
        dilation=1,
        groups=1,
        parameters=in_channels * out_channels * kernel * kernel,
        input_gradient=not first,
        wide_input=first,
    )


def linear(in_channels: int, out_channels: int, side: int = 1, wide: bool = False) -> Operator:
    """Linear layer with bias over the channels, at each position of a map; side 1: on vectors."""
    return Operator(
        "linear",
        **_map("in", in_channels, side),
        **_map("out", out_channels, side),
        parameters=in_channels * out_channels + out_channels,
        wide_input=wide,
    )


def pool(type_: str, channels: int, side: int, kernel: int, stride: int, padding: int = 0) -> Operator:
    """``max_pool`` or ``avg_pool``; a global one has kernel = stride = side."""
    out = (side + 2 * padding - kernel) // stride + 1
    return _pool(type_, channels, side, out, kernel, stride, padding)


def adaptive_pool(channels: int, side: int, out: int) -> Operator:
    """``avg_pool`` to a fixed size, which may be larger than its input; kernel and stride as in layer tables."""
    return _pool("avg_pool", channels, side, out, -(-side // out), side // out, 0)


def same_shape(type_: str, channels: int, side: int, **more: Any) -> Operator:
    """Operator whose output has the shape of its input: norms, activations, sums, products, concats."""
    parameters = 2 * channels if OPERATOR_TYPES[type_].weights == "scale_and_shift" else 0
    shapes = _map("in", channels, side) | _map("out", channels, side)
    return replace(Operator(type_, **shapes, parameters=parameters), **more)


def from_to(type_: str, of: tuple[int, int, int], to: tuple[int, int, int], **more: Any) -> Operator:
    """Operator from one shape (channels, height, width) to another."""
    parts = ("channels", "height", "width")
    shape: dict[str, Any] = {
        f"{side}_{part}": size
        for side, sizes in (("in", of), ("out", to))
        for part, size in zip(parts, sizes, strict=True)
    }
    return Operator(type_, **shape, **more)


def optimizer(n_tensors: int, parameters: int) -> Operator:
    """Update of `n_tensors` tensors with `parameters` numbers in all."""
    return Operator("optimizer", n_tensors=n_tensors, parameters=parameters)


def _pool(type_: str, channels: int, side: int, out: int, kernel: int, stride: int, padding: int) -> Operator:
    return Operator(
        type_,
        **_map("in", channels, side),
        **_map("out", channels, out),
        **_window((kernel, kernel), stride, (padding, padding)),
    )


def _map(side_of: str, channels: int, side: int) -> dict[str, Any]:
    return {f"{side_of}_channels": channels, f"{side_of}_height": side, f"{side_of}_width": side}


def _window(kernel: tuple[int, int], stride: int, padding: tuple[int, int]) -> dict[str, Any]:
    return {
        "kernel_height": kernel[0],
        "kernel_width": kernel[1],
        "stride_height": stride,
        "stride_width": stride,
        "padding_height": padding[0],
        "padding_width": padding[1],
    }
