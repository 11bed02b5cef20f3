"""The cheapest plan of training a CNN in the memory of GPUs: every plan is a change of the question, compared as any.

A plan is a mode, parts of the mini-batch that run one after the other, and blocks whose forward pass runs again. Memory
decides by its own law which plans fit, a knapsack which blocks run again, and the comparison ranks what is left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from predictor.answers.bounds import operator_roofline_ms
from predictor.answers.changes import fast_training, in_mode
from predictor.answers.compare import Comparer, Priced, with_trials
from predictor.answers.notes import Spoken, duration_estimate, estimate, percent
from predictor.answers.options import options_of
from predictor.answers.question import MiniBatch, Plan, Question, named
from predictor.answers.ranking import ComparisonRow, limits_in_words, place_of, short_offer
from predictor.answers.resolved import ResolvedQuestion
from predictor.catalogue.devices import Gpu, find_gpu, precisions_of, short_name
from predictor.catalogue.modes import MAX_PER_GPU, Mode, mode_in_words
from predictor.checks import number_within
from predictor.cnns.blocks import Block, block_levels
from predictor.cnns.layer_table import LayerTable, Step
from predictor.errors import OutOfRangeError, SchemaError, nearest
from predictor.models.data_parallel import Gradients
from predictor.operators.memory import bytes_of_parts, more_context_gib, peak_memory_gib, usable_gib
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

_SMALLEST = ("sgd", "momentum")  # optimizers that keep least
_NOT_USED = ("relative_to", "all_offers")  # options of a plan that rank, which say nothing of one plan
_OF_EPOCH = (
    *("iterations_per_epoch", "epoch_time_s", "epoch_low_s", "epoch_high_s", "usd_per_hour"),
    *("one_gpu_cost_usd", "cost_usd", "cost_low_usd", "cost_high_usd"),
    *("total_cost_usd", "total_low_usd", "total_high_usd"),
)  # fields of a row that one iteration has not
_NO_LIMIT_MIB = 1e9
_LEVELS = 200  # steps that the knapsack counts the bytes to save in
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
    lines of PyTorch that do it. Where no epoch was given, `row` is of one iteration, and has no epoch and no cost.
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
        row, blocks = self.row, self.recomputed
        changes = [mode_in_words(row.precision, row.memory_format)]
        if blocks:
            many = f"{len(blocks)} blocks from {blocks[0]} to {blocks[-1]}"
            changes.append(f"recompute {', '.join(blocks) if len(blocks) <= 3 else many}")
        if self.parts > 1:
            images = MiniBatch(row.local_batch_size, 1, self.parts).part
            changes.append(f"{self.parts} x {images:,} images")
        changes += [self.optimizer] * ("optimizer" in self.concessions)
        changes += [f"{row.image_size} pixels"] * ("image_size" in self.concessions)
        hours = (row.total_time_h, row.total_low_h, row.total_high_h)
        time = duration_estimate(*(3600 * value for value in hours))
        costs = [
            usd for usd in (row.total_cost_usd, row.total_low_usd, row.total_high_usd) if usd is not None
        ]
        time += f", US$ {estimate(*costs)}" if len(costs) == 3 else ""
        time += f" for all {row.trials:,} trainings of" if row.trials > 1 else " for"
        time += " an epoch" if row.epochs == 1 else f" {row.epochs:,} epochs"
        if row.epoch_time_s is None:
            time = f"{estimate(row.iteration_time_ms, row.low_ms, row.high_ms)} ms an iteration"
        gpu = find_gpu(row.gpu)
        is_whole = self.memory_gib == gpu.driver_memory_gib
        memory = gpu.memory_in_words if is_whole else f"{self.memory_gib:g} GiB"
        words = f"{' + '.join(changes)}: {row.peak_memory_gib:.1f} of {memory}"
        words += f" for the {row.per_gpu} trainings on each GPU" * (row.per_gpu > 1)
        words += f", {self._slower_in_words}" * bool(self.parts > 1 or blocks)
        machine = f"{row.gpus_used}x {short_name(row.gpu)}"
        machine += "" if row.usd_per_hour is None else f" at {short_offer(row.offer)}"
        return f"{words}, {time} on {machine}"

    @property
    def _slower_in_words(self) -> str:
        change = round(100 * (self.slower - 1))
        words = f"{abs(change)} % {'slower' if change > 0 else 'faster'} than" if change else "as fast as"
        return f"{words} with enough memory"


@dataclass(frozen=True, slots=True, repr=False)
class MemoryPlans(Spoken):
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


def fit_memory(
    question: Question, plan: Plan | None = None, memory_gib: float | None = None, allow: Iterable[str] = ()
) -> MemoryPlans:
    """Find the cheapest way to train a CNN at a mini-batch in the memory of GPUs, within budget and deadline.

    The question is about one CNN at its batch size, which stays. A precision, memory format, or number of GPUs that is
    given stays, too; without GPUs every one for rent is tried, with as many as an offer has. `memory_gib` may be used
    on each GPU, if less than it has: a part of a shared one. Without samples or a data set plans are ranked by the time
    of an iteration on as many GPUs as given, and have no cost.

    `allow` holds words of `ALLOWED`, which are tried in their order only where nothing else holds the limits.
    OutOfRangeError if no way fits; the message says how much is
    missing. SchemaError, UnknownCnnError or UnknownGpuError if the question makes no sense, has anchors, or is not
    about eager PyTorch, whose memory is estimated.

    A plan fills at most nine tenths of the memory (`predictor.operators.memory.USABLE_SHARE`). Blocks are chosen by a
    knapsack: the least forward time, by the roofline, that saves the bytes that are too many; the peak that decides is
    that of the whole step with these blocks recomputed.
    """
    search = _Search.of(question, plan or Plan(), memory_gib, tuple(allow))
    candidates: list[_Candidate] = []
    for variant in search.variants():
        candidates += variant.candidates()
        if any(candidate.row.holds_limits for candidate in candidates):
            break
    if not candidates:
        raise search.too_large()
    best = min(candidates, key=search.rank)
    without: dict[str, MemoryPlan | None] = {}
    for name in best.concessions:
        keeping = [candidate for candidate in candidates if name not in candidate.concessions]
        if name not in ALLOWED:
            without[name] = search.planned(min(keeping, key=search.rank)) if keeping else None
    return MemoryPlans(search.planned(best), without, limits_in_words(search.plan))


_ChoicesOf = Callable[["_Share"], Iterator["_Choices"]]


class _Choices(NamedTuple):
    """Parts of a mini-batch, blocks that are recomputed, and whether more GPUs than asked for share it."""

    parts: int
    blocks: tuple[Block, ...]
    shares: bool


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A way to train that fits, and its answer on a GPU."""

    variant: _Variant
    row: ComparisonRow
    choices: _Choices

    @property
    def concessions(self) -> tuple[str, ...]:
        """What it gives up."""
        question = self.variant.search.question
        gives_up = {
            "precision": question.precision is None and self.row.precision not in ("fp32", "tf32"),
            "accumulation": self.choices.parts > question.parts,
            "recomputing": bool(self.choices.blocks),
            "gpus": self.choices.shares and self.row.gpus_used > question.n_gpus,
        } | dict.fromkeys(self.variant.concessions, True)
        return tuple(name for name in CONCESSIONS if gives_up.get(name))


