"""The cheapest way to train a CNN in the memory that there is: every way is a question to the same comparison.

A way is a mode, parts of the mini-batch that run one after the other, and blocks whose forward pass runs again. Memory
decides by its own law which ways fit, a knapsack which blocks run again, and the comparison ranks what is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from predictor.answers.asked import Asked
from predictor.answers.bounds import operator_roofline_ms
from predictor.answers.changes import in_mode
from predictor.answers.compare import Comparer, Priced
from predictor.answers.plan_code import code_of
from predictor.answers.quantities import duration_estimate, estimate, percent
from predictor.answers.question import MiniBatch, Plan, Question, named
from predictor.answers.ranking import ComparisonRow, limits_in_words, place_of, short_offer
from predictor.catalogue.devices import Gpu, fast_mode_of, precisions_of, short_name
from predictor.catalogue.modes import Mode, mode_in_words
from predictor.checks import positive_number
from predictor.cnns.blocks import Block, block_levels
from predictor.cnns.layer_table import LayerTable, Step
from predictor.errors import OutOfRangeError, SchemaError, nearest
from predictor.models.data_parallel import Gradients
from predictor.operators.memory import USABLE_SHARE, bytes_of_parts, peak_memory_gib
from predictor.operators.operators import Operator, layer_operators

ALLOWED = ("optimizer", "image_size")
"""What changes the training itself, and is changed only where it is allowed: Adam's kin to momentum, smaller images."""

_IN_WORDS = {
    "precision": "mixed precision",
    "accumulation": "accumulation",
    "recomputing": "recomputing",
    "gpus": "several GPUs",
    "optimizer": "another optimizer",
    "image_size": "smaller images",
}
CONCESSIONS = tuple(_IN_WORDS)
"""What a plan may give up: 32-bit numbers, the mini-batch at once, kept activations, one GPU, and `ALLOWED`."""

_NOT_USED = ("relative_to", "all_offers")  # options of a plan that rank, which say nothing of one plan
_NO_LIMIT_GIB = 1e6
_LEVELS = 200  # of the bytes to save, by which blocks are chosen
_SPARED = 4  # blocks that are tried without, once the peak fits
_TRIES = 12  # of the bytes to save, until the peak itself fits
_SIDES = (7 / 8, 3 / 4, 5 / 8, 1 / 2)  # of the image side, in whole multiples of 32 pixels
_RECOMPUTED_GPUS = 4  # on which recomputing is tried
_FEWER = 0.75  # images of a part, at most, in those of the next larger


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """A way to train that fits.

    `row` is its answer, at `parts` of the mini-batch one after the other, with the blocks `recomputed` run again.
    Of `memory_gib` its peak fills at most nine tenths. `slower` is its time as a multiple of the same without parts and
    recomputing on a GPU of unlimited memory. `concessions` are the words of `CONCESSIONS` that it needs, `code` the
    lines of PyTorch that do it.
    """

    row: ComparisonRow
    parts: int
    recomputed: tuple[str, ...]
    optimizer: str
    memory_gib: float
    slower: float
    concessions: tuple[str, ...]
    code: str

    @property
    def words(self) -> str:
        """The plan in a line: ``AMP bf16 + recompute layer1 + 4 x 32 images``, what it needs, takes and costs."""
        row, again = self.row, self.recomputed
        ways = [mode_in_words(row.precision, row.memory_format)]
        ways += [f"recompute {_named(again)}"] if again else []
        ways += (
            [f"{self.parts} x {MiniBatch(row.local_batch_size, 1, self.parts).part:,} images"]
            if self.parts > 1
            else []
        )
        ways += [self.optimizer] if "optimizer" in self.concessions else []
        ways += [f"{row.image_size} pixels"] if "image_size" in self.concessions else []
        time = duration_estimate(
            *(3600 * hours for hours in (row.total_time_h, row.total_low_h, row.total_high_h))
        )
        words = f"{' + '.join(ways)}: {row.peak_memory_gib:.1f} of {self.memory_gib:g} GiB"
        words += f", {round(100 * (self.slower - 1)) + 0:+d} % time" if self.parts > 1 or again else ""
        return f"{words}, {time}{_cost(row)} on {_where(row)}"


