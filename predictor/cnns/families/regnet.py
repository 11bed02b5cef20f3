"""RegNetX and RegNetY (Radosavovic et al., arXiv:2003.13678)."""

from predictor.cnns.builder import NetBuilder, classify, squeeze_excitation

_STEM_CHANNELS = 32
_SQUEEZE_RATIO = 0.25
"""Squeezed channels of RegNetY, in channels of the block's input."""


def regnet(
    net: NetBuilder,
    blocks: tuple[int, ...],
    channels: tuple[int, ...],
    group_width: int,
    excited: bool = False,
    classes: int = 1000,
) -> None:
    """Four stages (of `blocks` blocks with `channels` channels) of grouped residual blocks; `excited`: RegNetY."""
    x = net.conv_norm(net.image, "stem", _STEM_CHANNELS, 3, stride=2)
    for stage, (width, count) in enumerate(zip(channels, blocks, strict=True), start=1):
        for i in range(count):
            name, stride, shortcut = f"stage{stage}.{i}", 2 if i == 0 else 1, x
            if stride != 1 or x.channels != width:
                shortcut = net.conv_norm(x, f"{name}.proj", width, 1, stride=stride, activation=None)
            y = net.conv_norm(x, f"{name}.a", width, 1)
            y = net.conv_norm(
                y, f"{name}.b", width, 3, stride=stride, groups=width // min(group_width, width)
            )
            if excited:
                y = squeeze_excitation(net, y, f"{name}.se", round(_SQUEEZE_RATIO * x.channels))
            y = net.conv_norm(y, f"{name}.c", width, 1, activation=None)
            x = net.activation(net.add(shortcut, y, f"{name}.add"), f"{name}.relu")
    classify(net, x, classes)
