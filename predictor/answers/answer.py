"""How long an epoch of a CNN takes on a GPU, what it costs, and whether it fits in memory.

All answers are columns. `iterations_of` computes what no offer changes, for CNN x GPU x batch size; `OfferRows` adds
what an offer decides (price, loading, start, power), and `epochs` what the samples do (epoch, cost, energy). `answer`
has a row for each GPU and batch size, on the cheapest offer; a comparison has one for each offer, and a file of
questions looks its rows up. numpy is all that they need (neither pandas nor scikit-learn is imported here).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.answers import notes
from predictor.answers.knowledge import Knowledge
from predictor.answers.loading import (
    ENDS,
    LOADING_TIMES,
    STARTS,
    WAITS,
    feed_of_rentals,
    loading_in_words,
    starts,
    with_loading,
)
from predictor.answers.notes import EnergyBasis, as_answered
from predictor.answers.options import check_read
from predictor.answers.question import Question, named
from predictor.answers.scope import scope_of
from predictor.answers.sizes import (
    batch_sizes_to_try,
    common_batch_size,
    largest_batch_sizes,
    largest_local_batch_sizes,
)
from predictor.answers.unknown_operators import has_others, with_shares
from predictor.catalogue.devices import Gpu, is_cpu
from predictor.catalogue.links import Link, all_links, find_link, usual_link
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import Offer, cheapest_offers, hourly_usd
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.data_parallel import Gradients, Team, team_reasons, team_times
from predictor.models.epochs import epoch_times_s
from predictor.models.forecast import Reason
from predictor.models.power import power_limit_w, power_w, product_times_ms
from predictor.models.ratios import ratios_of
from predictor.operators.memory import memory_estimate_validated, peak_memories_gib

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.epochs import Epochs
    from predictor.models.input_pipeline import Feed
    from predictor.models.served import Model

NEAR_BEST = 1.05
"""Batch sizes within this factor of the best epoch time are equally good; the smallest is recommended."""

EPOCH_TIMES = ("epoch_time_s", "epoch_low_s", "epoch_high_s")

ENERGIES = ("watt_hours", "watt_hours_low", "watt_hours_high")
"""Columns of an epoch's energy: the estimate and the ends of its 90 % interval."""

