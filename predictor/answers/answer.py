"""How long an epoch of a CNN takes on a GPU, what it costs, and whether it fits in memory.

All answers are columns. `predictor.answers.grid` computes what no offer changes, for CNN x GPU x batch size, and
`predictor.answers.offers` what an offer and the samples do (price, loading, start, power, epoch, cost, energy).
`answer` has a row for each GPU and batch size, on the cheapest offer; a comparison has one for each offer, and a file
of questions looks its rows up. numpy is all that they need (neither pandas nor scikit-learn is imported here).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from itertools import chain, repeat
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from predictor.answers import notes
from predictor.answers.coded import Coded
from predictor.answers.grid import (
    Iterations,
    batch_sizes_to_try,
    best_of_gpus,
    common_batch_size,
    fastest_sizes,
    largest_local_batch_sizes,
)
from predictor.answers.loading import LOADING_TIMES, STARTS
from predictor.answers.notes import Co2Basis, EnergyBasis, as_answered
from predictor.answers.offers import (
    CO2,
    ENERGIES,
    EPOCH_TIMES,
    OfferRows,
    co2_basis,
    energy_basis,
    rentals_of,
    rented_rows,
)
from predictor.answers.question import Question, named
from predictor.answers.resolved import ResolvedQuestion
from predictor.catalogue.modes import COMPILED, FIXED_EPOCHS, Mode
from predictor.errors import OutOfRangeError
from predictor.models.compiled import compile_seconds, compile_spread
from predictor.models.epoch_start import has_known_start
from predictor.models.forecast import TIMES
from predictor.models.registry import WHOLE_METHODS
from predictor.operators.memory import MEASURED_FRAMEWORK

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.input_pipeline import Feed
    from predictor.models.served import Model

T = TypeVar("T")


Values = list[Any] | NDArray[Any] | Coded


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """The prediction for one CNN, GPU and batch size. None: not asked for, or unknown.

    `low` to `high` are 90 % intervals. `cost_usd` is one epoch on the whole instance of `offer` (`nodes` of them), at
    its price of `priced_on`; an instance has `offer_gpu_count` GPUs, and `gpus_used` work in all. Each trains on
    `local_batch_size` of the mini-batch's `batch_size` images and needs `peak_memory_gib`; `link` joins them. An
    iteration takes `added_ms` longer than on one GPU with as many images; `scaling_efficiency` is the throughput over
    that of as many single GPUs. `best_batch` marks the smallest batch size that fits and lies within 5 % of the GPU's
    best epoch time of those that fit. `largest_batch_size` is the most that fits, in nine tenths of the memory that the
    driver shows; None where not even one image fits. `power_w` is the mean power of one GPU, `watt_hours` the energy of
    an epoch on all of them, without the host; `energy_basis` says whether it rests on measured power or on the GPU's
    power limit, or why it is unknown; `co2_g` is its CO2 equivalent in grams by `region` or the offer's place,
    `co2_basis` names the grid, or why it is unknown. `extrapolates` holds the reasons for caution, those first that
    widen the interval most, with what would narrow it.

    `loading_time_ms` is the time to load the images of an iteration, None where loading is not counted; where it is,
    `iteration_time_ms` and what follows from it hold the slower of the two, and `training_time_ms` is the iteration
    without loading. `bottleneck` is what an iteration waits for (``gpu``, ``host``, ``loading``, ``reading``;
    ``unknown`` of a method that does not tell the GPU's time from the host's), `workers_needed` the workers of each GPU
    with which it would not wait for loading, with a vCPU each where they share those of an offer; None where it does
    not, or no number of them helps. The first epoch takes
    `start_s` longer than later ones, in which libraries load and cuDNN meets every shape; None where no start was
    measured: CPUs, other frameworks than PyTorch, graphs, autotuned.

    `per_gpu` trainings share each GPU: times, throughput and energy are of one of them, memory is of all, and the
    instance's cost pays for an epoch of all.
    """

    cnn: str
    image_size: int
    gpu: str
    batch_size: int
    precision: str
    memory_format: str
    framework: str
    iterations_per_epoch: int | None
    iteration_time_ms: float
    low_ms: float
    high_ms: float
    gpu_time_ms: float | None
    gpu_low_ms: float | None
    gpu_high_ms: float | None
    host_time_ms: float | None
    training_time_ms: float
    loading_time_ms: float | None
    loading_low_ms: float | None
    loading_high_ms: float | None
    bottleneck: str
    workers_needed: int | None
    epoch_time_s: float | None
    epoch_low_s: float | None
    epoch_high_s: float | None
    start_s: float | None
    start_low_s: float | None
    start_high_s: float | None
    throughput_samples_per_s: float
    cost_usd: float | None
    power_w: float | None
    watt_hours: float | None
    watt_hours_low: float | None
    watt_hours_high: float | None
    energy_basis: EnergyBasis
    co2_g: float | None
    co2_low_g: float | None
    co2_high_g: float | None
    co2_basis: Co2Basis
    offer: str
    offer_gpu_count: float | None
    gpus_used: int
    per_gpu: int
    nodes: int
    link: str | None
    local_batch_size: int
    added_ms: float
    scaling_efficiency: float
    priced_on: str | None
    peak_memory_gib: float
    fits_in_memory: bool
    memory_estimate_validated: bool
    best_batch: bool
    largest_batch_size: int | None
    host: str
    method: str
    trained_on: str
    extrapolates: tuple[notes.Reason, ...]


COLUMNS = tuple(column.name for column in fields(PredictionRow))
"""Columns of an answer, in order."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Columns over CNN x GPU x batch size: CNNs as asked, then GPUs as asked, then ascending batch sizes.

    `values` maps each of `COLUMNS` to an array, a list or, of what is the same at all batch sizes of a CNN and GPU, and
    of `extrapolates`, a `Coded`; `scope` is a paragraph on what it includes and excludes. Each `block` rows, one after
    another, are of one CNN and GPU.
    """

    values: dict[str, Values]
    scope: str
    block: int = 1

    def __len__(self) -> int:
        return len(self.values["gpu"])

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """Each of `COLUMNS` as a list of plain values."""
        return {name: plain(values) for name, values in self.values.items()}

    def records(self) -> list[dict[str, Any]]:
        """A dict per row, with `COLUMNS` as keys."""
        firsts = zip(*(column[:: self.block] for column in self.columns.values()), strict=True)
        first_rows = [dict(zip(self.columns, first, strict=True)) for first in firsts]
        if self.block == 1:
            return first_rows
        # Copies of a GPU's first row, with what is a row's own written over: a third faster than row by row.
        rows = list(map(dict.copy, chain.from_iterable(map(repeat, first_rows, repeat(self.block)))))
        own = [  # reasons are coded, too, but differ between batch sizes
            name
            for name, column in self.columns.items()
            if (name == "extrapolates" or not isinstance(self.values[name], Coded))
            and (column[:1] != [None] or column.count(None) < len(column))
        ]
        for row, values in zip(rows, zip(*(self.columns[name] for name in own), strict=True), strict=True):
            row.update(zip(own, values))  # noqa: B905 - checked once, not for each row
        return rows

    def rows(self) -> list[PredictionRow]:
        """A `PredictionRow` per row."""
        return [PredictionRow(*row) for row in zip(*(self.columns[name] for name in COLUMNS), strict=True)]

    def frame(self) -> pd.DataFrame:
        """A data frame; ``attrs["covers"]`` is the scope."""
        frame = frame_of(self.values)
        frame.attrs["covers"] = self.scope
        return frame


_NUMBERS = (
    *("batch_size", "local_batch_size", "gpus_used", "per_gpu", "fits_in_memory"),
    *TIMES,
    *("training_time_ms", *LOADING_TIMES, *EPOCH_TIMES, *STARTS, "throughput_samples_per_s", "cost_usd"),
    *("power_w", *ENERGIES, *CO2, "added_ms", "scaling_efficiency", "peak_memory_gib"),
)


def columns_of(rows: OfferRows, best: NDArray[np.bool_]) -> dict[str, Values]:
    """All of `COLUMNS`, numbers as arrays; `best` is `best_batch`."""
    iterations, numbers = rows.iterations, rows.numbers
    question, table, n = iterations.resolved.question, iterations.table, len(iterations.device)
    samples, pairs, caution = iterations.resolved.samples, iterations.devices.pairs, iterations.reasons()
    reasons, of_reasons = _used(caution.words, caution.codes)
    indices, device = _used(range(len(pairs)), iterations.device)
    devices = [pairs[index] for index in indices]
    offers, offer = _used(rows.offers.offers, rows.offer)
    teams, team = _used(iterations.teams, iterations.team)
    none = Coded([None], no_codes := np.zeros(n, dtype=np.int64))
    largest, per_gpu = np.zeros(n), numbers["per_gpu"]
    for count in set(per_gpu.tolist()):
        of_count = np.array(iterations.largest(count), dtype=float)[iterations.device]
        largest = np.where(per_gpu == count, of_count, largest)
    return {
        **{name: numbers[name] for name in _NUMBERS},
        "bottleneck": numbers["bottleneck"].tolist(),
        "cnn": Coded([table.cnn], no_codes),
        "image_size": Coded([table.image_size], no_codes),
        "gpu": Coded([gpu.name for gpu, _ in devices], device),
        "precision": Coded([mode.precision for _, mode in devices], device),
        "memory_format": Coded([mode.memory_format for _, mode in devices], device),
        "framework": Coded([question.framework], no_codes),
        "iterations_per_epoch": none if samples is None else -(-iterations.passes[0] // numbers["batch_size"]),
        "workers_needed": _whole(numbers["workers_needed"]),
        "offer": Coded([f"{rent.provider} {rent.instance}" if rent else "no offer" for rent in offers], offer),
        "offer_gpu_count": Coded([rent.gpu_count if rent else None for rent in offers], offer),
        "priced_on": Coded([str(rent.retrieved_on) if rent and rent.retrieved_on else None for rent in offers], offer),
        "nodes": Coded([question.nodes], no_codes),
        "link": Coded([None if joined is None else joined.link.name for joined in teams], team),
        "memory_estimate_validated": Coded([question.framework == MEASURED_FRAMEWORK], no_codes),
        "energy_basis": Coded([energy_basis(gpu, bool(iterations.beside)) for gpu, _ in devices], device),
        "co2_basis": Coded([co2_basis(question.region, rent) for rent in offers], offer),
        **{name: Coded([own[index] for index in indices], device) for name, own in iterations.devices.words.items()},
        "largest_batch_size": _whole(largest * numbers["gpus_used"]),
        "best_batch": best,
        "extrapolates": Coded(list(map(_answered, reasons)), of_reasons),
    }  # fmt: skip


_answered = lru_cache(maxsize=4096)(as_answered)  # GPUs and batch sizes share a few reasons


def _used(values: Sequence[T], places: NDArray[np.integer[Any]]) -> tuple[list[T], NDArray[np.integer[Any]]]:
    """The values that are used at these places, and the place of each among them."""
    if len(values) == 1:
        return list(values), places
    used = np.flatnonzero(np.bincount(places))  # a fifth of the time of np.unique, which loads numpy.ma first
    return [values[place] for place in used.tolist()], np.searchsorted(used, places)


def _whole(numbers: NDArray[np.float64]) -> Values:
    """Whole numbers; None for NaN."""
    unknown = np.isnan(numbers)
    if not unknown.any():
        return numbers.astype(np.int64)
    if unknown.all():
        return Coded([None], np.zeros(len(numbers), dtype=np.int64))
    return [None if value is None else int(value) for value in plain(numbers)]


def plain(values: Values) -> list[Any]:
    """As a list of plain values, None for what is unknown."""
    if not isinstance(values, np.ndarray):
        return list(values)
    numbers: list[Any] = values.tolist()
    is_known = values.dtype.kind != "f" or not math.isnan(sum(numbers))
    return numbers if is_known else [None if value != value else value for value in numbers]


def frame_of(columns: Mapping[str, Values]) -> pd.DataFrame:
    """A data frame of columns, each of the type that pandas gives a list of its plain values.

    Each of a `Coded` column's words is used. Columns of one type are laid in one array here: pandas takes 20 times as
    long to look at each by itself.
    """
    import pandas as pd

    words, codes, of_texts = list[Any](), list[Any](), list[int]()
    arrays_of: dict[str, dict[int, NDArray[Any]]] = {"d": {}, "O": {}}  # by the character of their type
    for place, column in enumerate(columns.values()):
        values = column if isinstance(column, np.ndarray) else _typed(column)
        if isinstance(values, Coded):
            codes.append(values.codes + len(words))
            words += values.words
            of_texts.append(place)
        else:
            arrays_of.setdefault(values.dtype.char, {})[place] = values
    codes_of_all, n = np.concatenate(codes, dtype=np.int32, casting="unsafe"), len(codes[0])
    texts = _texts(tuple(words), codes_of_all.tobytes(), len(codes))
    if texts[0].dtype != "str" or not hasattr(pd.api, "internals"):  # before pandas 3, or as it was
        return pd.DataFrame({name: plain(values) for name, values in columns.items()})
    of_floats = arrays_of.pop("d")
    floats, places = np.array([*of_floats.values()]), np.array([*of_floats])
    is_unknown = np.isnan(floats).all(axis=1)
    arrays_of["O"] |= dict.fromkeys(places[is_unknown].tolist(), np.full(n, None))
    blocks: list[Any] = [(floats[~is_unknown], places[~is_unknown])]
    blocks += [(np.array([*own.values()]), np.array([*own])) for own in arrays_of.values() if own]
    blocks += [(text.copy(), own) for text, own in zip(texts, np.array(of_texts)[:, None], strict=True)]
    header = _header(tuple(columns)).view()  # one of its own, whose name users may change
    frame: pd.DataFrame = pd.api.internals.create_dataframe_from_blocks(blocks, pd.RangeIndex(n), header)
    return frame


@cache
def _header(names: tuple[str, ...]) -> pd.Index:
    import pandas as pd

    return pd.Index(names)


@lru_cache(maxsize=16)
def _texts(words: tuple[str | None, ...], codes: bytes, n_columns: int) -> list[Any]:
    """Columns of `words[codes]` as pandas keeps texts; no batch size changes them: a sixth of a new question's time."""
    import pandas as pd

    cells = pd.Index(words).array.take(np.frombuffer(codes, dtype=np.int32))
    n = len(cells) // n_columns
    return [cells[n * i : n * (i + 1)] for i in range(n_columns)]


