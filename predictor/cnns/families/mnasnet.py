"""MNASNet-B1 at several widths (Tan et al., arXiv:1807.11626)."""

from predictor.cnns.builder import NetBuilder, inverted_bottleneck, make_divisible

_STAGES = (
    (24, 3, 2, 3, 3),
    (40, 5, 2, 3, 3),
    (80, 5, 2, 6, 3),
    (96, 3, 1, 6, 2),
    (192, 5, 2, 6, 4),
    (320, 3, 1, 6, 1),
)
"""Channels at width 1, kernel, stride, expansion, blocks of each stage."""


def mnasnet(net: NetBuilder, width: float, classes: int = 1000) -> None:
    """Inverted residuals; `width` scales every channel count but the last."""
    stem = make_divisible(32 * width)
    x = net.conv_norm(net.image, "conv1", stem, 3, stride=2)
    x = net.conv_norm(x, "depthwise", stem, 3, groups=stem)
    x = net.conv_norm(x, "project", make_divisible(16 * width), 1, activation=None)
    for stage, (channels, kernel, first_stride, expansion, count) in enumerate(_STAGES, start=1):
        out_channels = make_divisible(channels * width)
        for i in range(count):
            name, stride = f"stage{stage}.{i}", first_stride if i == 0 else 1
            y = inverted_bottleneck(net, x, name, expansion * x.channels, out_channels, kernel, stride)
            x = net.add(y, x, f"{name}.add") if stride == 1 and x.channels == out_channels else y
    x = net.conv_norm(x, "conv_last", 1280, 1)
    net.linear(net.dropout(net.adaptive_avg_pool(x, "mean"), "dropout"), "fc", classes)
