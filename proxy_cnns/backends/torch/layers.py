"""Layers of a layer table, or operators, as the PyTorch modules that run them, and the whole CNN of a table.

Modules are PyTorch's own wherever it has one, since a CNN's host time is that of its modules, too.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

from predictor.cnns.layer_table import Layer, LayerTable
from predictor.operator_types import RECURRENT_TYPES
from predictor.operators.operators import Operator
from proxy_cnns.backends.graph import VECTOR, Functions, Graph
from proxy_cnns.backends.layers import DROPPED, Numbers, Volume, made


def layer_module(layer: Layer | Operator, device: str, in_place: bool = False, vector: bool = False) -> Any:
    """Make the module that runs a layer with a single input.

    `layer`: of any type but add, concat, permute, flatten, and multiply without parameters. `device`: where its
    parameters lie, with PyTorch's usual initialisation. `in_place`: whether an activation overwrites its input.
    `vector`: whether a batch norm reads vectors (batch, channels) rather than maps. SchemaError if the layer is of no
    type that can be run, lacks a number, or its output is not of the size it says.
    """
    return made(layer, _makers(device, in_place, vector), "PyTorch")


def network(table: LayerTable, device: str) -> Any:
    """Build the CNN of a layer table.

    `device`: ``cpu``, ``cuda:0``, ``meta``, ... It is in training mode. Its input is images (or the first layer's
    input), its output the last layer's output. Its parameters are in the table's order. SchemaError if the table holds
    a layer that cannot be run, or its layers do not fit together.
    """
    import torch

    def layer_function(layer: Layer, form: str, in_place: bool) -> Any:
        return layer_module(layer, device, in_place, vector=form == VECTOR)

    functions = Functions(
        layer_function,
        concat=lambda *maps: torch.cat(maps, 1),
        split=lambda x, sizes: x.split(sizes, 1),
        flatten=lambda x: x.flatten(1),
        to_map=lambda x: x.permute(0, 3, 1, 2),
        to_map_last=lambda x: x.permute(0, 2, 3, 1),
        shuffle=shuffle_channels,
    )
    graph = Graph(table, functions)
    module = torch.nn.Module()
    for step in graph.steps:
        if isinstance(step.function, torch.nn.Module):
            module.add_module(f"layer{step.layer}", step.function)
    module.graph = graph
    module.forward = partial(graph.run)
    return module


def exchange_layers(model: Any, exchange: Callable[[Any], Any]) -> None:
    """Put what `exchange` makes of each layer's module in its place, in a CNN of `network`."""
    import torch

    steps = model.graph.steps
    for position, step in enumerate(steps):
        if isinstance(step.function, torch.nn.Module):
            steps[position] = replace(step, function=exchange(step.function))
            model.add_module(f"layer{step.layer}", steps[position].function)


