"""Which GPU to rent: predictions as time and money for a whole training, ranked, with a verdict.

`Comparer` asks for iterations (batch sizes, GPUs together, modes) and puts them on offers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.answers.answer import columns_of, frame_of, plain, scope_of
from predictor.answers.changes import fast_training
from predictor.answers.grid import (
    LARGEST_TRIED,
    Iterations,
    batch_sizes_to_try,
    best_of_gpus,
    common_batch_size,
    compared_batch_sizes,
    fastest_sizes,
    largest_local_batch_sizes,
)
from predictor.answers.loading import STARTS, data_exceeded, feed_of_offers
from predictor.answers.offers import CO2, ENERGIES, EPOCH_TIMES, OfferRows, Offers, rentals_of
from predictor.answers.question import MiniBatch, Plan, Question, named
from predictor.answers.ranking import (
    NOT_COUNTED,
    ComparisonRow,
    Interruptions,
    chance_within,
    misses_by,
    pareto_front,
    ranking_order,
    safety,
    within,
)
from predictor.answers.resolved import Device, ResolvedQuestion, Training, gpus_of
from predictor.answers.verdict import (
    Changes,
    Standing,
    Verdict,
    does_not_fit,
    roles_of,
    verdict_of,
)
from predictor.arrays import Array, distinct_values
from predictor.catalogue.devices import Gpu
from predictor.catalogue.links import find_link, usual_link
from predictor.catalogue.modes import MAX_PER_GPU
from predictor.catalogue.offers import Offer
from predictor.checks import as_list
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.compiled import compile_seconds
from predictor.models.data_parallel import Team
from predictor.models.epochs import Iteration, epoch_times_s

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from predictor.answers.answer import Values
    from predictor.answers.grid import Places

    Columns = dict[str, Values]
    from predictor.cnns.layer_table import LayerTable


@dataclass(frozen=True, slots=True, eq=False)
class GpuAnswers:
    """The iterations of devices that are compared, device by device: the GPUs as asked, then in their fastest mode.

    `gpu` is the place of each device's GPU. Of each device they begin at row `first`: its `n_splits` splits of
    mini-batches, then as many at the batch size of the best throughput of the same GPUs. Of each row, `asked` is the
    split of the same mini-batch among as many GPUs as the question has, and `is_best` whether these have their best
    batch size in it.
    """

    iterations: Iterations
    gpu: Places
    first: Places
    n_splits: Places
    asked: Places
    is_best: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Machines:
    """Every offer of the GPUs compared, GPU by GPU; one without an offer (None) where a GPU has none.

    Of a plan's trials, `at_once` train on each at the same time; `gpu` is the place of its GPU, `links` are what joins
    several of them, empty where that is not known.
    """

    gpu: Places
    offers: Offers
    at_once: Places
    links: Sequence[str]


@dataclass(frozen=True, eq=False)
class Priced:
    """Trainings, each of a split on a machine that has as many GPUs, joined so; arrays have an entry per training.

    `device` is the place of the machine's GPU in its mode in `answers`, and `split` that of the split among its own.
    `common` is the mini-batch of the comparison, None where several were given. Those in the question's mode come
    first, `n_usual` of them, then those in the fastest mode of their GPU; `usual` and `fast` are their places.
    """

    plan: Plan
    common: int | None
    machines: Machines
    answers: GpuAnswers
    machine: Places
    device: Places
    split: Places
    rows: OfferRows
    n_usual: int

    @property
    def usual(self) -> Places:
        """Places of the trainings in the question's mode."""
        return np.arange(self.n_usual)

    @property
    def fast(self) -> Places:
        """Places of those in the fastest common mode of their GPU."""
        return np.arange(self.n_usual, len(self.machine))

    @cached_property
    def total_h(self) -> list[Array]:
        """Hours of the plan and the ends of their interval."""
        return _total_h(self.plan, self.rows)

    @cached_property
    def total_usd(self) -> Array:
        """Bill of the plan; NaN where a machine is not for rent."""
        return self.rows.billed_usd(self.total_h[0])

    @cached_property
    def limits_h(self) -> list[Array] | None:
        """Hours within which budget and deadline hold, and `total_h`, without set-up; None without limits.

        NaN where a price is not known.
        """
        plan = self.plan
        limits = [] if plan.deadline_h is None else [np.full(len(self.machine), plan.deadline_h)]
        limits += [] if plan.budget_usd is None else [self.rows.paid_hours(plan.budget_usd)]
        return [hours - plan.setup_h for hours in (np.min(limits, axis=0), *self.total_h)] if limits else None

    @cached_property
    def misses_by(self) -> Array | None:
        """Share by which each misses the limit that it misses most; None without limits."""
        return misses_by(self.plan, self.total_h[0], self.total_usd)

    def is_other(self, batch_size: int | None) -> NDArray[np.bool_]:
        """Whether each mini-batch is another than this one; of several that were given none is."""
        sizes: NDArray[np.int64] = self.rows.numbers["batch_size"]
        return np.zeros(len(sizes), dtype=bool) if self.common is None else sizes != batch_size

    def at(self, places: Places) -> Priced:
        """The trainings at these places."""
        own: dict[str, Any] = {name: getattr(self, name)[places] for name in ("machine", "device", "split")}
        return replace(self, rows=self.rows.rows(places), **own)

    def fastest(self, places: Places) -> Places:
        """Of these trainings that of each machine that is its fastest: one that fits, of the common mini-batch.

        Where none fits it is the one that needs least memory.
        """
        fits, machine = self.rows.numbers["fits_in_memory"], self.machine[places]
        lasts = np.where(fits, self.total_h[0], self.rows.numbers["peak_memory_gib"])
        keys = lasts, self.is_other(self.common), ~fits
        order = np.lexsort((*(key[places] for key in keys), machine))
        return places[order[np.unique(machine[order], return_index=True)[1]]]

    def ranked(self, places: Places) -> Places:
        """These trainings, best first."""
        fits, missed = self.rows.numbers["fits_in_memory"][places], self.misses_by
        missed = None if missed is None else missed[places]
        costs = self.total_usd[places], self.total_h[0][places]
        is_other = self.is_other(self.common)[places]
        return places[ranking_order(fits, is_other, missed, *costs, self.plan.rank_by)]

    def best_of_gpus(self, ranked: Places) -> Places:
        """The first of each GPU among ranked trainings, best first."""
        gpu = self.machines.gpu[self.machine[ranked]]
        return ranked[np.sort(np.unique(gpu, return_index=True)[1])]

    def in_fast_mode(self, places: Places) -> Places:
        """The same machines and splits as of these trainings in the fastest mode, -1 where there is none."""
        keys = self.machine * (1 + int(self.split.max())) + self.split
        place_of = dict(zip(keys[self.fast].tolist(), self.fast.tolist(), strict=True))
        return np.array([place_of.get(key, -1) for key in keys[places].tolist()])

    def standing(self, places: Places, best: int) -> Standing:
        """What the verdict weighs of these trainings, beside the best one."""
        iterations, numbers = self.rows.iterations, self.rows.numbers
        [reasons], is_sure = iterations.rows([best]).reasons(), None
        if any(reason.kind == "gpu" for reason in reasons):
            coded = iterations.rows(places).reasons()
            is_sure = np.array([not own for own in coded.words])[coded.codes]
        dear = self.rows.billed_usd(self.total_h[2]) if self.plan.rank_by == "cost" else self.total_h[2]
        return Standing(
            fits=numbers["fits_in_memory"][places],
            is_other=self.is_other(numbers["batch_size"][best])[places],
            time_h=self.total_h[0][places],
            cost_usd=self.total_usd[places],
            dear=dear[places],
            misses_by=None if self.misses_by is None else self.misses_by[places],
            safety=safety(*self.limits_h)[places] if self.limits_h else np.zeros(len(places)),
            is_sure=is_sure,
        )