def _typed(values: list[Any] | Coded) -> NDArray[Any] | Coded:
    """A column as an array of the type that pandas gives it; texts as a `Coded`."""
    cells = values.words if isinstance(values, Coded) else values
    kinds = set(map(type, cells))
    if str in kinds and kinds <= {str, NoneType}:
        return values if isinstance(values, Coded) else Coded.of(values)
    if kinds <= {int, float, NoneType} and kinds != {NoneType}:
        array = np.array(cells, dtype=np.int64 if kinds == {int} else np.float64)
    elif kinds == {bool}:
        array = np.array(cells)
    else:
        array = np.fromiter(cells, object, len(cells))
    return array[values.codes] if isinstance(values, Coded) else array


def answer(question: Question) -> Answer:
    """Time of an iteration and an epoch, with cost and memory, for every CNN, GPU and batch size.

    Without batch sizes each GPU has up to four rows: the batch size at which all are compared, the smallest within 5 %
    of the fastest, which `best_batch` marks, the fastest, and the largest that fits. SchemaError, OutOfRangeError,
    UnknownCnnError or UnknownGpuError if the question makes no sense; nothing is answered then.
    """
    return answer_to(ResolvedQuestion.of(question, "predict"))


def answer_to(resolved: ResolvedQuestion, *, must_fit: bool = True) -> Answer:
    """`answer` to a question that was looked up; `must_fit` refuses trainings that no GPU holds together."""
    question = resolved.question
    rows_of = _searched if question.batch_sizes is None else _at_sizes
    answered = list((_side_by_side if question.beside else rows_of)(resolved))
    for rows, _ in answered if must_fit else ():
        _check_room(rows)
    cnns, feed = [columns_of(*rows_and_best) for rows_and_best in answered], answered[0][0].offers.feed
    columns = {name: cnns[0][name] for name in COLUMNS}
    if len(cnns) > 1:
        columns = {name: [value for cnn in cnns for value in plain(cnn[name])] for name in COLUMNS}
    of_scope = ((name, columns[name]) for name in SCOPE_COLUMNS)
    words = {name: own.words if isinstance(own, Coded) else plain(own) for name, own in of_scope}
    scope = scope_of(resolved, resolved.known.model, words, feed, starts=True)
    return Answer(columns, scope, len(question.batch_sizes or [0]))


