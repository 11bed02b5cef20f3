"""Inception v3, as torchvision writes it (Szegedy et al., arXiv:1512.00567), and v4 (arXiv:1602.07261).

The auxiliary classifier is off, the input is not rescaled.
"""

from collections.abc import Mapping, Sequence

from predictor.cnns.builder import FeatureMap, NetBuilder, Pair, classify

_Convolution = tuple[int, Pair | str]
"""Channels and kernel; instead of a kernel ``shrink`` for a 3 x 3 that halves the size, or ``split`` for a row and a
column side by side, each the last of its branch."""

_ROW, _COLUMN = (1, 7), (7, 1)


def inception_v3(net: NetBuilder, classes: int = 1000) -> None:
    """Eleven modules of parallel branches, with factorized 7 x 7 and 3 x 3 convolutions."""
    x = net.conv_norm(net.image, "conv1a", 32, 3, stride=2, padding=0)
    x = net.conv_norm(x, "conv2a", 32, 3, padding=0)
    x = net.conv_norm(x, "conv2b", 64, 3)
    x = net.max_pool(x, "maxpool1", 3, 2)
    x = net.conv_norm(x, "conv3b", 80, 1)
    x = net.conv_norm(x, "conv4a", 192, 3, padding=0)
    x = net.max_pool(x, "maxpool2", 3, 2)
    for name, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        double: Sequence[_Convolution] = ((64, 1), (96, 3), (96, 3))
        branches = {"1x1": ((64, 1),), "5x5": ((48, 1), (64, 5)), "3x3dbl": double}
        x = _module(net, x, f"mixed{name}", branches, pooled)
    x = _module(net, x, "mixed6a", {"3x3": ((384, "shrink"),), "3x3dbl": ((64, 1), (96, 3), (96, "shrink"))})
    for name, n in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        double = (n, 1), (n, _COLUMN), (n, _ROW), (n, _COLUMN), (192, _ROW)
        branches = {"1x1": ((192, 1),), "7x7": ((n, 1), (n, _ROW), (192, _COLUMN)), "7x7dbl": double}
        x = _module(net, x, f"mixed{name}", branches, 192)
    factorized = (192, 1), (192, _ROW), (192, _COLUMN), (192, "shrink")
    x = _module(net, x, "mixed7a", {"3x3": ((192, 1), (320, "shrink")), "7x7x3": factorized})
    for name in ("7b", "7c"):
        double = (448, 1), (384, 3), (384, "split")
        branches = {"1x1": ((320, 1),), "3x3": ((384, 1), (384, "split")), "3x3dbl": double}
        x = _module(net, x, f"mixed{name}", branches, 192)
    x = net.flatten(net.dropout(net.adaptive_avg_pool(x), "dropout"))
    net.linear(x, "fc", classes)


def _module(
    net: NetBuilder,
    x: FeatureMap,
    name: str,
    branches: Mapping[str, Sequence[_Convolution]],
    pooled: int | None = None,
) -> FeatureMap:
    """Branches side by side, and a pooling: of `pooled` channels, or one that halves the size.

    Branches that end in a ``shrink`` or ``split`` run first but for that end.
    """
    ends = {branch: layers[-1] for branch, layers in branches.items() if isinstance(layers[-1][1], str)}
    begun = {branch: _chain(net, x, f"{name}.{branch}", *branches[branch][:-1]) for branch in ends}
    maps = [
        _end(net, begun[branch], f"{name}.{branch}", *ends[branch])
        if branch in ends
        else _chain(net, x, f"{name}.{branch}", *layers)
        for branch, layers in branches.items()
    ]
    if pooled is None:
        maps.append(net.max_pool(x, f"{name}.pool", 3, 2))
    else:
        averaged = net.avg_pool(x, f"{name}.pool", 3, 1, padding=1)
        maps.append(net.conv_norm(averaged, f"{name}.pool_conv", pooled, 1))
    return net.concat(maps, f"{name}.concat")


