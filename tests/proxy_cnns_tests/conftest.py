"""Small lists of configurations, and the fake framework that runs them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from predictor.modes import Mode
from proxy_cnns.device_state import DeviceState, Monitor
from proxy_cnns.operator_shapes import conv, linear
from proxy_cnns.proxy_tables import proxy_table
from proxy_cnns.runs import Request
from proxy_cnns.work import Setting, Work

sys.path.insert(
    0, str(Path(__file__).parent)
)  # `fake_backend:FakeBackend`, in processes of their own as well

OPERATORS = tuple(
    Work("operator", each.name, each.in_height or 1, operator=each)
    for each in (conv(3, 32, 8, (3, 3), first=True), conv(8, 16, 8, (1, 1)), linear(8, 10))
)
TARGETS = tuple(Work("target", name, 8, proxy_table("8_4_4")) for name in ("first", "second"))
SIZES = (4, 16, 64, 256)


def settings_of(works, batch_sizes=SIZES, modes=(Mode(precision="tf32"),)):
    return tuple(
        Setting(work, mode, batch_size) for mode in modes for batch_size in batch_sizes for work in works
    )


@pytest.fixture
def targets():
    return settings_of(TARGETS)


@pytest.fixture
def operators():
    return settings_of(OPERATORS)


@pytest.fixture
def request_of(tmp_path):
    """A request for the fake framework on the CPU, with times in fp32."""

    def make(settings, **changes):
        changes = {"devices": ("cpu",), "allow_noise": True, "out": tmp_path / "run.csv"} | changes
        on_cpu = tuple(replace(each, mode=Mode()) for each in settings)
        return Request("fake", on_cpu, "pytorch", backend="fake_backend:FakeBackend", **changes)

    return make


class Readings(Monitor):
    """A monitor that gives these states one after the other, the last one for ever."""

    def __init__(self, *states):
        self.states = list(states) or [DeviceState()]
        super().__init__(lambda own: {})

    def read(self):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


@pytest.fixture
def readings():
    return Readings
