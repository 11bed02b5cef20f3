"""The two CSV files of many predictions: what is asked, and the same with the answers added.

Called by bulk; calls the error tree.
"""

import csv
import io
from pathlib import Path

from predictor.atomic_files import replace_file
from predictor.errors import SchemaError

__all__ = [
    "ADDED_COLUMNS",
    "OPTIONAL_COLUMNS",
    "REQUIRED_COLUMNS",
    "Answer",
    "failed",
    "read_rows",
    "write_rows",
]

REQUIRED_COLUMNS = ("cnn", "image_size", "gpu", "batch_size", "precision")
OPTIONAL_COLUMNS = (
    "memory_format",
    "framework",
    "autotune",
    "capture",
    "samples",
    "n_gpus",
    "anchor_gpu",
    "anchor_batch_size",
    "anchor_iteration_time_ms",
)
ADDED_COLUMNS = (
    "iteration_time_ms",
    "gpu_time_ms",
    "low_ms",
    "high_ms",
    "epoch_time_s",
    "method",
    "extrapolates",
    "error",
)

Answer = tuple[object, ...]
"""Cells of ADDED_COLUMNS."""


def read_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Read header and rows as text; SchemaError if the file cannot be what is asked."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except OSError as error:
        raise SchemaError(f"{path} cannot be read: {error.strerror}. Check the path.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"{path} is not a CSV file in UTF-8: {error}.") from None
    if not lines:
        raise SchemaError(f"{path} is empty. It needs the columns {', '.join(REQUIRED_COLUMNS)}.")
    header = [name.strip() for name in lines[0]]
    _check_header(path, header)
    return header, lines[1:]


def _check_header(path: Path, header: list[str]) -> None:
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


def failed(message: str) -> Answer:
    """Answer a row with nothing but the reason why."""
    return (*[""] * (len(ADDED_COLUMNS) - 1), message)


def write_rows(path: Path, header: list[str], rows: list[list[str]], answers: list[Answer]) -> None:
    """Write rows with their answers in one step, as `replace_file`; SchemaError if `path` cannot be written."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*header, *ADDED_COLUMNS])
    width = len(header)
    writer.writerows(
        (*(*row, *[""] * width)[:width], *answer) for row, answer in zip(rows, answers, strict=True)
    )
    try:
        replace_file(path, text.getvalue())
    except BrokenPipeError:
        raise  # no fault of the path: the reader has gone
    except OSError as error:
        raise SchemaError(f"{path} cannot be written: {error.strerror}. Check the path.") from None
