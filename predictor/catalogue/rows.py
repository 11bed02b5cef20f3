"""Rows of the catalogue's CSV files as dataclasses: a column is read as the type of the field that has its name."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar

from predictor.checks import yes_or_no
from predictor.errors import SchemaError

T = TypeVar("T")

_READ: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: yes_or_no("a flag", text),
    "tuple[str, ...]": lambda text: tuple(word.strip() for word in text.split(";") if word.strip()),
}
"""How a cell is read, by the type of its field."""


def read_rows(kind: type[T], path: Path, **names: str) -> tuple[T, ...]:
    """Every row of a CSV file as a dataclass whose fields are columns; other columns are left out.

    `names`: columns of fields that are called otherwise. An empty cell is the field's default, None where its type
    says so. SchemaError if columns are missing, or a cell is not of its field's type; the message has the line.
    """
    declared: Any = kind
    columns = {names.get(field.name, field.name): field for field in fields(declared)}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise SchemaError(
                f"{path.name} lacks the columns {', '.join(missing)} (datasets/README.md lists all)."
            )
        return tuple(
            kind(
                **{
                    field.name: _value(field, row[column] or "", f"{path.name}, line {reader.line_num}")
                    for column, field in columns.items()
                }
            )
            for row in reader
        )


def _value(field: Field[Any], cell: str, where: str) -> Any:
    text, of_type = cell.strip(), str(field.type)
    if not text and field.default is not MISSING:
        return field.default
    if not text and of_type.endswith(" | None"):
        return None
    try:
        return _READ[of_type.removesuffix(" | None")](text)
    except ValueError:  # a SchemaError is one
        raise SchemaError(f"{where}: {field.name} is {text!r}, which is not its type.") from None
