"""One layer of a layer table, or one operator, as the Chainer link or function that runs it.

Chainer must be installed before (`chainer_compat.install`). Where Chainer has no function of its own (GELU,
hard swish, stochastic depth), it is put together from Chainer's, as Chainer's users do; nothing runs in
place, as Chainer does nothing in place.
"""

from collections.abc import Callable
from functools import cache, partial
from math import sqrt
from typing import Any

from predictor.cnns.layer_table import Layer
from predictor.errors import SchemaError
from predictor.operators.operators import Operator
from proxy_cnns.backends.layers import DROPPED, Numbers, Volume, made


def layer_function(layer: Layer | Operator, *, positionwise: bool = False) -> Callable[[Any], Any]:
    """Make what runs a layer with a single input: a `chainer.Link` where it has parameters, else a function.

    `layer`: of any type but add, concat, permute, flatten, and multiply without parameters. `positionwise`: whether a
    linear layer reads maps with channels last, rather than vectors. A link's parameters are on the CPU, of the type
    that `chainer.config.dtype` says. SchemaError if Chainer has nothing that runs the layer, or its output is not of
    the size it says.
    """
    function: Callable[[Any], Any] = made(layer, _makers(), "Chainer")
    return _at_each_position(function) if positionwise and layer.type == "linear" else function


def shuffle_channels(x: Any, groups: int = 2) -> Any:
    """Channels of `groups` equal parts in turn (Zhang et al., arXiv:1707.01083)."""
    import chainer.functions as F  # noqa: N812

    n, channels, height, width = x.shape
    parts = F.reshape(x, (n, groups, channels // groups, height, width))
    return F.reshape(F.transpose(parts, (0, 2, 1, 3, 4)), x.shape)


@cache
def _makers() -> dict[str, Callable[[Numbers], Any]]:
    import chainer.functions as F  # noqa: N812
    import chainer.links as L  # noqa: N812

    def convolution(kind: Any, n: Numbers, of: Numbers | Volume | None = None, **numbers: Any) -> Any:
        numbers |= {"nobias": not n.bias, "dilate": n.dilation, "groups": n.groups}
        return kind(*n.channels, *(of or n).window, **numbers)

    def transposed(kind: Any, n: Numbers, of: Numbers | Volume) -> Any:
        return convolution(kind, n, of, outsize=of.out_size)

    return {
        "conv2d": partial(convolution, L.Convolution2D),
        "conv_transpose2d": lambda n: transposed(L.Deconvolution2D, n, n),
        "conv3d": lambda n: convolution(L.Convolution3D, n, n.volume),
        "conv_transpose3d": lambda n: transposed(L.Deconvolution3D, n, n.volume),
        "linear": lambda n: L.Linear(*n.channels, nobias=not n.bias),
        "batch_norm": lambda n: L.BatchNormalization(n.in_channels),
        "layer_norm": lambda n: _at_each_position(L.LayerNormalization(n.in_channels)),
        "group_norm": _group_norm,
        "activation": lambda n: n.activation(_activations()),
        "max_pool": _max_pool,
        "avg_pool": _avg_pool,
        "multiply": lambda n: L.Scale(axis=1, W_shape=(n.layer.parameters,)),
        "prelu": lambda n: L.PReLU((n.layer.parameters,)),
        "dropout": lambda n: partial(F.dropout, ratio=DROPPED[n.layer.type]),
        "stochastic_depth": lambda n: partial(_drop_images, kept=1 - DROPPED[n.layer.type]),
        "pad": lambda n: partial(F.pad, pad_width=((0, 0), (0, 0), *n.added), mode="constant"),
        "upsample": lambda n: partial(F.resize_images, output_shape=n.out_size, align_corners=False),
        "clamp": lambda _: partial(F.clip, x_min=-1.0, x_max=1.0),
        "mean": lambda n: partial(F.mean, axis=n.reduced_axes, keepdims=True),
    }


@cache
def _activations() -> dict[str, Callable[[Any], Any]]:
    import chainer.functions as F  # noqa: N812

    return {
        "relu": F.relu,
        "relu6": F.relu6,
        "leaky_relu": partial(F.leaky_relu, slope=0.01),
        "silu": lambda x: x * F.sigmoid(x),
        "gelu": lambda x: 0.5 * x * (1 + F.erf(x / sqrt(2))),
        "hardswish": lambda x: x * F.relu6(x + 3) / 6,
        "hardsigmoid": lambda x: F.relu6(x + 3) / 6,
        **{name: getattr(F, name) for name in ("sigmoid", "tanh", "softmax")},
    }


def _group_norm(n: Numbers) -> Any:
    import chainer.links as L  # noqa: N812

    if not n.layer.parameters:
        raise SchemaError(
            f"layer {n.layer.name!r} is a group norm without parameters, which Chainer does not have."
        )
    return L.GroupNormalization(n.norm_groups, n.in_channels)


def _max_pool(n: Numbers) -> Callable[[Any], Any]:
    """Chainer rounds the size up in its own way (``cover_all``), which is checked."""
    import chainer.functions as F  # noqa: N812

    if n.dilation != 1:
        raise SchemaError(f"layer {n.layer.name!r} pools with dilation {n.dilation}: Chainer has dilation 1.")
    up = n.pool_rounds_up
    if up is None:
        return partial(F.max_pooling_2d, **_even_window(n), cover_all=False)
    kernel, stride, padding = n.window
    for side, free, s in zip(("height", "width"), n.free, stride, strict=True):
        n.check_size(side, (free + up * (s - 1)) // s + 1)
    return partial(F.max_pooling_2d, ksize=kernel, stride=stride, pad=padding, cover_all=up)


def _avg_pool(n: Numbers) -> Callable[[Any], Any]:
    import chainer.functions as F  # noqa: N812

    up = n.pool_rounds_up
    if up is None:
        if n.in_size == (1, 1):
            return lambda x: F.broadcast_to(x, (*x.shape[:2], *n.out_size))  # repeats a single pixel
        return partial(F.average_pooling_2d, **_even_window(n))
    if up:
        raise SchemaError(f"layer {n.layer.name!r} averages with its size rounded up, which Chainer cannot.")
    kernel, stride, padding = n.window
    return partial(F.average_pooling_2d, ksize=kernel, stride=stride, pad=padding)


def _even_window(n: Numbers) -> dict[str, tuple[int, int]]:
    """Window of an adaptive pool whose input is a multiple of its output; Chainer has no other."""
    inputs, outputs = n.in_size, n.out_size
    if any(size % out for size, out in zip(inputs, outputs, strict=True)):
        raise SchemaError(
            f"layer {n.layer.name!r} pools {inputs} adaptively to {outputs}: Chainer pools so only where the input "
            "is a multiple of the output. Choose another image size."
        )
    sides = (inputs[0] // outputs[0], inputs[1] // outputs[1])
    return {"ksize": sides, "stride": sides}


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
