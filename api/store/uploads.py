"""Uploads: CSV or JSON taken apart into cells of text, checked against the measurement schema, hashed.

Nothing is unpickled or executed. A row that is wrong in any way refuses the whole upload, by its line, column and
value, so that what is acknowledged is all that was sent; and no cell may make a spreadsheet run it when the rows are
downloaded again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from api.store.tables import SEARCHABLE
from predictor.checks import MAX_BATCH_SIZE, MAX_IMAGE_SIZE
from predictor.errors import SchemaError, nearest
from predictor.measurements.schema import COLUMNS, Column, column

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 20_000
MAX_NUMBER = 10.0**12
LEAST_NUMBER = 1e-6
"""Of a time or an amount above zero: what is smaller was not measured, and its inverse is not a finite number."""

_MOST_KEYS = 1_000  # of an object: to name a hundred thousand unknown ones takes 90 MiB
_SPREADS = ("iteration_time_ms_iqr",)  # repeats may differ by less: an operator's time by a picosecond
MAX_TEXT = 300
_MOST_COMMAS = 1_000  # of a header: a million take 120 MiB before the first name is refused
_LONGER = {"conv_algorithms": 100_000, "notes": 2_000}
_AT_MOST = {"batch_size": MAX_BATCH_SIZE, "image_size": MAX_IMAGE_SIZE}
_FILLED = ("format_version", "device_kind", "float32_matmul_precision")  # by the check, where missing
_LINE_BREAKS = "\n\r\t\v\f\x1c\x1d\x1e\x1f\x85"
_FORMULA = ("=", "+", "-", "@")


@dataclass(frozen=True, slots=True)
class Table:
    """An upload before it is checked: cells as text, and the number of every row: a line in CSV, a row in JSON."""

    unit: str
    numbers: list[int]
    columns: dict[str, list[str]]

    def name(self, position: int) -> str:
        """Name of the row at a position, such as 'the upload, line 3'."""
        return f"the upload, {self.unit} {self.numbers[position]}"


def csv_table(body: bytes) -> Table:
    """Read an upload in CSV.

    SchemaError if it is not UTF-8 or CSV, has no or too many rows, more columns than a measurement, or a row has more
    or fewer cells than the header.
    """
    n_commas = body.lstrip().partition(b"\n")[0].count(b",")
    if n_commas > _MOST_COMMAS:
        raise SchemaError(
            f"the upload's first line has {n_commas:,} commas, a measurement {len(COLUMNS)} columns. "
            "Is it a CSV whose first line names them?"
        )
    reader = csv.reader(io.StringIO(_text(body), newline=""), strict=True)
    names: list[str] | None = None
    numbers: list[int] = []
    cells: list[list[str]] = []
    try:
        for line in reader:
            if not any(cell.strip() for cell in line):
                continue  # an empty line is no measurement
            if names is None:
                names = _header([cell.strip() for cell in line])
                continue
            _check_row(len(cells), "line", reader.line_num)
            if len(line) != len(names):
                raise SchemaError(
                    f"the upload, line {reader.line_num} has {len(line)} cells, the header {len(names)}. "
                    "Is the file cut off, or a comma unquoted?"
                )
            numbers.append(reader.line_num)
            cells.append(line)
    except csv.Error as error:
        raise SchemaError(f"the upload, line {reader.line_num} is not CSV: {error}.") from None
    columns = zip(*cells, strict=True) if cells else ([] for _ in names or ())
    return Table("line", numbers, dict(zip(names or [], map(list, columns), strict=True)))


def json_table(body: bytes) -> Table:
    """Read an upload in JSON: a list of objects, or an object with such a list as ``rows``.

    SchemaError if it is not UTF-8 or JSON, or not of this form; a value is text, a finite number, true, false or null.
    """
    return table_of_rows(parsed_json(body))


def parsed_json(body: bytes, name: str = "the upload") -> Any:
    """Parse JSON strictly: no NaN, no key twice, no depth that Python cannot follow; SchemaError otherwise."""
    try:
        return json.loads(_text(body), parse_constant=_no_constant, object_pairs_hook=_distinct)
    except RecursionError:
        raise SchemaError(f"{name} is JSON that is nested too deeply. Send flat objects.") from None
    except ValueError as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"{name} is not JSON: {error}.") from None


def table_of_rows(document: Any) -> Table:
    """Table of a parsed JSON document, a list of objects; a column that a row lacks is an empty cell."""
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise SchemaError('the upload is not a list of rows. Send {"rows": [{"gpu": "Tesla T4", ...}, ...]}.')
    columns: dict[str, list[str]] = {}
    for i, row in enumerate(rows):
        _check_row(i, "row", i + 1)
        if not isinstance(row, dict):
            raise SchemaError(f"the upload, row {i + 1} is {shortened(row)}, not an object with columns.")
        for name, value in row.items():
            if name not in columns:
                _header([name])
                columns[name] = [""] * len(rows)
            columns[name][i] = _cell(value, name, i)
    return Table("row", list(range(1, len(rows) + 1)), columns)


def table_sent(columns_sent: list[dict[str, Any]] | dict[str, list[Any]]) -> Table:
    """Take apart measurements as a question brings them: rows, or columns of the same length; null is an empty cell.

    SchemaError if a column is unknown, longer or shorter than the others, or a cell is neither text nor a finite
    number.
    """
    if isinstance(columns_sent, list):
        return table_of_rows(columns_sent)
    n_rows = max((len(cells) for cells in columns_sent.values()), default=0)
    _check_row(n_rows - 1, "row", n_rows)
    for name, cells in columns_sent.items():
        if column(name) is not None and len(cells) != n_rows:
            raise SchemaError(
                f"the upload's column {name} has {len(cells):,} cells, another {n_rows:,}. Give each as many, null "
                "where nothing was measured."
            )
    columns = {
        name: [_cell(cell, name, i) for i, cell in enumerate(columns_sent[name])]
        for name in _header([*columns_sent])
    }
    return Table("row", list(range(1, n_rows + 1)), columns)


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"the body is not UTF-8 text ({error.reason} at byte {error.start}). "
            "Send CSV or JSON, gzipped with Content-Encoding: gzip."
        ) from None


def _header(names: Sequence[str]) -> list[str]:
    """Refuse columns that the schema does not have: nothing that was sent is dropped in silence."""
    for name in names:
        if column(name) is None:
            raise SchemaError(
                f"the upload has the column {shortened(name)}, which a measurement does not have. "
                f"Nearest: {nearest(name[:100], [entry.name for entry in COLUMNS])}. Rename it, or leave it out."
            )
        if names.count(name) > 1:
            raise SchemaError(f"the upload has the column {name!r} twice. Remove one.")
    return list(names)


def _check_row(n_before: int, unit: str, number: int) -> None:
    if n_before >= MAX_ROWS:
        raise SchemaError(
            f"the upload has more than {MAX_ROWS:,} rows (see {unit} {number}). Send it in several parts: "
            "rows that come twice are stored once."
        )


def _cell(value: Any, name: str, i: int) -> str:
    """Write a JSON value as its CSV cell would be, so that both forms pass the same checks."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not isfinite(value):
        _no_constant("NaN" if value != value else "Infinity")
    if isinstance(value, int | float):
        return repr(value)
    raise SchemaError(
        f"the upload, row {i + 1}: {name} is {shortened(value)}. Valid: text or a number, not nested."
    )


