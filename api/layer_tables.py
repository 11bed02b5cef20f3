"""CNNs that come with a question, as layer tables: named, inline, or in an ONNX file.

A name is a name of the zoo and nothing else: the core's `resolve_cnn`, which takes paths, is never called
with what a client sends.
"""

from dataclasses import asdict, fields
from typing import Any

from api.layer_fits import check_fits
from api.schemas import LayerIn, LayerTableIn
from predictor.answers.question import data_image_size
from predictor.cnns.layer_table import Layer, LayerTable, layer_complaint
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.errors import OutOfRangeError, SchemaError, UnknownCnnError, nearest

__all__ = ["as_sent", "inline_table", "of_size", "zoo_table"]

_WITH_PARAMETERS = ("conv2d", "conv_transpose2d", "linear", "batch_norm", "layer_norm")
_AS_SENT = tuple(f.name for f in fields(Layer) if f.name not in ("index", "inputs", "parameters"))


def zoo_table(name: str, image_size: int | None, data_set: str | None) -> LayerTable:
    """A CNN of the zoo, at the image size asked for, the data set's or its usual one; UnknownCnnError."""
    if name not in ZOO:
        raise UnknownCnnError(
            f"no CNN is called {name!r}. Nearest: {nearest(name, ZOO)}. `GET /v1/cnns` lists all; send any "
            "other as layer_table or onnx."
        )
    return zoo_cnn(name, image_size if image_size is not None else data_image_size(data_set, name))


def inline_table(given: LayerTableIn) -> LayerTable:
    """A layer table as sent, checked row by row; SchemaError names the row and what contradicts what."""
    layers = tuple(_layer(each, position) for position, each in enumerate(given.layers))
    size = given.image_size or _image_size(layers)
    table = LayerTable(given.name, size, layers, source="api", warnings=tuple(given.warnings))
    check_fits(table)
    return table


def as_sent(table: LayerTable) -> dict[str, Any]:
    """The table as `inline_table` takes it, to send with other questions; what is unknown is left out."""
    layers = [{name: value for name, value in asdict(layer).items() if value is not None} for layer in table]
    found = {"name": table.cnn, "image_size": table.image_size, "layers": layers}
    return found | ({"warnings": list(table.warnings)} if table.warnings else {})


def of_size(table: LayerTable, image_size: int | None) -> LayerTable:
    """The table itself; OutOfRangeError where another image size is asked for."""
    if image_size not in (None, table.image_size):
        raise OutOfRangeError(
            f"image_size {image_size}: the layer table of {table.cnn} is for {table.image_size} pixels. "
            f"Leave image_size out, or send a table made at {image_size}."
        )
    return table


def _layer(given: LayerIn, position: int) -> Layer:
    where = f"layer_table.layers[{position}]"
    if given.index not in (None, position):
        raise SchemaError(f"{where}: index is {given.index}, but rows count from 0, so {position} is due.")
    if given.inputs is not None and any(each >= position for each in given.inputs):
        raise SchemaError(f"{where}: inputs names row {max(given.inputs)}, which does not run before it.")
    if (given.kind is not None) != (given.type == "activation"):
        raise SchemaError(f"{where}: kind is what an activation has, and nothing else; type is {given.type}.")
    if given.parameters is None and given.type in _WITH_PARAMETERS:
        raise SchemaError(
            f"{where}: parameters is missing; a {given.type} must say how many it trains (or 0)."
        )
    layer = Layer(
        index=position,
        inputs=None if given.inputs is None else tuple(given.inputs),
        parameters=given.parameters or 0,
        **{name: getattr(given, name) for name in _AS_SENT},
    )
    complaint = layer_complaint(layer)
    if complaint:
        raise SchemaError(f"{where}: {given.type} {given.name!r}: {complaint}.")
    return layer


def _image_size(layers: tuple[Layer, ...]) -> int:
    first, last = layers[0], layers[-1]
    size = last.out_height if first.in_height == 1 else first.in_height
    if not size:
        raise SchemaError("layer_table.image_size: it is missing, and so is the first layer's in_height.")
    return size
