"""AlexNet, as torchvision writes it ("one weird trick", Krizhevsky, arXiv:1404.5997)."""

from predictor.cnns.builder import NetBuilder


def alexnet(net: NetBuilder, classes: int = 1000) -> None:
    """Five convolutions, three of them pooled, and three dense layers on a 6 x 6 average."""
    x = net.activation(net.conv(net.image, "conv1", 64, 11, stride=4, padding=2), "relu1")
    x = net.max_pool(x, "pool1", 3, 2)
    x = net.activation(net.conv(x, "conv2", 192, 5, padding=2), "relu2")
    x = net.max_pool(x, "pool2", 3, 2)
    for i, channels in enumerate((384, 256, 256), start=3):
        x = net.activation(net.conv(x, f"conv{i}", channels, 3, padding=1), f"relu{i}")
    x = net.max_pool(x, "pool5", 3, 2)
    x = net.flatten(net.adaptive_avg_pool(x, size=6))
    for i in (6, 7):
        x = net.dropout(x, f"dropout{i}")
        x = net.activation(net.linear(x, f"fc{i}", 4096), f"relu{i}")
    net.linear(x, "fc8", classes)
