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
        readers = {field.name: (column, _reader(field)) for column, field in columns.items()}
        rows = []
        for row in reader:
            values = {}
            for name, (column, read) in readers.items():
                text = (row[column] or "").strip()
                try:
                    values[name] = read(text)
                except ValueError:  # a SchemaError is one
                    raise SchemaError(
                        f"{path.name}, line {reader.line_num}: {name} is {text!r}, which is not its type."
                    ) from None
            rows.append(kind(**values))
        return tuple(rows)


def _reader(field: Field[Any]) -> Callable[[str], Any]:
    """What reads a cell of a field, without spaces around it; ValueError if it is not of the field's type."""
    of_type = str(field.type)
    read = _READ[of_type.removesuffix(" | None")]
    if field.default is not MISSING:
        return lambda text: read(text) if text else field.default
    return (lambda text: read(text) if text else None) if of_type.endswith(" | None") else read
