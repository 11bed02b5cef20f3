"""The verdict of a comparison: what to rent, how sure that is, what else would do, and what to change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.answers.measuring import WORTH_MEASURING_H, Measuring, measuring_of
from predictor.answers.notes import (
    REMEDIES,
    Note,
    Priority,
    Reason,
    Spoken,
    duration,
    duration_estimate,
    estimate,
    notes_of,
    percent,
    remedy_of,
    rounded,
    rounded_duration,
)
from predictor.answers.question import Plan
from predictor.answers.ranking import (
    SURE,
    ComparisonRow,
    limits_in_words,
    place_of,
    ranking_order,
    short_offer,
    tied,
    tied_hours,
)
from predictor.arrays import Array
from predictor.catalogue.devices import short_name
from predictor.models.compiled import measured_where

_WIDE = 1.3  # least upper / lower end of an interval for a measurement to be worth its minutes
_WORTH_IT = 0.95  # of the time, what a change leaves at most to be worth a word
_OTHER = 0.9  # of the best row's time or cost, what another choice takes at most to be named beside it
_WORTH_A_NOTE_USD = 5.0  # least saving by a measurement, on average, that a table shows without --verbose
_SAFER = 0.05  # least gain in chance for another choice to be named beside the best


@dataclass(frozen=True, slots=True)
class Choice:
    """A row that the verdict names, with what matters of it; None where it has no price, or there are no wishes."""

    offer: str
    gpu: str
    gpus_used: int
    offer_gpu_count: float | None
    batch_size: int
    precision: str
    memory_format: str
    total_time_h: float
    total_low_h: float
    total_high_h: float
    total_cost_usd: float | None
    total_low_usd: float | None
    total_high_usd: float | None
    chance: float | None
    extrapolates: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Verdict(Spoken):
    """What to rent, in one sentence and as data.

    `best` is the row that ranks first; None if the training fits on no GPU. `cheapest`, `fastest` and `safest` are
    of every offer and every number of its GPUs that share the best row's mini-batch: rows with a price, if any has one,
    that hold the wishes, or of all that fit if none does: the safest has the highest
    chance to hold the wishes, without wishes the lowest upper end of the interval of what is ranked. `measured` is the
    best row that extrapolates in nothing, where the best row's GPU was never measured. `binding` names
    what keeps a better offer out (``memory``, ``budget``, ``deadline``), `without_binding` is that offer. `misses_by`
    is the share by which the best row misses the wishes; `larger_batch` the best row of the smallest larger mini-batch
    that holds them, where none does at the common one. `fast_ratio` is the time of the best row in `fast_precision`
    and `fast_memory_format` as a share of its time; `best_if_fast` the row that would then rank first. `compiled` is
    the best row under torch.compile, `compiled_fast` in the fast mode, too, and `compile_s` the seconds that compiling
    takes once a training, which their times hold; None where that is not predicted, and where several GPUs train
    together, which nobody measured compiled. `measuring` is what a measurement of the best row is worth, where it pays.
    `hints` are sentences on what to change or to know.
    """

    sentence: str
    best: Choice | None
    holds_wishes: bool | None
    misses_by: float | None
    runner_up: Choice | None
    measured: Choice | None
    cheapest: Choice | None
    fastest: Choice | None
    safest: Choice | None
    binding: tuple[str, ...]
    without_binding: Choice | None
    larger_batch: Choice | None
    fast_precision: str | None
    fast_memory_format: str | None
    fast_ratio: float | None
    best_if_fast: Choice | None
    compiled: Choice | None
    compiled_fast: Choice | None
    compile_s: float | None
    measuring: Measuring | None
    hints: tuple[Note, ...]

    def lines(self) -> list[str]:
        """The hints, a line each."""
        return [note.text for note in self.hints]


@dataclass(frozen=True, slots=True)
class Changes:
    """The best row in its GPU's fastest common mode (None: the question fixes the mode), and compiled where predicted.

    `if_fast` is the row that ranks first if all train in their fastest mode, if it fits; `larger` that of the smallest
    larger mini-batch with which a machine holds the limits, where none does with the common one. `compiled` is the best
    row under torch.compile, and then in that mode, too; `compile_s` are the seconds of its first iteration, which
    compiles: in total times, in no epoch.
    """

    fast: ComparisonRow | None = None
    if_fast: ComparisonRow | None = None
    compiled: Sequence[ComparisonRow] = ()
    compile_s: float = 0.0
    larger: ComparisonRow | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Every offer with every number of its GPUs as the verdict weighs it: arrays of one length, NaN where unknown.

    `is_other`: another mini-batch than that of the best row. `dear` is the upper end of what is ranked, `safety` grows
    with the chance to hold the limits. `is_sure`: whether it extrapolates in nothing; None where the best row's GPU was
    measured.
    """

    fits: NDArray[np.bool_]
    is_other: NDArray[np.bool_]
    time_h: Array
    cost_usd: Array
    dear: Array
    misses_by: Array | None
    safety: Array
    is_sure: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class Roles:
    """Places in a standing by what they are best in; `parts`: their names and in which part, `` within 24 h`` or empty.

    `free` ranks first without wishes and with memory enough; `measured` is the best that extrapolates in nothing, None
    where there is none or the best row's GPU was measured.
    """

    fastest: int
    cheapest: int | None
    safest: int
    free: int
    measured: int | None
    parts: Mapping[str, str]

    @property
    def positions(self) -> list[int]:
        """All places, each once."""
        places = (self.fastest, self.cheapest, self.safest, self.free, self.measured)
        return list(dict.fromkeys(place for place in places if place is not None))


