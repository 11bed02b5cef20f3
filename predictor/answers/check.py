"""Is a training's speed normal? Its time beside the answer's interval, and beside the answers with one thing changed.

Each suspected cause is the same question with one option changed, or a share of the same answer (GPU and host one after
the other, a slower host). The causes are ranked by how likely each makes the time that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from predictor.answers.answer import PredictionRow, answer_to
from predictor.answers.changes import (
    Change,
    batch_changes,
    habit_changes,
    habits_of,
    link_changes,
    mode_changes,
    parallel_changes,
    resizing_changes,
    worker_changes,
)
from predictor.answers.grid import usual_batch_size
from predictor.answers.notes import (
    REMEDIES,
    Spoken,
    batch_in_words,
    estimate,
    number,
    percent,
    rounded,
    rounded_duration,
    sharing_in_words,
    usd,
)
from predictor.answers.options import check_options, option
from predictor.answers.question import Question, named
from predictor.answers.resolved import ResolvedQuestion
from predictor.arrays import Array
from predictor.catalogue.modes import Habits
from predictor.catalogue.offers import hourly_usd
from predictor.errors import SchemaError
from predictor.models.forecast import TIMES as ITERATION_TIMES
from predictor.models.packed import packed_times

TIMES = ("images_per_s", "iteration_time_ms", "epoch_time_s")
"""How a speed is given: exactly one of these."""

_NORMAL_QUANTILE = 1.645  # of the ends of a 90 % interval
_NOTHING = "none"

_PRIOR = {
    "loading": 3.0,  # the commonest on forums
    **dict.fromkeys(("memory_format", "precision", "batch", "waits", "link", "parallel", "resizing"), 1.0),
    **dict.fromkeys(Habits._fields, 0.2),  # few leave them on
    **dict.fromkeys(("host", "gpu", "process", "validation", _NOTHING), 0.7),
}
"""Odds before anything is measured. They are stated, not fitted."""

_ANY_LOADER = (2.0, 0.6)
_SLOW_HOST = (1.8, 0.3)
_SLOW_GPU = (1.5, 0.3)
_SHARED_GPU = {1: 1.0, 2: 0.5, 3: 0.25}
_SHARING_SPREAD = 0.12
"""Odds of other trainings on the GPU by their number, and standard deviation of ln of the time that they take."""
_VALIDATION = (1.25, 0.15)
"""Median factor and standard deviation of its logarithm, of causes that no option describes."""

_TELLING = 3.0  # high over low end of the widest interval that tells whether a speed is normal
_ANYTHING = 1.2  # standard deviation of ln time where no setting explains it
_SLOWER = 1.05  # times the iteration as asked: below it nothing explains a slow one
_SEEN = 20.0  # odds of a cause that was seen
_WAITING = 0.1  # least share of the time spent waiting for the loader that makes loading the cause


_observed = partial(option, answers=("predict",))


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a training: exactly one of the three times, and what else was seen.

    `slowed_by` is what holds the GPU's clock down, as its driver says. SchemaError or OutOfRangeError if none or
    several are given, or one is not above 0.
    """

    images_per_s: float | None = _observed(None, "Its speed in images a second.", "number")
    iteration_time_ms: float | None = _observed(None, "Or milliseconds of an iteration.", "number")
    epoch_time_s: float | None = _observed(None, "Or seconds of an epoch.", "number")
    waiting_share: float | None = _observed(
        None, "Share of the time that the loop waits for its loader, 0 to 1.", "share"
    )
    slowed_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_options(self)
        times = [name for name in TIMES if getattr(self, name) is not None]
        if len(times) != 1:
            raise SchemaError(
                f"{' and '.join(map(named, times)) or 'no speed'} {'are' if times else 'is'} given. "
                f"Give one: {', '.join(map(named, TIMES))}."
            )


