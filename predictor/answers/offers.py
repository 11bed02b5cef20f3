"""Iterations on offers: their price, loading, start and power, and the time, cost and energy of their epochs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.answers.grid import Iterations, Places
from predictor.answers.loading import LOADING_TIMES, WAITS, feed_of_rentals, starts, vcpus_of, with_loading
from predictor.answers.notes import Co2Basis, EnergyBasis
from predictor.answers.question import named
from predictor.answers.resolved import ResolvedQuestion
from predictor.arrays import Array
from predictor.catalogue.devices import Gpu, is_cpu
from predictor.catalogue.grids import Grid, find_grid, grid_of
from predictor.catalogue.links import all_links, find_link, usual_link
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import Offer, Prices, hourly_usd
from predictor.catalogue.providers import billing_h
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.data_parallel import Team
from predictor.models.epochs import Iteration, epoch_times_s
from predictor.models.forecast import ENDS
from predictor.models.power import power_limit_w, power_w
from predictor.models.ratios import ratios_of

if TYPE_CHECKING:
    from predictor.models.epochs import Epochs
    from predictor.models.input_pipeline import Feed

EPOCH_TIMES = ("epoch_time_s", "epoch_low_s", "epoch_high_s")

ENERGIES = ("watt_hours", "watt_hours_low", "watt_hours_high")
"""Columns of an epoch's energy: the estimate and the ends of its 90 % interval."""

CO2 = ("co2_g", "co2_low_g", "co2_high_g")
"""Grams of CO2 equivalent of these energies."""


@dataclass(frozen=True, slots=True)
class Rental:
    """The cheapest offer with enough GPUs (None: no offer) and the team of GPUs (None: one GPU)."""

    offer: Offer | None
    team: Team | None


def rentals_of(resolved: ResolvedQuestion, gpus: Sequence[Gpu]) -> list[Rental]:
    """The cheapest offer and the team of each GPU asked for.

    OutOfRangeError if offers have this GPU, but none enough, and no `link` says how the asker's own are joined;
    SchemaError if it is not known what joins them.
    """
    question, team = resolved.question, resolved.team
    cheapest, rentals = resolved.cheapest_of({gpu.name for gpu in gpus}), []
    for gpu in gpus:
        offer = cheapest.get(gpu.name)
        if team.n_gpus == 1:
            rentals.append(Rental(offer, None))
            continue
        if is_cpu(gpu.name):
            raise SchemaError(
                f"{named('n_gpus')} {team.n_gpus}: {gpu.name} is a CPU. Leave it out, or name GPUs."
            )
        own = [] if offer or team.link else [rent for rent in resolved.prices if rent.gpu == gpu.name]
        if Prices(rent for rent in own if not rent.marketplace).of_each(spot=question.spot):
            counts = [rent.gpu_count for rent in own if not rent.historic]
            on = f" on {named('nodes')} {team.nodes}" if team.nodes > 1 else ""
            raise OutOfRangeError(
                f"{named('n_gpus')} {team.n_gpus}{on}: no offer of {gpu.name} has more than {max(counts):g} GPUs. "
                f"Pass fewer, or {named('nodes')} and {named('link')}, or only {named('link')} for your own machine."
            )
        if team.link is None and team.nodes > 1:
            names = ", ".join(link.name for link in all_links() if link.joins == "node")
            raise SchemaError(
                f"{named('nodes')} {team.nodes}: pass {named('link')}, what joins the machines, one of {names}."
            )
        if team.link is not None:
            link = find_link(team.link)
        else:
            link = find_link(offer.link, "gpu") if offer and offer.link else usual_link(gpu, resolved.prices)
        rentals.append(
            Rental(offer, Team(team.n_gpus, team.nodes, link, team.sync_batch_norm, team.has_replicas))
        )
    return rentals


