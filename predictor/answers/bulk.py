"""Many predictions from one table to another: a bad row gets its error text, the others their numbers.

Rows are read, answered and written in batches, so that a table may be longer than the memory. From Parquet to Parquet
they stay Arrow columns; every other pair of files goes through text. Rows that agree in everything but GPU, batch size
and samples are asked together, as one grid of GPUs and batch sizes; every row then looks up its place in it. Nothing is
answered row by row, so a million rows take about a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.answers.coded import Coded, Indices, distinct, unrepeated
from predictor.answers.loading import LOADING_TIMES, STARTS, WAITS
from predictor.answers.notes import as_answered
from predictor.answers.offers import ENERGIES, EPOCH_TIMES, energy_basis, epochs, rentals_of, rented_rows
from predictor.answers.options import check_read, named_by_flags, options_of, renewed
from predictor.answers.question import (
    ANCHOR_FIELDS,
    OF_EPOCHS,
    OPTIONS,
    RETIRED,
    MiniBatch,
    Question,
    replaced_by,
)
from predictor.answers.resolved import OwnMeasurements, ResolvedQuestion, load_model
from predictor.arrays import Array
from predictor.catalogue.data_sets import find_training_set
from predictor.catalogue.devices import Gpu, device_of
from predictor.catalogue.modes import DROPPING, FIXED_EPOCHS, Mode
from predictor.catalogue.offers import load_offers
from predictor.checks import MAX_BATCH_SIZE, MAX_SAMPLES, whole_number
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.errors import EpochcastError, OutOfRangeError, SchemaError
from predictor.files import replacing
from predictor.models.epochs import last_mini_batch, run_samples
from predictor.models.forecast import ENDS
from predictor.table_files import (
    as_text,
    is_parquet,
    load_pyarrow,
    open_parquet,
    open_table,
    parquet_batches,
    writing_table,
)

if TYPE_CHECKING:
    from predictor.models.served import Model


REQUIRED_COLUMNS = ("cnn", "gpu", "batch_size")

NUMBERS = (
    "iteration_time_ms", "gpu_time_ms", "gpu_low_ms", "gpu_high_ms", "low_ms", "high_ms", "loading_time_ms",
    *EPOCH_TIMES, *STARTS, "cost_usd", *ENERGIES, "peak_memory_gib",
)  # fmt: skip
"""Added columns that hold numbers; NaN where a row has none."""

_OF_OFFERS = (
    *(name for name in NUMBERS if name not in (*EPOCH_TIMES, "cost_usd", *ENERGIES)),
    *LOADING_TIMES[1:], *WAITS, "batch_size", "gpus_used", "per_gpu", "usd_per_hour", "power_w", "power_limit_w",
    "power_spread", "fits_in_memory",
)  # fmt: skip
"""What is kept of a grid: what the added columns, and epochs, follow from."""

FITS = "fits_in_memory"
"""Added column that holds yes or no."""

WORDS = ("energy_basis", "bottleneck", "mode", "method", "extrapolates", "error")
"""Added columns that hold text."""

_ANCHOR = "anchor_"
_OWN = ("batch_size", "samples", "validation_samples")
_PRICED = {"samples", "data_set", "framework_loop", "n_gpus", "workers", "loader", "data_source", *RETIRED}
"""Options or columns beside which prices and the machines of offers change an answer."""

_FIXED = {"pass": "training", "xla": "false"}
"""Columns of measurement tables whose other values cannot be predicted; a row that has one is refused."""

_MOST_KEPT = 500_000
"""Points of grids that are kept for the batches to come: about 100 MB."""

_MOST_TOGETHER = 100_000
"""Points of one question to several GPUs."""

_BLANK, _BAD = -2, -1
"""In place of a whole number: an empty cell, and one that holds none."""

_Cells = Mapping[str, str]


def optional_columns() -> tuple[str, ...]:
    """Columns beside the required ones: options of a question, an anchor's fields, `_FIXED` of one allowed value."""
    retired = (name for name, option in RETIRED.items() if "cell" in option.answers)
    return (*options_of(Question, "cell"), *retired, *(f"{_ANCHOR}{name}" for name in ANCHOR_FIELDS), *_FIXED)


