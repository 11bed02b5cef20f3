"""Tables on terminals and pipes, and the same records as JSON or CSV.

On a terminal too narrow for a table, the columns that matter least are left out and named below it; a pipe
gets every column, unwrapped.
"""

import csv
import json
import math
import os
import string
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Any

from predictor.answers.notes import duration, number
from predictor.errors import SchemaError
from predictor.table_files import STANDARD, SUFFIXES, writing_table

Record = Mapping[str, Any]
"""One line of a table, by field."""


class Format(StrEnum):
    """Forms that a command prints."""

    table = "table"
    json = "json"
    csv = "csv"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its header, how a record's cell reads, and its rank (0 stays; the highest goes first)."""

    header: str
    text: Callable[[Any], str]
    left: bool = False
    rank: int = 0


_FORMS: dict[str, Callable[[Any], str]] = {
    "number": number,
    "duration": duration,
    "percent": lambda share: f"{100 * share:.1f} %",
    "some": lambda amount: f"{amount:g}" if amount else "",
    "minute": lambda moment: moment[:16].replace("T", " "),
    "words": " ".join,
}
"""How cells of columns.csv are written, beside Python's own formats."""


class _Cells(string.Formatter):
    """Writes the fields of a cell: ``number 1e9`` divides first, ``yes|no`` tells a flag; None is empty."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """One field in a form of `_FORMS` or of Python's."""
        if "|" in format_spec:
            yes, no = format_spec.split("|")
            return (yes or str(value)) if value else no
        form, _, divisor = format_spec.partition(" ")
        if value is None or form not in _FORMS:
            return "" if value is None else format(value, format_spec)
        return _FORMS[form](value / float(divisor) if divisor else value)


@cache
def table_columns(table: str) -> tuple[Column, ...]:
    """The columns of a table that `columns.csv` lists, by its command's words."""
    with Path(__file__).with_name("columns.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == table]
    write = _Cells().vformat
    return tuple(
        Column(row["header"], partial(write, row["text"], ()), row["left"] == "left", int(row["rank"]))
        for row in rows
    )


def print_records(records: Sequence[Record], how: Format, fields: Iterable[str], **about: object) -> None:
    """Print records as JSON (an object with `about` and ``rows``) or as CSV (only the rows) to stdout."""
    if how is Format.json:
        rows = [json_ready(record) for record in records]
        print(json.dumps({**json_ready(about), "rows": rows}, indent=2, allow_nan=False))
        return
    writer = csv.DictWriter(sys.stdout, fieldnames=list(fields), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in record.items()} for record in records)


def print_as(
    output: Format,
    records: Sequence[Record],
    columns: Sequence[Column],
    title: str | None,
    fields: Iterable[str] | None = None,
    notes: Iterable[str] = (),
    **about: object,
) -> None:
    """Print records as a table of these columns and notes, or with all `fields` (the first record's) as JSON or CSV."""
    if output is Format.table:
        print_table(records, columns, title, notes)
    else:
        print_records(records, output, fields or (records[0] if records else ()), **about)


def write_records(records: Sequence[Record], path: Path, fields: Iterable[str]) -> None:
    """Write records with every field to a table by its suffix (`predictor.table_files`); ``-`` is standard output.

    SchemaError for another suffix, BackendUnavailableError for Parquet without pyarrow.
    """
    if str(path) != STANDARD and not path.name.casefold().endswith(SUFFIXES):
        raise SchemaError(f"--out {path}: its suffix must be one of {', '.join(SUFFIXES)}.")
    columns = {name: _type([record[name] for record in records]) for name in fields}
    with writing_table(path, list(columns), columns) as writer:
        writer.write([str(_cell(record[name], "")) for name in columns] for record in records)


