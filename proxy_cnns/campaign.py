"""One run of the instrument: what to measure in which order, until it is done or the budget is over.

A configuration that does not fit, or takes too long, ends its series: larger batch sizes of it are not tried.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from predictor.errors import (
    DataError,
    DeviceOutOfMemoryError,
    EpochcastError,
    NoisyMeasurementError,
    ProfilingError,
)
from proxy_cnns.backends.protocol import Backend, Prepared
from proxy_cnns.cost import estimated_seconds
from proxy_cnns.device_state import DeviceState, Monitor, disturbances
from proxy_cnns.profiler import LIMITS, Clock, Limits, Measured, measure
from proxy_cnns.refinement import refined
from proxy_cnns.rows import measurement_row, repeats_of, series_of, setting_key
from proxy_cnns.run_file import Run, RunFile
from proxy_cnns.work import Setting

__all__ = ["Progress", "Task", "measure_all", "pending", "remaining"]

_READ_EACH_S = 1.0
_MOST_FAILURES = 10  # in a row, unforeseen: then the device is gone, not one configuration


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, after each configuration; `seconds_left` counts the budget."""

    done: int
    total: int
    seconds_left: float
    now: str


@dataclass(frozen=True, slots=True)
class Task:
    """What one process measures on one device.

    `label` names the device to people, where a process is shown a single GPU, which is then ``cuda:0`` to it.
    `deadline` is the clock's reading at which it stops, None for never; `about` are columns that all rows share.
    """

    settings: tuple[Setting, ...]
    device: str
    label: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    deadline: float | None = None
    allow_noise: bool = False
    refine: bool = False
    longest_ms: float = 1000.0
    limits: Mapping[str, Limits] = field(default_factory=lambda: LIMITS)


def remaining(settings: Iterable[Setting], run: Run) -> list[Setting]:
    """Configurations that are not measured, did not fail, and are not beyond the end of their series."""
    keys = ((setting, setting_key(setting)) for setting in settings)
    done = run.rows.keys() | run.failed.keys()
    return [setting for setting, key in keys if key not in done and run.ends(key) is None]


def pending(settings: Sequence[Setting], run: Run, *, refine: bool = False) -> list[Setting]:
    """What is left to measure: the grid, and after it, if wanted, the batch sizes between."""
    return remaining(settings, run) or (remaining(refined(settings, run), run) if refine else [])


def measure_all(
    task: Task,
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
    session = _Session(task, backend, monitor, run, file, report, clock)
    done = True
    while done and (some := pending(task.settings, run, refine=task.refine)):
        done = session.measure(some)
    session.check_device("after")
    return done


class _Session:
    """What changes while a task runs."""

    def __init__(
        self,
        task: Task,
        backend: Backend,
        monitor: Monitor,
        run: Run,
        file: RunFile,
        report: Callable[[Progress], None],
        clock: Clock,
    ) -> None:
        self.task, self.backend, self.monitor = task, backend, monitor
        self.label = task.label or task.device
        self.run, self.file, self.report, self.clock = run, file, report, clock
        self._failures: list[tuple[Setting, Exception]] = []
        self._recent: list[Any] = []
        self._clean = monitor.read()
        self._read_at = clock()
        self._note(self._clean, "before", {})

    def measure(self, settings: Sequence[Setting]) -> bool:
        """Measure these in order; False if the deadline came first."""
        weights = [_weight(setting) for setting in settings]
        start, planned, done = self.clock(), sum(weights), 0.0
        for position, setting in enumerate(settings):
            if self.task.deadline is not None and self.clock() >= self.task.deadline:
                return False
            if self.run.ends(setting_key(setting)) is None:
                self._measure_one(setting)
                self.monitor.settle()
            done += weights[position]
            left = self._left(start, done, planned)
            self.report(Progress(position + 1, len(settings), left, _words(setting)))
            if self.clock() - self._read_at >= _READ_EACH_S:
                self.check_device()
        self._note_failures()
        return True

    def check_device(self, when: str = "during") -> None:
        """Read the device; what disturbed it concerns every row since the last clean reading."""
        state = self.monitor.read()
        self._read_at = self.clock()
        reasons, n = disturbances(self._clean, state), len(self._recent)
        found = {"disturbed": reasons, "kept": self.task.allow_noise} if reasons else {}
        self._note(state, when, found)
        if reasons and not self.task.allow_noise:
            raise NoisyMeasurementError(
                f"{self.label} was disturbed: {'; '.join(reasons)}. The last {n} measurements are not kept. "
                "Repeat the command when nothing else runs there, or pass --allow-noise to have it noted instead."
            )
        self._clean = state

    def _note(self, state: DeviceState, when: str, more: Mapping[str, Any]) -> None:
        self._write({"device": state.row(), "when": when, "on": self.label, **more})

    def _measure_one(self, setting: Setting) -> None:
        try:
            measured = self._measured(setting)
        except DeviceOutOfMemoryError as error:
            self._end(setting, f"out of memory: {error}")
        except DataError as error:  # the framework cannot build it
            self._note_failure(setting, error)
        except (EpochcastError, RuntimeError, ValueError, TypeError, ArithmeticError, LookupError) as error:
            self._fail(setting, error)
        else:
            self._note_failures()
            if measured is None:
                self._end(setting, f"an iteration takes longer than {self.task.longest_ms:g} ms")
            else:
                self._keep(setting, measured)

    def _measured(self, setting: Setting) -> Measured | None:
        limits = replace(self.task.limits[setting.work.kind], longest_ms=self.task.longest_ms)
        prepared: Prepared = self.backend.prepare(setting)
        try:
            on_gpu, captured = self.task.device != "cpu", setting.mode.capture == "graph"
            return measure(prepared, self.clock, limits, on_gpu=on_gpu, captured=captured)
        finally:
            prepared.close()

    def _keep(self, setting: Setting, measured: Measured) -> None:
        row = measurement_row(setting, measured, self.task.about)
        self._write({"row": row, "repeats": repeats_of(measured, setting.work.kind)})

    def _end(self, setting: Setting, reason: str) -> None:
        series = series_of(setting_key(setting))
        self._write({"ended": {"series": series, "batch_size": setting.batch_size, "reason": reason[:300]}})

    def _fail(self, setting: Setting, error: Exception) -> None:
        """Go on after what the framework did not foresee, unless nothing works any more: then blame the device."""
        self._failures.append((setting, error))
        if len(self._failures) >= _MOST_FAILURES:
            raise ProfilingError(
                f"{_MOST_FAILURES} configurations failed one after the other, the last, {_words(setting)}, with "
                f"{type(error).__name__}: {error}. What was measured before is kept; repeat the command to go on."
            ) from error

    def _note_failures(self) -> None:
        """Something works: what failed before it failed by itself."""
        for setting, error in self._failures:
            self._note_failure(setting, error)
        self._failures.clear()

    def _note_failure(self, setting: Setting, error: Exception) -> None:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        self._write({"failed": setting_key(setting), "reason": reason})

    def _write(self, entry: dict[str, Any]) -> None:
        self.file.append(entry)
        self.run.take(entry, self._recent)

    def _left(self, start: float, done: float, planned: float) -> float:
        elapsed = self.clock() - start
        left = elapsed * (planned - done) / done if done else planned
        return left if self.task.deadline is None else max(0.0, min(left, self.task.deadline - self.clock()))


def _weight(setting: Setting) -> float:
    return estimated_seconds(setting.work, setting.batch_size, setting.mode)


def _words(setting: Setting) -> str:
    mode = setting.mode
    return f"{setting.work.name} batch {setting.batch_size} {mode.precision} {mode.memory_format}"
