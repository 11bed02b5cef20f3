"""Many predictions from one CSV file to another: a bad row gets its error text, the others their numbers."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.answers.predict import epoch_times_s
from predictor.answers.question import anchors_of, load_model
from predictor.catalogue.devices import check_precision, find_gpu
from predictor.catalogue.modes import Mode
from predictor.checks import MAX_BATCH_SIZE, MAX_IMAGE_SIZE, MAX_SAMPLES, whole_number, yes_or_no
from predictor.cnns.resolve import resolve_cnn
from predictor.errors import EpochcastError, OutOfRangeError, SchemaError
from predictor.files import replace_file

if TYPE_CHECKING:
    from predictor.cnns.layer_table import LayerTable
    from predictor.models.served import Anchor, IterationForecast, Model

__all__ = [
    "ADDED_COLUMNS",
    "OPTIONAL_COLUMNS",
    "REQUIRED_COLUMNS",
    "Answer",
    "failed",
    "predict_rows",
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


_PER_ROW = frozenset({"batch_size", "samples"})
_SHARED = tuple(name for name in (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS) if name not in _PER_ROW)


def predict_rows(
    in_csv: str | PathLike[str],
    out_csv: str | PathLike[str],
    model: Model | str | PathLike[str] | None = None,
) -> int:
    """Answer every row of a CSV and write it, with the answers added, to another.

    Parameters
    ----------
    in_csv : path
        Columns `REQUIRED_COLUMNS` and any of `OPTIONAL_COLUMNS`; others are kept. An empty cell is the
        default: the CNN's usual image size, fp32, NCHW, PyTorch, no autotuning, eager, one GPU, no epoch
        time, no anchor.
    out_csv : path
        The input's columns in their order, then `ADDED_COLUMNS`; reasons are joined by ``;``.
    model : Model or path, optional

    Returns
    -------
    int
        Rows that failed.

    Raises
    ------
    SchemaError
        If the file is empty, lacks a required column, or already has an added one.
    """
    header, rows = read_rows(Path(in_csv))
    answers: list[Answer] = [()] * len(rows)
    groups = _grouped(header, rows, answers)
    served, tables = load_model(model), _Tables()
    for shared, members in groups.items():
        _answer_group(dict(zip(_SHARED, shared, strict=True)), members, answers, served, tables)
    write_rows(Path(out_csv), header, rows, answers)
    return sum(1 for answer in answers if answer[-1])


@dataclass(frozen=True, slots=True)
class _Members:
    """Rows of one group: where they stand, and their own cells."""

    positions: list[int]
    batch_sizes: list[str]
    samples: list[str]


class _Tables:
    """Layer tables already looked up, or why they cannot be."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], LayerTable | EpochcastError] = {}

    def find(self, cnn: str, image_size: str) -> LayerTable:
        if (cnn, image_size) not in self._known:
            try:
                text = image_size.strip()
                size = whole_number("image_size", text, high=MAX_IMAGE_SIZE) if text else None
                self._known[cnn, image_size] = resolve_cnn(cnn, size)
            except EpochcastError as error:
                self._known[cnn, image_size] = error
        found = self._known[cnn, image_size]
        if isinstance(found, EpochcastError):
            raise found
        return found


def _grouped(
    header: list[str], rows: list[list[str]], answers: list[Answer]
) -> dict[tuple[str, ...], _Members]:
    """Rows by what they share; a row with too few or too many cells is answered with its error here."""
    places = [header.index(name) if name in header else -1 for name in _SHARED]
    batch_at = header.index("batch_size")
    samples_at = header.index("samples") if "samples" in header else -1
    width = len(header)
    groups: dict[tuple[str, ...], _Members] = {}
    for position, row in enumerate(rows):
        if len(row) != width:
            answers[position] = failed(f"the row has {len(row)} cells, the header {width}.")
            continue
        shared = tuple([row[place] if place >= 0 else "" for place in places])
        members = groups.get(shared)
        if members is None:
            members = groups[shared] = _Members([], [], [])
        members.positions.append(position)
        members.batch_sizes.append(row[batch_at])
        members.samples.append(row[samples_at] if samples_at >= 0 else "")
    return groups


