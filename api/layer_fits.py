"""Whether the layers of a table that was sent fit together, and its image size.

An edited table, or one made at another image size, would otherwise be answered with the time of a CNN that
cannot exist.
"""

from collections import Counter

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import SchemaError
from predictor.operators.operators import layer_inputs

__all__ = ["check_fits"]

_SIDES = ("channels", "height", "width")
_RESHAPES = ("other", "permute", "pad")  # may give another shape than their columns say


def check_fits(table: LayerTable) -> None:
    """Refuse layers that cannot follow from those they read; SchemaError names row and column.

    Unknown (null) sizes are not checked, nor are layers of several inputs, which broadcast or join. Half of a tensor
    may be read where something else reads the tensor, too (a split), and the same numbers in another shape (a view).
    """
    inputs = layer_inputs(table)
    readers = Counter(each for read in inputs for each in read)
    for position, (layer, read) in enumerate(zip(table, inputs, strict=True)):
        if len(read) != 1:
            continue
        if read[0] == IMAGE:
            _check_image(layer, position, table.image_size)
        else:
            _check_pair(table.layers[read[0]], layer, position, readers[read[0]])


def _check_image(layer: Layer, position: int, image_size: int) -> None:
    if layer.in_height not in (None, 1, image_size):  # 1: an image is made from a vector
        raise SchemaError(
            f"layer_table.layers[{position}].in_height: it is {layer.in_height}, but the layer reads the image, and "
            f"image_size is {image_size}. Send the table made at {image_size} pixels, or image_size {layer.in_height}."
        )


def _check_pair(before: Layer, layer: Layer, position: int, readers: int) -> None:
    given = tuple(getattr(before, f"out_{side}") for side in _SIDES)
    taken = tuple(getattr(layer, f"in_{side}") for side in _SIDES)
    wrong = [i for i in range(3) if None not in (given[i], taken[i]) and given[i] != taken[i]]
    if not wrong or before.type in _RESHAPES or _same_numbers(given, taken):
        return
    if wrong == [0] and readers > 1 and given[0] % taken[0] == 0:
        return
    side = _SIDES[wrong[0]]
    raise SchemaError(
        f"layer_table.layers[{position}].in_{side}: {layer.type} {layer.name!r} reads {taken[wrong[0]]}, but row "
        f"{before.index}, {before.type} {before.name!r}, gives {given[wrong[0]]} as out_{side}. Mend one "
        "of them, or say in inputs which rows it reads."
    )


def _same_numbers(given: tuple[int | None, ...], taken: tuple[int | None, ...]) -> bool:
    if None in given or None in taken:
        return False
    product = [size[0] * size[1] * size[2] for size in (given, taken)]  # type: ignore[operator]
    return product[0] == product[1]
