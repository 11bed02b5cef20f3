"""GoogLeNet with batch norm, as torchvision writes it (Szegedy et al., arXiv:1409.4842).

Auxiliary classifiers are off. The "5 x 5" branch has 3 x 3 convolutions, as in torchvision and the weights it
was ported from.
"""

from collections.abc import Mapping, Sequence

from predictor.cnns.builder import NetBuilder, classify


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
        name, (single, reduced3, full3, reduced5, full5, pooled) = f"inception{module}", channels
        branches = [net.conv_norm(x, f"{name}.branch1", single, 1)]
        for branch, reduced, full in (("branch2", reduced3, full3), ("branch3", reduced5, full5)):
            y = net.conv_norm(x, f"{name}.{branch}.0", reduced, 1)
            branches.append(net.conv_norm(y, f"{name}.{branch}.1", full, 3))
        y = net.max_pool(x, f"{name}.branch4.0", 3, 1, padding=1, ceil=True)
        branches.append(net.conv_norm(y, f"{name}.branch4.1", pooled, 1))
        x = net.concat(branches, f"{name}.concat")
    classify(net, x, classes, dropout=True)
