"""MobileNet v2 and v3 (arXiv:1801.04381, 1905.02244)."""

from collections.abc import Sequence

from predictor.cnns.builder import FeatureMap, NetBuilder, classify, make_divisible, squeeze_excitation

_V3Block = tuple[int, int, int, bool, str, int]
"""Kernel, expanded channels, channels, squeeze-and-excitation, activation, stride."""


def mobilenet_v2(net: NetBuilder, stages: Sequence[tuple[int, int, int, int]], classes: int = 1000) -> None:
    """Inverted residuals with ReLU6; a stage is its expansion, channels, blocks and stride."""
    x = net.conv_norm(net.image, "conv1", 32, 3, stride=2, activation="relu6")
    for stage, (expansion, channels, count, first_stride) in enumerate(stages, start=1):
        for i in range(count):
            stride = first_stride if i == 0 else 1
            x = _v2_block(net, x, f"stage{stage}.{i}", expansion, channels, stride)
    x = net.conv_norm(x, "conv_last", 1280, 1, activation="relu6")
    classify(net, x, classes, dropout=True)


def _v2_block(
    net: NetBuilder, x: FeatureMap, name: str, expansion: int, channels: int, stride: int
) -> FeatureMap:
    y, inner = x, expansion * x.channels
    if expansion != 1:
        y = net.conv_norm(y, f"{name}.expand", inner, 1, activation="relu6")
    y = net.conv_norm(y, f"{name}.depthwise", inner, 3, stride=stride, groups=inner, activation="relu6")
    y = net.conv_norm(y, f"{name}.project", channels, 1, activation=None)
    return net.add(x, y, f"{name}.add") if stride == 1 and x.channels == channels else y


def mobilenet_v3(net: NetBuilder, blocks: Sequence[_V3Block], hidden: int, classes: int = 1000) -> None:
    """MobileNet v3 as found by a search: large or small, by its blocks; `hidden` numbers before the last layer."""
    x = net.conv_norm(net.image, "conv1", 16, 3, stride=2, activation="hardswish")
    for i, block in enumerate(blocks, start=1):
        x = _v3_block(net, x, f"block{i}", block)
    x = net.conv_norm(x, "conv_last", 6 * x.channels, 1, activation="hardswish")
    x = net.linear(net.flatten(net.adaptive_avg_pool(x)), "fc1", hidden)
    x = net.dropout(net.activation(x, "fc1.hardswish", "hardswish"), "dropout")
    net.linear(x, "fc2", classes)


def _v3_block(net: NetBuilder, x: FeatureMap, name: str, block: _V3Block) -> FeatureMap:
    kernel, inner, channels, excited, activation, stride = block
    y = x
    if inner != x.channels:
        y = net.conv_norm(y, f"{name}.expand", inner, 1, activation=activation)
    y = net.conv_norm(
        y, f"{name}.depthwise", inner, kernel, stride=stride, groups=inner, activation=activation
    )
    if excited:
        y = squeeze_excitation(net, y, f"{name}.se", make_divisible(inner // 4), gate="hardsigmoid")
    y = net.conv_norm(y, f"{name}.project", channels, 1, activation=None)
    return net.add(y, x, f"{name}.add") if stride == 1 and x.channels == channels else y
