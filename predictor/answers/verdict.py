"""The verdict of a comparison: what to rent, how sure that is, what else would do, and what to change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from predictor.answers.notes import MEASURE_IT, Note, Priority, Reason, notes_of, remedy_of
from predictor.answers.quantities import duration, number, percent, span, usd
from predictor.answers.question import Plan
from predictor.answers.ranking import ComparisonRow, limits_in_words, place_of, ranking_key
from predictor.models.compiled import measured_where

__all__ = ["Choice", "Compiled", "Verdict", "verdict_of"]

_WIDE = 1.3  # upper / lower end of an interval from which a measurement is worth its minutes
_WORTH_IT = 0.95  # of the time, what a change leaves at most to be worth a word


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


@dataclass(frozen=True, slots=True)
class Compiled:
    """The row that ranks first under torch.compile: as asked, and in its GPU's fastest common mode or None.

    `compile_s` are the seconds of the first iteration, which compiles; no time of the rows includes them.
    """

    row: ComparisonRow
    fast: ComparisonRow | None
    compile_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to rent, in one sentence and as data.

    `best` is the row that ranks first; None if the training fits on no GPU. `measured` is the first one that
    extrapolates nothing, or, where all do, whose GPU was measured; None where that is the best or there is none.
    `cheapest`, `fastest` and `safest` are rows that hold the wishes, or of all that fit if none does, with a price if
    any has one: the safest has the highest chance to hold the wishes, without wishes the lowest upper end of the
    interval of what is ranked. `binding` names what keeps a better offer out (``memory``, ``budget``, ``deadline``),
    `without_binding` is that offer. `misses_by` is the share by which the best row misses the wishes. `fast_ratio` is
    the time of the best row in `fast_precision` and `fast_memory_format` as a share of its time; `best_if_fast` the
    row that would then rank first. `compiled` is the best row under torch.compile, `compiled_fast` in the fast mode,
    too, and `compile_s` the seconds that compiling takes once a training, which their times leave out; None where
    that is not predicted, and where several GPUs train together, which nobody measured compiled. `hints` are
    sentences on what to change or to know.
    """

    sentence: str
    best: Choice | None
    measured: Choice | None
    holds_wishes: bool | None
    misses_by: float | None
    runner_up: Choice | None
    cheapest: Choice | None
    fastest: Choice | None
    safest: Choice | None
    binding: tuple[str, ...]
    without_binding: Choice | None
    fast_precision: str | None
    fast_memory_format: str | None
    fast_ratio: float | None
    best_if_fast: Choice | None
    compiled: Choice | None
    compiled_fast: Choice | None
    compile_s: float | None
    hints: tuple[Note, ...]


def verdict_of(
    rows: Sequence[ComparisonRow],
    plan: Plan,
    fast_rows: Sequence[ComparisonRow] = (),
    compiled: Compiled | None = None,
) -> Verdict:
    """The verdict on ranked rows.

    Parameters
    ----------
    rows : list of ComparisonRow
        Best first, at least one.
    plan : Plan
    fast_rows : list of ComparisonRow
        The same offers in the GPUs' fastest common modes, best first; empty if the question fixes the mode.
    compiled : Compiled, optional
        The best row compiled, where that is predicted.
    """
    fitting = [row for row in rows if row.fits_in_memory]
    if not fitting:
        return _nothing_fits(rows)
    best = fitting[0]
    roles = _roles([row for row in fitting if row.holds_limits] or fitting, plan)
    binding, freed = _binding(rows, best, plan)
    changed = next((row for row in fast_rows if place_of(row) == place_of(best)), None)
    if_fast = fast_rows[0] if fast_rows and fast_rows[0].fits_in_memory else None
    measured = _measured(fitting)
    words = _Words(best, measured, plan, roles, binding, freed, changed, if_fast, compiled)
    return Verdict(
        sentence=words.sentence(),
        best=_choice(best),
        measured=_choice(measured),
        holds_wishes=None if best.misses_by is None else best.holds_limits,
        misses_by=best.misses_by,
        runner_up=_choice(fitting[1]) if len(fitting) > 1 else None,
        cheapest=_choice(roles.get("cheapest")),
        fastest=_choice(roles["fastest"]),
        safest=_choice(roles["safest"]),
        binding=binding,
        without_binding=_choice(freed),
        fast_precision=None if changed is None else changed.precision,
        fast_memory_format=None if changed is None else changed.memory_format,
        fast_ratio=None if changed is None else changed.total_time_h / best.total_time_h,
        best_if_fast=_choice(if_fast),
        compiled=None if compiled is None else _choice(compiled.row),
        compiled_fast=None if compiled is None else _choice(compiled.fast),
        compile_s=None if compiled is None else compiled.compile_s,
        hints=words.hints(),
    )