@dataclass(frozen=True, slots=True)
class MemoryPlans:
    """The plan that ranks first, and by each of its concessions the best plan without it, None where none fits."""

    best: MemoryPlan
    without: dict[str, MemoryPlan | None]
    limits: str

    @property
    def sentence(self) -> str:
        """The best plan in a sentence."""
        row = self.best.row
        if not row.holds_limits:
            return f"No plan stays within {self.limits}; nearest: {self.best.words}."
        likely = "" if row.chance is None else f", {percent(row.chance)} within {self.limits}"
        return f"{self.best.words}{likely}."

    def lines(self) -> list[str]:
        """The best plan without each concession, a line each."""
        return [
            f"Without {_IN_WORDS[name]}: {'does not fit' if plan is None else plan.words}."
            for name, plan in self.without.items()
        ]


def _named(blocks: Sequence[str]) -> str:
    return ", ".join(blocks) if len(blocks) <= 3 else f"{len(blocks)} blocks from {blocks[0]} to {blocks[-1]}"


def _cost(row: ComparisonRow) -> str:
    if row.total_cost_usd is None or row.total_low_usd is None or row.total_high_usd is None:
        return ""
    return f", US$ {estimate(row.total_cost_usd, row.total_low_usd, row.total_high_usd)}"


def _where(row: ComparisonRow) -> str:
    gpus = f"{row.gpus_used}x {short_name(row.gpu)}"
    return gpus if row.usd_per_hour is None else f"{gpus} at {short_offer(row.offer)}"


def fit_memory(
    question: Question, plan: Plan | None = None, memory_gib: float | None = None, allow: Iterable[str] = ()
) -> MemoryPlans:
    """Find the cheapest way to train a CNN at a mini-batch in the memory of GPUs, within budget and deadline.

    The question is about one CNN at its batch size, which stays. A precision, memory format, or number of GPUs that is
    given stays, too; without GPUs every one for rent is tried, with as many as an offer has. `memory_gib` may be used
    on each GPU, if less than it has: a part of a shared one. `allow` holds words of `ALLOWED`, which are tried in their
    order only where nothing else holds the limits. OutOfRangeError if no way fits; the message says how much is
    missing. SchemaError, UnknownCnnError or UnknownGpuError if the question makes no sense, has anchors, or is not
    about eager PyTorch, whose memory is estimated.

    A plan fills at most nine tenths of the memory (`predictor.operators.memory.USABLE_SHARE`). Blocks are chosen by a
    knapsack: the least forward time, by the roofline, that saves the bytes that are too many; the peak that decides is
    that of the whole step with these blocks recomputed.
    """
    search = _Search.of(question, plan or Plan(), memory_gib, tuple(allow))
    found: list[_Way] = []
    for variant in search.variants():
        found += variant.ways()
        if any(way.row.holds_limits for way in found):
            break
    if not found:
        raise search.too_large()
    best = min(found, key=search.rank)
    without: dict[str, MemoryPlan | None] = {}
    for name in best.concessions:
        others = [way for way in found if name not in way.concessions]
        if name not in ALLOWED:
            without[name] = search.planned(min(others, key=search.rank)) if others else None
    return MemoryPlans(search.planned(best), without, limits_in_words(search.plan))


class _Choices(NamedTuple):
    """Parts of a mini-batch, blocks that are recomputed, and whether more GPUs than asked for share it."""

    parts: int
    blocks: tuple[Block, ...]
    shares: bool


@dataclass(frozen=True, eq=False)
class _Way:
    """A way to train, and its answer on a GPU."""

    variant: _Variant
    row: ComparisonRow
    choices: _Choices

    @property
    def concessions(self) -> tuple[str, ...]:
        """What it gives up."""
        asked, gives = self.variant.search.question, dict.fromkeys(CONCESSIONS, False)
        gives |= dict.fromkeys(self.variant.concessions, True)
        gives["precision"] = asked.precision is None and self.row.precision not in ("fp32", "tf32")
        gives["accumulation"] = self.choices.parts > asked.parts
        gives["recomputing"] = bool(self.choices.blocks)
        gives["gpus"] = self.choices.shares and self.row.gpus_used > asked.n_gpus
        return tuple(name for name, given in gives.items() if given)