def _chain(net: NetBuilder, x: FeatureMap, name: str, *convolutions: _Convolution) -> FeatureMap:
    """Convolutions (channels, kernel) one after the other, all keeping the size."""
    for i, (channels, kernel) in enumerate(convolutions):
        x = net.conv_norm(x, f"{name}.{i}", channels, kernel)  # type: ignore[arg-type]  # no end
    return x


def _end(net: NetBuilder, x: FeatureMap, name: str, channels: int, kind: Pair | str) -> FeatureMap:
    if kind == "shrink":
        return net.conv_norm(x, f"{name}.shrink", channels, 3, stride=2, padding=0)
    sides = [
        net.conv_norm(x, f"{name}.{side}", channels, kernel)
        for side, kernel in (("1x3", (1, 3)), ("3x1", (3, 1)))
    ]
    return net.concat(sides, f"{name}.concat")


def inception_v4(net: NetBuilder, classes: int = 1000) -> None:
    """A stem that branches three times, and 4 + 7 + 3 modules between two reductions."""
    x = net.conv_norm(net.image, "stem.1", 32, 3, stride=2, padding=0)
    x = net.conv_norm(x, "stem.2", 32, 3, padding=0)
    x = net.conv_norm(x, "stem.3", 64, 3)
    x = _with_pool(net, x, "stem.4", _end(net, x, "stem.4", 96, "shrink"))
    short = net.conv_norm(_chain(net, x, "stem.5", (64, 1)), "stem.5.3x3", 96, 3, padding=0)
    long = _chain(net, x, "stem.5.7x7", (64, 1), (64, (1, 7)), (64, (7, 1)))
    x = net.concat([short, net.conv_norm(long, "stem.5.7x7.3x3", 96, 3, padding=0)], "stem.5.concat")
    x = _with_pool(net, x, "stem.6", _end(net, x, "stem.6", 192, "shrink"))
    for i in range(4):
        double: Sequence[_Convolution] = ((64, 1), (96, 3), (96, 3))
        branches = {"1x1": ((96, 1),), "3x3": ((64, 1), (96, 3)), "3x3dbl": double}
        x = _module(net, x, f"a{i}", branches, 96)
    single = net.conv_norm(x, "reduction_a.3x3", 384, 3, stride=2, padding=0)
    doubled = _chain(net, x, "reduction_a.3x3dbl", (192, 1), (224, 3))
    doubled = _end(net, doubled, "reduction_a.3x3dbl", 256, "shrink")
    x = _with_pool(net, x, "reduction_a", single, doubled)
    for i in range(7):
        double = (192, 1), (192, _COLUMN), (224, _ROW), (224, _COLUMN), (256, _ROW)
        branches = {"1x1": ((384, 1),), "7x7": ((192, 1), (224, _ROW), (256, _COLUMN)), "7x7dbl": double}
        x = _module(net, x, f"b{i}", branches, 128)
    single = _end(net, _chain(net, x, "reduction_b.3x3", (192, 1)), "reduction_b.3x3", 192, "shrink")
    doubled = _chain(net, x, "reduction_b.7x7", (256, 1), (256, (1, 7)), (320, (7, 1)))
    x = _with_pool(net, x, "reduction_b", single, _end(net, doubled, "reduction_b.7x7", 320, "shrink"))
    for i in range(3):
        double = (384, 1), (448, (3, 1)), (512, (1, 3)), (256, "split")
        branches = {"1x1": ((256, 1),), "3x3": ((384, 1), (256, "split")), "3x3dbl": double}
        x = _module(net, x, f"c{i}", branches, 256)
    classify(net, x, classes)


def _with_pool(net: NetBuilder, x: FeatureMap, name: str, *branches: FeatureMap) -> FeatureMap:
    """Branches that halve the size, beside the maximum of the same windows."""
    return net.concat([*branches, net.max_pool(x, f"{name}.pool", 3, 2)], f"{name}.concat")