def checked_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse an option that is unknown, of the wrong kind or without effect before any row is read."""
    defaults = renewed(defaults, OPTIONS)
    has_own = {"samples", "data_set"} & set(defaults) or defaults.get("framework_loop") in FIXED_EPOCHS
    epoch = {} if has_own else {"samples": 1}  # rows have theirs
    question = Question.of(None, None, 1, {**epoch, **defaults})
    check_read(question, "bulk")
    return {name: getattr(question, name) for name in defaults}


class Texts:
    """A column of text that is filled in bit by bit: `codes`, shape (n,), are places in `words`; 0 is an empty cell."""

    def __init__(self, n: int) -> None:
        self._code_of = {"": 0}
        self.codes = np.zeros(n, dtype=np.int32)

    @property
    def words(self) -> list[str]:
        """Distinct texts, the empty one first."""
        return list(self._code_of)

    def put(self, places: Any, words: Sequence[str], which: Any = 0) -> None:
        """Write `words[which]` at these places."""
        codes = [self._code_of.setdefault(word, len(self._code_of)) for word in words]
        self.codes[places] = np.array(codes, dtype=np.int32)[which]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to the distinct questions of a batch of rows; `question_of_row`, shape (n_rows,), says which a row asks.

    `numbers` has shape (len(NUMBERS), n_questions), `fits` (n_questions,). `words` are the columns `WORDS`; where
    `error` is not empty, nothing else is known.
    """

    question_of_row: Indices
    numbers: Array
    fits: NDArray[np.bool_]
    words: dict[str, Texts]

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Whether each question failed."""
        return np.not_equal(self.words["error"].codes, 0)

    @property
    def n_failed(self) -> int:
        """Rows that failed."""
        return int(np.count_nonzero(self.failed[self.question_of_row]))


@dataclass(frozen=True, slots=True)
class _Grid:
    """Answers of one GPU at ascending batch sizes, without the epoch, which follows from each row's samples.

    `numbers` are those of `OfferRows`, `words` the added columns of text; an array has an entry per batch size.
    """

    sizes: Indices
    numbers: dict[str, NDArray[Any]]
    words: dict[str, Coded]
    model: Model
    mode: Mode
    between: bool  # images are loaded between iterations


@dataclass(frozen=True, slots=True)
class _Group:
    """Distinct questions of rows that agree in the columns `cells`, sorted by GPU.

    `own` are the columns `_OWN`, as text and, in `numbers` of shape (3, n_questions), as whole numbers.
    """

    cells: dict[str, str]
    gpus: Coded
    own: list[Coded]
    numbers: Indices


_Grids = dict[str, _Grid | EpochcastError]


class BulkAnswers:
    """Answers batches of rows; the model, layer tables and grids are kept from batch to batch.

    `defaults`: of `checked_defaults`; `device` and `of_project`, as of `predict_rows`, where they are given.
    """

    columns = (*REQUIRED_COLUMNS, *optional_columns())
    """Columns that are read; all others are kept as they are."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self.defaults: dict[str, Any] = {**defaults}
        model, device = load_model(defaults.get("model")), self.defaults.pop("device", "cpu")
        self._of_project = self.defaults.pop("of_project", ())
        self.defaults["model"] = model if device == "cpu" else model.on(device)
        if defaults.get("measurements") is not None:
            own = OwnMeasurements.of(defaults["measurements"], self.defaults["model"])
            self.defaults["measurements"] = own
        if isinstance(defaults.get("offers"), str | PathLike):
            self.defaults["offers"] = load_offers(defaults["offers"])
        self._tables: dict[tuple[str, int | None], LayerTable | EpochcastError] = {}
        self._grids: dict[tuple[tuple[tuple[str, str], ...], str], _Grid] = {}
        self._n_kept = 0

    def of(self, columns: Mapping[str, Coded]) -> Answers:
        """Answer rows, given their columns of `BulkAnswers.columns`; the required ones must be there."""
        shared = [name for name in columns if name not in ("gpu", *_OWN)]
        own = [columns.get(name) or Coded.blank(len(columns["gpu"].codes)) for name in _OWN]
        question_of_row, codes = distinct([*(columns[name] for name in (*shared, "gpu")), *own])
        of_group, of_gpu, of_own = np.split(codes, [len(shared), len(shared) + 1])
        numbers = np.stack([_whole(*column) for column in zip(_OWN, own, of_own, strict=True)])
        n = codes.shape[1]
        words = {name: Texts(n) for name in WORDS}
        answers = Answers(question_of_row, np.full((len(NUMBERS), n), np.nan), np.zeros(n, dtype=bool), words)
        starts = np.flatnonzero((np.diff(of_group, prepend=-1) != 0).any(axis=0)).tolist()
        for start, end in pairwise([*starts, n]):
            cells = {name: columns[name].words[i] for name, i in zip(shared, of_group[:, start], strict=True)}
            gpus = Coded(columns["gpu"].words, of_gpu[0, start:end])
            coded = [Coded(column.words, codes[start:end]) for column, codes in zip(own, of_own, strict=True)]
            self._answer(_Group(cells, gpus, coded, numbers[:, start:end]), answers, start)
        return answers

    def _answer(self, group: _Group, answers: Answers, start: int) -> None:
        """Fill in the answers of a group, whose questions are those from `start` on."""
        numbers, errors = self._numbers(group)
        numbers[1] = np.where(numbers[1] > 0, numbers[1], self._samples(group.cells))
        try:
            numbers[1:] = self._run_samples(group.cells, numbers)
        except SchemaError:  # of some of them, which are told one by one
            for index in np.flatnonzero(numbers[0] > 0).tolist():
                try:
                    numbers[1:, [index]] = self._run_samples(group.cells, numbers[:, [index]])
                except SchemaError as dropped:
                    errors[index], numbers[0, index] = str(dropped), 0
        for index, error in errors.items():
            answers.words["error"].put(start + index, [error])
        checked = np.flatnonzero(numbers[0] > 0)
        by_gpu = np.split(checked, np.flatnonzero(np.diff(group.gpus.codes[checked])) + 1)
        places = {group.gpus.words[group.gpus.codes[own[0]]]: own for own in by_gpu if own.size}
        last_sizes = self._last_sizes(group.cells, numbers, checked)
        sizes_of_gpus = {
            gpu: np.unique(np.append(numbers[0, indices], last_sizes[:, indices]))
            for gpu, indices in places.items()
        }
        grids = self._grids_of(group.cells, sizes_of_gpus)
        for gpu, indices in places.items():
            grid = grids[gpu]
            if isinstance(grid, EpochcastError):
                answers.words["error"].put(start + indices, [str(grid)])
                continue
            sizes, samples, validation = numbers[:, indices]
            at, *at_last = np.searchsorted(grid.sizes, [sizes, *last_sizes[:, indices]])
            rows = {name: values[at] for name, values in grid.numbers.items()}
            last = [{name: grid.numbers[name][at] for name in (*ENDS, *LOADING_TIMES)} for at in at_last]
            rows |= epochs(rows, last, samples, validation, grid.model, grid.mode, grid.between)
            answers.numbers[:, start + indices] = [rows[name] for name in NUMBERS]
            answers.fits[start + indices] = rows[FITS]
            for name, text in grid.words.items():
                answers.words[name].put(start + indices, text.words, text.codes[at])

    def _samples(self, cells: _Cells) -> int:
        """Samples of these rows' data set; 0 without one, or where the grid refuses it."""
        try:
            data_set = self._option(cells, "data_set")
            return find_training_set(data_set).samples if data_set else 0
        except EpochcastError:
            return 0

    def _run_samples(self, cells: _Cells, numbers: Indices) -> Indices:
        """Samples of the training and validation pass that the loop of these rows runs, (2, n_questions)."""
        is_asked = (numbers[0] > 0) & (numbers[1] > 0)
        if not is_asked.any():
            return numbers[1:]
        names = ("n_gpus", "framework_loop", "drop_last")
        n_gpus, loop, drop_last = (self._option(cells, name) for name in names)
        sizes, samples, validation = numbers[:, is_asked]
        run = numbers[1:].copy()
        run[:, is_asked] = run_samples(samples, validation, sizes, n_gpus, loop, drop_last)
        return run

    def _last_sizes(self, cells: _Cells, numbers: Indices, checked: Indices) -> Indices:
        """Batch size of the last iteration of each question's training and validation pass, (2, n_questions)."""
        last_sizes = np.zeros((2, numbers.shape[1]), dtype=np.int64)
        if checked.size:
            n_gpus, parts = (self._option(cells, name) for name in ("n_gpus", "gradient_accumulation"))
            local = numbers[0, checked] // n_gpus
            last_sizes[:, checked] = n_gpus * last_mini_batch(numbers[1:, checked], local, n_gpus, parts)
        return last_sizes

    def _numbers(self, group: _Group) -> tuple[Indices, dict[int, str]]:
        """Batch size (0: refused), samples (0: the data set's, or none) and validation samples of each question.

        With them the error of each refused question, by its place.
        """
        usual = [_BAD, *(self._default(group.cells, name) or 0 for name in ("samples", "validation_samples"))]
        numbers = np.where(group.numbers == _BLANK, np.array(usual)[:, None], group.numbers)
        errors: dict[int, str] = {}
        for index in np.flatnonzero(~self._plain(group, numbers)).tolist():
            texts = [column.words[column.codes[index]] for column in group.own]
            try:
                numbers[:, index] = self._checked(group.cells, *texts)
            except EpochcastError as error:
                errors[index], numbers[0, index] = str(error), 0
        return numbers, errors

    def _plain(self, group: _Group, numbers: Indices) -> NDArray[np.bool_]:
        """Questions with which nothing is wrong; the others are checked one by one, which takes microseconds each."""
        data_set = self._option(group.cells, "data_set")
        try:
            shares = self._option(group.cells, "n_gpus") * self._option(group.cells, "gradient_accumulation")
            most = find_training_set(data_set).samples if data_set else MAX_SAMPLES
            loop, drops = (self._option(group.cells, name) for name in ("framework_loop", "drop_last"))
            is_of_epoch = any(self._option(group.cells, name) for name in OF_EPOCHS[1:])
        except EpochcastError:
            return np.zeros(numbers.shape[1], dtype=bool)
        sizes, samples, validation = numbers
        if loop in FIXED_EPOCHS or (drops and loop in DROPPING):  # which leave options unread
            return np.zeros(numbers.shape[1], dtype=bool)
        plain: NDArray[np.bool_] = (
            (sizes > 0) & (sizes % shares == 0) & (samples != _BAD) & (samples <= most) & (validation != _BAD)
        )
        if not data_set:
            plain &= ((validation == 0) & (not is_of_epoch)) | (samples > 0)
        return plain

    def _option(self, cells: _Cells, name: str) -> Any:
        """An option of these rows, or of all."""
        return options_of(Question)[name].checked(cells.get(name, "").strip() or self._default(cells, name))

    def _default(self, cells: _Cells, name: str) -> Any:
        """The default of an option of these rows; none of the project that their own cells leave without effect."""
        if name in self._of_project:
            own = {column: text.strip() for column, text in cells.items() if text.strip()}
            return None if name in replaced_by(own) else self.defaults.get(name)
        return self.defaults.get(name)

    def _checked(self, cells: _Cells, size: str, samples: str, validation: str) -> tuple[int, int, int]:
        """Check a question's own cells; 0 samples where a data set or nothing gives them."""
        batch_size = whole_number("batch_size", size, high=MAX_BATCH_SIZE)
        parts = self._option(cells, "gradient_accumulation")
        MiniBatch(batch_size, self._option(cells, "n_gpus"), parts).check()
        of_row = {**cells, "samples": samples, "validation_samples": validation}
        values = {name: self._option(of_row, name) for name in ("samples", "data_set", *OF_EPOCHS)}
        question = Question(None, None, batch_size, **values)
        samples_asked = MAX_SAMPLES if question.epoch_of_loop else question.samples or 0
        return batch_size, samples_asked, question.validation_samples

    def _grids_of(self, cells: _Cells, sizes_of_gpus: Mapping[str, Indices]) -> _Grids:
        """Grids of these GPUs with at least these batch sizes: kept ones, or new ones that contain them."""
        key, grids = tuple(cells.items()), _Grids()
        missing: dict[str, Indices] = {}
        for gpu, sizes in sizes_of_gpus.items():
            kept = self._grids.get((key, gpu))
            if kept is not None and np.isin(sizes, kept.sizes).all():
                grids[gpu] = kept
            else:
                missing[gpu] = sizes if kept is None else np.union1d(sizes, kept.sizes)
        for sizes_by_gpu in _together(missing):
            grids |= (answered := self._ask(cells, sizes_by_gpu))
            new = {(key, gpu): grid for gpu, grid in answered.items() if isinstance(grid, _Grid)}
            n = sum(len(grid.sizes) for grid in new.values())
            if self._n_kept + n > _MOST_KEPT:
                self._grids, self._n_kept = {}, 0
            self._grids.update(new)
            self._n_kept += n
        return grids

    def _ask(self, cells: _Cells, sizes_by_gpu: Mapping[str, Indices]) -> _Grids:
        """Ask about several GPUs at once; if that fails, one by one, so that only those at fault fail.

        So are those that are left out.
        """
        sizes = np.unique(np.concatenate(list(sizes_by_gpu.values())))
        grids = _Grids()
        try:
            gpus = {word: device_of(word) for word in sizes_by_gpu}
            by_name = self._gridded(self._question(cells, list(gpus.values()), sizes.tolist()))
            grids |= {word: by_name[gpu.name] for word, gpu in gpus.items() if gpu.name in by_name}
        except EpochcastError as error:
            if len(sizes_by_gpu) == 1:
                return dict.fromkeys(sizes_by_gpu, error)
        for word, sizes_of_gpu in sizes_by_gpu.items():
            if word not in grids:
                grids |= self._ask(cells, {word: sizes_of_gpu})
        return grids

    def _gridded(self, question: Question) -> dict[str, _Grid]:
        """The answer to a question, a grid for each GPU by its name."""
        resolved = ResolvedQuestion.of(question)
        model, devices, [table] = resolved.known.model, resolved.devices, resolved.tables
        local_sizes = resolved.local_sizes(question.batch_sizes)
        rows = rented_rows(resolved, table, local_sizes, rentals_of(resolved, [gpu for gpu, _ in devices]))
        reasons = rows.iterations.reasons()
        texts = [*Coded(["; ".join(map(str, as_answered(own))) for own in reasons.words], reasons.codes)]
        n = len(question.batch_sizes)
        grids = {}
        for i, (gpu, mode) in enumerate(devices):
            rows_of_gpu = slice(i * n, (i + 1) * n)
            words = {
                "energy_basis": [energy_basis(gpu).text] * n,
                "bottleneck": rows.numbers["bottleneck"][rows_of_gpu].tolist(),
                "mode": [", ".join((mode.framework, mode.precision, mode.memory_format, mode.capture))] * n,
                "method": [rows.iterations.devices.words["method"][i]] * n,
                "extrapolates": texts[rows_of_gpu],
            }
            coded = {name: Coded.of(cells) for name, cells in words.items()}
            numbers = {name: rows.numbers[name][rows_of_gpu] for name in _OF_OFFERS}
            sizes, between = np.array(question.batch_sizes), question.workers == 0
            grids[gpu.name] = _Grid(sizes, numbers, coded, model, mode, between)
        return grids

    def _question(self, cells: _Cells, gpus: list[Gpu], batch_sizes: list[int]) -> Question:
        for name, only in _FIXED.items():
            if cells.get(name, "").strip().casefold() not in ("", only):
                cell = f"{name} {cells[name]!r}"
                raise OutOfRangeError(f"{cell} cannot be predicted. Leave it empty, or write {only}.")
        of_grid = [name for name in OPTIONS if name not in OF_EPOCHS]
        options = renewed({name: cells[name] for name in of_grid if cells.get(name, "").strip()}, OPTIONS)
        filled = {name: cells.get(_ANCHOR + name, "") for name in ANCHOR_FIELDS}
        anchor = {name: text for name, text in filled.items() if text.strip()}
        more = {"anchors": [anchor]} if anchor else {}
        usual = {name: self._default(cells, name) for name in self.defaults.keys() - {*_OWN, *OF_EPOCHS}}
        question = Question(cells["cnn"], gpus, batch_sizes, **(usual | options | more))
        table = self._table(cells["cnn"], ResolvedQuestion.of(question).image_size_of(cells["cnn"]))
        return replace(question, cnn=table, image_size=None)

    def _table(self, cnn: str, image_size: int | None) -> LayerTable:
        """The CNN's layer table; an error is raised again for each question that names it."""
        if (cnn, image_size) not in self._tables:
            try:
                self._tables[cnn, image_size] = resolve_cnn(cnn, image_size)
            except EpochcastError as error:
                self._tables[cnn, image_size] = error
        table = self._tables[cnn, image_size]
        if isinstance(table, EpochcastError):
            raise table
        return table