@dataclass(frozen=True, slots=True)
class Cause:
    """What may explain a speed.

    `name` is one of ``loading``, ``memory_format``, ``precision``, ``batch``, ``waits``, ``link``, ``parallel``,
    ``host``, ``gpu``, ``process``, ``validation``, ``deterministic``, ``detect_anomaly``, ``loop``, or ``none``: no
    setting explains it. With it an iteration takes
    `expected_ms` (90 % interval `low_ms` to `high_ms`). `probability` is among all causes. Mended, the training of the
    question is `saved_h` hours and `saved_usd` shorter, None where samples or price are unknown.
    """

    name: str
    what: str
    remedy: str
    expected_ms: float
    low_ms: float
    high_ms: float
    probability: float
    saved_h: float | None
    saved_usd: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Checkup(Spoken):
    """Whether a speed is normal.

    `verdict` is ``normal``, ``slow`` or ``fast``: inside, above or below the 90 % interval `low_ms` to `high_ms` of an
    iteration as asked; ``unsure`` inside an interval that spans more than three times, and `why` says what makes it
    wide. `causes` are ranked by probability; inside the interval there are only DataParallel, switches and loops that
    were asked.
    `usual_batch_size`: no batch size was given, and the CNN's usual one was taken. `sharing`: who shares the GPU.
    """

    verdict: str
    measured_ms: float
    normal_ms: float
    low_ms: float
    high_ms: float
    gpu: str
    batch_size: int
    causes: tuple[Cause, ...]
    why: str | None = None
    usual_batch_size: bool = False
    sharing: str = ""

    @property
    def factor(self) -> float:
        """Measured over normal time."""
        return self.measured_ms / self.normal_ms

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        normal = f"normal is {estimate(self.normal_ms, self.low_ms, self.high_ms)}"
        batch = batch_in_words(self.batch_size, is_usual=self.usual_batch_size)
        speed = f"{number(self.measured_ms)} ms an iteration at {batch} on {self.gpu}"
        speed += f", {self.sharing}" if self.sharing else ""
        if self.verdict == "normal":
            return f"Normal: {speed}, {normal}."
        if self.verdict == "unsure":
            return f"Too wide to tell: {speed}, {normal}, {rounded(self.high_ms / self.low_ms)} times wide. {self.why}"
        return f"{rounded(self.factor)} times normal, too {self.verdict}: {speed}, {normal}."

    def lines(self, most: int = 3) -> list[str]:
        """The likeliest causes, a line each, `most` at most; none where the speed is normal."""
        is_suspected = self.verdict in ("slow", "fast")  # else it was asked
        with_cause = f"an iteration {'then' if is_suspected else 'without it'} takes"
        lines = []
        for cause in self.causes[:most]:
            words = "look at what no option describes, such as other processes or the loop itself"
            if cause.name != _NOTHING:
                time = estimate(cause.expected_ms, cause.low_ms, cause.high_ms)
                words = f"{with_cause} {time} ms"
            if cause.saved_h and cause.saved_h > 0:
                money = "" if cause.saved_usd is None else f" and {usd(cause.saved_usd)}"
                words += f"; mending it saves {rounded_duration(3600 * cause.saved_h)}{money}"
            odds = f"{percent(cause.probability)} likely: " * is_suspected
            lines.append(f"{odds}{cause.what}; {words}. {cause.remedy}")
        return lines


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A cause with the time that it would give, the standard deviation of ln time, and the odds that evidence adds.

    `batch_size` is that of a change of the question.
    """

    name: str
    what: str
    remedy: str
    time_ms: float
    spread: float
    odds: float = 1.0
    batch_size: int = 0

    def weight(self, measured_ms: float) -> float:
        """Odds before the measurement times the likelihood of the measured time."""
        distance = math.log(measured_ms / self.time_ms) / self.spread
        return _PRIOR[self.name] * self.odds * math.exp(-0.5 * distance**2) / self.spread


@dataclass(frozen=True, slots=True)
class _Checked:
    """A question about one training, its speed, the rows of it and of those beside it, and the iteration measured."""

    question: Question
    speed: Speed
    rows: list[PredictionRow]
    measured_ms: float

    @property
    def row(self) -> PredictionRow:
        """The training's own."""
        return self.rows[0]

    def suspects(self, changes: Iterable[Change], odds: float = 1.0) -> Iterator[_Suspect]:
        """Changes of the question; not what lacks memory where the training as asked has enough."""
        for change in changes:
            row = change.row()
            if row.fits_in_memory or not self.row.fits_in_memory:
                words, time_ms = (change.name, change.what, change.remedy), row.iteration_time_ms
                yield _Suspect(*words, time_ms, _spread(row), odds, row.batch_size)