def _nothing_fits(rows: Sequence[ComparisonRow]) -> Verdict:
    """The verdict where no GPU has the memory."""
    roomiest = max(rows, key=lambda row: row.largest_batch_size or 0)
    most = roomiest.largest_batch_size
    holds = f"{_gpu(roomiest)} holds the most, {most:,} images" if most else "none holds a single image"
    sentence = (
        f"Batch {roomiest.batch_size:,} fits in the memory of none of these GPUs ({roomiest.peak_memory_gib:.1f} GiB "
        f"are needed): {holds}."
    )
    empty: dict[str, None] = dict.fromkeys(Verdict.__dataclass_fields__)
    return Verdict(**empty | {"sentence": sentence, "binding": ("memory",), "hints": ()})  # type: ignore[arg-type]


def _measured(rows: Sequence[ComparisonRow]) -> ComparisonRow | None:
    """The first row that stands on measurements more than the first of all does."""
    if not rows[0].extrapolates:
        return None
    sure = next((row for row in rows if not row.extrapolates), None)
    of_gpu = next((row for row in rows if all(reason.kind != "gpu" for reason in row.extrapolates)), None)
    found = sure or of_gpu
    return None if found is rows[0] else found


def _roles(rows: Sequence[ComparisonRow], plan: Plan) -> dict[str, ComparisonRow]:
    priced = [row for row in rows if row.total_cost_usd is not None]
    roles = {"cheapest": min(priced, key=lambda row: row.total_cost_usd or 0.0)} if priced else {}
    roles["fastest"] = min(priced or rows, key=lambda row: row.total_time_h)
    roles["safest"] = max(priced or rows, key=_safety(plan))
    return roles


def _safety(plan: Plan) -> Callable[[ComparisonRow], tuple[float, float]]:
    def safety(row: ComparisonRow) -> tuple[float, float]:
        dear = math.inf if row.total_high_usd is None else row.total_high_usd
        return row.chance or 0.0, -(dear if plan.rank_by == "cost" else row.total_high_h)

    return safety


def _binding(
    rows: Sequence[ComparisonRow], best: ComparisonRow, plan: Plan
) -> tuple[tuple[str, ...], ComparisonRow | None]:
    """What keeps the row out that would rank first without wishes and with memory enough, and that row."""
    free = min(
        rows, key=lambda row: ranking_key(True, None, row.total_cost_usd, row.total_time_h, plan.rank_by)
    )
    if not best.holds_limits:
        return _failed(best), None
    return (_failed(free), free) if free is not best and _failed(free) else ((), None)


def _failed(row: ComparisonRow) -> tuple[str, ...]:
    failed = [] if row.fits_in_memory else ["memory"]
    failed += ["budget"] if row.within_budget is False else []
    return (*failed, *(["deadline"] if row.within_deadline is False else []))