def _whole(name: str, column: Coded, codes: Indices) -> Indices:
    """The cells of these codes as whole numbers, or `_BLANK`, or `_BAD`."""

    def number(text: str) -> int:
        if not text.strip():
            return _BLANK
        try:
            if name == "batch_size":
                return whole_number(name, text, high=MAX_BATCH_SIZE)
            return int(options_of(Question)[name].checked(text))
        except EpochcastError:
            return _BAD

    return np.array([number(word) for word in column.words], dtype=np.int64)[codes]


def _together(wanted: Mapping[str, Indices]) -> list[dict[str, Indices]]:
    """GPUs to ask at once: all, unless much of the grid over all their batch sizes is not wanted; then one by one."""
    if not wanted:
        return []
    n_wanted = sum(map(len, wanted.values()))
    n_asked = len(wanted) * len(np.unique(np.concatenate(list(wanted.values()))))
    if n_asked <= min(2 * n_wanted, _MOST_TOGETHER):
        return [dict(wanted)]
    return [{gpu: sizes} for gpu, sizes in wanted.items()]


ADDED_COLUMNS = (*NUMBERS, FITS, *WORDS)

Columns = Mapping[str, Coded]
"""The columns of a batch that decide its answers."""

_SPELT_LIKE = 0.84  # "precison" and "sample" are columns misspelt, "notes" is none
_ROWS_OF_TEXT = 200_000
_ROWS_OF_ARROW = 250_000
"""Rows of a batch: few enough for the memory, many enough that rows of one CNN and GPU come together."""

