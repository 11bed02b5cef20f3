"""How long an epoch of a CNN takes on a GPU, what it costs, and whether it fits in memory.

`answer` computes every question by one path: columns over CNN x GPU x batch size, with numpy alone (neither pandas nor
scikit-learn is imported here).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.answers.advice import sharpened_by
from predictor.answers.batch_sizes import batch_sizes_to_try, common_batch_size, largest_batch_sizes
from predictor.answers.energy import energy_columns
from predictor.answers.knowledge import Knowledge
from predictor.answers.loading import (
    ENDS,
    LOADING_TIMES,
    STARTS,
    feed_of_rental,
    loading_asked,
    loading_in_words,
    starts,
    with_loading,
)
from predictor.answers.options import check_read
from predictor.answers.question import Question
from predictor.answers.rentals import Rental, rentals_of
from predictor.answers.scope import scope_of
from predictor.answers.unknown_operators import with_shares
from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import Offer, hourly_usd
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.data_parallel import Gradients, together
from predictor.models.epochs import epoch_times_s
from predictor.models.forecast import IterationForecast
from predictor.operators.memory import memory_estimate_validated, peak_memories_gib

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.served import Model

__all__ = [
    "COLUMNS",
    "NEAR_BEST",
    "TIMES",
    "Answer",
    "PredictionRow",
    "answer",
    "fastest_row",
    "predict",
]

NEAR_BEST = 1.05
"""Batch sizes within this factor of the best epoch time are equally good; the smallest is recommended."""

_Floats = NDArray[np.float64]
TIMES = (
    *ENDS,
    "gpu_time_ms",
    "gpu_low_ms",
    "gpu_high_ms",
    "host_time_ms",
)


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """The prediction for one CNN, GPU and batch size. None: not asked for, or unknown.

    `low` to `high` are 90 % intervals. `cost_usd` is one epoch on the whole
    instance of `offer` (`nodes` of them), at its price of `priced_on`; an instance has `offer_gpu_count` GPUs, and
    `gpus_used` work in all. Each trains on `local_batch_size` of the mini-batch's `batch_size` images and needs
    `peak_memory_gib`; `link` joins them. An iteration takes `added_ms` longer than on one GPU with as many images;
    `scaling_efficiency` is the throughput over that of so many single GPUs. `best_batch` marks the smallest batch size
    that fits and lies within 5 % of the GPU's best epoch time of those that fit. `largest_batch_size` leaves a tenth of
    the memory free; None where not even one image fits. `power_w` is the mean power of one GPU, `watt_hours` the energy
    of an epoch on all of them, without the host; `energy_basis` says whether it rests on measured power or on the
    GPU's power limit, or why it is unknown. `sharpen` says what would narrow the interval of a row that
    extrapolates.

    `loading_time_ms` is the time to load the images of an iteration, None where loading is not counted; where it is,
    `iteration_time_ms` and what follows from it hold the slower of the two, and `training_time_ms` is the iteration
    without loading. `bottleneck` is what an iteration waits for (``gpu``, ``host``, ``loading``, ``reading``;
    ``unknown`` of a method that does not tell the GPU's time from the host's), `workers_needed` the workers of each GPU
    with which it would not wait for loading; None where it does not, or no number of them helps. The first epoch takes
    `start_s` longer than later ones, in which one worker loads the first mini-batch and cuDNN meets every shape; None
    where loading is not counted, and where no start was measured: other frameworks than PyTorch, compiled, autotuned.
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
    energy_basis: str
    offer: str
    offer_gpu_count: float | None
    gpus_used: int
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
    extrapolates: tuple[str, ...]
    sharpen: str | None


COLUMNS = tuple(column.name for column in fields(PredictionRow))
"""Columns of an answer, in order."""


