"""Readings of a device: what disturbs, what does not, and how NVIDIA's library is asked."""

import os
import sys
from types import SimpleNamespace

import pytest
from case_tables import each_row
from waiting import wait_until

from predictor.errors import NoisyMeasurementError
from proxy_cnns.device import DeviceState, disturbances, open_monitor, refuse_busy, visible_gpus
from proxy_cnns.runs import _show_only

OTHER = "4711 train.py (1024 MiB)"


class NvmlError(Exception):
    """What a function raises that this GPU does not support."""


def nvml(**answers):
    """NVIDIA's library with these answers by function; everything else is not supported."""

    def not_supported(*arguments):
        raise NvmlError("Not Supported")

    usual = {
        "nvmlInit": None,
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetPowerUsage": 512_300,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetEccMode": (1, 1),
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=3, memory=0),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2**30),
        "nvmlSystemGetProcessName": "/usr/bin/train.py",
    } | answers
    library = SimpleNamespace(NVMLError=NvmlError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0)
    names = ["EccMode", "PersistenceMode", "ComputeMode", "PerformanceState", "Temperature", "TotalEccErrors"]
    names += ["CurrentClocksEventReasons", "CurrentClocksThrottleReasons"]
    for name in (f"nvmlDeviceGet{name}" for name in names):
        setattr(library, name, not_supported)
    for name, answer in usual.items():
        setattr(library, name, lambda *_arguments, answer=answer: answer)
    library.nvmlDeviceGetHandleByIndex = lambda number: ("index", number)
    library.nvmlDeviceGetHandleByUUID = lambda uuid: ("uuid", uuid)
    return library


@pytest.fixture
def library(monkeypatch):
    """Install a library with these answers."""

    def install(**answers):
        installed = nvml(**answers)
        monkeypatch.setitem(sys.modules, "pynvml", installed)
        return installed

    return install


def test_a_reading_is_in_the_units_of_the_state_and_what_a_gpu_does_not_tell_is_none(library):
    library()
    state = open_monitor("cuda:0").read()
    assert (state.sm_clock_mhz, state.power_draw_w, state.power_limit_w) == (1980, 512.3, 700)
    assert (state.ecc, state.memory_used_mib, state.utilisation_percent) == (True, 1024, 3)
    assert state.temperature_c is None
    assert "temperature_c" not in state.row()


@each_row
def test_throttle_reasons_are_named_in_the_words_of_every_driver(library, function, bits, reasons):
    library(**{f"nvmlDeviceGetCurrentClocks{function}Reasons": bits})
    assert set(open_monitor("cuda:0").read().throttle_reasons) == set(reasons)


def test_our_own_process_is_not_another_whatever_the_driver_calls_it_in_a_container(library):
    nvidia = library(nvmlDeviceGetComputeRunningProcesses=[])
    monitor = open_monitor("cuda:0")
    monitor.start()
    ours = [SimpleNamespace(pid=9, usedGpuMemory=None)]
    nvidia.nvmlDeviceGetComputeRunningProcesses = lambda _handle: ours
    assert monitor.read().other_processes == ()
    monitor.settle()
    assert monitor.read().other_processes == ()
    ours += [SimpleNamespace(pid=pid, usedGpuMemory=2**30) for pid in (os.getpid(), 4711)]
    assert monitor.read().other_processes == (OTHER,)


def test_who_was_there_before_us_stays_another(library):
    library(nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=4711, usedGpuMemory=2**30)])
    monitor = open_monitor("cuda:0")
    assert monitor.start().other_processes == (OTHER,)
    monitor.settle()
    assert monitor.read().other_processes == (OTHER,)


@each_row
def test_the_gpu_is_the_one_that_the_framework_sees(library, monkeypatch, visible, device, handle):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvidia = library()
    handles = []
    nvidia.nvmlDeviceGetMemoryInfo = lambda of: handles.append(of) or SimpleNamespace(used=0)
    open_monitor(device).read()
    assert handles == [tuple(handle)]


def test_without_the_library_or_a_driver_the_state_says_why(library, monkeypatch):
    library().nvmlInit = lambda: (_ for _ in ()).throw(NvmlError("Driver Not Loaded"))
    assert "Driver Not Loaded" in open_monitor("cuda:0").read().missing
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install 'epochcast[gpu]'" in open_monitor("cuda:0").read().missing


def test_a_cpu_tells_what_others_used():
    monitor = open_monitor("cpu")
    shares = [monitor.read().cpu_busy]
    wait_until(lambda: shares.append(monitor.read().cpu_busy) or shares[-1] is not None)
    assert 0 <= shares[-1] <= 1.5


@each_row
def test_a_busy_device_is_refused(device, state, reason):
    with pytest.raises(NoisyMeasurementError, match=rf"is not free: .*{reason}.*--allow-noise"):
        refuse_busy(DeviceState(**state), device)


def test_a_free_device_is_not_refused():
    for device in ("cpu", "cuda:0"):
        refuse_busy(DeviceState(cpu_busy=0.05, utilisation_percent=1), device)


@each_row
def test_a_disturbance_is_named(after, reason):
    before = DeviceState(other_processes=after.get("other_processes", ()))
    (disturbance,) = disturbances(before, DeviceState(**after))
    assert reason in disturbance


def test_how_a_gpu_runs_under_load_is_no_disturbance():
    harmless = ("gpu_idle", "sw_power_cap", "applications_clocks_setting")
    assert disturbances(DeviceState(), DeviceState(throttle_reasons=harmless)) == []


@each_row
def test_numbers_choose_among_the_visible_gpus(gpus, monkeypatch, visible, numbers, devices):
    gpus(*["NVIDIA H200"] * 4)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus(numbers) == tuple(devices)


@pytest.mark.parametrize(("visible", "shown"), [("", "1"), ("4,7", "7"), ("GPU-a,GPU-b", "GPU-b")])
def test_a_process_is_shown_its_gpu_alone(monkeypatch, visible, shown):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _show_only("cuda:1") == "cuda:0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == shown
