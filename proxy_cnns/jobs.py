"""A job: the share of a run that one process measures on one device, series by series, until the time is over.

It opens the device, checks that it is free, and skips what is on disk already. A configuration that does not fit, or
takes too long, ends its series: larger batch sizes of it are not tried. A CPU and a slow GPU get short iterations
first, so that an early end leaves many of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from predictor.catalogue.devices import find_gpu, precisions_of
from predictor.catalogue.hosts import REFERENCE_CNN
from predictor.catalogue.modes import Mode
from predictor.errors import (
    DataError,
    DeviceOutOfMemoryError,
    EpochcastError,
    NoisyMeasurementError,
    ProfilingError,
    SchemaError,
)
from predictor.measurements.table import canonical_gpu_name
from proxy_cnns.backends import load_backend
from proxy_cnns.configuration import Backend, Configuration
from proxy_cnns.device import (
    DeviceState,
    Monitor,
    disturbances,
    driver_version,
    host_name,
    open_monitor,
    refuse_busy,
)
from proxy_cnns.estimates import SHORT_MS, estimated_ms, estimated_seconds
from proxy_cnns.host import enqueue_times, zoo_subject
from proxy_cnns.modes import CPU_PRECISIONS
from proxy_cnns.profiler import LIMITS, Clock, Limits, measure
from proxy_cnns.rows_file import (
    Run,
    RunFile,
    configuration_key,
    measurement_row,
    read_run,
    repeats_of,
    rows_path,
    series_of,
)

_IDENTITY = (
    "gpu", "host", "framework", "framework_version", "cuda", "cudnn", "driver", "convolutions",
    "batch_norm_and_pooling", "workspace_mib",
)  # fmt: skip
_COLUMNS = ("framework_version", "cudnn", "workspace_mib")
_PATIENCE_S = 3.0  # utilisation is a mean over up to a second, in which our own last run may still count
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
class Request:
    """One run: configurations, devices, and the table to write. Times in s and ms."""

    name: str
    configurations: tuple[Configuration, ...]
    framework: str
    devices: tuple[str, ...]
    out: Path
    budget_s: float | None = None
    allow_noise: bool = False
    longest_ms: float = 1000.0
    limits: Mapping[str, Limits] = field(default_factory=lambda: LIMITS)
    backend: str | None = None
    """Module and class of a backend that is not in `BACKENDS`."""

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Modes of the configurations, each once."""
        return tuple(dict.fromkeys(configuration.mode for configuration in self.configurations))