_Path = str | PathLike[str]

_Pipe = tuple[Iterator[tuple[Any, Columns]], Callable[[Any, Answers], None]]
"""A table to answer and a table of answers: batches, each with what is kept of it, and what writes both."""

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
    of_project: Collection[str] = (),
    **defaults: Any,
) -> int:
    """Answer every row of a table and write it, with the answers added, to another.

    `in_table`: CSV or Parquet by its suffix, ``-`` for standard input (`predictor.table_files`). Columns
    `REQUIRED_COLUMNS` and any of `optional_columns`; others are kept. An empty cell is the default. `out_table`:
    likewise. The input's columns in their order, then `ADDED_COLUMNS`; `mode` names framework, precision, memory format
    and capture, reasons are joined by ``;``. It appears when all rows are answered. `spread`: what answers the batches:
    this process, or a cluster. `device`: what computes the times of GPUs whose operators were not measured: ``cpu``, or
    ``cuda``, a GPU through CuPy. `of_project`: names of defaults that may have no effect. `**defaults`: options of a
    `Question` for every row: defaults of empty cells, and `model`, `measurements`, `anchors`. Samples, a row's or the
    default, are a part of its data set or of the default one, if there is one.

    Gives how many rows failed. SchemaError or OutOfRangeError if the table is empty, lacks a required column or already
    has an added one, or a default makes no sense. BackendUnavailableError if the device is ``cuda`` and CuPy or a GPU
    is missing; nothing falls back to the CPU.

    From Parquet to Parquet nothing becomes text: that is about ten times as fast as CSV.
    """
    checked, declared = checked_defaults(defaults), options_of(Question)
    typed = [declared[name] for name in checked if name not in of_project]
    prices = [own.shown for own in typed if own.panel == "Prices" and checked[own.name] != own.default]
    prices = [] if _PRICED & {*checked} else prices
    try:
        opened = _arrow_pipe if is_parquet(in_table) and is_parquet(out_table) else _text_pipe
        # errors of rows name their columns
        with named_by_flags(False), opened(in_table, out_table, prices) as pipe:
            return _answered(pipe, spread, {**checked, "device": device, "of_project": of_project})
    except BrokenPipeError:
        raise  # the reader has gone
    except OSError as error:
        raise SchemaError(f"{out_table} cannot be written: {error.strerror}. Check the path.") from None