_Floats = NDArray[np.float64]
_Places = NDArray[np.int64]
TIMES = (*ENDS, "gpu_time_ms", "gpu_low_ms", "gpu_high_ms", "host_time_ms")


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """The prediction for one CNN, GPU and batch size. None: not asked for, or unknown.

    `low` to `high` are 90 % intervals. `cost_usd` is one epoch on the whole
    instance of `offer` (`nodes` of them), at its price of `priced_on`; an instance has `offer_gpu_count` GPUs, and
    `gpus_used` work in all. Each trains on `local_batch_size` of the mini-batch's `batch_size` images and needs
    `peak_memory_gib`; `link` joins them. An iteration takes `added_ms` longer than on one GPU with as many images;
    `scaling_efficiency` is the throughput over that of as many single GPUs. `best_batch` marks the smallest batch size
    that fits and lies within 5 % of the GPU's best epoch time of those that fit. `largest_batch_size` leaves a tenth of
    the memory free; None where not even one image fits. `power_w` is the mean power of one GPU, `watt_hours` the energy
    of an epoch on all of them, without the host; `energy_basis` says whether it rests on measured power or on the
    GPU's power limit, or why it is unknown. `extrapolates` holds the reasons for caution, those first that
    widen the interval most, with what would narrow it.

    `loading_time_ms` is the time to load the images of an iteration, None where loading is not counted; where it is,
    `iteration_time_ms` and what follows from it hold the slower of the two, and `training_time_ms` is the iteration
    without loading. `bottleneck` is what an iteration waits for (``gpu``, ``host``, ``loading``, ``reading``;
    ``unknown`` of a method that does not tell the GPU's time from the host's), `workers_needed` the workers of each GPU
    with which it would not wait for loading; None where it does not, or no number of them helps. The first epoch takes
    `start_s` longer than later ones, in which libraries load and cuDNN meets every shape; None where no start was
    measured: CPUs, other frameworks than PyTorch, graphs, autotuned.
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
    extrapolates: tuple[notes.Reason, ...]


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


@dataclass(frozen=True, slots=True)
class Rental:
    """The cheapest offer with enough GPUs (None: no offer) and the team of GPUs (None: one GPU)."""

    offer: Offer | None
    team: Team | None


def rentals_of(question: Question, gpus: Sequence[Gpu]) -> list[Rental]:
    """The cheapest offer and the team of each GPU asked for.

    Raises
    ------
    OutOfRangeError
        If they cannot share the mini-batch or the machines evenly. If offers have this GPU, but none enough, and
        no `link` says how the asker's own are joined.
    SchemaError
        If it is not known what joins them.
    """
    question.check_team()
    prices = question.prices()
    enough = cheapest_offers(prices, question.spot, question.gpus_per_node)
    some = enough if question.gpus_per_node == 1 else cheapest_offers(prices, question.spot)
    rentals = []
    for gpu in gpus:
        if question.n_gpus > 1 and is_cpu(gpu.name):
            raise SchemaError(
                f"{named('n_gpus')} {question.n_gpus}: {gpu.name} is a CPU. Leave it out, or name GPUs."
            )
        offer = enough.get(gpu.name)
        if offer is None and gpu.name in some and question.link is None:
            counts = [rent.gpu_count for rent in prices if rent.gpu == gpu.name and not rent.historic]
            on = f" on {named('nodes')} {question.nodes}" if question.nodes > 1 else ""
            raise OutOfRangeError(
                f"{named('n_gpus')} {question.n_gpus}{on}: no offer of {gpu.name} has more than {max(counts):g} GPUs. "
                f"Pass fewer, or {named('nodes')} and {named('link')}, or only {named('link')} for your own machine."
            )
        team = None
        if question.n_gpus > 1:
            link = _link(question, gpu, offer, prices)
            team = Team(question.n_gpus, question.nodes, link, question.sync_batch_norm)
        rentals.append(Rental(offer, team))
    return rentals


def _link(question: Question, gpu: Gpu, offer: Offer | None, prices: Sequence[Offer]) -> Link:
    if question.link is not None:
        return find_link(question.link)
    if question.nodes > 1:
        known = ", ".join(link.name for link in all_links() if link.joins == "node")
        raise SchemaError(
            f"{named('nodes')} {question.nodes}: pass {named('link')}, what joins the machines, one of {known}."
        )
    if offer is not None and offer.link:
        return find_link(offer.link, "gpu")
    return usual_link(gpu, prices)


@dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """Iterations of one CNN, all that no offer changes; a row is a GPU, or a team of them, at one batch size.

    Parameters
    ----------
    question : Question
    known : Knowledge
    table : LayerTable
    devices : sequence of (Gpu, Mode)
    words : dict of str to list
        Columns with an entry per device: `host`, `method`, `trained_on`.
    largest : list of int or None
        The largest batch size that fits on one GPU of each device.
    device : ndarray of int, shape (n_rows,)
        The place of each row's GPU in `devices`.
    teams : list of Team or None
        Of every row; None for one GPU.
    local_batch_size : ndarray of int, shape (n_rows,)
        Images of one GPU.
    times : dict of str to ndarray, shape (n_rows,)
        The columns `TIMES`; NaN where unknown.
    one_ms : ndarray
        The iteration of one GPU of the team.
    memory_gib : ndarray
        Peak memory of one GPU.
    extrapolates : list of tuple of Reason
    beside_loader : bool
        Whether the times follow a training whose host worked beside its loader.
    """

    question: Question
    known: Knowledge
    table: LayerTable
    devices: Sequence[tuple[Gpu, Mode]]
    words: dict[str, list[Any]]
    largest: list[int | None]
    device: _Places
    teams: list[Team | None]
    local_batch_size: _Places
    times: dict[str, _Floats]
    one_ms: _Floats
    memory_gib: _Floats
    extrapolates: list[tuple[Reason, ...]]
    beside_loader: bool

    @property
    def n_gpus(self) -> _Places:
        """GPUs that train together in each row."""
        return np.array([1 if team is None else team.n_gpus for team in self.teams])

    @property
    def batch_size(self) -> _Places:
        """Images of all GPUs of each row."""
        return self.local_batch_size * self.n_gpus

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether each row fits in its GPU's memory."""
        limits = [-math.inf if gpu.memory_gib is None else gpu.memory_gib for gpu, _ in self.devices]
        return self.memory_gib <= np.array(limits)[self.device]

    def rows(self, places: Sequence[int] | _Places) -> Iterations:
        """These rows."""
        chosen = np.asarray(places, dtype=np.int64)
        return replace(
            self,
            device=self.device[chosen],
            teams=[self.teams[place] for place in chosen.tolist()],
            local_batch_size=self.local_batch_size[chosen],
            times={name: values[chosen] for name, values in self.times.items()},
            one_ms=self.one_ms[chosen],
            memory_gib=self.memory_gib[chosen],
            extrapolates=[self.extrapolates[place] for place in chosen.tolist()],
        )

    def with_teams(self, teams: list[Team | None]) -> Iterations:
        """Rows of single GPUs as those of teams, where there is one, with as many images for each of their GPUs."""
        shared = np.array([place for place, team in enumerate(teams) if team is not None], dtype=np.int64)
        if not shared.size:
            return self
        rows = [
            (self.devices[device][0], team)
            for device, team in zip(self.device.tolist(), teams, strict=True)
            if team is not None
        ]
        mode = self.devices[0][1]
        together = team_times({name: ms[shared] for name, ms in self.times.items()}, self.table, rows, mode)
        times = {name: ms.copy() for name, ms in self.times.items()}
        for name, ms in together.items():
            times[name][shared] = ms
        memory_gib, extrapolates = self.memory_gib.copy(), list(self.extrapolates)
        memory_gib[shared] += Gradients.of(self.table).gib
        more = {team: team_reasons(team, mode) for team in {team for _, team in rows}}
        joined: dict[tuple[int, Team], tuple[Reason, ...]] = {}  # batch sizes share their tuples
        for place, (_, team) in zip(shared.tolist(), rows, strict=True):
            own = extrapolates[place]
            extrapolates[place] = joined.setdefault((id(own), team), (*own, *more[team]))
        return replace(self, teams=teams, times=times, memory_gib=memory_gib, extrapolates=extrapolates)

    def scaled(self, factor: _Floats) -> Iterations:
        """All times x a factor of each row."""
        times = {name: ms * factor for name, ms in self.times.items()}
        return replace(self, times=times, one_ms=self.one_ms * factor)

    def reasons(self) -> list[tuple[Reason, ...]]:
        """Reasons for caution of each row: shares of unknown operators, measurements of yours that are not used."""
        if self.known.own is None and not has_others(self.table):
            return self.extrapolates
        reasons, sizes = list(self.extrapolates), self.local_batch_size
        for device, (gpu, mode) in enumerate(self.devices):
            places = np.flatnonzero(self.device == device)
            known = [self.extrapolates[place] for place in places.tolist()]
            known, unused = (
                with_shares(known, self.table, gpu, mode, sizes[places].tolist()),
                self.known.unused_on(gpu, mode),
            )
            for place, some in zip(places.tolist(), known, strict=True):
                reasons[place] = some + unused
        return reasons


