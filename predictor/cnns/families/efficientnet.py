"""EfficientNet and EfficientNet v2 (arXiv:1905.11946, 2104.00298).

Stochastic depth as torchvision trains it: its probability grows from 0 in the first block, so that one has no
row.
"""

import itertools
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from predictor.cnns.builder import FeatureMap, NetBuilder, classify, inverted_bottleneck, make_divisible


class _Stage(NamedTuple):
    fused: bool
    expansion: int
    kernel: int
    stride: int
    channels: int
    blocks: int


_V1 = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
"""Expansion, kernel, stride, channels, blocks of each stage at width and depth 1."""


def efficientnet(net: NetBuilder, width: float, depth: float, classes: int = 1000) -> None:
    """EfficientNet B0 (width and depth 1) and its scaled versions."""
    stages = [
        _Stage(False, expansion, kernel, stride, make_divisible(channels * width), ceil(blocks * depth))
        for expansion, kernel, stride, channels, blocks in _V1
    ]
    x = _stages(net, stages, make_divisible(32 * width))
    x = net.conv_norm(x, "conv_last", 4 * x.channels, 1, activation="silu")
    classify(net, x, classes, dropout=True)


def efficientnet_v2(
    net: NetBuilder, stages: Sequence[tuple[bool, int, int, int, int, int]], classes: int = 1000
) -> None:
    """EfficientNet v2, whose first stages fuse expansion and depthwise convolution; `stages`: fields of `_Stage`."""
    x = _stages(net, list(itertools.starmap(_Stage, stages)), stages[0][4])
    x = net.conv_norm(x, "conv_last", 1280, 1, activation="silu")
    classify(net, x, classes, dropout=True)


def _stages(net: NetBuilder, stages: Sequence[_Stage], stem: int) -> FeatureMap:
    x = net.conv_norm(net.image, "conv1", stem, 3, stride=2, activation="silu")
    for number, stage in enumerate(stages, start=1):
        for i in range(stage.blocks):
            block, name = stage if i == 0 else stage._replace(stride=1), f"stage{number}.{i}"
            inner = make_divisible(x.channels * block.expansion)
            of_block = block.channels, block.kernel, block.stride
            if not block.fused:
                squeezing = max(1, x.channels // 4), "silu", "sigmoid"
                y = inverted_bottleneck(net, x, name, inner, *of_block, "silu", squeezing)
            elif inner == x.channels:
                y = net.conv_norm(x, f"{name}.conv", *of_block, activation="silu")
            else:
                y = net.conv_norm(x, f"{name}.expand", inner, *of_block[1:], activation="silu")
                y = net.conv_norm(y, f"{name}.project", block.channels, 1, activation=None)
            if block.stride == 1 and x.channels == block.channels:
                y = y if (number, i) == (1, 0) else net.stochastic_depth(y, f"{name}.stochastic_depth")
                y = net.add(y, x, f"{name}.add")
            x = y
    return x