def _answered(pipe: _Pipe, spread: Spread, defaults: dict[str, Any]) -> int:
    """Answer the batches of a pipe, and return how many rows failed; what is kept of a batch waits for its answers."""
    waiting: deque[tuple[Any, Any]] = deque()
    batches, write = pipe

    def questions() -> Iterator[Columns]:
        for kept, columns in batches:
            question_of_row, distinct_rows = unrepeated(columns)
            waiting.append((kept, question_of_row))
            yield distinct_rows

    n_failed = 0
    for of_distinct in spread(defaults, questions()):
        kept, question_of_row = waiting.popleft()
        answers = replace(of_distinct, question_of_row=of_distinct.question_of_row[question_of_row])
        write(kept, answers)
        n_failed += answers.n_failed
    return n_failed


@contextmanager
def _text_pipe(in_table: _Path, out_table: _Path, prices: Sequence[str]) -> Iterator[_Pipe]:
    """Open both tables; that of the answers appears when the block ends, and not if the block raises.

    `prices` are names of options that have no effect without epochs.
    """
    with open_table(in_table) as table:
        header = table.header
        _check_header(in_table, header, prices)
        types = dict.fromkeys(NUMBERS, "float64") | {FITS: "bool"}
        with writing_table(out_table, [*header, *ADDED_COLUMNS], {**table.types, **types}) as writer:

            def write(rows: list[list[str]], answers: Answers) -> None:
                writer.write_beside(*_beside(rows, len(header), answers))

            yield ((rows, _coded_text(header, rows)) for rows in table.batches(_ROWS_OF_TEXT)), write


