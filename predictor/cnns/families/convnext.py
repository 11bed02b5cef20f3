"""ConvNeXt (Liu et al., arXiv:2201.03545).

Its layer norms and dense layers run on NHWC, so every block permutes twice, and so does every layer norm
between stages. Stochastic depth has probability 0 in the first block.
"""

from predictor.cnns.builder import FeatureMap, NetBuilder


def convnext(net: NetBuilder, blocks: tuple[int, ...], channels: int, classes: int = 1000) -> None:
    """Four stages (of `blocks` blocks) of depthwise 7 x 7 blocks; `channels` double from stage to stage."""
    x = net.conv(net.image, "stem", channels, 4, stride=4)
    x = _norm_2d(net, x, "stem.norm")
    for stage, count in enumerate(blocks, start=1):
        if stage > 1:
            x = _norm_2d(net, x, f"downsample{stage}.norm")
            x = net.conv(x, f"downsample{stage}", 2 * x.channels, 2, stride=2)
        for i in range(count):
            name = f"stage{stage}.{i}"
            y = net.conv(x, f"{name}.depthwise", x.channels, 7, padding=3, groups=x.channels)
            y = net.layer_norm(net.permute(y, f"{name}.to_nhwc"), f"{name}.norm")
            y = net.activation(net.linear(y, f"{name}.fc1", 4 * x.channels), f"{name}.gelu", "gelu")
            y = net.permute(net.linear(y, f"{name}.fc2", x.channels), f"{name}.to_nchw")
            y = net.layer_scale(y, f"{name}.layer_scale")
            if (stage, i) != (1, 0):
                y = net.stochastic_depth(y, f"{name}.stochastic_depth")
            x = net.add(y, x, f"{name}.add")
    x = net.flatten(_norm_2d(net, net.adaptive_avg_pool(x), "norm"))
    net.linear(x, "fc", classes)


def _norm_2d(net: NetBuilder, x: FeatureMap, name: str) -> FeatureMap:
    x = net.permute(x, f"{name}.to_nhwc")
    return net.permute(net.layer_norm(x, name), f"{name}.to_nchw")
