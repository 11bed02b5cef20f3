"""SqueezeNet 1.0 and 1.1 (Iandola et al., arXiv:1602.07360)."""

from predictor.cnns.builder import NetBuilder

_SQUEEZED = (16, 16, 32, 32, 48, 48, 64, 64)
"""Channels of the squeeze convolutions; each expands to four times as many in 1 x 1 and in 3 x 3."""


def squeezenet(
    net: NetBuilder, stem_channels: int, stem_kernel: int, pool_before: tuple[int, ...], classes: int = 1000
) -> None:
    """Eight fire modules behind one convolution; pooled before the fire modules numbered in `pool_before`."""
    x = net.activation(net.conv(net.image, "conv1", stem_channels, stem_kernel, stride=2), "conv1.relu")
    for number, squeezed in enumerate(_SQUEEZED, start=2):
        if number in pool_before:
            x = net.max_pool(x, f"pool{number - 1}", 3, 2, ceil=True)
        x = net.conv(x, f"fire{number}.squeeze", squeezed, 1)
        x, expanded = net.activation(x, f"fire{number}.squeeze.relu"), []
        for name, kernel in ((f"fire{number}.expand1x1", 1), (f"fire{number}.expand3x3", 3)):
            y = net.conv(x, name, 4 * squeezed, kernel, padding=kernel // 2)
            expanded.append(net.activation(y, f"{name}.relu"))
        x = net.concat(expanded, f"fire{number}.concat")
    x = net.conv(net.dropout(x, "dropout"), "conv10", classes, 1)
    x = net.activation(x, "conv10.relu")
    net.flatten(net.adaptive_avg_pool(x))
