"""VGG with and without batch norm (Simonyan and Zisserman, arXiv:1409.1556), and Chainer's VGG for CIFAR."""

from predictor.cnns.builder import NetBuilder

_CHANNELS = (64, 128, 256, 512, 512)


def vgg(net: NetBuilder, convolutions: tuple[int, ...], norm: bool = False, classes: int = 1000) -> None:
    """Five stages of `convolutions` 3 x 3 convolutions and three dense layers."""
    x = net.image
    for stage, (channels, count) in enumerate(zip(_CHANNELS, convolutions, strict=True), start=1):
        for i in range(1, count + 1):
            x = net.conv(x, f"conv{stage}_{i}", channels, 3, padding=1)
            x = net.batch_norm(x, f"conv{stage}_{i}.norm") if norm else x
            x = net.activation(x, f"conv{stage}_{i}.relu")
        x = net.max_pool(x, f"pool{stage}", 2, 2)
    x = net.flatten(net.adaptive_avg_pool(x, size=7))
    for i in (1, 2):
        x = net.activation(net.linear(x, f"fc{i}", 4096), f"fc{i}.relu")
        x = net.dropout(x, f"dropout{i}")
    net.linear(x, "fc3", classes)


def vgg_cifar(net: NetBuilder, classes: int = 100) -> None:
    """Write the VGG that Chainer's CIFAR example trains (its examples/cifar/models/VGG.py).

    Batch norm after every convolution and the first dense layer, dropout between the convolutions of a stage,
    no biases; pooling rounds up (Chainer's `cover_all`), and the dense layer takes what the image leaves.
    """
    x = net.image
    for stage, (channels, count) in enumerate(zip(_CHANNELS, (2, 2, 3, 3, 3), strict=True), start=1):
        for i in range(1, count + 1):
            x = net.conv_norm(x, f"block{stage}_{i}", channels, 3)
            x = net.dropout(x, f"dropout{stage}_{i}") if i < count else x
        x = net.max_pool(x, f"pool{stage}", 2, 2, ceil=True)
    x = net.flatten(net.dropout(x, "dropout_fc1"))
    x = net.batch_norm(net.linear(x, "fc1", 512, bias=False), "bn_fc1")
    x = net.dropout(net.activation(x, "relu_fc1"), "dropout_fc2")
    net.linear(x, "fc2", classes, bias=False)