_WORDS = ("host", "method", "trained_on")


def iterations_of(
    question: Question,
    known: Knowledge,
    table: LayerTable,
    devices: Sequence[tuple[Gpu, Mode]],
    local_batch_sizes: Sequence[int],
) -> Iterations:
    """Iterations on one GPU of each kind at each batch size: devices as given, and within them the sizes."""
    anchors = known.anchors(table, question)
    forecasts = known.model.forecasts(
        table, devices, local_batch_sizes, anchors, question.method, question.machine()
    )
    n, modes = len(local_batch_sizes), [mode for _, mode in devices]
    times = {name: np.concatenate([getattr(forecast, name) for forecast in forecasts]) for name in TIMES}
    memories_gib = {mode: np.array(peak_memories_gib(table, local_batch_sizes, mode)) for mode in set(modes)}
    iterations = Iterations(
        question=question,
        known=known,
        table=table,
        devices=devices,
        words={name: [getattr(forecast, name) for forecast in forecasts] for name in _WORDS},
        largest=largest_local_batch_sizes(table, devices),
        device=np.repeat(np.arange(len(devices)), n),
        teams=[None] * (n * len(devices)),
        local_batch_size=np.tile(np.array(local_batch_sizes, dtype=np.int64), len(devices)),
        times=times,
        one_ms=times["iteration_time_ms"],
        memory_gib=np.concatenate([memories_gib[mode] for mode in modes]),
        extrapolates=list(chain.from_iterable(forecast.extrapolates for forecast in forecasts)),
        beside_loader=any(anchor.beside_loader for anchor in anchors),
    )
    _check_times(iterations)
    return iterations


