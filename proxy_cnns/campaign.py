"""A campaign: which configurations to measure in which order, until all are measured or the time is over.

A configuration that does not fit, or takes too long, ends its series: larger batch sizes of it are not tried. A slow
device, a CPU or an old GPU, is asked for short iterations first, so that an early end leaves many of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, log, sqrt
from statistics import median
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.errors import (
    DataError,
    DeviceOutOfMemoryError,
    EpochcastError,
    NoisyMeasurementError,
    ProfilingError,
)
from proxy_cnns.backends.protocol import Backend, Prepared
from proxy_cnns.configuration import Configuration
from proxy_cnns.device import DeviceState, Monitor, disturbances
from proxy_cnns.estimates import CPU_SLOWNESS, SHORT_MS, estimated_ms, estimated_seconds
from proxy_cnns.profiler import LIMITS, Clock, Limits, Measured, measure
from proxy_cnns.rows_file import Key, Run, RunFile, configuration_key, measurement_row, repeats_of, series_of

__all__ = ["Campaign", "Progress", "measure_all", "pending", "refined", "remaining"]

_READ_EACH_S = 1.0
_SLOW = 5.0  # x the time of an H200: from here on, short iterations are measured first
_REPEATS = 10  # iterations of one configuration that hardly repeats
_LATEST = 51  # measurements from which the device's speed is known
_MOST_FAILURES = 10  # unforeseen failures in a row: then the device has failed, not one configuration


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, after each configuration; `seconds_left` is at most the budget's rest.

    `limited`: the budget ends the run before everything is measured.
    """

    done: int
    total: int
    seconds_left: float
    now: str
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Campaign:
    """What one process measures on one device.

    `label` is the device's name in messages: a process that sees a single GPU calls it ``cuda:0``, whatever its number.
    `deadline` is the clock's reading at which it stops, None for never; `about` are columns that all rows share.
    """

    configurations: tuple[Configuration, ...]
    device: str
    label: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    deadline: float | None = None
    allow_noise: bool = False
    refine: bool = False
    longest_ms: float = 1000.0
    limits: Mapping[str, Limits] = field(default_factory=lambda: LIMITS)
    host_ms: Mapping[Mode, float] = field(default_factory=dict)
    """Time to enqueue an iteration of the reference CNN, by mode."""


def remaining(configurations: Iterable[Configuration], run: Run) -> list[Configuration]:
    """Configurations that are not measured, did not fail, and are not beyond the end of their series."""
    keys = ((configuration, configuration_key(configuration)) for configuration in configurations)
    done = run.rows.keys() | run.failed.keys()
    return [configuration for configuration, key in keys if key not in done and run.ends(key) is None]


def pending(
    configurations: Sequence[Configuration], run: Run, *, refine: bool = False
) -> list[Configuration]:
    """Configurations left to measure: those of the grid, then, if `refine`, batch sizes between them."""
    return remaining(configurations, run) or (remaining(refined(configurations, run), run) if refine else [])


def measure_all(
    campaign: Campaign,
    backend: Backend,
    monitor: Monitor,
    run: Run,
    file: RunFile,
    report: Callable[[Progress], None] = lambda _: None,
    clock: Clock = time.perf_counter,
) -> bool:
    """Measure what `run` does not have yet, writing each row to `file` and to `run`.

    Returns
    -------
    bool
        Whether everything is measured; False if the budget ended before.

    Raises
    ------
    NoisyMeasurementError
        If something disturbed the device and noise is not allowed; the rows since the last clean reading are
        taken back.
    ProfilingError
        If the disk is full, or one configuration after the other fails.
    """
    session = _Session(campaign, backend, monitor, run, file, report, clock)
    done = True
    while done and (some := pending(campaign.configurations, run, refine=campaign.refine)):
        done = session.measure(some)
    session.check_device("after")
    return done


