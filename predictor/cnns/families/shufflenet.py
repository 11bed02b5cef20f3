"""ShuffleNet v2 (Ma et al., arXiv:1807.11164). A chunk of channels is a view; the shuffle is a copy."""

from predictor.cnns.builder import NetBuilder

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
            name, half, stride = f"stage{stage}.{i}", channels // 2, 1 if i else 2
            left = right = x.part(half) if i else x
            if i == 0:
                own, n = f"{name}.branch1.depthwise", x.channels
                left = net.conv_norm(left, own, n, 3, stride, groups=n, activation=None)
                left = net.conv_norm(left, f"{name}.branch1.project", half, 1)
            right, own = net.conv_norm(right, f"{name}.branch2.expand", half, 1), f"{name}.branch2.depthwise"
            right = net.conv_norm(right, own, half, 3, stride, groups=half, activation=None)
            right = net.conv_norm(right, f"{name}.branch2.project", half, 1)
            x = net.permute(net.concat((left, right), f"{name}.concat"), f"{name}.shuffle")
    x = net.conv_norm(x, "conv5", last_channels, 1)
    net.linear(net.adaptive_avg_pool(x, "mean"), "fc", classes)
