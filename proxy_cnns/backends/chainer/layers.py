"""One layer of a layer table, or one operator, as the Chainer link or function that runs it.

Chainer must be installed before (`chainer_compat.install`). Where Chainer has no function of its own (GELU,
hard swish, stochastic depth), it is put together from Chainer's, as Chainer's users do; nothing runs in
place, as Chainer does nothing in place.
"""

from collections.abc import Callable
from functools import partial
from math import sqrt
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

__all__ = ["layer_function", "shuffle_channels"]

_SIDES = ("height", "width")


def layer_function(layer: Layer | Operator, *, positionwise: bool = False) -> Callable[[Any], Any]:
    """Make what runs a layer with a single input: a `chainer.Link` where it has parameters, else a function.

    Parameters
    ----------
    layer : Layer or Operator
        Of any type but add, concat, permute, flatten, and multiply without parameters.
    positionwise : bool
        Whether a linear layer reads maps with channels last, rather than vectors.

    Returns
    -------
    callable
        A link's parameters are on the CPU, of the type that `chainer.config.dtype` says.

    Raises
    ------
    SchemaError
        If Chainer has nothing that runs the layer, or its output is not of the size it says.
    """
    make = maker_of(layer, _MAKERS, "Chainer")
    function: Callable[[Any], Any] = make(layer)
    return _at_each_position(function) if positionwise and layer.type == "linear" else function


