"""`epochcast profile` without its options: a preset on one device or several, into one table.

Every process opens its device, checks that it is free, and measures its own series; what is on disk already
is skipped, so a killed run goes on where it stopped.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from predictor.catalogue.devices import find_gpu, precisions_of
from predictor.errors import ProfilingError, SchemaError
from predictor.measurements.table import canonical_gpu_name
from proxy_cnns.backends import Backend, load_backend
from proxy_cnns.campaign import Progress, Task, measure_all, pending
from proxy_cnns.device_state import Monitor, open_monitor, refuse_busy
from proxy_cnns.host import host_name
from proxy_cnns.mode_checks import CPU_PRECISIONS
from proxy_cnns.nvml import driver_version
from proxy_cnns.profiler import LIMITS, Limits
from proxy_cnns.rows import series_of, setting_key
from proxy_cnns.run_file import Run, RunFile, rows_paths
from proxy_cnns.run_table import read_run, reopen, write_table
from proxy_cnns.work import Setting

__all__ = ["Outcome", "Request", "Share", "measure_share", "profile"]

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
_PATIENCE_S = 3.0  # utilisation is a mean over up to a second: our own last run may still show


@dataclass(frozen=True, slots=True)
class Request:
    """One run: what to measure, where, and where it goes. Times in s and ms."""

    name: str
    settings: tuple[Setting, ...]
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


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a request that one process measures: every n-th series."""

    request: Request
    device: str
    number: int
    of: int
    deadline: float | None
    label: str
    """The device's name among all of the machine, of which a process may be shown this one alone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left: rows in the table, those of them new, and what is not in it."""

    out: Path
    gpu: str
    rows: int
    new: int
    left: int
    ended: tuple[str, ...]
    failed: tuple[str, ...]


def profile(request: Request, report: Callable[[Progress], None] = lambda _: None) -> Outcome:
    """Measure what the request names and is not on disk yet, and write its table.

    Parameters
    ----------
    request : Request
    report : callable
        Told how far the run is after each configuration.

    Raises
    ------
    BackendUnavailableError
        If the framework is not installed, or there is no such device.
    NoisyMeasurementError
        If the device is not free, or was disturbed, and noise is not allowed.
    SchemaError
        If `out` belongs to another run, or is being written by one.
    ProfilingError
        If the disk is full, or every configuration failed.
    """
    start = time.perf_counter()
    deadline = None if request.budget_s is None else start + request.budget_s
    before = read_run(request.out, None)
    opened = reopen(request.out) if pending(request.settings, before, refine=request.refine) else None
    try:
        environment = _measure(request, deadline, report)
    except SchemaError:
        if opened is not None:
            opened.unlink(missing_ok=True)
        raise
    run = read_run(request.out, None)
    if run.failed and not (run.rows or run.ended or pending(request.settings, run, refine=request.refine)):
        _refuse_nothing(request, run)
    if rows_paths(request.out):
        write_table(run, request.out, environment)
        for path in rows_paths(request.out):
            path.unlink()
    return _outcome(request, run, before)


def measure_share(share: Share, report: Callable[[Progress], None]) -> dict[str, Any]:
    """Measure one process's part of a request, and return the environment it was measured in."""
    request = share.request
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # one numbering for framework and driver
    monitor = open_monitor(share.device)
    opened = time.perf_counter()
    monitor.start()
    reading_ms = 1000 * (time.perf_counter() - opened) / 2  # it reads twice
    if not request.allow_noise:
        _wait_until_free(monitor, share.device, share.label)
    backend = _backend(request, share.device)
    environment = {"framework": backend.framework, "host": host_name(), **backend.environment()}
    if share.device != "cpu":
        environment.setdefault("driver", driver_version())
    environment["device_reading_ms"] = round(reading_ms, 3)
    environment["gpu"] = canonical_gpu_name(str(environment["gpu"]))
    _refuse_precisions(request, str(environment["gpu"]))
    run = read_run(request.out, identity := _identity(request, environment))
    settings = _own_series(share)
    if pending(settings, run, refine=request.refine):
        _measure_into(share, settings, backend, monitor, run, identity, environment, report)
    return environment


