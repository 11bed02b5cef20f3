"""Inception v3, as torchvision writes it (Szegedy et al., arXiv:1512.00567), and v4 (arXiv:1602.07261).

The auxiliary classifier is off, the input is not rescaled.
"""

from predictor.cnns.builder import FeatureMap, NetBuilder, Pair, classify


def inception_v3(net: NetBuilder, classes: int = 1000) -> None:
    """Eleven modules of parallel branches, with factorized 7 x 7 and 3 x 3 convolutions."""
    x = _stem(net)
    for name, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        x = _module_a(net, x, f"mixed{name}", pooled)
    x = _module_b(net, x, "mixed6a")
    for name, channels in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        x = _module_c(net, x, f"mixed{name}", channels)
    x = _module_d(net, x, "mixed7a")
    for name in ("7b", "7c"):
        x = _module_e(net, x, f"mixed{name}")
    x = net.flatten(net.dropout(net.adaptive_avg_pool(x), "dropout"))
    net.linear(x, "fc", classes)


def _stem(net: NetBuilder) -> FeatureMap:
    x = net.conv_norm(net.image, "conv1a", 32, 3, stride=2, padding=0)
    x = net.conv_norm(x, "conv2a", 32, 3, padding=0)
    x = net.conv_norm(x, "conv2b", 64, 3)
    x = net.max_pool(x, "maxpool1", 3, 2)
    x = net.conv_norm(x, "conv3b", 80, 1)
    x = net.conv_norm(x, "conv4a", 192, 3, padding=0)
    return net.max_pool(x, "maxpool2", 3, 2)


def _chain(net: NetBuilder, x: FeatureMap, name: str, *convolutions: tuple[int, Pair]) -> FeatureMap:
    """Convolutions (channels, kernel) one after the other, all keeping the size."""
    for i, (channels, kernel) in enumerate(convolutions):
        x = net.conv_norm(x, f"{name}.{i}", channels, kernel)
    return x


def _shrink(net: NetBuilder, x: FeatureMap, name: str, channels: int) -> FeatureMap:
    return net.conv_norm(x, f"{name}.shrink", channels, 3, stride=2, padding=0)


def _pooled(net: NetBuilder, x: FeatureMap, name: str, channels: int) -> FeatureMap:
    x = net.avg_pool(x, f"{name}.pool", 3, 1, padding=1)
    return net.conv_norm(x, f"{name}.pool_conv", channels, 1)


def _module_a(net: NetBuilder, x: FeatureMap, name: str, pooled: int) -> FeatureMap:
    branches = [
        _chain(net, x, f"{name}.1x1", (64, 1)),
        _chain(net, x, f"{name}.5x5", (48, 1), (64, 5)),
        _chain(net, x, f"{name}.3x3dbl", (64, 1), (96, 3), (96, 3)),
        _pooled(net, x, name, pooled),
    ]
    return net.concat(branches, f"{name}.concat")


def _module_b(net: NetBuilder, x: FeatureMap, name: str) -> FeatureMap:
    double = _chain(net, x, f"{name}.3x3dbl", (64, 1), (96, 3))
    branches = [
        _shrink(net, x, f"{name}.3x3", 384),
        _shrink(net, double, f"{name}.3x3dbl", 96),
        net.max_pool(x, f"{name}.pool", 3, 2),
    ]
    return net.concat(branches, f"{name}.concat")


def _module_c(net: NetBuilder, x: FeatureMap, name: str, n: int) -> FeatureMap:
    row, column = (1, 7), (7, 1)
    branches = [
        _chain(net, x, f"{name}.1x1", (192, 1)),
        _chain(net, x, f"{name}.7x7", (n, 1), (n, row), (192, column)),
        _chain(net, x, f"{name}.7x7dbl", (n, 1), (n, column), (n, row), (n, column), (192, row)),
        _pooled(net, x, name, 192),
    ]
    return net.concat(branches, f"{name}.concat")


def _module_d(net: NetBuilder, x: FeatureMap, name: str) -> FeatureMap:
    single = _chain(net, x, f"{name}.3x3", (192, 1))
    factorized = _chain(net, x, f"{name}.7x7x3", (192, 1), (192, (1, 7)), (192, (7, 1)))
    branches = [
        _shrink(net, single, f"{name}.3x3", 320),
        _shrink(net, factorized, f"{name}.7x7x3", 192),
        net.max_pool(x, f"{name}.pool", 3, 2),
    ]
    return net.concat(branches, f"{name}.concat")


