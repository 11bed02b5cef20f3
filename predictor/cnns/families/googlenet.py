"""GoogLeNet with batch norm, as torchvision writes it (Szegedy et al., arXiv:1409.4842).

Auxiliary classifiers are off. The "5 x 5" branch has 3 x 3 convolutions, as in torchvision and the weights it
was ported from.
"""

from collections.abc import Mapping, Sequence

from predictor.cnns.builder import FeatureMap, NetBuilder, classify


def googlenet(net: NetBuilder, modules: Mapping[str, Sequence[int]], classes: int = 1000) -> None:
    """Inception modules of four branches behind three convolutions; pooling rounds up.

    `modules`: channels of 1 x 1; reduced and 3 x 3; reduced and "5 x 5"; after pooling.
    """
    x = net.conv_norm(net.image, "conv1", 64, 7, stride=2)
    x = net.max_pool(x, "maxpool1", 3, 2, ceil=True)
    x = net.conv_norm(net.conv_norm(x, "conv2", 64, 1), "conv3", 192, 3)
    x = net.max_pool(x, "maxpool2", 3, 2, ceil=True)
    for module, channels in modules.items():
        if module == "4a":
            x = net.max_pool(x, "maxpool3", 3, 2, ceil=True)
        if module == "5a":
            x = net.max_pool(x, "maxpool4", 2, 2, ceil=True)
        x = _inception(net, x, f"inception{module}", channels)
    classify(net, x, classes, dropout=True)


def _inception(net: NetBuilder, x: FeatureMap, name: str, channels: Sequence[int]) -> FeatureMap:
    single, reduced3, full3, reduced5, full5, pooled = channels
    branch1 = net.conv_norm(x, f"{name}.branch1", single, 1)
    branch2 = net.conv_norm(x, f"{name}.branch2.0", reduced3, 1)
    branch2 = net.conv_norm(branch2, f"{name}.branch2.1", full3, 3)
    branch3 = net.conv_norm(x, f"{name}.branch3.0", reduced5, 1)
    branch3 = net.conv_norm(branch3, f"{name}.branch3.1", full5, 3)
    branch4 = net.max_pool(x, f"{name}.branch4.0", 3, 1, padding=1, ceil=True)
    branch4 = net.conv_norm(branch4, f"{name}.branch4.1", pooled, 1)
    return net.concat((branch1, branch2, branch3, branch4), f"{name}.concat")