def _check_room(rows: OfferRows) -> None:
    """Refuse more trainings on a GPU than any GPU of these rows holds; OutOfRangeError with what fits."""
    iterations, team = rows.iterations, rows.iterations.resolved.team
    if (team.trainings == 1 and team.beside is None) or rows.numbers["fits_in_memory"].any():
        return
    most, option = iterations.most_per_gpu, "beside" if team.beside else "per_gpu"
    roomiest = int(most.argmax())
    if most.any() or team.beside:
        gpu = iterations.devices.gpus[iterations.device[roomiest]]
        held = f"which holds {most[roomiest]} of them at batch {iterations.batch_size[roomiest]}"
        held = f"of whose {gpu.memory_in_words} nine tenths can be used" if team.beside else held
        raise OutOfRangeError(
            f"{named(option)} {getattr(team, option)}: these trainings need {iterations.memory_gib[roomiest]:.1f} GiB "
            f"on {gpu.name}, {held}. Pass fewer trainings, a smaller batch size, or another GPU."
        ).about(option)


def predict(cnn: object, gpus: object, batch_sizes: Any = None, **options: Any) -> list[PredictionRow]:
    """Rows of `answer` to a `Question` of these options."""
    return answer(Question(cnn, gpus, batch_sizes, **options)).rows()


