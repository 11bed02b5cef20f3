"""DCGAN (Radford et al., arXiv:1511.06434) as PyTorch's example trains it: 64-pixel images from 100 numbers."""

from predictor.cnns.builder import NetBuilder


def dcgan_generator(net: NetBuilder) -> None:
    """From a vector to an image: five transposed convolutions."""
    x = net.vector
    for i, channels in enumerate((512, 256, 128, 64), start=1):
        stride, padding = (1, 0) if i == 1 else (2, 1)
        x = net.conv_transpose(x, f"conv{i}", channels, 4, stride=stride, padding=padding)
        x = net.activation(net.batch_norm(x, f"conv{i}.norm"), f"conv{i}.relu")
    net.activation(net.conv_transpose(x, "conv5", 3, 4, stride=2, padding=1), "tanh", "tanh")


def dcgan_discriminator(net: NetBuilder) -> None:
    """From an image to one probability: five convolutions, no norm after the first."""
    x = net.image
    for i, channels in enumerate((64, 128, 256, 512), start=1):
        x = net.conv(x, f"conv{i}", channels, 4, stride=2, padding=1, bias=False)
        x = net.batch_norm(x, f"conv{i}.norm") if i > 1 else x
        x = net.activation(x, f"conv{i}.leaky_relu", "leaky_relu")
    x = net.conv(x, "conv5", 1, 4, bias=False)
    net.flatten(net.activation(x, "sigmoid", "sigmoid"))