def roles_of(standing: Standing, plan: Plan) -> Roles:
    """Who is best in what, of all that share the mini-batch of the best one, which fits in memory."""
    fits, is_priced, same = standing.fits, ~np.isnan(standing.cost_usd), ~standing.is_other
    holds = np.ones_like(fits) if standing.misses_by is None else standing.misses_by <= 0
    rentable = fits & same & (is_priced if (fits & same & is_priced).any() else same)
    rentable &= holds if (rentable & holds).any() else same
    places = np.flatnonzero(rentable)
    exact_usd = np.where(is_priced, standing.cost_usd, np.inf)
    cost_usd, time_h = tied(exact_usd), tied_hours(standing.time_h)
    risk = -np.minimum(standing.safety, SURE)
    dear = np.where(np.isnan(standing.dear), np.inf, standing.dear)
    fastest, cheapest, safest = (
        int(places[np.lexsort([key[places] for key in keys])[0]])
        for keys in ((cost_usd, time_h), (time_h, cost_usd), (cost_usd, dear, risk))
    )
    limits = limits_in_words(plan)

    def part_of(measure: Array, chosen: int) -> str:
        """The part in which the chosen one has the least of a measure."""
        less = same & (measure < measure[chosen])
        lacking = {
            "that fits": ~fits,
            "for rent": fits & ~is_priced & is_priced[chosen],
            f"within {limits}": fits & (is_priced | ~is_priced[chosen]),
        }
        return "".join(f" {words}" for words, lacks in lacking.items() if (less & lacks).any())

    wanted = (cost_usd, standing.time_h) if plan.rank_by == "cost" else (time_h, exact_usd)
    ranking = standing.cost_usd, standing.time_h, plan.rank_by, wanted
    measured, parts = None, {}
    if standing.is_sure is not None and (standing.is_sure & fits & same).any():
        is_sure = standing.is_sure & fits & same
        measured = int(ranking_order(is_sure, standing.is_other, standing.misses_by, *ranking)[0])
        role = "Cheapest" if plan.rank_by == "cost" and is_priced[measured] else "Fastest"
        within = f" within {limits}" if limits else ""
        parts["measured"] = f"{role} measured{within}" if holds[measured] else "Nearest measured"
    parts["fastest"] = f"Fastest{part_of(time_h, fastest)}"
    parts["cheapest"] = f"Cheapest{part_of(cost_usd, cheapest)}"
    parts["safest"] = f"Safest{part_of(risk, safest)}"
    free = int(ranking_order(np.ones_like(fits), standing.is_other, None, *ranking)[0])
    return Roles(fastest, cheapest if is_priced[cheapest] else None, safest, free, measured, parts)