class _Session:
    """The state of a campaign while it runs."""

    def __init__(
        self,
        campaign: Campaign,
        backend: Backend,
        monitor: Monitor,
        run: Run,
        file: RunFile,
        report: Callable[[Progress], None],
        clock: Clock,
    ) -> None:
        self.campaign, self.backend, self.monitor = campaign, backend, monitor
        self.label = campaign.label or campaign.device
        self.run, self.file, self.report, self.clock = run, file, report, clock
        self._failures: list[tuple[Configuration, Exception]] = []
        self._recent: list[Any] = []
        self._clean = monitor.read()
        self._read_at = clock()
        self._launches: dict[str, float] = {}
        self._slowness: list[float] = []  # measured times x those estimated for an H200
        self._note(self._clean, "before", {})

    def measure(self, configurations: Sequence[Configuration]) -> bool:
        """Measure these in order, on a slow device the short ones first; False if the deadline came first."""
        weights = [estimated_seconds(configuration) for configuration in configurations]
        start, planned, done, n = self.clock(), sum(weights), 0.0, 0
        waiting = list(zip(configurations, weights, strict=True))
        for limit_ms in (*SHORT_MS, inf):
            later = []
            for configuration, weight in waiting:
                left_s = inf if self.campaign.deadline is None else self.campaign.deadline - self.clock()
                if left_s <= 0:
                    return False
                expected_ms = self._expected_ms(configuration)
                if expected_ms > min(limit_ms, 1000 * left_s / _REPEATS):
                    later.append((configuration, weight))
                    continue
                if self.run.ends(configuration_key(configuration)) is None:
                    self._measure_one(configuration)
                    self.monitor.settle()
                done, n = done + weight, n + 1
                left, limited = self._left(start, done, planned)
                self.report(Progress(n, len(configurations), left, _words(configuration), limited))
                if self.clock() - self._read_at >= _READ_EACH_S:
                    self.check_device()
            waiting = later
        self._note_failures()
        return not waiting

    def _expected_ms(self, configuration: Configuration) -> float:
        """Expected iteration on a slow device, 0 on others."""
        before = CPU_SLOWNESS if self.campaign.device == "cpu" else 1.0
        slowness = median(self._slowness[-_LATEST:] or [before])
        return slowness * _estimated_ms(configuration) if slowness > _SLOW else 0.0

    def check_device(self, when: str = "during") -> None:
        """Read the device; a disturbance concerns every row since the last clean reading."""
        state = self.monitor.read()
        self._read_at = self.clock()
        reasons, n = disturbances(self._clean, state), len(self._recent)
        found = {"disturbed": reasons, "kept": self.campaign.allow_noise} if reasons else {}
        self._note(state, when, found)
        if reasons and not self.campaign.allow_noise:
            raise NoisyMeasurementError(
                f"{self.label} was disturbed: {'; '.join(reasons)}. The last {n} measurements are not kept. "
                "Repeat the command when nothing else runs there, or pass --allow-noise to keep them with a note."
            )
        self._clean = state

    def _note(self, state: DeviceState, when: str, more: Mapping[str, Any]) -> None:
        """Keep a reading, and what kernels without work cost now: runs that differ in it are not alike."""
        found = self.backend.launches()
        named = {"host_kernel_us": found.host_us, "graph_kernel_us": found.graph_us}
        self._launches = {name: float(f"{us:.4g}") for name, us in named.items() if us is not None}
        self._write({"device": state.row(), "when": when, "on": self.label, **self._launches, **more})

    def _measure_one(self, configuration: Configuration) -> None:
        try:
            measured = self._measured(configuration)
        except DeviceOutOfMemoryError as error:
            self._end(configuration, f"out of memory: {error}")
        except DataError as error:  # the framework cannot build it
            self._note_failure(configuration, error)
        except (EpochcastError, RuntimeError, ValueError, TypeError, ArithmeticError, LookupError) as error:
            self._fail(configuration, error)
        else:
            self._note_failures()
            took_ms = self.campaign.longest_ms if measured is None else median(measured.times_ms)
            self._slowness.append(took_ms / _estimated_ms(configuration))
            if measured is None:
                self._end(configuration, f"an iteration takes longer than {self.campaign.longest_ms:g} ms")
            else:
                self._keep(configuration, measured)

    def _measured(self, configuration: Configuration) -> Measured | None:
        limits = replace(
            self.campaign.limits[configuration.subject.kind], longest_ms=self.campaign.longest_ms
        )
        prepared: Prepared = self.backend.prepare(configuration)
        try:
            on_gpu, captured = self.campaign.device != "cpu", configuration.mode.capture == "graph"
            return measure(prepared, self.clock, limits, on_gpu=on_gpu, captured=captured)
        finally:
            prepared.close()

    def _keep(self, configuration: Configuration, measured: Measured) -> None:
        host_ms = self.campaign.host_ms.get(configuration.mode)
        about = {**self.campaign.about, **self._launches, "host_cnn_ms": host_ms}
        row = measurement_row(configuration, measured, about)
        self._write({"row": row, "repeats": repeats_of(measured, configuration.subject.kind)})

    def _end(self, configuration: Configuration, reason: str) -> None:
        series = series_of(configuration_key(configuration))
        self._write(
            {"ended": {"series": series, "batch_size": configuration.batch_size, "reason": reason[:300]}}
        )

    def _fail(self, configuration: Configuration, error: Exception) -> None:
        """Go on after an unforeseen failure; after many in a row, with no success between, stop."""
        self._failures.append((configuration, error))
        if len(self._failures) >= _MOST_FAILURES:
            raise ProfilingError(
                f"{_MOST_FAILURES} configurations failed one after the other, the last, {_words(configuration)}, with "
                f"{type(error).__name__}: {error}. Earlier measurements are kept; repeat the command to go on."
            ) from error

    def _note_failures(self) -> None:
        """Note earlier failures as those of their configurations, since another configuration has worked."""
        for configuration, error in self._failures:
            self._note_failure(configuration, error)
        self._failures.clear()

    def _note_failure(self, configuration: Configuration, error: Exception) -> None:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        self._write({"failed": configuration_key(configuration), "reason": reason})

    def _write(self, entry: dict[str, Any]) -> None:
        self.file.append(entry)
        self.run.take(entry, self._recent)

    def _left(self, start: float, done: float, planned: float) -> tuple[float, bool]:
        """Seconds until the run ends, and whether the deadline ends it."""
        now = self.clock()
        left = (now - start) * (planned - done) / done if done else planned
        allowed = inf if self.campaign.deadline is None else self.campaign.deadline - now
        return max(0.0, min(left, allowed)), allowed < left