def _module_e(net: NetBuilder, x: FeatureMap, name: str) -> FeatureMap:
    single = _chain(net, x, f"{name}.3x3", (384, 1))
    double = _chain(net, x, f"{name}.3x3dbl", (448, 1), (384, 3))
    branches = [
        _chain(net, x, f"{name}.1x1", (320, 1)),
        _split(net, single, f"{name}.3x3", 384),
        _split(net, double, f"{name}.3x3dbl", 384),
        _pooled(net, x, name, 192),
    ]
    return net.concat(branches, f"{name}.concat")


def _split(net: NetBuilder, x: FeatureMap, name: str, channels: int) -> FeatureMap:
    """Write a row and a column convolution side by side."""
    sides = [
        net.conv_norm(x, f"{name}.{side}", channels, kernel)
        for side, kernel in (("1x3", (1, 3)), ("3x1", (3, 1)))
    ]
    return net.concat(sides, f"{name}.concat")


def inception_v4(net: NetBuilder, classes: int = 1000) -> None:
    """A stem that branches three times, and 4 + 7 + 3 modules between two reductions."""
    x = _stem_v4(net)
    for i in range(4):
        x = _module_v4_a(net, x, f"a{i}")
    single = net.conv_norm(x, "reduction_a.3x3", 384, 3, stride=2, padding=0)
    double = _shrink(net, _chain(net, x, "reduction_a.3x3dbl", (192, 1), (224, 3)), "reduction_a.3x3dbl", 256)
    x = _with_pool(net, x, "reduction_a", single, double)
    for i in range(7):
        x = _module_v4_b(net, x, f"b{i}")
    single = _shrink(net, _chain(net, x, "reduction_b.3x3", (192, 1)), "reduction_b.3x3", 192)
    double = _chain(net, x, "reduction_b.7x7", (256, 1), (256, (1, 7)), (320, (7, 1)))
    x = _with_pool(net, x, "reduction_b", single, _shrink(net, double, "reduction_b.7x7", 320))
    for i in range(3):
        x = _module_v4_c(net, x, f"c{i}")
    classify(net, x, classes)


def _with_pool(net: NetBuilder, x: FeatureMap, name: str, *branches: FeatureMap) -> FeatureMap:
    """Branches that halve the size, beside the maximum of the same windows."""
    return net.concat([*branches, net.max_pool(x, f"{name}.pool", 3, 2)], f"{name}.concat")


def _stem_v4(net: NetBuilder) -> FeatureMap:
    x = net.conv_norm(net.image, "stem.1", 32, 3, stride=2, padding=0)
    x = net.conv_norm(x, "stem.2", 32, 3, padding=0)
    x = net.conv_norm(x, "stem.3", 64, 3)
    x = _with_pool(net, x, "stem.4", _shrink(net, x, "stem.4", 96))
    short = net.conv_norm(_chain(net, x, "stem.5", (64, 1)), "stem.5.3x3", 96, 3, padding=0)
    long = _chain(net, x, "stem.5.7x7", (64, 1), (64, (1, 7)), (64, (7, 1)))
    x = net.concat([short, net.conv_norm(long, "stem.5.7x7.3x3", 96, 3, padding=0)], "stem.5.concat")
    return _with_pool(net, x, "stem.6", _shrink(net, x, "stem.6", 192))


def _module_v4_a(net: NetBuilder, x: FeatureMap, name: str) -> FeatureMap:
    branches = [
        _chain(net, x, f"{name}.1x1", (96, 1)),
        _chain(net, x, f"{name}.3x3", (64, 1), (96, 3)),
        _chain(net, x, f"{name}.3x3dbl", (64, 1), (96, 3), (96, 3)),
        _pooled(net, x, name, 96),
    ]
    return net.concat(branches, f"{name}.concat")


def _module_v4_b(net: NetBuilder, x: FeatureMap, name: str) -> FeatureMap:
    row, column = (1, 7), (7, 1)
    branches = [
        _chain(net, x, f"{name}.1x1", (384, 1)),
        _chain(net, x, f"{name}.7x7", (192, 1), (224, row), (256, column)),
        _chain(net, x, f"{name}.7x7dbl", (192, 1), (192, column), (224, row), (224, column), (256, row)),
        _pooled(net, x, name, 128),
    ]
    return net.concat(branches, f"{name}.concat")


def _module_v4_c(net: NetBuilder, x: FeatureMap, name: str) -> FeatureMap:
    single = _chain(net, x, f"{name}.3x3", (384, 1))
    double = _chain(net, x, f"{name}.3x3dbl", (384, 1), (448, (3, 1)), (512, (1, 3)))
    branches = [
        _chain(net, x, f"{name}.1x1", (256, 1)),
        _split(net, single, f"{name}.3x3", 256),
        _split(net, double, f"{name}.3x3dbl", 256),
        _pooled(net, x, name, 256),
    ]
    return net.concat(branches, f"{name}.concat")
