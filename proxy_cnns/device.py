"""The device around a measurement: its name, whether it is free, and whether it runs at full speed.

A GPU is read through NVIDIA's management library (nvidia-ml-py, the ``gpu`` extra), which needs neither privileges nor
a CUDA context. A reading takes about a millisecond and is not made for each operator.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from predictor.errors import BackendUnavailableError, NoisyMeasurementError, SchemaError

_T = TypeVar("_T")
_BUSY_PERCENT = 5
_BUSY_CPU = 0.25


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One reading. None where the device or its driver gives no value; `missing` is the reason where nothing was read.

    Clocks in MHz, temperature in degrees Celsius, power in W, memory in MiB, utilisation in per cent.
    `other_processes` are lines such as ``4711 python (1024 MiB)``; `cpu_busy` is, where a CPU is measured, the
    share of all processors that other processes used since the reading before.
    """

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    p_state: int | None = None
    temperature_c: int | None = None
    power_limit_w: float | None = None
    power_draw_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    ecc: bool | None = None
    ecc_errors: int | None = None
    compute_mode: int | None = None
    persistence: bool | None = None
    utilisation_percent: int | None = None
    memory_used_mib: int | None = None
    other_processes: tuple[str, ...] = ()
    cpu_busy: float | None = None
    load_average: float | None = None
    missing: str | None = None

    def row(self) -> dict[str, Any]:
        """Known fields, for JSON."""
        return {key: value for key, value in asdict(self).items() if value not in (None, ())}


@dataclass(slots=True)
class Monitor:
    """Reads one device.

    In a container the driver numbers processes otherwise than the container does. So our own processes are those that
    appear between `start` and `settle`, while the framework opens the device.
    """

    read_device: Callable[[], dict[str, Any]]
    watch_cpu: bool = False
    _before: set[int] = field(default_factory=set)
    _own: set[int] | None = None
    _ticks: tuple[float, float] | None = None

    def start(self) -> DeviceState:
        """Read the device before the framework opens it: the processes on it are not ours."""
        self._before = {pid for pid, _ in self.read_device().get("processes", ())}
        return self.read()

    def settle(self) -> None:
        """Count processes that appeared since `start` as our own. Call it once the framework has used the device."""
        if self._own is None:
            now = {pid for pid, _ in self.read_device().get("processes", ())}
            self._own = (now - self._before) | {os.getpid()}

    def read(self) -> DeviceState:
        """Read the device and the processors now."""
        reading = self.read_device()
        processes = reading.pop("processes", ())
        before, own = self._before, self._own
        foreign = tuple(line for pid, line in processes if (pid in before if own is None else pid not in own))
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        earlier, self._ticks, busy = self._ticks, _cpu_seconds() if self.watch_cpu else None, None
        if earlier is not None and self._ticks is not None and self._ticks[1] > earlier[1]:
            share = (self._ticks[0] - earlier[0]) / (self._ticks[1] - earlier[1])
            busy = round(max(0.0, share), 3)
        return replace(DeviceState(cpu_busy=busy, load_average=load), **reading, other_processes=foreign)


def open_monitor(device: str) -> Monitor:
    """Monitor of ``cpu``, ``cuda:N`` or several of them joined by commas.

    Where NVIDIA's library is missing, each reading says so in `missing`.
    """
    if device == "cpu":
        return Monitor(dict, watch_cpu=True)
    readers = [gpu_reader(name) for name in device.split(",")]
    return Monitor(readers[0] if len(readers) == 1 else lambda: _read_together(readers))


