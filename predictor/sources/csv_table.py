"""The layer table as a CSV file: the one form of a CNN that needs no framework.

Called by `predictor.zoo` (the shipped tables), by `predictor.sources` (a user's own) and by the command;
calls `layers`, `shape_checks` and the error tree. One row per layer, the columns of `Layer` in its order,
empty = unknown, `inputs` separated by spaces (-1 is the image).
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import fields
from os import PathLike
from pathlib import Path

from predictor.errors import DataError, SchemaError, nearest
from predictor.layers import ACTIVATION_KINDS, IMAGE, LAYER_TYPES, Layer, LayerTable
from predictor.sources.shape_checks import layer_complaint

__all__ = ["LAYER_TABLE_COLUMNS", "read_layer_table_csv", "write_layer_table_csv"]

LAYER_TABLE_COLUMNS = tuple(field.name for field in fields(Layer))
"""The columns of a layer table, in the order in which they are written."""

_TEXT_COLUMNS = ("name", "type", "kind")
_WHOLE = re.compile(r"[0-9]{1,15}", re.ASCII)
_WITH_PARAMETERS = ("conv2d", "conv_transpose2d", "linear", "batch_norm", "layer_norm")


def write_layer_table_csv(table: LayerTable, path: str | PathLike[str]) -> None:
    """Write a layer table as CSV; `read_layer_table_csv` gives the same layers back.

    Parameters
    ----------
    table : LayerTable
    path : str or path
        Overwritten if it exists.
    """
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(LAYER_TABLE_COLUMNS)
        writer.writerows([_text(getattr(layer, name)) for name in LAYER_TABLE_COLUMNS] for layer in table)


def read_layer_table_csv(path: str | PathLike[str], cnn: str | None = None) -> LayerTable:
    """Read a layer table from CSV and check it row by row.

    Parameters
    ----------
    path : str or path
        CSV with the columns `LAYER_TABLE_COLUMNS`, in any order.
    cnn : str, optional
        Name of the CNN; the file's name without its ending by default.

    Returns
    -------
    LayerTable
        Its image size is the input height of the first layer; where that is 1 (a CNN that makes images from a
        vector) the output height of the last.

    Raises
    ------
    DataError
        If the file cannot be read.
    SchemaError
        If a column is missing or unknown, a value is no number or no known word, or the columns of a row
        contradict each other; the message gives the line.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            layers = tuple(_layers(file, path))
    except OSError as error:
        raise DataError(f"cannot read the layer table {path}: {error.strerror or error}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"{path} is not a CSV file in UTF-8: {error}.") from error
    if not layers:
        raise SchemaError(f"{path} has a header but no layers. Give one row per layer.")
    return LayerTable(cnn or path.stem, _image_size(layers, path), layers, source="csv")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value)


def _layers(file: Iterator[str], path: Path) -> Iterator[Layer]:
    reader = csv.reader(file, strict=True)
    header = [name.strip() for name in next(reader, [])]
    _check_header(header, path)
    index = 0
    for values in reader:
        if not any(value.strip() for value in values):
            continue
        where = f"{path}, line {reader.line_num}"
        if len(values) != len(header):
            raise SchemaError(f"{where}: {len(values)} values under {len(header)} columns.")
        yield _layer(dict(zip(header, map(str.strip, values), strict=True)), index, where)
        index += 1


def _check_header(header: list[str], path: Path) -> None:
    if not any(header):
        raise SchemaError(
            f"{path} is empty. A layer table begins with the columns {','.join(LAYER_TABLE_COLUMNS)}."
        )
    missing = [name for name in LAYER_TABLE_COLUMNS if name not in header]
    if missing:
        raise SchemaError(
            f"{path}, line 1: missing column{'s' * (len(missing) > 1)} {', '.join(missing)}. "
            f"A layer table has the columns {','.join(LAYER_TABLE_COLUMNS)}."
        )
    for name in header:
        if name not in LAYER_TABLE_COLUMNS:
            close = nearest(name, LAYER_TABLE_COLUMNS)
            raise SchemaError(f"{path}, line 1: unknown column {name!r}. Nearest: {close}.")
        if header.count(name) > 1:
            raise SchemaError(f"{path}, line 1: column {name!r} is given twice.")


def _layer(row: dict[str, str], index: int, where: str) -> Layer:
    if row["index"] != str(index):
        raise SchemaError(f"{where}: index is {row['index']!r}, but rows count from 0, so {index} is due.")
    _check_words(row, where)
    numbers = {
        name: _number(row[name], name, where) for name in row if name not in (*_TEXT_COLUMNS, "inputs")
    }
    if numbers["parameters"] is None and row["type"] in _WITH_PARAMETERS:
        raise SchemaError(
            f"{where}: parameters is empty; a {row['type']} must say how many it trains (or 0)."
        )
    numbers |= {"index": index, "parameters": numbers["parameters"] or 0}
    layer = Layer(
        name=row["name"],
        type=row["type"],
        kind=row["kind"] or None,
        inputs=_inputs(row["inputs"], index, where),
        **numbers,  # type: ignore[arg-type]  # index and parameters are never None
    )
    complaint = layer_complaint(layer)
    if complaint:
        raise SchemaError(f"{where}: {row['type']} {row['name']!r}: {complaint}.")
    return layer


def _check_words(row: dict[str, str], where: str) -> None:
    if row["type"] not in LAYER_TYPES:
        close = nearest(row["type"], LAYER_TYPES)
        raise SchemaError(
            f"{where}: unknown type {row['type']!r}. Nearest: {close}; all: {', '.join(LAYER_TYPES)}."
        )
    if row["type"] == "activation":
        if row["kind"] not in ACTIVATION_KINDS:
            close = nearest(row["kind"], ACTIVATION_KINDS)
            raise SchemaError(
                f"{where}: unknown kind of activation {row['kind']!r}. Nearest: {close}; "
                f"all: {', '.join(ACTIVATION_KINDS)}."
            )
    elif row["kind"]:
        raise SchemaError(f"{where}: kind {row['kind']!r} is given, but only an activation has one.")


def _number(text: str, column: str, where: str) -> int | None:
    if not text:
        return None
    if not _WHOLE.fullmatch(text):
        raise SchemaError(
            f"{where}: {column} is {text!r}, not a whole number of at least 0 (empty = unknown)."
        )
    return int(text)


def _inputs(text: str, index: int, where: str) -> tuple[int, ...] | None:
    if not text:
        return None
    words = text.split()
    if not all(word == str(IMAGE) or _WHOLE.fullmatch(word) for word in words):
        raise SchemaError(
            f"{where}: inputs is {text!r}, not indices of rows separated by spaces (-1: the image)."
        )
    inputs = tuple(map(int, words))
    if max(inputs) >= index:
        raise SchemaError(f"{where}: inputs names row {max(inputs)}, which does not run before row {index}.")
    return inputs


def _image_size(layers: tuple[Layer, ...], path: Path) -> int:
    first, last = layers[0], layers[-1]
    size = last.out_height if first.in_height == 1 else first.in_height
    if size is None:
        raise SchemaError(f"{path}: the first layer's in_height is empty, so the image size is unknown.")
    return size
