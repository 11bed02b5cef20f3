"""Proxy CNNs as layer tables: the founding study's instrument, a CNN with a single convolution."""

import re

from predictor.cnns.builder import FeatureMap, NetBuilder
from predictor.cnns.layer_table import IMAGE, LayerTable
from predictor.errors import SchemaError

__all__ = ["PROXY_CLASSES", "proxy_table"]

PROXY_CLASSES = 10

_NAME = re.compile(
    r"(?P<side>\d+)_(?P<inputs>\d+)_(?P<outputs>\d+)"
    r"(?:_k(?P<height>\d+)(?:x(?P<width>\d+))?_s(?P<stride>\d+)_g(?P<groups>\d+))?"
)


def proxy_table(name: str) -> LayerTable:
    """Layer table of a proxy CNN: convolution, batch norm, ReLU, max pooling, linear layer to 10 classes.

    Parameters
    ----------
    name : str
        ``H_CIN_COUT`` or ``H_CIN_COUT_kK_sS_gG``, as `predictor.cnns.proxies.proxy_name` writes it: images of H x H
        pixels and CIN channels, COUT filters of K x K (``k1x7``: height x width), stride S, G groups.

    Raises
    ------
    SchemaError
        If the name is not of this form, or no such convolution exists.

    Notes
    -----
    The convolution has no bias and pads half its kernel, so that stride 1 keeps the image's size. Pooling is
    2 x 2, left out where a single row or column is left.

    Examples
    --------
    >>> [layer.type for layer in proxy_table("16_128_128")]
    ['conv2d', 'batch_norm', 'activation', 'max_pool', 'flatten', 'linear']
    """
    side, inputs, outputs, kernel, stride, groups = _parts(name)
    net = NetBuilder(name, side, inputs)
    image = FeatureMap(IMAGE, inputs, side, side)
    padding = ((kernel[0] - 1) // 2, (kernel[1] - 1) // 2)
    x = net.conv_norm(image, "conv", outputs, kernel, stride, padding, groups)
    if min(x.height, x.width) >= 2:
        x = net.max_pool(x, "pool", 2, 2)
    net.linear(net.flatten(x), "linear", PROXY_CLASSES)
    return net.table()


def _parts(name: str) -> tuple[int, int, int, tuple[int, int], int, int]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise SchemaError(
            f"{name!r} names no proxy CNN. Write height, input channels and filters, such as '16_128_128', with "
            "kernel, stride and groups where they are not 3, 1, 1: '56_64_256_k1_s1_g1'."
        )
    part = {key: int(value) for key, value in match.groupdict().items() if value is not None}
    height = part.get("height", 3)
    kernel, stride, groups = (height, part.get("width", height)), part.get("stride", 1), part.get("groups", 1)
    side, inputs, outputs = part["side"], part["inputs"], part["outputs"]
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