def _no_constant(name: str) -> Any:
    raise SchemaError(f"the body holds {name}, which JSON does not have. Leave out what was not measured.")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MOST_KEYS:
        raise SchemaError(
            f"the body's JSON has an object of {len(pairs):,} keys; nothing that is asked has more than {_MOST_KEYS:,}."
        )
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(f"the body's JSON has the key {shortened(twice)} twice in one object. Remove one.")
    return content


def shortened(value: object) -> str:
    """Quote what was sent, at most 80 characters of it, for an error message."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return "a number too large to write"
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True, slots=True)
class Row:
    """One checked measurement: what is stored of it, and the SHA-256 by which it is stored once."""

    content: str
    sha256: str
    searchable: dict[str, Any]


def rows_of(table: Table) -> tuple[pd.DataFrame, list[Row]]:
    """Check an upload against the measurement schema: its rows as the core's checked table, and as they are stored.

    SchemaError, OutOfRangeError or UnknownGpuError name the line or row, the column, the value and what would be right.
    """
    import pandas as pd

    from predictor.measurements.shortest import check_rows_not_too_short
    from predictor.measurements.table import check_measurements

    if not table.numbers:
        raise SchemaError("the upload has no measurement. Send a header and at least one row.")
    for name, cells in table.columns.items():
        _check_text(name, cells, table)
    sent = pd.DataFrame(table.columns, dtype=object)
    frame = check_measurements(sent, "the upload", table.unit, table.numbers)
    for entry in COLUMNS:
        if entry.name in table.columns and entry.form in ("count", "amount", "time"):
            _check_size(entry, frame, table)
    check_rows_not_too_short(frame, "the upload", table.unit, table.numbers)
    return frame, _stored(frame, {*table.columns, *_FILLED})


def _check_text(name: str, cells: list[str], table: Table) -> None:
    limit = _LONGER.get(name, MAX_TEXT)
    for i, cell in enumerate(cells):
        if len(cell) > limit:
            _refuse(table, i, name, cell, f"at most {limit:,} characters")
        if not cell.isprintable() and not all(
            letter.isprintable() or (letter.isspace() and letter not in _LINE_BREAKS) for letter in cell
        ):
            _refuse(table, i, name, cell, "text without control characters")
        if is_formula(cell) and (entry := column(name)) is not None and entry.form == "text":
            _refuse(table, i, name, cell, "text that begins with none of = + - @, which spreadsheets execute")


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet may execute a cell; wide signs of East Asian keyboards count, too."""
    return unicodedata.normalize("NFKC", cell[:50]).strip().startswith(_FORMULA)