def does_not_fit(rows: Sequence[ComparisonRow]) -> Verdict:
    """The verdict on rows none of which fits in memory."""
    roomiest = max(rows, key=lambda row: row.largest_batch_size or 0)
    most = roomiest.largest_batch_size
    holds = (
        f"{short_name(roomiest.gpu)} holds the most, batch {most:,}" if most else "none holds a single image"
    )
    shared = f" for {roomiest.per_gpu} trainings on each GPU" * (roomiest.per_gpu > 1)
    sentence = (
        f"Does not fit: batch {roomiest.batch_size:,} needs {roomiest.peak_memory_gib:.1f} GiB{shared}, more than "
        f"fits on any of these GPUs; {holds}."
    )
    empty: dict[str, None] = dict.fromkeys(Verdict.__dataclass_fields__)
    return Verdict(**empty | {"sentence": sentence, "binding": ("memory",), "hints": ()})  # type: ignore[arg-type]


def verdict_of(
    rows: Sequence[ComparisonRow],
    plan: Plan,
    roles: Roles,
    role_rows: Mapping[int, ComparisonRow],
    changes: Changes,
) -> Verdict:
    """The verdict on ranked rows, best first, the first of which fits; `role_rows` are those of `Roles.positions`."""
    words = _Words(rows, plan, roles, role_rows, changes)
    best, changed = words.best, changes.fast
    compiled, compiled_fast, *_ = *changes.compiled, None, None
    return Verdict(
        sentence=words.sentence(),
        best=_choice(best),
        holds_wishes=None if best.misses_by is None else best.holds_limits,
        misses_by=best.misses_by,
        runner_up=_choice(next((row for row in rows if row.fits_in_memory and row is not best), None)),
        measured=_choice(words.rows_by_role.get("measured")),
        cheapest=_choice(words.rows_by_role.get("cheapest")),
        fastest=_choice(words.rows_by_role["fastest"]),
        safest=_choice(words.rows_by_role["safest"]),
        binding=words.binding,
        without_binding=_choice(words.freed),
        larger_batch=_choice(changes.larger),
        fast_precision=None if changed is None else changed.precision,
        fast_memory_format=None if changed is None else changed.memory_format,
        fast_ratio=None if changed is None else changed.total_time_h / best.total_time_h,
        best_if_fast=_choice(changes.if_fast),
        compiled=_choice(compiled),
        compiled_fast=_choice(compiled_fast),
        compile_s=changes.compile_s if compiled else None,
        measuring=words.measuring,
        hints=words.hints(),
    )


def _choice(row: ComparisonRow | None) -> Choice | None:
    names = Choice.__dataclass_fields__
    return None if row is None else Choice(**{name: getattr(row, name) for name in names})