def _choice(row: ComparisonRow | None) -> Choice | None:
    return (
        None if row is None else Choice(**{name: getattr(row, name) for name in Choice.__dataclass_fields__})
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """The verdict in words."""

    best: ComparisonRow
    measured: ComparisonRow | None
    plan: Plan
    roles: dict[str, ComparisonRow]
    binding: tuple[str, ...]
    freed: ComparisonRow | None
    changed: ComparisonRow | None
    if_fast: ComparisonRow | None
    compiled: Compiled | None

    def sentence(self) -> str:
        best, limits = self.best, limits_in_words(self.plan)
        if best.holds_limits:
            likely = f", {percent(best.chance)} likely within {limits}" if best.chance is not None else ""
            verb = "Take" if best.total_cost_usd is None else "Rent"
            head = f"{verb} {_where(best)}: {self._work()} {_took(best)}{likely}"
        else:
            over = " and ".join(self.binding) or "budget, since its price is not known"
            share = "" if math.isinf(best.misses_by or 0) else f"{_share(best.misses_by or 0)} "
            likely = f", {percent(best.chance)} likely" if best.chance is not None else ""
            head = (
                f"No offer stays within {limits}: {_where(best)} comes nearest, {share}over the {over}; "
                f"{self._work()} {_took(best)}{likely}"
            )
        measured = f"measured: {_where(self.measured)} ({_brief(self.measured)})" if self.measured else ""
        return "; ".join(filter(None, (head, self._others(), measured))) + "."

    def _work(self) -> str:
        one = "an epoch" if self.best.start_s is None else "an epoch with its start"
        epochs = f"{self.plan.epochs:,} epochs" if self.plan.epochs > 1 else one
        if self.plan.trials == 1:
            return f"{epochs} take" if self.plan.epochs > 1 else f"{epochs} takes"
        return f"{self.plan.trials:,} trainings of {epochs} take"

    def _others(self) -> str:
        same = [role for role, row in self.roles.items() if row is self.best]
        if len(same) == len(self.roles):
            return ""
        parts = [f"it is the {_and(same)}"] if same else []
        places: dict[tuple[str, str, str | None], tuple[ComparisonRow, list[str]]] = {}
        for role, row in self.roles.items():
            if row is not self.best:
                places.setdefault(place_of(row), (row, []))[1].append(role)
        parts += [f"the {_and(roles)} is {_where(row)} ({_brief(row)})" for row, roles in places.values()]
        return ", ".join(parts)

    def hints(self) -> tuple[Note, ...]:
        return (
            *notes_of(Priority.CHANGE, self._mixed_precision(), self._compile()),
            *notes_of(Priority.LIMIT, self._ruled_out(), self._loading(), self._batch()),
            *notes_of(Priority.REMEDY, self._remedy()),
            *notes_of(Priority.DETAIL, self._data(), self._one_gpu()),
            *notes_of(Priority.VERBOSE, self._compiling()),
        )

    def _mixed_precision(self) -> str:
        """What the cheapest change to the user's own code saves."""
        if self.changed is None or self.if_fast is None:
            return ""
        if self.changed.total_time_h / self.best.total_time_h > _WORTH_IT:
            return ""
        text = f"{_mode(self.changed)} (a few lines of code): {_brief(self.changed, interval=True)}"
        if place_of(self.if_fast) != place_of(self.best):
            text += f"; with it, {_where(self.if_fast)} would rank first ({_brief(self.if_fast)})"
        return f"{text}."

    def _compile(self) -> str:
        """What torch.compile gives, in the mode asked for and in the fastest, where it saves more than it takes."""
        texts = [
            f"{'' if row is self.compiled.row else f'with {_mode(row)} '}{_span(row)}{_if_loading_limits(row)}"
            for row in self._saving_when_compiled()
            if self.compiled
        ]
        return f"torch.compile (one line of code): {'; '.join(texts)}." if texts else ""

    def _saving_when_compiled(self) -> list[ComparisonRow]:
        """The compiled rows whose epochs save more than compiling takes."""
        if self.compiled is None:
            return []
        pairs = ((self.best, self.compiled.row), (self.changed, self.compiled.fast))
        return [row for eager, row in pairs if eager and row and _saves(eager, row, self.compiled.compile_s)]

    def _compiling(self) -> str:
        if self.compiled is None or not self._saving_when_compiled():
            return ""
        return (
            f"Compiling takes about {self.compiled.compile_s:.0f} s once; torch.compile was measured only "
            f"{measured_where()}."
        )

    def _loading(self) -> str:
        """Which loading the best row waits for, in its mode or in its fastest."""
        row = next((row for row in (self.best, self.changed) if row and _waits_for_images(row)), None)
        if row is None or row.loading_time_ms is None:
            return ""
        loaded, trained = (_images_per_s(row, ms) for ms in (row.loading_time_ms, row.training_time_ms))
        gpus = "the GPU" if row.gpus_used == 1 else f"{row.gpus_used} GPUs"
        would = f"{gpus} would train on {trained}{'' if row is self.best else f' in {_mode(row)}'}"
        if row.bottleneck == "reading":
            return f"The source gives about {loaded} images/s; {would}."
        cpus = "" if row.vcpus is None else f" on {row.vcpus:g} vCPUs"
        needed = (row.workers_needed or 0) * row.gpus_used // row.nodes
        return (
            f"Loading decodes about {loaded} images/s{cpus}; {would}. {needed:,} workers, one per vCPU, or a faster "
            "loader would keep up."
        )

    def _data(self) -> str:
        """What of the best offer the stored data set exceeds."""
        texts = {
            "memory": "The data set does not fit in this machine's memory; every epoch reads it from storage again.",
            "disk": "The data set does not fit on this machine's local disk; it needs a volume.",
        }
        return " ".join(texts[name] for name in self.best.data_exceeds)

    def _one_gpu(self) -> str:
        """What one GPU of an offer would do, where several train together."""
        best = self.best
        if best.one_gpu_time_h is None:
            return ""
        cost = "" if best.one_gpu_cost_usd is None else f", {usd(best.one_gpu_cost_usd)}"
        return (
            f"{best.gpus_used} GPUs train together on {best.local_batch_size} images each, at "
            f"{100 * best.scaling_efficiency:.0f} % of their single throughput; one of them takes "
            f"{duration(3600 * best.one_gpu_time_h)}{cost}."
        )

    def _ruled_out(self) -> str:
        if self.freed is None:
            return ""
        return f"The {_and(self.binding)} rules out {_where(self.freed)} ({_brief(self.freed)})."

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
        return f"Batch {best.fastest_batch_size:,} is {_share(1.0 - left)} faster there than {best.batch_size:,}."

    def _remedy(self) -> str:
        wide = self.best.total_high_h > _WIDE * self.best.total_low_h
        remedy = remedy_of(self.best.extrapolates) or (MEASURE_IT if wide else None)
        return f"To narrow the interval: {remedy}." if remedy else ""


def _took(row: ComparisonRow) -> str:
    if row.total_cost_usd is None:
        return f"{_span(row)}, at no known price"
    return f"{_span(row)} and {usd(row.total_cost_usd)} ({number(row.total_low_usd)}-{number(row.total_high_usd)})"


def _span(row: ComparisonRow) -> str:
    return f"{_time(row)} ({span(3600 * row.total_low_h, 3600 * row.total_high_h, 3600 * row.total_time_h)})"


def _brief(row: ComparisonRow, interval: bool = False) -> str:
    parts = [_span(row) if interval else _time(row)]
    parts += [] if row.total_cost_usd is None else [usd(row.total_cost_usd)]
    if interval:
        return ", ".join(parts) + _if_loading_limits(row)
    return ", ".join(parts + ([] if row.chance is None else [f"{percent(row.chance)} likely"]))


def _time(row: ComparisonRow) -> str:
    return duration(3600 * row.total_time_h)


def _where(row: ComparisonRow) -> str:
    beyond = ", extrapolated" if row.extrapolates else ""
    if row.offer_gpu_count is None:
        return f"{_gpu(row)}{beyond}"
    idle = int(row.offer_gpu_count) * row.nodes - row.gpus_used
    nodes = f"{row.nodes} x " if row.nodes > 1 else ""
    return f"{nodes}{row.offer} ({row.offer_gpu_count:g} x {_gpu(row)}{beyond}{f', {idle} idle' if idle > 0 else ''})"


def _gpu(row: ComparisonRow) -> str:
    return row.gpu.removeprefix("NVIDIA ")


def _saves(eager: ComparisonRow, compiled: ComparisonRow, compile_s: float) -> bool:
    """Whether the epochs of one training save more than compiling takes."""
    return eager.epochs * (eager.epoch_time_s - compiled.epoch_time_s) > compile_s


def _waits_for_images(row: ComparisonRow) -> bool:
    return row.bottleneck in ("loading", "reading")


def _if_loading_limits(row: ComparisonRow) -> str:
    return ", limited by image loading" if _waits_for_images(row) else ""


def _images_per_s(row: ComparisonRow, time_ms: float) -> str:
    """Images per second of all GPUs, to two digits."""
    rate = 1000.0 * row.local_batch_size * row.gpus_used / time_ms
    digits = 1 - math.floor(math.log10(rate))
    return f"{round(rate, digits):,.0f}"


def _mode(row: ComparisonRow) -> str:
    words = row.precision.replace("amp_", "AMP in ")
    return f"{words} with channels-last" if row.memory_format == "channels_last" else words


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.005 else "under 1 %"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + [words[-1]])
