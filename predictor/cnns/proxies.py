"""Proxy CNNs of the founding study.

A proxy is a CNN with a single convolution. Its name, `H_CIN_COUT`, is also the name of that convolution's shape.
"""

from __future__ import annotations

import re

from predictor.cnns.builder import FeatureMap, NetBuilder
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import SchemaError
from predictor.operator_types import OPERATOR_TYPES

PROXY_CLASSES = 10

FOUNDING_PROXIES = (
    *("32_3_64", "32_64_64", "16_64_128", "16_128_128", "8_128_256", "8_256_256", "4_256_512", "4_512_512"),
    "2_512_512",  # these nine: the layer shapes of the CIFAR VGG
    *("2_256_256", "2_256_512", "2_512_256", "4_256_256", "4_512_256"),  # with three above: the slides' eight
)
"""The founding study's proxies: nine shapes of the CIFAR VGG and the slides' eight, three of them in both."""

_PROXY_NAME = re.compile(
    r"(?P<side>\d+)_(?P<inputs>\d+)_(?P<outputs>\d+)"
    r"(?:_k(?P<height>\d+)(?:x(?P<width>\d+))?_s(?P<stride>\d+)_g(?P<groups>\d+))?"
)

_CONVOLUTIONS = tuple(
    name for name, entry in OPERATOR_TYPES.items() if entry.is_convolution and entry.is_measured
)
_NEEDED = ("in_height", "in_width", "in_channels", "out_channels", "kernel_height", "kernel_width")


def is_proxy_name(name: str) -> bool:
    """Whether a name is a proxy's; whether there is such a proxy, `proxy_table` says."""
    return _PROXY_NAME.fullmatch(name) is not None


def proxy_name(layer: Layer) -> str:
    """Name of the proxy that has this convolution.

    `layer`: a convolution or transposed convolution. Gives ``H_CIN_COUT`` (``16_128_128`` is a 16x16 input of 128
    channels and 128 filters), followed by ``_kK_sS_gG`` where kernel, stride or groups differ from 3, 1, 1; then
    ``_dD`` where it is dilated and ``_t`` where it is transposed. What is not square is written height x width:
    ``_k1x7_s1_g1``. SchemaError if the layer is no convolution, or if a part of its shape is unknown.

    The name is the founding slides' own. It leaves padding out: a padded and an unpadded convolution of one name differ
    by the rim of the output image.
    """
    if layer.type not in _CONVOLUTIONS:
        raise SchemaError(
            f"layer {layer.index} {layer.name!r} is a {layer.type}; only convolutions have proxies. "
            f"Pass a layer of type {' or '.join(_CONVOLUTIONS)}."
        )
    unknown = [column for column in _NEEDED if getattr(layer, column) is None]
    if unknown:
        raise SchemaError(
            f"convolution {layer.index} {layer.name!r} has no {', '.join(unknown)}: it cannot be named. "
            "Complete the layer table."
        )
    kernel = _pair(layer.kernel_height, layer.kernel_width)
    stride = _pair(layer.stride_height or 1, layer.stride_width or 1)
    groups, dilation = layer.groups or 1, layer.dilation or 1
    name = f"{_pair(layer.in_height, layer.in_width)}_{layer.in_channels}_{layer.out_channels}"
    if (kernel, stride, groups) != ("3", "1", 1):
        name += f"_k{kernel}_s{stride}_g{groups}"
    name += f"_d{dilation}" if dilation != 1 else ""
    return name + ("_t" if layer.type == "conv_transpose2d" else "")


def _pair(height: int | None, width: int | None) -> str:
    return f"{height}" if height == width else f"{height}x{width}"


def proxy_table(name: str) -> LayerTable:
    """Layer table of a proxy CNN: convolution, batch norm, ReLU, max pooling, linear layer to 10 classes.

    `name`: ``H_CIN_COUT`` or ``H_CIN_COUT_kK_sS_gG``, as `proxy_name` writes it: images of H x H pixels and CIN
    channels, COUT filters of K x K (``k1x7``: height x width), stride S, G groups. SchemaError if the name is not of
    this form, or no such convolution exists.

    The convolution has no bias and pads half its kernel: stride 1 keeps the image's size. Pooling is 2 x 2, left out
    where a single row or column is left.

    >>> [layer.type for layer in proxy_table("16_128_128")]
    ['conv2d', 'batch_norm', 'activation', 'max_pool', 'flatten', 'linear']
    """
    side, inputs, outputs, kernel, stride, groups = _parts_of_name(name)
    net = NetBuilder(name, side, inputs)
    image = FeatureMap(IMAGE, inputs, side, side)
    padding = ((kernel[0] - 1) // 2, (kernel[1] - 1) // 2)
    x = net.conv_norm(image, "conv", outputs, kernel, stride, padding, groups)
    if min(x.height, x.width) >= 2:
        x = net.max_pool(x, "pool", 2, 2)
    net.linear(net.flatten(x), "linear", PROXY_CLASSES)
    return net.table()


def _parts_of_name(name: str) -> tuple[int, int, int, tuple[int, int], int, int]:
    match = _PROXY_NAME.fullmatch(name)
    if match is None:
        raise SchemaError(
            f"{name!r} names no proxy CNN. Write height, input channels and filters, such as '16_128_128', with "
            "kernel, stride and groups where they are not 3, 1, 1: '56_64_256_k1_s1_g1'."
        )
    numbers = {key: int(value) for key, value in match.groupdict().items() if value is not None}
    height = numbers.get("height", 3)
    kernel = height, numbers.get("width", height)
    stride, groups = numbers.get("stride", 1), numbers.get("groups", 1)
    side, inputs, outputs = numbers["side"], numbers["inputs"], numbers["outputs"]
    if min(side, inputs, outputs, *kernel, stride, groups) < 1:
        raise SchemaError(f"proxy {name!r} has a 0 in its name: every number must be at least 1.")
    if inputs % groups or outputs % groups:
        raise SchemaError(
            f"proxy {name!r}: {groups} groups do not divide {inputs} input channels and {outputs} filters. "
            "Choose a number that divides both."
        )
    if max(kernel) > side + 2 * ((min(kernel) - 1) // 2):
        raise SchemaError(
            f"proxy {name!r}: a kernel of {kernel[0]} x {kernel[1]} does not fit an image of {side} pixels."
        )
    return side, inputs, outputs, kernel, stride, groups