def check(question: Question, speed: Speed, epochs: int = 1) -> Checkup:
    """Say whether a speed is normal for a training, and what explains it best if not.

    The question is about one CNN on one GPU (or a team of them) at one batch size, the usual one if none is given, as
    it is believed to be trained, for `epochs` in all; SchemaError if it is about several, or an epoch's time is given
    without its samples.

    A cause's likelihood is log-normal around the answer with that cause, as wide as the answer's interval. The odds
    before the measurement are stated (loading three times as likely as any other), and the posterior is their product.
    """
    resolved = ResolvedQuestion.of(question, "predict")
    n_trainings = len(resolved.tables) * len(resolved.devices) * len(question.batch_sizes or [1])
    if n_trainings != 1:
        asks = f"a speed is that of one training, and this asks about {n_trainings}"
        raise SchemaError(f"{asks}. Give one CNN, GPU and batch size.")
    if question.batch_sizes is None:
        checkup = check(replace(question, batch_sizes=[usual_batch_size(question)]), speed, epochs)
        return replace(checkup, usual_batch_size=True)
    rows = answer_to(resolved).rows()
    row = rows[0]  # trainings beside it follow
    measured_ms = _iteration_ms(speed, row)
    verdict = "normal" if row.low_ms <= measured_ms <= row.high_ms else "slow"
    verdict = "fast" if measured_ms < row.low_ms else verdict
    checked = _Checked(question, speed, rows, measured_ms)
    gpu = row.gpu if row.gpus_used == 1 else f"{row.gpus_used}x {row.gpu}"
    times = measured_ms, row.iteration_time_ms, row.low_ms, row.high_ms
    causes, why = tuple(_paid_for(checked)) if verdict == "normal" else _ranked(checked, epochs), None
    if verdict == "normal" and row.high_ms > _TELLING * row.low_ms:
        verdict, why = "unsure", _why_wide(row)
    sharing = sharing_in_words(row.per_gpu, question.beside)
    return Checkup(verdict, *times, gpu, row.batch_size, causes, why, sharing=sharing)


def _why_wide(row: PredictionRow) -> str:
    """What makes a row's interval wide, and what narrows it, in a sentence each."""
    if not row.extrapolates:
        return f"The host is not known. {REMEDIES['host']}."
    widest = row.extrapolates[0]
    return f"{widest}." if widest.remedy is None else f"{widest}. To narrow it, {widest.remedy}."


def _paid_for(checked: _Checked) -> Iterator[Cause]:
    """How much faster the training is without the DataParallel, switches and loops that were asked about."""
    question = checked.question
    replicas = parallel_changes(question) if question.parallel == "dp" else ()
    words, [table] = "nn.DataParallel waits for one interpreter", ResolvedQuestion.of(question).tables
    replaced = (replace(change, what=words, remedy="DDP") for change in replicas)
    for change in (*replaced, *habits_of(question, table)):
        row = change.row()
        times = row.iteration_time_ms, row.low_ms, row.high_ms
        faster = checked.row.iteration_time_ms / row.iteration_time_ms
        if change.name == "parallel" or faster > _SLOWER:
            remedy = f"{change.remedy}: {rounded(faster)} x faster."
            yield Cause(change.name, change.what, remedy, *times, 1.0, None, None)


def _iteration_ms(speed: Speed, row: PredictionRow) -> float:
    """Measured time of an iteration; an epoch's time is divided by its iterations."""
    if speed.iteration_time_ms is not None:
        return speed.iteration_time_ms
    if speed.images_per_s is not None:
        return 1000.0 * row.batch_size / speed.images_per_s
    if row.epoch_time_s is None or row.iterations_per_epoch is None or speed.epoch_time_s is None:
        raise SchemaError(
            f"{named('epoch_time_s')} needs the samples of an epoch. "
            f"Pass {named('samples')} or {named('data_set')}, too."
        )
    return row.iteration_time_ms * speed.epoch_time_s / row.epoch_time_s