def _refuse_nothing(request: Request, run: Run) -> None:
    """Leave no empty table behind that would stand in the way of the next run."""
    for path in rows_paths(request.out):
        path.unlink()
    key, reason = next(iter(run.failed.items()))
    raise ProfilingError(
        f"nothing was measured, and {request.out} was not written: {_name(key)} and all other configurations "
        f"failed. {reason}"
    )


def _measure(request: Request, deadline: float | None, report: Callable[[Progress], None]) -> dict[str, Any]:
    if len(request.devices) == 1:
        return measure_share(Share(request, request.devices[0], 0, 1, deadline, request.devices[0]), report)
    from proxy_cnns.parallel import measure_in_parallel

    shares = [
        Share(request, device, number, len(request.devices), deadline, device)
        for number, device in enumerate(request.devices)
    ]
    return measure_in_parallel(shares, report)


def _measure_into(
    share: Share,
    settings: Sequence[Setting],
    backend: Backend,
    monitor: Monitor,
    run: Run,
    identity: Mapping[str, Any],
    environment: Mapping[str, Any],
    report: Callable[[Progress], None],
) -> None:
    request = share.request
    about = {
        "framework": environment["framework"],
        "gpu": environment["gpu"],
        "host": environment["host"],
        "device_kind": "cpu" if share.device == "cpu" else "gpu",
        **{name: environment[name] for name in _COLUMNS if environment.get(name) is not None},
    }
    task = Task(
        tuple(settings),
        share.device,
        share.label,
        about,
        share.deadline,
        request.allow_noise,
        request.refine,
        request.longest_ms,
        request.limits,
    )
    every_row = any(setting.work.kind != "operator" for setting in settings)
    mark = f".{share.number}" if share.of > 1 else ""
    path = request.out.with_name(f"{request.out.name}.rows{mark}.jsonl")
    file = RunFile(path, identity, sync_each=every_row)
    try:
        measure_all(task, backend, monitor, run, file, report)
    finally:
        file.close()


def _own_series(share: Share) -> list[Setting]:
    """Deal out whole series, so that one process knows where each of its series ends."""
    numbers: dict[Any, int] = {}
    own = []
    for setting in share.request.settings:
        number = numbers.setdefault(series_of(setting_key(setting)), len(numbers))
        if number % share.of == share.number:
            own.append(setting)
    return own


def _identity(request: Request, environment: Mapping[str, Any]) -> dict[str, Any]:
    modes = dict.fromkeys(
        f"{mode.precision} {mode.memory_format} {mode.capture}" + " autotune" * mode.autotune
        for mode in (setting.mode for setting in request.settings)
    )
    of_cpu = ("torch_threads",) if str(environment["gpu"]).startswith("cpu:") else ()
    known = {name: environment[name] for name in _IDENTITY + of_cpu if environment.get(name) is not None}
    return {"preset": request.name, "modes": sorted(modes), **known}


def _refuse_precisions(request: Request, gpu: str) -> None:
    """Refuse what the device does not compute, before anything is measured under a wrong name."""
    able = CPU_PRECISIONS if gpu.startswith("cpu:") else precisions_of(find_gpu(gpu))
    wanted = sorted({setting.mode.precision for setting in request.settings} - set(able))
    if wanted:
        raise SchemaError(f"{gpu} has no {wanted[0]}. It has: {', '.join(able)}; pass --precision.")


def _wait_until_free(monitor: Monitor, device: str, label: str) -> None:
    """Refuse a busy device, but not for what is only the echo of a run that has just ended."""
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


def _outcome(request: Request, run: Run, before: Run) -> Outcome:
    return Outcome(
        request.out,
        str((run.identity or {}).get("gpu", "")),
        len(run.rows),
        len(run.rows.keys() - before.rows.keys()),
        len(pending(request.settings, run, refine=request.refine)),
        tuple(
            f"{_name(end['series'])} from batch {end['batch_size']}: {end['reason']}"
            for end in run.ended.values()
        ),
        tuple(f"{_name(key)}: {reason}" for key, reason in run.failed.items()),
    )


def _name(key: Sequence[str]) -> str:
    return f"{key[1]} {key[3]} {key[4]}"
