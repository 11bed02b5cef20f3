"""ResNet, ResNeXt and Wide ResNet (arXiv:1512.03385, 1611.05431, 1605.07146), and ResNet for CIFAR.

The bottleneck has its stride in the 3 x 3 convolution, as torchvision has it ("v1.5").
"""

from predictor.cnns.builder import FeatureMap, NetBuilder, classify

__all__ = ["resnet", "resnet_cifar"]

_CHANNELS = (64, 128, 256, 512)


def resnet(
    net: NetBuilder,
    blocks: tuple[int, ...],
    bottleneck: bool = True,
    groups: int = 1,
    width_per_group: int = 64,
    classes: int = 1000,
) -> None:
    """Four stages of residual blocks (`blocks`: how many in each) behind a 7 x 7 convolution and pooling."""
    x = net.conv_norm(net.image, "conv1", 64, 7, stride=2)
    x = net.max_pool(x, "maxpool", 3, 2, padding=1)
    classify(net, _stages(net, x, blocks, bottleneck, groups, width_per_group), classes)


def resnet_cifar(net: NetBuilder, blocks: tuple[int, ...], classes: int = 10) -> None:
    """Four stages of basic blocks behind a 3 x 3 convolution of stride 1, unpooled, for 32-pixel images."""
    x = net.conv_norm(net.image, "conv1", 64, 3)
    classify(net, _stages(net, x, blocks, False, 1, 64), classes)


def _stages(
    net: NetBuilder, x: FeatureMap, blocks: tuple[int, ...], bottleneck: bool, groups: int, width: int
) -> FeatureMap:
    for stage, (channels, count) in enumerate(zip(_CHANNELS, blocks, strict=True), start=1):
        for i in range(count):
            name, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            if bottleneck:
                inner = channels * width // 64 * groups
                x = _bottleneck(net, x, name, inner, 4 * channels, stride, groups)
            else:
                x = _basic(net, x, name, channels, stride)
    return x


def _basic(net: NetBuilder, x: FeatureMap, name: str, channels: int, stride: int) -> FeatureMap:
    y = net.conv_norm(x, f"{name}.conv1", channels, 3, stride=stride)
    y = net.conv_norm(y, f"{name}.conv2", channels, 3, activation=None)
    return _residual(net, x, y, name, stride)


def _bottleneck(
    net: NetBuilder, x: FeatureMap, name: str, inner: int, channels: int, stride: int, groups: int
) -> FeatureMap:
    y = net.conv_norm(x, f"{name}.conv1", inner, 1)
    y = net.conv_norm(y, f"{name}.conv2", inner, 3, stride=stride, groups=groups)
    y = net.conv_norm(y, f"{name}.conv3", channels, 1, activation=None)
    return _residual(net, x, y, name, stride)


def _residual(net: NetBuilder, x: FeatureMap, y: FeatureMap, name: str, stride: int) -> FeatureMap:
    """Add the shortcut, projected where the shape changes, and rectify."""
    if stride != 1 or x.channels != y.channels:
        x = net.conv_norm(x, f"{name}.downsample", y.channels, 1, stride=stride, activation=None)
    return net.activation(net.add(y, x, f"{name}.add"), f"{name}.relu")
