"""ShuffleNet v2 (Ma et al., arXiv:1807.11164). A chunk of channels is a view; the shuffle is a copy."""

from predictor.cnns.builder import FeatureMap, NetBuilder

_STEM_CHANNELS = 24
_BLOCKS = (4, 8, 4)


def shufflenet_v2(
    net: NetBuilder,
    stage_channels: tuple[int, int, int],
    last_channels: int = 1024,
    cifar: bool = False,
    classes: int = 1000,
) -> None:
    """Three stages of units that split, convolve one half, concatenate and shuffle; a stem of stride 1 for CIFAR."""
    x = net.conv_norm(net.image, "conv1", _STEM_CHANNELS, 3, stride=1 if cifar else 2)
    if not cifar:
        x = net.max_pool(x, "maxpool", 3, 2, padding=1)
    for stage, (channels, count) in enumerate(zip(stage_channels, _BLOCKS, strict=True), start=2):
        for i in range(count):
            x = _unit(net, x, f"stage{stage}.{i}", channels // 2, first=i == 0)
    x = net.conv_norm(x, "conv5", last_channels, 1)
    net.linear(net.adaptive_avg_pool(x, "mean"), "fc", classes)


def _unit(net: NetBuilder, x: FeatureMap, name: str, half: int, first: bool) -> FeatureMap:
    if first:
        left = net.conv_norm(
            x, f"{name}.branch1.depthwise", x.channels, 3, stride=2, groups=x.channels, activation=None
        )
        left, right = net.conv_norm(left, f"{name}.branch1.project", half, 1), x
    else:
        left = right = x.part(half)
    right = net.conv_norm(right, f"{name}.branch2.expand", half, 1)
    stride = 2 if first else 1
    right = net.conv_norm(
        right, f"{name}.branch2.depthwise", half, 3, stride=stride, groups=half, activation=None
    )
    right = net.conv_norm(right, f"{name}.branch2.project", half, 1)
    return net.permute(net.concat((left, right), f"{name}.concat"), f"{name}.shuffle")