@dataclass(frozen=True, eq=False)
class Comparer:
    """A comparison of the devices that a question about one CNN asks for, on offers, at some batch sizes.

    `common` is the mini-batch of every row if none was given, `compared` are this one or those that were given, `tried`
    the same or those that are searched for the fastest. `may_share`: any number of an offer's GPUs may share the
    mini-batch. `reference` is the GPU to compare the others with, if one was asked for.
    """

    resolved: ResolvedQuestion
    plan: Plan
    devices: list[Device]
    common: int | None
    compared: list[int]
    tried: list[int]
    may_share: bool
    reference: Sequence[Gpu]

    @classmethod
    def of(cls, resolved: ResolvedQuestion, plan: Plan, *, may_share: bool = True) -> Comparer:
        """Read the question; SchemaError if it is about several CNNs, or has no epoch."""
        question, samples = resolved.question, resolved.samples
        plan = with_trials(plan, question)
        if len(as_list(question.cnn)) > 1:
            raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
        if samples is None:
            raise SchemaError(
                f"a training's cost needs the samples of an epoch. Pass {named('samples')}, or a data set such as "
                "'imagenet'."
            ).about("samples")
        if question.per_gpu == "auto" and plan.trainings == 1:
            raise SchemaError(
                f"{named('per_gpu')} 'auto' shares GPUs among trials, and there is one. Pass {named('trials')}, too."
            ).about("per_gpu")
        if question.epoch_of_loop and len(question.batch_sizes or ()) > 1:
            raise SchemaError(
                f"an epoch of {named('framework_loop')} {question.framework_loop} has {question.epoch_of_loop}, so the "
                f"smallest {named('batch_size')} always ends first, after fewest images. Compare one at a time."
            ).about("batch_sizes")
        _ = resolved.known, resolved.loading  # refuse what contradicts itself before anything is searched
        [table] = resolved.tables
        common, compared = None, question.batch_sizes
        tried = compared
        if tried is None:
            shares = question.n_gpus * question.parts
            packed = resolved.team.trainings
            largest = largest_local_batch_sizes(table, resolved.devices, question.n_gpus, packed)
            common = common_batch_size(largest, samples, shares)
            within_measured = [size and min(size, LARGEST_TRIED) for size in largest]
            compared = [common]
            tried = sorted({*batch_sizes_to_try(within_measured, samples, shares), common})
        resolved.local_sizes(tried)
        # what is wrong with the GPUs asked for is said before what is with the reference
        devices = resolved.devices
        reference = () if plan.relative_to is None else gpus_of(plan.relative_to, question.precision)
        return cls(resolved, plan, devices, common, compared, tried, may_share, reference)

    @property
    def table(self) -> LayerTable:
        """The CNN."""
        return self.resolved.tables[0]

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs compared."""
        return [gpu for gpu, _ in self.devices]

    @cached_property
    def _sizes(self) -> list[list[int]]:
        """The mini-batches of each GPU: those compared, and after the common one what a GPU holds that holds less."""
        if self.common is None:
            return [self.compared] * len(self.gpus)
        n = self.resolved.question.n_gpus
        largest = largest_local_batch_sizes(self.table, self.devices, n, self.resolved.team.trainings)
        held = compared_batch_sizes(self.common, largest, n * self.resolved.question.parts)
        return [list(dict.fromkeys((*self.compared, size))) for size in held]

    @cached_property
    def _own_teams(self) -> list[Team | None]:
        """Of each GPU the team that the question asks for; None for one GPU."""
        return [rental.team for rental in rentals_of(self.resolved, self.gpus)]

    @cached_property
    def _teams(self) -> tuple[list[Team | None], list[list[int]]]:
        """Teams that share a mini-batch, and the places of those of each GPU: as asked, else any of an offer's GPUs.

        One GPU of an offer is taken to work where it is not known what joins them.
        """
        question, machines = self.resolved.question, self.machines
        may_share = self.may_share and self.plan.trainings == 1 and not question.is_whole
        most_of: dict[tuple[int, str], int] = {}
        joined = zip(machines.gpu.tolist(), machines.links, machines.offers.offers, strict=True)
        for gpu, link, offer in joined:
            if link and offer is not None:
                most_of[gpu, link] = max(int(offer.gpu_count), most_of.get((gpu, link), 0))
        place_of: dict[Team | None, int] = {}
        teams: list[dict[Team | None, None]] = [{team: None} for team in self._own_teams]
        for (gpu, link), most in most_of.items():
            own = self._own_teams[gpu]
            if own is not None:
                teams[gpu][replace(own, link=find_link(link))] = None
            elif may_share:
                shares = tuple(size // question.parts for size in self._sizes[gpu])
                teams[gpu] |= dict.fromkeys(_teams_of(link, most, shares, question.parallel == "dp"))
        of_gpus = [[place_of.setdefault(team, len(place_of)) for team in of_gpu] for of_gpu in teams]
        return list(place_of), of_gpus

    @cached_property
    def _numbers(self) -> list[int]:
        """Number of GPUs of each team."""
        return [1 if team is None else team.n_gpus for team in self._teams[0]]

    @cached_property
    def _shares(self) -> dict[int, dict[int, int]]:
        """By a number of GPUs, the images of one of them at each batch size tried that they share evenly."""
        return {n: MiniBatch.even(self.tried, n, self.resolved.question.parts) for n in set(self._numbers)}

    def _splits(self) -> list[list[tuple[int, int, int, int]]]:
        """Of each GPU places of teams, mini-batches that they share evenly, images of one GPU, and trainings on it."""
        even, made = [self._shares[n] for n in self._numbers], dict[Any, list[tuple[int, int, int, int]]]()
        is_open, most = self.resolved.question.per_gpu == "auto", min(MAX_PER_GPU, self.plan.trainings)
        packs = range(1, 1 + (most if is_open else self.resolved.team.trainings))  # the last round has fewer
        keys = [(tuple(sizes), tuple(own)) for sizes, own in zip(self._sizes, self._teams[1], strict=True)]
        for sizes, own in dict.fromkeys(keys):  # GPUs share a few
            shared = [(team, size, even[team][size]) for size in sizes for team in own if size in even[team]]
            made[sizes, own] = [(*split, packed) for split in shared for packed in packs]
        return list(map(made.__getitem__, keys))

    @cached_property
    def _fast_modes(self) -> dict[Training, list[int]]:
        """The fastest common modes of GPUs, each with their places; none where the question fixes the mode."""
        question, modes = self.resolved.question, dict[Training, list[int]]()
        if question.precision is None and not question.is_whole:
            for gpu_index, gpu in enumerate(self.gpus):
                fast = fast_training(question, self.resolved.training, gpu)
                if fast is not None:
                    modes.setdefault(fast, []).append(gpu_index)
        return modes

    def gpu_answers(self, fast: bool = False) -> GpuAnswers:
        """Iterations of the compared GPUs in the question's mode, and in the fastest mode of each if asked for."""
        resolved, gpus, tried, n = self.resolved, self.gpus, self.tried, self.resolved.question.n_gpus
        splits, (teams, of_gpus) = self._splits(), self._teams
        n_splits = np.array(list(map(len, splits)))
        of_split = np.repeat(np.arange(len(gpus)), n_splits)
        team, size, local_size, per_gpu = np.array(list(chain.from_iterable(splits))).T
        local_sizes = sorted({*local_size.tolist(), *self._shares[n].values()})
        tried_at = np.searchsorted(local_sizes, [self._shares[n][tried_size] for tried_size in tried])
        modes = {resolved.training: list(range(len(gpus)))} | (self._fast_modes if fast else {})
        trainings = [(mode, mode.on_each([gpus[place] for place in own])) for mode, own in modes.items()]
        shared_by = {number: shares.values() for number, shares in self._shares.items()}
        singles = Iterations.of(resolved, self.table, trainings, local_sizes, shared_by=shared_by)
        as_asked = singles.rows((len(local_sizes) * np.arange(len(gpus))[:, None] + tried_at).ravel())
        as_asked = as_asked.with_teams(teams, np.repeat([own[0] for own in of_gpus], len(tried)))
        best = self._best_of(as_asked)[of_split, np.searchsorted(tried, size)]
        fast_local = local_size
        # at another batch size, an epoch of a loop that fixes its iterations is of other images
        if self.compared == [self.common] and not resolved.question.epoch_of_loop:
            fast_local = self._fastest(singles, teams, of_split, team, local_size)
            fast_local = np.where(per_gpu > 1, local_size, fast_local)
        start, index = np.cumsum(n_splits) - n_splits, np.arange(len(of_split))
        is_asked = (np.array(self._numbers)[team] == n) & (per_gpu == 1)
        asked = np.maximum.accumulate(np.where(is_asked, index, 0)) - start[of_split]
        # device by device: all splits at their mini-batch, then at the fastest
        gpu = np.array(list(chain.from_iterable(modes.values())))
        n_rows = 2 * n_splits[gpu]
        first = np.cumsum(n_rows) - n_rows
        device = np.repeat(np.arange(len(gpu)), n_rows)
        row = np.arange(len(device)) - first[device]
        is_fastest = row >= n_splits[gpu][device]
        split = start[gpu][device] + row - n_splits[gpu][device] * is_fastest
        local = np.where(is_fastest, fast_local[split], local_size[split])
        rows = singles.rows(len(local_sizes) * device + np.searchsorted(local_sizes, local))
        rows = rows.with_teams(teams, team[split]).packed(per_gpu[split])
        rows = self._with_anchors(rows, modes, rows, first)
        return GpuAnswers(rows, gpu, first, n_splits[gpu], asked[split], best[split])

    def _fastest(
        self,
        singles: Iterations,
        teams: Sequence[Team | None],
        device: Places,
        team: Places,
        local_size: Places,
    ) -> Places:
        """Images of a GPU at the batch size of the best throughput of each split's GPUs, of those tried."""
        sizes, largest = distinct_values(singles.local_batch_size), singles.devices.largest()
        shared = {n: np.isin(sizes, list(local_sizes.values())) for n, local_sizes in self._shares.items()}
        is_shared = np.array([shared[n] for n in self._numbers])[team]
        most = np.array([most or 0 for most in largest])[device]
        is_tried = (is_shared | (sizes == local_size[:, None])) & (sizes <= most[:, None])
        split, size = np.nonzero(is_tried)
        together = singles.rows(len(sizes) * device[split] + size).with_teams(teams, team[split])
        rates = np.full(is_tried.shape, -np.inf)
        rates[is_tried] = together.local_batch_size / together.times["iteration_time_ms"]
        fastest = fastest_sizes(rates, is_tried)
        return np.where(fastest < 0, local_size, sizes[fastest])

    def _best_of(self, as_asked: Iterations) -> NDArray[np.bool_]:
        """Of each GPU and each batch size tried, whether it is the best; rows are GPU by GPU, with the sizes tried."""
        shape = (-1, len(self.tried))
        images = as_asked.batch_size
        mode, model = as_asked.devices.pairs[0][1], self.resolved.known.model
        iterations = [Iteration(epoch_part.times["iteration_time_ms"]) for epoch_part in as_asked.of_epoch]
        time_s = epoch_times_s(iterations, images, *as_asked.passes, model, mode)
        if self.resolved.question.epoch_of_loop:
            time_s = time_s / images
        return best_of_gpus(time_s.reshape(shape), as_asked.fits.reshape(shape))

    def _with_anchors(
        self, rows: Iterations, modes: Mapping[Training, Sequence[int]], usual: Iterations, first: Places
    ) -> Iterations:
        """Rows in modes without measurements, changed in the ratio in which those in the question's mode change times.

        `modes` are of the devices of `rows`; row `first` of `usual` is the first of each GPU in the question's mode.
        """
        resolved, table = self.resolved, self.table
        lacking = [not resolved.anchors(table, training) for training in modes]
        if not any(lacking) or not resolved.anchors(table, resolved.training):
            return rows
        of_gpus = usual.rows(first[: len(self.gpus)])
        sizes = distinct_values(of_gpus.local_batch_size)
        alone = Iterations.of(resolved, table, [(resolved.training, self.devices)], sizes.tolist(), False)
        at = len(sizes) * of_gpus.device + np.searchsorted(sizes, of_gpus.local_batch_size)
        alone = alone.rows(at).with_teams(usual.teams, of_gpus.team)
        ratio = of_gpus.times["iteration_time_ms"] / alone.times["iteration_time_ms"]
        lacks = np.repeat(lacking, list(map(len, modes.values())))[rows.device]
        gpu = np.array(list(chain.from_iterable(modes.values())))[rows.device]
        beside = np.where(lacks, of_gpus.beside_loader[gpu], rows.beside_loader)
        return replace(rows.scaled(np.where(lacks, ratio[gpu], 1.0)), beside_loader=beside)

    @cached_property
    def machines(self) -> Machines:
        """Every offer of the compared GPUs; a GPU without offers has one machine without an offer."""
        plan, per_node = self.plan, self.resolved.team.per_node
        offered = self.resolved.prices.of_each(per_node, spot=self.resolved.question.spot)
        offers_of_gpus = [offered.get(gpu.name, (None,)) for gpu in self.gpus]
        offers = list(chain(*offers_of_gpus))
        gpu = np.repeat(np.arange(len(self.gpus)), list(map(len, offers_of_gpus)))
        counts = [None if offer is None or plan.trainings == 1 else offer.gpu_count for offer in offers]
        at_once = [1 if count is None else math.floor(count) // per_node for count in counts]
        feed = feed_of_offers(self.resolved, self.table.image_size, offers)
        links = list(map(self._link_of, gpu.tolist(), offers))
        return Machines(gpu, Offers.of(self.resolved, offers, feed), np.array(at_once), links)

    def _link_of(self, gpu_index: int, offer: Offer | None) -> str:
        """What joins several GPUs of an offer, as the question or the offer says, else usually; empty if not known."""
        own = self._own_teams[gpu_index]
        if offer is None or offer.gpu_count < 2 or self.resolved.team.link is not None:
            return "" if own is None else own.link.name
        try:
            return offer.link or usual_link(self.gpus[gpu_index], self.resolved.prices).name
        except SchemaError:
            return ""

    def trainings(self, fast: bool = False) -> Priced:
        """Every split of its GPU that each machine can do, and with `fast` those in the GPU's fastest mode."""
        answers, machines, n_gpus = self.gpu_answers(fast), self.machines, len(self.gpus)
        in_fast_mode = np.full(n_gpus, -1)
        in_fast_mode[answers.gpu[n_gpus:]] = np.arange(n_gpus, len(answers.gpu))
        device_of = np.concatenate([machines.gpu, in_fast_mode[machines.gpu]])
        machine_of = np.tile(np.arange(len(machines.gpu)), 2)[device_of >= 0]
        device_of = device_of[device_of >= 0]
        n_splits = answers.n_splits[device_of]
        index = np.repeat(np.arange(len(device_of)), n_splits)
        split = np.arange(len(index)) - np.repeat(np.cumsum(n_splits) - n_splits, n_splits)
        machine, device, names = machine_of[index], device_of[index], {"": 0}
        rows = answers.first[device] + split
        nodes, offers = self.resolved.question.nodes, machines.offers.offers
        most = np.array([math.inf if offer is None else offer.gpu_count * nodes for offer in offers])
        teams = answers.iterations.teams
        links, of_teams = (
            np.array([names.setdefault(name, len(names)) for name in links])
            for links in (machines.links, ["" if team is None else team.link.name for team in teams])
        )
        joined = of_teams[answers.iterations.team[rows]]
        is_enough = answers.iterations.n_gpus[rows] <= most[machine]
        is_joined = (joined == 0) | ((joined == links[machine]) & is_enough)
        possible = np.flatnonzero(is_joined & self._may_pack(answers.iterations, rows, machine))
        return self.priced(answers, machine[possible], device[possible], split[possible])

    def _may_pack(self, iterations: Iterations, rows: Places, machine: Places) -> NDArray[np.bool_]:
        """Whether as many trainings share a GPU as asked; if that is open, the memory and vCPUs must do for them."""
        per_gpu = iterations.per_gpu[rows]
        per_gpu_of_question = self.resolved.question.per_gpu
        if per_gpu_of_question != "auto":
            return np.equal(per_gpu, per_gpu_of_question)
        offers = self.machines.offers
        counts = np.array([1.0 if offer is None else offer.gpu_count for offer in offers.offers])
        has_vcpus = per_gpu <= (offers.vcpus / counts)[machine]
        is_held: NDArray[np.bool_] = (per_gpu == 1) | (iterations.fits[rows] & has_vcpus)
        return is_held

    def larger(self) -> ComparisonRow | None:
        """The best row of the smallest mini-batch above the common one with which a machine holds the limits.

        None if there is none among those tried, or no common mini-batch.
        """
        if self.common is None:
            return None
        most = min(LARGEST_TRIED, self.resolved.samples or LARGEST_TRIED)
        sizes = [self.common << power for power in range(1, (most // self.common).bit_length())]
        if not sizes:
            return None
        tried = sorted({*self.tried, *sizes})
        larger = replace(self, common=None, compared=sizes, tried=tried, reference=())
        trainings = larger.trainings()
        size, missed = trainings.rows.numbers["batch_size"], trainings.misses_by
        holds = trainings.rows.numbers["fits_in_memory"] & ~np.isnan(trainings.total_usd)
        holds = holds if missed is None else holds & (missed <= 0)
        if not holds.any():
            return None
        is_other = ~holds | (size > size[holds].min())
        costs = trainings.total_usd, trainings.total_h[0]
        order = ranking_order(holds, is_other, missed, *costs, self.plan.rank_by)
        return larger.rows(trainings, order[:1])[0]

    def _rows_on(self, answers: GpuAnswers, machine: Places, places: Places) -> OfferRows:
        """These rows of the answers, each on one of the machines, with what all trials take there: `_TRIALS`.

        As many trials train at a time as GPUs hold together. The last round may have fewer, and fewer on each GPU.
        """
        trials, at_once = self.plan.trainings, self.machines.at_once[machine]
        per_gpu = answers.iterations.per_gpu[places]

        def rows_of(places: Places, trainings: Places) -> OfferRows:
            own = answers.iterations.rows(places)
            return OfferRows.of(own, self.machines.offers, machine, trainings).with_epochs()

        together = np.minimum(trials, at_once * per_gpu)
        rounds, rest = np.divmod(trials, together)
        full = rows_of(places, together)
        last, has_rest = full, rest > 0
        if has_rest.any():
            fewer = places - per_gpu - (-rest // at_once)  # the packs of a split are neighbours
            last = rows_of(np.where(has_rest, fewer, places), np.where(has_rest, rest, together))
        numbers = dict(full.numbers)
        for epoch, start in zip(EPOCH_TIMES, STARTS, strict=True):
            seconds, last_s = (
                self.plan.epochs * rows.numbers[epoch] + np.nan_to_num(rows.numbers[start])
                for rows in (full, last)
            )
            numbers[_TRIALS[epoch]] = rounds * seconds + has_rest * last_s
        for name in (*ENERGIES, *CO2):
            of_all = (trials - rest) * full.numbers[name] + rest * last.numbers[name]
            numbers[_TRIALS[name]] = self.plan.epochs * of_all
        return replace(full, numbers=numbers)

    def priced(self, answers: GpuAnswers, machine: Places, device: Places, split: Places) -> Priced:
        """Trainings on these machines, whose GPUs are at the places `device` of the answers, in these splits."""
        rows = self._rows_on(answers, machine, answers.first[device] + split)
        n_usual = int((device < len(self.gpus)).sum())
        return Priced(self.plan, self.common, self.machines, answers, machine, device, split, rows, n_usual)

    def compiled(self, trainings: Priced, best: int, fast: int) -> Sequence[ComparisonRow]:
        """The best training under torch.compile, then in the GPU's fastest mode, too, at place `fast` (-1: none).

        Empty if it is asked for already, not predicted, or several GPUs train together, or trainings on one GPU, or
        switches are on that are those of eager mode.
        """
        resolved, usual, answers = self.resolved, trainings.rows.iterations, trainings.answers
        stays = resolved.question.capture != "eager" or any(resolved.habits)
        if stays or usual.n_gpus[best] * usual.per_gpu[best] > 1:
            return ()
        device, machine = int(trainings.device[best]), int(trainings.machine[best])
        compiling = replace(resolved.training, capture="compile")
        modes = {compiling: [device]}
        if fast >= 0:
            _, mode = usual.devices.pairs[usual.device[fast]]
            more = {"precision": mode.precision, "memory_format": mode.memory_format}
            modes[replace(compiling, **more)] = [device]
        n, row = len(modes), int(answers.first[device] + trainings.split[best])
        size = int(answers.iterations.local_batch_size[row])
        alone = [(training, training.on_each([self.gpus[device]])) for training in modes]
        try:
            same = Iterations.of(resolved, self.table, alone, [size], shared_by={1: [size]})
        except OutOfRangeError:  # another framework, an older GPU, a method that knows no compiled iterations
            return ()
        same = self._with_anchors(same, modes, answers.iterations, answers.first)
        index, ones, none = np.arange(n), np.ones(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        own = GpuAnswers(same, none, index, ones, none, np.repeat(answers.is_best[row], n))
        return Rows(self._columns(self.priced(own, machine * ones, index, none), index, with_others=False), n)

    def columns(self, trainings: Priced, places: Places, fast: Places) -> Columns:
        """The fields of rows at these places, the first of which are ranked so, as many as `fast` has places.

        These have a rank (None where memory is short), a Pareto front and ratios. `fast`: their trainings in the
        fastest mode of their GPU; -1 where there is none, and the ``fast_`` fields are None.
        """
        n, columns = len(fast), self._columns(trainings, places)
        columns |= _fast_columns(trainings, places, np.pad(fast, (0, len(places) - n), constant_values=-1))
        for gpu in self.reference:
            devices = self.resolved.training.on_each([gpu])
            comparer = replace(self, devices=devices, reference=())
            alone = comparer.trainings()
            best = comparer._columns(alone, alone.ranked(alone.fastest(alone.usual))[:1])
            [time_h], [cost_usd] = best["total_time_h"], best["total_cost_usd"]
            costs_usd = columns["total_cost_usd"]
            columns["speedup"] = [time_h / hours for hours in columns["total_time_h"]]
            columns["cost_ratio"] = [
                usd / cost_usd if usd is not None and cost_usd else None for usd in costs_usd
            ]
        fits = [fit and row < n for row, fit in enumerate(plain(columns["fits_in_memory"]))]
        columns["rank"] = [row + 1 if fit else None for row, fit in enumerate(fits)]
        points = zip(columns["total_time_h"], columns["total_cost_usd"], fits, strict=True)
        columns["pareto"] = pareto_front([(time_h, usd) if fit else None for time_h, usd, fit in points])
        return columns

    def rows(self, trainings: Priced, places: Places) -> list[ComparisonRow]:
        """The rows of these places, without rank."""
        return list(Rows(self._columns(trainings, places), len(places)))

    def _columns(self, priced: Priced, places: Places, with_others: bool = True) -> Columns:
        """The fields of rows at these places, without what compares them, nor, without `with_others`, other splits."""
        n, plan, answers, priced = len(places), self.plan, priced.answers, priced.at(places)
        rows, offers = priced.rows, [self.machines.offers.offers[i] for i in priced.machine.tolist()]
        numbers, limits_h, at_once = rows.numbers, priced.limits_h, self.machines.at_once[priced.machine]
        per_hour, used, missed = numbers["usd_per_hour"], numbers["gpus_used"], priced.misses_by
        first, (time_h, low_h, high_h) = answers.first[priced.device], priced.total_h
        row = first + priced.split
        is_best = answers.is_best[row] | (self.common is None)
        hours, usd, nothing = time_h.tolist(), plain(priced.total_usd), [None] * n
        interrupted = Interruptions.of(plan, self.resolved.question.nodes)
        work_h = _work_h(numbers)[0]
        again = 1.0 if interrupted is None else interrupted.expected_h(work_h, restart_h=0.0) / work_h
        columns = columns_of(rows, is_best) | {
            "gpus_used": (used * np.minimum(-(-plan.trainings // numbers["per_gpu"]), at_once)).tolist(),
            "region": [None if offer is None else offer.region for offer in offers],
            "usd_per_hour": per_hour,
            "vcpus": [None if offer is None else offer.vcpus for offer in offers],
            "data_exceeds": data_exceeded(self.resolved.data_set, offers),
            "cost_low_usd": numbers[EPOCH_TIMES[1]] * per_hour / 3600.0,
            "cost_high_usd": numbers[EPOCH_TIMES[2]] * per_hour / 3600.0,
            "epochs": [plan.epochs] * n,
            "trials": [plan.trainings] * n,
            "total_time_h": hours,
            "total_low_h": low_h.tolist(),
            "total_high_h": high_h.tolist(),
            "total_cost_usd": usd,
            "total_low_usd": rows.billed_usd(low_h),
            "total_high_usd": rows.billed_usd(high_h),
            "within_budget": within(usd, plan.budget_usd),
            "within_deadline": within(hours, plan.deadline_h),
            "chance": chance_within(*limits_h) if limits_h else nothing,
            "misses_by": nothing if missed is None else missed.tolist(),
            "common_batch_size": [self.common] * n,
            **{f"total_{name}": again * numbers[_TRIALS[name]] for name in (*ENERGIES, *CO2)},
            "interruption_h": nothing if interrupted is None else (time_h - plan.setup_h - work_h).tolist(),
            "checkpoint_minutes": nothing if interrupted is None else [60.0 * interrupted.interval_h] * n,
            **dict.fromkeys(("rank", "speedup", "cost_ratio", *_FAST, *_BESIDE), nothing),
            "pareto": [False] * n,
        }
        if not with_others:
            return columns
        beside = np.concatenate([first + answers.asked[row], row + answers.n_splits[priced.device]])
        other_rows = self._rows_on(answers, np.tile(priced.machine, 2), beside)
        on_asked, fastest = other_rows.rows(range(n)), other_rows.numbers
        is_alike = (used == on_asked.numbers["gpus_used"]) | ~on_asked.numbers["fits_in_memory"]
        one_h = _total_h(plan, on_asked)[0]
        gain = np.where(numbers["per_gpu"] > 1, one_h / time_h, math.nan)
        one_h = np.where(is_alike, math.nan, one_h)
        of_fastest = (fastest[name][n:].tolist() for name in ("batch_size", EPOCH_TIMES[0]))
        of_others = gain, one_h, on_asked.billed_usd(one_h), *of_fastest
        return columns | dict(zip(_BESIDE, of_others, strict=True))

    def scope(self, answers: GpuAnswers) -> str:
        """What the answers include and exclude."""
        devices = answers.iterations.devices
        image_size, offers = self.table.image_size, self.machines.offers
        feed = offers.feed or feed_of_offers(self.resolved, image_size, offers.offers, for_words=True)
        columns = devices.words | {"precision": [mode.precision for _, mode in devices.pairs]}
        columns = {name: words[: len(self.gpus)] for name, words in columns.items()}  # as asked
        scope = scope_of(self.resolved, self.resolved.known.model, columns, feed, starts=True)
        uncounted = self.resolved.question.spot and self.plan.interruptions_per_day is None
        return f"{scope} {NOT_COUNTED}" if uncounted else scope


@lru_cache(maxsize=1024)
def _teams_of(link: str, most: int, shares: tuple[int, ...], has_replicas: bool) -> list[Team]:
    """Teams of at most this number of GPUs on this link that divide one of these numbers of images evenly."""
    numbers = (n for n in range(2, most + 1) if any(images % n == 0 for images in shares))
    return [Team(n, 1, find_link(link), has_replicas=has_replicas) for n in numbers]


_TRIALS = {name: f"trials_{name}" for name in (*EPOCH_TIMES, *ENERGIES, *CO2)}
"""By a number of an epoch, that of all epochs and trials; times are of one round after another, with starts."""

_FAST = tuple(column.name for column in fields(ComparisonRow) if column.name.startswith("fast_"))
_NAMES = tuple(column.name for column in fields(ComparisonRow))
_BESIDE = "packing_gain", "one_gpu_time_h", "one_gpu_cost_usd", "fastest_batch_size", "fastest_epoch_time_s"


class Rows(Sequence[ComparisonRow]):
    """The first `n` rows of columns, each of 100 fields, made on first read and kept; `row` has those beyond, too."""

    def __init__(self, columns: Columns, n: int) -> None:
        cells = [plain(columns[name]) for name in _NAMES]
        self.row, self._n = cache(lambda index: ComparisonRow(*[own[index] for own in cells])), n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: Any) -> Any:
        places = range(self._n)[index]
        return list(map(self.row, places)) if isinstance(places, range) else self.row(places)


@dataclass(frozen=True)
class Comparison:
    """Rows, best first; `scope` is a paragraph on what they include and exclude; `verdict` says what to rent.

    `columns` are the fields of the rows.
    """

    columns: Columns
    scope: str
    verdict: Verdict

    @cached_property
    def rows(self) -> list[ComparisonRow]:
        """The rows, made on first read, and kept."""
        return list(Rows(self.columns, len(self.columns["gpu"])))

    def records(self) -> list[dict[str, Any]]:
        """A dict per row."""
        return [{name: getattr(row, name) for name in _NAMES} for row in self.rows]

    def frame(self) -> pd.DataFrame:
        """A data frame; ``attrs["verdict"]`` is the verdict, ``attrs["covers"]`` the scope."""
        frame = frame_of({name: self.columns[name] for name in _NAMES})
        frame.attrs |= {"verdict": self.verdict, "covers": self.scope}
        return frame


def with_trials(plan: Plan, question: Question) -> Plan:
    """The plan of a question whose trainings share GPUs: without trials, of as many as share one."""
    per_gpu = 1 if question.per_gpu == "auto" else int(question.per_gpu)
    if (trials := plan.trials or per_gpu) < per_gpu:
        raise OutOfRangeError(
            f"{named('per_gpu')} {per_gpu} is above {named('trials')} {trials}. Pass at most {trials}, or more "
            f"{named('trials')}."
        ).about("per_gpu")
    return replace(plan, trials=trials)


def compare(question: Question, plan: Plan | None = None) -> Comparison:
    """Time and cost of training one CNN on every GPU, ranked, and which to rent; `plan` is one epoch by default.

    Without `batch_sizes`, all train on mini-batches of one size, the largest power of two up to 256 that fits on most
    GPUs, whatever ranks them; what holds fewer, but 32 images, is shown at the largest power of two that it holds,
    below the others. With several sizes, each offer keeps its fastest. With `gpus` None: every GPU that an offer has
    and that trains in the precision. `samples` or `data_set` is needed. With `n_gpus` 1, an offer of several GPUs is
    judged by as many of them, any number that divides the mini-batch evenly, as train fastest together.

    Rows that hold budget and deadline come first, by cost or time (`plan.rank_by`); then those that miss them, by how
    much; then other mini-batches, and what cannot be rented as asked or does not fit in memory. Cost is the whole
    instance x time. Each GPU keeps its best offer unless `all_offers` is set. Historic offers never appear. vCPUs bound
    the loading of JPEG data sets, unless `loader` is ``none``.

    SchemaError, OutOfRangeError, UnknownCnnError or UnknownGpuError if the question makes no sense.
    """
    plan = plan or Plan()
    if plan.interruptions_per_day is not None and not question.spot:
        raise SchemaError(
            f"{named('interruptions_per_day')} {plan.interruptions_per_day:g} is of spot machines. Pass "
            f"{named('spot')}, too, or leave it out."
        ).about("interruptions_per_day")
    comparer = Comparer.of(ResolvedQuestion.of(question, "compare"), plan)
    trainings = comparer.trainings(fast=True)
    ranked = trainings.ranked(trainings.fastest(trainings.usual))
    ranked = ranked if plan.all_offers else trainings.best_of_gpus(ranked)
    fast, fits = trainings.in_fast_mode(ranked), trainings.rows.numbers["fits_in_memory"]
    best, roles, beside = int(ranked[0]), None, tuple[int, ...]()
    changed, if_fast = int(fast[0]), trainings.ranked(trainings.fastest(trainings.fast))[:1].tolist()
    if fits[best]:
        roles = roles_of(trainings.standing(trainings.usual, best), plan)
        beside = (*roles.positions, *if_fast, *[changed] * (changed >= 0))
    places = list(dict.fromkeys((*ranked.tolist(), *beside)))
    columns = comparer.columns(trainings, np.array(places), fast)
    rows, scope = Rows(columns, len(ranked)), comparer.scope(trainings.answers)
    columns = {
        name: (cells if isinstance(cells, np.ndarray) else list(cells))[: len(rows)]
        for name, cells in columns.items()
    }
    if roles is None:
        return Comparison(columns, scope, does_not_fit(rows))
    row_of = {place: rows.row(places.index(place)) for place in beside}
    changes = Changes(
        fast=row_of.get(changed),
        if_fast=next((row_of[place] for place in if_fast if fits[place]), None),
        compiled=comparer.compiled(trainings, best, changed),
        compile_s=compile_seconds(comparer.table),
        larger=None if rows[0].holds_limits else comparer.larger(),
    )
    return Comparison(columns, scope, verdict_of(rows, comparer.plan, roles, row_of, changes))


def _fast_columns(trainings: Priced, places: Places, fast: Places) -> Columns:
    """What trainings take in their GPUs' fastest mode, at the places `fast`; None where that is -1."""
    iterations, bottlenecks = trainings.rows.iterations, trainings.rows.numbers["bottleneck"][fast].tolist()
    pairs = zip(fast.tolist(), iterations.device[fast].tolist(), strict=True)
    modes = [iterations.devices.pairs[device][1] if place >= 0 else None for place, device in pairs]
    hours, usd = (
        np.where(fast >= 0, values[fast], math.nan) for values in (trainings.total_h[0], trainings.total_usd)
    )
    return {
        "fast_precision": [mode and mode.precision for mode in modes],
        "fast_memory_format": [mode and mode.memory_format for mode in modes],
        "fast_ratio": hours / trainings.total_h[0][places],
        "fast_time_h": hours,
        "fast_cost_usd": usd,
        "fast_bottleneck": [mode and waits for mode, waits in zip(modes, bottlenecks, strict=True)],
    }


def _total_h(plan: Plan, rows: OfferRows) -> list[Array]:
    """Hours of all trials, interruptions and set-up, and the ends of their interval."""
    interrupted = Interruptions.of(plan, rows.iterations.resolved.question.nodes)
    work_h = _work_h(rows.numbers)
    expected = work_h if interrupted is None else list(map(interrupted.expected_h, work_h))
    return [hours + plan.setup_h for hours in expected]


def _work_h(numbers: Mapping[str, Array]) -> list[Array]:
    """Hours of all trials and the ends of their interval, each with its start as far as it is known."""
    return [numbers[_TRIALS[name]] / 3600.0 for name in EPOCH_TIMES]
