"""What a comparison asks of each GPU: which batch sizes, how many GPUs together, in which modes; as iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from predictor.answers.grid import Iterations
from predictor.answers.offers import rentals_of
from predictor.answers.question import MiniBatch, Plan, named
from predictor.answers.resolved import Device, ResolvedQuestion, Training
from predictor.answers.sizes import (
    batch_sizes_to_try,
    best_of_gpus,
    common_batch_size,
    compared_batch_sizes,
    fastest_sizes,
    largest_local_batch_sizes,
)
from predictor.catalogue.devices import Gpu
from predictor.catalogue.links import Link, find_link, usual_link
from predictor.catalogue.offers import Offer, offers_of_each
from predictor.checks import MAX_BATCH_SIZE, as_list
from predictor.errors import SchemaError
from predictor.models.data_parallel import Team
from predictor.models.epochs import epoch_times_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from predictor.cnns.layer_table import LayerTable

    Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class GpuAnswers:
    """The iterations of some devices that are compared, device by device.

    Of each device they begin at row `first`: those at the compared batch size, on as many GPUs as the question has and
    then on more that share it, `n_ways` in all; then as many at the batch size of the best throughput of the same GPUs.
    `is_best`: whether the compared batch size is the best.
    """

    iterations: Iterations
    first: Places
    n_ways: Places
    is_best: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ComparedGpus:
    """The devices that a question about one CNN compares, as asked, and the batch sizes at which it does.

    `common` is the batch size at which GPUs are compared if none was given, `tried` those of the question, or those
    that are searched. `may_share`: several GPUs of an offer may share the mini-batch of one.
    """

    resolved: ResolvedQuestion
    plan: Plan
    devices: list[Device]
    common: int | None
    tried: list[int]
    may_share: bool

    @classmethod
    def of(cls, resolved: ResolvedQuestion, plan: Plan, may_share: bool) -> ComparedGpus:
        """Read the question; SchemaError if it is about several CNNs, or has no epoch."""
        question, samples = resolved.question, resolved.samples
        if len(as_list(question.cnn)) > 1:
            raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
        if samples is None:
            raise SchemaError(
                f"a training's cost needs the samples of an epoch. Pass {named('samples')}, or a data set such as "
                "'imagenet'."
            ).about("samples")
        _ = resolved.known, resolved.loading  # refuse what contradicts itself before anything is searched
        [table] = resolved.tables
        common, tried = None, question.batch_sizes
        if tried is None:
            shares = question.n_gpus * question.parts
            largest = _largest(resolved, table, resolved.devices)
            common = common_batch_size(largest, samples, shares)
            tried = sorted({*batch_sizes_to_try(largest, samples, shares), common})
        resolved.local_sizes(tried)
        return cls(resolved, plan, resolved.devices, common, tried, may_share)

    @property
    def table(self) -> LayerTable:
        """The CNN."""
        return self.resolved.tables[0]

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs compared."""
        return [gpu for gpu, _ in self.devices]

    @cached_property
    def _offers(self) -> dict[str, tuple[Offer, ...]]:
        question = self.resolved.question
        return offers_of_each(self.resolved.prices, question.team.per_node, spot=question.spot)

    def offers_of(self, gpu: Gpu) -> tuple[Offer, ...]:
        """Offers of a GPU with enough of them, cheapest first."""
        return self._offers.get(gpu.name, ())

    @cached_property
    def _compared_sizes(self) -> list[int] | None:
        """The batch size at which each GPU is compared; None where they were given."""
        if self.common is None:
            return None
        shares = self.resolved.question.n_gpus * self.resolved.question.parts
        largest = _largest(self.resolved, self.table, self.devices)
        return compared_batch_sizes(self.common, largest, shares)

    @cached_property
    def _teams(self) -> list[list[Team]]:
        """Teams in which each GPU may share the mini-batch of one: of powers of two, and of all GPUs of an offer.

        None where it is not known what joins them: one GPU of an offer is taken to work, then.
        """
        question = self.resolved.question
        if not self.may_share or question.n_gpus > 1 or self.plan.trials > 1 or question.is_whole:
            return [[]] * len(self.gpus)
        prices_of: dict[str, list[Offer]] = {}
        for offer in self.resolved.prices:
            prices_of.setdefault(offer.gpu, []).append(offer)
        links: dict[str, Link] = {}
        return [
            _teams_of(gpu, self.offers_of(gpu), prices_of[gpu.name], links) if gpu.name in prices_of else []
            for gpu in self.gpus
        ]

    @cached_property
    def _shares(self) -> dict[int, dict[int, int]]:
        """By a number of GPUs, the images of one of them at each batch size tried that they share evenly."""
        numbers = {team.n_gpus for teams in self._teams for team in teams} | {self.resolved.question.n_gpus}
        return {n: MiniBatch.even(self.tried, n, self.resolved.question.parts) for n in numbers}

    def _ways(self, place: int, size: int) -> list[tuple[Team, int]]:
        """Teams of a GPU, each with the images of one of its GPUs: a mini-batch of `size` shared.

        Where GPUs are ranked by time and no batch size was given, each GPU may keep a whole mini-batch, too.
        """
        teams = self._teams[place]
        ways = [(team, self._shares[team.n_gpus].get(size)) for team in teams]
        if self.common is not None and self.plan.rank_by == "time":
            most = min(MAX_BATCH_SIZE, self.resolved.samples or 0)
            ways += [(team, size) for team in teams if size * team.n_gpus <= most]
        return [(team, part) for team, part in ways if part is not None]

    def answers(self) -> GpuAnswers:
        """The iterations of the GPUs as asked."""
        resolved, gpus, tried, n = self.resolved, self.gpus, self.tried, self.resolved.question.n_gpus
        own = [rental.team for rental in rentals_of(resolved, gpus)] if n > 1 else [None] * len(gpus)
        asked_sizes = self._compared_sizes
        parts = {
            part
            for place in range(len(gpus))
            for size in (tried if asked_sizes is None else [asked_sizes[place]])
            for _, part in self._ways(place, size)
        }
        own_share = self._shares[n]
        tried_parts = [own_share[size] for size in tried]
        local_sizes = sorted({*tried_parts, *parts})
        at = {size: place for place, size in enumerate(local_sizes)}
        singles = Iterations.of(resolved, self.table, [(resolved.training, self.devices)], local_sizes)
        teams: list[Team | None] = list(
            dict.fromkeys([None, *own, *(t for some in self._teams for t in some)])
        )
        team_at = {team: place for place, team in enumerate(teams)}
        firsts = len(local_sizes) * np.arange(len(gpus), dtype=np.int64)
        tried_at = np.array([at[part] for part in tried_parts], dtype=np.int64)
        whole = singles.rows((firsts[:, None] + tried_at).ravel())
        whole = whole.with_teams(teams, np.repeat([team_at[team] for team in own], len(tried)))
        sizes, fast, is_best = self._sizes_of(whole)
        ways = [[(own[place], own_share[size]), *self._ways(place, size)] for place, size in enumerate(sizes)]
        n_ways = np.array([len(some) for some in ways])
        device = np.repeat(np.arange(len(gpus)), n_ways)
        team = np.array([team_at[each] for some in ways for each, _ in some])
        part = np.array([part for some in ways for _, part in some])
        fast_part = part.copy()
        if self.common is not None:
            fast_part = self._fastest_parts(singles, local_sizes, device, teams, team, part)
        first = 2 * np.concatenate([[0], np.cumsum(n_ways)[:-1]])
        fast_part[first // 2] = [own_share[size] for size in fast]
        # device by device: all ways at the compared batch size, then at the fastest
        order = np.lexsort(
            (np.tile(np.arange(len(part)), 2), np.repeat([0, 1], len(part)), np.tile(device, 2))
        )
        local = np.concatenate([part, fast_part])[order]
        rows = singles.rows(firsts[np.tile(device, 2)[order]] + np.searchsorted(local_sizes, local))
        return GpuAnswers(rows.with_teams(teams, np.tile(team, 2)[order]), first, n_ways, is_best)

    def _sizes_of(self, whole: Iterations) -> tuple[list[int], list[int], NDArray[np.bool_]]:
        """Of each GPU the compared and the fastest batch size, and whether the former is the best of those tried.

        The compared one is the common one, as far as the GPU holds it; else the best, where none fits the one that
        needs least memory. Rows are GPU by GPU, with the sizes tried.
        """
        shape, resolved, tried = (
            (len(whole.devices.each), len(self.tried)),
            self.resolved,
            np.array(self.tried),
        )
        time_ms, images = whole.times["iteration_time_ms"], whole.batch_size
        time_s = epoch_times_s(
            time_ms, images, resolved.samples or 0, resolved.question.validation_samples, resolved.known.model,
            whole.devices.each[0][1],
        )  # fmt: skip
        best = best_of_gpus(time_s.reshape(shape), whole.fits.reshape(shape))
        place = best.argmax(axis=1)
        if self._compared_sizes is not None:
            place = np.searchsorted(tried, self._compared_sizes)
        fast = place
        if self.common is not None:
            most = np.array([size or 0 for size in whole.devices.largest]) * resolved.question.n_gpus
            fast = fastest_sizes((images / time_ms).reshape(shape), tried <= most[:, None])
            fast = np.where(fast < 0, place, fast)
        return tried[place].tolist(), tried[fast].tolist(), best[np.arange(len(place)), place]

    def _fastest_parts(
        self,
        singles: Iterations,
        local_sizes: Sequence[int],
        device: Places,
        teams: Sequence[Team | None],
        team: Places,
        part: Places,
    ) -> Places:
        """For each way, the images of one of its GPUs at the batch size of the best throughput."""
        n, sizes = len(local_sizes), np.array(local_sizes)
        places = (n * device[:, None] + np.arange(n)).ravel()
        together = singles.rows(places).with_teams(teams, np.repeat(team, n))
        rates = (together.local_batch_size / together.times["iteration_time_ms"]).reshape(-1, n)
        shared = [[] if each is None else list(self._shares[each.n_gpus].values()) for each in teams]
        is_shared = np.array([np.isin(sizes, some) for some in shared])[team] | (sizes == part[:, None])
        most = np.array([size or 0 for size in singles.devices.largest])[device]
        fast = fastest_sizes(rates, is_shared & (sizes <= most[:, None]))
        return np.where(fast < 0, part, sizes[fast])

    def in_modes(self, usual: GpuAnswers, modes: Sequence[tuple[Training, Sequence[int]]]) -> GpuAnswers:
        """The same rows of some GPUs, given by their places, in other modes than the question's.

        Measurements in such a mode correct it. Where there are none, those in the question's mode do: they change the
        times of both modes in the same ratio.
        """
        places = np.array([place for _, some in modes for place in some])
        first, n_ways = usual.first[places], usual.n_ways[places]
        new_first = 2 * np.concatenate([[0], np.cumsum(n_ways)[:-1]])
        rows = np.concatenate(
            [np.arange(start, start + 2 * n) for start, n in zip(first, n_ways, strict=True)]
        )
        found = self._same_rows(usual, modes, rows, 2 * n_ways)
        answers = GpuAnswers(found, new_first, n_ways, usual.is_best[places])
        resolved, table = self.resolved, self.table
        others = [
            unknown
            for training, some in modes
            for unknown in [not resolved.anchors(table, training)] * len(some)
        ]
        if not any(others) or not resolved.anchors(table, resolved.training):
            return answers
        gpus = [(resolved.training, places.tolist())]
        before = self._same_rows(usual, gpus, first, np.ones_like(first), anchored=False)
        ratio = usual.iterations.times["iteration_time_ms"][first] / before.times["iteration_time_ms"]
        factor = np.repeat(np.where(others, ratio, 1.0), 2 * n_ways)
        scaled = found.scaled(factor)
        beside = np.where(
            np.repeat(others, 2 * n_ways), usual.iterations.beside_loader[rows], found.beside_loader
        )
        return replace(answers, iterations=replace(scaled, beside_loader=beside))

    def _same_rows(
        self,
        usual: GpuAnswers,
        modes: Sequence[tuple[Training, Sequence[int]]],
        rows: Places,
        n_rows: Places,
        anchored: bool = True,
    ) -> Iterations:
        """These rows of the usual iterations, `n_rows` of each device of the modes, as these modes have them."""
        local = usual.iterations.local_batch_size[rows]
        local_sizes = np.unique(local)
        trainings = [
            (training, training.on_each([self.gpus[place] for place in places])) for training, places in modes
        ]
        singles = Iterations.of(self.resolved, self.table, trainings, local_sizes.tolist(), anchored)
        device = np.repeat(np.arange(len(n_rows)), n_rows)
        same = singles.rows(device * len(local_sizes) + np.searchsorted(local_sizes, local))
        return same.with_teams(usual.iterations.teams, usual.iterations.team[rows])


def _largest(resolved: ResolvedQuestion, table: LayerTable, devices: Sequence[Device]) -> list[int | None]:
    """The largest batch size that as many of each GPU hold as train together."""
    largest = largest_local_batch_sizes(table, devices)
    return [None if size is None else size * resolved.question.n_gpus for size in largest]


def _teams_of(
    gpu: Gpu, offers: Sequence[Offer], prices: Sequence[Offer], links: dict[str, Link]
) -> list[Team]:
    """Teams of a GPU; `links` keeps those that offers name."""
    try:
        usual = usual_link(gpu, prices)
    except SchemaError:
        return []
    counts = {int(offer.gpu_count) for offer in offers}
    numbers = counts | {2**i for i in range(1, max(counts, default=1).bit_length())}
    teams = []
    for n in sorted(numbers - {1}):
        name = next(offer for offer in offers if offer.gpu_count >= n).link
        if name and name not in links:
            links[name] = find_link(name, "gpu")
        teams.append(Team(n, 1, links.get(name, usual)))
    return teams