def _read_together(readers: Sequence[Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    """Readings of several GPUs as one: processes and slow-downs of any, errors of all, the rest of the first."""
    readings = [read() for read in readers]
    reasons = dict.fromkeys(reason for reading in readings for reason in reading.get("throttle_reasons", ()))
    processes = dict(process for reading in readings for process in reading.get("processes", ()))
    utilisations = filter(None, (reading.get("utilisation_percent") for reading in readings))
    return readings[0] | {
        "throttle_reasons": tuple(reasons),
        "processes": tuple(processes.items()),
        "ecc_errors": sum(reading.get("ecc_errors") or 0 for reading in readings),
        "utilisation_percent": max(utilisations, default=None),
    }


def refuse_busy(state: DeviceState, device: str, label: str = "") -> None:
    """Refuse to start while other processes use the device; `label` is its name in messages.

    NoisyMeasurementError: the message names them.
    """
    reasons = []
    if device != "cpu":
        reasons += [f"process {line} is on the GPU" for line in state.other_processes]
        if not reasons and (state.utilisation_percent or 0) > _BUSY_PERCENT:
            reasons.append(
                f"the GPU is {state.utilisation_percent} % busy with processes that are not visible from here"
            )
    elif (state.cpu_busy or 0.0) > _BUSY_CPU:
        reasons.append(f"other processes use {100 * (state.cpu_busy or 0):.0f} % of the processors")
    if reasons:
        name, more = "the CPU" if (label or device) == "cpu" else label or device, len(reasons) - 2
        words = "; ".join(reasons[:2]) + (f"; and {more} more" if more > 0 else "")
        raise NoisyMeasurementError(
            f"{name} is not free: {words}. Stop these processes, or pass "
            "--allow-noise to measure beside them and note it in the rows."
        )


def disturbances(before: DeviceState, after: DeviceState) -> list[str]:
    """Reasons to distrust measurements made between two readings; empty if there are none."""
    reasons = [f"the GPU slowed down: {name}" for name in after.throttle_reasons if name in HARMFUL]
    reasons += [f"process {line} is on the GPU" for line in after.other_processes]
    if (after.ecc_errors or 0) > (before.ecc_errors or 0):
        reasons.append(f"{after.ecc_errors} uncorrected memory errors, {before.ecc_errors or 0} before")
    if after.cpu_busy is not None and after.cpu_busy > _BUSY_CPU:
        reasons.append(f"other processes used {100 * after.cpu_busy:.0f} % of the processors")
    if after.power_limit_w != before.power_limit_w:
        reasons.append(f"the power limit changed from {before.power_limit_w} W to {after.power_limit_w} W")
    return reasons


def _cpu_seconds() -> tuple[float, float] | None:
    """CPU seconds that other processes used, and all CPU seconds that passed; None outside Linux."""
    try:
        with Path("/proc/stat").open() as file:
            fields_ = [int(ticks) for ticks in file.readline().split()[1:9]]
    except OSError:
        return None
    tick = os.sysconf("SC_CLK_TCK")
    own = os.times()
    idle = fields_[3] + fields_[4]
    own_seconds = own.user + own.system + own.children_user + own.children_system
    return (sum(fields_) - idle) / tick - own_seconds, sum(fields_) / tick


HARMFUL = {
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_slowdown": 0x08,
    "hw_power_brake_slowdown": 0x80,
}
_HARMLESS = {
    "gpu_idle": 0x01,
    "applications_clocks_setting": 0x02,
    "sw_power_cap": 0x04,  # at its own power limit, as every GPU under load: recorded, not refused
    "sync_boost": 0x10,
    "display_clock_setting": 0x100,
}

_NOT_INSTALLED = "nvidia-ml-py is not installed: pip install 'epochcast[gpu]'"


def gpu_reader(device: str) -> Callable[[], dict[str, Any]]:
    """Make the function that reads ``cuda:N``: fields of `DeviceState`, and ``processes``, pairs of number and line.

    `device`: its number counts among ``CUDA_VISIBLE_DEVICES``. Where the library is missing or does not answer, it
    returns only ``missing``, the reason.
    """

    def reader(nvml: Any) -> Callable[[], dict[str, Any]]:
        name = name_of_device(int(device.partition(":")[2] or 0))
        if name.isdecimal():
            handle = nvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            handle = nvml.nvmlDeviceGetHandleByUUID(name)
        return lambda: _read(nvml, handle)

    return _ask_nvml(reader, lambda reason: lambda: {"missing": reason})


def driver_version() -> str | None:
    """Version of NVIDIA's driver; None where it cannot be read."""
    return _ask_nvml(lambda nvml: str(nvml.nvmlSystemGetDriverVersion()), lambda _: None)


def gpu_names() -> list[str] | None:
    """Names of all GPUs of this machine; None where nvidia-ml-py is missing, empty without a driver."""

    def names(nvml: Any) -> list[str] | None:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return [str(nvml.nvmlDeviceGetName(handle)) for handle in handles]

    return _ask_nvml(names, lambda reason: None if reason == _NOT_INSTALLED else [])


def _ask_nvml(ask: Callable[[Any], _T], without: Callable[[str], _T]) -> _T:
    """Answer of NVIDIA's management library, or what `without` makes of the reason why it gives none."""
    try:
        import pynvml
    except ImportError:
        return without(_NOT_INSTALLED)
    try:
        pynvml.nvmlInit()
        return ask(pynvml)
    except pynvml.NVMLError as error:
        return without(f"NVIDIA's management library does not answer: {error}")


def shown_devices() -> list[str]:
    """Numbers or UUIDs in ``CUDA_VISIBLE_DEVICES``; empty where it is unset."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [name.strip() for name in names if name.strip()]


def name_of_device(number: int) -> str:
    """The driver's number or UUID of the device that frameworks number so."""
    shown = shown_devices()
    return shown[number] if number < len(shown) else str(number)


def _read(nvml: Any, handle: Any) -> dict[str, Any]:
    def ask(function: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, function)(handle, *arguments)
        except (nvml.NVMLError, AttributeError):  # not supported by this GPU, or by this driver
            return None

    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    power, limit = ask("nvmlDeviceGetPowerUsage"), ask("nvmlDeviceGetEnforcedPowerLimit")
    ecc, persistence, mode = (
        ask(f"nvmlDeviceGet{field_name}") for field_name in ("EccMode", "PersistenceMode", "ComputeMode")
    )
    utilisation, memory = ask("nvmlDeviceGetUtilizationRates"), ask("nvmlDeviceGetMemoryInfo")
    processes = []  # number of each, and a line about it
    for process in ask("nvmlDeviceGetComputeRunningProcesses") or ():
        try:
            name = Path(str(nvml.nvmlSystemGetProcessName(process.pid))).name
        except nvml.NVMLError:
            name = "of another container"
        used = f" ({process.usedGpuMemory // 2**20} MiB)" if process.usedGpuMemory else ""
        processes.append((process.pid, f"{process.pid} {name}{used}"))
    return {
        "sm_clock_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "p_state": ask("nvmlDeviceGetPerformanceState"),
        "temperature_c": ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "power_limit_w": None if limit is None else limit / 1000,
        "power_draw_w": None if power is None else power / 1000,
        "throttle_reasons": tuple(name for name, bit in (HARMFUL | _HARMLESS).items() if reasons & bit),
        "ecc": None if ecc is None else bool(ecc[0]),
        "ecc_errors": ask("nvmlDeviceGetTotalEccErrors", 1, 0),  # uncorrected, since the driver was loaded
        "compute_mode": mode,
        "persistence": None if persistence is None else bool(persistence),
        "utilisation_percent": None if utilisation is None else utilisation.gpu,
        "memory_used_mib": None if memory is None else memory.used // 2**20,
        "processes": tuple(processes),
    }


def cpu_model() -> str:
    """Model of the processor as it names itself, or its architecture where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine()


def host_name() -> str:
    """Processor and how many of its cores this process may use, such as ``Intel(R) Xeon(R) ..., 16 cores``."""
    return f"{cpu_model()}, {usable_cpus()} cores"


def usable_cpus() -> int:
    """Hardware threads that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus(text: str) -> tuple[str, ...]:
    """Devices of ``--gpus``: ``all``, or numbers such as ``0,1``.

    SchemaError if `text` is neither, or names GPUs of different kinds; BackendUnavailableError if there is no GPU, or
    none of this number.
    """
    names = gpu_names()
    if names is not None and "CUDA_VISIBLE_DEVICES" in os.environ:
        n, installed = len(names), names
        names = [installed[int(gpu)] if gpu.isdecimal() and int(gpu) < n else gpu for gpu in shown_devices()]
    if text.strip() == "all":
        if not names:
            raise BackendUnavailableError(
                "--gpus all finds no GPU: NVIDIA's driver or nvidia-ml-py (pip install 'epochcast[gpu]') is "
                "missing. `epochcast profile doctor` says which; --device cpu measures without."
            )
        chosen = list(range(len(names)))
    else:
        texts = [number_text.strip() for number_text in text.split(",")]
        if not all(number_text.isdecimal() for number_text in texts) or len(set(texts)) < len(texts):
            raise SchemaError(f"--gpus {text!r} is neither `all` nor different numbers such as 0,1.")
        chosen = list(map(int, texts))
        if names is not None and max(chosen) >= len(names):
            raise BackendUnavailableError(
                f"there is no GPU {max(chosen)}: this machine has {len(names)}, numbered from 0."
            )
    kinds = sorted({names[number] for number in chosen}) if names else []
    if len(kinds) > 1:
        raise SchemaError(
            f"--gpus {text}: these GPUs differ: {', '.join(kinds)}. Measure each kind into a table of its own."
        )
    return tuple(f"cuda:{number}" for number in chosen)
