"""Predicted beside actual: watches a training, says what is left and why it differs, and keeps a measurement."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from os import PathLike
from pathlib import Path
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any, Unpack

from epochcast.budgets import CHECKPOINT, STOP, Limit
from epochcast.signatures import takes_options
from epochcast.torch_device import FirstBatch, Team, TorchDevice, images_in, is_module, layers_of, team_of
from predictor.answers.answer import PredictionRow, answer
from predictor.answers.check import Speed, check
from predictor.answers.notes import duration, number, percent, usd
from predictor.answers.options import options_of
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.catalogue.devices import is_cpu
from predictor.catalogue.offers import Prices, hourly_usd
from predictor.checks import as_list, whole_number
from predictor.errors import BudgetExceededError, EpochcastError, SchemaError
from predictor.measurements.hosts import WATCHED
from predictor.models.hosts import host_cnn_ms

if TYPE_CHECKING:
    from epochcast.arguments import Cnn
    from epochcast.typed_options import WatchOptions

_WARM_UP = 5  # iterations that are not counted: workers start, algorithms are chosen
_WAITS = 0.1  # least share of time in which an idle device waits for the loader that is given as a reason
_ANSWERED = ("gpu", "cnn", "image_size", "batch_size", "precision", "memory_format", "framework")
_RAN = ("autotune", "capture", "optimizer", "n_gpus", "float32_matmul_precision")
"""Columns that tell a measurement from others, as answered and as it ran: an equal one is replaced."""
_TIMES = ("iteration_time_ms", "low_ms", "high_ms")
_MOST = 0.999  # of a waiting share
_IDLE = 0.9  # least share of iterations that find the device done where the host may decide
_DECIDED = 1.25  # least ratio of an iteration to the upper end of its GPU time where the host decides
_NEAR = 1.1  # largest ratio of actual and predicted time, either way, that counts as agreement


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The watched iteration on another GPU; `why_not` says why there is no forecast.

    `method` is ``anchored`` where the measured time moves the forecast; where layers of that GPU were measured, these
    decide.
    """

    gpu: str
    iteration_time_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    method: str | None = None
    why_not: str | None = None

    def __str__(self) -> str:
        if self.iteration_time_ms is None:
            return f"on {self.gpu} not forecast: {(self.why_not or '').rstrip('.')}"
        interval = f"({number(self.low_ms)}-{number(self.high_ms)})"
        return f"on {self.gpu} {number(self.iteration_time_ms)} ms {interval}, {self.method}"


@dataclass(frozen=True, slots=True)
class Watched:
    """Predicted beside actual, after some iterations of a training.

    `waiting_share` is the share of the time in which the loop waited for a batch while the device was idle. Predicted
    times are None where `not_predicted` says why. `left_s` and `left_usd` are None where the training's length or the
    price is not known. `limit` says whether the run ends within its budget and deadline; empty without them.
    """

    iterations: int
    iteration_time_ms: float
    waiting_share: float
    gpu: str
    predicted_ms: float | None
    low_ms: float | None
    high_ms: float | None
    not_predicted: str | None
    why: tuple[str, ...]
    left_s: float | None
    left_usd: float | None
    limit: str = ""
    on: tuple["Elsewhere", ...] = ()

    def __str__(self) -> str:
        text = f"epochcast: {number(self.iteration_time_ms)} ms an iteration on {self.gpu}"
        if self.predicted_ms is not None:
            text += f", predicted {number(self.predicted_ms)} ({number(self.low_ms)}-{number(self.high_ms)})"
        elif self.not_predicted is not None:
            text += f"; not predicted: {self.not_predicted.rstrip('.')}"
        text += "".join(f"; {reason}" for reason in self.why)
        text += "".join(f"; {elsewhere}" for elsewhere in self.on)
        if self.left_s:
            cost = "" if self.left_usd is None else f" and {usd(self.left_usd)}"
            text += f"; {duration(self.left_s)}{cost} left"
        text += f"; {self.limit}" if self.limit else ""
        return f"{text}."


