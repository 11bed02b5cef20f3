"""The operators of the presets `quick` and `library`: designed to have neighbours for any CNN's layers.

Two parts: designed shapes, which no CNN of the zoo has, and the convolutions of a few named, common CNNs, for
whose shapes cuDNN has kernels of their own. So what a library knows of a CNN that is not named is what it
knows of any user's.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice

from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.designed_convolutions import convolutions
from proxy_cnns.designed_layers import layers

__all__ = ["COMMON_CNNS", "LIBRARY_CNNS", "common_operators", "designed_operators", "same_work"]

COMMON_CNNS = ("resnet18", "resnet50", "vgg16", "mobilenet_v2")
"""CNNs whose convolutions `quick` has; ResNet-34, -101 and -152 and the other VGGs have the same ones."""

LIBRARY_CNNS = (*COMMON_CNNS, "densenet121", "inception_v3", "efficientnet_b0", "resnext50_32x4d")
"""CNNs whose convolutions `library` has."""


@lru_cache(maxsize=4)
def designed_operators(scale: float = 1.0) -> tuple[Operator, ...]:
    """Designed shapes, none of them a shape of a CNN of the zoo.

    Parameters
    ----------
    scale : float
        1 for the smallest library; a larger one holds the shapes of every smaller one.
    """
    real = _real_shapes()
    families = chain(convolutions(), layers())
    shapes = (islice(_new(shapes, real), round(count * scale)) for _, count, shapes in families)
    return tuple(dict.fromkeys(chain.from_iterable(shapes)))  # families touch where small maps begin


def common_operators(cnns: tuple[str, ...] = COMMON_CNNS) -> tuple[Operator, ...]:
    """Distinct convolutions of named CNNs of the zoo at their usual image size."""
    found = chain.from_iterable(operators_of(zoo_cnn(name)) for name in cnns)
    return tuple(dict.fromkeys(operator for operator in found if operator.type == "conv2d"))


def same_work(operator: Operator) -> Operator:
    """Return the shape alone, without what hardly changes its time: two that are equal here count as one shape."""
    if operator.type in ("optimizer", "loss"):
        return operator
    return replace(operator, parameters=0, input_gradient=True, in_place=False, wide_input=False)


def _new(shapes: Iterator[Operator], real: frozenset[Operator]) -> Iterator[Operator]:
    """Those that are neither a real CNN's nor there already."""
    seen: set[Operator] = set()
    for operator in shapes:
        shape = same_work(operator)
        if shape not in real and shape not in seen:
            seen.add(shape)
            yield operator


@lru_cache(maxsize=1)
def _real_shapes() -> frozenset[Operator]:
    tables = map(zoo_cnn, zoo_names())
    return frozenset(same_work(operator) for table in tables for operator in operators_of(table))
