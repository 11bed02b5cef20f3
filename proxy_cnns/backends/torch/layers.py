"""One layer of a layer table, or one operator, as the PyTorch module that runs it.

Modules are PyTorch's own wherever it has one, since a CNN's host time is that of its modules, too.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from predictor.cnns.layer_table import Layer
from predictor.errors import SchemaError
from predictor.operators.operators import Operator, has_bias
from proxy_cnns.backends.common import (
    DROPPED,
    activation_of,
    check_convolution,
    check_size,
    maker_of,
    norm_groups,
    number,
    out_size,
    pool_rounds_up,
    reduced_sides,
    volume_of,
    window,
)

__all__ = ["layer_module"]


def layer_module(layer: Layer | Operator, device: str, in_place: bool = False, vector: bool = False) -> Any:
    """Make the module that runs a layer with a single input.

    Parameters
    ----------
    layer : Layer or Operator
        Of any type but add, concat, permute, flatten, and multiply without parameters.
    device : str
        Where its parameters lie, with PyTorch's usual initialisation.
    in_place : bool
        Whether an activation overwrites its input.
    vector : bool
        Whether a batch norm reads vectors (batch, channels) rather than maps.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    SchemaError
        If the layer is of no type that can be run, lacks a number, or its output is not of the size it says.
    """
    make = maker_of(layer, _MAKERS, "PyTorch")
    if layer.type == "activation":
        return _activation(layer, in_place)
    if layer.type == "batch_norm" and vector:
        return _torch().nn.BatchNorm1d(number(layer, "in_channels"), device=device)
    return make(layer, device)


def _convolution(layer: Layer | Operator, device: str) -> Any:
    check_convolution(layer)
    return _torch().nn.Conv2d(
        number(layer, "in_channels"),
        number(layer, "out_channels"),
        *window(layer),
        dilation=layer.dilation or 1,
        groups=layer.groups or 1,
        bias=has_bias(layer),
        device=device,
    )


def _transposed_convolution(layer: Layer | Operator, device: str) -> Any:
    """Rows and columns that the window does not say are its output padding."""
    numbers = window(layer)
    dilation, extra = layer.dilation or 1, []
    for part, kernel, stride, padding in zip(("height", "width"), *numbers, strict=True):
        size = (number(layer, f"in_{part}") - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1
        extra.append(number(layer, f"out_{part}") - size)
        if not 0 <= extra[-1] < max(stride, dilation):
            check_size(layer, part, size)
    return _torch().nn.ConvTranspose2d(
        number(layer, "in_channels"),
        number(layer, "out_channels"),
        *numbers,
        output_padding=tuple(extra),
        dilation=dilation,
        groups=layer.groups or 1,
        bias=has_bias(layer),
        device=device,
    )


def _linear(layer: Layer | Operator, device: str) -> Any:
    sizes = (number(layer, "in_channels"), number(layer, "out_channels"))
    return _torch().nn.Linear(*sizes, bias=has_bias(layer), device=device)


def _batch_norm(layer: Layer | Operator, device: str) -> Any:
    return _torch().nn.BatchNorm2d(number(layer, "in_channels"), device=device)


def _layer_norm(layer: Layer | Operator, device: str) -> Any:
    return _torch().nn.LayerNorm(number(layer, "in_channels"), device=device)


def _activation(layer: Layer | Operator, in_place: bool) -> Any:
    nn = _torch().nn
    kinds: dict[str, Callable[..., Any]] = {
        "relu": nn.ReLU,
        "relu6": nn.ReLU6,
        "leaky_relu": nn.LeakyReLU,
        "silu": nn.SiLU,
        "hardswish": nn.Hardswish,
        "gelu": nn.GELU,
        "hardsigmoid": nn.Hardsigmoid,
        "sigmoid": nn.Sigmoid,
        "tanh": nn.Tanh,
        "softmax": partial(nn.Softmax, dim=1),
    }
    make = activation_of(layer, kinds)
    return make(inplace=True) if in_place else make()


def _max_pool(layer: Layer | Operator, _device: str) -> Any:
    up = pool_rounds_up(layer)
    if up is None:
        return _torch().nn.AdaptiveMaxPool2d(out_size(layer))
    return _torch().nn.MaxPool2d(*window(layer), dilation=layer.dilation or 1, ceil_mode=up)


def _avg_pool(layer: Layer | Operator, _device: str) -> Any:
    """Global where one pixel is left; else the window if it gives the output's size, else adaptive."""
    up = pool_rounds_up(layer)
    if up is None or out_size(layer) == (1, 1) or window(layer)[0] == (1, 1):
        return _torch().nn.AdaptiveAvgPool2d(out_size(layer))
    return _torch().nn.AvgPool2d(*window(layer), ceil_mode=up)