_OF_A_GPU = (
    *("cnn", "image_size", "gpu", "precision", "memory_format", "framework", "gpus_used", "nodes", "link"),
    *("offer", "offer_gpu_count", "priced_on", "memory_estimate_validated", "largest_batch_size"),
    *("host", "method", "trained_on", "energy_basis"),
)
"""Columns that are the same at all batch sizes of a CNN and GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Columns over CNN x GPU x batch size: CNNs as asked, then GPUs as asked, then ascending batch sizes.

    `columns` maps each of `COLUMNS` to a list of plain values; `scope` is a paragraph on what it includes and excludes.
    Each `block` rows, one after another, are of one CNN and GPU.
    """

    columns: dict[str, list[Any]]
    scope: str
    block: int = 1

    def __len__(self) -> int:
        return len(self.columns["gpu"])

    def records(self) -> list[dict[str, Any]]:
        """A dict per row."""
        firsts = zip(*(column[:: self.block] for column in self.columns.values()), strict=True)
        whole = [dict(zip(self.columns, first, strict=True)) for first in firsts]
        if self.block == 1:
            return whole
        # Copies of a GPU's first row, with what is a row's own written over: a third faster than row by row.
        rows = list(map(dict.copy, chain.from_iterable(map(repeat, whole, repeat(self.block)))))
        own = [
            name for name, column in self.columns.items() if name not in _OF_A_GPU and not _is_empty(column)
        ]
        for row, values in zip(rows, zip(*(self.columns[name] for name in own), strict=True), strict=True):
            row.update(zip(own, values))  # noqa: B905 - checked once, not for each row
        return rows

    def rows(self) -> list[PredictionRow]:
        """An object per row."""
        return [PredictionRow(*row) for row in zip(*(self.columns[name] for name in COLUMNS), strict=True)]

    def frame(self) -> pd.DataFrame:
        """A data frame; ``attrs["covers"]`` is the scope."""
        import pandas as pd

        frame = pd.DataFrame(self.columns)
        frame.attrs["covers"] = self.scope
        return frame


def _is_empty(column: list[Any]) -> bool:
    return bool(column) and column[0] is None and column.count(None) == len(column)


def answer(question: Question) -> Answer:
    """Time of an iteration and an epoch, with cost and memory, for every CNN, GPU and batch size.

    Without batch sizes each GPU has up to three rows: the batch size at which all are compared, the fastest, which
    `best_batch` marks, and the largest that fits.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense; nothing is answered then.
    """
    check_read(question, "predict")
    if question.batch_sizes is None:
        return _searched(question)
    known, devices = Knowledge.of(question), question.devices()
    rentals = rentals_of(question, [gpu for gpu, _ in devices])
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for table in question.layer_tables():
        alone = known.model.forecasts(
            table,
            devices,
            question.local_batch_sizes,
            known.anchors(table, question),
            question.method,
            question.machine(),
        )
        for name, values in _columns(question, known, table, devices, rentals, alone).items():
            columns[name] += values
    return Answer(columns, _scope(question, known.model, columns), len(question.batch_sizes))


def predict(cnn: object, gpus: object, batch_sizes: Any = None, **options: Any) -> list[PredictionRow]:
    """Rows of `answer` to a `Question` of these options."""
    return answer(Question(cnn, gpus, batch_sizes, **options)).rows()


def _scope(question: Question, model: Model, columns: dict[str, list[Any]]) -> str:
    return scope_of(
        question, model, columns, loading_in_words(question, columns["image_size"][0], by_offer=False)
    )


def _columns(
    question: Question,
    known: Knowledge,
    table: LayerTable,
    devices: Sequence[tuple[Gpu, Mode]],
    rentals: Sequence[Rental],
    alone: Sequence[IterationForecast],
) -> dict[str, list[Any]]:
    """All columns of one CNN, from the forecasts of one GPU of each kind at the batch sizes of one GPU."""
    forecasts = [
        each if rental.team is None else together(each, table, gpu, mode, rental.team)
        for each, rental, (gpu, mode) in zip(alone, rentals, devices, strict=True)
    ]
    unused, local_sizes = [known.unused_on(gpu, mode) for gpu, mode in devices], question.local_batch_sizes
    why = [
        of_batch + more
        for each, more, (gpu, mode) in zip(forecasts, unused, devices, strict=True)
        for of_batch in with_shares(each.extrapolates, table, gpu, mode, local_sizes)
    ]
    sizes = np.array(question.batch_sizes)
    times = {name: _rows([getattr(each, name) for each in forecasts]) for name in TIMES}
    _check_times(times["iteration_time_ms"], table, devices, question.batch_sizes)
    efficiency = _efficiency(times["iteration_time_ms"], alone)
    rented = [rental.offer for rental in rentals]
    beside_loader = known.measured_beside_loader(table, question)
    loading = _load(question, table, [mode for _, mode in devices], rented, times, beside_loader)
    memory = _memory_gib(table, devices, question)
    fits = (
        memory
        <= np.array([-np.inf if gpu.memory_gib is None else gpu.memory_gib for gpu, _ in devices])[:, None]
    )
    epochs = _epochs(question, known.model, devices[0][1], sizes, times, loading, rented, fits)
    n = len(devices) * len(sizes)
    keys = list(map(id, why))  # batch sizes share their tuples
    reasons = dict(zip(keys, why, strict=True))
    told = {key: tuple(map(str, each)) for key, each in reasons.items()}
    remedies = {key: sharpened_by(each) for key, each in reasons.items()}

    def of_gpus(values: Sequence[Any]) -> list[Any]:
        return list(chain.from_iterable(map(repeat, values, repeat(len(sizes)))))

    return {
        "cnn": [table.cnn] * n,
        "image_size": [table.image_size] * n,
        "gpu": of_gpus([gpu.name for gpu, _ in devices]),
        "batch_size": question.batch_sizes * len(devices),
        "precision": of_gpus([mode.precision for _, mode in devices]),
        "memory_format": [question.memory_format] * n,
        "framework": [question.framework] * n,
        **{name: _known(values) for name, values in times.items()},
        **loading,
        **epochs,
        **energy_columns(table, devices, question.local_batch_sizes, times, epochs, question.n_gpus),
        "throughput_samples_per_s": (1000.0 * sizes / times["iteration_time_ms"]).ravel().tolist(),
        "offer": of_gpus([f"{each.provider} {each.instance}" if each else "no offer" for each in rented]),
        "offer_gpu_count": of_gpus([each.gpu_count if each else None for each in rented]),
        "gpus_used": [question.n_gpus] * n,
        "nodes": [question.nodes] * n,
        "link": of_gpus([rental.team.link.name if rental.team else None for rental in rentals]),
        "local_batch_size": local_sizes * len(devices),
        **efficiency,
        "priced_on": of_gpus(
            [str(each.retrieved_on) if each and each.retrieved_on else None for each in rented]
        ),
        "peak_memory_gib": memory.ravel().tolist(),
        "fits_in_memory": fits.ravel().tolist(),
        "memory_estimate_validated": [memory_estimate_validated(question.framework)] * n,
        "host": of_gpus([each.host for each in forecasts]),
        "method": of_gpus([each.method for each in forecasts]),
        "trained_on": of_gpus([each.trained_on for each in forecasts]),
        "largest_batch_size": of_gpus(largest_batch_sizes(question, table, devices)),
        "extrapolates": [told[key] for key in keys],
        "sharpen": [remedies[key] for key in keys],
    }


