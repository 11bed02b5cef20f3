"""Small lists of configurations, and the fake framework that runs them."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from predictor.catalogue.modes import Mode
from proxy_cnns.device import DeviceState, Monitor
from proxy_cnns.jobs import Request

# The fake framework must be found by its name in other processes as well.
sys.path.insert(0, str(Path(__file__).parent))

from small_subjects import OPERATORS, TARGETS, configurations_of


@pytest.fixture
def targets():
    return configurations_of(TARGETS)


@pytest.fixture
def operators():
    return configurations_of(OPERATORS)


@pytest.fixture
def request_of(tmp_path):
    """A request for the fake framework on the CPU, in fp32."""

    def make(configurations, **changes):
        changes = {"devices": ("cpu",), "allow_noise": True, "out": tmp_path / "run.csv"} | changes
        on_cpu = tuple(replace(configuration, mode=Mode()) for configuration in configurations)
        return Request("fake", on_cpu, "pytorch", backend="fake_backend:FakeBackend", **changes)

    return make


class Readings(Monitor):
    """A monitor that gives these states one after the other, the last one for ever."""

    def __init__(self, *states):
        self.states = list(states) or [DeviceState()]
        super().__init__(dict)

    def read(self):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


@pytest.fixture
def readings():
    return Readings


@pytest.fixture
def orders(monkeypatch):
    """Tell fake backends what is to go wrong, in this process and in those it starts."""

    def order(**what):
        monkeypatch.setenv("FAKE_ORDERS", json.dumps(what))

    return order


@pytest.fixture
def gpus(monkeypatch):
    """Give this machine GPUs of these names."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def have(*names):
        library = SimpleNamespace(
            NVMLError=OSError,
            nvmlInit=lambda: None,
            nvmlDeviceGetCount=lambda: len(names),
            nvmlDeviceGetHandleByIndex=lambda number: number,
            nvmlDeviceGetName=lambda handle: names[handle],
        )
        monkeypatch.setitem(sys.modules, "pynvml", library)

    return have
