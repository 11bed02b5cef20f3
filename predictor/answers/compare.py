"""Which GPU to rent: predictions as time and money for a whole training, ranked, with a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.answers.answer import (
    ENERGIES,
    EPOCH_TIMES,
    Iterations,
    OfferRows,
    Offers,
    best_of_gpus,
    fastest_size,
    iterations_of,
    plain,
    rentals_of,
)
from predictor.answers.knowledge import Knowledge
from predictor.answers.loading import STARTS, data_exceeded, feed_of_offers, loading_asked, loading_in_words
from predictor.answers.options import check_read
from predictor.answers.question import Plan, Question, gpus_of, named
from predictor.answers.ranking import (
    ComparisonRow,
    chance_within,
    misses_by,
    pareto_front,
    place_of,
    ranking_key,
    within,
)
from predictor.answers.scope import scope_of
from predictor.answers.sizes import (
    batch_sizes_to_try,
    common_batch_size,
    compared_batch_size,
    largest_batch_sizes,
)
from predictor.answers.verdict import Compiled, Verdict, verdict_of
from predictor.catalogue.devices import Gpu, device_of, fast_mode_of
from predictor.catalogue.links import find_link, usual_link
from predictor.catalogue.offers import Offer, offers_for
from predictor.checks import MAX_BATCH_SIZE, as_list
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.compiled import compile_seconds
from predictor.models.data_parallel import Team
from predictor.models.epochs import epoch_times_s

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from predictor.cnns.layer_table import LayerTable

    Array = NDArray[np.float64]
    Columns = dict[str, list[Any]]

__all__ = ["Comparison", "ComparisonRow", "Verdict", "compare"]


_SHARED_FROM_H = 1 / 6
"""Hours on one GPU from which several are tried: starting their processes, which no time counts, takes a share."""

_NAMES = tuple(column.name for column in fields(ComparisonRow))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows, best first; `scope` is a paragraph on what they include and exclude; `verdict` says what to rent."""

    rows: list[ComparisonRow]
    scope: str
    verdict: Verdict

    def records(self) -> list[dict[str, Any]]:
        """A dict per row."""
        return [{name: getattr(row, name) for name in _NAMES} for row in self.rows]

    def frame(self) -> pd.DataFrame:
        """A data frame; ``attrs["verdict"]`` is the verdict, ``attrs["covers"]`` the scope."""
        import pandas as pd

        frame = pd.DataFrame(self.records(), columns=_NAMES)
        frame.attrs |= {"verdict": self.verdict, "covers": self.scope}
        return frame


def compare(question: Question, plan: Plan | None = None) -> Comparison:
    """Time and cost of training one CNN on every GPU, ranked, and which to rent.

    Parameters
    ----------
    question : Question
        One CNN. Without `batch_sizes`, GPUs are compared at one size, the largest power of two up to 256 that fits on
        most of them, and those that hold fewer, but 32 images, at the largest power of two that they hold; with
        several, each GPU keeps its best, the smallest within 5 %. With `gpus` None: every
        GPU that an offer has and that trains in the precision. `samples` or `data_set` is needed. With `n_gpus` 1, an
        offer of several GPUs is judged by as many of them as train fastest together on the same mini-batch.
    plan : Plan, optional
        One epoch by default.

    Returns
    -------
    Comparison
        Rows that hold budget and deadline first, ranked by cost; those that miss them by how much; what does not fit
        in memory last. Cost is the whole instance x time. Each GPU keeps its best offer unless `all_offers` is set.
        Historic offers never appear. The vCPUs of an offer bound the loading of JPEG data sets, unless `loader` is
        ``none``.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense.
    """
    check_read(question, "compare")
    plan = plan or Plan()
    comparer = Comparer.of(question, plan)
    question = comparer.question
    usual = comparer.answers(question, [gpu for gpu, _ in question.devices()], question.batch_sizes)
    columns, in_fast = comparer.columns(usual), comparer.in_fast_modes(usual)
    if in_fast:
        columns = _with_fast(columns, in_fast)
    if not plan.all_offers:
        columns = _taken(columns, _best_of_each(columns, plan.rank_by))
    if plan.relative_to is not None:
        columns |= comparer.relative(columns, device_of(plan.relative_to))
    rows = _ranked_rows(columns | {"pareto": _on_front(columns)}, plan.rank_by)
    compiled = comparer.compiled(rows[0], usual)
    fast_rows = _ranked_rows(in_fast, plan.rank_by) if in_fast else []
    return Comparison(rows, comparer.scope(usual), verdict_of(rows, plan, fast_rows, compiled))


