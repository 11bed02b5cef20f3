"""Is a training's speed normal? Its time beside the answer's interval, and beside the answers with one thing changed.

Each suspected cause is the same question with one option changed, or a share of the same answer (GPU and host one after
the other, a slower host). The causes are ranked by how likely each makes the time that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from predictor.answers.answer import PredictionRow, answer
from predictor.answers.asked import Asked
from predictor.answers.options import check_options, option
from predictor.answers.quantities import estimate, number, percent, rounded, rounded_duration, usd
from predictor.answers.question import Question, named
from predictor.catalogue.devices import Gpu, default_precision, precisions_of
from predictor.catalogue.links import Link, all_links, find_link
from predictor.catalogue.modes import chainer_lacks
from predictor.catalogue.offers import hourly_usd
from predictor.errors import SchemaError

TIMES = ("images_per_s", "iteration_time_ms", "epoch_time_s")
"""How a speed is given: exactly one of these."""

_NORMAL_QUANTILE = 1.645  # of the ends of a 90 % interval
_NOTHING = "none"

_PRIOR = {
    "loading": 3.0,  # the commonest on forums
    "memory_format": 1.0,
    "precision": 1.0,
    "batch": 1.0,
    "waits": 1.0,
    "link": 1.0,
    "host": 0.7,
    "gpu": 0.7,
    "process": 0.7,
    "validation": 0.7,
    _NOTHING: 0.7,
}
"""Odds before anything is measured. They are stated, not fitted."""

_ANY_LOADER = (2.0, 0.6)
_SLOW_HOST = (1.8, 0.3)
_SLOW_GPU = (1.5, 0.3)
_SHARED_GPU = (2.1, 0.12)
_VALIDATION = (1.25, 0.15)
"""Median factor and standard deviation of its logarithm, of causes that no option describes."""

_ANYTHING = 1.2  # standard deviation of ln time where no setting explains it
_WORKERS = (0, 1, 2, 4, 8)
_SEEN = 20.0  # odds of a cause that was seen
_WAITING = 0.1  # share of the time that a loop waits for its loader, from which loading is the cause


_seen = partial(option, answers=("predict",))


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a training: exactly one of the three times, and what else was seen.

    `slowed_by` is what holds the GPU's clock down, as its driver says. SchemaError or OutOfRangeError if none or
    several are given, or one is not above 0.
    """

    images_per_s: float | None = _seen(None, "Its speed in images a second.", "number")
    iteration_time_ms: float | None = _seen(None, "Or milliseconds of an iteration.", "number")
    epoch_time_s: float | None = _seen(None, "Or seconds of an epoch.", "number")
    waiting_share: float | None = _seen(
        None, "Share of the time that the loop waits for its loader, 0 to 1.", "share"
    )
    slowed_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_options(self)
        given = [name for name in TIMES if getattr(self, name) is not None]
        if len(given) != 1:
            raise SchemaError(
                f"{' and '.join(map(named, given)) or 'no speed'} {'are' if given else 'is'} given. "
                f"Give one: {', '.join(map(named, TIMES))}."
            )


@dataclass(frozen=True, slots=True)
class Cause:
    """What may explain a speed.

    `name` is one of ``loading``, ``memory_format``, ``precision``, ``batch``, ``waits``, ``link``, ``host``, ``gpu``,
    ``process``, ``validation``, or ``none``: no setting explains it. With it an iteration takes `expected_ms`
    (90 % interval `low_ms` to `high_ms`). `probability` is among all causes. Mended, the training of the question is
    `saved_h` hours and `saved_usd` shorter, None where samples or price are unknown.
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


@dataclass(frozen=True, slots=True)
class Checkup:
    """Whether a speed is normal.

    `verdict` is ``normal``, ``slow`` or ``fast``: inside, above or below the 90 % interval `low_ms` to `high_ms` of an
    iteration as asked. `causes` are ranked by probability; none where the speed is normal.
    """

    verdict: str
    measured_ms: float
    normal_ms: float
    low_ms: float
    high_ms: float
    gpu: str
    batch_size: int
    causes: tuple[Cause, ...]

    @property
    def factor(self) -> float:
        """Measured over normal time."""
        return self.measured_ms / self.normal_ms

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        normal = f"normal is {estimate(self.normal_ms, self.low_ms, self.high_ms)}"
        said = f"{number(self.measured_ms)} ms an iteration at batch {self.batch_size:,} on {self.gpu}"
        if self.verdict == "normal":
            return f"Normal: {said}, {normal}."
        pace = "slow" if self.verdict == "slow" else "fast"
        return f"{rounded(self.factor)} times normal, too {pace}: {said}, {normal}."

    def lines(self, most: int = 3) -> list[str]:
        """The likeliest causes, a line each."""
        return [
            f"{percent(cause.probability)}: {cause.what}, "
            + (
                f"{estimate(cause.expected_ms, cause.low_ms, cause.high_ms)} ms"
                if cause.name != _NOTHING
                else "look for what is not a setting"
            )
            + f"{_saved(cause)}. {cause.remedy}"
            for cause in self.causes[:most]
        ]


def _saved(cause: Cause) -> str:
    if not cause.saved_h or cause.saved_h <= 0:
        return ""
    money = "" if cause.saved_usd is None else f" and {usd(cause.saved_usd)}"
    return f"; mended saves {rounded_duration(3600 * cause.saved_h)}{money}"


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A cause with the time that it would give, the standard deviation of ln time, and the odds that evidence adds."""

    name: str
    what: str
    remedy: str
    time_ms: float
    spread: float
    odds: float = 1.0