def _check_times(iterations: Iterations) -> None:
    """Refuse predicted times that are not finite and above zero."""
    time_ms = iterations.times["iteration_time_ms"]
    bad = np.flatnonzero(~(np.isfinite(time_ms) & (time_ms > 0)))
    if bad.size:
        gpu, _ = iterations.devices[iterations.device[bad[0]]]
        raise OutOfRangeError(
            f"the model gives {time_ms[bad[0]]} ms for {iterations.table.cnn} on {gpu.name} at batch_size "
            f"{iterations.batch_size[bad[0]]}, which is not a time. Try a batch size nearer to 64, or another method."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """Offers as columns (None: no offer): `feed` is what feeds their GPUs, None where loading is not counted.

    `usd_per_hour` is the price of as many machines as the question has nodes; NaN without an offer.
    """

    offers: Sequence[Offer | None]
    feed: Feed | None
    usd_per_hour: _Floats

    @classmethod
    def of(cls, question: Question, offers: Sequence[Offer | None], feed: Feed | None) -> Offers:
        """With the prices that the question asks for."""
        usd = [math.nan if offer is None else hourly_usd(offer, question.spot) for offer in offers]
        return cls(offers, feed, question.nodes * np.array(usd))


@dataclass(frozen=True, slots=True, eq=False)
class OfferRows:
    """Iterations, each on an offer: `numbers` holds all that follows from both, in arrays of shape (n_rows,).

    Parameters
    ----------
    iterations : Iterations
    offers : Offers
    offer : ndarray of int, shape (n_rows,)
        The place of each row's offer in `offers`.
    numbers : dict of str to ndarray
    """

    iterations: Iterations
    offers: Offers
    offer: _Places
    numbers: dict[str, NDArray[Any]]

    @classmethod
    def of(
        cls, iterations: Iterations, offers: Offers, offer: _Places, trainings: int | _Places = 1
    ) -> OfferRows:
        """Loading, start and power of iterations on these offers, where this number of trainings shares a machine."""
        question, table, times = iterations.question, iterations.table, iterations.times
        sizes, n_gpus, device = iterations.local_batch_size, iterations.n_gpus, iterations.device
        working = trainings * n_gpus // question.nodes
        feed = None if offers.feed is None else offers.feed.at(offer)
        loaded = with_loading(feed, sizes, working, times, measured_so=iterations.beside_loader)
        gpus, modes = [gpu for gpu, _ in iterations.devices], [mode for _, mode in iterations.devices]
        products_ms = product_times_ms(table, gpus, [mode.precision for mode in modes], np.ones(1))
        limits_w, spreads, _ = zip(*map(_energy_of, gpus), strict=True)
        training_ms, limit_w = times["iteration_time_ms"], np.array(limits_w)[device]
        numbers = {
            **times,
            "training_time_ms": training_ms,
            "added_ms": training_ms - iterations.one_ms,
            "scaling_efficiency": iterations.one_ms / training_ms,
            **loaded,
            **starts(feed, table, iterations.devices, device, sizes),
            "batch_size": iterations.batch_size,
            "local_batch_size": sizes,
            "gpus_used": n_gpus,
            "peak_memory_gib": iterations.memory_gib,
            "fits_in_memory": iterations.fits,
            "usd_per_hour": offers.usd_per_hour[offer],
            "power_limit_w": limit_w,
            "power_spread": np.array(spreads)[device],
        }
        time_ms = numbers["iteration_time_ms"]
        numbers["power_w"] = power_w(limit_w, time_ms, times["gpu_time_ms"], products_ms[device, 0] * sizes)
        numbers["throughput_samples_per_s"] = 1000.0 * numbers["batch_size"] / time_ms
        return cls(iterations, offers, offer, numbers)

    def with_epochs(self) -> OfferRows:
        """With the epoch of the question's samples, its cost and its energy; NaN without samples."""
        question, numbers = self.iterations.question, self.numbers
        samples, model = question.epoch_samples() or 0, self.iterations.known.model
        mode, between = self.iterations.devices[0][1], question.workers == 0
        more = epochs(numbers, samples, question.validation_samples, model, mode, between)
        return replace(self, numbers=numbers | more)

    def rows(self, places: Sequence[int] | _Places) -> OfferRows:
        """These rows."""
        chosen = np.asarray(places, dtype=np.int64)
        numbers = {name: values[chosen] for name, values in self.numbers.items()}
        return replace(
            self, iterations=self.iterations.rows(chosen), offer=self.offer[chosen], numbers=numbers
        )

    def columns(self, best: Sequence[bool]) -> dict[str, list[Any]]:
        """All of `COLUMNS` as lists of plain values; `best` is `best_batch`."""
        iterations, numbers = self.iterations, self.numbers
        question, table, n = iterations.question, iterations.table, len(iterations.extrapolates)
        samples, reasons = question.epoch_samples(), iterations.reasons()
        keys = list(map(id, reasons))  # batch sizes share their tuples
        of_keys = dict(zip(keys, reasons, strict=True))
        answered = {key: _answered(some) for key, some in of_keys.items()}

        def of_devices(values: Sequence[Any]) -> list[Any]:
            return _listed(values, iterations.device)

        def of_offers(values: Sequence[Any]) -> list[Any]:
            return _listed(values, self.offer)

        offers, counts = self.offers.offers, numbers["gpus_used"].tolist()
        return {
            **{name: plain(numbers[name]) for name in _NUMBERS},
            **{name: numbers[name].tolist() for name in _PLAIN},
            "cnn": [table.cnn] * n,
            "image_size": [table.image_size] * n,
            "gpu": of_devices([gpu.name for gpu, _ in iterations.devices]),
            "precision": of_devices([mode.precision for _, mode in iterations.devices]),
            "memory_format": of_devices([mode.memory_format for _, mode in iterations.devices]),
            "framework": [question.framework] * n,
            "iterations_per_epoch": [None] * n if samples is None else (-(-samples // numbers["batch_size"])).tolist(),
            "workers_needed": [None if n is None else int(n) for n in plain(numbers["workers_needed"])],
            "offer": of_offers([f"{rent.provider} {rent.instance}" if rent else "no offer" for rent in offers]),
            "offer_gpu_count": of_offers([rent.gpu_count if rent else None for rent in offers]),
            "priced_on": of_offers(
                [str(rent.retrieved_on) if rent and rent.retrieved_on else None for rent in offers]
            ),
            "nodes": [question.nodes] * n,
            "link": [team.link.name if team else None for team in iterations.teams],
            "memory_estimate_validated": [memory_estimate_validated(question.framework)] * n,
            "energy_basis": of_devices([energy_basis(gpu) for gpu, _ in iterations.devices]),
            **{name: of_devices(values) for name, values in iterations.words.items()},
            "largest_batch_size": [
                None if most is None else most * count
                for most, count in zip(of_devices(iterations.largest), counts, strict=True)
            ],
            "best_batch": list(best),
            "extrapolates": [answered[key] for key in keys],
        }  # fmt: skip


_answered = lru_cache(maxsize=4096)(as_answered)  # GPUs and batch sizes share a few reasons

_PLAIN = ("batch_size", "local_batch_size", "gpus_used", "fits_in_memory", "bottleneck")
_NUMBERS = (
    *TIMES,
    *("training_time_ms", *LOADING_TIMES, *EPOCH_TIMES, *STARTS, "throughput_samples_per_s", "cost_usd"),
    *("power_w", *ENERGIES, "added_ms", "scaling_efficiency", "peak_memory_gib"),
)


def plain(values: _Floats) -> list[float | None]:
    """As a list, None for what is unknown."""
    numbers: list[float | None] = values.tolist()
    return [None if value != value else value for value in numbers] if np.isnan(values).any() else numbers


def _listed(values: Sequence[Any], places: _Places) -> list[Any]:
    """The values at these places."""
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    listed: list[Any] = objects[places].tolist()
    return listed


def epochs(
    numbers: dict[str, NDArray[Any]],
    samples: int | _Places,
    validation_samples: int | _Places,
    model: Epochs,
    mode: Mode,
    between: bool,
) -> dict[str, _Floats]:
    """Time, cost and energy of an epoch; NaN without samples, and where price or power are unknown.

    Parameters
    ----------
    numbers : dict of str to ndarray, shape (n_rows,)
        Those of `OfferRows`.
    samples, validation_samples : int or ndarray of shape (n_rows,)
        0 samples are none.
    model : Epochs
    mode : Mode
    between : bool
        Whether images are loaded between iterations.

    Returns
    -------
    dict
        `EPOCH_TIMES`, `cost_usd` and `ENERGIES`; the energy is that of all GPUs, without the host.

    Notes
    -----
    The interval of the energy joins those of time and power in quadrature; no GPU exceeds its limit for the longest
    epoch. While a pass waits for its first images, the GPUs idle.
    """
    known, sizes = np.where(np.asarray(samples) > 0, 1.0, math.nan), numbers["batch_size"]

    def seconds(end: str, loading: str, wait: str) -> _Floats:
        time_ms, loading_ms = numbers[end], numbers[loading]
        return known * epoch_times_s(
            time_ms, sizes, samples, validation_samples, model, mode, loading_ms, between, numbers[wait]
        )

    time_s, low_s, high_s = map(seconds, ENDS, LOADING_TIMES, WAITS)
    spread, n_gpus = numbers["power_spread"], numbers["gpus_used"]
    passes = 1 + (np.asarray(validation_samples) > 0)
    idle_s, idle_w = passes * numbers[WAITS[0]], ratios_of("power").numbers["idle"] * numbers["power_limit_w"]
    joules = n_gpus * (numbers["power_w"] * (time_s - idle_s) + idle_w * idle_s)
    low = joules * np.exp(-np.hypot(np.log(time_s / low_s), spread))
    high = joules * np.exp(np.hypot(np.log(high_s / time_s), spread))
    most = n_gpus * numbers["power_limit_w"] * high_s
    energies = (joules / 3600.0, low / 3600.0, np.minimum(high, most) / 3600.0)
    return {
        **dict(zip(EPOCH_TIMES, (time_s, low_s, high_s), strict=True)),
        "cost_usd": time_s * numbers["usd_per_hour"] / 3600.0,
        **dict(zip(ENERGIES, energies, strict=True)),
    }


def energy_basis(gpu: Gpu) -> EnergyBasis:
    """What a GPU's energy rests on, or why it is unknown."""
    return _energy_of(gpu)[2]


@lru_cache(maxsize=512)
def _energy_of(gpu: Gpu) -> tuple[float, float, EnergyBasis]:
    """A GPU's power limit in W, the 90 % half width of ln of its power, and what they rest on."""
    limit_w, ratios = power_limit_w(gpu), ratios_of("power")
    basis = EnergyBasis("measured", "power measured on this GPU")
    if gpu.is_cpu:
        basis = EnergyBasis("unknown", "unknown: the power of CPUs was not measured")
    elif limit_w is None:
        basis = EnergyBasis("unknown", f"unknown: gpus.csv has no power limit of {gpu.name}")
    elif not ratios.measured_on(gpu):
        basis = EnergyBasis("estimated", f"estimated from the power limit of {limit_w:g} W")
    return math.nan if limit_w is None else limit_w, ratios.spread_on(gpu), basis


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
        rows = rented_rows(question, known, table, devices, rentals).with_epochs()
        numbers, shape = rows.numbers, (len(devices), len(question.batch_sizes))
        time_s = numbers["epoch_time_s"]
        if question.epoch_samples() is None:
            time_s = numbers["iteration_time_ms"] / numbers["batch_size"]
        best = best_of_gpus(time_s.reshape(shape), numbers["fits_in_memory"].reshape(shape))
        for name, values in rows.columns(best.ravel().tolist()).items():
            columns[name] += values
    return Answer(columns, _scope(question, known.model, columns), len(question.batch_sizes))


def rented_rows(
    question: Question,
    known: Knowledge,
    table: LayerTable,
    devices: Sequence[tuple[Gpu, Mode]],
    rentals: Sequence[Rental],
) -> OfferRows:
    """A row for each GPU, as rented, and batch size of a question, without their epochs."""
    iterations = iterations_of(question, known, table, devices, question.local_batch_sizes)
    iterations = iterations.with_teams(_listed([rental.team for rental in rentals], iterations.device))
    offers = [rental.offer for rental in rentals]
    feed = feed_of_rentals(question, table.image_size, offers)
    return OfferRows.of(iterations, Offers.of(question, offers, feed), iterations.device)


def best_of_gpus(time_s: _Floats, fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each batch size is the smallest of its GPU that fits and lies within 5 % of the best that fits.

    Parameters
    ----------
    time_s, fits : ndarray of shape (n_gpus, n_batches)
        Time of an epoch, or of an image.
    """
    fitting = np.where(fits, time_s, np.inf)
    near = fits & (fitting <= NEAR_BEST * fitting.min(axis=1, keepdims=True))
    best: NDArray[np.bool_] = near & (np.arange(near.shape[1]) == near.argmax(axis=1)[:, None])
    return best


def predict(cnn: object, gpus: object, batch_sizes: Any = None, **options: Any) -> list[PredictionRow]:
    """Rows of `answer` to a `Question` of these options."""
    return answer(Question(cnn, gpus, batch_sizes, **options)).rows()


def _scope(question: Question, model: Model, columns: dict[str, list[Any]]) -> str:
    return scope_of(
        question, model, columns, loading_in_words(question, columns["image_size"][0], by_offer=False)
    )


def _searched(question: Question) -> Answer:
    """Answer at the common, the fastest and the largest batch size of each CNN and GPU."""
    known, samples, n = Knowledge.of(question), question.epoch_samples(), question.n_gpus
    devices = question.devices()
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for table in question.layer_tables():
        largest = largest_batch_sizes(question, table, devices)
        tried = batch_sizes_to_try(largest, samples, n)
        common = common_batch_size(largest, samples, n)
        sizes = sorted({*tried, *(size for size in largest if size and size <= (samples or size))})
        sized = replace(question, batch_sizes=sizes)
        rentals = rentals_of(sized, [gpu for gpu, _ in devices])
        rows = rented_rows(sized, known, table, devices, rentals).with_epochs()
        rates = rows.numbers["throughput_samples_per_s"].reshape(len(devices), -1)
        if samples:  # a last mini-batch of few images takes as long as the others
            rates = 1 / rows.numbers["epoch_time_s"].reshape(len(devices), -1)
        chosen, is_fastest = [], []
        for device, (rate, most) in enumerate(zip(rates, largest, strict=True)):
            fastest = fastest_size(sizes, rate, [size for size in tried if size <= (most or 0)])
            named = {fastest if common > (most or common) else common, fastest, most}
            own = [place for place, size in enumerate(sizes) if size in named]
            chosen += [len(sizes) * device + place for place in own]
            is_fastest += [sizes[place] == fastest for place in own]
        for name, values in rows.rows(chosen).columns(is_fastest).items():
            columns[name] += values
    return Answer(columns, _scope(question, known.model, columns))


def fastest_size(sizes: Sequence[int], rates: _Floats, held: Sequence[int]) -> int | None:
    """The smallest batch size within 5 % of the best throughput of those that a GPU holds; None if it holds none.

    Parameters
    ----------
    sizes : list of int
        Ascending.
    rates : ndarray of shape (n_sizes,)
    held : collection of int
    """
    holds = np.isin(sizes, held)
    if not holds.any():
        return None
    return sizes[int((holds & (NEAR_BEST * rates >= rates[holds].max())).argmax())]