@dataclass(frozen=True, eq=False)
class Offers:
    """Offers as columns (None: no offer): `feed` is what feeds their GPUs, None where loading is not counted.

    `usd_per_hour` is the price of as many machines as the question has nodes; NaN without an offer. `g_co2e_per_kwh` is
    that of the question's region, or else of the offer's place; NaN where it is not known.
    """

    offers: Sequence[Offer | None]
    feed: Feed | None
    usd_per_hour: Array
    g_co2e_per_kwh: Array

    @classmethod
    def of(cls, resolved: ResolvedQuestion, offers: Sequence[Offer | None], feed: Feed | None) -> Offers:
        """With the prices and grids that the question asks for."""
        spot = resolved.question.spot
        usd = np.array([math.nan if offer is None else hourly_usd(offer, spot) for offer in offers])
        grids = (_grid(resolved.question.region, offer) for offer in offers)
        grams = np.array([math.nan if grid is None else grid.g_co2e_per_kwh for grid in grids])
        return cls(offers, feed, resolved.question.nodes * usd, grams)

    @cached_property
    def billing(self) -> Array:
        """Hours of `billing_h` of every offer, (2, n_offers)."""
        hours = [billing_h(offer.provider if offer else "") for offer in self.offers]
        return np.array(hours).reshape(-1, 2).T

    @cached_property
    def vcpus(self) -> Array:
        """Number of vCPUs of every offer, as of `vcpus_of`."""
        return vcpus_of(self.offers)[0]


@dataclass(frozen=True, slots=True, eq=False)
class OfferRows:
    """Iterations, each on an offer, whose place in `offers` is `offer`: arrays of shape (n_rows,).

    `working` GPUs of each row's machine work; `numbers` holds all that follows from all.
    """

    iterations: Iterations
    offers: Offers
    offer: Places
    working: Places
    numbers: dict[str, NDArray[Any]]

    @classmethod
    def of(
        cls, iterations: Iterations, offers: Offers, offer: Places, trainings: int | Places = 1
    ) -> OfferRows:
        """Loading, start and power of iterations on these offers, where this number of trainings shares a machine."""
        feed = None if offers.feed is None else offers.feed.at(offer)
        sizes, n_gpus, power = iterations.local_batch_size, iterations.n_gpus, iterations.devices.power
        if (iterations.per_gpu > 1).any():
            host_ms = iterations.times["host_time_ms"]
            loading_ms = 0.0 if feed is None or feed.between else 1000.0 * sizes / feed.per_vcpu
            work = 1.0 + np.divide(loading_ms, host_ms, out=np.zeros(host_ms.shape), where=host_ms > 0)
            iterations = iterations.on_vcpus(trainings / offers.vcpus[offer] * work)
        times, devices, device = iterations.times, iterations.devices, iterations.device
        working = trainings * n_gpus // iterations.resolved.question.nodes
        training_ms, limit_w = times["iteration_time_ms"], power.limit_w[device]
        numbers = {
            **times,
            "training_time_ms": training_ms,
            "added_ms": training_ms - iterations.one_ms,
            "scaling_efficiency": iterations.one_ms / training_ms,
            **_loaded(iterations, feed, working),
            **starts(feed, devices, device, sizes),
            "batch_size": iterations.batch_size,
            "local_batch_size": sizes,
            "gpus_used": n_gpus,
            "per_gpu": iterations.per_gpu,
            "peak_memory_gib": iterations.memory_gib,
            "fits_in_memory": iterations.fits,
            "usd_per_hour": offers.usd_per_hour[offer],
            "power_limit_w": limit_w,
            "power_spread": power.spread[device],
        }
        time_ms = numbers["iteration_time_ms"]
        busy_ms, product_ms = times["gpu_time_ms"], power.product_ms[device] * sizes
        packed = math.nan if iterations.beside else iterations.per_gpu  # unlike ones take unlike power
        numbers["power_w"] = power_w(limit_w, time_ms, packed * busy_ms, packed * product_ms)
        numbers["throughput_samples_per_s"] = 1000.0 * numbers["batch_size"] / time_ms
        return cls(iterations, offers, offer, working, numbers)

    def with_epochs(self) -> OfferRows:
        """With the epoch of the question's samples, its cost, energy and CO2; NaN without samples."""
        resolved, numbers, offers = self.iterations.resolved, self.numbers, self.offers
        mode = self.iterations.devices.pairs[0][1]
        samples, validated = self.iterations.passes
        feed = None if offers.feed is None else offers.feed.at(self.offer)
        full, *last = self.iterations.of_epoch
        unknown = {name: numbers[name] for name in LOADING_TIMES}
        of_epoch = [
            numbers if own is full
            else own.times | unknown if feed is None
            else _loaded(own, feed, self.working)
            for own in last
        ]  # fmt: skip
        between = resolved.question.workers == 0
        more = epochs(numbers, of_epoch, samples, validated, resolved.known.model, mode, between)
        grams = offers.g_co2e_per_kwh[self.offer]
        more |= {name: more[wh] * grams / 1000.0 for name, wh in zip(CO2, ENERGIES, strict=True)}
        return replace(self, numbers=numbers | more)

    def billed_usd(self, hours: Array) -> Array:
        """Bill of each row's machine for its `hours`, of shape (n_rows,); NaN where it is not for rent."""
        usd: Array = billed_hours(hours, *self.offers.billing[:, self.offer]) * self.numbers["usd_per_hour"]
        return usd

    def paid_hours(self, usd: float) -> Array:
        """Hours of each row's machine that `usd` pay for; infinite if it is free, NaN if it is not for rent."""
        per_hour = self.numbers["usd_per_hour"]
        hours = np.divide(usd, per_hour, out=np.where(per_hour == 0, np.inf, np.nan), where=per_hour > 0)
        return paid_hours(hours, *self.offers.billing[:, self.offer])

    def rows(self, places: Sequence[int] | Places) -> OfferRows:
        """These rows."""
        chosen = np.asarray(places, dtype=np.int64)
        numbers = {name: values[chosen] for name, values in self.numbers.items()}
        own, offer, working = self.iterations.rows(chosen), self.offer[chosen], self.working[chosen]
        return replace(self, iterations=own, offer=offer, working=working, numbers=numbers)


