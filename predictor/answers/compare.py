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
    NEAR_BEST,
    Iterations,
    OfferRows,
    Offers,
    best_of_gpus,
    iterations_of,
    plain,
    rentals_of,
)
from predictor.answers.knowledge import Knowledge
from predictor.answers.loading import STARTS, data_exceeded, feed_of_offers, loading_asked, loading_in_words
from predictor.answers.question import Plan, Question, gpus_of
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
from predictor.checks import as_list
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

    `compared` are those at the compared batch size, as asked for and then by the number of GPUs that share it; `fastest` is that at
    the batch size of the best throughput. `is_best`: whether the compared batch size is the best of those tried.
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
    offers : dict of str to list of Offer
        By the GPU's name, cheapest first.
    common : int or None
        The batch size at which GPUs are compared if none was given.
    sizes : dict of str to int
        That of each GPU, then.
    teams : dict of str to list of Team
        In which GPUs may share the mini-batch of one.
    """

    question: Question
    table: LayerTable
    known: Knowledge
    plan: Plan
    offers: dict[str, list[Offer]]
    common: int | None
    sizes: dict[str, int]
    teams: dict[str, list[Team]]

    @classmethod
    def of(cls, question: Question, plan: Plan) -> Comparer:
        """Read the question; SchemaError if it is about several CNNs, or has no epoch."""
        if len(as_list(question.cnn)) != 1:
            raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
        samples, prices = question.epoch_samples(), question.prices()
        if samples is None:
            raise SchemaError(
                "compare needs the samples of an epoch. Pass samples, or a data set such as 'imagenet'."
            )
        known, [table] = Knowledge.of(question), question.layer_tables()
        loading_asked(question)  # refuses options that contradict each other
        question = replace(
            question, cnn=table, offers=prices, gpus=_offered(question, prices),
            model=known.model, measurements=known.own,
        )  # fmt: skip
        devices = question.devices()
        common, sizes, n = None, {}, question.n_gpus
        if question.batch_sizes is None:
            largest = largest_batch_sizes(question, table, devices)
            common = common_batch_size(largest, samples, n)
            tried = {*batch_sizes_to_try(largest, samples, n), common}
            question = replace(question, batch_sizes=sorted(tried))
            others = [] if plan.relative_to is None else gpus_of(plan.relative_to, question.precision)
            more = [(gpu, question.mode_on(gpu)) for gpu in others]
            for (gpu, _), most in zip(
                [*devices, *more], [*largest, *largest_batch_sizes(question, table, more)], strict=True
            ):
                sizes[gpu.name] = compared_batch_size(common, most, n)
        question.check_team()
        of_gpu: dict[str, list[Offer]] = {}
        for offer in prices:
            of_gpu.setdefault(offer.gpu, []).append(offer)
        names = [gpu.name for gpu, _ in devices] + (
            [device_of(plan.relative_to).name] if plan.relative_to else []
        )
        offers = {
            name: list(offers_for(of_gpu[name], name, question.gpus_per_node, spot=question.spot))
            for name in names
            if name in of_gpu
        }
        one_by_one = n > 1 or plan.trials > 1 or question.is_whole
        teams = {
            name: _teams(device_of(name), some, of_gpu[name])
            for name, some in offers.items()
            if not one_by_one
        }
        return cls(question, table, known, plan, offers, common, sizes, teams)

    def answers(
        self, question: Question, gpus: Sequence[Gpu], tried: Sequence[int], *, shared: bool = True
    ) -> GpuAnswers:
        """Answers for GPUs in the mode of a question, at these batch sizes; `shared`: together with others, too."""
        n = question.n_gpus
        devices = [(gpu, question.mode_on(gpu)) for gpu in gpus]
        rentals = rentals_of(replace(question, batch_sizes=tried), gpus) if n > 1 else []
        own: list[Team | None] = [rental.team for rental in rentals] or [None] * len(gpus)
        others = {gpu.name: self.teams.get(gpu.name, []) if shared else [] for gpu in gpus}
        parts = {
            size // team.n_gpus
            for gpu in gpus
            for team in others[gpu.name]
            for size in ([self.sizes[gpu.name]] if self.sizes else tried)
            if size % team.n_gpus == 0
        }
        local_sizes = sorted({size // n for size in tried} | parts)
        at = {size: place for place, size in enumerate(local_sizes)}
        singles = iterations_of(question, Knowledge.of(question), self.table, devices, local_sizes)
        firsts = len(local_sizes) * np.arange(len(gpus))
        whole = singles.rows((firsts[:, None] + [at[size // n] for size in tried]).ravel())
        whole = whole.with_teams([team for team in own for _ in tried])
        rows: list[int] = []
        teams: list[Team | None] = []
        compared, fastest, is_best = {}, {}, {}
        for first, gpu, team, (size, fast, best) in zip(
            firsts.tolist(), gpus, own, self._sizes_of(whole, tried), strict=True
        ):
            shares = [each for each in others[gpu.name] if size % each.n_gpus == 0]
            fastest[gpu.name], is_best[gpu.name] = len(rows), best
            compared[gpu.name] = list(range(len(rows) + 1, len(rows) + 2 + len(shares)))
            parted = [size // each.n_gpus for each in shares]
            rows += [first + at[local] for local in (fast // n, size // n, *parted)]
            teams += [team, team, *shares]
        return GpuAnswers(singles.rows(rows).with_teams(teams), compared, fastest, is_best)

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
        found = []
        for (gpu, _), is_best, rate, most in zip(whole.devices, best, rates, whole.largest, strict=True):
            size = self.sizes.get(gpu.name) or tried[int(is_best.argmax())]
            fast = size
            if self.common is not None and most:
                holds = np.array(tried) <= most * question.n_gpus
                fast = tried[int((holds & (NEAR_BEST * rate >= rate[holds].max())).argmax())]
            found.append((size, fast, bool(is_best[list(tried).index(size)])))
        return found

    def scope(self, answers: GpuAnswers) -> str:
        """What the answers include and exclude."""
        precisions = [mode.precision for _, mode in answers.iterations.devices]
        loading = loading_in_words(self.question, self.table.image_size, by_offer=True)
        columns = answers.iterations.words | {"precision": precisions}
        return scope_of(self.question, self.known.model, columns, loading)

    def in_fast_modes(self, usual: GpuAnswers) -> Columns:
        """Columns in the fastest common mode of each GPU, at the compared sizes; none if the question has a precision."""
        question = self.question
        if question.precision is not None or question.is_whole:
            return {}
        gpus: dict[tuple[str, str], list[Gpu]] = {}
        for gpu in usual.gpus:
            mode = fast_mode_of(gpu, question.framework, question.memory_format)
            if mode is not None:
                gpus.setdefault(mode, []).append(gpu)
        columns: Columns = {}
        for (precision, memory_format), some in gpus.items():
            fast = replace(question, gpus=some, precision=precision, memory_format=memory_format)
            for name, values in self.columns(self.in_another_mode(fast, some, usual)).items():
                columns[name] = columns.get(name, []) + values
        return columns

    def in_another_mode(
        self, question: Question, gpus: Sequence[Gpu], usual: GpuAnswers, *, shared: bool = True
    ) -> GpuAnswers:
        """Answers in another mode than asked for: by the CNN's own measurements in it, else x what those of the asked one change."""
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
        fast = None
        if best.fast_precision is not None and best.fast_memory_format is not None:
            fast = replace(question, precision=best.fast_precision, memory_format=best.fast_memory_format)
        try:
            modes = [
                None if mode is None else self.in_another_mode(mode, [gpu], usual, shared=False)
                for mode in (question, fast)
            ]
        except OutOfRangeError:  # another framework, an older GPU, a method that knows no compiled iterations
            return None
        row, fast_row = (
            None
            if answers is None
            else next(row for row in _rows(self.columns(answers)) if place_of(row) == place_of(best))
            for answers in modes
        )
        return None if row is None else Compiled(row, fast_row, compile_seconds(self.table))

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
        at_once = np.ones(len(offers), dtype=np.int64)
        if plan.trials > 1:
            counts = [math.inf if offer is None else offer.gpu_count for offer in offers]
            at_once = np.array(
                [1 if math.isinf(n) else math.floor(n) // question.gpus_per_node for n in counts]
            )
        feed = feed_of_offers(question, self.table.image_size, offers)
        return Machines([gpu for gpu, _ in rented], Offers.of(question, offers, feed), at_once)

    def rows_on(
        self, machines: Machines, answers: GpuAnswers, machine: NDArray[np.int64], places: Sequence[int]
    ) -> OfferRows:
        """These rows of the answers, each on one of the machines."""
        trainings = np.minimum(self.plan.trials, machines.at_once)[machine]
        return OfferRows.of(
            answers.iterations.rows(places), machines.offers, machine, trainings
        ).with_epochs()

    def best_on(self, machines: Machines, answers: GpuAnswers) -> OfferRows:
        """A row for each machine: as many of its GPUs as train fastest."""
        n_gpus, nodes = answers.iterations.n_gpus, self.question.nodes
        most = [math.inf if offer is None else offer.gpu_count * nodes for offer in machines.offers.offers]
        usable = [
            (machine, place)
            for machine, gpu in enumerate(machines.gpus)
            for place in answers.compared[gpu]
            if n_gpus[place] <= most[machine]
        ]
        machine, places = np.array(usable).T
        rows = self.rows_on(machines, answers, machine, places)
        misfits = ~rows.numbers["fits_in_memory"]
        order = np.lexsort((rows.numbers["epoch_time_s"], misfits, machine))
        return rows.rows(order[np.unique(machine[order], return_index=True)[1]])

    def columns(self, answers: GpuAnswers) -> Columns:
        """The fields of rows but rank and front: each GPU on each of its offers."""
        plan, question, machines = self.plan, self.question, self.machines(answers.gpus)
        offers, every = machines.offers.offers, np.arange(len(machines.gpus))
        rows = self.best_on(machines, answers)
        one, fastest = (
            self.rows_on(machines, answers, every, places)
            for places in (
                [answers.compared[gpu][0] for gpu in machines.gpus],
                [answers.fastest[gpu] for gpu in machines.gpus],
            )
        )
        numbers, per_hour = rows.numbers, machines.offers.usd_per_hour
        time_h, low_h, high_h = (
            self.total_h(machines, numbers, *ends) for ends in zip(EPOCH_TIMES, STARTS, strict=True)
        )
        one_h = self.total_h(machines, one.numbers, EPOCH_TIMES[0], STARTS[0])
        one_h = np.where(numbers["gpus_used"] == one.numbers["gpus_used"], math.nan, one_h)
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
            "within_budget": [within(each, plan.budget_usd) for each in usd],
            "within_deadline": [within(each, plan.deadline_h) for each in hours],
            "chance": self.chances(plain(per_hour), hours, low_h.tolist(), high_h.tolist()),
            "misses_by": [misses_by(plan, *each) for each in zip(hours, usd, strict=True)],
            "common_batch_size": [self.common] * n,
            "fastest_batch_size": fastest.numbers["batch_size"].tolist(),
            "fastest_epoch_time_s": fastest.numbers[EPOCH_TIMES[0]].tolist(),
            **{f"total_{name}": plain(plan.trials * plan.epochs * numbers[name]) for name in ENERGIES},
            **dict.fromkeys(("rank", "speedup", "cost_ratio", *_FAST), nothing),
            "pareto": [False] * n,
        }

    def total_h(self, machines: Machines, numbers: Mapping[str, Array], epoch: str, start: str) -> Array:
        """Hours of all trials, as many at a time as have GPUs, each with its start as far as it is known, with the set-up."""
        plan = self.plan
        one_s = plan.epochs * numbers[epoch] + np.nan_to_num(numbers[start])
        rounds = -(-plan.trials // machines.at_once)
        hours: Array = rounds * one_s / 3600.0 + plan.setup_h
        return hours

    def chances(self, usd_per_hour: Sequence[float | None], *time_h: Sequence[float]) -> list[float | None]:
        """Probabilities that budget and deadline both hold; the cost is the time x a price, so the tighter one decides."""
        plan = self.plan
        if plan.budget_usd is None and plan.deadline_h is None:
            return [None] * len(usd_per_hour)
        chances: list[float | None] = []
        for usd, *hours in zip(usd_per_hour, *time_h, strict=True):
            if plan.budget_usd is not None and usd is None:
                chances.append(None)
                continue
            limit_h = math.inf if plan.deadline_h is None else plan.deadline_h
            if plan.budget_usd is not None and usd is not None:
                limit_h = min(limit_h, plan.budget_usd / usd)
            chances.append(chance_within(limit_h - plan.setup_h, *(each - plan.setup_h for each in hours)))
        return chances


_FAST = (
    "fast_precision",
    "fast_memory_format",
    "fast_ratio",
    "fast_time_h",
    "fast_cost_usd",
    "fast_bottleneck",
)


def _with_fast(columns: Columns, fast: Columns) -> Columns:
    """With what the same GPUs and offers take in their fastest mode; None where they have none."""
    places: dict[str, list[int]] = {}
    for place, gpu in enumerate(fast["gpu"]):
        places.setdefault(gpu, []).append(place)
    same = [places[gpu].pop(0) if gpu in places else None for gpu in columns["gpu"]]
    time_h = [None if place is None else fast["total_time_h"][place] for place in same]
    ratios = [
        None if fast_h is None else fast_h / usual_h
        for fast_h, usual_h in zip(time_h, columns["total_time_h"], strict=True)
    ]
    names = ("precision", "memory_format", "total_cost_usd", "bottleneck")
    found = {name: [None if place is None else fast[name][place] for place in same] for name in names}
    of_fast = (
        found["precision"],
        found["memory_format"],
        ratios,
        time_h,
        found["total_cost_usd"],
        found["bottleneck"],
    )
    return columns | dict(zip(_FAST, of_fast, strict=True))


def _keys(columns: Columns, rank_by: str) -> list[tuple[float, ...]]:
    names = ("fits_in_memory", "misses_by", "total_cost_usd", "total_time_h")
    return [ranking_key(*each, rank_by) for each in zip(*(columns[name] for name in names), strict=True)]


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
    return [
        ComparisonRow(*row)
        for row in zip(*(columns[each.name] for each in fields(ComparisonRow)), strict=True)
    ]


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