def _at_sizes(resolved: ResolvedQuestion) -> Iterator[tuple[OfferRows, NDArray[np.bool_]]]:
    """Of each CNN, all batch sizes of the question, and which are the best of their GPU."""
    sizes, gpus = resolved.question.batch_sizes, [gpu for gpu, _ in resolved.devices]
    local_sizes, rentals = resolved.local_sizes(sizes), rentals_of(resolved, gpus)
    for table in resolved.tables:
        rows = rented_rows(resolved, table, local_sizes, rentals, [resolved.team.n_gpus]).with_epochs()
        numbers, shape = rows.numbers, (len(gpus), len(sizes))
        time_s = numbers["epoch_time_s"]
        if resolved.samples is None or resolved.question.framework_loop in FIXED_EPOCHS:
            time_s = numbers["iteration_time_ms"] / numbers["batch_size"]
        best = best_of_gpus(time_s.reshape(shape), numbers["fits_in_memory"].reshape(shape))
        yield rows, best.ravel()


def _side_by_side(resolved: ResolvedQuestion) -> Iterator[tuple[OfferRows, NDArray[np.bool_]]]:
    """Of the question's training, and of each of those beside it on the same GPUs, a row for each GPU."""
    rentals = rentals_of(resolved, [gpu for gpu, _ in resolved.devices])
    trainings, sides = [(resolved.training, resolved.devices)], resolved.side_by_side
    resolved.local_sizes([size for _, size in sides])  # refuses what no GPU runs so
    by_itself = [Iterations.of(resolved, table, trainings, [size]) for table, size in sides]
    for at, (table, size) in enumerate(sides):
        neighbours = [*by_itself[:at], *by_itself[at + 1 :]]
        rows = rented_rows(resolved, table, [size], rentals, [1], neighbours).with_epochs()
        yield rows, np.ones(len(rentals), dtype=bool)


