"""Blocks that several families share: squeeze-and-excitation, the classifier, the rounding of widths.

Called by the families of `predictor.zoo`; calls the builder.
"""

from predictor.zoo.builder import NetBuilder
from predictor.zoo.shapes import FeatureMap

__all__ = ["classify", "make_divisible", "squeeze_excitation"]


def make_divisible(channels: float, divisor: int = 8) -> int:
    """Multiple of `divisor` nearest to `channels`, but at least `divisor` and 0.9 `channels`.

    Notes
    -----
    The rounding of MobileNet's width multiplier (Howard et al., arXiv:1704.04861, and its reference code).
    """
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * channels else rounded + divisor


def squeeze_excitation(
    net: NetBuilder, x: FeatureMap, name: str, squeezed: int, activation: str = "relu", gate: str = "sigmoid"
) -> FeatureMap:
    """Rescale channels by what a two-layer bottleneck makes of their means (Hu et al., arXiv:1709.01507)."""
    factors = net.adaptive_avg_pool(x, f"{name}.avgpool")
    factors = net.conv(factors, f"{name}.fc1", squeezed, 1)
    factors = net.activation(factors, f"{name}.{activation}", activation)
    factors = net.conv(factors, f"{name}.fc2", x.channels, 1)
    factors = net.activation(factors, f"{name}.{gate}", gate)
    return net.multiply(x, factors, f"{name}.multiply")


def classify(net: NetBuilder, x: FeatureMap, classes: int, dropout: bool = False) -> FeatureMap:
    """Global average, as a vector, with dropout if asked for, through one dense layer."""
    x = net.flatten(net.adaptive_avg_pool(x))
    if dropout:
        x = net.dropout(x, "dropout")
    return net.linear(x, "fc", classes)
