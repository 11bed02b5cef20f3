"""ResNet, ResNeXt and Wide ResNet (arXiv:1512.03385, 1611.05431, 1605.07146), and ResNets for CIFAR.

The bottleneck has its stride in the 3 x 3 convolution, as torchvision has it ("v1.5").
"""

from predictor.cnns.builder import FeatureMap, NetBuilder, classify

_CHANNELS = (64, 128, 256, 512)


def resnet(
    net: NetBuilder,
    blocks: tuple[int, ...],
    bottleneck: bool = True,
    groups: int = 1,
    width_per_group: int = 64,
    classes: int = 1000,
) -> None:
    """Four stages of `blocks` residual blocks behind a 7 x 7 convolution and pooling."""
    x = net.conv_norm(net.image, "conv1", 64, 7, stride=2)
    x = net.max_pool(x, "maxpool", 3, 2, padding=1)
    classify(net, _stages(net, x, _CHANNELS, blocks, bottleneck, groups, width_per_group), classes)


def resnet_cifar(
    net: NetBuilder, blocks: tuple[int, ...], channels: tuple[int, ...] = _CHANNELS, classes: int = 10
) -> None:
    """Stages of basic blocks behind a 3 x 3 convolution of stride 1, unpooled, for 32-pixel images."""
    x = net.conv_norm(net.image, "conv1", channels[0], 3)
    classify(net, _stages(net, x, channels, blocks, False), classes)


def resnet_preactivated(net: NetBuilder, blocks: int, classes: int = 10) -> None:
    """Three stages of `blocks` pre-activated bottlenecks for CIFAR (He et al., arXiv:1603.05027)."""
    x = net.conv(net.image, "conv1", 16, 3, padding=1, bias=False)
    for stage, width in enumerate((16, 32, 64), start=1):
        for i in range(blocks):
            name, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            y = net.activation(net.batch_norm(x, f"{name}.norm"), f"{name}.relu")
            y = net.conv_norm(y, f"{name}.conv1", width, 1)
            y = net.conv_norm(y, f"{name}.conv2", width, 3, stride=stride)
            y = net.conv(y, f"{name}.conv3", 4 * width, 1, bias=False)
            if i == 0:
                x = net.conv(x, f"{name}.shortcut", 4 * width, 1, stride, bias=False)
            x = net.add(y, x, f"{name}.add")
    classify(net, net.activation(net.batch_norm(x, "norm"), "relu"), classes)


def resnet9(net: NetBuilder, classes: int = 10) -> None:
    """David Page's ResNet-9 for CIFAR-10 (github.com/davidcpage/cifar10-fast)."""
    x = net.conv_norm(net.image, "prep", 64, 3)
    for name, channels, paired in (("layer1", 128, True), ("layer2", 256, False), ("layer3", 512, True)):
        x = net.max_pool(net.conv_norm(x, name, channels, 3), f"{name}.pool", 2, 2)
        if paired:
            y = net.conv_norm(x, f"{name}.residual1", channels, 3)
            y = net.conv_norm(y, f"{name}.residual2", channels, 3)
            x = net.add(y, x, f"{name}.add")
    x = net.flatten(net.max_pool(x, "pool", 4, 4))
    net.linear(x, "linear", classes, bias=False)


def _stages(
    net: NetBuilder,
    x: FeatureMap,
    stage_channels: tuple[int, ...],
    blocks: tuple[int, ...],
    bottleneck: bool,
    groups: int = 1,
    width: int = 64,
) -> FeatureMap:
    for stage, (channels, count) in enumerate(zip(stage_channels, blocks, strict=True), start=1):
        for i in range(count):
            name, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            if bottleneck:
                inner = channels * width // 64 * groups
                y = net.conv_norm(x, f"{name}.conv1", inner, 1)
                y = net.conv_norm(y, f"{name}.conv2", inner, 3, stride=stride, groups=groups)
                y = net.conv_norm(y, f"{name}.conv3", 4 * channels, 1, activation=None)
            else:
                y = net.conv_norm(x, f"{name}.conv1", channels, 3, stride=stride)
                y = net.conv_norm(y, f"{name}.conv2", channels, 3, activation=None)
            if stride != 1 or x.channels != y.channels:  # the shortcut is projected
                x = net.conv_norm(x, f"{name}.downsample", y.channels, 1, stride=stride, activation=None)
            x = net.activation(net.add(y, x, f"{name}.add"), f"{name}.relu")
    return x