@dataclass(frozen=True, slots=True, eq=False)
class GpuAnswers:
    """The answers for GPUs in one mode: rows of `iterations`, whose places the other fields hold by the GPU's name.

    `compared` are those at the compared batch size, on as many GPUs as the question has and then on more that share it;
    `fastest` is that at the batch size of the best throughput. `is_best`: whether the compared batch size is the best.
    """

    iterations: Iterations
    compared: dict[str, list[int]]
    fastest: dict[str, int]
    is_best: dict[str, bool]

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs, in the question's order."""
        return [gpu for gpu, _ in self.iterations.devices]

    def sample_ms(self, gpu: str) -> float:
        """Time of an image at the compared batch size, on as many GPUs as asked for."""
        place = self.compared[gpu][0]
        return float(self.iterations.times["iteration_time_ms"][place] / self.iterations.batch_size[place])


@dataclass(frozen=True, slots=True, eq=False)
class Machines:
    """Every offer of some GPUs, with the GPU's name; one without an offer (None) where a GPU has none.

    Of a plan's trials, `at_once` train on each at the same time.
    """

    gpus: list[str]
    offers: Offers
    at_once: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Comparer:
    """A question about one CNN with its batch sizes and offers.

    Parameters
    ----------
    question : Question
    table : LayerTable
    known : Knowledge
    plan : Plan
    offers : dict of str to tuple of Offer
        By the GPU's name, cheapest first.
    common : int or None
        The batch size at which GPUs are compared if none was given.
    sizes : dict of str to int
        That of each GPU, then.
    teams : dict of str to list of Team
        In which GPUs may share the mini-batch of one.
    other_forms : list of str
        What the question says of other forms of a CNN given by name (`Question.other_forms`).
    """

    question: Question
    table: LayerTable
    known: Knowledge
    plan: Plan
    offers: dict[str, tuple[Offer, ...]]
    common: int | None
    sizes: dict[str, int]
    teams: dict[str, list[Team]]
    other_forms: list[str]

    @classmethod
    def of(cls, question: Question, plan: Plan) -> Comparer:
        """Read the question; SchemaError if it is about several CNNs, or has no epoch."""
        if len(as_list(question.cnn)) != 1:
            raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
        samples, prices = question.epoch_samples(), question.prices()
        if samples is None:
            raise SchemaError(
                f"compare needs the samples of an epoch. Pass {named('samples')}, or a data set such as 'imagenet'."
            ).about("samples")
        known, [table], other_forms = Knowledge.of(question), question.layer_tables(), question.other_forms()
        loading_asked(question)  # refuses options that contradict each other
        question = replace(
            question, cnn=table, offers=prices, gpus=_offered(question, prices),
            model=known.model, measurements=known.own,
        )  # fmt: skip
        devices, n = question.devices(), question.n_gpus
        reference = [] if plan.relative_to is None else gpus_of(plan.relative_to, question.precision)
        every = devices + [(gpu, question.mode_on(gpu)) for gpu in reference]
        common, sizes = None, {}
        if question.batch_sizes is None:
            largest = largest_batch_sizes(question, table, devices)
            common = common_batch_size(largest, samples, n)
            tried = {*batch_sizes_to_try(largest, samples, n), common}
            question = replace(question, batch_sizes=sorted(tried))
            for (gpu, _), most in zip(every, largest_batch_sizes(question, table, every), strict=True):
                sizes[gpu.name] = compared_batch_size(common, most, n)
        question.check_team()
        prices_of: dict[str, list[Offer]] = {}
        for offer in prices:
            prices_of.setdefault(offer.gpu, []).append(offer)
        offers, teams = {}, {}
        for gpu, _ in every:
            own = prices_of.get(gpu.name, [])
            offers[gpu.name] = (
                offers_for(own, gpu.name, question.gpus_per_node, spot=question.spot) if own else ()
            )
            if own and n == plan.trials == 1 and not question.is_whole:
                teams[gpu.name] = _teams(gpu, offers[gpu.name], own)
        return cls(question, table, known, plan, offers, common, sizes, teams, other_forms)

    def answers(
        self, question: Question, gpus: Sequence[Gpu], tried: Sequence[int], *, shared: bool = True
    ) -> GpuAnswers:
        """Answers for GPUs in the mode of a question, at these batch sizes; `shared`: on more of an offer, too."""
        n = question.n_gpus
        rentals = rentals_of(replace(question, batch_sizes=tried), gpus) if n > 1 else []
        own: list[Team | None] = [rental.team for rental in rentals] or [None] * len(gpus)
        larger = {gpu.name: self.teams.get(gpu.name, []) if shared else [] for gpu in gpus}
        parts = {
            part
            for gpu in gpus
            for size in ([self.sizes[gpu.name]] if self.sizes else tried)
            for _, part in self._shares(size, larger[gpu.name])
        }
        local_sizes = sorted({size // n for size in tried} | parts)
        at = {size: place for place, size in enumerate(local_sizes)}
        devices = [(gpu, question.mode_on(gpu)) for gpu in gpus]
        singles = iterations_of(question, Knowledge.of(question), self.table, devices, local_sizes)
        firsts = range(0, len(local_sizes) * len(gpus), len(local_sizes))
        whole = singles.rows([first + at[size // n] for first in firsts for size in tried])
        sizes = self._sizes_of(whole.with_teams([team for team in own for _ in tried]), tried)
        rows: list[int] = []
        teams: list[Team | None] = []
        compared, fastest, is_best = {}, {}, {}
        for first, gpu, team, (size, fast, best) in zip(firsts, gpus, own, sizes, strict=True):
            more = self._shares(size, larger[gpu.name])
            fastest[gpu.name], is_best[gpu.name] = len(rows), best
            compared[gpu.name] = list(range(len(rows) + 1, len(rows) + 2 + len(more)))
            local = [fast // n, size // n, *(part for _, part in more)]
            rows += [first + at[part] for part in local]
            teams += [team, team, *(other for other, _ in more)]
        return GpuAnswers(singles.rows(rows).with_teams(teams), compared, fastest, is_best)

    def _shares(self, size: int, teams: Sequence[Team]) -> list[tuple[Team, int]]:
        """Teams, each with the images of one of its GPUs: a mini-batch of `size` shared.

        Where GPUs are ranked by time and no batch size was given, each GPU may keep a whole mini-batch, too.
        """
        shares = [(team, size // team.n_gpus) for team in teams if size % team.n_gpus == 0]
        if self.common is None or self.plan.rank_by != "time":
            return shares
        most = min(MAX_BATCH_SIZE, self.question.epoch_samples() or 0)
        return shares + [(team, size) for team in teams if size * team.n_gpus <= most]

    def _sizes_of(self, whole: Iterations, tried: Sequence[int]) -> list[tuple[int, int, bool]]:
        """Of each GPU the compared and the fastest batch size, and whether the former is the best of those tried.

        The compared one is the common one, as far as the GPU holds it; else the best, where none fits the one that
        needs least memory. Rows are GPU by GPU, with the sizes tried.
        """
        shape, question = (len(whole.devices), len(tried)), whole.question
        time_ms, sizes = whole.times["iteration_time_ms"], whole.batch_size
        time_s = epoch_times_s(
            time_ms, sizes, question.epoch_samples() or 0, question.validation_samples, self.known.model,
            whole.devices[0][1],
        )  # fmt: skip
        best = best_of_gpus(time_s.reshape(shape), whole.fits.reshape(shape))
        rates = (sizes / time_ms).reshape(shape)
        chosen = []
        for (gpu, _), is_best, rate, most in zip(whole.devices, best, rates, whole.largest, strict=True):
            size = self.sizes.get(gpu.name) or tried[int(is_best.argmax())]
            held = [other for other in tried if other <= (most or 0) * question.n_gpus]
            fast = None if self.common is None else fastest_size(tried, rate, held)
            chosen.append((size, fast or size, bool(is_best[list(tried).index(size)])))
        return chosen

    def scope(self, answers: GpuAnswers) -> str:
        """What the answers include and exclude."""
        precisions = [mode.precision for _, mode in answers.iterations.devices]
        loading = loading_in_words(self.question, self.table.image_size, by_offer=True)
        columns = answers.iterations.words | {"precision": precisions}
        scope = scope_of(self.question, self.known.model, columns, loading)
        return " ".join([scope, *self.other_forms])

    def in_fast_modes(self, usual: GpuAnswers) -> Columns:
        """Columns in the fastest common mode of each GPU at the compared sizes; none if a precision was given."""
        question = self.question
        if question.precision is not None or question.is_whole:
            return {}
        gpus: dict[tuple[str, str], list[Gpu]] = {}
        for gpu in usual.gpus:
            mode = fast_mode_of(gpu, question.framework, question.memory_format or "nchw")
            if mode is not None:
                gpus.setdefault(mode, []).append(gpu)
        columns: Columns = {}
        for (precision, memory_format), some in gpus.items():
            fast = question.in_mode(some, precision, memory_format)
            for name, values in self.columns(self.in_another_mode(fast, some, usual)).items():
                columns[name] = columns.get(name, []) + values
        return columns

    def in_another_mode(
        self, question: Question, gpus: Sequence[Gpu], usual: GpuAnswers, *, shared: bool = True
    ) -> GpuAnswers:
        """Answers in another mode than the question's, corrected by the CNN's measurements in that mode.

        Where there are none, by those in the question's mode: they change the times of both modes in the same ratio.
        """
        tried = sorted(set(self.sizes.values())) or question.batch_sizes
        question = replace(question, anchors=())  # which are of the mode asked for
        own = self.known.own
        answers = self.answers(question, gpus, tried, shared=shared)
        if (own and own.anchors(self.table, question)) or not self.known.anchors(self.table, self.question):
            return answers
        unanchored = replace(self.question, anchors=(), measurements=own.without_cnns() if own else None)
        before = self.answers(unanchored, gpus, tried, shared=False)
        factors = np.array([usual.sample_ms(gpu.name) / before.sample_ms(gpu.name) for gpu in gpus])
        scaled = answers.iterations.scaled(factors[answers.iterations.device])
        return replace(answers, iterations=replace(scaled, beside_loader=usual.iterations.beside_loader))

    def compiled(self, best: ComparisonRow, usual: GpuAnswers) -> Compiled | None:
        """A row under torch.compile; None if it is asked for already, not predicted, or several GPUs train together."""
        if self.question.capture != "eager" or best.link is not None:
            return None
        question, gpu = replace(self.question, capture="compile"), device_of(best.gpu)
        fast_format = best.fast_memory_format or question.memory_format or "nchw"

        def row_in(mode: Question) -> ComparisonRow:
            rows = _rows(self.columns(self.in_another_mode(mode, [gpu], usual, shared=False)))
            return next(row for row in rows if place_of(row) == place_of(best))

        try:
            rows = (
                row_in(question),
                row_in(question.in_mode([gpu], best.fast_precision, fast_format))
                if best.fast_precision is not None
                else None,
            )
        except OutOfRangeError:  # another framework, an older GPU, a method that knows no compiled iterations
            return None
        return Compiled(*rows, compile_seconds(self.table))

    def relative(self, columns: Columns, gpu: Gpu) -> Columns:
        """The columns of how much faster and dearer each row is than the best of one GPU."""
        answers = self.answers(self.question, [gpu], self.question.batch_sizes)
        known = self.columns(answers)
        [best] = _best_of_each(known, self.plan.rank_by)
        time_h, cost_usd = known["total_time_h"][best], known["total_cost_usd"][best]
        return {
            "speedup": [time_h / hours for hours in columns["total_time_h"]],
            "cost_ratio": [
                None if usd is None or not cost_usd else usd / cost_usd for usd in columns["total_cost_usd"]
            ],
        }

    def machines(self, gpus: Sequence[Gpu]) -> Machines:
        """Every offer of some GPUs; one without an offer where a GPU has none."""
        plan, question = self.plan, self.question
        rented = [(gpu.name, offer) for gpu in gpus for offer in self.offers.get(gpu.name) or (None,)]
        offers = [offer for _, offer in rented]
        n = question.gpus_per_node
        at_once = [
            1 if offer is None or plan.trials == 1 else math.floor(offer.gpu_count) // n for offer in offers
        ]
        feed = feed_of_offers(question, self.table.image_size, offers)
        return Machines([gpu for gpu, _ in rented], Offers.of(question, offers, feed), np.array(at_once))

    def rows_on(
        self, machines: Machines, answers: GpuAnswers, machine: NDArray[np.int64], places: Sequence[int]
    ) -> OfferRows:
        """These rows of the answers, each on one of the machines."""
        trainings = np.minimum(self.plan.trials, machines.at_once)[machine]
        return OfferRows.of(
            answers.iterations.rows(places), machines.offers, machine, trainings
        ).with_epochs()

    def best_on(self, machines: Machines, answers: GpuAnswers, one_h: Array) -> OfferRows:
        """A row for each machine: as many of its GPUs as train fastest; one where `one_h`, its hours, are minutes."""
        n_gpus, nodes = answers.iterations.n_gpus, self.question.nodes
        most = [math.inf if offer is None else offer.gpu_count * nodes for offer in machines.offers.offers]
        firsts = [answers.compared[gpu][0] for gpu in machines.gpus]
        shares = one_h >= _SHARED_FROM_H
        usable = [
            (machine, place)
            for machine, gpu in enumerate(machines.gpus)
            for place in (answers.compared[gpu] if shares[machine] else firsts[machine : machine + 1])
            if n_gpus[place] <= most[machine]
        ]
        machine, places = np.array(usable, dtype=np.int64).T
        rows = self.rows_on(machines, answers, machine, places)
        misfits = ~rows.numbers["fits_in_memory"]
        order = np.lexsort((rows.numbers["epoch_time_s"], misfits, machine))
        return rows.rows(order[np.unique(machine[order], return_index=True)[1]])

    def columns(self, answers: GpuAnswers) -> Columns:
        """The fields of rows but rank and front: each GPU on each of its offers."""
        plan, question, machines = self.plan, self.question, self.machines(answers.gpus)
        offers, every = machines.offers.offers, np.arange(len(machines.gpus))
        one, fastest = (
            self.rows_on(machines, answers, every, places)
            for places in (
                [answers.compared[gpu][0] for gpu in machines.gpus],
                [answers.fastest[gpu] for gpu in machines.gpus],
            )
        )
        one_h = self.total_h(machines, one.numbers)[0]
        rows = self.best_on(machines, answers, one_h)
        numbers, per_hour = rows.numbers, machines.offers.usd_per_hour
        time_h, low_h, high_h = self.total_h(machines, numbers)
        is_one = numbers["gpus_used"] == one.numbers["gpus_used"]
        one_h = np.where(is_one, math.nan, one_h)
        working = numbers["gpus_used"] * np.minimum(plan.trials, machines.at_once)
        n, data_set = len(offers), question.training_set()
        hours, usd = time_h.tolist(), plain(time_h * per_hour)
        nothing = [None] * n
        return rows.columns([answers.is_best[gpu] for gpu in machines.gpus]) | {
            "gpus_used": working.tolist(),
            "region": [None if offer is None else offer.region for offer in offers],
            "usd_per_hour": plain(per_hour),
            "vcpus": [None if offer is None else offer.vcpus for offer in offers],
            "data_exceeds": [data_exceeded(data_set, offer) for offer in offers],
            "one_gpu_time_h": plain(one_h),
            "one_gpu_cost_usd": plain(one_h * per_hour),
            "cost_low_usd": plain(numbers[EPOCH_TIMES[1]] * per_hour / 3600.0),
            "cost_high_usd": plain(numbers[EPOCH_TIMES[2]] * per_hour / 3600.0),
            "epochs": [plan.epochs] * n,
            "trials": [plan.trials] * n,
            "total_time_h": hours,
            "total_low_h": low_h.tolist(),
            "total_high_h": high_h.tolist(),
            "total_cost_usd": usd,
            "total_low_usd": plain(low_h * per_hour),
            "total_high_usd": plain(high_h * per_hour),
            "within_budget": [within(cost, plan.budget_usd) for cost in usd],
            "within_deadline": [within(time, plan.deadline_h) for time in hours],
            "chance": [
                _chance(plan, *row)
                for row in zip(plain(per_hour), hours, low_h.tolist(), high_h.tolist(), strict=True)
            ],
            "misses_by": [misses_by(plan, *both) for both in zip(hours, usd, strict=True)],
            "common_batch_size": [self.common] * n,
            "fastest_batch_size": fastest.numbers["batch_size"].tolist(),
            "fastest_epoch_time_s": fastest.numbers[EPOCH_TIMES[0]].tolist(),
            **{f"total_{name}": plain(plan.trials * plan.epochs * numbers[name]) for name in ENERGIES},
            **dict.fromkeys(("rank", "speedup", "cost_ratio", *_FAST), nothing),
            "pareto": [False] * n,
        }

    def total_h(self, machines: Machines, numbers: Mapping[str, Array]) -> list[Array]:
        """Hours of all trials and the ends of their interval, each with its start as far as it is known, and set-up.

        As many trials train at a time as have GPUs.
        """
        plan, rounds = self.plan, -(-self.plan.trials // machines.at_once)
        trained_s = [
            plan.epochs * numbers[epoch] + np.nan_to_num(numbers[start])
            for epoch, start in zip(EPOCH_TIMES, STARTS, strict=True)
        ]
        return [rounds * seconds / 3600.0 + plan.setup_h for seconds in trained_s]


_FAST = (
    "fast_precision",
    "fast_memory_format",
    "fast_ratio",
    "fast_time_h",
    "fast_cost_usd",
    "fast_bottleneck",
)


def _chance(
    plan: Plan, usd_per_hour: float | None, time_h: float, low_h: float, high_h: float
) -> float | None:
    """Probability that budget and deadline both hold: the cost is time x price, so the tighter one decides."""
    limits_h = [] if plan.deadline_h is None else [plan.deadline_h]
    if plan.budget_usd is not None:
        if usd_per_hour is None:
            return None
        limits_h.append(plan.budget_usd / usd_per_hour)
    if not limits_h:
        return None
    return chance_within(*(hours - plan.setup_h for hours in (min(limits_h), time_h, low_h, high_h)))


def _with_fast(columns: Columns, fast: Columns) -> Columns:
    """With what the same GPUs and offers take in their fastest mode; None where they have none."""
    of_gpu: dict[str, list[tuple[Any, ...]]] = {}
    names = ("precision", "memory_format", "total_time_h", "total_cost_usd", "bottleneck")
    for gpu, *values in zip(fast["gpu"], *(fast[name] for name in names), strict=True):
        of_gpu.setdefault(gpu, []).append(tuple(values))
    rows: list[tuple[Any, ...]] = []
    for gpu, usual_h in zip(columns["gpu"], columns["total_time_h"], strict=True):  # offers in the same order
        if gpu in of_gpu:
            precision, memory_format, time_h, usd, bottleneck = of_gpu[gpu].pop(0)
            rows.append((precision, memory_format, time_h / usual_h, time_h, usd, bottleneck))
        else:
            rows.append((None,) * len(_FAST))
    return columns | dict(zip(_FAST, map(list, zip(*rows, strict=True)), strict=True))


def _keys(columns: Columns, rank_by: str) -> list[tuple[float, ...]]:
    names = ("fits_in_memory", "misses_by", "total_cost_usd", "total_time_h")
    values = zip(*(columns[name] for name in names), strict=True)
    return [ranking_key(fits, missed, usd, hours, rank_by) for fits, missed, usd, hours in values]


def _best_of_each(columns: Columns, rank_by: str) -> list[int]:
    """The place of each GPU's row that ranks first."""
    best: dict[str, tuple[tuple[float, ...], int]] = {}
    for place, (gpu, key) in enumerate(zip(columns["gpu"], _keys(columns, rank_by), strict=True)):
        best[gpu] = min(best.get(gpu, (key, place)), (key, place))
    return [place for _, place in best.values()]


def _taken(columns: Columns, places: Sequence[int]) -> Columns:
    return {name: [values[place] for place in places] for name, values in columns.items()}


def _on_front(columns: Columns) -> list[bool]:
    """Whether each row is on the front of time and cost among those that fit and have a price."""
    points = list(zip(columns["total_time_h"], columns["total_cost_usd"], strict=True))
    known = [
        place
        for place, (fits, (_, usd)) in enumerate(zip(columns["fits_in_memory"], points, strict=True))
        if fits and usd is not None
    ]
    front = dict(zip(known, pareto_front([points[place] for place in known]), strict=True))
    return [front.get(place, False) for place in range(len(points))]


def _ranked_rows(columns: Columns, rank_by: str) -> list[ComparisonRow]:
    """Rows in the order of `ranking_key`; what fits is numbered."""
    keys = _keys(columns, rank_by)
    ordered = _taken(columns, sorted(range(len(keys)), key=keys.__getitem__))
    return _rows(
        ordered | {"rank": [i + 1 if fits else None for i, fits in enumerate(ordered["fits_in_memory"])]}
    )


def _rows(columns: Columns) -> list[ComparisonRow]:
    names = [column.name for column in fields(ComparisonRow)]
    return [ComparisonRow(*row) for row in zip(*(columns[name] for name in names), strict=True)]


def _offered(question: Question, prices: Sequence[Offer]) -> object:
    """The GPUs asked for; by default those of today's offers that have the precision, in the catalogue's order."""
    if question.gpus is not None:
        return question.gpus
    n = question.gpus_per_node
    offered = {offer.gpu for offer in prices if not offer.historic and (n == 1 or offer.gpu_count >= n)}
    return [gpu for gpu in gpus_of("all", question.precision, question.capture) if gpu.name in offered]


def _teams(gpu: Gpu, offers: Sequence[Offer], prices: Sequence[Offer]) -> list[Team]:
    """Teams in which GPUs may share the mini-batch of one: of powers of two, and of all GPUs of an offer.

    None where it is not known what joins them: one GPU of an offer is taken to work, then.
    """
    try:
        usual = usual_link(gpu, prices)
    except SchemaError:
        return []
    counts = {int(offer.gpu_count) for offer in offers}
    numbers = counts | {2**i for i in range(1, max(counts, default=1).bit_length())}
    teams = []
    for n in sorted(numbers - {1}):
        cheapest = next(offer for offer in offers if offer.gpu_count >= n)
        teams.append(Team(n, 1, find_link(cheapest.link, "gpu") if cheapest.link else usual))
    return teams