def _spread(row: PredictionRow) -> float:
    """Standard deviation of ln time that a row's 90 % interval means."""
    return math.log(row.high_ms / row.low_ms) / (2 * _NORMAL_QUANTILE)


def _suspects(checked: _Checked) -> Iterator[_Suspect]:
    """What may make the training slower or faster than asked: changes of the question, then shares of its answer."""
    question, row = checked.question, checked.row
    yield from checked.suspects(mode_changes(question))
    for suspect in checked.suspects(batch_changes(question, row.batch_size)):
        counted = checked.speed.iteration_time_ms is None
        factor = row.batch_size / suspect.batch_size if counted else 1.0
        yield replace(suspect, time_ms=factor * suspect.time_ms)
    slower = (
        *_loaders(checked),
        *checked.suspects((*resizing_changes(question), *habit_changes(question))),
        *checked.suspects(link_changes(question, row.link), 0.3),
        *_of_the_machine(checked),
    )
    yield from (suspect for suspect in slower if suspect.time_ms > _SLOWER * row.iteration_time_ms)
    for suspect in checked.suspects(parallel_changes(question)):
        faster = f": {rounded(suspect.time_ms / row.iteration_time_ms)} x faster." if suspect.remedy else ""
        yield replace(suspect, remedy=suspect.remedy + faster)
    remedy = "Profile it: epochcast.watch."
    yield _Suspect(_NOTHING, "no setting explains it", remedy, row.iteration_time_ms, _ANYTHING)


def _loaders(checked: _Checked) -> Iterator[_Suspect]:
    """Loaders that cannot keep up: fewer workers, or any where nothing of the data is known."""
    question, row, waiting = checked.question, checked.row, checked.speed.waiting_share
    remedy = "More workers, smaller stored images or lighter transforms."
    if waiting is not None:
        # without the waits an iteration is normal, or shorter: some waits overlap with the GPU
        time_ms = min(max(checked.measured_ms, row.training_time_ms), row.training_time_ms / (1 - waiting))
        what = f"the loop waits for its loader in {100 * waiting:.0f} % of the time"
        yield _Suspect("loading", what, remedy, time_ms, _spread(row), _SEEN if waiting >= _WAITING else 1.0)
    elif question.loader != "none" and question.data_set is None:
        time_ms, spread = _ANY_LOADER[0] * row.training_time_ms, _ANY_LOADER[1]
        yield _Suspect("loading", "its loader does not keep up", remedy, time_ms, spread)
    elif question.loader != "none":
        changes = worker_changes(question, remedy)
        yield from checked.suspects(changes, 1 / max(1, len(changes)))