def billed_hours(hours: ArrayLike, least_h: ArrayLike, step_h: ArrayLike) -> Array:
    """Hours that are billed for a rental: whole steps, if it grows by such, and at least the shortest bill."""
    return np.maximum(_in_steps(hours, step_h, np.ceil), least_h)


def paid_hours(hours: ArrayLike, least_h: ArrayLike, step_h: ArrayLike) -> Array:
    """Longest rental that the price of `hours` pays for, 0 if it is less than the shortest bill."""
    return np.where(np.less(hours, least_h), 0.0, _in_steps(hours, step_h, np.floor))


def _in_steps(hours: ArrayLike, step_h: ArrayLike, to_whole: np.ufunc) -> Array:
    step = np.where(step_h, step_h, 1.0)
    return np.where(step_h, to_whole(np.round(np.divide(hours, step), 9)) * step, hours)


def _loaded(iterations: Iterations, feed: Feed | None, working: Places) -> dict[str, NDArray[Any]]:
    """What loading makes of iterations, of whose machines `working` GPUs work; as of `with_loading`."""
    sizes, beside, waited_ms = iterations.local_batch_size, iterations.beside_loader, iterations.waited_ms
    gpu_ms = iterations.times.get("shared_gpu_ms", iterations.times["gpu_time_ms"])
    times = iterations.times | {"gpu_time_ms": gpu_ms}
    return with_loading(feed, sizes, working, times, beside, waited_ms, iterations.table.parts)


def rented_rows(
    resolved: ResolvedQuestion,
    table: LayerTable,
    local_batch_sizes: Sequence[int],
    rentals: Sequence[Rental],
    shared_by: Collection[int] = (),
    beside: Sequence[Iterations] = (),
) -> OfferRows:
    """A row for each GPU of a question, as rented, and each of these batch sizes of one GPU, without their epochs.

    `shared_by`: numbers of GPUs whose epochs are asked for; `beside`: others on each GPU, as of `Iterations.packed`.
    """
    trainings = [(resolved.training, resolved.devices)]
    sizes_of = dict.fromkeys(shared_by, local_batch_sizes)
    iterations = Iterations.of(resolved, table, trainings, local_batch_sizes, shared_by=sizes_of)
    if resolved.question.n_gpus > 1:
        iterations = iterations.with_teams([rental.team for rental in rentals], iterations.device)
    per_gpu = resolved.team.trainings + len(beside)
    iterations = iterations.packed(np.full(iterations.device.shape, per_gpu), beside)
    offers = [rental.offer for rental in rentals]
    feed = feed_of_rentals(resolved, table.image_size, offers)
    return OfferRows.of(iterations, Offers.of(resolved, offers, feed), iterations.device, per_gpu)