class _Words:
    """The verdict in words, of rows that are arguments of `verdict_of`.

    `rows_by_role` are rows by what they are best in, `binding` what keeps `freed` out, the row that would rank first
    without wishes and with memory enough.
    """

    def __init__(
        self,
        rows: Sequence[ComparisonRow],
        plan: Plan,
        roles: Roles,
        role_rows: Mapping[int, ComparisonRow],
        changes: Changes,
    ) -> None:
        self.rows, self.plan, self.roles, self.changes = rows, plan, roles, changes
        self.changed, self.if_fast = changes.fast, changes.if_fast
        best = self.best = rows[0]
        places = {name: getattr(roles, name) for name in roles.parts}
        self.rows_by_role = {name: role_rows[place] for name, place in places.items() if place is not None}
        free = role_rows[roles.free]
        kept_out = free if best.holds_limits else best  # in which nothing fails where it is the best row
        limits = {"memory": "fits_in_memory", "budget": "within_budget", "deadline": "within_deadline"}
        failed = tuple(name for name, field in limits.items() if getattr(kept_out, field) is False)
        self.binding = () if best.holds_limits and free is best else failed
        self.freed = free if self.binding and best.holds_limits else None
        self.measuring = measuring_of(rows, plan)
        named = (best, *self.rows_by_role.values())
        self.sizes_differ = len({row.batch_size for row in named}) > 1

    def sentence(self) -> str:
        best, limits, common = self.best, limits_in_words(self.plan), self.best.common_batch_size
        took = f"{self._at(best)}: {_took(best)}"
        if best.holds_limits:
            likely = f", {percent(best.chance)} within {limits}" if best.chance is not None else ""
            head = f"{'Take' if best.total_cost_usd is None else 'Rent'} {took}{likely}"
        else:
            over = f", {_and(self._over())}" if self.binding else ""
            head = f"No offer stays within {limits}; nearest{over}: {took}"
        texts = [
            head,
            *self._packed(),
            *self._others(),
            *([f"At batch {best.batch_size:,}"] * (common is not None)),
        ]
        return f"{'. '.join([*texts, *self._larger()])}."

    def _at(self, row: ComparisonRow) -> str:
        """The machine of a row, with its mini-batch where those of the verdict differ."""
        return _marked(row) + f", batch {row.batch_size:,}" * self.sizes_differ

    def _packed(self) -> list[str]:
        """How many trainings share a GPU of the best row, and what that gains."""
        per_gpu, gain = self.best.per_gpu, self.best.packing_gain
        if per_gpu == 1 or gain is None:
            return []
        saves = "faster" if self.best.total_cost_usd is None else "cheaper"
        gains = f": {rounded(gain)} x {saves} than one at a time" if gain > 1 else ""
        return [f"{per_gpu} trainings on each GPU, a process each{gains}"]

    def _larger(self) -> list[str]:
        """The larger mini-batch that holds the wishes, which is another training."""
        row = self.changes.larger
        if row is None:
            return []
        return [f"Batch {row.batch_size:,}, another training, stays within: {_marked(row)}, {_brief(row)}"]

    def _over(self) -> list[str]:
        """By how much the best row misses each limit that it misses: ``12 % over``, or ``62 times`` if one is twice."""
        ratios = {"budget": (self.best.total_cost_usd or 0.0) / (self.plan.budget_usd or math.inf)}
        ratios["deadline"] = self.best.total_time_h / (self.plan.deadline_h or math.inf)
        missed = {name: ratios[name] - 1 for name in self.binding if name in ratios}
        is_far = any(share >= 1 for share in missed.values())
        return [
            f"{f'{rounded(share + 1)} times' if is_far else f'{_share(share)} over'} the {name}"
            for name, share in missed.items()
        ]

    def _others(self) -> list[str]:
        """The best row that was measured, the fastest or cheapest, and a safer one, where they differ enough."""
        best, rows, parts = self.best, self.rows_by_role, self.roles.parts
        fastest, cheapest, safest = (rows.get(name, best) for name in ("fastest", "cheapest", "safest"))
        names = ["measured"] * ("measured" in rows)
        if (safest.chance or 0.0) > (best.chance or 0.0) + _SAFER:
            names.append("safest")
        if self.plan.rank_by == "cost" and fastest.total_time_h < _OTHER * best.total_time_h:
            names.append("fastest")
        cost_usd, least_usd = best.total_cost_usd or 0.0, cheapest.total_cost_usd or 0.0
        if self.plan.rank_by == "time" and least_usd < _OTHER * cost_usd:
            names.append("cheapest")
        names_of_places: dict[tuple[str, str, str | None], str] = {}
        for name in names:
            names_of_places.setdefault(place_of(rows[name]), name)
        return [
            f"{parts[name]}: {self._at(rows[name])}, {_brief(rows[name])}"
            for name in names_of_places.values()
        ]

    def hints(self) -> tuple[Note, ...]:
        ruled_out, freed = "", self.freed
        if freed is not None:
            ruled_out = f"The {_and(self.binding)} rules out {_marked(freed)}: {_brief(freed)}."
        fast, rented = self._mixed_precision()
        compiled, compiling = self._compile()
        return (
            *notes_of(Priority.CHANGE, fast, compiled),
            *notes_of(Priority.LIMIT, ruled_out, self._loading(), self._batch()),
            *notes_of(*self._remedy()),
            *notes_of(Priority.DETAIL, self._data("disk"), self._one_gpu()),
            *notes_of(Priority.VERBOSE, rented, self._data("memory"), compiling),
        )

    def _mixed_precision(self) -> tuple[str, str]:
        """What the cheapest change to the user's own code saves, and what to rent with it, if another."""
        if self.changed is None or self.if_fast is None:
            return "", ""
        if self.changed.total_time_h / self.best.total_time_h > _WORTH_IT:
            return "", ""
        then = self.if_fast
        rented = f"With mixed precision, rent {_marked(then)}: {_brief(then)}."
        saved = f"Mixed precision: {', '.join([_span(self.changed), *_price(self.changed)])}."
        return saved, "" if place_of(then) == place_of(self.best) else rented

    def _compile(self) -> tuple[str, str]:
        """What torch.compile gives, as asked and in the fastest mode, where that pays; and what compiling takes."""
        modes, eager_rows = ("", "with mixed precision "), (self.best, self.changed)
        texts = [
            f"{mode}{_span(row)}"
            for mode, eager, row in zip(modes, eager_rows, self.changes.compiled, strict=False)
            if eager and row.total_time_h < eager.total_time_h
        ]
        takes = (
            f"Compiling takes about {self.changes.compile_s:.0f} s once; torch.compile was measured only "
            f"{measured_where()}."
        )
        return (f"torch.compile: {'; '.join(texts)}.", takes) if texts else ("", "")

    def _loading(self) -> str:
        """Which loading the best row waits for, in its mode or in its fastest."""
        waits = ("loading", "reading")
        row = next((row for row in (self.best, self.changed) if row and row.bottleneck in waits), None)
        if row is None or row.loading_time_ms is None:
            return ""
        loaded, trained = (_images_per_s(row, ms) for ms in (row.loading_time_ms, row.training_time_ms))
        limited = "training" if row is self.best else "mixed precision"
        if row.bottleneck == "reading":
            return f"The source gives {loaded} images/s, {limited} takes {trained}."
        cpus = "" if row.vcpus is None else f" on {row.vcpus:g} vCPUs"
        if row.workers_needed is None:
            return f"Loading gives {loaded} images/s{cpus}, {limited} takes {trained}."
        needed = row.workers_needed * row.gpus_used // row.nodes
        if row.vcpus is None and row.offer_gpu_count is not None:
            return (
                f"{limited.capitalize()} needs {needed:,} workers with a vCPU each, and the offer does not say "
                f"how many it has: with as many as others it loads {loaded} of {trained} images/s."
            )
        if row.vcpus is not None and needed > row.vcpus:
            return f"Loading for {limited} needs {needed:,} vCPUs, not {row.vcpus:g}."
        return f"Loading for {limited} needs {needed:,} workers: now it gives {loaded} of {trained} images/s."

    def _data(self, exceeded: str) -> str:
        """What the stored data set means for the best offer, where it exceeds its memory or disk."""
        means = {
            "memory": "memory: every epoch reads it from storage",
            "disk": "local disk: it needs a volume",
        }
        is_exceeded = exceeded in self.best.data_exceeds
        return f"The data set exceeds this machine's {means[exceeded]}." if is_exceeded else ""

    def _one_gpu(self) -> str:
        """What one GPU of an offer would do, where several train together."""
        best = self.best
        if best.one_gpu_time_h is None:
            return ""
        cost = "" if best.one_gpu_cost_usd is None else f", {_usd(best.one_gpu_cost_usd)}"
        share = best.one_gpu_time_h / (best.gpus_used * best.total_time_h)
        return (
            f"{best.gpus_used} GPUs train together on {best.local_batch_size} images each at "
            f"{100 * share:.0f} % of one GPU's speed; one takes {duration(3600 * best.one_gpu_time_h)}{cost}."
        )

    def _batch(self) -> str:
        best, common = self.best, self.best.common_batch_size
        if common is not None and best.batch_size < common:
            return (
                f"Its memory holds batch {best.batch_size:,}, where most others are compared at {common:,}."
            )
        if best.fastest_batch_size == best.batch_size:
            return ""
        left = best.fastest_epoch_time_s / best.epoch_time_s
        saved_s = best.epochs * (best.epoch_time_s - best.fastest_epoch_time_s)
        # a first mini-batch of so many more images takes so much longer at most
        later_s = (best.start_s or 0.0) * max(0.0, best.fastest_batch_size / best.batch_size - 1.0)
        if left > _WORTH_IT or saved_s < later_s:
            return ""
        return f"Batch {best.fastest_batch_size:,} takes {_share(1.0 - left)} less time there than {best.batch_size:,}."

    def _remedy(self) -> tuple[Priority, str]:
        """What would narrow the interval; where it pays before renting, what it is worth: it matters above few US$."""
        measuring = self.measuring
        if self.best.total_time_h < WORTH_MEASURING_H:
            return Priority.REMEDY, ""
        if measuring is None:
            wide = self.best.total_high_h > _WIDE * self.best.total_low_h
            remedy = remedy_of(self.best.extrapolates) or (REMEDIES["gpu"] if wide else None)
            return Priority.REMEDY, f"To narrow the interval: {remedy}." if remedy else ""
        saved_usd = measuring.regret_usd - measuring.regret_after_usd
        return Priority.VERBOSE if saved_usd < _WORTH_A_NOTE_USD else Priority.REMEDY, (
            f"Measuring {measuring.minutes:.0f} minutes there first ({_usd(measuring.price_usd)}), given as an anchor, "
            f"saves {_usd(saved_usd)} on average of {_usd(measuring.regret_usd)} at risk."
        )