def _coded_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Columns:
    """Code the columns that decide; a row with too few or too many cells has blank ones, and so no answer."""
    n, blank = len(header), [""] * len(header)
    columns = zip(*(row if len(row) == n else blank for row in rows), strict=True)
    by_name = zip(header, columns, strict=True)
    return {name: Coded.of(cells) for name, cells in by_name if name in BulkAnswers.columns}


def _beside(
    rows: list[list[str]], width: int, answers: Answers
) -> tuple[list[list[str]], list[int], list[tuple[str, ...]]]:
    """Rows, for each row an index into the added cells, and the added cells; a row of another width is refused."""
    numbers = [["" if value != value else repr(value) for value in row] for row in answers.numbers.tolist()]
    fits = np.where(answers.failed, "", np.where(answers.fits, "true", "false")).tolist()
    texts = (np.array(text.words, dtype=object)[text.codes].tolist() for text in answers.words.values())
    cells = list(zip(*numbers, fits, *texts, strict=True))
    question_of_row = answers.question_of_row.tolist()
    for row_index, row in enumerate(rows):
        if len(row) != width:
            rows[row_index], question_of_row[row_index] = [*row, *[""] * width][:width], len(cells)
            message = f"the row has {len(row)} cells, the header {width}."
            cells.append((*[""] * (len(ADDED_COLUMNS) - 1), message))
    return rows, question_of_row, cells