def _estimated_ms(configuration: Configuration) -> float:
    return estimated_ms(configuration.subject, configuration.batch_size, configuration.mode)


def _words(configuration: Configuration) -> str:
    mode = configuration.mode
    return (
        f"{configuration.subject.name} batch {configuration.batch_size} {mode.precision} {mode.memory_format}"
    )


_DISAGREEMENT = 0.03
_CLOSEST = 1.1
"""Batch sizes nearer than this ratio are not divided further."""

Point = tuple[int, float]
"""Batch size and time in ms."""


def refined(configurations: Iterable[Configuration], run: Run) -> list[Configuration]:
    """Batch sizes to add to the series of whole CNNs.

    Where a measured time differs by more than 3 % from the line between its neighbours, logarithm of time over
    logarithm of batch size, the batch sizes halfway to both of them are added.
    """
    first: dict[Key, Configuration] = {}
    for configuration in configurations:
        if configuration.subject.kind != "operator":
            first.setdefault(series_of(configuration_key(configuration)), configuration)
    points: dict[Key, list[Point]] = {series: [] for series in first}
    for key, row in run.rows.items():
        if series_of(key) in points:
            time = float(row.get("gpu_time_ms") or row["iteration_time_ms"])
            points[series_of(key)].append((int(key[-1]), time))
    return [
        Configuration(configuration.subject, configuration.mode, batch_size)
        for series, configuration in first.items()
        for batch_size in _between(sorted(points[series]))
    ]


def _between(points: list[Point]) -> list[int]:
    """Batch sizes to add, ascending."""
    found: set[int] = set()
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        if abs(here[1] / _on_line(before, after, here[0]) - 1) > _DISAGREEMENT:
            found |= set(_halfway(before[0], here[0])) | set(_halfway(here[0], after[0]))
    return sorted(found)


def _on_line(one: Point, other: Point, batch_size: int) -> float:
    share = log(batch_size / one[0]) / log(other[0] / one[0])
    return exp((1 - share) * log(one[1]) + share * log(other[1]))


def _halfway(low: int, high: int) -> Iterator[int]:
    middle = round(sqrt(low * high))
    if low < middle < high and high / low > _CLOSEST:
        yield middle