def _searched(resolved: ResolvedQuestion) -> Iterator[tuple[OfferRows, NDArray[np.bool_]]]:
    """Of each CNN and GPU, the common, the smallest near the fastest, the fastest and the largest batch size.

    And which is the smallest within 5 % of the fastest; tried are powers of two and the largest.
    """
    samples, n, gpus = resolved.samples, resolved.question.n_gpus, [gpu for gpu, _ in resolved.devices]
    shares = n * resolved.question.parts
    for table in resolved.tables:
        largest = largest_local_batch_sizes(table, resolved.devices, n, resolved.team.trainings)
        tried = batch_sizes_to_try(largest, samples, shares)
        common = common_batch_size(largest, samples, shares)
        sizes = sorted({*tried, *(size for size in largest if size and size <= (samples or size))})
        local_sizes = resolved.local_sizes(sizes)
        rows = rented_rows(resolved, table, local_sizes, rentals_of(resolved, gpus), [n]).with_epochs()
        rates = rows.numbers["throughput_samples_per_s"].reshape(len(gpus), -1)
        # a last mini-batch of few images leaves the GPU idle
        if samples and resolved.question.framework_loop not in FIXED_EPOCHS:
            rates = 1 / rows.numbers["epoch_time_s"].reshape(len(gpus), -1)
        most_held = np.array([most or 0 for most in largest])[:, None]
        is_tried = (np.isin(sizes, tried) & (sizes <= most_held)) | (sizes == most_held)
        near_of = fastest_sizes(rates, is_tried)
        fastest_of = np.where(is_tried, rates, -np.inf).argmax(axis=1)
        chosen, is_near = [], []
        for device, most in enumerate(largest):
            near = None if near_of[device] < 0 else sizes[near_of[device]]
            fastest = None if near is None else sizes[fastest_of[device]]
            named = {near if common > (most or common) else common, near, fastest, most}
            own = [index for index, size in enumerate(sizes) if size in named]
            chosen += [len(sizes) * device + index for index in own]
            is_near += [sizes[index] == near for index in own]
        yield rows.rows(chosen), np.array(is_near)