@contextmanager
def _arrow_pipe(in_table: _Path, out_table: _Path, prices: Sequence[str]) -> Iterator[_Pipe]:
    arrow = load_pyarrow()
    with open_parquet(in_table) as table:
        schema = table.schema_arrow
        _check_header(in_table, [name.strip() for name in schema.names], prices)
        types = dict.fromkeys(NUMBERS, arrow.float64()) | {FITS: arrow.bool_()}
        words = arrow.dictionary(arrow.int32(), arrow.string())
        added = [arrow.field(name, types.get(name, words)) for name in ADDED_COLUMNS]
        joined = arrow.schema([*schema, *added])
        text = [field.name for field in joined if not arrow.types.is_floating(field.type)]
        with (
            replacing(out_table) as file,
            arrow.parquet.ParquetWriter(file, joined, use_dictionary=text) as writer,
        ):

            def batches() -> Iterator[tuple[Any, Columns]]:
                for batch in parquet_batches(in_table, table, _ROWS_OF_ARROW):
                    columns = zip(map(str.strip, batch.schema.names), batch.columns, strict=True)
                    names = BulkAnswers.columns
                    yield batch, {name: _coded(cells) for name, cells in columns if name in names}

            def write(batch: Any, answers: Answers) -> None:
                columns = [*batch.columns, *_arrow_columns(answers)]
                writer.write_batch(arrow.RecordBatch.from_arrays(columns, schema=joined))

            yield batches(), write


