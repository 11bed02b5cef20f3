"""Many predictions from one table to another: a bad row gets its error text, the others their numbers.

Rows are read, answered and written in batches, so that a table may be longer than the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from os import PathLike
from typing import Any

from predictor.answers.bulk_answers import (
    REQUIRED_COLUMNS,
    Answers,
    BulkAnswers,
    checked_defaults,
    optional_columns,
)
from predictor.answers.bulk_pipes import ADDED_COLUMNS, Columns, Pipe, opened
from predictor.answers.coded import unrepeated
from predictor.answers.options import named_by_flags
from predictor.errors import SchemaError

__all__ = ["ADDED_COLUMNS", "REQUIRED_COLUMNS", "Spread", "answered_here", "optional_columns", "predict_rows"]

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

    Parameters
    ----------
    in_table : path
        CSV or Parquet by its suffix, ``-`` for standard input (`predictor.table_files`). Columns `REQUIRED_COLUMNS` and
        any of `optional_columns`; others are kept. An empty cell is the default.
    out_table : path
        Likewise. The input's columns in their order, then `ADDED_COLUMNS`; `mode` names framework, precision, memory
        format and capture, reasons are joined by ``;``. It appears when all rows are answered.
    spread : callable, optional
        What answers the batches: this process, or a cluster.
    device : str
        What computes the times of GPUs whose operators were not measured: ``cpu``, or ``cuda``, a GPU through CuPy.
    **defaults
        Options of a `Question` for every row: defaults of empty cells, and `model`, `measurements`, `anchors`.
        Samples, a row's or the default, are a part of its data set or of the default one, if there is one.

    Returns
    -------
    int
        Rows that failed.

    Raises
    ------
    SchemaError, OutOfRangeError
        If the table is empty, lacks a required column or already has an added one, or a default makes no sense.
    BackendUnavailableError
        If the device is ``cuda`` and CuPy or a GPU is missing; nothing falls back to the CPU.

    Notes
    -----
    From Parquet to Parquet nothing becomes text: that is about ten times as fast as CSV.
    """
    checked = {**checked_defaults(defaults), "device": device}
    try:
        with named_by_flags(False), opened(in_table, out_table) as pipe:  # errors of rows name their columns
            return _answered(pipe, spread, checked)
    except BrokenPipeError:
        raise  # the reader has gone
    except OSError as error:
        raise SchemaError(f"{out_table} cannot be written: {error.strerror}. Check the path.") from None


def _answered(pipe: Pipe, spread: Spread, defaults: dict[str, Any]) -> int:
    """Answer the batches of a pipe, and return how many rows failed; what is kept of a batch waits for its answers."""
    waiting: deque[tuple[Any, Any]] = deque()

    def questions() -> Iterator[Columns]:
        for kept, columns in pipe.batches:
            which, asked = unrepeated(columns)
            waiting.append((kept, which))
            yield asked

    n_failed = 0
    for found in spread(defaults, questions()):
        kept, which = waiting.popleft()
        answers = replace(found, which=found.which[which])
        pipe.write(kept, answers)
        n_failed += answers.n_failed
    return n_failed