@dataclass(frozen=True, eq=False)
class _Search:
    """The question, and what all candidates share; `least` holds the GiB that the smallest too large ones need.

    `of_iteration`: no epoch was given, and the training is of one mini-batch.
    """

    question: Question
    plan: Plan
    gpus: dict[str, Gpu]
    allow: tuple[str, ...]
    of_iteration: bool = False
    least: list[tuple[float, str]] = field(default_factory=list)

    @classmethod
    def of(cls, question: Question, plan: Plan, memory_gib: float | None, allow: tuple[str, ...]) -> _Search:
        """Read the question; SchemaError where it leaves something open, or asks what no plan answers."""
        for word in allow:
            if word not in ALLOWED:
                error = SchemaError(f"{word!r} cannot be allowed. Nearest: {nearest(word, ALLOWED)}.")
                raise error.about("allow")
        for name in _NOT_USED:
            if getattr(plan, name):
                raise SchemaError(f"{named(name)} has no effect on a plan that fits. Leave it out.")
        sizes = question.batch_sizes
        refusals = (
            ("anchors", question.anchors,
             " are of one way to train, and a plan is chosen among many. Leave them out."),
            ("capture", question.capture != "eager",
             f" {question.capture!r}: plans are of eager training. Leave it out."),
            ("framework", question.framework != "pytorch",
             f" {question.framework!r}: memory is estimated, and plans are written, for pytorch."),
            ("batch_sizes", sizes is None or len(sizes) != 1,
             " is missing, or several: a plan keeps the mini-batch of the training. Pass one."),
            ("per_gpu", question.per_gpu == "auto",
             f" 'auto': a plan fits the memory of a number of trainings. Pass 1 to {MAX_PER_GPU}."),
        )  # fmt: skip
        for name, is_wrong, words in refusals:
            if is_wrong:
                option = "batch_size" if name == "batch_sizes" else name
                raise SchemaError(f"{named(option)}{words}").about(name)
        resolved = ResolvedQuestion.of(question, "compare")
        resolved.local_sizes(sizes)  # refuse what cannot be shared evenly
        most = math.inf if memory_gib is None else number_within(named("memory_gib"), memory_gib)
        gpus = {
            gpu.name: replace(gpu, driver_memory_mib=1024 * most) if most < gpu.driver_memory_gib else gpu
            for gpu, _ in resolved.devices
        }
        of_trials = with_trials(plan, question)
        if resolved.samples is not None:
            return cls(question, of_trials, gpus, allow)
        of_training = [name for name in options_of(Plan) if getattr(plan, name) != getattr(Plan(), name)]
        for name in (*of_training, "usd_per_hour"):
            if name in of_training or question.usd_per_hour is not None:
                raise SchemaError(
                    f"{named(name)} is of a whole training, which needs the samples of an epoch. "
                    f"Pass {named('samples')} or {named('data_set')}, too, or leave it out."
                ).about(name)
        return cls(replace(question, samples=sizes[0]), of_trials, gpus, allow, of_iteration=True)

    def variants(self) -> Iterator[_Variant]:
        """The training as asked, then what is allowed: another optimizer, and ever smaller images."""
        question, optimizers = self.question, [self.question.optimizer]
        if "optimizer" in self.allow and question.optimizer not in _SMALLEST:
            optimizers.append("momentum")
        side = _Variant(self, question, ()).table.image_size
        sides = [side]
        if "image_size" in self.allow:
            sides += [smaller for share in _SIDES if (smaller := int(share * side) // 32 * 32) > 0]
        for smaller, optimizer in product(dict.fromkeys(sides), optimizers):
            changed = ("optimizer",) * (optimizer != optimizers[0]) + ("image_size",) * (smaller != side)
            image_size = question.image_size if smaller == side else smaller
            yield _Variant(self, replace(question, optimizer=optimizer, image_size=image_size), changed)

    def rank(self, candidate: _Candidate) -> tuple[bool, float, float, float]:
        """A key that is least for the candidate that ranks first, as comparisons rank."""
        row, missed = candidate.row, max(0.0, candidate.row.misses_by or 0.0)
        if self.of_iteration:
            return (False, missed, row.iteration_time_ms, row.peak_memory_gib)
        cost = math.inf if row.total_cost_usd is None else row.total_cost_usd
        ranked = (cost, row.total_time_h) if self.plan.rank_by == "cost" else (row.total_time_h, cost)
        return (math.isinf(cost), missed, *ranked)

    def planned(self, candidate: _Candidate) -> MemoryPlan:
        """A candidate as users read it."""
        row, variant, (parts, blocks, _) = candidate.row, candidate.variant, candidate.choices
        code = []
        if "image_size" in variant.concessions:
            code.append(f"# images of {row.image_size} x {row.image_size} pixels")
        if "optimizer" in variant.concessions:
            code.append("# optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)")
        if row.precision == "fp32" and "tf32" in precisions_of(self.gpus[row.gpu]):
            code.append("# torch.backends.cudnn.allow_tf32 = False")
        if variant.question.float32_matmul_precision == "high":
            code.append('# torch.set_float32_matmul_precision("high")')
        code.append(code_of(row.precision, row.memory_format, parts, blocks, row.gpus_used))
        roomy = variant.unlimited(candidate)
        slower = row.total_time_h / roomy.total_time_h
        if self.of_iteration:
            slower = row.iteration_time_ms / roomy.iteration_time_ms
            no_epoch: dict[str, Any] = dict.fromkeys(_OF_EPOCH)
            row = replace(row, **no_epoch)
        return MemoryPlan(
            row=row,
            parts=parts,
            recomputed=tuple(block.name for block in blocks),
            optimizer=variant.question.optimizer,
            memory_gib=self.gpus[row.gpu].driver_memory_gib,
            slower=slower,
            concessions=candidate.concessions,
            code="\n".join(code),
        )

    def too_large(self) -> OutOfRangeError:
        """By how much the candidate that needs least is too large."""
        gib, gpu = min(self.least)
        [size] = self.question.batch_sizes
        helpless = self.allow + ("optimizer",) * (self.question.optimizer in _SMALLEST)
        more = [name for name in ALLOWED if name not in helpless]
        n, usable = int(self.question.per_gpu), usable_gib(self.gpus[gpu])
        shared = f" for the {n} trainings on it" * (n > 1)
        fewer = "fewer trainings on each GPU, " * (n > 1)
        return OutOfRangeError(
            f"{named('batch_size')} {size} needs at least {gib:.1f} GiB on {gpu}{shared}, even in parts and "
            f"recomputed; at most {usable:.1f} GiB (nine tenths) may be filled. Ask for a smaller batch size, "
            f"{fewer}GPUs with more memory{', or allow ' + ' or '.join(more) if more else ''}."
        ).about("batch_sizes")


@dataclass(frozen=True, eq=False)
class _Variant:
    """The training with an optimizer and an image size, in any mode, parts and blocks."""

    search: _Search
    question: Question
    concessions: tuple[str, ...]
    _blocks: dict[tuple[Mode, int, int, float], tuple[Block, ...] | None] = field(
        init=False, default_factory=dict
    )
    _saved: dict[tuple[tuple[Block, ...], str], list[float]] = field(init=False, default_factory=dict)

    @cached_property
    def resolved(self) -> ResolvedQuestion:
        """The question, looked up."""
        return ResolvedQuestion.of(self.question)

    @cached_property
    def table(self) -> LayerTable:
        """The CNN, all at once and nothing recomputed."""
        tables = ResolvedQuestion.of(replace(self.question, gradient_accumulation=1)).tables
        if len(tables) != 1:
            raise SchemaError("a plan is of one CNN. Ask once for each CNN.")
        return tables[0].without_recomputing()

    @cached_property
    def operators(self) -> Mapping[int, Operator]:
        """Operator of each layer, by its position."""
        return layer_operators(self.table)

    @cached_property
    def levels(self) -> list[tuple[Block, ...]]:
        """Blocks that may be recomputed, from stages down to modules."""
        return block_levels(self.table)

    def candidates(self) -> list[_Candidate]:
        """Each way that fits, with its answer on each GPU; recomputing is tried on GPUs that rank first without."""
        plain = self._answered(self.search.gpus.values(), self._plain)
        ranked = [candidate.row.gpu for candidate in sorted(plain, key=self.search.rank)]
        first = list(dict.fromkeys([*ranked, *self.search.gpus]))[:_RECOMPUTED_GPUS]
        return plain + self._answered([self.search.gpus[name] for name in first], self._with_recomputing)

    def _answered(self, gpus: Iterable[Gpu], choices_of: _ChoicesOf) -> list[_Candidate]:
        """Candidates of these GPUs: those of one mode and with the same choices are one comparison."""
        gpus_by_change: dict[tuple[str, str, _Choices], list[Gpu]] = {}
        for gpu in gpus:
            for mode in self._modes(gpu):
                choices = (choice for share in self._shares(gpu, mode) for choice in choices_of(share))
                for choice in dict.fromkeys(choices):
                    gpus_by_change.setdefault((mode.precision, mode.memory_format, choice), []).append(gpu)
        candidates = []
        for (precision, memory_format, choice), compared in gpus_by_change.items():
            comparer, trainings = self._comparer(precision, memory_format, choice, compared)
            ranked = trainings.ranked(trainings.fastest(trainings.usual))
            rows = comparer.rows(trainings, trainings.best_of_gpus(ranked))
            candidates += [_Candidate(self, row, choice) for row in rows if row.fits_in_memory]
        return candidates

    def _modes(self, gpu: Gpu) -> list[Mode]:
        """The mode as asked, and the fastest common one where the question leaves it open."""
        question = self.question
        modes = [self.resolved.training.on(gpu)]
        fast = fast_training(question, self.resolved.training, gpu)
        if fast is not None and question.step is None and question.precision in (None, fast.precision):
            memory_format = question.memory_format or fast.memory_format
            modes.append(replace(fast, memory_format=memory_format).on(gpu))
        return list(dict.fromkeys(modes))

    def _shares(self, gpu: Gpu, mode: Mode) -> Iterator[_Share]:
        """What the GPU holds of the mini-batch: all of it, and shared by as many GPUs as an offer has."""
        [size] = self.question.batch_sizes
        for n_gpus in self._counts(gpu):
            limit_gib = usable_gib(gpu, self.resolved.team.trainings)
            limit_gib -= Gradients.of(self.table).gib * (n_gpus > 1)
            mini_batch = MiniBatch(size, n_gpus)
            share = _Share(self, gpu, mode, mini_batch.local, n_gpus > self.question.n_gpus, limit_gib, {})
            for parts in self._parts(mini_batch):
                share.peaks_gib[parts] = share.peak_gib((), parts)
                if share.peaks_gib[parts] <= limit_gib:
                    break
            yield share

    def _counts(self, gpu: Gpu) -> list[int]:
        """GPUs that may share the mini-batch: as many as asked for, or powers of two up to those of an offer."""
        question = self.question
        if (
            self.search.of_iteration
            or question.n_gpus > 1
            or self.search.plan.trainings > 1
            or question.is_whole
        ):
            return [question.n_gpus]
        most = max((offer.gpu_count for offer in self.resolved.prices if offer.gpu == gpu.name), default=1)
        return [2**power for power in range(int(max(1, most)).bit_length())]

    def _parts(self, mini_batch: MiniBatch) -> list[int]:
        """Numbers of parts of equal size, each of clearly fewer images than the one before."""
        if self.question.step is not None or self.question.gradient_accumulation > 1:
            return [parts for parts in mini_batch.possible_parts if parts == self.question.parts]
        numbers: list[int] = []
        for parts in mini_batch.possible_parts:
            if not numbers or numbers[-1] <= _FEWER * parts:
                numbers.append(parts)
        return numbers

    @staticmethod
    def _plain(share: _Share) -> Iterator[_Choices]:
        """The fewest parts that fit without recomputing."""
        for parts, peak_gib in share.peaks_gib.items():
            if peak_gib <= share.limit_gib:
                yield _Choices(parts, (), share.is_shared)

    def _with_recomputing(self, share: _Share) -> Iterator[_Choices]:
        """The whole mini-batch with recomputing where it does not fit; on one GPU the most parts that do not, too."""
        short = [parts for parts, peak_gib in share.peaks_gib.items() if peak_gib > share.limit_gib]
        for parts in dict.fromkeys([*short[:1], *([] if share.is_shared else short[-1:])]):
            key = share.mode, share.images, parts, share.limit_gib
            if key not in self._blocks:
                self._blocks[key] = share.blocks(parts)
            if (blocks := self._blocks[key]) is not None:
                yield _Choices(parts, blocks, share.is_shared)

    def recomputing(self, blocks: Sequence[Block]) -> LayerTable:
        """The CNN with these blocks recomputed."""
        return self.table.recomputing([block.positions for block in blocks]) if blocks else self.table

    def saved_bytes(self, level: tuple[Block, ...], precision: str) -> list[float]:
        """Bytes per image that recomputing each block saves of what waits for the backward pass."""
        key = level, precision
        if key not in self._saved:
            kept = bytes_of_parts(self.recomputing(level), precision)
            self._saved[key] = [kept.get(number, 0.0) for number in range(1, len(level) + 1)]
        return self._saved[key]

    def _comparer(
        self, precision: str, memory_format: str, choices: _Choices, gpus: Sequence[Gpu]
    ) -> tuple[Comparer, Priced]:
        """The comparison of GPUs that train so."""
        cnn, parts = self.recomputing(choices.blocks), 1 if self.question.step is not None else choices.parts
        question = replace(self.question, cnn=cnn, image_size=None, gradient_accumulation=parts)
        resolved = ResolvedQuestion.of(in_mode(question, gpus, precision, memory_format), "compare")
        comparer = Comparer.of(resolved, self.search.plan, may_share=choices.shares)
        return comparer, comparer.trainings()

    def unlimited(self, candidate: _Candidate) -> ComparisonRow:
        """The same machine's answer with all the memory that the training as asked needs."""
        row = candidate.row
        gpu = replace(self.search.gpus[row.gpu], driver_memory_mib=_NO_LIMIT_MIB)
        choices = _Choices(self.question.parts, (), candidate.choices.shares)
        comparer, trainings = self._comparer(row.precision, row.memory_format, choices, [gpu])
        rows = comparer.rows(trainings, trainings.fastest(trainings.usual))
        return next(roomy for roomy in rows if place_of(roomy) == place_of(row))


@dataclass(frozen=True, eq=False)
class _Share:
    """What a GPU holds of a mini-batch in a mode: its images, and `peaks_gib` by parts, up to the first that fits.

    `limit_gib` may be filled; `is_shared`: more GPUs than asked for share the mini-batch.
    """

    variant: _Variant
    gpu: Gpu
    mode: Mode
    images: int
    is_shared: bool
    limit_gib: float
    peaks_gib: dict[int, float]

    def peak_gib(self, blocks: Sequence[Block], parts: int) -> float:
        """Peak memory of the images in parts, with these blocks recomputed; how often parts run takes no memory."""
        table = self.variant.recomputing(blocks)
        table = table if parts == table.parts else replace(table, step=Step(parts, parts))
        return peak_memory_gib(table, self.images, self.mode)

    @cached_property
    def _times_ms(self) -> dict[int, float]:
        operators = self.variant.operators
        ms = operator_roofline_ms(list(operators.values()), self.gpu, self.mode.precision, self.images)
        return dict(zip(operators, ms, strict=True))

    def time_ms(self, blocks: Sequence[Block]) -> float:
        """Roofline time of the blocks' layers; running them again takes a time proportional to it."""
        return sum(self._times_ms.get(position, 0.0) for block in blocks for position in block.positions)

    def blocks(self, parts: int) -> tuple[Block, ...] | None:
        """The blocks that must be recomputed for the images to fit, at the least time; None if none suffice."""
        levels = self.variant.levels
        fitting = [blocks for level in levels if (blocks := self._blocks_of(level, parts)) is not None]
        if fitting:
            return min(fitting, key=self.time_ms)
        least_gib = min([self.peaks_gib[parts], *(self.peak_gib(level, parts) for level in levels)])
        n = self.variant.resolved.team.trainings
        least_gib = n * (least_gib + more_context_gib(self.gpu) * (n > 1))
        self.variant.search.least.append((least_gib, self.gpu.name))
        return None

    def _blocks_of(self, level: tuple[Block, ...], parts: int) -> tuple[Block, ...] | None:
        """The blocks of a level that cost least and whose peak fits, none needless; None if all are too few."""
        images = self.images / parts
        saved_gib = [images * saved / 2**30 for saved in self.variant.saved_bytes(level, self.mode.precision)]
        time_ms = [self.time_ms([block]) for block in level]
        useful = [position for position, saved in enumerate(saved_gib) if saved > 0]
        need_gib = self.peaks_gib[parts] - self.limit_gib
        for _ in range(_TRIES):
            chosen = knapsack(saved_gib, time_ms, need_gib)
            chosen = useful if chosen is None else chosen
            blocks = tuple(level[position] for position in chosen)
            over_gib = self.peak_gib(blocks, parts) - self.limit_gib
            if over_gib <= 0:
                for block in sorted(blocks, key=lambda block: -self.time_ms([block]))[:_SPARED]:
                    fewer = tuple(kept for kept in blocks if kept is not block)
                    if self.peak_gib(fewer, parts) <= self.limit_gib:
                        blocks = fewer
                return blocks
            if len(chosen) == len(useful):
                return None
            need_gib += over_gib
        return None


def knapsack(saved: Sequence[float], cost: Sequence[float], need: float) -> list[int] | None:
    """Positions of the blocks that save at least `need` at the least cost; None if all of them save less.

    Savings are counted in two-hundredths of `need`, rounded down.
    """
    units = [int(_LEVELS * max(0.0, saving) / need) for saving in saved]
    best = np.full(_LEVELS + 1, np.inf)
    best[0] = 0.0
    takes = np.zeros((len(units), _LEVELS + 1), dtype=bool)
    reached = np.arange(_LEVELS + 1)
    for position, (unit, more) in enumerate(zip(units, cost, strict=True)):
        before = best[np.maximum(0, reached - unit)] + more if unit else np.full(_LEVELS + 1, np.inf)
        takes[position] = before < best
        best = np.minimum(best, before)
    if not np.isfinite(best[-1]):
        return None
    chosen, left = [], _LEVELS
    for position in reversed(range(len(units))):
        if takes[position, left]:
            chosen.append(position)
            left = max(0, left - units[position])
    return chosen[::-1]


_RECOMPUTED_STAGE = """\
def recomputed(x, layers={layers}):
    done = 0
    for first, last in {children}:
        x = checkpoint(layers[first : last + 1], layers[done:first](x), use_reentrant=False)
        done = last + 1
    return layers[done:](x)
{layers}.forward = recomputed"""
_AUTOCAST = {"amp_fp16": "torch.float16", "amp_bf16": "torch.bfloat16"}
_CHILD = re.compile(r"(?:(?P<parent>.+)\.)?(?P<child>\d+)(?:\..*)?")


def code_of(precision: str, memory_format: str, parts: int, blocks: Sequence[Block], n_gpus: int = 1) -> str:
    """Lines that change a `model`, and a function `train_step(images, labels)` with your `optimizer` and `criterion`.

    A GPU runs its images in `parts`, one after the other. `blocks` are recomputed, named as the model's modules; others
    are named in a comment. `n_gpus` share the images, each with a process. Images and labels come from the host's
    memory: the GPU holds those of one part at a time. PyTorch's allocator extends its segments, without which up to a
    fifth of what it reserves is idle (`plans` of `benchmarks/forecasts.csv`).
    """
    model = _model_lines(precision, memory_format, blocks, n_gpus)
    return "\n".join([*model, *_step_lines(precision, memory_format, parts, n_gpus)])


def _model_lines(precision: str, memory_format: str, blocks: Sequence[Block], n_gpus: int) -> Iterator[str]:
    yield "import os"
    yield 'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before the first tensor on the GPU'
    yield "import torch"
    if blocks:
        yield "from torch.utils.checkpoint import checkpoint"
    yield ""
    if precision == "fp16":
        yield "model = model.half()"
    if memory_format == "channels_last":
        yield "model = model.to(memory_format=torch.channels_last)"
    modules = [block.name for block in blocks if block.is_module]
    if modules:
        yield f"for name in {modules}:"
        yield "    block = model.get_submodule(name)"
        arguments = "*x"
        if any(block.joins for block in blocks):
            arguments = "*(list(each) if isinstance(each, list) else each for each in x)"
            yield "    # lists are copied: the model adds to them before the block runs again"
        yield f"    block.forward = lambda *x, run=block.forward: checkpoint(run, {arguments}, use_reentrant=False)"
    runs: dict[str, list[tuple[int, int]]] = {}
    for block in blocks:
        run = None if block.is_module else _run_of(block.name)
        if run is not None:
            runs.setdefault(run[0], []).append(run[1:])
        elif not block.is_module:
            yield f"# recompute the layers {block.name}: checkpoint(..., use_reentrant=False)"
    for parent, children in runs.items():
        yield _RECOMPUTED_STAGE.format(layers=f"model.get_submodule({parent!r})", children=children)
    if n_gpus > 1:
        yield f"model = torch.nn.parallel.DistributedDataParallel(model)  # torchrun --nproc-per-node {n_gpus}"


def _run_of(name: str) -> tuple[str, int, int] | None:
    """Parent and children of a stage that runs from one child of a `Sequential` to another, else None."""
    ends = [_CHILD.fullmatch(end) for end in name.split(" to ")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[0]["parent"] != ends[1]["parent"]:
        return None
    return ends[0]["parent"] or "", int(ends[0]["child"]), int(ends[1]["child"])


def _step_lines(precision: str, memory_format: str, parts: int, n_gpus: int) -> Iterator[str]:
    scaled = precision == "amp_fp16"
    if scaled:
        yield 'scaler = torch.amp.GradScaler("cuda")'
    yield from ("", "", "def train_step(images, labels):", "    optimizer.zero_grad()")
    margin, share = "    ", ""
    if parts > 1:
        yield f"    for images, labels in zip(images.chunk({parts}), labels.chunk({parts})):"
        margin, share = "        ", f" / {parts}"
        if n_gpus > 1:
            yield "        # all but the last part under model.no_sync()"
    to = '"cuda", torch.half' if precision == "fp16" else '"cuda"'
    to += ", memory_format=torch.channels_last" if memory_format == "channels_last" else ""
    yield f'{margin}images, labels = images.to({to}), labels.to("cuda")'
    loss_margin = margin
    if precision in _AUTOCAST:
        yield f'{margin}with torch.autocast("cuda", {_AUTOCAST[precision]}):'
        loss_margin += "    "
    yield f"{loss_margin}loss = criterion(model(images), labels){share}"
    yield f"{margin}{'scaler.scale(loss)' if scaled else 'loss'}.backward()"
    yield from ("    scaler.step(optimizer)", "    scaler.update()") if scaled else ("    optimizer.step()",)
