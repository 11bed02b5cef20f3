"""One layer of a layer table as PyTorch runs it: a module where it learns, else a function.

Called by `torch_network` for whole CNNs and by `torch_operators` for one layer alone, so that both run the same
kernels. torch is imported inside the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from predictor.errors import SchemaError
from predictor.layers import Layer
from predictor.operators import Operator

__all__ = ["DROPOUT", "STOCHASTIC_DEPTH", "layer_callable"]

DROPOUT, STOCHASTIC_DEPTH = 0.5, 0.1
"""Probabilities to drop; the layer table does not keep them, and the time does not depend on them."""

Shape = Layer | Operator


def layer_callable(shape: Shape, *, in_place: bool) -> Any:
    """Make what runs a layer: called with its inputs, gives its output.

    Parameters
    ----------
    shape : Layer or Operator
        With all columns of its type.
    in_place : bool
        Whether an activation overwrites its input.

    Raises
    ------
    SchemaError
        If PyTorch has no such layer, or a column is missing; the message names the layer.
    """
    if shape.type == "activation":
        return _activation(shape, in_place=in_place)
    if shape.type not in _MAKERS:
        raise SchemaError(
            f"layer {shape.name!r} is of type {shape.type!r}, which the PyTorch backend cannot build. "
            f"It builds {', '.join(sorted((*_MAKERS, 'activation')))}. Profile the module itself "
            "(cnn:FILE.py:make_model)."
        )
    return _MAKERS[shape.type](shape)


def _need(shape: Shape, *columns: str) -> list[int]:
    found = [getattr(shape, column) for column in columns]
    for column, value in zip(columns, found, strict=True):
        if value is None:
            raise SchemaError(
                f"layer {shape.name!r} ({shape.type}) has no {column}. Give its layer table in full."
            )
    return found


def _pair(shape: Shape, what: str) -> tuple[int, int]:
    high, wide = _need(shape, f"{what}_height", f"{what}_width")
    return high, wide


def _convolution(shape: Shape) -> Any:
    from torch import nn

    inputs, outputs = _need(shape, "in_channels", "out_channels")
    groups, kernel = shape.groups or 1, _pair(shape, "kernel")
    weights = inputs // groups * outputs * kernel[0] * kernel[1]
    return nn.Conv2d(
        inputs,
        outputs,
        kernel,
        _pair(shape, "stride"),
        _pair(shape, "padding"),
        shape.dilation or 1,
        groups,
        bias=shape.parameters > weights,
    )


def _transposed(shape: Shape) -> Any:
    from torch import nn

    inputs, outputs = _need(shape, "in_channels", "out_channels")
    kernel, stride, padding = (_pair(shape, what) for what in ("kernel", "stride", "padding"))
    least = [
        (size - 1) * step - 2 * pad + side
        for size, step, pad, side in zip(_pair(shape, "in"), stride, padding, kernel, strict=True)
    ]
    high, wide = (size - own for size, own in zip(_pair(shape, "out"), least, strict=True))
    groups = shape.groups or 1
    weights = inputs * outputs // groups * kernel[0] * kernel[1]
    return nn.ConvTranspose2d(
        inputs, outputs, kernel, stride, padding, (high, wide), groups, bias=shape.parameters > weights
    )


def _linear(shape: Shape) -> Any:
    from torch import nn

    class Linear(nn.Linear):
        """Takes what a global pooling left as (n, c, 1, 1), too."""

        def forward(self, x: Any) -> Any:
            return super().forward(x if x.shape[-1] == self.in_features else x.flatten(1))

    inputs, outputs = _need(shape, "in_channels", "out_channels")
    return Linear(inputs, outputs, bias=shape.parameters > inputs * outputs)


def _batch_norm(shape: Shape) -> Any:
    from torch import nn

    return nn.BatchNorm2d(_need(shape, "in_channels")[0], affine=shape.parameters > 0)


def _layer_norm(shape: Shape) -> Any:
    from torch import nn

    return nn.LayerNorm(_need(shape, "in_channels")[0], elementwise_affine=shape.parameters > 0)


def _activation(shape: Shape, *, in_place: bool) -> Any:
    from torch.nn import functional

    kinds: dict[str | None, Callable[[Any], Any]] = {
        "relu": lambda x: functional.relu(x, inplace=in_place),
        "relu6": lambda x: functional.relu6(x, inplace=in_place),
        "leaky_relu": lambda x: functional.leaky_relu(x, 0.2, inplace=in_place),
        "silu": lambda x: functional.silu(x, inplace=in_place),
        "hardswish": lambda x: functional.hardswish(x, inplace=in_place),
        "gelu": functional.gelu,
        "hardsigmoid": functional.hardsigmoid,
        "sigmoid": lambda x: x.sigmoid(),
        "tanh": lambda x: x.tanh(),
        "softmax": lambda x: functional.softmax(x, 1),
    }
    if shape.kind not in kinds:
        raise SchemaError(f"layer {shape.name!r} has the activation {shape.kind!r}, which is not known here.")
    return kinds[shape.kind]


def _max_pool(shape: Shape) -> Any:
    from torch.nn import functional

    kernel, stride, padding = (_pair(shape, what) for what in ("kernel", "stride", "padding"))
    size, wanted = _pair(shape, "in"), _pair(shape, "out")
    floor = tuple((n + 2 * p - k) // s + 1 for n, p, k, s in zip(size, padding, kernel, stride, strict=True))
    return lambda x: functional.max_pool2d(x, kernel, stride, padding, ceil_mode=floor != wanted)


def _avg_pool(shape: Shape) -> Any:
    """A global or an adaptive pooling runs as such: its kernel is its input, or has no padding and stride 1."""
    from torch.nn import functional

    kernel, stride, padding = (_pair(shape, what) for what in ("kernel", "stride", "padding"))
    wanted = _pair(shape, "out")
    if kernel == _pair(shape, "in") or kernel == (1, 1):
        return lambda x: functional.adaptive_avg_pool2d(x, wanted)
    return lambda x: functional.avg_pool2d(x, kernel, stride, padding)


def _multiply(shape: Shape) -> Any:
    """Two tensors, or one by a learned factor for each channel."""
    if not shape.parameters:
        return lambda one, other: one * other
    import torch
    from torch import nn

    class LayerScale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.full((shape.parameters, 1, 1), 1e-2))

        def forward(self, x: Any) -> Any:
            return self.factor * x

    return LayerScale()


def _concat(_: Shape) -> Any:
    import torch

    return lambda *tensors: torch.cat(tensors, 1)


def _dropout(_: Shape) -> Any:
    from torch.nn import functional

    return lambda x: functional.dropout(x, DROPOUT, training=True)


def _stochastic_depth(_: Shape) -> Any:
    """Each image of the mini-batch is kept or dropped as a whole, and the kept ones scaled."""

    def run(x: Any) -> Any:
        kept = x.new_empty([x.shape[0]] + [1] * (x.ndim - 1)).bernoulli_(1 - STOCHASTIC_DEPTH)
        return x * kept.div_(1 - STOCHASTIC_DEPTH)

    return run


def _permute(shape: Shape) -> Any:
    """A channel shuffle where `groups` says so, else channels to the last dimension, in memory too."""
    if not shape.groups:
        return lambda x: x.permute(0, 2, 3, 1).contiguous()
    groups = shape.groups

    def shuffle(x: Any) -> Any:
        batch, channels, high, wide = x.shape
        parts = x.view(batch, groups, channels // groups, high, wide)
        return parts.transpose(1, 2).contiguous().view(batch, channels, high, wide)

    return shuffle


def _pad(shape: Shape) -> Any:
    from torch.nn import functional

    high, wide = _pair(shape, "in")
    more_high, more_wide = (out - own for out, own in zip(_pair(shape, "out"), (high, wide), strict=True))
    top, left = more_high // 2, more_wide // 2
    return lambda x: functional.pad(x, (left, more_wide - left, top, more_high - top))


_MAKERS: dict[str, Callable[[Shape], Any]] = {
    "conv2d": _convolution,
    "conv_transpose2d": _transposed,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "add": lambda _: lambda one, other: one + other,
    "multiply": _multiply,
    "concat": _concat,
    "dropout": _dropout,
    "stochastic_depth": _stochastic_depth,
    "permute": _permute,
    "pad": _pad,
    "flatten": lambda _: lambda x: x.flatten(1),
}
