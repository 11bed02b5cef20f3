"""Sizes of a layer's window and output, checked where frameworks would take them unasked.

No framework is imported here.
"""

from predictor.cnns.layer_table import Layer
from predictor.errors import SchemaError
from predictor.operators.operators import Operator

__all__ = ["check_size", "number", "out_size", "pool_rounds_up", "window"]

_SIDES = ("height", "width")


def number(layer: Layer | Operator, name: str, least: int = 1) -> int:
    """Value of a column that must be known and at least `least`; SchemaError names the layer."""
    value = getattr(layer, name)
    if value is None or value < least:
        raise SchemaError(
            f"layer {layer.name!r} of type {layer.type!r} has {name} {value!r}: to run it, every size must be "
            f"known and at least {least}. Complete the layer table."
        )
    return int(value)


def window(
    layer: Layer | Operator, stride_from: int = 1
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Kernel, stride, padding, each (height, width); only an adaptive pool may have stride 0."""
    kernel = (number(layer, "kernel_height"), number(layer, "kernel_width"))
    stride = (number(layer, "stride_height", stride_from), number(layer, "stride_width", stride_from))
    return kernel, stride, (layer.padding_height or 0, layer.padding_width or 0)


def out_size(layer: Layer | Operator) -> tuple[int, int]:
    """Height and width of the output."""
    return number(layer, "out_height"), number(layer, "out_width")


def check_size(layer: Layer | Operator, part: str, size: int) -> None:
    """Refuse a layer whose window gives another `part` (height, width) than its table says."""
    said = getattr(layer, f"out_{part}")
    if size != said:
        raise SchemaError(
            f"layer {layer.name!r}: its kernel, stride and padding give {part} {size}, but out_{part} is {said}. "
            "Correct the layer table."
        )


def pool_rounds_up(layer: Layer | Operator) -> bool | None:
    """Whether a pool's output size is rounded up; None where no window gives it: an adaptive pool.

    Raises
    ------
    SchemaError
        If it is neither.
    """
    kernel, stride, padding = window(layer, stride_from=0)
    if 0 not in stride:
        for up in (False, True):
            if _pooled_size(layer, up) == out_size(layer):
                return up
    sizes = [(number(layer, f"in_{part}"), number(layer, f"out_{part}")) for part in _SIDES]
    adaptive = tuple(-(-size // out) for size, out in sizes), tuple(size // out for size, out in sizes)
    if (kernel, stride) != adaptive or padding != (0, 0):
        for part, size in zip(_SIDES, _pooled_size(layer, up=False), strict=True):
            check_size(layer, part, size)
    return None


def _pooled_size(layer: Layer | Operator, up: bool) -> tuple[int, ...]:
    """Output size of a pool; rounded up, its last window begins inside the input or left padding."""
    sizes = []
    for part, kernel, stride, padding in zip(_SIDES, *window(layer), strict=True):
        size = number(layer, f"in_{part}")
        free = size + 2 * padding - (layer.dilation or 1) * (kernel - 1) - 1
        out = (free + (stride - 1) * up) // stride + 1
        sizes.append(out - 1 if up and (out - 1) * stride >= size + padding else out)
    return tuple(sizes)
