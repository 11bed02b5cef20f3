"""From the cells of an upload to rows that can be stored: bounded, checked against the measurement schema, hashed.

A row that is wrong in any way refuses the whole upload, by its line, column and value, so that what is
acknowledged is all that was sent; and no cell may make a spreadsheet run it when the rows are downloaded
again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from api.store.tables import SEARCHABLE
from api.store.upload_tables import Table, shortened
from predictor.checks import MAX_BATCH_SIZE, MAX_IMAGE_SIZE
from predictor.errors import SchemaError
from predictor.measurements.schema import COLUMNS, Column, column

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_NUMBER", "MAX_TEXT", "Row", "rows_of"]

MAX_NUMBER = 10.0**12
MAX_TEXT = 300
_LONGER = {"conv_algorithms": 100_000, "notes": 2_000}
_AT_MOST = {"batch_size": MAX_BATCH_SIZE, "image_size": MAX_IMAGE_SIZE}
_FILLED = ("format_version", "device_kind")  # by the check, where they are missing
_FORMULA = ("=", "+", "-", "@")


@dataclass(frozen=True, slots=True)
class Row:
    """One checked measurement: what is stored of it, and the SHA-256 by which it is stored once."""

    content: str
    sha256: str
    searchable: dict[str, Any]


def rows_of(table: Table) -> tuple[pd.DataFrame, list[Row]]:
    """Check an upload against the measurement schema.

    Returns
    -------
    DataFrame, list of Row
        The same rows, as the core's checked table and as they are stored, in the upload's order.

    Raises
    ------
    SchemaError, UnknownGpuError
        Naming the line or row, the column, the value and what would be right.
    """
    import pandas as pd

    from predictor.measurements.table import check_measurements

    if not table.numbers:
        raise SchemaError("the upload has no measurement. Send a header and at least one row.")
    for name, cells in table.columns.items():
        _check_text(name, cells, table)
    frame = check_measurements(
        pd.DataFrame(table.columns, dtype=object), "the upload", table.place, table.numbers
    )
    for entry in COLUMNS:
        if entry.name in table.columns and entry.form in ("count", "amount", "time"):
            _check_size(entry, frame, table)
    return frame, _stored(frame, {*table.columns, *_FILLED})


def _check_text(name: str, cells: list[str], table: Table) -> None:
    limit = _LONGER.get(name, MAX_TEXT)
    for i, cell in enumerate(cells):
        if len(cell) > limit:
            _refuse(table, i, name, cell, f"at most {limit:,} characters")
        if cell and not cell.isprintable() and not _harmless(cell):
            _refuse(table, i, name, cell, "text without control characters")
        if cell.startswith(_FORMULA) and (entry := column(name)) is not None and entry.form == "text":
            _refuse(table, i, name, cell, "text that begins with none of = + - @, which spreadsheets execute")


def _harmless(cell: str) -> bool:
    """Whether all that is not printable are spaces of other scripts; no line breaks, NULs or lone surrogates."""
    return all(
        each.isprintable() or (each.isspace() and each not in "\n\r\t\v\f\x1c\x1d\x1e\x1f\x85")
        for each in cell
    )


def _check_size(entry: Column, frame: pd.DataFrame, table: Table) -> None:
    limit = _AT_MOST.get(entry.name, MAX_NUMBER)
    above = frame[entry.name].to_numpy() > limit
    if above.any():
        i = int(above.argmax())
        _refuse(
            table, i, entry.name, table.columns[entry.name][i], f"at most {limit:,.0f} {entry.unit}".strip()
        )


def _refuse(table: Table, position: int, name: str, value: str, valid: str) -> None:
    raise SchemaError(f"{table.name(position)}: {name} is {shortened(value)}. Valid: {valid}.")


def _stored(frame: pd.DataFrame, names: set[str]) -> list[Row]:
    """Write each row as canonical JSON: keys sorted, what is missing left out, whole numbers whole."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(frame))]
    for entry in (each for each in COLUMNS if each.name in names):
        convert: Callable[[Any], Any] = (
            int if entry.form == "count" else bool if entry.form == "flag" else _same
        )
        missing = frame[entry.name].isna()
        for i, (value, absent) in enumerate(zip(frame[entry.name].tolist(), missing.tolist(), strict=True)):
            if not absent:
                rows[i][entry.name] = convert(value)
    return [_row(row) for row in rows]


def _row(row: dict[str, Any]) -> Row:
    content = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    searchable = {name: row.get(name) for name in SEARCHABLE} | {"kind": row.get("kind", "target")}
    return Row(content, hashlib.sha256(content.encode()).hexdigest(), searchable)


def _same(value: Any) -> Any:
    return value
