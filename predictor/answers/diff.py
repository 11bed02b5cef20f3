"""What a change of a CNN costs: two CNNs or recorded steps on the same GPUs, and the layers that make the difference.

Errors of two alike CNNs cancel, so the interval of their ratio is narrower than that of either: it follows from the
share of the time in operators that only one of them has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple

from predictor.answers.answer import PredictionRow, answer
from predictor.answers.bounds import operator_roofline_ms
from predictor.answers.explain import class_times_ms
from predictor.answers.grid import forecasts_of, usual_batch_size
from predictor.answers.notes import Spoken, batch_in_words, number, sharing_in_words
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.errors import SchemaError
from predictor.operators.operators import Operator, operators_of
from predictor.operators.work import operator_class

NOISE = 0.01
"""Half width of ln ratio of two CNNs that share all their operators."""

MEASURED, SPECIFIED = 0.30, 0.45
"""Half widths of ln ratio per share of the time in operators that one CNN lacks; by measured operators, by data sheets.

They hold 21 of 24 changes of CNNs of another library on an H100, 90 % of 1,464 pairs of CNNs on an H100 and an H200,
and of 3,396 pairs of torchvision's CNNs on five older GPUs (docs/advice.md)."""

_WAITING = "waiting for the other trainings or the host"
_MOST_LINES = 5
_ROUNDING = 1e-9
_SHOWN = 0.002  # least share of an iteration's GPU time that a layer's change is shown from


@dataclass(frozen=True, slots=True)
class LayerChange:
    """Layers of one shape that one of two CNNs has more often, with their GPU time before and after, `*_ms`.

    Layers that both CNNs have equally often take as long in both; "of no one layer" is what the law gives to none.
    """

    layer: str
    count_before: int
    count_after: int
    before_ms: float
    after_ms: float

    @property
    def moved_ms(self) -> float:
        """Absolute change of the layers' GPU time, in ms."""
        return abs(self.after_ms - self.before_ms)

    @property
    def counts(self) -> str:
        """How many there are before and after, in words; empty where the time is of no layers."""
        counts = self.count_before, self.count_after
        return "{} -> {} of them, ".format(*counts) if any(counts) else ""

    @classmethod
    def rest(cls, layers: Iterable[LayerChange]) -> LayerChange:
        """All of these layers in one."""
        numbers = ((0, 0, 0.0, 0.0), *(astuple(layer)[1:] for layer in layers))
        return cls("all other layers", *map(sum, zip(*numbers, strict=True)))


@dataclass(frozen=True, slots=True, repr=False)
class Difference(Spoken):
    """Two CNNs on one GPU at one batch size.

    `ratio` is the iteration's time after over before, `low` to `high` its 90 % interval; `changed_share` the share of
    the GPU's time in operators that only one of the two has. `class_ms` maps each class of operators to its GPU time
    before and after. `layers` are ordered by the size of their change; with `rest` they add up to the GPU's time. Where
    trainings share the GPU, the first is the time that a training waits, and they add up to the iteration.
    `usual_batch_size`: no batch size was given. `beside`: what else trains on the GPU, if it differs.
    """

    gpu: str
    batch_size: int
    before: PredictionRow
    after: PredictionRow
    ratio: float
    low: float
    high: float
    changed_share: float
    class_ms: Mapping[str, tuple[float, float]]
    layers: tuple[LayerChange, ...]
    rest: LayerChange
    usual_batch_size: bool = False
    beside: str | None = None

    def lines(self) -> list[str]:
        """The layers that change most, a line each."""
        return [
            f"{layer.layer}: {layer.counts}{number(layer.before_ms)} -> {number(layer.after_ms)} ms"
            for layer in self.layers[:_MOST_LINES]
        ]

    @property
    def shared(self) -> str:
        """With whom the training shares its GPU, as the end of a phrase; empty if with none."""
        sharing = sharing_in_words(self.before.per_gpu, self.beside)
        return f", {sharing}" if sharing else ""

    @property
    def of_all(self) -> str:
        """That memory is of all trainings which share the GPU; empty of one."""
        return f" for all {self.before.per_gpu}" * (self.before.per_gpu > 1)

    @property
    def is_sure(self) -> bool:
        """Whether the interval of the ratio excludes 1, so that the sign of the change is sure."""
        return self.low > 1 or self.high < 1

    @property
    def sentence(self) -> str:
        """Change of the iteration's time with its interval, both times, and change of peak memory, in one sentence."""
        change = 100 * (self.ratio - 1)
        span = f"{100 * (self.low - 1):+.1f} to {100 * (self.high - 1):+.1f} %"
        gib = self.after.peak_memory_gib - self.before.peak_memory_gib
        times = f"{number(self.before.iteration_time_ms)} -> {number(self.after.iteration_time_ms)} ms"
        fits = "" if self.after.fits_in_memory else ", which does not fit"
        about = f"{self.gpu}, {batch_in_words(self.batch_size, is_usual=self.usual_batch_size)}{self.shared}"
        if self.low == self.high:
            same = number(self.after.iteration_time_ms)
            return f"{about}: the same operators, {same} ms."
        unsure = "" if self.is_sure else "; too small to be sure of its sign"
        return f"{about}: {change:+.1f} % time ({span}), {times}, {gib:+.2f} GiB{self.of_all}{fits}{unsure}."