def _dropout(layer: Layer | Operator, _device: str) -> Any:
    return _torch().nn.Dropout(DROPPED[layer.type])


def _stochastic_depth(layer: Layer | Operator, _device: str) -> Any:
    return _own_modules()["stochastic_depth"](DROPPED[layer.type])


def _layer_scale(layer: Layer | Operator, device: str) -> Any:
    if not layer.parameters:
        raise SchemaError(f"layer {layer.name!r} multiplies a single input, but has no parameters.")
    return _own_modules()["layer_scale"](layer.parameters, device)


def _group_norm(layer: Layer | Operator, device: str) -> Any:
    groups, channels = norm_groups(layer), number(layer, "in_channels")
    return _torch().nn.GroupNorm(groups, channels, affine=layer.parameters > 0, device=device)


def _upsample(layer: Layer | Operator, _device: str) -> Any:
    """Bilinear: a layer table does not say how values between pixels are found."""
    return _torch().nn.Upsample(size=out_size(layer), mode="bilinear")


def _clamp(_layer: Layer | Operator, _device: str) -> Any:
    return _own_modules()["of_function"](lambda x: x.clamp(-1, 1))


def _roll(_layer: Layer | Operator, _device: str) -> Any:
    """By one pixel: no kernel's time depends on how far."""
    return _own_modules()["of_function"](lambda x: x.roll((1, 1), (2, 3)))


def _mean(layer: Layer | Operator, _device: str) -> Any:
    dimensions = reduced_sides(layer)
    return _own_modules()["of_function"](lambda x: x.mean(dimensions, keepdim=True))


def _convolution_3d(layer: Layer | Operator, device: str) -> Any:
    volume = volume_of(layer)
    return _torch().nn.Conv3d(
        number(layer, "in_channels"),
        number(layer, "out_channels"),
        volume.kernel,
        volume.stride,
        volume.padding,
        groups=layer.groups or 1,
        bias=has_bias(layer),
        device=device,
    )


def _pad(layer: Layer | Operator, _device: str) -> Any:
    height, width = (
        number(layer, f"out_{part}") - number(layer, f"in_{part}") for part in ("height", "width")
    )
    return _torch().nn.ZeroPad2d((width // 2, width - width // 2, height // 2, height - height // 2))


_MAKERS: dict[str, Callable[..., Any]] = {
    "conv2d": _convolution,
    "conv_transpose2d": _transposed_convolution,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "activation": _activation,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "multiply": _layer_scale,
    "dropout": _dropout,
    "stochastic_depth": _stochastic_depth,
    "pad": _pad,
    "group_norm": _group_norm,
    "upsample": _upsample,
    "clamp": _clamp,
    "roll": _roll,
    "mean": _mean,
    "conv3d": _convolution_3d,
}


@cache
def _own_modules() -> dict[str, Any]:
    """Modules that PyTorch lacks; classes wait here because PyTorch is imported when it is used."""
    import torch
    from torch import nn

    class LayerScale(nn.Module):  # type: ignore[misc]
        """One learned factor for each channel."""

        def __init__(self, channels: int, device: str) -> None:
            super().__init__()
            self.factors = nn.Parameter(torch.ones(channels, 1, 1, device=device))

        def forward(self, x: Any) -> Any:
            return self.factors * x

    class StochasticDepth(nn.Module):  # type: ignore[misc]
        """Whole images of the mini-batch set to zero, the rest scaled up (Huang et al., arXiv:1603.09382)."""

        def __init__(self, probability: float) -> None:
            super().__init__()
            self.kept = 1 - probability

        def forward(self, x: Any) -> Any:
            if not self.training:
                return x
            noise = torch.empty((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype, device=x.device)
            return x * noise.bernoulli_(self.kept).div_(self.kept)

    class OfFunction(nn.Module):  # type: ignore[misc]
        """A function without parameters."""

        def __init__(self, function: Callable[[Any], Any]) -> None:
            super().__init__()
            self.function = function

        def forward(self, x: Any) -> Any:
            return self.function(x)

    return {"of_function": OfFunction, "layer_scale": LayerScale, "stochastic_depth": StochasticDepth}


def _torch() -> Any:
    import torch

    return torch