def epochs(
    numbers: dict[str, NDArray[Any]],
    last: Sequence[Mapping[str, NDArray[Any]]],
    samples: int | Places,
    validation_samples: int | Places,
    model: Epochs,
    mode: Mode,
    between: bool,
) -> dict[str, Array]:
    """`EPOCH_TIMES`, `cost_usd` and `ENERGIES` of an epoch; NaN without samples, and where price or power are unknown.

    `numbers` are those of `OfferRows`, of shape (n_rows,), as `samples` (0: none) and `validation_samples` may be;
    `last` has times and loading of the last iterations of the training and of the validation pass. `between`: images
    are loaded between iterations. The energy is that of all GPUs, without the host; of trainings that share a GPU, that
    of one.

    The interval of the energy joins those of time and power in quadrature; no GPU exceeds its limit for the longest
    epoch. While a pass waits for its first images, the GPUs idle.
    """
    is_known, sizes = np.where(np.asarray(samples) > 0, 1.0, math.nan), numbers["batch_size"]
    iterations = [Iteration(_together(own, ENDS), _together(own, LOADING_TIMES)) for own in (numbers, *last)]
    more = samples, validation_samples, model, mode, between, _together(numbers, WAITS)
    time_s, low_s, high_s = is_known * epoch_times_s(iterations, sizes, *more)
    spread, n_gpus = numbers["power_spread"], numbers["gpus_used"] / numbers["per_gpu"]
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


def _together(numbers: Mapping[str, Array], names: Sequence[str]) -> Array:
    """Columns of an estimate and the ends of its interval as one array, (3, n_rows)."""
    return np.array([numbers[name] for name in names])


@lru_cache(maxsize=512)
def energy_basis(gpu: Gpu, differ: bool = False) -> EnergyBasis:
    """Basis of a GPU's energy: measured power or its power limit, or why the energy is unknown.

    `differ`: trainings that differ share the GPU.
    """
    limit_w = power_limit_w(gpu)
    if differ:
        return EnergyBasis("unknown", "unknown: trainings that differ share the GPU's power")
    if is_cpu(gpu.name):
        return EnergyBasis("unknown", "unknown: the power of CPUs was not measured")
    if limit_w is None:
        return EnergyBasis("unknown", f"unknown: gpus.csv has no power limit of {gpu.name}")
    if not ratios_of("power").measured_on(gpu):
        return EnergyBasis("estimated", f"estimated from the power limit of {limit_w:g} W")
    return EnergyBasis("measured", "power measured on this GPU")


def _grid(region: str | None, offer: Offer | None) -> Grid | None:
    """Grid of the region if one is given, SchemaError as `find_grid`; else of the offer, None where it is not known."""
    if region is not None:
        return find_grid(region)
    return None if offer is None else grid_of(offer)


_published = lru_cache(maxsize=512)(lambda grid: Co2Basis("published", str(grid)))


def co2_basis(region: str | None, offer: Offer | None) -> Co2Basis:
    """Power grid of the region if one is given, else of the offer's place.

    ``unknown``, with the cause, if the offer has no known grid; SchemaError as `find_grid` for an unknown region.
    """
    grid = _grid(region, offer)
    if grid is not None:
        return _published(grid)
    if offer is None or offer.region in ("", "any"):
        why = "there is no offer" if offer is None else f"{offer.provider} does not say where"
    else:
        why = f"grids.csv has no grid of {offer.provider} {offer.region}"
    return Co2Basis("unknown", f"unknown: {why}; pass {named('region')}")
