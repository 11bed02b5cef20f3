"""One layer of a layer table, or one operator, as the PyTorch module that runs it.

Modules are PyTorch's own wherever it has one, since a CNN's host time is that of its modules, too.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from predictor.cnns.layer_table import Layer
from predictor.operator_types import RECURRENT_TYPES
from predictor.operators.operators import Operator
from proxy_cnns.backends.layers import DROPPED, Numbers, made


def layer_module(layer: Layer | Operator, device: str, in_place: bool = False, vector: bool = False) -> Any:
    """Make the module that runs a layer with a single input.

    `layer`: of any type but add, concat, permute, flatten, and multiply without parameters. `device`: where its
    parameters lie, with PyTorch's usual initialisation. `in_place`: whether an activation overwrites its input.
    `vector`: whether a batch norm reads vectors (batch, channels) rather than maps. SchemaError if the layer is of no
    type that can be run, lacks a number, or its output is not of the size it says.
    """
    return made(layer, _makers(device, in_place, vector), "PyTorch")


@cache
def _makers(device: str, in_place: bool, vector: bool) -> dict[str, Callable[[Numbers], Any]]:
    from torch import nn

    own = _own_modules()
    batch_norm = nn.BatchNorm1d if vector else nn.BatchNorm2d
    more: dict[str, Any] = {"inplace": True} if in_place else {}

    def convolution(kind: Any, n: Numbers, **numbers: Any) -> Any:
        numbers |= {"dilation": n.dilation, "groups": n.groups, "bias": n.bias}
        return kind(*n.channels, *n.window, **numbers, device=device)

    def convolution_3d(kind: Any, n: Numbers, **more: Any) -> Any:
        volume = n.volume
        more |= {"dilation": n.dilation, "groups": n.groups, "bias": n.bias}
        return kind(*n.channels, volume.kernel, volume.stride, volume.padding, **more, device=device)

    def transposed_3d(n: Numbers) -> Any:
        return convolution_3d(nn.ConvTranspose3d, n, output_padding=n.volume.output_padding)

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

    def group_norm(n: Numbers) -> Any:
        return nn.GroupNorm(n.norm_groups, n.in_channels, affine=n.layer.parameters > 0, device=device)

    def pad(n: Numbers) -> Any:
        rows, columns = n.added
        return nn.ZeroPad2d((*columns, *rows))

    def recurrent(kind: Any, n: Numbers) -> Any:
        hidden, is_bidirectional = n.out_channels // n.groups, n.groups == 2
        layer = kind(n.in_channels, hidden, batch_first=True, bidirectional=is_bidirectional, device=device)
        return own["outputs"](layer)

    def mean(n: Numbers) -> Any:
        axes = n.reduced_axes
        return own["of_function"](lambda x: x.mean(axes, keepdim=True))

    return {
        "conv2d": partial(convolution, nn.Conv2d),
        "conv_transpose2d": lambda n: convolution(nn.ConvTranspose2d, n, output_padding=n.output_padding),
        "conv3d": partial(convolution_3d, nn.Conv3d),
        "conv_transpose3d": transposed_3d,
        "linear": lambda n: nn.Linear(*n.channels, bias=n.bias, device=device),
        "batch_norm": lambda n: batch_norm(n.in_channels, device=device),
        "layer_norm": lambda n: nn.LayerNorm(n.in_channels, device=device),
        "group_norm": group_norm,
        "instance_norm": lambda n: nn.InstanceNorm2d(
            n.in_channels, affine=n.layer.parameters > 0, device=device
        ),
        "activation": lambda n: n.activation(_activations())(**more),
        "max_pool": max_pool,
        "avg_pool": avg_pool,
        "multiply": lambda n: own["layer_scale"](n.layer.parameters, device),
        "prelu": lambda n: nn.PReLU(n.layer.parameters, device=device),
        "dropout": lambda n: nn.Dropout(DROPPED[n.layer.type]),
        "stochastic_depth": lambda n: own["stochastic_depth"](DROPPED[n.layer.type]),
        "pad": pad,
        # bilinear: a layer table does not say how values between pixels are found
        "upsample": lambda n: nn.Upsample(size=n.out_size, mode="bilinear"),
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

    own = (OfFunction, LayerScale, StochasticDepth, Outputs)
    return dict(zip(("of_function", "layer_scale", "stochastic_depth", "outputs"), own, strict=True))