def _answer_group(
    shared: dict[str, str], members: _Members, answers: list[Answer], model: Model, tables: _Tables
) -> None:
    """Fill in the answers of rows that share CNN, GPU and mode: one forecast for all their batch sizes."""
    sizes, bad_sizes = _numbers("batch_size", members.batch_sizes, MAX_BATCH_SIZE)
    samples, bad_samples = _numbers(
        "samples", [text for text in members.samples if text.strip()], MAX_SAMPLES
    )
    wanted = {
        (size, count)
        for size, count in set(zip(members.batch_sizes, members.samples, strict=True))
        if size in sizes and (count in samples or not count.strip())
    }
    try:
        cells = _cells(shared, wanted, sizes, samples, model, tables)
    except EpochcastError as error:
        cells = dict.fromkeys(wanted, failed(str(error)))
    for place, pair in zip(
        members.positions, zip(members.batch_sizes, members.samples, strict=True), strict=True
    ):
        answers[place] = cells.get(pair) or failed(bad_sizes.get(pair[0]) or bad_samples[pair[1]])


def _cells(
    shared: dict[str, str],
    wanted: set[tuple[str, str]],
    sizes: dict[str, int],
    samples: dict[str, int],
    model: Model,
    tables: _Tables,
) -> dict[tuple[str, str], Answer]:
    """Answer each distinct pair of batch size and samples."""
    if not wanted:
        return {}
    pairs = sorted(wanted)
    mode = _mode(shared)
    distinct = sorted({sizes[size] for size, _ in pairs})
    at = np.searchsorted(distinct, [sizes[size] for size, _ in pairs])
    forecast = _forecast(shared, mode, distinct, model, tables)
    times = np.asarray(forecast.iteration_time_ms)
    if not np.all(np.isfinite(times) & (times > 0)):
        raise OutOfRangeError("the model gives a time that is not positive. Try a batch size nearer to 64.")
    counts = np.array([samples.get(count, 0) for _, count in pairs])
    epochs = epoch_times_s(times[at], np.asarray(distinct)[at], counts, 0, model, mode)
    columns = (times, forecast.gpu_time_ms, forecast.low_ms, forecast.high_ms)
    numbers = np.stack([np.asarray(column)[at] for column in columns], axis=1).tolist()
    reasons = ["; ".join(forecast.extrapolates[i]) for i in at]
    return {
        pair: (*numbers[i], epoch if counts[i] else "", forecast.method, reasons[i], "")
        for i, (pair, epoch) in enumerate(zip(pairs, epochs.tolist(), strict=True))
    }


def _forecast(
    shared: dict[str, str], mode: Mode, batch_sizes: list[int], model: Model, tables: _Tables
) -> IterationForecast:
    if shared["n_gpus"].strip() and whole_number("n_gpus", shared["n_gpus"]) != 1:
        raise OutOfRangeError(
            f"n_gpus {shared['n_gpus']} cannot be predicted yet. Leave it empty, or write 1."
        )
    gpu = find_gpu(shared["gpu"])
    check_precision(gpu, mode.precision)
    table = tables.find(shared["cnn"], shared["image_size"])
    return model.forecast(table, gpu, mode, batch_sizes, _anchors(shared, model, mode))


def _mode(shared: dict[str, str]) -> Mode:
    words = ("precision", "memory_format", "framework", "capture")
    given: dict[str, Any] = {name: shared[name].strip() for name in words if shared[name].strip()}
    return Mode(**given, autotune=yes_or_no("autotune", shared["autotune"]))


def _anchors(shared: dict[str, str], model: Model, mode: Mode) -> tuple[Anchor, ...]:
    prefix = "anchor_"
    given = {
        name.removeprefix(prefix): text
        for name, text in shared.items()
        if name.startswith(prefix) and text.strip()
    }
    return anchors_of([given], model, mode) if given else ()


def _numbers(name: str, texts: list[str], high: int) -> tuple[dict[str, int], dict[str, str]]:
    """Each distinct text's number, or its error."""
    numbers: dict[str, int] = {}
    errors: dict[str, str] = {}
    for text in set(texts):
        try:
            numbers[text] = whole_number(name, text, high=high)
        except EpochcastError as error:
            errors[text] = str(error)
    return numbers, errors