SCOPE_COLUMNS = ("precision", "host", "method", "trained_on")
"""Columns of an answer that its scope names."""

_COPIES = "An iteration includes the copy of its images to the GPU, since loading is counted."
_PARTS = (
    "An iteration is a step of the optimizer: each GPU runs its images in {} parts one after the other{}."
)
_PACKED = (
    "On each GPU {} take turns, a process each, without MPS: times are of one, memory is of all; "
    "their hosts take turns, too, where the machine has fewer vCPUs than trainings."
)
_ONCE = ", and gradients are exchanged once, with the last"
MEMORY_IN_WORDS = {
    True: "Peak memory is summed layer by layer; 77 % of 842 peaks measured on an H200 are within 2 % of "
    "the sum, 5 % are over 10 % higher.",
    False: "Peak memory is summed layer by layer by PyTorch's rules; no peak of this framework was measured.",
}
_COMPILED_MEMORY = (
    "That is of eager training: 77 compiled iterations of 44 CNNs needed 0.42 to 1.03 x the estimate."
)


def scope_of(
    resolved: ResolvedQuestion,
    model: Model,
    columns: Mapping[str, Sequence[Any]],
    feed: Feed | None = None,
    starts: bool = False,
) -> str:
    """One paragraph: the pass, what is excluded, the mode, the host, and what the model was fitted on.

    `columns` are `SCOPE_COLUMNS` of each row or GPU; `feed` is what feeds them, None where loading is not counted;
    `starts` says where the start of a training is, too.
    """
    question, compiling = resolved.question, _compiling(resolved)
    loading = "data loading is excluded" if feed is None else feed.words
    if starts and any(has_known_start(gpu, mode) for gpu, mode in resolved.devices):
        loading += "; the first epoch takes start_s longer"
    elif starts:
        loading += "; the start of a training is not counted"
    modes = [resolved.training.in_precision(precision) for precision in dict.fromkeys(columns["precision"])]
    precisions = " or ".join(map(_arithmetic, modes))
    formats = " or ".join(dict.fromkeys(mode.memory_format for mode in modes))
    validated = f"an approximate forward pass over {question.validation_samples:,} validation samples"
    validation = validated if question.validation_samples else "no validation pass"
    own_epoch = question.framework_loop and question.epoch_of_loop
    epochs_have = f"have {own_epoch}" if own_epoch else f"include {validation}"
    words = [question.framework, precisions, formats, question.capture, question.optimizer]
    words += ["autotune"] * question.autotune + resolved.habits.in_words
    sentences = [
        *(f"{gpu}." for gpu in resolved.left_out),
        f"Covers the training pass (forward, backward, weight update) on {_gpus(question)}; {loading}.",
        f"Mode: {', '.join(words)}. Host: {', '.join(dict.fromkeys(columns['host']))}.",
        *([_PACKED.format(f"{question.per_gpu} trainings")] * (question.per_gpu not in (1, "auto"))),
        *([_PACKED.format("the trainings that share it")] * (question.per_gpu == "auto")),
        *([_PACKED.format(f"this training and {question.beside}")] if question.beside else []),
        *([_PARTS.format(question.parts, _ONCE * (question.n_gpus > 1))] * (question.parts > 1)),
        *([_COPIES] if resolved.images_from_host and question.framework in model.fed_frameworks else []),
        *resolved.other_forms,
        *_sources(model.card, columns["method"], columns["trained_on"]),
        *([f"An epoch is {resolved.part_in_words}."] if resolved.part_in_words else []),
        *([f"Epochs {epochs_have}."] if resolved.samples is not None else []),
        *([f"Their iterations are those of {question.framework_loop}."] if question.framework_loop else []),
        *compiling,
        MEMORY_IN_WORDS[question.framework == MEASURED_FRAMEWORK],
        *([_COMPILED_MEMORY] if question.capture in COMPILED else []),
    ]
    return " ".join(sentences)


