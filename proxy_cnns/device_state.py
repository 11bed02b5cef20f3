"""The state of the device around a measurement: whether it is free, and runs as it should.

A reading takes about a millisecond and is never made for each operator.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from predictor.errors import NoisyMeasurementError
from proxy_cnns.nvml import HARMFUL, gpu_reader

__all__ = ["DeviceState", "Monitor", "disturbances", "open_monitor", "refuse_busy"]

_BUSY_PERCENT = 5
_BUSY_CPU = 0.25


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One reading. None where the device or its driver does not tell; `missing` says why there is none at all.

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
        """What is known, for JSON."""
        return {key: value for key, value in asdict(self).items() if value not in (None, ())}


@dataclass(slots=True)
class Monitor:
    """Reads one device.

    In a container the driver knows a process by another number than the process itself, so ours are told from
    others by when they came: between `start` and `settle` the framework opens the device.
    """

    read_device: Callable[[], dict[str, Any]]
    watch_cpu: bool = False
    _before: set[int] = field(default_factory=set)
    _own: set[int] | None = None
    _ticks: tuple[float, float] | None = None

    def start(self) -> DeviceState:
        """Read the device before the framework opens it: whatever is there is not ours."""
        self._before = {pid for pid, _ in self.read_device().get("processes", ())}
        return self.read()

    def settle(self) -> None:
        """Take what came since `start` for our own; called once the framework has worked on the device."""
        if self._own is None:
            now = {pid for pid, _ in self.read_device().get("processes", ())}
            self._own = (now - self._before) | {os.getpid()}

    def read(self) -> DeviceState:
        """Read the device and the processors now."""
        found = self.read_device()
        others = tuple(line for pid, line in found.pop("processes", ()) if self._foreign(pid))
        return replace(self._cpu(), **found, other_processes=others)

    def _foreign(self, pid: int) -> bool:
        return pid in self._before if self._own is None else pid not in self._own

    def _cpu(self) -> DeviceState:
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        ticks, before = _cpu_seconds() if self.watch_cpu else None, self._ticks
        self._ticks = ticks
        if ticks is None or before is None or ticks[1] - before[1] <= 0:
            return DeviceState(load_average=load)
        busy = (ticks[0] - before[0]) / (ticks[1] - before[1])
        return DeviceState(cpu_busy=round(max(0.0, busy), 3), load_average=load)


def open_monitor(device: str) -> Monitor:
    """Monitor of ``cpu`` or ``cuda:N``; where NVIDIA's library is missing, its readings say so."""
    return Monitor(dict, watch_cpu=True) if device == "cpu" else Monitor(gpu_reader(device))


def refuse_busy(state: DeviceState, device: str, label: str = "") -> None:
    """Refuse to start where something else works; `label` is what people call the device.

    Raises
    ------
    NoisyMeasurementError
        Naming what it is.
    """
    reasons = []
    if device != "cpu":
        reasons += [f"process {line} is on the GPU" for line in state.other_processes]
        if not reasons and (state.utilisation_percent or 0) > _BUSY_PERCENT:
            reasons.append(
                f"the GPU is busy ({state.utilisation_percent} %) with what is not visible from here"
            )
    elif (state.cpu_busy or 0.0) > _BUSY_CPU:
        reasons.append(f"other processes use {100 * (state.cpu_busy or 0):.0f} % of the processors")
    if reasons:
        raise NoisyMeasurementError(
            f"{label or device} is not free: {_first(reasons)}. Stop what runs there, or pass --allow-noise "
            "to measure all the same and have it noted."
        )


def disturbances(before: DeviceState, after: DeviceState) -> list[str]:
    """Why what was measured between two readings cannot be trusted; empty if nothing speaks against it."""
    reasons = [f"the GPU slowed down: {name}" for name in after.throttle_reasons if name in HARMFUL]
    reasons += [f"process {line} is on the GPU" for line in after.other_processes]
    if (after.ecc_errors or 0) > (before.ecc_errors or 0):
        reasons.append(f"{after.ecc_errors} uncorrected memory errors, {before.ecc_errors or 0} before")
    if after.cpu_busy is not None and after.cpu_busy > _BUSY_CPU:
        reasons.append(f"other processes used {100 * after.cpu_busy:.0f} % of the processors")
    if after.power_limit_w != before.power_limit_w:
        reasons.append(f"the power limit changed from {before.power_limit_w} W to {after.power_limit_w} W")
    return reasons


def _first(reasons: list[str]) -> str:
    more = len(reasons) - 2
    return "; ".join(reasons[:2]) + (f"; and {more} more" if more > 0 else "")


def _cpu_seconds() -> tuple[float, float] | None:
    """Seconds that other processes kept the processors busy, and all seconds they had; None outside Linux."""
    try:
        with Path("/proc/stat").open() as file:
            fields_ = [int(each) for each in file.readline().split()[1:9]]
    except OSError:
        return None
    tick = os.sysconf("SC_CLK_TCK")
    own = os.times()
    idle = fields_[3] + fields_[4]
    own_seconds = own.user + own.system + own.children_user + own.children_system
    return (sum(fields_) - idle) / tick - own_seconds, sum(fields_) / tick