@dataclass(frozen=True, eq=False)
class _Search:
    """The question, and what all its ways share."""

    question: Question
    plan: Plan
    gpus: dict[str, Gpu]
    usable_gib: dict[str, float]
    allow: tuple[str, ...]
    least: list[tuple[float, str]] = field(default_factory=list)

    @classmethod
    def of(cls, question: Question, plan: Plan, memory_gib: float | None, allow: tuple[str, ...]) -> _Search:
        """Read the question; SchemaError where it leaves something open, or asks what no plan answers."""
        for word in allow:
            if word not in ALLOWED:
                raise SchemaError(f"{word!r} cannot be allowed. Nearest: {nearest(word, ALLOWED)}.").about(
                    "allow"
                )
        for name in _NOT_USED:
            if getattr(plan, name):
                raise SchemaError(f"{named(name)} has no effect on a plan that fits. Leave it out.")
        if question.anchors:
            raise SchemaError(
                f"{named('anchors')} are of one way to train, and a plan is chosen among many. Leave them out."
            ).about("anchors")
        if question.capture != "eager":
            raise SchemaError(
                f"{named('capture')} {question.capture!r}: plans are of eager training. Leave it out."
            ).about("capture")
        if question.framework != "pytorch":
            raise SchemaError(
                f"{named('framework')} {question.framework!r}: memory is estimated, and plans are written, for pytorch."
            ).about("framework")
        if question.batch_sizes is None or len(question.batch_sizes) != 1:
            raise SchemaError(
                f"{named('batch_size')} is missing, or several: a plan keeps the mini-batch of the training. Pass one."
            ).about("batch_sizes")
        asked = Asked.of(question, "compare")
        asked.local_sizes(question.batch_sizes)  # refuse what cannot be shared evenly
        most = None if memory_gib is None else positive_number(named("memory_gib"), memory_gib)
        gpus = {gpu.name: gpu for gpu, _ in asked.devices if gpu.memory_gib is not None}
        if not gpus:
            raise SchemaError("the memory of these devices is not known. Ask about GPUs.").about("gpus")
        limits = {
            name: gpu.memory_gib if most is None else min(most, gpu.memory_gib) for name, gpu in gpus.items()
        }
        return cls(question, plan, gpus, {name: USABLE_SHARE * gib for name, gib in limits.items()}, allow)

    @property
    def _has_smaller(self) -> bool:
        """Whether momentum keeps less than the optimizer."""
        return self.question.optimizer not in ("sgd", "momentum")

    def variants(self) -> Iterator[_Variant]:
        """The training as asked, then what is allowed: another optimizer, and ever smaller images."""
        optimizers = [self.question.optimizer]
        if "optimizer" in self.allow and self._has_smaller:
            optimizers.append("momentum")
        first = _Variant(self, self.question, ())
        side = first.table.image_size
        sides = [side]
        if "image_size" in self.allow:
            sides += [smaller for share in _SIDES if (smaller := int(share * side) // 32 * 32) > 0]
        for smaller in dict.fromkeys(sides):
            for optimizer in optimizers:
                changed = ["optimizer"] * (optimizer != optimizers[0]) + ["image_size"] * (smaller != side)
                image_size = self.question.image_size if smaller == side else smaller
                asked = replace(self.question, optimizer=optimizer, image_size=image_size)
                yield _Variant(self, asked, tuple(changed))

    def rank(self, way: _Way) -> tuple[bool, float, float, float]:
        """A key that is least for the way that ranks first, as comparisons rank."""
        row, missed = way.row, max(0.0, way.row.misses_by or 0.0)
        cost = math.inf if row.total_cost_usd is None else row.total_cost_usd
        wanted = (cost, row.total_time_h) if self.plan.rank_by == "cost" else (row.total_time_h, cost)
        return (math.isinf(cost), missed, *wanted)

    def planned(self, way: _Way) -> MemoryPlan:
        """A way as users read it."""
        row, free, (parts, blocks, _) = way.row, way.variant.free(way), way.choices
        code = code_of(row.precision, row.memory_format, parts, blocks, row.gpus_used)
        return MemoryPlan(
            row=row,
            parts=parts,
            recomputed=tuple(block.name for block in blocks),
            optimizer=way.variant.question.optimizer,
            memory_gib=self.usable_gib[row.gpu] / USABLE_SHARE,
            slower=row.total_time_h / free.total_time_h,
            concessions=way.concessions,
            code="\n".join([*self._before(way), code]),
        )

    def _before(self, way: _Way) -> Iterator[str]:
        """What the training needs beside its model and its step."""
        row, question = way.row, way.variant.question
        if "image_size" in way.concessions:
            yield f"# images of {row.image_size} x {row.image_size} pixels"
        if "optimizer" in way.concessions:
            yield "# optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)"
        if row.precision == "fp32" and "tf32" in precisions_of(self.gpus[row.gpu]):
            yield "# torch.backends.cudnn.allow_tf32 = False"
        if question.float32_matmul_precision == "high":
            yield '# torch.set_float32_matmul_precision("high")'

    def too_large(self) -> OutOfRangeError:
        """By how much the way that needs least is too large."""
        gib, gpu = min(self.least)
        [size] = self.question.batch_sizes
        more = [
            name for name in ALLOWED if name not in self.allow and (name != "optimizer" or self._has_smaller)
        ]
        return OutOfRangeError(
            f"{named('batch_size')} {size} needs at least {gib:.1f} GiB on {gpu}, even in parts and recomputed; "
            f"at most {self.usable_gib[gpu]:.1f} GiB (nine tenths) may be filled. Ask for a smaller batch size, GPUs "
            f"with more memory{', or allow ' + ' or '.join(more) if more else ''}."
        ).about("batch_sizes")


@dataclass(frozen=True, eq=False)
class _Variant:
    """The training with an optimizer and an image size, in any mode, parts and blocks."""

    search: _Search
    question: Question
    concessions: tuple[str, ...]

    @cached_property
    def asked(self) -> Asked:
        """The question, looked up."""
        return Asked.of(self.question)

    @cached_property
    def table(self) -> LayerTable:
        """The CNN, all at once and nothing recomputed."""
        tables = Asked.of(replace(self.question, gradient_accumulation=1)).tables
        if len(tables) != 1:
            raise SchemaError("a plan is of one CNN. Ask once for each CNN.")
        return tables[0].without_recomputing()

    @cached_property
    def _levels(self) -> list[tuple[Block, ...]]:
        return block_levels(self.table)

    @cached_property
    def _chosen(self) -> dict[tuple[Mode, int, int, float], tuple[Block, ...] | None]:
        return {}

    @cached_property
    def _saved(self) -> dict[tuple[tuple[Block, ...], str], list[float]]:
        return {}

    @cached_property
    def _team_gib(self) -> float:
        return Gradients.of(self.table).gib

    def ways(self) -> list[_Way]:
        """Each way that fits, with its answer on each GPU; recomputing is tried on GPUs that rank first without."""
        plain = self._answered(self.search.gpus.values(), self._plain)
        ranked = [way.row.gpu for way in sorted(plain, key=self.search.rank)]
        first = list(dict.fromkeys([*ranked, *self.search.gpus]))[:_RECOMPUTED_GPUS]
        return plain + self._answered([self.search.gpus[name] for name in first], self._with_recomputing)

    def _answered(
        self, gpus: Iterable[Gpu], ways_of: Callable[[Gpu, Mode], Iterator[_Choices]]
    ) -> list[_Way]:
        wanted: dict[tuple[str, str, _Choices], list[Gpu]] = {}
        for gpu in gpus:
            for mode in self._modes(gpu):
                for choices in dict.fromkeys(ways_of(gpu, mode)):
                    wanted.setdefault((mode.precision, mode.memory_format, choices), []).append(gpu)
        return [
            way for key, some in wanted.items() for way in self._ways(*key, some) if way.row.fits_in_memory
        ]

    def _modes(self, gpu: Gpu) -> list[Mode]:
        """The mode as asked, and the fastest common one where the question leaves it open."""
        question = self.question
        modes = [self.asked.training.on(gpu)]
        fast = fast_mode_of(gpu, question.framework, question.memory_format or "nchw")
        if fast is not None and question.step is None:
            precision, memory_format = question.precision or fast[0], question.memory_format or fast[1]
            if precision == fast[0]:
                modes.append(replace(modes[0], precision=precision, memory_format=memory_format))
        return list(dict.fromkeys(modes))

    def _plain(self, gpu: Gpu, mode: Mode) -> Iterator[_Choices]:
        """The fewest parts that fit without recomputing, on one GPU and on several."""
        for shares, _, limit, peaks in self._peaks(gpu, mode):
            enough = [parts for parts, peak in peaks.items() if peak <= limit]
            if enough:
                yield _Choices(enough[0], (), shares)

    def _with_recomputing(self, gpu: Gpu, mode: Mode) -> Iterator[_Choices]:
        """The whole mini-batch with recomputing where it does not fit; on one GPU the most parts that do not, too."""
        for shares, local, limit, peaks in self._peaks(gpu, mode):
            short = [parts for parts, peak in peaks.items() if peak > limit]
            for parts in dict.fromkeys([*short[:1], *([] if shares else short[-1:])]):
                blocks = self._blocks(gpu, mode, local, parts, limit)
                if blocks is not None:
                    yield _Choices(parts, blocks, shares)

    def _peaks(self, gpu: Gpu, mode: Mode) -> Iterator[tuple[bool, int, float, dict[int, float]]]:
        """Whether GPUs share, images of one, GiB that it may fill, and the peak by parts, up to the first that fits."""
        [size] = self.question.batch_sizes
        for n_gpus in self._counts(gpu):
            limit = self.search.usable_gib[gpu.name] - self._team_gib * (n_gpus > 1)
            whole, peaks = MiniBatch(size, n_gpus), dict[int, float]()
            for parts in self._parts(whole):
                peaks[parts] = self.peak_gib((), parts, whole.local, mode)
                if peaks[parts] <= limit:
                    break
            yield n_gpus > self.question.n_gpus, whole.local, limit, peaks

    def _counts(self, gpu: Gpu) -> list[int]:
        """GPUs that may share the mini-batch: as many as asked for, or powers of two up to those of an offer."""
        question = self.question
        if question.n_gpus > 1 or self.search.plan.trials > 1 or question.is_whole:
            return [question.n_gpus]
        most = max((offer.gpu_count for offer in self.asked.prices if offer.gpu == gpu.name), default=1)
        return [2**power for power in range(int(max(1, most)).bit_length())]

    def _parts(self, whole: MiniBatch) -> list[int]:
        """Numbers of parts of equal size, each of clearly fewer images than the one before."""
        if self.question.step is not None or self.question.gradient_accumulation > 1:
            return [parts for parts in whole.possible_parts if parts == self.question.parts]
        found: list[int] = []
        for parts in whole.possible_parts:
            if not found or found[-1] <= _FEWER * parts:
                found.append(parts)
        return found

    def _recomputing(self, blocks: Sequence[Block]) -> LayerTable:
        return self.table.recomputing([block.positions for block in blocks]) if blocks else self.table

    def peak_gib(self, blocks: Sequence[Block], parts: int, local: int, mode: Mode) -> float:
        """Peak memory of a GPU's images in parts, with these blocks recomputed; how often parts run takes no memory."""
        table = self._recomputing(blocks)
        table = table if parts == table.parts else replace(table, step=Step(parts, parts))
        return peak_memory_gib(table, local, mode)

    @cached_property
    def operators(self) -> dict[int, Operator]:
        """Operator of each layer, by its position."""
        return layer_operators(self.table)

    def _blocks(self, gpu: Gpu, mode: Mode, local: int, parts: int, limit: float) -> tuple[Block, ...] | None:
        """The blocks that must be recomputed for a GPU's images to fit, at the least time; None if none suffice."""
        key = mode, local, parts, limit
        if key in self._chosen:
            return self._chosen[key]
        peak = self.peak_gib((), parts, local, mode)
        choices = [_Choice(self, level, gpu, mode, local, parts, limit, peak) for level in self._levels]
        fitting = [
            (choice.time(blocks), blocks) for choice in choices if (blocks := choice.blocks()) is not None
        ]
        if not fitting:
            least = min([peak, *(choice.peak(choice.level) for choice in choices)])
            self.search.least.append((least, gpu.name))
        self._chosen[key] = found = min(fitting, key=lambda each: each[0])[1] if fitting else None
        return found

    def saved_bytes(self, level: tuple[Block, ...], precision: str) -> list[float]:
        """Bytes per image that recomputing each block saves of what waits for the backward pass."""
        key = level, precision
        if key not in self._saved:
            kept = bytes_of_parts(self._recomputing(level), precision)
            self._saved[key] = [kept.get(part, 0.0) for part in range(1, len(level) + 1)]
        return self._saved[key]

    def _comparer(
        self, precision: str, memory_format: str, choices: _Choices, gpus: Sequence[Gpu]
    ) -> tuple[Comparer, Priced]:
        """The comparison of GPUs that train so."""
        question = replace(
            self.question,
            cnn=self._recomputing(choices.blocks),
            image_size=None,
            gradient_accumulation=1 if self.question.step is not None else choices.parts,
        )
        question = in_mode(question, gpus, precision, memory_format)
        comparer = Comparer.of(Asked.of(question, "compare"), self.search.plan, may_share=choices.shares)
        return comparer, comparer.priced(*comparer.answers())

    def _ways(self, precision: str, memory_format: str, choices: _Choices, gpus: Sequence[Gpu]) -> list[_Way]:
        usable = [replace(gpu, memory_gib=self.search.usable_gib[gpu.name]) for gpu in gpus]
        comparer, priced = self._comparer(precision, memory_format, choices, usable)
        return [_Way(self, row, choices) for row in comparer.rows(priced, priced.best_of_gpus)]

    def free(self, way: _Way) -> ComparisonRow:
        """The same machine's answer with all the memory that the training as asked needs."""
        row = way.row
        roomy = replace(self.search.gpus[row.gpu], memory_gib=_NO_LIMIT_GIB)
        as_asked = _Choices(self.question.parts, (), way.choices.shares)
        comparer, priced = self._comparer(row.precision, row.memory_format, as_asked, [roomy])
        return next(each for each in comparer.rows(priced, priced.order) if place_of(each) == place_of(row))


@dataclass(frozen=True, eq=False)
class _Choice:
    """Which blocks of a level are recomputed, so that the peak of a GPU's images fits."""

    variant: _Variant
    level: tuple[Block, ...]
    gpu: Gpu
    mode: Mode
    local: int
    parts: int
    limit_gib: float
    peak_gib: float

    def peak(self, blocks: Sequence[Block]) -> float:
        """Peak memory in GiB with these blocks recomputed."""
        return self.variant.peak_gib(blocks, self.parts, self.local, self.mode)

    def time(self, blocks: Sequence[Block]) -> float:
        """Time of the blocks' layers by the roofline, in ms, to which running them again is proportional."""
        return sum(self._times[position] for block in blocks for position in block.positions)

    @cached_property
    def _times(self) -> list[float]:
        operators = self.variant.operators
        ms = operator_roofline_ms(list(operators.values()), self.gpu, self.mode.precision, self.local)
        of_position = dict(zip(operators, ms, strict=True))
        return [of_position.get(position, 0.0) for position in range(len(self.variant.table))]

    @cached_property
    def _saved_gib(self) -> list[float]:
        images = self.local / self.parts
        return [images * saved / 2**30 for saved in self.variant.saved_bytes(self.level, self.mode.precision)]

    def blocks(self) -> tuple[Block, ...] | None:
        """The blocks that cost least and whose peak fits; None if not even all suffice."""
        need = self.peak_gib - self.limit_gib
        for _ in range(_TRIES):
            chosen = knapsack(self._saved_gib, [self.time([block]) for block in self.level], need)
            if chosen is None:
                chosen = [place for place, saved in enumerate(self._saved_gib) if saved > 0]
            found = tuple(self.level[place] for place in chosen)
            over = self.peak(found) - self.limit_gib
            if over <= 0:
                return self._without_needless(found)
            if len(chosen) == sum(saved > 0 for saved in self._saved_gib):
                return None
            need += over
        return None

    def _without_needless(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """The blocks but for those without which the peak fits, too, the dearest first."""
        for block in sorted(blocks, key=lambda each: -self.time([each]))[:_SPARED]:
            fewer = tuple(each for each in blocks if each is not block)
            if self.peak(fewer) <= self.limit_gib:
                blocks = fewer
        return blocks


def knapsack(saved: Sequence[float], cost: Sequence[float], need: float) -> list[int] | None:
    """Places of the items that save at least `need` at the least cost; None if all of them save less.

    Savings are counted in two-hundredths of `need`, rounded down.
    """
    units = [int(_LEVELS * max(0.0, each) / need) for each in saved]
    best = np.full(_LEVELS + 1, np.inf)
    best[0] = 0.0
    takes = np.zeros((len(units), _LEVELS + 1), dtype=bool)
    reached = np.arange(_LEVELS + 1)
    for place, (unit, more) in enumerate(zip(units, cost, strict=True)):
        before = best[np.maximum(0, reached - unit)] + more if unit else np.full(_LEVELS + 1, np.inf)
        takes[place] = before < best
        best = np.minimum(best, before)
    if not np.isfinite(best[-1]):
        return None
    chosen, left = [], _LEVELS
    for place in reversed(range(len(units))):
        if takes[place, left]:
            chosen.append(place)
            left = max(0, left - units[place])
    return chosen[::-1]