@takes_options(Question, answer="watch")
def watch(
    batches: Iterable[Any],
    /,
    model: "Cnn | None" = None,
    *,
    epochs: int = 1,
    gpu: str | None = None,
    out: str | PathLike[str] | None = None,
    report_after: int = 50,
    usd_per_hour: float | None = None,
    on: str | Sequence[str] = (),
    budget_usd: float | str | None = None,
    deadline: float | str | None = None,
    on_exceeded: str | Callable[[Watched], object] = STOP,
    **options: "Unpack[WatchOptions]",
) -> "WatchedLoader":
    """Watch a training: iterate over what this returns instead of your loader.

    Parameters
    ----------
    batches : iterable
        Such as a PyTorch `DataLoader`; its batches come through unchanged.
    model : torch.nn.Module, str or LayerTable, optional
        What is trained: the module, whose first forward pass shows precision and memory format; or a zoo name.
        Without it nothing is predicted.
    epochs : int
        How often the loader will be run through, for the time and cost that are left.
    gpu : str, optional
        The device that trains; by default the module's.
    out : path, optional
        A measurement table to add this training to; `measurements` of `predict` and `compare` takes it, and the
        next prediction of this CNN is anchored on it. Where the host decides the iteration, `host` takes it, too, for
        any CNN. Nothing is kept where the device waits for the loader, and of several machines, which the table does
        not know.
    report_after : int
        Iterations, beside the first five, after which a line is printed; one more ends each epoch.
    usd_per_hour : float, optional
        Price of the machine; by default that of the cheapest offer with this GPU.
    on : str or list of str
        GPUs, such as ``["H100 SXM", "T4"]``, on which the iteration is forecast, too: the measured time is an
        anchor, so the training must run on one known GPU and not wait for its loader.
    budget_usd : float, optional
        What the run may cost, from the first batch on, at `usd_per_hour`, which is above 0.
    deadline : float or str, optional
        Hours that it may take, or ``"90min"``, ``"6h"``, ``"2d"``.
    on_exceeded : str or callable
        ``"stop"``: an epoch that would pass the limit is not begun: the loop gets a BudgetExceededError, after what
        it saved. A function is called with the last `Watched` at the limit, within an epoch, too; the run goes on
        unless it ends it, such as by ``CancelFitException`` of fastai or ``model.stop_training = True`` of Keras.
    **options
        Those of `predictor.answers.question.Question`; they replace what was seen: of a module, also whether it is
        compiled and how many GPUs train it (processes of `torch.distributed`, or DataParallel's).

    Returns
    -------
    WatchedLoader
        Its attribute `watched` holds the last `Watched`.

    Raises
    ------
    SchemaError
        If an option is unknown or makes no sense, or a budget has no price. What cannot be predicted is said in the
        line; training goes on.
    BudgetExceededError
        By the loop over the returned loader, where an epoch would pass the limit.

    Examples
    --------
    >>> import epochcast
    >>> loader = epochcast.watch(range(20))
    >>> sum(loader)
    epochcast: ... ms an iteration on ...; not predicted: no model is given...
    190
    """
    samples, workers = length_of(getattr(batches, "dataset", None)), getattr(batches, "num_workers", None)
    limit = Limit(budget_usd, deadline, on_exceeded)
    more = (gpu, out, report_after, usd_per_hour, on, limit, options)
    watching = Watch(model, length_of(batches), epochs, samples, workers, *more)
    watching.takes_price()
    if on_exceeded == CHECKPOINT:
        raise SchemaError(
            "on_exceeded 'checkpoint' is for epochcast.lightning_callback and trainer_callback, which can save. Pass a "
            "function that saves and ends your loop, or 'stop'."
        )
    return WatchedLoader(batches, watching)