def shuffle_channels(x: Any, groups: int = 2) -> Any:
    """Channels of `groups` equal parts in turn (Zhang et al., arXiv:1707.01083): a copy, forward and backward."""
    n, channels, height, width = x.shape
    x = x.view(n, groups, channels // groups, height, width)
    return x.transpose(1, 2).contiguous().view(n, channels, height, width)


@cache
def _makers(device: str, in_place: bool, vector: bool) -> dict[str, Callable[[Numbers], Any]]:
    from torch import nn

    own = _own_modules()
    batch_norm = nn.BatchNorm1d if vector else nn.BatchNorm2d
    more: dict[str, Any] = {"inplace": True} if in_place else {}

    def convolution(kind: Any, n: Numbers, of: Numbers | Volume | None = None, **numbers: Any) -> Any:
        numbers |= {"dilation": n.dilation, "groups": n.groups, "bias": n.bias}
        return kind(*n.channels, *(of or n).window, **numbers, device=device)

    def transposed(kind: Any, n: Numbers, of: Numbers | Volume) -> Any:
        return convolution(kind, n, of, output_padding=of.output_padding)

    def max_pool(n: Numbers) -> Any:
        up = n.pool_rounds_up
        if up is None:
            return nn.AdaptiveMaxPool2d(n.out_size)
        return nn.MaxPool2d(*n.window, dilation=n.dilation, ceil_mode=up)

    def avg_pool(n: Numbers) -> Any:
        """Global where one pixel is left; else the window if it gives the output's size, else adaptive."""
        up = n.pool_rounds_up
        if up is None or n.out_size == (1, 1) or n.window[0] == (1, 1):
            return nn.AdaptiveAvgPool2d(n.out_size)
        return nn.AvgPool2d(*n.window, ceil_mode=up)

    def norm(kind: Any, n: Numbers, *numbers: int) -> Any:
        return kind(*numbers, n.in_channels, affine=n.layer.parameters > 0, device=device)

    def recurrent(kind: Any, n: Numbers) -> Any:
        hidden, is_bidirectional = n.out_channels // n.groups, n.groups == 2
        layer = kind(n.in_channels, hidden, batch_first=True, bidirectional=is_bidirectional, device=device)
        return own["outputs"](layer)

    def resized(mode: str, n: Numbers) -> Any:
        return nn.Upsample(size=n.out_size, mode=mode)

    def mean(n: Numbers) -> Any:
        axes = n.reduced_axes
        return own["of_function"](lambda x: x.mean(axes, keepdim=True))

    return {
        "conv2d": partial(convolution, nn.Conv2d),
        "conv_transpose2d": lambda n: transposed(nn.ConvTranspose2d, n, n),
        "conv3d": lambda n: convolution(nn.Conv3d, n, n.volume),
        "conv_transpose3d": lambda n: transposed(nn.ConvTranspose3d, n, n.volume),
        "linear": lambda n: nn.Linear(*n.channels, bias=n.bias, device=device),
        "batch_norm": lambda n: batch_norm(n.in_channels, device=device),
        "layer_norm": lambda n: nn.LayerNorm(n.in_channels, device=device),
        "group_norm": lambda n: norm(nn.GroupNorm, n, n.norm_groups),
        "instance_norm": partial(norm, nn.InstanceNorm2d),
        "activation": lambda n: n.activation(_activations())(**more),
        "max_pool": max_pool,
        "avg_pool": avg_pool,
        "multiply": lambda n: own["layer_scale"](n.layer.parameters, device),
        "prelu": lambda n: nn.PReLU(n.layer.parameters, device=device),
        "dropout": lambda n: nn.Dropout(DROPPED[n.layer.type]),
        "stochastic_depth": lambda n: own["stochastic_depth"](DROPPED[n.layer.type]),
        "pad": lambda n: nn.ZeroPad2d((*n.added[1], *n.added[0])),
        "upsample": partial(resized, "bilinear"),
        "upsample_nearest": partial(resized, "nearest"),
        "upsample_bicubic": partial(resized, "bicubic"),
        "upsample_antialias": lambda n: own["of_function"](
            partial(nn.functional.interpolate, size=n.out_size, mode="bilinear", antialias=True)
        ),
        "clamp": lambda _: own["of_function"](lambda x: x.clamp(-1, 1)),
        # by one pixel: no kernel's time depends on how far
        "roll": lambda _: own["of_function"](lambda x: x.roll((1, 1), (2, 3))),
        "mean": mean,
        **{name: partial(recurrent, getattr(nn, name.upper())) for name in RECURRENT_TYPES},
    }


@cache
def _activations() -> dict[str, Callable[..., Any]]:
    from torch import nn

    return {
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

    class Outputs(nn.Module):  # type: ignore[misc]
        """The outputs of a recurrent layer at all positions, without its last states."""

        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    return {
        "of_function": OfFunction, "layer_scale": LayerScale, "stochastic_depth": StochasticDepth, "outputs": Outputs
    }  # fmt: skip