def shuffle_channels(x: Any, groups: int = 2) -> Any:
    """Channels of `groups` equal parts in turn (Zhang et al., arXiv:1707.01083)."""
    import chainer.functions as F  # noqa: N812

    n, channels, height, width = x.shape
    parts = F.reshape(x, (n, groups, channels // groups, height, width))
    return F.reshape(F.transpose(parts, (0, 2, 1, 3, 4)), x.shape)


def _convolution(layer: Layer | Operator) -> Any:
    import chainer.links as L  # noqa: N812

    check_convolution(layer)
    return L.Convolution2D(
        number(layer, "in_channels"),
        number(layer, "out_channels"),
        *window(layer),
        nobias=not has_bias(layer),
        dilate=layer.dilation or 1,
        groups=layer.groups or 1,
    )


def _transposed_convolution(layer: Layer | Operator) -> Any:
    import chainer.links as L  # noqa: N812

    return L.Deconvolution2D(
        number(layer, "in_channels"),
        number(layer, "out_channels"),
        *window(layer),
        nobias=not has_bias(layer),
        outsize=out_size(layer),
        dilate=layer.dilation or 1,
        groups=layer.groups or 1,
    )


def _linear(layer: Layer | Operator) -> Any:
    import chainer.links as L  # noqa: N812

    sizes = (number(layer, "in_channels"), number(layer, "out_channels"))
    return L.Linear(*sizes, nobias=not has_bias(layer))


def _layer_norm(layer: Layer | Operator) -> Any:
    import chainer.links as L  # noqa: N812

    return _at_each_position(L.LayerNormalization(number(layer, "in_channels")))


def _batch_norm(layer: Layer | Operator) -> Any:
    import chainer.links as L  # noqa: N812

    return L.BatchNormalization(number(layer, "in_channels"))


def _activation(layer: Layer | Operator) -> Callable[[Any], Any]:
    import chainer.functions as F  # noqa: N812

    kinds: dict[str, Callable[[Any], Any]] = {
        "relu": F.relu,
        "relu6": F.relu6,
        "leaky_relu": partial(F.leaky_relu, slope=0.01),
        "silu": lambda x: x * F.sigmoid(x),
        "gelu": lambda x: 0.5 * x * (1 + F.erf(x / sqrt(2))),
        "hardswish": lambda x: x * F.relu6(x + 3) / 6,
        "hardsigmoid": lambda x: F.relu6(x + 3) / 6,
        "sigmoid": F.sigmoid,
        "tanh": F.tanh,
        "softmax": F.softmax,
    }
    return activation_of(layer, kinds)


def _max_pool(layer: Layer | Operator) -> Callable[[Any], Any]:
    """Chainer rounds the size up in its own way (``cover_all``), which is checked."""
    import chainer.functions as F  # noqa: N812

    if (layer.dilation or 1) != 1:
        raise SchemaError(
            f"layer {layer.name!r} pools with dilation {layer.dilation}: Chainer has dilation 1."
        )
    up = pool_rounds_up(layer)
    if up is None:
        return partial(F.max_pooling_2d, **_even_window(layer), cover_all=False)
    kernel, stride, padding = window(layer)
    for part, k, s, p in zip(_SIDES, kernel, stride, padding, strict=True):
        check_size(layer, part, (number(layer, f"in_{part}") + 2 * p - k + up * (s - 1)) // s + 1)
    return partial(F.max_pooling_2d, ksize=kernel, stride=stride, pad=padding, cover_all=up)


def _avg_pool(layer: Layer | Operator) -> Callable[[Any], Any]:
    import chainer.functions as F  # noqa: N812

    up = pool_rounds_up(layer)
    if up is None:
        if (layer.in_height, layer.in_width) == (1, 1):
            return partial(_repeated, size=out_size(layer))
        return partial(F.average_pooling_2d, **_even_window(layer))
    if up:
        raise SchemaError(f"layer {layer.name!r} averages with its size rounded up, which Chainer cannot.")
    kernel, stride, padding = window(layer)
    return partial(F.average_pooling_2d, ksize=kernel, stride=stride, pad=padding)


def _even_window(layer: Layer | Operator) -> dict[str, tuple[int, int]]:
    """Window of an adaptive pool whose input is a multiple of its output; Chainer has no other."""
    inputs = (number(layer, "in_height"), number(layer, "in_width"))
    outputs = out_size(layer)
    if any(size % out for size, out in zip(inputs, outputs, strict=True)):
        raise SchemaError(
            f"layer {layer.name!r} pools {inputs} adaptively to {outputs}: Chainer pools so only where the input "
            "is a multiple of the output. Choose another image size."
        )
    sides = (inputs[0] // outputs[0], inputs[1] // outputs[1])
    return {"ksize": sides, "stride": sides}


def _dropout(layer: Layer | Operator) -> Callable[[Any], Any]:
    import chainer.functions as F  # noqa: N812

    return partial(F.dropout, ratio=DROPPED[layer.type])


def _stochastic_depth(layer: Layer | Operator) -> Callable[[Any], Any]:
    return partial(_drop_images, kept=1 - DROPPED[layer.type])


def _layer_scale(layer: Layer | Operator) -> Any:
    import chainer.links as L  # noqa: N812

    if not layer.parameters:
        raise SchemaError(f"layer {layer.name!r} multiplies a single input, but has no parameters.")
    return L.Scale(axis=1, W_shape=(layer.parameters,))


def _group_norm(layer: Layer | Operator) -> Any:
    import chainer.links as L  # noqa: N812

    if not layer.parameters:
        raise SchemaError(
            f"layer {layer.name!r} is a group norm without parameters, which Chainer does not have."
        )
    return L.GroupNormalization(norm_groups(layer), number(layer, "in_channels"))


def _upsample(layer: Layer | Operator) -> Callable[[Any], Any]:
    """Bilinear: a layer table does not say how values between pixels are found."""
    import chainer.functions as F  # noqa: N812

    return partial(F.resize_images, output_shape=out_size(layer), align_corners=False)


def _clamp(_layer: Layer | Operator) -> Callable[[Any], Any]:
    import chainer.functions as F  # noqa: N812

    return partial(F.clip, x_min=-1.0, x_max=1.0)


def _mean(layer: Layer | Operator) -> Callable[[Any], Any]:
    import chainer.functions as F  # noqa: N812

    return partial(F.mean, axis=reduced_sides(layer), keepdims=True)


def _convolution_3d(layer: Layer | Operator) -> Any:
    import chainer.links as L  # noqa: N812

    volume = volume_of(layer)
    return L.Convolution3D(
        number(layer, "in_channels"),
        number(layer, "out_channels"),
        volume.kernel,
        volume.stride,
        volume.padding,
        nobias=not has_bias(layer),
        groups=layer.groups or 1,
    )


def _pad(layer: Layer | Operator) -> Callable[[Any], Any]:
    import chainer.functions as F  # noqa: N812

    more = [number(layer, f"out_{part}") - number(layer, f"in_{part}") for part in _SIDES]
    width = ((0, 0), (0, 0), *((each // 2, each - each // 2) for each in more))
    return partial(F.pad, pad_width=width, mode="constant")


_MAKERS: dict[str, Callable[[Layer | Operator], Any]] = {
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
    "mean": _mean,
    "conv3d": _convolution_3d,
}


def _at_each_position(link: Any) -> Any:
    """Make a chain that runs a link of vectors on each position of (batch, height, width, channels)."""
    import chainer
    import chainer.functions as F  # noqa: N812

    class Positionwise(chainer.Chain):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            y = link(F.reshape(x, (-1, x.shape[-1])))
            return F.reshape(y, (*x.shape[:-1], y.shape[-1]))

    chain = Positionwise()
    chain.add_link("of", link)
    return chain


def _drop_images(x: Any, kept: float) -> Any:
    """Set whole images to zero, and scale the rest up (Huang et al., arXiv:1603.09382)."""
    import chainer

    if not chainer.config.train:
        return x
    xp = x.xp
    draws = xp.random.rand(x.shape[0], *[1] * (x.ndim - 1))
    factors = ((draws < kept) / kept).astype(x.dtype)
    return x * xp.broadcast_to(factors, x.shape)


def _repeated(x: Any, size: tuple[int, int]) -> Any:
    """Repeat one pixel: what adaptive pooling makes of a single one."""
    import chainer.functions as F  # noqa: N812

    return F.broadcast_to(x, (*x.shape[:2], *size))