def check(question: Question, speed: Speed, epochs: int = 1) -> Checkup:
    """Say whether a speed is normal for a training, and what explains it best if not.

    The question is about one CNN on one GPU (or a team of them) at one batch size, as it is believed to be trained, for
    `epochs` in all; SchemaError if it is about several, or an epoch's time is given without its samples.

    A cause's likelihood is log-normal around the answer with that cause, as wide as the answer's interval. The odds
    before the measurement are stated (loading three times as likely as any other), and the posterior is their product.
    """
    row = _only_row(question)
    measured_ms = _iteration_ms(speed, row)
    verdict = "normal" if row.low_ms <= measured_ms <= row.high_ms else "slow"
    verdict = "fast" if measured_ms < row.low_ms else verdict
    return Checkup(
        verdict=verdict,
        measured_ms=measured_ms,
        normal_ms=row.iteration_time_ms,
        low_ms=row.low_ms,
        high_ms=row.high_ms,
        gpu=row.gpu if row.gpus_used == 1 else f"{row.gpus_used}x {row.gpu}",
        batch_size=row.batch_size,
        causes=() if verdict == "normal" else _ranked(question, speed, row, measured_ms, epochs),
    )


def _only_row(question: Question) -> PredictionRow:
    if question.batch_sizes is None:
        raise SchemaError(f"{named('batch_size')} is missing: a speed is that of one batch size.").about(
            "batch_sizes"
        )
    rows = answer(question).rows()
    if len(rows) != 1:
        raise SchemaError(
            f"a speed is that of one training, and this asks about {len(rows)}. Give one CNN, GPU and batch size."
        )
    return rows[0]


def _iteration_ms(speed: Speed, row: PredictionRow) -> float:
    """The measured time of an iteration; an epoch's time is divided by its iterations."""
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


def _suspects(question: Question, speed: Speed, row: PredictionRow, measured_ms: float) -> Iterator[_Suspect]:
    """What may make the training slower or faster than asked."""
    spread = _spread(row)
    yield from _of_the_mode(question)
    yield from _of_the_batch(question, speed, row)
    yield from _of_the_loader(question, speed, row, measured_ms)
    yield from _of_the_link(question, row)
    gpu_ms, host_ms = row.gpu_time_ms, row.host_time_ms
    if gpu_ms is not None and host_ms is not None:
        yield _Suspect(
            "waits",
            "the loop waits for the GPU in each iteration (.item(), .cpu(), printing the loss)",
            "Read losses every hundred iterations.",
            max(gpu_ms + host_ms, row.iteration_time_ms),
            spread,
        )
        if host_ms * _SLOW_HOST[0] > row.iteration_time_ms:
            yield _Suspect(
                "host",
                "the host is slower than assumed",
                "Measure it with epochcast host; a larger batch, CUDA graphs or torch.compile need it less.",
                max(gpu_ms, host_ms * _SLOW_HOST[0]),
                math.hypot(spread, _SLOW_HOST[1]),
            )
        slowed = f" ({', '.join(speed.slowed_by)})" if speed.slowed_by else ""
        yield _Suspect(
            "gpu",
            f"the GPU is slower: low clock, power limit or heat{slowed}",
            "Look at nvidia-smi -q -d PERFORMANCE,CLOCK.",
            gpu_ms * _SLOW_GPU[0],
            math.hypot(spread, _SLOW_GPU[1]),
            _SEEN if speed.slowed_by else 1.0,
        )
        yield _Suspect(
            "process",
            "another process works on the GPU",
            "Look at the processes of nvidia-smi.",
            gpu_ms * _SHARED_GPU[0],
            math.hypot(spread, _SHARED_GPU[1]),
        )
    if speed.epoch_time_s is not None and not question.validation_samples:
        yield _Suspect(
            "validation",
            "the epoch's time includes validation, logging or checkpoints",
            f"Pass {named('validation_samples')}, or time iterations.",
            row.iteration_time_ms * _VALIDATION[0],
            math.hypot(spread, _VALIDATION[1]),
        )
    yield _Suspect(
        _NOTHING, "no setting explains it", "Profile it: epochcast.watch.", row.iteration_time_ms, _ANYTHING
    )