@dataclass(frozen=True, slots=True)
class Job:
    """The share of a request that one process measures on one device: every `of`-th series.

    `label` is the device's name in messages: a process that sees a single GPU calls it ``cuda:0``, whatever its number.
    `deadline` is the clock's reading at which it stops, inf for never.
    """

    request: Request
    device: str
    label: str
    deadline: float = inf
    number: int = 0
    of: int = 1

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Configurations of every `of`-th series, so that one process sees where its series end."""
        configurations = self.request.configurations
        if self.of == 1:
            return configurations
        series = [series_of(configuration_key(configuration)) for configuration in configurations]
        own = set(list(dict.fromkeys(series))[self.number :: self.of])
        pairs = zip(configurations, series, strict=True)
        return tuple(configuration for configuration, key in pairs if key in own)


Report = Callable[[Progress], None]


def measure_job(job: Job, report: Report) -> dict[str, Any]:
    """Measure a job into a rows file of its own, and return the environment it was measured in.

    A job that Ctrl-C ended after its first row says so in `interrupted` of the environment.
    """
    request = job.request
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # one numbering for framework and driver
    monitor = open_monitor(job.device)
    opened = time.perf_counter()
    monitor.start()
    reading_ms = 1000 * (time.perf_counter() - opened) / 2  # it reads twice
    start = time.perf_counter()
    while not request.allow_noise:  # the device's utilisation still counts a run that has just ended
        time.sleep(0.2)
        try:
            refuse_busy(monitor.read(), job.device, job.label)
            break
        except ProfilingError:
            if time.perf_counter() - start > _PATIENCE_S:
                raise
    backend = load_backend(request.framework, job.device, request.backend)
    environment = {"framework": backend.framework, "host": host_name(), **backend.environment()}
    if job.device != "cpu":
        environment.setdefault("driver", driver_version())
    environment["device_reading_ms"] = round(reading_ms, 3)
    gpu = environment["gpu"] = canonical_gpu_name(str(environment["gpu"]))
    precisions = {mode.precision for mode in request.modes}
    able = CPU_PRECISIONS if gpu.startswith("cpu:") else precisions_of(find_gpu(gpu))
    if lacking := sorted(precisions - set(able)):
        raise SchemaError(f"{gpu} has no {lacking[0]}. It has: {', '.join(able)}; pass --precision.")
    run = read_run(request.out, _identity(request, environment))
    if remaining(job.configurations, run):
        environment["interrupted"] = _measure_into(job, backend, monitor, run, environment, report)
    return environment


def _measure_into(
    job: Job, backend: Backend, monitor: Monitor, run: Run, environment: Mapping[str, Any], report: Report
) -> bool:
    """Measure until all is done or time is up; whether Ctrl-C ended it before."""
    request = job.request
    about = {
        **{name: environment[name] for name in ("framework", "gpu", "host")},
        "device_kind": "cpu" if job.device == "cpu" else "gpu",
        **{name: environment[name] for name in _COLUMNS if environment.get(name) is not None},
    }
    host_ms: dict[Mode, float] = {}  # to enqueue an iteration of the reference CNN on a GPU
    entries: list[dict[str, Any]] = []
    reference = [zoo_subject(REFERENCE_CNN)]
    for mode in () if job.device == "cpu" else dict.fromkeys(of.mode for of in job.configurations):
        try:
            (timed,) = enqueue_times(backend, [mode], reference, True, time.perf_counter)
        except EpochcastError as error:
            words = {"precision": mode.precision, "memory_format": mode.memory_format}
            entries.append({"host": words | {"failed": str(error)[:300]}})
        else:
            host_ms[mode] = timed.host_time_ms
            entries.append({"host": asdict(timed), "on": job.label})
    every_row = any(configuration.subject.kind != "operator" for configuration in job.configurations)
    path = rows_path(request.out, job.number if job.of > 1 else None)
    with closing(RunFile(path, _identity(request, environment), sync_each=every_row)) as file:
        try:
            for entry in entries:
                file.append(entry)
                run.take(entry, [])
            Session(job, backend, monitor, run, file, about, host_ms, report).measure_all()
        except KeyboardInterrupt:
            if job.of > 1 or not run.rows:  # else what is measured becomes a table, as after the time limit
                raise
            return True
    return False


def _identity(request: Request, environment: Mapping[str, Any]) -> dict[str, Any]:
    of_cpu = ("torch_threads",) if str(environment["gpu"]).startswith("cpu:") else ()
    about = {name: environment[name] for name in _IDENTITY + of_cpu if environment.get(name) is not None}
    return {"preset": request.name, "modes": modes_of(request), **about}


def modes_of(request: Request) -> list[str]:
    """The modes of a request in words, as they identify its run."""
    words = []
    for mode in request.modes:
        settings = filter(None, ("autotune" * mode.autotune, mode.matmul_setting))
        words.append(" ".join((mode.precision, mode.memory_format, mode.capture, *settings)))
    return sorted(words)


def remaining(configurations: Iterable[Configuration], run: Run) -> list[Configuration]:
    """Configurations that are not measured, did not fail, and are not beyond the end of their series."""
    keys = ((configuration, configuration_key(configuration)) for configuration in configurations)
    done = run.rows.keys() | run.failed.keys()
    return [configuration for configuration, key in keys if key not in done and run.ends(key) is None]


@dataclass(slots=True)
class Session:
    """A job while it runs: `run` is what is on disk, to which `file` appends.

    `about` are columns that all rows share, `host_ms` the time to enqueue an iteration of the reference CNN, by mode.
    """

    job: Job
    backend: Backend
    monitor: Monitor
    run: Run
    file: RunFile
    about: Mapping[str, Any]
    host_ms: Mapping[Mode, float]
    report: Report = lambda _: None
    clock: Clock = time.perf_counter
    _clean: DeviceState | None = None
    _read_at: float = 0.0
    _failures: list[tuple[Configuration, Exception]] = field(default_factory=list)
    _recent: list[Any] = field(default_factory=list)
    _launches: dict[str, float] = field(default_factory=dict)
    _slowness: list[float] = field(default_factory=list)
    """Measured times x those estimated for an H200 or a CPU."""

    def measure_all(self) -> bool:
        """Measure what `run` does not have yet, into `file` and `run`; False if the budget ended before.

        NoisyMeasurementError if something disturbed the device and noise is not allowed; the rows since the last clean
        reading are taken back. ProfilingError if the disk is full, or one configuration after the other fails.
        """
        self.check_device("before")
        done = True
        while done and (left := remaining(self.job.configurations, self.run)):
            done = self.measure(left)
        self.check_device("after")
        return done

    def measure(self, configurations: Sequence[Configuration]) -> bool:
        """Measure these in order, on a CPU or slow GPU the short ones first; False if the deadline came first."""
        weights = [estimated_seconds(configuration) for configuration in configurations]
        start, planned, done, n = self.clock(), sum(weights), 0.0, 0
        waiting = list(zip(configurations, weights, strict=True))
        for limit_ms in (*SHORT_MS, inf):
            later = []
            for configuration, weight in waiting:
                left_s = self.job.deadline - self.clock()
                slowness = median(self._slowness[-_LATEST:] or [1.0])
                is_slow = self.job.device == "cpu" or slowness > _SLOW
                if left_s <= 0:
                    return False
                expected_ms = slowness * self._estimated_ms(configuration) if is_slow else 0.0
                if expected_ms > min(limit_ms, 1000 * left_s / _REPEATS):
                    later.append((configuration, weight))
                    continue
                if self.run.ends(configuration_key(configuration)) is None:
                    self._measure_one(configuration)
                    self.monitor.settle()
                done, n = done + weight, n + 1
                now = self.clock()
                work_s = (now - start) * (planned - done) / done if done else planned
                allowed_s, words = self.job.deadline - now, _words(configuration)
                seconds_left = max(0.0, min(work_s, allowed_s))
                self.report(Progress(n, len(configurations), seconds_left, words, allowed_s < work_s))
                if self.clock() - self._read_at >= _READ_EACH_S:
                    self.check_device()
            waiting = later
        self._note_failures()
        return not waiting

    def _estimated_ms(self, configuration: Configuration) -> float:
        more = {"on_cpu": True} if self.job.device == "cpu" else {}
        return estimated_ms(configuration.subject, configuration.batch_size, configuration.mode, **more)

    def check_device(self, when: str = "during") -> None:
        """Read the device, and note it; a disturbance concerns every row since the last clean reading."""
        state = self.monitor.read()
        self._read_at = self.clock()
        reasons = [] if self._clean is None else disturbances(self._clean, state)
        n, kept = len(self._recent), self.job.request.allow_noise
        more = {"disturbed": reasons, "kept": kept} if reasons else {}
        launches = self.backend.launches()  # runs that differ in what kernels without work cost are not alike
        named = {"host_kernel_us": launches.host_us, "graph_kernel_us": launches.graph_us}
        self._launches = {name: float(f"{us:.4g}") for name, us in named.items() if us is not None}
        self._write({"device": state.row(), "when": when, "on": self.job.label, **self._launches, **more})
        if reasons and not kept:
            raise NoisyMeasurementError(
                f"{self.job.label} was disturbed: {'; '.join(reasons)}. The last {n} measurements are not kept. "
                "Repeat the command when nothing else runs there, or pass --allow-noise to keep them with a note."
            )
        self._clean = state

    def _measure_one(self, configuration: Configuration) -> None:
        request = self.job.request
        limits = replace(request.limits[configuration.subject.kind], longest_ms=request.longest_ms)
        try:
            with closing(self.backend.prepare(configuration)) as prepared:
                on_gpu, captured = self.job.device != "cpu", configuration.mode.capture == "graph"
                measured = measure(prepared, self.clock, limits, on_gpu=on_gpu, captured=captured)
        except DeviceOutOfMemoryError as error:
            self._end(configuration, f"out of memory: {error}")
        except DataError as error:  # the framework cannot build it
            self._note_failure(configuration, error)
        except (EpochcastError, RuntimeError, ValueError, TypeError, ArithmeticError, LookupError) as error:
            self._failures.append((configuration, error))
            if len(self._failures) >= _MOST_FAILURES:  # with no success between: more would fail, too
                raise ProfilingError(
                    f"{_MOST_FAILURES} configurations failed one after the other, the last, {_words(configuration)}, "
                    f"with {type(error).__name__}: {error}. Earlier measurements are kept; repeat the command to go on."
                ) from error
        else:
            self._note_failures()
            took_ms = request.longest_ms if measured is None else median(measured.times_ms)
            self._slowness.append(took_ms / self._estimated_ms(configuration))
            if measured is None:
                self._end(configuration, f"an iteration takes longer than {request.longest_ms:g} ms")
            else:
                host_ms = self.host_ms.get(configuration.mode)
                about = {**self.about, **self._launches, "host_cnn_ms": host_ms}
                row = measurement_row(configuration, measured, about)
                self._write({"row": row, "repeats": repeats_of(measured, configuration.subject.kind)})

    def _end(self, configuration: Configuration, reason: str) -> None:
        series, size = series_of(configuration_key(configuration)), configuration.batch_size
        self._write({"ended": {"series": series, "batch_size": size, "reason": reason[:300]}})

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


def _words(configuration: Configuration) -> str:
    name, mode = configuration.subject.name, configuration.mode
    return f"{name} batch {configuration.batch_size} {mode.precision} {mode.memory_format}"