def _of_the_machine(checked: _Checked) -> Iterator[_Suspect]:
    """What no option describes: GPU and host one after the other or slower, and an epoch of more than its training."""
    row, speed = checked.row, checked.speed
    gpu_ms, host_ms, spread = row.gpu_time_ms, row.host_time_ms, _spread(row)
    if gpu_ms is not None and host_ms is not None:
        what = "the loop waits for the GPU in each iteration (.item(), .cpu(), printing the loss)"
        time_ms = _together_ms(checked, gpu_ms + host_ms)
        yield _Suspect("waits", what, "Read losses every hundred iterations.", time_ms, spread)
        slow_ms, wide = host_ms * _SLOW_HOST[0], math.hypot(spread, _SLOW_HOST[1])
        what = "the host is slower than assumed"
        remedy = "Measure it with epochcast host; a larger batch, CUDA graphs or torch.compile need it less."
        yield _Suspect("host", what, remedy, _together_ms(checked, max(gpu_ms, slow_ms)), wide)
        slowed = f" ({', '.join(speed.slowed_by)})" if speed.slowed_by else ""
        what = f"the GPU is slower: low clock, power limit or heat{slowed}"
        slow_ms = _together_ms(checked, gpu_ms * _SLOW_GPU[0], gpu=_SLOW_GPU[0])
        wide = math.hypot(spread, _SLOW_GPU[1])
        remedy, odds = "Look at nvidia-smi -q -d PERFORMANCE,CLOCK.", _SEEN if speed.slowed_by else 1.0
        yield _Suspect("gpu", what, remedy, slow_ms, wide, odds)
        remedy, wide = "Look at the processes of nvidia-smi.", math.hypot(spread, _SHARING_SPREAD)
        for more, odds in _SHARED_GPU.items():
            who = "another process works" if more == 1 else f"{more} other processes work"
            what = f"{who} on the GPU, {number(more * gpu_ms)} ms in each iteration"
            slow_ms = _together_ms(checked, row.iteration_time_ms, more=more)
            yield _Suspect("process", what, remedy, slow_ms, wide, odds)
    is_plain = not (checked.question.validation_samples or checked.question.epoch_of_loop)
    if speed.epoch_time_s is not None and is_plain:
        what = "the epoch's time includes validation, logging or checkpoints"
        remedy = f"Pass {named('validation_samples')}, or time iterations."
        slow_ms, wide = row.iteration_time_ms * _VALIDATION[0], math.hypot(spread, _VALIDATION[1])
        yield _Suspect("validation", what, remedy, slow_ms, wide)


def _together_ms(checked: _Checked, time_ms: float, gpu: float = 1.0, more: int = 0) -> float:
    """An iteration that takes `time_ms` by itself, beside the other trainings on the GPU: those asked, and `more`.

    `gpu`: how many times as long the GPU takes each of them; the `more` are like the training.
    """
    row = checked.row
    trainings = [*(checked.rows * row.per_gpu)[: row.per_gpu], *[row] * more]
    times: list[dict[str, Array]] = []
    for training in trainings:
        gpu_ms, host_ms = gpu * np.array([training.gpu_time_ms]), np.array([training.host_time_ms])
        alone_ms = np.maximum(gpu_ms, host_ms) if times else np.array([time_ms])
        times.append(dict(zip(ITERATION_TIMES, [alone_ms] * 3 + [gpu_ms] * 3 + [host_ms], strict=True)))
    together = packed_times(times[0], np.array([len(times)]), neighbours=times[1:])
    return float(together["iteration_time_ms"][0])


def _ranked(checked: _Checked, epochs: int) -> tuple[Cause, ...]:
    """Causes by their probability, of each name the likeliest."""
    question, row, measured_ms = checked.question, checked.row, checked.measured_ms
    sign = 1 if measured_ms > row.iteration_time_ms else -1
    by_name: dict[str, list[tuple[float, _Suspect]]] = {}
    for suspect in _suspects(checked):
        if suspect.name == _NOTHING or suspect.time_ms * sign > row.iteration_time_ms * sign:
            by_name.setdefault(suspect.name, []).append((suspect.weight(measured_ms), suspect))
    total = sum(weight for weighted in by_name.values() for weight, _ in weighted)
    n = row.iterations_per_epoch
    hours = None if n is None else epochs * n * measured_ms / 3.6e6
    offer = ResolvedQuestion.of(question).cheapest_of([row.gpu]).get(row.gpu)
    usd_per_hour = None if offer is None else question.nodes * hourly_usd(offer, question.spot)
    causes = []
    for name, weighted in by_name.items():
        suspect = max(weighted, key=lambda pair: pair[0])[1]
        share = 0.0 if name == _NOTHING else 1 - row.iteration_time_ms / suspect.time_ms
        saved_h = None if hours is None else max(0.0, share) * hours
        saved_usd = None if saved_h is None or usd_per_hour is None else saved_h * usd_per_hour
        half_width, time_ms = _NORMAL_QUANTILE * suspect.spread, suspect.time_ms
        times = time_ms, time_ms * math.exp(-half_width), time_ms * math.exp(half_width)
        probability = sum(weight for weight, _ in weighted) / total
        causes.append(Cause(name, suspect.what, suspect.remedy, *times, probability, saved_h, saved_usd))
    return tuple(sorted(causes, key=lambda cause: -cause.probability))