def _check_size(entry: Column, frame: pd.DataFrame, table: Table) -> None:
    limit = _AT_MOST.get(entry.name, MAX_NUMBER)
    numbers = frame[entry.name].to_numpy(dtype=float)
    above, dust = numbers > limit, (numbers > 0) & (numbers < LEAST_NUMBER) & (entry.name not in _SPREADS)
    for wrong, valid in ((above, f"at most {limit:,.0f}"), (dust, f"at least {LEAST_NUMBER:g}")):
        if wrong.any():
            i = int(wrong.argmax())
            _refuse(table, i, entry.name, table.columns[entry.name][i], f"{valid} {entry.unit}".strip())


def _refuse(table: Table, position: int, name: str, value: str, valid: str) -> None:
    raise SchemaError(f"{table.name(position)}: {name} is {shortened(value)}. Valid: {valid}.")


def _stored(frame: pd.DataFrame, names: set[str]) -> list[Row]:
    """Write each row as canonical JSON: keys sorted, what is missing left out, whole numbers whole."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(frame))]
    for entry in filter(lambda column: column.name in names, COLUMNS):
        convert: Callable[[Any], Any] = {"count": int, "flag": bool}.get(entry.form, lambda value: value)
        missing = frame[entry.name].isna()
        for i, (value, absent) in enumerate(zip(frame[entry.name].tolist(), missing.tolist(), strict=True)):
            if not absent:
                rows[i][entry.name] = convert(value)
    return [_row(row) for row in rows]


def _row(row: dict[str, Any]) -> Row:
    content = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    searchable = {name: row.get(name) for name in SEARCHABLE} | {"kind": row.get("kind", "target")}
    return Row(content, hashlib.sha256(content.encode()).hexdigest(), searchable)
