"""EfficientNet and EfficientNet v2 (arXiv:1905.11946, 2104.00298).

Stochastic depth as torchvision trains it: its probability grows from 0 in the first block, so that one has no
row.
"""

import itertools
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from predictor.cnns.builder import FeatureMap, NetBuilder, classify, make_divisible, squeeze_excitation


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
            block = stage if i == 0 else stage._replace(stride=1)
            x = _block(net, x, f"stage{number}.{i}", block, dropped=(number, i) != (1, 0))
    return x


def _block(net: NetBuilder, x: FeatureMap, name: str, block: _Stage, dropped: bool) -> FeatureMap:
    y = (_fused if block.fused else _inverted)(net, x, name, block)
    if block.stride != 1 or x.channels != block.channels:
        return y
    if dropped:
        y = net.stochastic_depth(y, f"{name}.stochastic_depth")
    return net.add(y, x, f"{name}.add")


def _inverted(net: NetBuilder, x: FeatureMap, name: str, block: _Stage) -> FeatureMap:
    y, inner = x, make_divisible(x.channels * block.expansion)
    if inner != x.channels:
        y = net.conv_norm(y, f"{name}.expand", inner, 1, activation="silu")
    y = net.conv_norm(
        y, f"{name}.depthwise", inner, block.kernel, stride=block.stride, groups=inner, activation="silu"
    )
    y = squeeze_excitation(net, y, f"{name}.se", max(1, x.channels // 4), activation="silu")
    return net.conv_norm(y, f"{name}.project", block.channels, 1, activation=None)


def _fused(net: NetBuilder, x: FeatureMap, name: str, block: _Stage) -> FeatureMap:
    inner = make_divisible(x.channels * block.expansion)
    if inner == x.channels:
        return net.conv_norm(
            x, f"{name}.conv", block.channels, block.kernel, stride=block.stride, activation="silu"
        )
    y = net.conv_norm(x, f"{name}.expand", inner, block.kernel, stride=block.stride, activation="silu")
    return net.conv_norm(y, f"{name}.project", block.channels, 1, activation=None)