def _arithmetic(mode: Mode) -> str:
    """Precision, and that of PyTorch's matrix products in TF32."""
    if (mode.framework, mode.precision) != ("pytorch", "tf32"):
        return mode.precision
    return f"tf32 (matrix products in {'fp32' if mode.fp32_products else 'tf32, too'})"


def _gpus(question: Question) -> str:
    """The GPUs, and what a mini-batch of many of them asks for."""
    if question.n_gpus == 1:
        return "one GPU"
    machines = "one machine" if question.nodes == 1 else f"{question.nodes} machines"
    return (
        f"{question.n_gpus} GPUs of {machines} that share each mini-batch and add up their gradients (a mini-batch "
        "larger than before wants a larger learning rate and a warm-up, arXiv:1706.02677; the number of epochs to the "
        "same accuracy may grow)"
    )


def _compiling(resolved: ResolvedQuestion) -> list[str]:
    """The first iteration of compiled CNNs, which no epoch includes."""
    if resolved.question.capture not in COMPILED:
        return []
    seconds = [compile_seconds(table) for table in resolved.tables]
    ends = dict.fromkeys(f"{end:.0f}" for end in (min(seconds), max(seconds)))
    return [
        f"Compiling takes about {' to '.join(ends)} s within a factor of {compile_spread():.1f} on the hosts where it "
        "was measured: no epoch includes it, the start of a training does (start_s)."
    ]


def _sources(card: Mapping[str, Any], methods: Sequence[str], trained_on: Sequence[str]) -> list[str]:
    """Data behind the answer: what the model or a named method was fitted on, and the measured operators used."""
    fitted_on = str(card.get("trained_on", "unknown data"))
    used = dict(zip(trained_on, methods, strict=True))
    model = f"Model: {card.get('name', 'unnamed')}, fitted on {fitted_on}."
    return [
        *([model] if fitted_on in used else []),
        *(
            f"Method: {method}, fitted on {data}." if method in WHOLE_METHODS else f"Layers: {data}."
            for data, method in used.items()
            if data != fitted_on
        ),
    ]