def _coded(column: Any) -> Coded:
    arrow = load_pyarrow()
    if not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words, codes = as_text(column.dictionary), column.indices
    if codes.null_count:
        codes = codes.fill_null(len(words))
    return Coded([*words, ""], np.from_dlpack(codes).astype(np.int64))  # `to_numpy` imports pandas


def _arrow_columns(answers: Answers) -> Iterator[Any]:
    """The added columns, null where nothing is known."""
    arrow, question_of_row = load_pyarrow(), answers.question_of_row
    for values in answers.numbers:
        own = values[question_of_row]
        yield _arrow_array(arrow.float64(), own, ~np.isnan(own))
    yield _arrow_array(arrow.bool_(), answers.fits[question_of_row], ~answers.failed[question_of_row])
    for text in answers.words.values():
        codes = text.codes[question_of_row]
        indices = _arrow_array(arrow.int32(), codes, codes != 0)
        yield arrow.DictionaryArray.from_arrays(indices, arrow.array(text.words, arrow.string()))


def _arrow_array(kind: Any, values: NDArray[Any], is_known: NDArray[np.bool_]) -> Any:
    """Arrow's array of these values, as its buffers: `pyarrow.array` of an array of numpy imports pandas."""
    arrow = load_pyarrow()
    data, known = (np.packbits(a, bitorder="little") if a.dtype == bool else a for a in (values, is_known))
    return arrow.Array.from_buffers(kind, len(values), [arrow.py_buffer(known), arrow.py_buffer(data)])


def _check_header(path: _Path, header: Sequence[str], prices: Sequence[str]) -> None:
    """Refuse a table without what is needed, with what is taken or unread, or without an epoch for these options."""
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
    if prices and not _PRICED & {*header}:
        raise SchemaError(
            f"{prices[0]} prices epochs, which {path} has none of. Add a column samples, or leave it out."
        )
    # a column that looks like one that is read, or that only all rows can share, would have no effect
    for name in (name for name in header if name and name not in BulkAnswers.columns):
        unread = f"{path} has the column {name!r}, which is"
        if option := options_of(Question, "bulk").get(name):
            where = f"{option.flags[0]} or {name}=..."
            raise SchemaError(f"{unread} an option of all rows. Pass it beside the file, as {where}.")
        if name in options_of(Question):
            raise SchemaError(f"{unread} no option of a table. Remove it; a prediction of one CNN takes it.")
        if like := get_close_matches(name.casefold(), BulkAnswers.columns, n=1, cutoff=_SPELT_LIKE):
            raise SchemaError(f"{unread} not read. Nearest: {like[0]!r}. Rename it, or remove it.")
