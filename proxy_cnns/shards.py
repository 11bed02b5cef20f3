"""A request, and its shards: one process for each GPU measures every n-th series and writes its own rows file.

A process opens its device, checks that it is free, and skips what is on disk already. It sees no other GPU.
"""

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from predictor.catalogue.devices import find_gpu, precisions_of
from predictor.catalogue.modes import Mode
from predictor.errors import EpochcastError, ProfilingError, SchemaError
from predictor.measurements.table import canonical_gpu_name
from proxy_cnns.backends import Backend, load_backend
from proxy_cnns.campaign import Campaign, Progress, measure_all, pending
from proxy_cnns.configuration import Configuration
from proxy_cnns.device import Monitor, driver_version, host_name, open_monitor, refuse_busy
from proxy_cnns.host import reference_times
from proxy_cnns.modes import CPU_PRECISIONS
from proxy_cnns.profiler import LIMITS, Limits
from proxy_cnns.rows_file import Run, RunFile, configuration_key, read_run, series_of

__all__ = ["Measure", "Request", "Shard", "end_with", "measure_shards", "modes_of"]

_IDENTITY = (
    "gpu",
    "host",
    "framework",
    "framework_version",
    "cuda",
    "cudnn",
    "driver",
    "convolutions",
    "batch_norm_and_pooling",
    "workspace_mib",
)
_COLUMNS = ("framework_version", "cudnn", "workspace_mib")
_PATIENCE_S = 3.0  # utilisation is a mean over up to a second, in which our own last run may still count


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
    refine: bool = False
    longest_ms: float = 1000.0
    limits: Mapping[str, Limits] = field(default_factory=lambda: LIMITS)
    backend: str | None = None
    """Module and class of a backend that is not in `BACKENDS`."""


Measure = Callable[[Request, float | None, Callable[[Progress], None]], dict[str, Any]]
"""Measures a request until a reading of `time.perf_counter`, and returns the environment."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a request that one process measures: every n-th series."""

    request: Request
    device: str
    number: int
    of: int
    deadline: float | None
    label: str
    """Name of the device in messages: a process that sees this device alone calls it ``cuda:0``."""


def measure_shards(
    request: Request, deadline: float | None, report: Callable[[Progress], None]
) -> dict[str, Any]:
    """Measure a request on its devices, and return the environment of the first.

    One device is measured in this process, several in a process each.

    Raises
    ------
    EpochcastError
        The first that a process raised, once all have ended.
    ProfilingError
        If a process was killed.
    """
    shards = [
        Shard(request, device, number, len(request.devices), deadline, device)
        for number, device in enumerate(request.devices)
    ]
    return measure_shard(shards[0], report) if len(shards) == 1 else _measure_in_parallel(shards, report)


def measure_shard(shard: Shard, report: Callable[[Progress], None]) -> dict[str, Any]:
    """Measure one process's part of a request, and return the environment it was measured in."""
    request = shard.request
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # one numbering for framework and driver
    monitor = open_monitor(shard.device)
    opened = time.perf_counter()
    monitor.start()
    reading_ms = 1000 * (time.perf_counter() - opened) / 2  # it reads twice
    if not request.allow_noise:
        _wait_until_free(monitor, shard.device, shard.label)
    backend = _backend(request, shard.device)
    environment = {"framework": backend.framework, "host": host_name(), **backend.environment()}
    if shard.device != "cpu":
        environment.setdefault("driver", driver_version())
    environment["device_reading_ms"] = round(reading_ms, 3)
    environment["gpu"] = canonical_gpu_name(str(environment["gpu"]))
    _refuse_precisions(request, str(environment["gpu"]))
    run = read_run(request.out, identity := _identity(request, environment))
    configurations = _own_series(shard)
    if pending(configurations, run, refine=request.refine):
        _measure_into(shard, configurations, backend, monitor, run, identity, environment, report)
    return environment


def _measure_into(
    shard: Shard,
    configurations: Sequence[Configuration],
    backend: Backend,
    monitor: Monitor,
    run: Run,
    identity: Mapping[str, Any],
    environment: Mapping[str, Any],
    report: Callable[[Progress], None],
) -> None:
    request = shard.request
    about = {
        "framework": environment["framework"],
        "gpu": environment["gpu"],
        "host": environment["host"],
        "device_kind": "cpu" if shard.device == "cpu" else "gpu",
        **{name: environment[name] for name in _COLUMNS if environment.get(name) is not None},
    }
    campaign = Campaign(
        tuple(configurations),
        shard.device,
        shard.label,
        about,
        shard.deadline,
        request.allow_noise,
        request.refine,
        request.longest_ms,
        request.limits,
    )
    host_ms, timed = _reference(campaign, backend)
    every_row = any(configuration.subject.kind != "operator" for configuration in configurations)
    mark = f".{shard.number}" if shard.of > 1 else ""
    path = request.out.with_name(f"{request.out.name}.rows{mark}.jsonl")
    file = RunFile(path, identity, sync_each=every_row)
    try:
        for entry in timed:
            file.append(entry)
            run.take(entry, [])
        measure_all(replace(campaign, host_ms=host_ms), backend, monitor, run, file, report)
    except KeyboardInterrupt:
        if (
            shard.of > 1 or not run.rows
        ):  # one process: what is measured becomes a table, as after the time limit
            raise
    finally:
        file.close()