def _took(row: ComparisonRow) -> str:
    of_all = f" for all {row.trials:,} trainings" * (row.trials > 1)
    if row.total_cost_usd is None or row.total_low_usd is None or row.total_high_usd is None:
        return f"{_span(row)}{of_all}, at no known price"
    return f"{_span(row)}, US$ {estimate(row.total_cost_usd, row.total_low_usd, row.total_high_usd)}{of_all}"


def _span(row: ComparisonRow) -> str:
    return duration_estimate(3600 * row.total_time_h, 3600 * row.total_low_h, 3600 * row.total_high_h)


def _brief(row: ComparisonRow) -> str:
    """Time and cost, whose intervals the table has."""
    return ", ".join([rounded_duration(3600 * row.total_time_h), *_price(row)])


def _price(row: ComparisonRow) -> list[str]:
    return [] if row.total_cost_usd is None else [_usd(row.total_cost_usd)]


def _usd(value: float) -> str:
    return f"US$ {rounded(value)}"


def _where(row: ComparisonRow) -> str:
    """The GPUs and where they are: ``1x H100 SXM at runpod``, ``1 of 8x A100 SXM4 80GB at lambda``."""
    if row.offer_gpu_count is None:
        return short_name(row.gpu)
    count = row.offer_gpu_count * row.nodes
    used = f"{row.gpus_used} of " if count >= row.gpus_used + 1 else ""
    return f"{used}{count:g}x {short_name(row.gpu)} at {short_offer(row.offer)}"


def _marked(row: ComparisonRow) -> str:
    """As `_where`, and that the GPU was never measured."""
    return f"{_where(row)}{' (never measured)' * never_measured(row)}"


def never_measured(row: ComparisonRow) -> bool:
    """Whether its GPU was never measured."""
    return any(reason.kind == "gpu" for reason in row.extrapolates)


def _images_per_s(row: ComparisonRow, time_ms: float) -> str:
    """Images per second of all GPUs, to two digits."""
    rate = 1000.0 * row.local_batch_size * row.gpus_used / time_ms
    return f"{round(rate, 1 - math.floor(math.log10(rate))):,.0f}"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.005 else "under 1 %"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + [words[-1]])
