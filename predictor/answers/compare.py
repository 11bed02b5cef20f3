"""Which GPU to rent: predictions as time and money for a whole training, ranked, with a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.answers.batch_sizes import (
    batch_sizes_to_try,
    common_batch_size,
    compared_batch_size,
    largest_batch_sizes,
)
from predictor.answers.energy import ENERGIES, energy_while_waiting
from predictor.answers.fast_mode import fast_mode_of
from predictor.answers.knowledge import Knowledge
from predictor.answers.loading import (
    ENDS,
    LOADING_OPTIONS,
    LOADING_TIMES,
    STARTS,
    data_exceeds,
    feed_of_offer,
    loading_asked,
    loading_in_words,
    starts,
    with_loading,
)
from predictor.answers.options import check_read
from predictor.answers.predict import COLUMNS, answer, fastest_row
from predictor.answers.question import Plan, Question, gpus_of
from predictor.answers.ranking import (
    ComparisonRow,
    mark_pareto,
    pareto_front,
    place_of,
    ranked,
    ranking_key,
)
from predictor.answers.scope import scope_of
from predictor.answers.verdict import Compiled, Verdict, verdict_of
from predictor.answers.wishes import chance_within, misses_by, within
from predictor.catalogue.devices import Gpu, device_of, is_cpu
from predictor.catalogue.links import usual_link
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import Offer, hourly_usd, offers_for
from predictor.checks import as_list
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.compiled import compile_seconds
from predictor.models.epochs import FORWARD_SHARE, epoch_times_s
from predictor.models.input_pipeline import Feed

if TYPE_CHECKING:
    import pandas as pd

    from predictor.cnns.layer_table import LayerTable

__all__ = ["Comparison", "ComparisonRow", "Verdict", "compare", "mark_pareto", "pareto_front", "ranked"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows, best first; `scope` is a paragraph on what they include and exclude; `verdict` says what to rent."""

    rows: list[ComparisonRow]
    scope: str
    verdict: Verdict

    def frame(self) -> pd.DataFrame:
        """A data frame; ``attrs["verdict"]`` is the verdict, ``attrs["covers"]`` the scope."""
        import pandas as pd

        names = [each.name for each in fields(ComparisonRow)]
        frame = pd.DataFrame([asdict(row) for row in self.rows], columns=names)
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
    asked = _Asked.of(question, plan)
    found = asked.found(asked.question)
    fast = asked.in_fast_modes(found)
    rows = [row for gpu in found for row in asked.rows(found[gpu], fast.get(gpu))]
    if plan.relative_to is not None:
        other = replace(asked.question, gpus=[device_of(plan.relative_to)])
        [reference] = [asked.best(asked.all_rows(each, None)) for each in asked.found(other).values()]
        rows = [_relative(row, reference) for row in rows]
    rows = ranked(mark_pareto(rows), plan.rank_by)
    in_fast = [row for each in fast.values() for row in asked.all_rows(each, None)]
    compiled = asked.compiled(rows[0], found)
    return Comparison(rows, asked.scope, verdict_of(rows, plan, ranked(in_fast, plan.rank_by), compiled))


_Fed = Callable[[dict[str, Any]], dict[str, Any]]
"""From an answer without loading to that with loading on an offer."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The answers for one GPU: at the compared batch size by the number of GPUs that share it, and at the fastest."""

    compared: dict[int, dict[str, Any]]
    fastest: dict[str, Any]
    beside_loader: bool
    """Whether the times follow a training whose host worked beside its loader."""

    @property
    def gpu(self) -> str:
        """Its name."""
        return str(self.fastest["gpu"])

    def on(self, offer: Offer | None, fed: _Fed) -> dict[str, Any]:
        """The answer for as many of an offer's GPUs as are fastest, `fed` by its vCPUs."""
        most = math.inf if offer is None else offer.gpu_count
        usable = [fed(row) for n, row in self.compared.items() if n <= most * row["nodes"]]
        return min(usable, key=lambda row: (not row["fits_in_memory"], row["epoch_time_s"]))


