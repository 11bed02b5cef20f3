"""DenseNet-BC (Huang et al., arXiv:1608.06993).

Each layer concatenates everything before it, as PyTorch executes it: the copies are a good part of its time.
"""

from predictor.cnns.builder import FeatureMap, NetBuilder, classify

_BOTTLENECK = 4
"""Channels of the 1 x 1 convolution, in growth rates."""


def densenet(
    net: NetBuilder,
    layers: tuple[int, ...],
    growth_rate: int = 32,
    stem_channels: int = 64,
    cifar: bool = False,
    classes: int = 1000,
) -> None:
    """Dense blocks (of `layers` layers) of `growth_rate` new channels a layer, halved in between.

    For CIFAR the stem is only a 3 x 3 convolution.
    """
    if cifar:
        x = net.conv(net.image, "conv0", stem_channels, 3, padding=1, bias=False)
    else:
        x = net.conv_norm(net.image, "conv0", stem_channels, 7, stride=2)
        x = net.max_pool(x, "pool0", 3, 2, padding=1)
    for number, count in enumerate(layers, start=1):
        name, features = f"denseblock{number}", [x]
        for i in range(1, count + 1):
            y = net.concat(features, f"{name}.{i}.concat")
            y = _norm_relu_conv(net, y, f"{name}.{i}.conv1", _BOTTLENECK * growth_rate, 1)
            features.append(_norm_relu_conv(net, y, f"{name}.{i}.conv2", growth_rate, 3))
        x = net.concat(features, f"{name}.concat")
        if number < len(layers):
            x = _norm_relu_conv(net, x, f"transition{number}", x.channels // 2, 1)
            x = net.avg_pool(x, f"transition{number}.pool", 2, 2)
    x = net.activation(net.batch_norm(x, "norm5"), "relu5")
    classify(net, x, classes)


def _norm_relu_conv(net: NetBuilder, x: FeatureMap, name: str, channels: int, kernel: int) -> FeatureMap:
    x = net.activation(net.batch_norm(x, f"{name}.norm"), f"{name}.relu")
    return net.conv(x, name, channels, kernel, padding=kernel // 2, bias=False)