def _of_the_mode(question: Question) -> Iterator[_Suspect]:
    """Other precisions and memory formats than asked, of those that the framework has."""
    [(gpu, mode)] = Asked.of(question).devices
    amp, ours = mode.precision.startswith("amp"), (mode.precision, mode.memory_format)
    plain = default_precision(gpu, mode.framework)
    others: list[tuple[str, str, str, str, str]] = []
    if mode.memory_format == "channels_last":
        others.append((ours[0], "nchw", "memory_format", "NCHW instead of channels_last",
                       "Convert model and images by .to(memory_format=torch.channels_last)."))  # fmt: skip
    elif amp:
        others.append((ours[0], "channels_last", "memory_format", "channels_last, not NCHW", ""))
    if amp:
        others.append((plain, ours[1], "precision", f"{plain} instead of {ours[0]}",
                       "Run forward pass and loss under torch.autocast."))  # fmt: skip
    elif "amp_bf16" in precisions_of(gpu) and mode.precision in ("fp32", "tf32"):
        others.append(("amp_bf16", ours[1], "precision", "mixed precision, not asked", ""))
    if mode.precision == "tf32":
        others.append(("fp32", ours[1], "precision", "fp32 products instead of TF32",
                       "Leave torch.backends.cudnn.allow_tf32 on."))  # fmt: skip
    for precision, memory_format, *words in others:
        other = replace(mode, precision=precision, memory_format=memory_format)
        if mode.framework != "chainer" or chainer_lacks(other) is None:
            yield _in_mode(question, gpu, precision, memory_format, *words)


def _in_mode(
    question: Question, gpu: Gpu, precision: str, memory_format: str, name: str, what: str, remedy: str
) -> _Suspect:
    if precision != "tf32":
        question = replace(question, float32_matmul_precision=None, precision=None)
    other = question.in_mode([gpu], precision, memory_format)
    return _of_answer(other, name, what, remedy)


def _of_answer(question: Question, name: str, what: str, remedy: str, factor: float = 1.0) -> _Suspect:
    [row] = answer(question).rows()
    return _Suspect(name, what, remedy, factor * row.iteration_time_ms, _spread(row))