@dataclass(slots=True)
class _Asked:
    """A question about one CNN with its GPUs and offers, and the common batch size if none was given.

    `question` is without loading, which depends on the offer; `asked` has it.
    """

    asked: Question
    question: Question
    table: LayerTable
    known: Knowledge
    plan: Plan
    offers: tuple[Offer, ...]
    common: int | None
    tried: list[int]
    scope: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    """Where a common size is compared, that of each GPU in the mode asked for."""
    feeds: dict[float | None, Feed | None] = field(default_factory=dict)

    @classmethod
    def of(cls, question: Question, plan: Plan) -> _Asked:
        if len(as_list(question.cnn)) != 1:
            raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
        samples, prices = question.epoch_samples(), question.prices()
        if samples is None:
            raise SchemaError(
                "compare needs the samples of an epoch. Pass samples, or a data set such as 'imagenet'."
            )
        known, [table] = Knowledge.of(question), question.layer_tables()
        loading_asked(question)  # refuses options that contradict each other
        asked = replace(
            question, cnn=table, offers=prices, gpus=_offered(question, prices),
            model=known.model, measurements=known.own,
        )  # fmt: skip
        no_loading: dict[str, Any] = dict.fromkeys(LOADING_OPTIONS)
        question = replace(asked, **no_loading)
        if question.batch_sizes is not None:
            return cls(asked, question, table, known, plan, prices, None, question.batch_sizes)
        largest = largest_batch_sizes(question, table, question.devices())
        tried = batch_sizes_to_try(largest, samples, question.n_gpus)
        common = common_batch_size(largest, samples, question.n_gpus)
        return cls(asked, question, table, known, plan, prices, common, tried)

    def found(self, question: Question) -> dict[str, _Found]:
        """Answers by GPU, alone and together with others of an offer; the scope is that of the first question."""
        sizes = self.tried if self.common is None else sorted({*self.tried, self.common})
        answered = answer(replace(question, batch_sizes=sizes))
        self.scope = self.scope or self._scope(answered.columns)
        alone: dict[str, list[dict[str, Any]]] = {}
        for row in answered.records():
            alone.setdefault(row["gpu"], []).append(row)
        compared = {gpu: self._compared(rows) for gpu, rows in alone.items()}
        together = self._together(question, compared)
        beside_loader = Knowledge.of(question).measured_beside_loader(self.table, question)
        return {
            gpu: _Found(
                {question.n_gpus: compared[gpu], **together.get(gpu, {})},
                self._fastest(rows, compared[gpu]),
                beside_loader,
            )
            for gpu, rows in alone.items()
        }

    def _scope(self, columns: Mapping[str, Sequence[Any]]) -> str:
        loading = loading_in_words(self.asked, columns["image_size"][0], by_offer=True)
        return scope_of(self.asked, self.known.model, columns, loading)

    def _compared(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The row at the GPU's compared batch size; else the best, where none fits the one that needs least memory."""
        if self.common is None:
            return next((row for row in rows if row["best_batch"]), rows[0])
        own = compared_batch_size(self.common, rows[0]["largest_batch_size"], self.question.n_gpus)
        size = self.sizes.setdefault(rows[0]["gpu"], own)
        return next(row for row in rows if row["batch_size"] == size)

    def _fastest(self, rows: Sequence[dict[str, Any]], compared: dict[str, Any]) -> dict[str, Any]:
        searched = self.common is not None and compared["largest_batch_size"]
        return fastest_row(rows) if searched else compared

    def _together(
        self, question: Question, alone: Mapping[str, dict[str, Any]]
    ) -> dict[str, dict[int, dict[str, Any]]]:
        """Answers for several GPUs of an offer on the mini-batch of one, by GPU and by their number."""
        found: dict[str, dict[int, dict[str, Any]]] = {}
        if question.n_gpus > 1 or self.plan.trials > 1 or question.is_whole:
            return found
        gpus: dict[tuple[int, int], list[Gpu]] = {}
        for gpu, row in alone.items():
            for n in self._numbers(gpu, row["batch_size"]):
                gpus.setdefault((n, row["batch_size"]), []).append(device_of(gpu))
        for (n, size), some in gpus.items():
            for row in answer(replace(question, gpus=some, n_gpus=n, batch_sizes=size)).records():
                found.setdefault(row["gpu"], {})[n] = row
        return found

    def _numbers(self, gpu: str, batch_size: int) -> list[int]:
        """Numbers of GPUs that offers have and that share a mini-batch evenly: powers of two, and all of an offer."""
        if is_cpu(gpu) or not _joined(device_of(gpu), self.offers):
            return []
        counts = {int(each.gpu_count) for each in self._offers_of(gpu)}
        tried = counts | {2**i for i in range(1, max(counts, default=1).bit_length())}
        return sorted(n for n in tried if n > 1 and batch_size % n == 0)

    def _offers_of(self, gpu: str) -> tuple[Offer, ...]:
        if is_cpu(gpu):
            return ()
        return offers_for(self.offers, gpu, self.question.gpus_per_node, spot=self.question.spot)

    def in_fast_modes(self, found: Mapping[str, _Found]) -> dict[str, _Found]:
        """Answers by GPU in its fastest common mode, at the compared size; none if the question has a precision."""
        if self.question.precision is not None or self.question.is_whole:
            return {}
        gpus: dict[tuple[str, str], list[Gpu]] = {}
        for gpu in map(device_of, found):
            mode = fast_mode_of(gpu, self.question.framework, self.question.memory_format)
            if mode is not None:
                gpus.setdefault(mode, []).append(gpu)
        fast: dict[str, _Found] = {}
        for (precision, memory_format), some in gpus.items():
            fast |= self._in_another_mode(
                replace(self.question, gpus=some, precision=precision, memory_format=memory_format), found
            )
        return fast

    def _in_another_mode(self, question: Question, found: Mapping[str, _Found]) -> dict[str, _Found]:
        """Answers in another mode: by the CNN's own measurements in it, else as those of the mode asked for say."""
        question = replace(question, anchors=())  # which are of the mode asked for
        answered = self._at_compared_sizes(question)
        own, table = self.known.own, self.table
        if (own and own.anchors(table, question)) or not self.known.anchors(table, self.question):
            return answered
        unanchored = replace(question, measurements=own.without_cnns() if own else None)
        usual = replace(
            unanchored,
            precision=self.question.precision,
            memory_format=self.question.memory_format,
            capture=self.question.capture,
        )
        return self._anchored(answered, found, self._at_compared_sizes(usual))

    def _at_compared_sizes(self, question: Question) -> dict[str, _Found]:
        tried = self.tried if self.common is None else sorted(set(self.sizes.values()))
        return replace(self, tried=tried).found(question)

    def _anchored(
        self, answered: Mapping[str, _Found], found: Mapping[str, _Found], usual: Mapping[str, _Found]
    ) -> dict[str, _Found]:
        """Another mode's times x what the anchors change in the mode that they were measured in."""
        n = self.question.n_gpus
        scaled = {}
        for gpu, each in answered.items():
            factor = found[gpu].compared[n]["epoch_time_s"] / usual[gpu].compared[n]["epoch_time_s"]
            rows = {n: _scaled(row, factor) for n, row in each.compared.items()}
            scaled[gpu] = _Found(rows, _scaled(each.fastest, factor), found[gpu].beside_loader)
        return scaled

    def compiled(self, best: ComparisonRow, found: Mapping[str, _Found]) -> Compiled | None:
        """A row under torch.compile; None if it is asked for already, not predicted, or several GPUs train together."""
        if self.question.capture != "eager" or best.link is not None:
            return None
        question = replace(self.question, gpus=device_of(best.gpu), capture="compile")
        try:
            row = self._compiled(best, question, found)
            fast = None
            if best.fast_precision is not None and best.fast_memory_format is not None:
                in_fast = replace(
                    question, precision=best.fast_precision, memory_format=best.fast_memory_format
                )
                fast = self._compiled(best, in_fast, found)
        except OutOfRangeError:  # another framework, an older GPU, a method that knows no compiled iterations
            return None
        return Compiled(row, fast, compile_seconds(self.table))

    def _compiled(
        self, best: ComparisonRow, question: Question, found: Mapping[str, _Found]
    ) -> ComparisonRow:
        each, n = self._in_another_mode(question, found)[best.gpu], question.n_gpus
        alone = replace(each, compared={n: each.compared[n]})
        rows = replace(self, question=question).all_rows(alone, None)
        return next(row for row in rows if place_of(row) == place_of(best))

    def rows(self, found: _Found, fast: _Found | None) -> list[ComparisonRow]:
        """A row for each offer of a GPU if all are asked for, else for the best."""
        rows = self.all_rows(found, fast)
        return rows if self.plan.all_offers else [self.best(rows)]

    def all_rows(self, found: _Found, fast: _Found | None) -> list[ComparisonRow]:
        """A row for each offer of a GPU; one without an offer if there is none."""
        return [self._row(found, fast, offer) for offer in self._offers_of(found.gpu) or (None,)]

    def best(self, rows: Sequence[ComparisonRow]) -> ComparisonRow:
        """The row that ranks first."""
        return min(rows, key=lambda row: ranking_key(row, self.plan.rank_by))

    def _row(self, found: _Found, fast: _Found | None, offer: Offer | None) -> ComparisonRow:
        plan = self.plan
        at_once = (
            math.floor(offer.gpu_count) // self.question.gpus_per_node if offer and plan.trials > 1 else 1
        )
        trainings = min(plan.trials, at_once)
        fed = self._fed(offer, trainings, found.beside_loader)
        row = found.on(offer, fed)
        per_hour = row["nodes"] * hourly_usd(offer, self.question.spot) if offer else None
        time_h = {end: _total_h(plan, at_once, row, end) for end in _STARTS}
        usd = {end: _times(hours, per_hour) for end, hours in time_h.items()}
        in_fast = None if fast is None else fast.on(offer, self._fed(offer, trainings, fast.beside_loader))
        fast_h = None if in_fast is None else _total_h(plan, at_once, in_fast)
        alone = fed(found.compared[min(found.compared)])
        one_h = None if row["gpus_used"] == alone["gpus_used"] else _total_h(plan, at_once, alone)
        fastest = fed(found.fastest)
        epochs = plan.trials * plan.epochs
        return ComparisonRow(
            **{name: row[name] for name in _PREDICTED},
            rank=None,
            offer=f"{offer.provider} {offer.instance}" if offer else "no offer",
            region=offer.region if offer else None,
            offer_gpu_count=offer.gpu_count if offer else None,
            gpus_used=row["gpus_used"] * trainings,
            one_gpu_time_h=one_h,
            one_gpu_cost_usd=_times(one_h, per_hour),
            usd_per_hour=per_hour,
            priced_on=str(offer.retrieved_on) if offer and offer.retrieved_on else None,
            cost_usd=_times(row["epoch_time_s"] / 3600.0, per_hour),
            cost_low_usd=_times(row["epoch_low_s"] / 3600.0, per_hour),
            cost_high_usd=_times(row["epoch_high_s"] / 3600.0, per_hour),
            epochs=plan.epochs,
            trials=plan.trials,
            total_time_h=time_h["time"],
            total_low_h=time_h["low"],
            total_high_h=time_h["high"],
            total_cost_usd=usd["time"],
            total_low_usd=usd["low"],
            total_high_usd=usd["high"],
            pareto=False,
            within_budget=within(usd["time"], plan.budget_usd),
            within_deadline=within(time_h["time"], plan.deadline_h),
            chance=_chance(plan, per_hour, time_h),
            misses_by=misses_by(plan, time_h["time"], usd["time"]),
            speedup=None,
            cost_ratio=None,
            common_batch_size=self.common,
            fastest_batch_size=fastest["batch_size"],
            fastest_epoch_time_s=fastest["epoch_time_s"],
            fast_precision=None if fast is None else fast.fastest["precision"],
            fast_memory_format=None if fast is None else fast.fastest["memory_format"],
            fast_ratio=None if fast_h is None else fast_h / time_h["time"],
            fast_time_h=fast_h,
            fast_cost_usd=_times(fast_h, per_hour),
            fast_bottleneck=None if in_fast is None else in_fast["bottleneck"],
            vcpus=None if offer is None else offer.vcpus,
            data_exceeds=data_exceeds(self.asked, offer),
            total_watt_hours=_times(epochs, row["watt_hours"]),
            total_watt_hours_low=_times(epochs, row["watt_hours_low"]),
            total_watt_hours_high=_times(epochs, row["watt_hours_high"]),
        )

    def _fed(self, offer: Offer | None, trainings: int, beside_loader: bool) -> _Fed:
        """What loading on an offer makes of an answer, where so many trainings share its vCPUs."""
        vcpus = None if offer is None else offer.vcpus
        if vcpus not in self.feeds:
            self.feeds[vcpus] = feed_of_offer(self.asked, self.table.image_size, offer)
        feed = self.feeds[vcpus]

        def fed(row: dict[str, Any]) -> dict[str, Any]:
            sharing = trainings * row["gpus_used"] // row["nodes"]
            return row if feed is None else row | self._loaded(row, feed, sharing, beside_loader)

        return fed

    def _loaded(self, row: dict[str, Any], feed: Feed, n_gpus: int, beside_loader: bool) -> dict[str, Any]:
        """What loading changes in an answer while `n_gpus` of a machine work."""
        sizes = np.array([row["local_batch_size"]], dtype=float)
        # None, of a method that predicts whole iterations, becomes NaN.
        times = {name: np.array([row[name]], dtype=float) for name in (*ENDS, "gpu_time_ms", "host_time_ms")}
        columns, joined = with_loading(feed, sizes, n_gpus, times, measured_so=beside_loader)
        mode = self.question.mode_in(row["precision"], row["memory_format"])
        columns |= starts(feed, sizes, n_gpus, self.table, mode)
        changed = {
            name: columns[name][0] for name in ("loading_time_ms", "bottleneck", "workers_needed", *STARTS)
        }
        # a validation pass, which is shorter, may wait where training does not
        hidden_ms = row["low_ms"] * (FORWARD_SHARE if self.question.validation_samples else 1.0)
        if all(joined[name][0] == row[name] for name in ENDS) and columns["loading_high_ms"][0] <= hidden_ms:
            return changed
        for name, epoch, load in zip(ENDS, _OF_EPOCH, LOADING_TIMES, strict=True):
            ms = joined[name]
            changed |= {
                name: float(ms[0]),
                epoch: self._epoch_s(row, ms, np.array(columns[load]), feed.between),
            }
        return changed | energy_while_waiting(row, changed)

    def _epoch_s(self, row: dict[str, Any], time_ms: Any, loading_ms: Any, between: bool) -> float:
        question = self.question
        seconds = epoch_times_s(
            time_ms, np.array([row["batch_size"]]), question.epoch_samples() or 0, question.validation_samples,
            self.known.model, Mode(question.framework), loading_ms, between,
        )  # fmt: skip
        return float(seconds[0])


_OF_OFFER = ("offer", "offer_gpu_count", "priced_on", "cost_usd", "gpus_used")
_PREDICTED = [
    each.name for each in fields(ComparisonRow) if each.name in COLUMNS and each.name not in _OF_OFFER
]
_STARTS = {"low": "start_low_s", "time": "start_s", "high": "start_high_s"}
_OF_EPOCH = ("epoch_time_s", "epoch_low_s", "epoch_high_s")
_SCALED = (*ENDS, *_OF_EPOCH, *ENERGIES)


def _scaled(row: dict[str, Any], factor: float) -> dict[str, Any]:
    return row | {name: _times(factor, row[name]) for name in _SCALED}


def _joined(gpu: Gpu, offers: Sequence[Offer]) -> bool:
    """Whether it is known what joins several of these GPUs; else one of an offer is taken to work."""
    try:
        usual_link(gpu, offers)
    except SchemaError:
        return False
    return True


def _times(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


def _offered(question: Question, prices: Sequence[Offer]) -> object:
    """The GPUs asked for; by default those of today's offers that have the precision, in the catalogue's order."""
    if question.gpus is not None:
        return question.gpus
    n = question.gpus_per_node
    offered = {offer.gpu for offer in prices if not offer.historic and (n == 1 or offer.gpu_count >= n)}
    return [gpu for gpu in gpus_of("all", question.precision, question.capture) if gpu.name in offered]


def _total_h(plan: Plan, at_once: int, row: Mapping[str, Any], end: str = "time") -> float:
    """Hours of all trials, `at_once` at a time, each with its start as far as it is known, with the set-up."""
    one_s = plan.epochs * row[f"epoch_{end}_s"] + (row[_STARTS[end]] or 0.0)
    return math.ceil(plan.trials / at_once) * float(one_s) / 3600.0 + plan.setup_h


def _chance(plan: Plan, usd_per_hour: float | None, time_h: dict[str, float]) -> float | None:
    """Probability that budget and deadline both hold; the cost is the time x a price, so the tighter one decides."""
    limits = [] if plan.deadline_h is None else [plan.deadline_h]
    if plan.budget_usd is not None:
        if usd_per_hour is None:
            return None
        limits.append(plan.budget_usd / usd_per_hour)
    if not limits:
        return None
    training = {end: hours - plan.setup_h for end, hours in time_h.items()}
    return chance_within(min(limits) - plan.setup_h, training["time"], training["low"], training["high"])


def _relative(row: ComparisonRow, reference: ComparisonRow) -> ComparisonRow:
    both = row.total_cost_usd is not None and reference.total_cost_usd
    return replace(
        row,
        speedup=reference.total_time_h / row.total_time_h,
        cost_ratio=(row.total_cost_usd or 0.0) / (reference.total_cost_usd or math.nan) if both else None,
    )