def print_table(
    records: Sequence[Any],
    columns: Sequence[Column],
    title: str | None = None,
    notes: Iterable[str] = (),
    group: str | None = None,
    strong: Callable[[Any], bool] | None = None,
) -> None:
    """Print records to stdout as a table that fits the terminal, with a title above and notes below, wrapped.

    `group` is the header of a column whose repeated cells are left blank, `strong` says whether a record's line stands
    out.
    """
    print_line, width = _printer()
    cells = [[column.text(record) for record in records] for column in columns]
    # Empty columns are never shown, the least important ones not where the table is too wide.
    shown = [i for i, column in enumerate(columns) if any(cells[i]) or not column.rank]
    for i in sorted(shown, key=lambda i: -columns[i].rank):
        if columns[i].rank and max(map(len, _lines([(columns[j], cells[j]) for j in shown]))) > width:
            shown.remove(i)
    if title:
        print_line(title, style="bold")
    picked = [(columns[i], _without_repeats(cells[i], columns[i].header == group)) for i in shown]
    bold = [True, *(strong is not None and strong(record) for record in records)]
    for line, is_bold in zip(_lines(picked), bold, strict=True):
        print_line(line, style="bold" if is_bold else "")
    hidden = [column.header for i, column in enumerate(columns) if i not in shown and any(cells[i])]
    if hidden:
        notes = [*notes, f"Left out for lack of width: {', '.join(hidden)} (--format csv has all)."]
    print_notes(notes)


def print_notes(notes: Iterable[str], style: str = "dim") -> None:
    """Print paragraphs to stdout, each wrapped to at most 100 columns."""
    print_line, width = _printer()
    for note in notes:
        text = textwrap.fill(note, min(width, 100), subsequent_indent="  ", break_on_hyphens=False)
        print_line(text, style=style)


def counted(n: int, noun: str) -> str:
    """A number and its noun, which takes an s unless the number is one.

    Examples
    --------
    >>> counted(1, "measurement")
    '1 measurement'
    >>> counted(2484, "measurement")
    '2,484 measurements'
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def json_ready(value: Any) -> Any:
    """`value` with objects as dicts, tuples as lists, dates as text and NaN as null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: json_ready(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(entry) for entry in value]
    if isinstance(value, date):
        return value.isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _type(values: Iterable[Any]) -> str:
    """Type of a column in Parquet: that of its values, text for all but numbers and flags."""
    types = {type(value) for value in values if value is not None}
    if types <= {int, float} and types:
        return "float64" if float in types else "int64"
    return "bool" if types == {bool} else "string"


def _cell(value: Any, absent: str | None = None) -> Any:
    if isinstance(value, list | tuple):
        return "; ".join(str(entry) for entry in value)
    return absent if value is None else value


def _printer() -> tuple[Callable[..., object], int]:
    """What prints a line in a `style`, and the columns that a line may take: of a pipe any number, without style."""
    is_wide = os.environ.get("COLUMNS", "").isdigit()
    if not (is_wide or sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
        return lambda line, **_: print(line, flush=True), 10_000
    from rich.console import Console  # a tenth of the time of predict

    console = Console()
    plain = partial(console.print, highlight=False, markup=False, emoji=False, soft_wrap=True)
    return plain, console.width


def _lines(columns: list[tuple[Column, list[str]]]) -> list[str]:
    """Header and rows. A last column without a header follows the text before it, as its width is of few rows."""
    widths = [max([len(column.header), *map(len, cells)]) for column, cells in columns]
    ragged = len(columns) > 1 and columns[-2][0].left and not columns[-1][0].header
    lines = []
    for line in zip(*([column.header, *cells] for column, cells in columns), strict=True):
        padded = [
            cell.ljust(width) if column.left else cell.rjust(width)
            for cell, width, (column, _) in zip(line, widths, columns, strict=True)
        ]
        if ragged and line[-2]:
            padded[-2] = line[-2]
        lines.append("  ".join(padded).rstrip())
    return lines


def _without_repeats(cells: list[str], is_group: bool) -> list[str]:
    return ["" if is_group and i and cell == cells[i - 1] else cell for i, cell in enumerate(cells)]