def _known(values: _Floats) -> list[float | None]:
    """As a list; None where a method does not tell the GPU's time from the host's."""
    found: list[float | None] = [*values.ravel().tolist()]
    return [None if each != each else each for each in found] if np.isnan(values).any() else found


def _rows(arrays: Sequence[_Floats]) -> _Floats:
    """Arrays of one length as rows; faster than `np.stack`."""
    return np.concatenate(arrays).reshape(len(arrays), -1)


def _efficiency(time_ms: _Floats, alone: Sequence[IterationForecast]) -> dict[str, list[Any]]:
    """What training together adds to an iteration, loading aside, and the throughput over that of single GPUs."""
    one_ms = _rows([each.iteration_time_ms for each in alone])
    return {
        "added_ms": (time_ms - one_ms).ravel().tolist(),
        "scaling_efficiency": (one_ms / time_ms).ravel().tolist(),
    }


def _load(
    question: Question,
    table: LayerTable,
    modes: Sequence[Mode],
    rented: Sequence[Offer | None],
    times: dict[str, _Floats],
    measured_beside_loader: bool,
) -> dict[str, list[Any]]:
    """Columns of loading; where it is counted, `times` become those of training and loading."""
    sizes = np.array(question.local_batch_sizes, dtype=float)
    training = {"training_time_ms": times["iteration_time_ms"].ravel().tolist()}
    if not loading_asked(question):
        flat = {name: ms.ravel() for name, ms in times.items()}
        unknown = dict.fromkeys(STARTS, [None] * flat["iteration_time_ms"].size)
        return training | with_loading(None, sizes, question.gpus_per_node, flat)[0] | unknown
    columns: dict[str, list[Any]] = {}
    for i, (mode, offer) in enumerate(zip(modes, rented, strict=True)):
        feed = feed_of_rental(question, table.image_size, offer)
        own = {name: ms[i] for name, ms in times.items()}
        found, joined = with_loading(
            feed, sizes, question.gpus_per_node, own, measured_so=measured_beside_loader
        )
        found |= starts(feed, sizes, question.gpus_per_node, table, mode)
        for name, values in found.items():
            columns.setdefault(name, []).extend(values)
        for name, ms in joined.items():
            times[name][i] = ms
    return training | columns


def _check_times(
    time_ms: _Floats, table: LayerTable, devices: Sequence[tuple[Gpu, Mode]], sizes: Sequence[int]
) -> None:
    """Refuse predicted times that are not finite and above zero."""
    bad = np.argwhere(~(np.isfinite(time_ms) & (time_ms > 0)))
    if bad.size:
        gpu, size = bad[0]
        raise OutOfRangeError(
            f"the model gives {time_ms[gpu, size]} ms for {table.cnn} on {devices[gpu][0].name} at batch_size "
            f"{sizes[size]}, which is not a time. Try a batch size nearer to 64, or another method."
        )