def _of_the_batch(question: Question, speed: Speed, row: PredictionRow) -> Iterator[_Suspect]:
    """Half and twice the batch; with several GPUs the batch of each instead of all."""
    if question.step is not None:
        return  # it knows its batch
    size, counted = row.batch_size, speed.iteration_time_ms is None
    others = {size * 2, *([size // 2] if size % (2 * question.n_gpus) == 0 else []), size * question.n_gpus}
    for other in sorted(others - {size}):
        factor = size / other if counted else 1.0
        yield _of_answer(
            replace(question, batch_sizes=[other]),
            "batch",
            f"batch {other:,} instead of {size:,}",
            "Compare images/s, not iterations.",
            factor,
        )


def _of_the_loader(
    question: Question, speed: Speed, row: PredictionRow, measured_ms: float
) -> Iterator[_Suspect]:
    """Loaders that cannot keep up: fewer workers, or any where nothing of the data is known."""
    remedy = "More workers, smaller stored images or lighter transforms."
    waiting = speed.waiting_share
    if (
        waiting is not None
    ):  # without the waits an iteration is normal, or shorter: some waits overlap with the GPU
        what = f"the loop waits for its loader in {100 * waiting:.0f} % of the time"
        odds = _SEEN if waiting >= _WAITING else 1.0
        time_ms = min(max(measured_ms, row.training_time_ms), row.training_time_ms / (1 - waiting))
        yield _Suspect("loading", what, remedy, time_ms, _spread(row), odds)
        return
    if question.loader == "none":
        return
    if question.data_set is None:
        factor, spread = _ANY_LOADER
        time_ms = factor * row.training_time_ms
        yield _Suspect("loading", "its loader does not keep up", remedy, time_ms, spread)
        return
    fewer = [n for n in _WORKERS if question.workers is None or n < question.workers]
    for n in fewer:
        other = replace(question, workers=n, machine_workers=None)
        suspect = _of_answer(other, "loading", f"loading by {n} workers keeps it waiting", remedy)
        if suspect.time_ms > 1.05 * row.iteration_time_ms:
            yield replace(suspect, odds=1 / len(fewer))


def _of_the_link(question: Question, row: PredictionRow) -> Iterator[_Suspect]:
    """Slower links between the GPUs."""
    if row.link is None:
        return
    used = find_link(row.link)
    for link in all_links():
        if link.joins == used.joins and _rate(link, question.n_gpus) < 0.7 * _rate(used, question.n_gpus):
            other = replace(question, link=link.name)
            suspect = _of_answer(
                other, "link", f"{link.name} between the GPUs, not {used.name}", "Look at nvidia-smi topo -m."
            )
            if suspect.time_ms > 1.05 * row.iteration_time_ms:
                yield replace(suspect, odds=0.3)


def _rate(link: Link, n_gpus: int) -> float:
    return link.bandwidth_gb_per_s(n_gpus)


def _ranked(
    question: Question, speed: Speed, row: PredictionRow, measured_ms: float, epochs: int
) -> tuple[Cause, ...]:
    """Causes by their probability, of each name the likeliest."""
    sign = 1 if measured_ms > row.iteration_time_ms else -1
    suspects = [
        suspect
        for suspect in _suspects(question, speed, row, measured_ms)
        if suspect.name == _NOTHING or suspect.time_ms * sign > row.iteration_time_ms * sign
    ]
    weights = [_weight(suspect, measured_ms) for suspect in suspects]
    total = sum(weights)
    best: dict[str, tuple[float, float, _Suspect]] = {}
    for weight, suspect in zip(weights, suspects, strict=True):
        together, top, kept = best.get(suspect.name, (0.0, -1.0, suspect))
        best[suspect.name] = (
            together + weight,
            max(top, weight),
            suspect if weight > top else kept,
        )
    hours, price = _training_h(row, measured_ms, epochs), _usd_per_hour(question, row)
    causes = [_cause(suspect, weight / total, row, hours, price) for weight, _, suspect in best.values()]
    return tuple(sorted(causes, key=lambda cause: -cause.probability))


def _weight(suspect: _Suspect, measured_ms: float) -> float:
    distance = math.log(measured_ms / suspect.time_ms) / suspect.spread
    return _PRIOR[suspect.name] * suspect.odds * math.exp(-0.5 * distance**2) / suspect.spread


def _cause(
    suspect: _Suspect, probability: float, row: PredictionRow, hours: float | None, price: float | None
) -> Cause:
    share = 0.0 if suspect.name == _NOTHING else 1 - row.iteration_time_ms / suspect.time_ms
    saved_h = None if hours is None else max(0.0, share) * hours
    half_width = _NORMAL_QUANTILE * suspect.spread
    return Cause(
        suspect.name,
        suspect.what,
        suspect.remedy,
        suspect.time_ms,
        suspect.time_ms * math.exp(-half_width),
        suspect.time_ms * math.exp(half_width),
        probability,
        saved_h,
        None if saved_h is None or price is None else saved_h * price,
    )


def _training_h(row: PredictionRow, measured_ms: float, epochs: int) -> float | None:
    """Hours of the whole training at the measured speed; None without samples."""
    if row.iterations_per_epoch is None:
        return None
    return epochs * row.iterations_per_epoch * measured_ms / 3.6e6


def _usd_per_hour(question: Question, row: PredictionRow) -> float | None:
    offer = Asked.of(question).cheapest.get(row.gpu)
    return None if offer is None else question.nodes * hourly_usd(offer, question.spot)
