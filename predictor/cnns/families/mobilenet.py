"""MobileNet v2 and v3 (arXiv:1801.04381, 1905.02244)."""

from collections.abc import Sequence

from predictor.cnns.builder import NetBuilder, classify, inverted_bottleneck, make_divisible

_V3Block = tuple[int, int, int, bool, str, int]
"""Kernel, expanded channels, channels, squeeze-and-excitation, activation, stride."""


def mobilenet_v2(net: NetBuilder, stages: Sequence[tuple[int, int, int, int]], classes: int = 1000) -> None:
    """Inverted residuals with ReLU6; a stage is its expansion, channels, blocks and stride."""
    x = net.conv_norm(net.image, "conv1", 32, 3, stride=2, activation="relu6")
    for stage, (expansion, channels, count, first_stride) in enumerate(stages, start=1):
        for i in range(count):
            name, stride = f"stage{stage}.{i}", first_stride if i == 0 else 1
            y = inverted_bottleneck(net, x, name, expansion * x.channels, channels, 3, stride, "relu6")
            x = net.add(x, y, f"{name}.add") if stride == 1 and x.channels == channels else y
    x = net.conv_norm(x, "conv_last", 1280, 1, activation="relu6")
    classify(net, x, classes, dropout=True)


def mobilenet_v3(net: NetBuilder, blocks: Sequence[_V3Block], hidden: int, classes: int = 1000) -> None:
    """MobileNet v3 as found by a search: large or small, by its blocks; `hidden` numbers before the last layer."""
    x = net.conv_norm(net.image, "conv1", 16, 3, stride=2, activation="hardswish")
    for i, (kernel, inner, channels, excited, activation, stride) in enumerate(blocks, start=1):
        squeezing = (make_divisible(inner // 4), "relu", "hardsigmoid") if excited else None
        y = inverted_bottleneck(net, x, f"block{i}", inner, channels, kernel, stride, activation, squeezing)
        x = net.add(y, x, f"block{i}.add") if stride == 1 and x.channels == channels else y
    x = net.conv_norm(x, "conv_last", 6 * x.channels, 1, activation="hardswish")
    x = net.linear(net.flatten(net.adaptive_avg_pool(x)), "fc1", hidden)
    x = net.dropout(net.activation(x, "fc1.hardswish", "hardswish"), "dropout")
    net.linear(x, "fc2", classes)