def _memory_gib(table: LayerTable, devices: Sequence[tuple[Gpu, Mode]], question: Question) -> _Floats:
    """Peak memory of each GPU, shape (n_devices, n_batches); several also hold the buckets of their gradients."""
    sizes, buckets = question.local_batch_sizes, Gradients.of(table).gib if question.n_gpus > 1 else 0.0
    of_mode = {
        mode: np.array(peak_memories_gib(table, sizes, mode)) for mode in {mode for _, mode in devices}
    }
    return np.array([of_mode[mode] for _, mode in devices]) + buckets


def _epochs(
    question: Question,
    model: Model,
    mode: Mode,
    sizes: NDArray[np.int64],
    times: dict[str, _Floats],
    loading: dict[str, list[Any]],
    rented: Sequence[Offer | None],
    fits: NDArray[np.bool_],
) -> dict[str, list[Any]]:
    """Columns of the epoch (None without samples) and the recommended batch size."""
    samples = question.epoch_samples()
    names = dict(zip(("epoch_time_s", "epoch_low_s", "epoch_high_s"), ENDS, strict=True))
    if samples is None:
        nothing = dict.fromkeys(("iterations_per_epoch", *names, "cost_usd"), [None] * fits.size)
        return {**nothing, "best_batch": _best(times["iteration_time_ms"] / sizes, fits)}
    counted = loading_asked(question)
    loaded = {
        end: np.array(loading[name], dtype=float).reshape(fits.shape) if counted else np.nan
        for end, name in zip(ENDS, LOADING_TIMES, strict=True)
    }
    seconds = {
        name: epoch_times_s(
            times[end],
            sizes,
            samples,
            question.validation_samples,
            model,
            mode,
            loaded[end],
            question.workers == 0,
        )
        for name, end in names.items()
    }
    usd_per_hour = question.nodes * np.array(
        [[np.nan if each is None else hourly_usd(each, question.spot)] for each in rented]
    )
    cost = (seconds["epoch_time_s"] * usd_per_hour / 3600.0).ravel().tolist()
    return {
        "iterations_per_epoch": (-(-samples // sizes)).tolist() * len(fits),
        **{name: values.ravel().tolist() for name, values in seconds.items()},
        "cost_usd": [None if usd != usd else usd for usd in cost],
        "best_batch": _best(seconds["epoch_time_s"], fits),
    }


def _best(time: _Floats, fits: NDArray[np.bool_]) -> list[bool]:
    """Whether each batch size is the smallest of its GPU that fits and lies within 5 % of the best that fits."""
    fitting = np.where(fits, time, np.inf)
    near = fits & (fitting <= NEAR_BEST * fitting.min(axis=1, keepdims=True))
    first = np.arange(near.shape[1]) == near.argmax(axis=1)[:, None]
    best: list[bool] = (near & first).ravel().tolist()
    return best


def _searched(question: Question) -> Answer:
    """Answer at the common, the fastest and the largest batch size of each CNN and GPU."""
    known, samples = Knowledge.of(question), question.epoch_samples()
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for table in question.layer_tables():
        largest = largest_batch_sizes(question, table, question.devices())
        tried = batch_sizes_to_try(largest, samples, question.n_gpus)
        common = common_batch_size(largest, samples, question.n_gpus)
        sizes = {*tried, *(size for size in largest if size and size <= (samples or size))}
        asked = replace(question, cnn=table, batch_sizes=sizes, model=known.model, measurements=known.own)
        found = answer(asked).records()
        for gpu in dict.fromkeys(row["gpu"] for row in found):
            for row in _named_sizes([row for row in found if row["gpu"] == gpu], common, tried):
                for name in COLUMNS:
                    columns[name].append(row[name])
    return Answer(columns, _scope(question, known.model, columns))


def _named_sizes(rows: Sequence[dict[str, Any]], common: int, tried: Sequence[int]) -> list[dict[str, Any]]:
    """One GPU's rows at the common, the fastest and the largest batch size; `best_batch` marks the fastest."""
    holds_one = rows[0]["largest_batch_size"] is not None
    fastest = (
        fastest_row([row for row in rows if row["batch_size"] in tried])["batch_size"] if holds_one else 0
    )
    if common > (rows[0]["largest_batch_size"] or common):
        common = fastest  # which most of the GPUs hold, and this one does not
    named = [row for row in rows if row["batch_size"] in (common, fastest, row["largest_batch_size"])]
    return [row | {"best_batch": row["batch_size"] == fastest} for row in named]


def fastest_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one GPU's rows, the smallest batch size within 5 % of the best throughput of those that surely fit."""
    fitting = [row for row in rows if row["batch_size"] <= (row["largest_batch_size"] or 0)]
    best = max(row["throughput_samples_per_s"] for row in fitting)
    return next(row for row in fitting if NEAR_BEST * row["throughput_samples_per_s"] >= best)
