"""Many predictions from one table to another: a bad row gets its error text, the others their numbers.

Rows that differ only in batch size and samples are predicted together: 100,000 rows take about a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.answers.energy import ENERGIES, watt_hours
from predictor.answers.knowledge import OwnMeasurements, load_model
from predictor.answers.options import options_of
from predictor.answers.predict import answer, epoch_times_s
from predictor.answers.question import ANCHOR_FIELDS, Question, check_share
from predictor.answers.rentals import rentals_of
from predictor.catalogue.offers import hourly_usd, load_offers
from predictor.checks import MAX_BATCH_SIZE, whole_number
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.errors import EpochcastError, OutOfRangeError, SchemaError
from predictor.table_files import TableReader, open_table, writing_table

if TYPE_CHECKING:
    from predictor.models.served import Model

__all__ = ["ADDED_COLUMNS", "REQUIRED_COLUMNS", "optional_columns", "predict_rows"]

REQUIRED_COLUMNS = ("cnn", "gpu", "batch_size")

ADDED_COLUMNS = (
    "iteration_time_ms",
    "gpu_time_ms",
    "gpu_low_ms",
    "gpu_high_ms",
    "low_ms",
    "high_ms",
    "epoch_time_s",
    "epoch_low_s",
    "epoch_high_s",
    "cost_usd",
    *ENERGIES,
    "peak_memory_gib",
    "fits_in_memory",
    "energy_basis",
    "mode",
    "method",
    "extrapolates",
    "error",
)

_NUMBERS = ADDED_COLUMNS[:6]
_FLOATS = ADDED_COLUMNS[: ADDED_COLUMNS.index("fits_in_memory")]
_TYPES = dict.fromkeys(_FLOATS, "float64") | {"fits_in_memory": "bool"}
"""Columns that are no text where the answers are Parquet."""

_OF_LOADING = ("loading_time_ms", "loading_low_ms", "loading_high_ms")
_ANCHOR = "anchor_"
_OF_EPOCH = ("samples", "validation_samples")
_FOR_ALL_ROWS = ("offers", "model", "measurements", "spot", "anchors", "method")  # options without a column
_FIXED = {"pass": "training", "xla": "false"}
"""Columns of measurement tables whose other values cannot be predicted; a row that has one is refused."""


def optional_columns() -> tuple[str, ...]:
    """Columns that a file may have beside the required ones: the options of a question, and an anchor's fields."""
    options = (name for name in options_of(Question) if name not in _FOR_ALL_ROWS)
    return (*options, *(f"{_ANCHOR}{name}" for name in ANCHOR_FIELDS), *_FIXED)


def predict_rows(in_table: str | PathLike[str], out_table: str | PathLike[str], **defaults: Any) -> int:
    """Answer every row of a table and write it, with the answers added, to another.

    Parameters
    ----------
    in_table : path
        CSV or Parquet by its suffix, ``-`` for standard input (`predictor.table_files`). Columns `REQUIRED_COLUMNS` and
        any of `optional_columns`; others are kept. An empty cell is the default.
    out_table : path
        Likewise. The input's columns in their order, then `ADDED_COLUMNS`; `mode` names framework, precision, memory
        format and capture, reasons are joined by ``;``.
    **defaults
        Options of a `Question` for every row: defaults of empty cells, and `model`, `measurements`, `anchors`. A row's
        data set replaces the default samples.

    Returns
    -------
    int
        Rows that failed.

    Raises
    ------
    SchemaError, OutOfRangeError
        If the file is empty, lacks a required column or already has an added one, or a default makes no sense.
    """
    shared = _Shared(_checked_defaults(defaults))
    with open_table(in_table) as table:
        _check_header(in_table, table.header)
        rows = list(table.rows)
    answers: list[tuple[object, ...]] = [()] * len(rows)
    for members in _grouped(table.header, rows, answers):
        _answer_group(members, answers, shared)
    _write_rows(out_table, table, rows, answers)
    return sum(1 for each in answers if each[-1])


