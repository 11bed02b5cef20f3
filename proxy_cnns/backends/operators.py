"""Inputs of a single measured operator, and how many copies of it one iteration holds; no framework is imported."""

from collections.abc import Callable, Mapping
from math import ceil, prod
from typing import Any

from predictor.errors import SchemaError
from predictor.operator_types import RECURRENT_TYPES, VOLUME_TYPES
from predictor.operators.operators import Operator
from proxy_cnns.backends.layers import Numbers

CPU_CACHE_BYTES = 2**24
"""Cache that copies of an operator exceed on a CPU."""

_MOST_COPIES = 16

Function = Callable[..., Any]


def copies_of(bytes_of_one: int, cache_bytes: int) -> int:
    """Copies that together exceed the cache twice; at least 1, at most 16."""
    return max(1, min(_MOST_COPIES, ceil(2 * cache_bytes / max(1, bytes_of_one))))


def n_copies(operator: Operator, batch_size: int, element_bytes: int, cache_bytes: int) -> int:
    """Copies that together exceed the cache twice with what one reads and writes in its forward pass."""
    out = [getattr(operator, f"out_{dimension}") or 0 for dimension in ("channels", "height", "width")]
    elements = sum(map(prod, input_shapes(operator, batch_size))) + batch_size * prod(out)
    return copies_of(elements * element_bytes + 4 * operator.parameters, cache_bytes)


def n_optimizer_copies(operator: Operator, cache_bytes: int, most_tensors: int) -> int:
    """Copies of an optimizer step: as many as exceed the cache twice, with at most `most_tensors` tensors in all."""
    return max(1, min(copies_of(12 * operator.parameters, cache_bytes), most_tensors // operator.n_tensors))


def functions_of(
    operator: Operator, copies: int, plain: Mapping[str, Function], layer: Callable[[], Function]
) -> list[Function]:
    """The function of each copy; SchemaError for ``flatten``, a view that takes no time.

    `plain`: functions without parameters, which all copies share, by type. `layer`: makes the function of any other
    type, one for each copy where the operator has parameters, else one for all.
    """
    if operator.type == "flatten":
        raise SchemaError("flatten is a view: it takes no time and cannot be measured.")
    if operator.type in plain and not (operator.type == "multiply" and operator.parameters):
        return [plain[operator.type]] * copies
    return [layer() for _ in range(copies)] if operator.parameters else [layer()] * copies


def input_shapes(operator: Operator, batch_size: int) -> list[tuple[int, ...]]:
    """Shape of each input of an operator.

    A map is (batch, channels, height, width), a vector (batch, channels); linear layers and layer norms on maps read
    (batch, height, width, channels). A product without parameters multiplies a map by factors for each channel.
    """
    sizes = [getattr(operator, f"in_{dimension}") for dimension in ("channels", "height", "width")]
    if None in sizes:
        raise SchemaError(f"operator {operator.name!r} lacks its input's size: it cannot be run.")
    channels, height, width = map(int, sizes)
    shape = (batch_size, channels, height, width)
    is_flat = operator.type == "linear" or operator.kind == "softmax"
    if operator.type == "loss" or (is_flat and height == width == 1):
        return [(batch_size, channels)]
    if operator.type in ("linear", "layer_norm"):
        return [(batch_size, height, width, channels)]
    if operator.type == "add":
        return [shape, shape]
    if operator.type == "multiply" and not operator.parameters:
        return [(batch_size, channels, 1, 1), shape]
    if operator.type in ("matmul", "attention"):
        return _product_shapes(operator, batch_size)
    if operator.type in RECURRENT_TYPES:
        return [(batch_size, height * width, channels)]
    if operator.type in VOLUME_TYPES:
        return [(batch_size, channels, *Numbers(operator).volume.size)]
    if operator.type == "concat":
        others = [max(1, channels // operator.n_tensors)] * (operator.n_tensors - 1)
        parts = [max(1, channels - sum(others)), *others]  # equal, the first with the remainder
        return [(batch_size, n_channels, height, width) for n_channels in parts]
    return [shape]


def _product_shapes(operator: Operator, batch_size: int) -> list[tuple[int, ...]]:
    """Shapes of the factors of a ``matmul``, or of queries, keys and values; `groups` products for each image."""
    numbers = Numbers(operator)
    groups, rows = numbers.number("groups"), numbers.in_height
    inner, columns = (n_channels // groups for n_channels in numbers.channels)
    if operator.type == "matmul":
        return [(batch_size, groups, rows, inner), (batch_size, groups, inner, columns)]
    keys = numbers.kernel_height
    return [(batch_size, groups, n, size) for n, size in ((rows, inner), (keys, inner), (keys, columns))]
