"""Layer tables as CSV: what people write by hand, and what `LayerTable.to_csv` writes, read."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from predictor.catalogue.modes import CAPTURES, MEMORY_FORMATS, OPTIMIZERS, PRECISIONS, Habits
from predictor.checks import MAX_BATCH_SIZE, MAX_SAMPLES
from predictor.cnns.layer_table import (
    BETWEEN_WARNINGS,
    IMAGE,
    LAYER_TABLE_COLUMNS,
    OPTIONAL_COLUMNS,
    STEP_COLUMNS,
    TABLE_COLUMNS,
    USUAL_CELLS,
    Layer,
    LayerTable,
    Step,
    TableWarning,
    image_side,
    layer_complaint,
    table_complaint,
)
from predictor.errors import DataError, SchemaError, nearest
from predictor.operator_types import ACTIVATION_KINDS, KINDS, LAYER_TYPES, OPERATOR_TYPES, RUNNING

_STEP_SWITCHES = (*Habits._fields, "drop_last")
_STEP_WORDS = {
    "precision": PRECISIONS,
    "memory_format": MEMORY_FORMATS,
    "optimizer": OPTIMIZERS,
    "capture": CAPTURES,
    "optimizer_form": ("foreach", "fused", "loop"),
    "parallel": ("dp",),
    **dict.fromkeys(_STEP_SWITCHES, ("True",)),
}
_STEP_COUNTS = ("waits", "first_wait", "last_wait", "beside", "update_waits")
_STEP_NUMBERS = ("optimizer_states", "optimizer_passes", "optimizer_copies")
_WARNING_KINDS = ("cnn", "frozen", "operator")
_TEXT_COLUMNS = ("name", "type", "kind")
_OPTIONAL_COLUMNS = ("inputs", *OPTIONAL_COLUMNS)
_COMPUTED_COLUMNS = ("forward_flops", "training_flops", "training_bytes", "forward_arithmetic_intensity")
_USUAL_COLUMNS = tuple(name for name in LAYER_TABLE_COLUMNS if name not in USUAL_CELLS)
_WHOLE = re.compile(r"[0-9]{1,15}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)


def read_layer_table_csv(path: str | PathLike[str], cnn: str | None = None) -> LayerTable:
    """Read a layer table from CSV and check it row by row.

    `path`: CSV with the columns `LAYER_TABLE_COLUMNS`, in any order. Without `repeats` all are 1; without `inputs`
    layers read the one before, or, where they cannot, what is unknown. A recorded step's batch size and mode are
    columns, too. The work of layers, which `epochcast cnn show --format csv` adds, is computed again. `cnn`: name of
    the CNN; the file's name without its ending by default. The image size is the input height of the first layer; where
    that is 1 (a CNN that makes images from a vector) the output height of the last. A column `image_size` says
    otherwise. DataError if the file cannot be read. SchemaError if a column is missing or unknown, a value is no number
    or no known word, or the columns of a row or of a row and the one that it reads contradict each other; the message
    gives the line or row.
    """
    path = Path(path)
    about: dict[str, str] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            layers = tuple(_layers(file, path, about))
    except OSError as error:
        raise DataError(f"cannot read the layer table {path}: {error.strerror or error}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"{path} is not a CSV file in UTF-8: {error}.") from error
    if not layers:
        raise SchemaError(f"{path} has a header but no layers. Give one row per layer.")
    size = _counted(about, "image_size", path) or image_side(layers)
    if size is None:
        raise SchemaError(f"{path}: the first layer's in_height is empty, so the image size is unknown.")
    table = LayerTable(
        cnn or path.stem, size, layers, source="csv", warnings=_warnings(about, path), step=_step(about, path)
    )
    complaint = table_complaint(table)
    if complaint is not None:
        position, column, why = complaint
        raise SchemaError(f"{path}, row {position + 1}, column {column}: {why}")
    return table


def _layers(file: Iterator[str], path: Path, about: dict[str, str]) -> Iterator[Layer]:
    """The rows; `about` gets what they say of the whole CNN."""
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
        row = dict(zip(header, map(str.strip, values), strict=True))
        for name in TABLE_COLUMNS:
            text = row.pop(name, "")
            if about.setdefault(name, text) != text:
                raise SchemaError(
                    f"{where}: {name} is {text!r}, but {about[name]!r} in the rows before. It is that of the whole "
                    "CNN: write the same in every row."
                )
        yield _layer({name: row[name] for name in row if name not in _COMPUTED_COLUMNS}, index, where)
        index += 1


def _step(about: Mapping[str, str], path: Path) -> Step | None:
    """The recorded step that the rows name; None where they name no batch size."""
    batch_size = _counted(about, "batch_size", path, MAX_BATCH_SIZE)
    filled = [name for name in STEP_COLUMNS if about[name]]
    if batch_size is None and filled:
        raise SchemaError(
            f"{path}: {filled[0]} is {about[filled[0]]!r}, but batch_size is empty. A recorded step has a batch size; "
            "of a CNN without one leave both out."
        )
    if batch_size is None:
        return None
    words = {name: about[name] for name in _STEP_WORDS if about[name]}
    for name, word in words.items():
        _check_word(word, _STEP_WORDS[name], f"{path}: unknown {name}")
    counts: dict[str, Any] = {name: _counted(about, name, path) for name in _STEP_COUNTS}
    counts["samples"] = _counted(about, "samples", path, MAX_SAMPLES)
    parts = _counted(about, "parts", path) or 1
    numbers = {name: _decimal(about[name], name, path) for name in _STEP_NUMBERS if about[name]}
    switches = dict.fromkeys(words.keys() & set(_STEP_SWITCHES), True)
    return Step(batch_size, parts, **(counts | words | numbers | switches))


def _warnings(about: Mapping[str, str], path: Path) -> tuple[TableWarning, ...]:
    warnings = []
    for text in filter(None, about["warnings"].split(BETWEEN_WARNINGS)):
        kind, colon, what = text.partition(": ")
        if kind not in _WARNING_KINDS or not colon:
            raise SchemaError(
                f"{path}: warnings has {text!r}. One is 'KIND: what is not known', of the kinds "
                f"{', '.join(_WARNING_KINDS)}."
            )
        warnings.append(TableWarning(kind, what))  # type: ignore[arg-type]  # one of the three
    return tuple(warnings)


def _counted(about: Mapping[str, str], name: str, path: Path, high: int = 10**6) -> int | None:
    """A whole number from 1 that all rows agree on; None where it is empty."""
    number = _number(about[name], name, str(path))
    if number is not None and not 1 <= number <= high:
        raise SchemaError(f"{path}: {name} is {number}. Valid: 1 to {high:,}.")
    return number


def _check_header(header: list[str], path: Path) -> None:
    if not any(header):
        raise SchemaError(
            f"{path} is empty. A layer table begins with the columns {','.join(_USUAL_COLUMNS)}."
        )
    missing = [name for name in LAYER_TABLE_COLUMNS if name not in header and name not in _OPTIONAL_COLUMNS]
    if missing:
        raise SchemaError(
            f"{path}, line 1: missing column{'s' * (len(missing) > 1)} {', '.join(missing)}. "
            f"A layer table has the columns {','.join(_USUAL_COLUMNS)}."
        )
    for name in header:
        columns = (*LAYER_TABLE_COLUMNS, *TABLE_COLUMNS, *_COMPUTED_COLUMNS)
        _check_word(name, columns, f"{path}, line 1: unknown column")
        if header.count(name) > 1:
            raise SchemaError(f"{path}, line 1: column {name!r} is given twice.")


def _layer(row: dict[str, str], index: int, where: str) -> Layer:
    if row["index"] != str(index):
        raise SchemaError(f"{where}: index is {row['index']!r}, but rows count from 0, so {index} is due.")
    _check_word(row["type"], LAYER_TYPES, f"{where}: unknown type", with_all=True)
    if row["type"] == "activation":
        _check_word(row["kind"], ACTIVATION_KINDS, f"{where}: unknown kind of activation", with_all=True)
    elif row["kind"] and row["kind"] not in KINDS.get(row["type"], ()):
        raise SchemaError(
            f"{where}: kind {row['kind']!r} is given, but only an activation has one, a batch norm of {RUNNING} "
            f"statistics, and a permute to {' or '.join(MEMORY_FORMATS)}."
        )
    columns = [name for name in row if name not in (*_TEXT_COLUMNS, "inputs")]
    numbers = {name: _number(row[name], name, where) for name in columns}
    if numbers["parameters"] is None and OPERATOR_TYPES[row["type"]].weights:
        raise SchemaError(
            f"{where}: parameters is empty; a {row['type']} must say how many it trains (or 0)."
        )
    if numbers.get("repeats", 1) is None:
        numbers["repeats"] = 1
    numbers |= {"index": index, "parameters": numbers["parameters"] or 0}
    layer = Layer(
        name=row["name"],
        type=row["type"],
        kind=row["kind"] or None,
        inputs=_inputs(row.get("inputs", ""), index, where),
        **numbers,  # type: ignore[arg-type]  # index and parameters are never None
    )
    complaint = layer_complaint(layer)
    if complaint:
        raise SchemaError(f"{where}: {row['type']} {row['name']!r}: {complaint}.")
    return layer


def _check_word(word: str, words: Collection[str], unknown: str, *, with_all: bool = False) -> None:
    if word not in words:
        more = f"; all: {', '.join(words)}" * with_all
        raise SchemaError(f"{unknown} {word!r}. Nearest: {nearest(word, words)}{more}.")


def _number(text: str, column: str, where: str) -> int | None:
    if not text:
        return None
    if not _WHOLE.fullmatch(text):
        raise SchemaError(
            f"{where}: {column} is {text!r}, not a whole number of at least 0 (empty = unknown)."
        )
    return int(text)


def _decimal(text: str, column: str, path: Path) -> float:
    if not _DECIMAL.fullmatch(text):
        raise SchemaError(f"{path}: {column} is {text!r}, not a number of at least 0, such as 2.0.")
    return float(text)


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


def zipped_layer_table(path: Path, member: str, cnn: str) -> LayerTable | None:
    """Layer table of a CNN in a zip file, None if it lacks the member; refused as by `read_layer_table_csv`."""
    with ZipFile(path) as tables, TemporaryDirectory() as folder:
        is_there = member in tables.namelist()
        return read_layer_table_csv(tables.extract(member, folder), cnn) if is_there else None
