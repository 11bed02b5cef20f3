"""Airbench94 for CIFAR-10 (Keller Jordan, arXiv:2404.00498): GELU, and batch norm behind pooling."""

from predictor.cnns.builder import NetBuilder


def airbench94(net: NetBuilder, classes: int = 10) -> None:
    """A 2 x 2 convolution, which whitens patches, and three groups of two 3 x 3 convolutions."""
    x = net.activation(net.conv(net.image, "whiten", 24, 2), "whiten.gelu", "gelu")
    for name, channels in (("group1", 64), ("group2", 256), ("group3", 256)):
        x = net.conv(x, f"{name}.conv1", channels, 3, padding=1, bias=False)
        x = net.batch_norm(net.max_pool(x, f"{name}.pool", 2, 2), f"{name}.norm1")
        x = net.activation(x, f"{name}.gelu1", "gelu")
        x = net.conv_norm(x, f"{name}.conv2", channels, 3, activation="gelu")
    x = net.flatten(net.max_pool(x, "pool", 3, 3))
    net.linear(x, "head", classes, bias=False)
