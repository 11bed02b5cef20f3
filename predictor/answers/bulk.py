"""Many predictions from one table to another: a bad row gets its error text, the others their numbers.

Rows are read, answered and written in batches, so that a table may be longer than the memory. From Parquet to Parquet
they stay Arrow columns; every other pair of files goes through text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from os import PathLike
from typing import Any

import numpy as np

from predictor.answers.bulk_answers import (
    FITS,
    NUMBERS,
    REQUIRED_COLUMNS,
    WORDS,
    Answers,
    BulkAnswers,
    Coded,
    checked_defaults,
    optional_columns,
    unrepeated,
)
from predictor.answers.options import named_by_flags, options_of
from predictor.answers.question import Question
from predictor.errors import SchemaError
from predictor.files import replacing
from predictor.table_files import (
    as_text,
    is_parquet,
    load_pyarrow,
    open_parquet,
    open_table,
    parquet_batches,
    writing_table,
)

ADDED_COLUMNS = (*NUMBERS, FITS, *WORDS)

Columns = Mapping[str, Coded]
"""The columns of a batch that decide its answers."""

_SPELT_LIKE = 0.84  # "precison" and "sample" are columns misspelt, "notes" is none
_ROWS_OF_TEXT = 200_000
_ROWS_OF_ARROW = 500_000
"""Rows of a batch: few enough for the memory, many enough that rows of one CNN and GPU come together."""

_TYPES = dict.fromkeys(NUMBERS, "float64") | {FITS: "bool"}
"""Added columns that are no text in Parquet."""

_Path = str | PathLike[str]

Spread = Callable[[dict[str, Any], Iterator[Columns]], Iterator[Answers]]
"""Answers batches of distinct rows with these defaults, the device among them, in their order."""


def answered_here(defaults: dict[str, Any], batches: Iterator[Columns]) -> Iterator[Answers]:
    """Answer batches in this process, one after the other."""
    return map(BulkAnswers(defaults).of, batches)


def predict_rows(
    in_table: str | PathLike[str],
    out_table: str | PathLike[str],
    *,
    spread: Spread = answered_here,
    device: str = "cpu",
    **defaults: Any,
) -> int:
    """Answer every row of a table and write it, with the answers added, to another.

    `in_table`: CSV or Parquet by its suffix, ``-`` for standard input (`predictor.table_files`). Columns
    `REQUIRED_COLUMNS` and any of `optional_columns`; others are kept. An empty cell is the default. `out_table`:
    likewise. The input's columns in their order, then `ADDED_COLUMNS`; `mode` names framework, precision, memory format
    and capture, reasons are joined by ``;``. It appears when all rows are answered. `spread`: what answers the batches:
    this process, or a cluster. `device`: what computes the times of GPUs whose operators were not measured: ``cpu``, or
    ``cuda``, a GPU through CuPy. `**defaults`: options of a `Question` for every row: defaults of empty cells, and
    `model`, `measurements`, `anchors`. Samples, a row's or the default, are a part of its data set or of the default
    one, if there is one.

    Gives how many rows failed. SchemaError or OutOfRangeError if the table is empty, lacks a required column or already
    has an added one, or a default makes no sense. BackendUnavailableError if the device is ``cuda`` and CuPy or a GPU
    is missing; nothing falls back to the CPU.

    From Parquet to Parquet nothing becomes text: that is about ten times as fast as CSV.
    """
    checked = {**checked_defaults(defaults), "device": device}
    try:
        opened = _arrow_pipe if is_parquet(in_table) and is_parquet(out_table) else _text_pipe
        with named_by_flags(False), opened(in_table, out_table) as pipe:  # errors of rows name their columns
            return _answered(pipe, spread, checked)
    except BrokenPipeError:
        raise  # the reader has gone
    except OSError as error:
        raise SchemaError(f"{out_table} cannot be written: {error.strerror}. Check the path.") from None


def _answered(pipe: _Pipe, spread: Spread, defaults: dict[str, Any]) -> int:
    """Answer the batches of a pipe, and return how many rows failed; what is kept of a batch waits for its answers."""
    waiting: deque[tuple[Any, Any]] = deque()

    def questions() -> Iterator[Columns]:
        for kept, columns in pipe.batches:
            which, distinct = unrepeated(columns)
            waiting.append((kept, which))
            yield distinct

    n_failed = 0
    for distinct in spread(defaults, questions()):
        kept, which = waiting.popleft()
        answers = replace(distinct, which=distinct.which[which])
        pipe.write(kept, answers)
        n_failed += answers.n_failed
    return n_failed


@dataclass(frozen=True, slots=True)
class _Pipe:
    """A table to answer and a table of answers: batches, each with what is kept of it, and what writes both."""

    batches: Iterator[tuple[Any, Columns]]
    write: Callable[[Any, Answers], None]


@contextmanager
def _text_pipe(in_table: _Path, out_table: _Path) -> Iterator[_Pipe]:
    """Open both tables; that of the answers appears when the block ends, and not if the block raises."""
    with open_table(in_table) as table:
        header = table.header
        _check_header(in_table, header)
        types = {**table.types, **_TYPES}
        with writing_table(out_table, [*header, *ADDED_COLUMNS], types) as writer:

            def batches() -> Iterator[tuple[list[list[str]], Columns]]:
                for rows in table.batches(_ROWS_OF_TEXT):
                    yield rows, _coded_text(header, rows)

            def write(rows: list[list[str]], answers: Answers) -> None:
                writer.write_beside(*_beside(rows, len(header), answers))

            yield _Pipe(batches(), write)


def _coded_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Columns:
    """Code the columns that decide; a row with too few or too many cells has blank ones, and so no answer."""
    n, blank = len(header), [""] * len(header)
    columns = zip(*(row if len(row) == n else blank for row in rows), strict=True)
    return {
        name: Coded.of(cells)
        for name, cells in zip(header, columns, strict=True)
        if name in BulkAnswers.columns
    }


def _beside(
    rows: list[list[str]], width: int, answers: Answers
) -> tuple[list[list[str]], list[int], list[tuple[str, ...]]]:
    """The rows, which of the added cells belong to which, and these; a row of another width gets a refusal."""
    which, cells = answers.which.tolist(), _texts(answers)
    for place, row in enumerate(rows):
        if len(row) != width:
            rows[place], which[place] = [*row, *[""] * width][:width], len(cells)
            message = f"the row has {len(row)} cells, the header {width}."
            cells.append((*[""] * (len(ADDED_COLUMNS) - 1), message))
    return rows, which, cells


def _texts(answers: Answers) -> list[tuple[str, ...]]:
    """The added cells of each distinct question."""
    numbers = [["" if value != value else repr(value) for value in row] for row in answers.numbers.tolist()]
    fits = np.where(answers.failed, "", np.where(answers.fits, "true", "false")).tolist()
    return list(zip(*numbers, fits, *(answers.words[name].tolist() for name in WORDS), strict=True))


@contextmanager
def _arrow_pipe(in_table: _Path, out_table: _Path) -> Iterator[_Pipe]:
    arrow = load_pyarrow()
    with open_parquet(in_table) as table:
        schema = table.schema_arrow
        _check_header(in_table, [name.strip() for name in schema.names])
        added = [arrow.field(name, _arrow_type(name)) for name in ADDED_COLUMNS]
        joined = arrow.schema([*schema, *added])
        text = [field.name for field in joined if not arrow.types.is_floating(field.type)]
        with (
            replacing(out_table) as file,
            arrow.parquet.ParquetWriter(file, joined, use_dictionary=text) as writer,
        ):

            def batches() -> Iterator[tuple[Any, Columns]]:
                for batch in parquet_batches(in_table, table, _ROWS_OF_ARROW):
                    yield batch, _coded_arrow(batch)

            def write(batch: Any, answers: Answers) -> None:
                columns = [*batch.columns, *_arrow_columns(answers)]
                writer.write_batch(arrow.RecordBatch.from_arrays(columns, schema=joined))

            yield _Pipe(batches(), write)


def _arrow_type(name: str) -> Any:
    arrow = load_pyarrow()
    words = arrow.dictionary(arrow.int32(), arrow.string())
    return arrow.float64() if name in NUMBERS else arrow.bool_() if name == FITS else words


def _coded_arrow(batch: Any) -> Columns:
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return {name.strip(): _coded(each) for name, each in columns if name.strip() in BulkAnswers.columns}


def _coded(column: Any) -> Coded:
    arrow = load_pyarrow()
    if not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words = as_text(column.dictionary)
    codes = column.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    return Coded([*words, ""], codes.astype(np.int64))


def _arrow_columns(answers: Answers) -> Iterator[Any]:
    """The added columns, null where nothing is known."""
    arrow, which = load_pyarrow(), answers.which
    unknown = np.isnan(answers.numbers)
    for values, mask in zip(answers.numbers, unknown, strict=True):
        yield arrow.array(values[which], mask=mask[which])
    yield arrow.array(answers.fits[which], mask=answers.failed[which])
    for name in WORDS:
        coded = Coded.of(["", *answers.words[name].tolist()])  # so that an empty cell has the code 0
        codes = coded.codes[1:].astype(np.int32)[which]
        yield arrow.DictionaryArray.from_arrays(arrow.array(codes, mask=codes == 0), coded.words)


def _check_header(path: _Path, header: Sequence[str]) -> None:
    if not header:
        raise SchemaError(f"{path} is empty. It needs the columns {', '.join(REQUIRED_COLUMNS)}.")
    missing = [name for name in REQUIRED_COLUMNS if name not in header]
    if missing:
        raise SchemaError(
            f"{path} lacks the column {', '.join(missing)}. It has {', '.join(header)}; "
            f"needed are {', '.join(REQUIRED_COLUMNS)}."
        )
    taken = [name for name in ADDED_COLUMNS if name in header]
    twice = sorted({name for name in header if header.count(name) > 1})
    if taken or twice:
        raise SchemaError(
            f"{path} has the column {', '.join(taken or twice)} "
            f"{'already, which the answer adds' if taken else 'twice'}. Rename or remove it."
        )
    _check_spelling(path, header)


def _check_spelling(path: _Path, header: Sequence[str]) -> None:
    """Refuse a column that looks like one that is read, or that only all rows can share: it would have no effect."""
    read = (*REQUIRED_COLUMNS, *optional_columns())
    others = [name for name in header if name and name not in read]
    for name in others:
        if name in options_of(Question):
            raise SchemaError(
                f"{path} has the column {name!r}, which is an option of all rows. Give it as that."
            )
        if like := get_close_matches(name.casefold(), read, n=1, cutoff=_SPELT_LIKE):
            raise SchemaError(
                f"{path} has the column {name!r}, which is not read. Nearest: {like[0]!r}. Rename it, or remove it."
            )