class _Shared:
    """Data shared by all rows: defaults, the model with its measurements, and cached layer tables."""

    columns = tuple(
        name for name in (*REQUIRED_COLUMNS, *optional_columns()) if name not in ("batch_size", *_OF_EPOCH)
    )

    def __init__(self, defaults: dict[str, Any]) -> None:
        self.defaults = defaults | {"model": load_model(defaults.get("model"))}
        if defaults.get("measurements") is not None:
            own = OwnMeasurements.of(defaults["measurements"], self.defaults["model"])
            self.defaults["measurements"] = own
        if isinstance(defaults.get("offers"), str | PathLike):
            self.defaults["offers"] = load_offers(defaults["offers"])
        self._tables: dict[tuple[str, int | None], LayerTable | EpochcastError] = {}

    @property
    def model(self) -> Model:
        """The model of the predictions."""
        own = self.defaults.get("measurements")
        model: Model = self.defaults["model"] if own is None else own.model
        return model

    def table(self, cnn: str, image_size: int | None) -> LayerTable:
        """The CNN's layer table; an error is raised again for each row that names it."""
        if (cnn, image_size) not in self._tables:
            try:
                self._tables[cnn, image_size] = resolve_cnn(cnn, image_size)
            except EpochcastError as error:
                self._tables[cnn, image_size] = error
        found = self._tables[cnn, image_size]
        if isinstance(found, EpochcastError):
            raise found
        return found


@dataclass(frozen=True, slots=True)
class _Members:
    """Rows of one group: the cells that they share by column, where they stand, and their own cells.

    Their own are batch size, samples and validation samples.
    """

    shared: dict[str, str]
    positions: list[int] = field(default_factory=list)
    cells: list[tuple[str, str, str]] = field(default_factory=list)


def _checked_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse an option that is unknown, of the wrong kind or without effect before any row is read."""
    epoch: dict[str, Any] = (
        {} if {"samples", "data_set"} & set(defaults) else {"samples": 1}
    )  # rows have theirs
    question = Question.of(None, None, 1, {**epoch, **defaults})
    return {name: getattr(question, name) for name in defaults}


def _grouped(header: list[str], rows: list[list[str]], answers: list[tuple[object, ...]]) -> list[_Members]:
    """Group rows by their shared cells; rows with too few or too many cells get their error here."""
    present = [name for name in _Shared.columns if name in header]
    shared_cells = itemgetter(*(header.index(name) for name in present))
    own = [header.index(name) if name in header else len(header) for name in ("batch_size", *_OF_EPOCH)]
    own_cells = itemgetter(*own)
    width = len(header)
    groups: dict[tuple[str, ...], _Members] = {}
    for position, row in enumerate(rows):
        if len(row) != width:
            answers[position] = _failed(f"the row has {len(row)} cells, the header {width}.")
            continue
        shared = shared_cells(row)
        members = groups.get(shared)
        if members is None:
            members = groups[shared] = _Members(dict(zip(present, shared, strict=True)))
        members.positions.append(position)
        members.cells.append(own_cells([*row, ""]))  # a column that the file lacks is an empty cell
    return list(groups.values())


def _answer_group(members: _Members, answers: list[tuple[object, ...]], shared: _Shared) -> None:
    """Fill in the answers of rows that share CNN, GPU and mode: one question for all their batch sizes."""
    numbers: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    found: dict[tuple[str, str, str], tuple[object, ...]] = {}
    for own in set(members.cells):
        try:
            numbers[own] = _own_numbers(own, members.shared, shared)
        except EpochcastError as error:
            found[own] = _failed(str(error))
    if numbers:
        try:
            found |= _answered(members.shared, numbers, shared)
        except EpochcastError as error:
            found |= dict.fromkeys(numbers, _failed(str(error)))
    for position, own in zip(members.positions, members.cells, strict=True):
        answers[position] = found[own]


def _own_numbers(
    own: tuple[str, str, str], cells: Mapping[str, str], shared: _Shared
) -> tuple[int, int, int]:
    """Batch size, samples and validation samples of a row; 0 samples where a data set or nothing gives them."""
    size, data_set = (
        whole_number("batch_size", own[0], high=MAX_BATCH_SIZE),
        cells.get("data_set", "").strip(),
    )
    options = options_of(Question)
    n_gpus = cells.get("n_gpus", "").strip() or shared.defaults.get("n_gpus")
    check_share(size, options["n_gpus"].checked(n_gpus))
    if data_set and own[1].strip():
        raise SchemaError(
            f"both samples {own[1]!r} and data_set {data_set!r} are given. Fill in one of them."
        )
    usual = shared.defaults | ({"samples": None, "data_set": data_set} if data_set else {})
    samples, validation = (
        options[name].checked(text if text.strip() else usual.get(name))
        for name, text in zip(_OF_EPOCH, own[1:], strict=True)
    )
    if validation and samples is None and usual.get("data_set") is None:
        raise SchemaError(f"validation_samples {validation} needs an epoch to follow. Fill in samples, too.")
    return size, samples or 0, validation


def _answered(
    cells: dict[str, str], numbers: dict[tuple[str, str, str], tuple[int, int, int]], shared: _Shared
) -> dict[tuple[str, str, str], tuple[object, ...]]:
    """Answer each distinct triple of batch size, samples and validation samples."""
    question = _question(cells, sorted({size for size, _, _ in numbers.values()}), shared)
    columns = answer(question).columns
    of_data_set = question.epoch_samples() or 0
    rows = np.array([(size, samples or of_data_set, more) for size, samples, more in numbers.values()])
    batch_sizes, samples_each, validation = rows.T
    at = np.searchsorted(question.batch_sizes, batch_sizes)
    times = np.array([columns[name] for name in _NUMBERS], dtype=float)[:, at]
    [(gpu, mode)] = question.devices()
    loading = np.array([columns[name] for name in _OF_LOADING], dtype=float)[:, at]
    asked = np.where(samples_each > 0, 1.0, np.nan)  # without samples there is no epoch
    more = (samples_each, validation, shared.model, mode)
    epochs = [
        asked * epoch_times_s(time, batch_sizes, *more, loaded, question.workers == 0)
        for time, loaded in zip(times[[0, 4, 5]], loading, strict=True)
    ]
    cost = epochs[0] * _usd_per_hour(question) / 3600.0
    power_w = np.array(columns["power_w"], dtype=float)[at]
    time_s, low_s, high_s = (each[None] for each in epochs)
    energy = watt_hours([gpu], power_w[None], time_s, low_s, high_s, question.n_gpus)
    of_epoch = np.array([*epochs, cost, *(energy[name][0] for name in ENERGIES)]).T.tolist()
    basis = columns["energy_basis"][0]
    memory = [
        (repr(columns["peak_memory_gib"][i]), str(columns["fits_in_memory"][i]).lower(), basis) for i in at
    ]
    words = ", ".join((mode.framework, mode.precision, mode.memory_format, mode.capture))
    method, reasons = columns["method"][0], ["; ".join(each) for each in columns["extrapolates"]]
    return {
        own: (*_cells(time), *_cells(epoch), *fit, words, method, reasons[i], "")
        for own, time, epoch, fit, i in zip(
            numbers, times.T.tolist(), of_epoch, memory, at.tolist(), strict=True
        )
    }


def _cells(numbers: Sequence[float]) -> list[str]:
    """Numbers as text; nothing for what is unknown, as an epoch without samples or a cost without an offer."""
    return [repr(each) if each == each else "" for each in numbers]


def _usd_per_hour(question: Question) -> float:
    """Price of what is rented for a group's GPU; NaN without an offer."""
    [rental] = rentals_of(question, [gpu for gpu, _ in question.devices()])
    return math.nan if rental.offer is None else question.nodes * hourly_usd(rental.offer, question.spot)


