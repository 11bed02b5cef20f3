"""What NVIDIA's management library says of a GPU, through nvidia-ml-py (the ``gpu`` extra).

Needs no privileges and no CUDA context.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["HARMFUL", "driver_version", "gpu_names", "gpu_reader"]

HARMFUL = {
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_slowdown": 0x08,
    "hw_power_brake_slowdown": 0x80,
}
_HARMLESS = {
    "gpu_idle": 0x01,
    "applications_clocks_setting": 0x02,
    "sw_power_cap": 0x04,  # the GPU at its own power limit: how it runs under load, recorded and kept
    "sync_boost": 0x10,
    "display_clock_setting": 0x100,
}

_NOT_INSTALLED = "nvidia-ml-py is not installed: pip install 'epochcast[gpu]'"


def gpu_reader(device: str) -> Callable[[], dict[str, Any]]:
    """Make what reads ``cuda:N``: fields of `DeviceState`, and ``processes``, pairs of number and line.

    Parameters
    ----------
    device : str
        Found by its number among ``CUDA_VISIBLE_DEVICES``.

    Returns
    -------
    callable
        Where the library is missing or does not answer, it gives the reason as ``missing`` alone.
    """
    try:
        import pynvml
    except ImportError:
        return lambda: {"missing": _NOT_INSTALLED}
    try:
        pynvml.nvmlInit()
        handle = _handle(pynvml, device)
    except pynvml.NVMLError as error:
        reason = f"NVIDIA's management library does not answer: {error}"
        return lambda: {"missing": reason}
    return lambda: _read(pynvml, handle)


def driver_version() -> str | None:
    """Version of NVIDIA's driver; None where it cannot be asked."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except ImportError:
        return None
    except pynvml.NVMLError:
        return None


def gpu_names() -> list[str] | None:
    """Names of all GPUs of this machine; None where nvidia-ml-py is missing, empty without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    except ImportError:
        return None
    except pynvml.NVMLError:
        return []


def _handle(nvml: Any, device: str) -> Any:
    number = int(device.partition(":")[2] or 0)
    visible = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    name = visible[number] if number < len(visible) else str(number)
    if name.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)


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
        ask(f"nvmlDeviceGet{what}") for what in ("EccMode", "PersistenceMode", "ComputeMode")
    )
    utilisation, memory = ask("nvmlDeviceGetUtilizationRates"), ask("nvmlDeviceGetMemoryInfo")
    return {
        "sm_clock_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "p_state": ask("nvmlDeviceGetPerformanceState"),
        "temperature_c": ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "power_limit_w": None if limit is None else limit / 1000,
        "power_draw_w": None if power is None else power / 1000,
        "throttle_reasons": tuple(_names(reasons)),
        "ecc": None if ecc is None else bool(ecc[0]),
        "ecc_errors": ask("nvmlDeviceGetTotalEccErrors", 1, 0),  # uncorrected, since the driver was loaded
        "compute_mode": mode,
        "persistence": None if persistence is None else bool(persistence),
        "utilisation_percent": None if utilisation is None else utilisation.gpu,
        "memory_used_mib": None if memory is None else memory.used // 2**20,
        "processes": tuple(_processes(nvml, ask("nvmlDeviceGetComputeRunningProcesses") or ())),
    }


def _names(reasons: int) -> Iterable[str]:
    return [name for name, bit in (HARMFUL | _HARMLESS).items() if reasons & bit]


def _processes(nvml: Any, processes: Iterable[Any]) -> Iterable[tuple[int, str]]:
    """Number of each process on the GPU, and a line about it."""
    for process in processes:
        try:
            name = Path(str(nvml.nvmlSystemGetProcessName(process.pid))).name
        except nvml.NVMLError:
            name = "of another container"
        memory = f" ({process.usedGpuMemory // 2**20} MiB)" if process.usedGpuMemory else ""
        yield process.pid, f"{process.pid} {name}{memory}"