def diff(before: Question, after: Question) -> list[Difference]:
    """Compare two CNNs on every GPU at every batch size of the questions, which are the same but for their CNN.

    Without a batch size at the usual one of both, or at that of the recorded step. SchemaError if one of the questions
    has several CNNs.
    """
    for question in (before, after):
        if len(ResolvedQuestion.of(question).tables) != 1:
            raise SchemaError("a change is from one CNN to another. Give one before and one after.")
    asked = before.batch_sizes or after.batch_sizes
    sizes = asked or [usual_batch_size(before, after)]
    before, after = (
        replace(question, batch_sizes=sizes) if question.batch_sizes is None else question
        for question in (before, after)
    )
    if list(before.batch_sizes) != list(after.batch_sizes):
        raise SchemaError(
            f"the recorded steps have batch sizes {before.batch_sizes} and {after.batch_sizes}. Record both at one."
        )
    splits_before, splits_after = _splits(before), _splits(after)
    own = (answer(question).rows()[: len(splits_before)] for question in (before, after))  # none beside it
    return [
        replace(
            _difference(row_before, row_after, splits_before[key], splits_after[key]),
            usual_batch_size=not asked,
            beside=before.beside,
        )
        for row_before, row_after in zip(*own, strict=True)
        for key in [(row_before.gpu, row_before.local_batch_size)]
    ]


class _Load(NamedTuple):
    """Operators of one kind in a CNN: how many, their class, and the roofline time of one in ms."""

    number: int
    operator_class: str
    roofline_ms: float


class _Split(NamedTuple):
    """GPU time by class of operators, and the load of each operator."""

    class_ms: dict[str, float]
    operators: dict[Operator, _Load]

    def roofline_ms(self, operator_class: str) -> float:
        """Roofline time of all operators of a class."""
        loads = (load for load in self.operators.values() if load.operator_class == operator_class)
        return sum(load.number * load.roofline_ms for load in loads)


def _splits(question: Question) -> dict[tuple[str, int], _Split]:
    """GPU time by class and loads of operators, by GPU and batch size."""
    resolved = ResolvedQuestion.of(question)
    [table] = resolved.tables
    sizes = sorted(set(resolved.local_sizes(question.batch_sizes)))
    anchors = resolved.anchors(table, resolved.training)
    forecasts = forecasts_of(resolved, table, resolved.devices, sizes, anchors)
    counts = operators_of(table)
    splits: dict[tuple[str, int], _Split] = {}
    for device, forecast in zip(resolved.devices, forecasts, strict=True):
        gpu, mode = device
        by_class = class_times_ms(forecast, table, device, sizes)
        for position, size in enumerate(sizes):
            class_ms = {name: float(values[position]) for name, values in by_class.items()}
            roofline_ms = operator_roofline_ms(list(counts), gpu, mode.precision, size)
            operators = {
                # an optimizer's update of any parameters is one operator, so that only its time differs
                replace(operator, parameters=0, n_tensors=1)
                if operator.type == "optimizer"
                else operator: _Load(int(count), operator_class(operator), ms)
                for (operator, count), ms in zip(counts.items(), roofline_ms, strict=True)
            }
            splits[gpu.name, size] = _Split(class_ms, operators)
    return splits