def _reference(campaign: Campaign, backend: Backend) -> tuple[dict[Mode, float], list[dict[str, Any]]]:
    """Enqueue time of the reference CNN by mode, and the entries that keep it; of a mode that fails, the reason."""
    found: dict[Mode, float] = {}
    entries: list[dict[str, Any]] = []
    on_cpu = campaign.device == "cpu"
    for mode in [] if on_cpu else dict.fromkeys(each.mode for each in campaign.configurations):
        try:
            (timed,) = reference_times(backend, [mode], time.perf_counter)
        except EpochcastError as error:
            words = {"precision": mode.precision, "memory_format": mode.memory_format}
            entries.append({"host": words | {"failed": str(error)[:300]}})
        else:
            found[mode] = timed.host_time_ms
            entries.append({"host": asdict(timed), "on": campaign.label})
    return found, entries


def _own_series(shard: Shard) -> list[Configuration]:
    """The configurations of whole series, so that one process sees the end of each of its series."""
    numbers: dict[Any, int] = {}
    own = []
    for configuration in shard.request.configurations:
        number = numbers.setdefault(series_of(configuration_key(configuration)), len(numbers))
        if number % shard.of == shard.number:
            own.append(configuration)
    return own


def _identity(request: Request, environment: Mapping[str, Any]) -> dict[str, Any]:
    of_cpu = ("torch_threads",) if str(environment["gpu"]).startswith("cpu:") else ()
    known = {name: environment[name] for name in _IDENTITY + of_cpu if environment.get(name) is not None}
    return {"preset": request.name, "modes": modes_of(request), **known}


def modes_of(request: Request) -> list[str]:
    """The modes of a request in words, as they identify its run."""
    modes = {configuration.mode for configuration in request.configurations}
    return sorted(
        f"{mode.precision} {mode.memory_format} {mode.capture}" + " autotune" * mode.autotune
        for mode in modes
    )


def _refuse_precisions(request: Request, gpu: str) -> None:
    """Refuse a precision that the device lacks, before anything is measured under a wrong name."""
    able = CPU_PRECISIONS if gpu.startswith("cpu:") else precisions_of(find_gpu(gpu))
    wanted = sorted({configuration.mode.precision for configuration in request.configurations} - set(able))
    if wanted:
        raise SchemaError(f"{gpu} has no {wanted[0]}. It has: {', '.join(able)}; pass --precision.")


def _wait_until_free(monitor: Monitor, device: str, label: str) -> None:
    """Refuse a busy device, but wait first: its utilisation still counts a run that has just ended."""
    start = time.perf_counter()
    while True:
        time.sleep(0.2)
        state = monitor.read()
        try:
            return refuse_busy(state, device, label)
        except ProfilingError:
            if time.perf_counter() - start > _PATIENCE_S:
                raise


def _backend(request: Request, device: str) -> Backend:
    if request.backend is None:
        return load_backend(request.framework, device)
    module, _, name = request.backend.partition(":")
    return cast("Backend", getattr(import_module(module), name)(device))


def _measure_in_parallel(shards: Sequence[Shard], report: Callable[[Progress], None]) -> dict[str, Any]:
    """Measure every share in a process of its own; return the environment of the first.

    Raises
    ------
    EpochcastError
        The first that a process raised, once all have ended.
    ProfilingError
        If a process was killed.
    """
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    processes = [
        context.Process(target=_process, args=(shard, messages, os.getpid()), daemon=True) for shard in shards
    ]
    for process in processes:
        process.start()
    results = _collect(processes, messages, report)
    for process in processes:
        process.join()
    return _first_environment(shards, results)


def _collect(
    processes: Sequence[Any], messages: Any, report: Callable[[Progress], None]
) -> dict[int, dict[str, Any] | EpochcastError]:
    """Pass progress on until every process has sent its result or is gone."""
    results: dict[int, dict[str, Any] | EpochcastError] = {}
    progress: dict[int, Progress] = {}
    while len(results) < len(processes):
        try:
            number, message = messages.get(timeout=0.5)
        except queue.Empty:
            gone = [n for n, each in enumerate(processes) if n not in results and not each.is_alive()]
            if gone and messages.empty():
                results |= {number: _killed(processes[number]) for number in gone}
            continue
        if isinstance(message, Progress):
            progress[number] = message
            report(_together(progress))
        else:
            results[number] = message
    return results


def _killed(process: Any) -> ProfilingError:
    return ProfilingError(
        f"a measuring process ended by itself (exit code {process.exitcode}). Its measurements are kept; repeat "
        "the command to go on."
    )


def _together(progress: dict[int, Progress]) -> Progress:
    latest = list(progress.values())
    last = max(latest, key=lambda each: each.seconds_left)
    done, total = sum(each.done for each in latest), sum(each.total for each in latest)
    return Progress(done, total, last.seconds_left, latest[-1].now, last.limited)


def _first_environment(
    shards: Sequence[Shard], results: dict[int, dict[str, Any] | EpochcastError]
) -> dict[str, Any]:
    ordered = [results[number] for number in range(len(shards))]
    for result in ordered:
        if isinstance(result, EpochcastError):
            raise result
    environments = [result for result in ordered if isinstance(result, dict)]
    return environments[0] | {"gpus": len(shards)}


def _process(shard: Shard, messages: Any, parent: int) -> None:
    """Measure on the one GPU that this process sees, and send the result or the error."""
    end_with(parent)
    shown = _show_only(shard.device)
    try:
        result: Any = measure_shard(
            replace(shard, device=shown), lambda progress: messages.put((shard.number, progress))
        )
    except EpochcastError as error:
        result = error
    messages.put((shard.number, result))


def _show_only(device: str) -> str:
    if device == "cpu":
        return device
    number = int(device.partition(":")[2])
    visible = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[number] if number < len(visible) else str(number)
    return "cuda:0"


def end_with(parent: int) -> None:
    """End this process when its parent is killed, which alone could collect its measurements."""

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