class WatchedLoader:
    """A loader whose loop is watched; see `watch`."""

    def __init__(self, loader: Iterable[Any], watching: "Watch") -> None:
        self._loader, self._watch = loader, watching

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        if self._watch.exceeds(epoch_ends=True) and self._watch.limit.on_exceeded == STOP:
            limit, elapsed_s = self._watch.limit, self._watch.elapsed_s
            passed = f"the limit of {limit} is passed"
            why = passed if limit.is_passed(elapsed_s) else f"another epoch would pass the limit of {limit}"
            raise BudgetExceededError(
                f"{why}: {limit.spent(elapsed_s)} are gone. Catch this error, or allow more."
            )
        batches = iter(self._loader)
        self._watch.waits()
        for batch in batches:
            self._watch.starts(batch)
            yield batch
            self._watch.ends()
            self._watch.waits()
        self._watch.ends_epoch()

    @property
    def watched(self) -> Watched | None:
        """The last line as data; None before the first."""
        return self._watch.watched


@dataclass(slots=True)
class Watch:
    """Times the iterations of a training and reports on them; loops and frameworks' callbacks call it.

    Order of calls: `waits`, `starts` and `ends` for each batch, `ends_epoch` after the last. SchemaError for options
    that a watched training does not read.
    """

    model: Any = None
    n_batches: int | Fraction | None = None
    epochs: int = 1
    samples: int | None = None
    workers: int | None = None
    gpu: str | None = None
    out: str | PathLike[str] | None = None
    report_after: int = 50
    usd_per_hour: float | None = None
    on: str | Sequence[str] = ()
    limit: Limit = field(default_factory=Limit)
    options: Mapping[str, Any] = field(default_factory=dict)
    tell: Callable[[str], None] = print
    clock: Callable[[], float] = time.perf_counter
    watched: Watched | None = None
    first_batch: FirstBatch | None = None
    _prices: Prices = field(init=False)
    _began_at: float | None = None
    _epochs: int = 0
    _question: Question | None = None
    _device: TorchDevice | None = None
    _done: int = 0
    _asked_at: float | None = None
    _waited_s: float = 0.0
    _ended_at: float | None = None
    _times_s: list[float] = field(default_factory=list)
    _waits_s: list[float] = field(default_factory=list)
    _was_idle: bool = False
    _n_idle: int = 0

    def __post_init__(self) -> None:
        self.epochs = whole_number("epochs", self.epochs)
        self.report_after = whole_number("report_after", self.report_after)
        self.on = [str(gpu) for gpu in as_list(self.on)]
        if name := next((name for name in ("cnn", "batch_size") if name in self.options), None):
            raise SchemaError(
                f"{name} is no option here: the CNN is the model, and its mini-batches are seen."
            )
        self._prices = ResolvedQuestion.of(Question.of(None, None, None, dict(self.options)), "watch").prices
        self.usd_per_hour = options_of(Question)["usd_per_hour"].checked(self.usd_per_hour)
        self.limit = replace(self.limit)  # which remembers that this run passed it
        self._device = TorchDevice(self.model) if is_module(self.model) else None
        if self.usd_per_hour is not None or self._gpu() is not None:
            self.takes_price()
        if self._device is not None:
            self._device.on_first_batch(self.model, partial(setattr, self, "first_batch"))

    def takes_price(self) -> None:
        """Take the price of an hour where there is a budget; SchemaError if there is none."""
        if self.limit.budget_usd is not None:
            self.limit.price(self._usd_per_hour(), self._gpu())

    def waits(self) -> None:
        """Note that the loop asks for a batch; the wait for data begins."""
        self._asked_at = self.clock()
        if self._began_at is None:
            self._began_at = self._asked_at
            self.takes_price()  # of all that train together by now

    @property
    def is_unfinished(self) -> bool:
        """Whether batches are left, as far as the training's length is known."""
        return self.n_batches is None or self._done < self.epochs * self.n_batches

    @property
    def elapsed_s(self) -> float:
        """Seconds since the loop first asked for a batch."""
        return 0.0 if self._began_at is None else self.clock() - self._began_at

    def exceeds(self, *, epoch_ends: bool) -> bool:
        """Whether the run is to end: another epoch, or the iterations until it looks again, would pass its limit."""
        more_s = self.elapsed_s / max(1, self._epochs)
        if not epoch_ends:
            more_s = self.report_after * fmean(self._times_s) if self._times_s else 0.0
        return self._began_at is not None and self.limit.exceeds(
            self.elapsed_s, more_s, self.watched, epoch_ends=epoch_ends
        )

    def starts(self, batch: object = None) -> None:
        """Start an iteration on a batch; without a module, its first array of four dimensions is the images."""
        self._was_idle = self._device is None or self._device.is_idle()
        asked_at, self._asked_at = self._asked_at, None
        self._waited_s = self.clock() - asked_at if self._was_idle and asked_at is not None else 0.0
        if self.first_batch is None and self._device is None and (images := images_in(batch)) is not None:
            self.first_batch = FirstBatch.of(images)

    def ends(self) -> None:
        """End an iteration: keep the time since the last one ended, once warm; report after `report_after` of them."""
        self._done += 1
        if self._device is not None:
            self._device.marks_end()
        now, before = self.clock(), self._ended_at
        self._ended_at = now
        if before is not None and self._done > _WARM_UP:
            self._times_s.append(now - before)
            self._waits_s.append(self._waited_s)
            self._n_idle += self._was_idle
            if len(self._times_s) == self.report_after:
                self.reports()
            if len(self._times_s) % self.report_after == 0:
                self.exceeds(epoch_ends=False)

    def ends_epoch(self) -> None:
        """End an epoch: report, and leave out what happens before the next one."""
        self._epochs += 1
        self.reports()
        self._ended_at = None

    def reports(self) -> None:
        """Tell what was seen so far; nothing if no iteration was counted."""
        if not self._times_s:
            return
        time_ms = 1000.0 * fmean(self._times_s)
        waiting = sum(self._waits_s) / sum(self._times_s)
        row, why_not = self._predicted()
        price = self._usd_per_hour()
        left = -1 if self.n_batches is None else self.epochs * self.n_batches - self._done
        left_s = left * time_ms / 1000.0 if left >= 0 else None
        left_usd = None if left_s is None or price is None else left_s * price / 3600
        seen = (len(self._times_s), time_ms, waiting, self._gpu() or "an unknown device")
        predicted_ms, low_ms, high_ms = (getattr(row, name, None) for name in _TIMES)
        why = tuple(self._why(time_ms, waiting, row))
        on = tuple(self._elsewhere(gpu, time_ms, waiting, row, why_not) for gpu in self.on)
        epoch = -(-self._done // self.n_batches) if self.n_batches else 0
        limit = self.limit.forecast(self.elapsed_s, left_s, epoch, self.epochs)
        self.watched = Watched(
            *seen, predicted_ms, low_ms, high_ms, why_not, why, left_s, left_usd, limit, on
        )
        self.tell(str(self.watched))
        writes = (team_of(self.model) or Team(1)).rank == 0  # one process, where several train together
        if self.out is not None and writes and row is not None and waiting <= _WAITS and row.nodes == 1:
            self._keeps(row, Path(self.out))
        self._ended_at = None  # reporting is no part of an iteration

    def _gpu(self) -> str | None:
        return self.gpu or (self._device.name() if self._device else None)

    def _predicted(self) -> tuple[PredictionRow | None, str | None]:
        """The prediction of what was seen, or why there is none."""
        if self.model is None:
            return None, "no model is given"
        if self.first_batch is None:
            return None, "no batch of images was seen: the model was given none of four dimensions"
        height, width = self.first_batch.height, self.first_batch.width
        if height != width:
            return None, f"images are {height} x {width}, and only square ones are predicted"
        if (gpu := self._gpu()) is None:
            return None, "no gpu is given"
        ran = self._ran()
        if ran.get("capture") == "partly":
            return None, "parts of the model are compiled; eager CNNs and wholly compiled ones are predicted"
        team = team_of(self.model) or Team(ran.get("n_gpus", 1))
        if team.nodes is None and "nodes" not in ran:
            return None, f"on how many machines {team.n_gpus} processes train is not known: pass nodes"
        if team.n_processes > 1 and ran["n_gpus"] != team.n_gpus:
            return None, f"n_gpus {ran['n_gpus']} is given, and {team.n_gpus} processes train together"
        try:
            self._question = self._question_on(gpu, self.first_batch.batch_size * team.n_processes, ran)
            return answer(self._question).rows()[0], None
        except EpochcastError as error:
            return None, str(error)

    def _elsewhere(
        self, gpu: str, time_ms: float, waiting: float, row: PredictionRow | None, why_not: str | None
    ) -> Elsewhere:
        """The iteration on another GPU, anchored on the measured one."""
        ran = self._ran()
        n_gpus = ran.get("n_gpus", 1)
        if row is None:
            why = f"{why_not}; ask epochcast.predict, which needs no run"
        elif n_gpus > 1:
            why = f"{n_gpus} GPUs train together, and a run of one GPU is carried over; watch one"
        elif waiting > _WAITS:
            why = "the measured time is the loader's; give it more workers, or ask epochcast.predict"
        else:
            run = {"gpu": row.gpu, "batch_size": row.batch_size, "iteration_time_ms": time_ms}
            ran["anchors"] = [*(ran.get("anchors") or ()), run]
            try:
                forecast = answer(self._question_on(gpu, row.batch_size, ran)).rows()[0]
                return Elsewhere(*(getattr(forecast, name) for name in ("gpu", *_TIMES, "method")))
            except EpochcastError as error:
                why = str(error)
        return Elsewhere(gpu, why_not=why)

    def _ran(self) -> dict[str, Any]:
        """Options of the question: as given, else as seen; what is not known is left out, all before a batch."""
        team, first_batch = team_of(self.model), self.first_batch
        if first_batch is None:
            return {}
        names = ("precision", "float32_matmul_precision", "memory_format", "autotune", "capture")
        of_batch = {name: getattr(first_batch, name) for name in names} | {"image_size": first_batch.height}
        of_batch |= {"n_gpus": team and team.n_gpus, "nodes": team and team.nodes}
        return {name: value for name, value in of_batch.items() if value is not None} | dict(self.options)

    def _question_on(self, gpu: str, batch_size: int, options: dict[str, Any]) -> Question:
        """The question of the model's time; a module's layers have the channels of its images."""
        cnn = self.model
        if self._device is not None and self.first_batch is not None:
            cnn = layers_of(self.model, self.first_batch)
        return Question.of(cnn, gpu, batch_size, options)

    def _why(self, time_ms: float, waiting: float, row: PredictionRow | None) -> Iterator[str]:
        """Reasons why actual and predicted time differ."""
        if waiting > _WAITS:
            yield f"{100 * waiting:.0f} % of it waits for the loader: more workers, or lighter transforms"
        if row is None or self._question is None or 1 / _NEAR <= time_ms / row.iteration_time_ms <= _NEAR:
            return
        yield f"{number(time_ms / row.iteration_time_ms, 2)} x the prediction"
        if self._device and is_cpu(self._device.name()) != is_cpu(row.gpu):
            yield f"it trains on {self._device.name()}, and the prediction is of {row.gpu}"
            return
        if is_cpu(row.gpu):
            yield "a CPU's time depends on its threads and on other programs"
        else:
            slowed = self._device.slowed_by() if self._device else ()
            speed = Speed(iteration_time_ms=time_ms, waiting_share=min(waiting, _MOST), slowed_by=slowed)
            causes = check(self._question, speed, self.epochs).causes
            yield from (f"{percent(cause.probability)} likely: {cause.what}" for cause in causes[:1])
        if row.extrapolates:
            yield f"the prediction extrapolates ({row.extrapolates[0]})"

    def _usd_per_hour(self) -> float | None:
        gpu = self._gpu()
        if self.usd_per_hour is not None or gpu is None:
            return self.usd_per_hour
        from predictor.measurements.table import canonical_gpu_name

        with suppress(EpochcastError):  # no offer has a GPU that is not known
            gpu = canonical_gpu_name(gpu)
        team = team_of(self.model) or Team(1)
        together = {"n_gpus": team.n_gpus, "nodes": team.nodes or 1} | dict(self.options)
        question = Question.of(None, None, None, together)
        n_gpus, nodes = question.n_gpus or 1, question.nodes or 1
        offers = self._prices.of_each(n_gpus // nodes, spot=question.spot)
        return next((nodes * hourly_usd(offer, question.spot) for offer in offers.get(gpu, ())), None)

    def _keeps(self, row: PredictionRow, out: Path) -> None:
        """Add the measurement to a table; it replaces an earlier one of this CNN in this mode and batch size."""
        import pandas as pd

        from predictor.measurements.table import check_measurements, read_measurements, write_measurements

        new = check_measurements(pd.DataFrame([self._measurement(row)]), "the watched training")
        tables = [read_measurements(out), new] if out.exists() else [new]
        table = pd.concat([table.dropna(axis="columns", how="all") for table in tables], ignore_index=True)
        key = [name for name in (*_ANSWERED, *_RAN) if name in table]
        write_measurements(table.drop_duplicates(key, keep="last"), out)

    def _measurement(self, row: PredictionRow) -> dict[str, Any]:
        """A row of the measurement table; what is not known is left out."""
        from proxy_cnns.device import host_name

        times_ms = [1000.0 * time_s for time_s in self._times_s]
        ran = self._ran()
        low, _, high = quantiles(times_ms, n=4) if len(times_ms) > 1 else (times_ms[0],) * 3
        measurement = {
            "source": WATCHED,
            **{name: getattr(row, name) for name in _ANSWERED},
            **{name: ran.get(name) for name in (*_RAN, "sync_batch_norm")},
            "host": host_name(),
            "host_cnn_ms": self._host_cnn_ms(row, fmean(times_ms)),
            "kind": "target",
            "pass": "training",
            "samples_per_epoch": self.samples,
            "loader_workers": self.workers,
            "iteration_time_ms": fmean(times_ms),
            "iteration_time_ms_iqr": high - low,
            "n_warmup": _WARM_UP,
            "n_repeats": len(times_ms),
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return {name: value for name, value in measurement.items() if value is not None}

    def _host_cnn_ms(self, row: PredictionRow, time_ms: float) -> float | None:
        """Enqueue time of the reference CNN that the iteration tells; None where the GPU may decide it, or slows it.

        The host decides where it is the slower one as predicted and as measured: the device is done before the next
        iteration, which takes longer than its work for the GPU can.
        """
        decides = row.bottleneck == "host" and row.gpus_used == 1 and row.method != "anchored"
        decides &= time_ms > _DECIDED * (row.gpu_high_ms or 0.0)
        decides &= self._n_idle >= _IDLE * len(self._times_s)
        if self._question is None or not decides:
            return None
        if self._device and (is_cpu(self._device.name()) or self._device.slowed_by()):
            return None
        resolved = ResolvedQuestion.of(self._question)
        [(_, mode)] = resolved.devices
        return host_cnn_ms(resolved.tables[0], mode, time_ms, row.gpu_time_ms or 0.0)


def length_of(value: object) -> int | None:
    """Length of an object, None if it has none."""
    try:
        return len(value)  # type: ignore[arg-type]
    except TypeError:
        return None