def _times_ms(split: _Split, alike: _Split) -> dict[Operator, float]:
    """GPU time of a CNN's operators; one that the other CNN has, too, takes as long there.

    A class's time is split by its operators' roofline times. The law gives a class another speed in each CNN. Shared
    operators get the speed of the CNN that has fewer others (the mean where both have the same), and the others what
    is left; where that is not within a factor of two of their own CNN's speed, they keep that, and the rest of the time
    belongs to no one layer.
    """
    times: dict[Operator, float] = {}
    for name, class_ms in split.class_ms.items():
        own_ms, alike_ms = split.roofline_ms(name), alike.roofline_ms(name)
        if not own_ms:
            continue
        loads = {operator: load for operator, load in split.operators.items() if load.operator_class == name}
        shared = {
            operator: min(load.number, alike.operators[operator].number)
            for operator, load in loads.items()
            if operator in alike.operators and operator.type != "optimizer"
        }
        shared_ms = sum(n_shared * loads[operator].roofline_ms for operator, n_shared in shared.items())
        own = class_ms / own_ms
        other = alike.class_ms.get(name, 0.0) / alike_ms if alike_ms else own
        common = own if own_ms < alike_ms else other if own_ms > alike_ms else (own + other) / 2
        left = (class_ms - common * shared_ms) / (own_ms - shared_ms) if own_ms > shared_ms else own
        left = left if own / 2 <= left <= 2 * own else own
        for operator, load in loads.items():
            n_shared = shared.get(operator, 0)
            times[operator] = load.roofline_ms * (common * n_shared + left * (load.number - n_shared))
    return times


def _difference(
    before: PredictionRow, after: PredictionRow, split_before: _Split, split_after: _Split
) -> Difference:
    splits = (split_before, split_after)
    times = (_times_ms(split_before, split_after), _times_ms(split_after, split_before))
    layers: list[LayerChange] = []
    differs, moved_ms = False, 0.0
    for operator in {**split_before.operators, **split_after.operators}:
        counts = [split.operators[operator].number if operator in split.operators else 0 for split in splits]
        layers.append(LayerChange(operator.name, *counts, *(ms.get(operator, 0.0) for ms in times)))
        differs |= counts[0] != counts[1]
        if operator.type == "optimizer" or counts[0] != counts[1]:
            moved_ms += layers[-1].moved_ms
    sums = [sum(split.class_ms.values()) for split in splits]
    is_unknown = differs and not moved_ms  # a regression knows no operators
    changed = 1.0 if is_unknown else min(1.0, moved_ms / max(sums))
    layers.sort(key=lambda layer: -layer.moved_ms)
    n_shown = sum(layer.moved_ms > _SHOWN * max(sums) for layer in layers)
    apart = (total_ms - sum(by_operator.values()) for total_ms, by_operator in zip(sums, times, strict=True))
    of_no_layer = LayerChange("of no one layer", 0, 0, *apart)
    shown, rest = layers[:n_shown], layers[n_shown:]
    (shown if of_no_layer.moved_ms > _ROUNDING * max(sums) else rest).append(of_no_layer)
    shown.sort(key=lambda layer: -layer.moved_ms)
    if shown and before.per_gpu > 1:
        waits = (row.iteration_time_ms - ms for row, ms in zip((before, after), sums, strict=True))
        shown.insert(0, LayerChange(_WAITING, 0, 0, *waits))
    ratio = after.iteration_time_ms / before.iteration_time_ms
    per_share = MEASURED if "layer-times" in after.method and "layer-times" in before.method else SPECIFIED
    half_width = math.hypot(NOISE, per_share * changed) if changed or not math.isclose(ratio, 1.0) else 0.0
    return Difference(
        gpu=before.gpu,
        batch_size=before.batch_size,
        before=before,
        after=after,
        ratio=ratio,
        low=ratio * math.exp(-half_width),
        high=ratio * math.exp(half_width),
        changed_share=changed,
        class_ms={
            name: (split_before.class_ms.get(name, 0.0), split_after.class_ms.get(name, 0.0))
            for name in {**split_before.class_ms, **split_after.class_ms}
        },
        layers=tuple(shown),
        rest=LayerChange.rest(rest),
    )