def _question(cells: dict[str, str], batch_sizes: list[int], shared: _Shared) -> Question:
    for name, only in _FIXED.items():
        if cells.get(name, "").strip().casefold() not in ("", only):
            raise OutOfRangeError(
                f"{name} {cells[name]!r} cannot be predicted. Leave it empty, or write {only}."
            )
    options = options_of(Question)
    given = {name: cells[name] for name in options if cells.get(name, "").strip()}
    anchor = {name: cells[_ANCHOR + name] for name in ANCHOR_FIELDS if cells.get(_ANCHOR + name, "").strip()}
    more = {"anchors": [anchor]} if anchor else {}
    usual = {name: value for name, value in shared.defaults.items() if name not in _OF_EPOCH}
    question = Question(cells["cnn"], cells["gpu"], batch_sizes, **(usual | given | more))
    return _with_table(question, shared)


def _with_table(question: Question, shared: _Shared) -> Question:
    """The question with its layer table in place of the name, which saves a look-up per row."""
    cnn = str(question.cnn)
    return replace(question, cnn=shared.table(cnn, question.image_size_of(cnn)), image_size=None)


def _check_header(path: str | PathLike[str], header: Sequence[str]) -> None:
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


def _failed(message: str) -> tuple[object, ...]:
    """Answer a row with nothing but its error."""
    return (*[""] * (len(ADDED_COLUMNS) - 1), message)


def _write_rows(
    path: str | PathLike[str], table: TableReader, rows: list[list[str]], answers: list[tuple[object, ...]]
) -> None:
    width, types = len(table.header), {**table.types, **_TYPES}
    added = ((*(*row, *[""] * width)[:width], *each) for row, each in zip(rows, answers, strict=True))
    try:
        with writing_table(path, [*table.header, *ADDED_COLUMNS], types) as writer:
            writer.write(added)
    except BrokenPipeError:
        raise  # the reader has gone
    except OSError as error:
        raise SchemaError(f"{path} cannot be written: {error.strerror}. Check the path.") from None
