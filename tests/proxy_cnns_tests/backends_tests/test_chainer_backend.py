"""Chainer's timing on a pretended GPU."""

import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_subjects import TARGETS

from predictor.catalogue.modes import Mode
from predictor.errors import BackendUnavailableError, NoisyMeasurementError
from proxy_cnns.backends.base import Program
from proxy_cnns.backends.chainer.backend import ChainerPrepared
from proxy_cnns.backends.chainer.device import CupyDevice
from proxy_cnns.backends.chainer.modes import configured
from proxy_cnns.backends.chainer.operators import operator_program
from proxy_cnns.configuration import Configuration
from proxy_cnns.designs import operators_in

FP32 = Mode(framework="chainer")


def test_small_operators_run_in_many_copies_large_ones_alone(chainer):
    (operator,) = operators_in(["add: 64@8"])
    small = operator_program(operator, FP32, 1, "@numpy", 2**20)
    large = operator_program(operator, FP32, 256, "@numpy", 2**20)
    assert (small.copies, large.copies) == (16, 1)


class PretendedGpu:
    """Takes `busy_ms` for an iteration; the host is ahead if the GPU waits at least `needs_ms`."""

    def __init__(self, needs_ms: float, busy_ms: float = 1.0) -> None:
        self.needs_ms = needs_ms
        self.busy_ms = busy_ms
        self.waits: list[float] = []

    def synchronise(self) -> None:
        pass

    def queued_time_ms(self, parts: Sequence[Callable[[], None]], wait_ms: float) -> float | None:
        for enqueue in parts:
            enqueue()
        self.waits.append(wait_ms)
        return self.busy_ms * len(parts) if wait_ms >= self.needs_ms else None


def _prepared(gpu: PretendedGpu, copies: int = 1) -> ChainerPrepared:
    backend = SimpleNamespace(_gpu=gpu, _plans=None, running=lambda _: configured(FP32))
    return ChainerPrepared(backend, Configuration(TARGETS[0], FP32, 2), Program((lambda: None,), copies))


def test_gpu_time_is_that_of_an_iteration_queued_behind_a_wait_short_ones_several_together(chainer):
    prepared = _prepared(PretendedGpu(needs_ms=0))
    assert "queued behind a waiting kernel" in (prepared.capture() or "")
    assert prepared.gpu_times_ms(3) == [1.0, 1.0, 1.0]
    prepared = _prepared(PretendedGpu(needs_ms=0, busy_ms=0.05), copies=5)
    prepared.capture()
    assert prepared.gpu_times_ms(1) == [pytest.approx(0.01)]


def test_a_host_that_is_never_ahead_gives_no_gpu_time_and_the_reason(chainer):
    prepared = _prepared(PretendedGpu(needs_ms=1e9))
    assert "more kernels than can be queued" in (prepared.capture() or "")
    assert prepared.gpu_times_ms(3) is None


def test_a_wait_grows_when_the_host_falls_behind_and_one_that_stays_behind_is_a_disturbance(chainer):
    gpu = PretendedGpu(needs_ms=0)
    prepared = _prepared(gpu)
    prepared.capture()
    gpu.needs_ms = 2 * gpu.waits[-1]
    assert prepared.gpu_times_ms(1) == [1.0]
    gpu.needs_ms = 1e9
    with pytest.raises(NoisyMeasurementError, match="fell behind the GPU"):
        prepared.gpu_times_ms(1)


class PretendedCupy(ModuleType):
    """A stream whose GPU comes to an event after `polls` looks at it; each event is 2 ms after the one before."""

    def __init__(self, polls: int) -> None:
        super().__init__("cupy")
        gpu = {"name": b"NVIDIA Pretended", "major": 9, "minor": 0, "l2CacheSize": 2**20}
        recorded: list[Any] = []

        class Event:
            def __init__(self) -> None:
                self.looks = 0

            def record(self) -> None:
                recorded.append(self)

            def synchronize(self) -> None:
                pass

            @property
            def done(self) -> bool:
                self.looks += 1
                return self.looks > polls

        def elapsed(begin: Any, end: Any) -> float:
            return 2.0 * (recorded.index(end) - recorded.index(begin))

        counts = {"getDeviceCount": lambda: 1, "getDeviceProperties": lambda _: gpu}
        runtime = SimpleNamespace(**counts, CUDARuntimeError=RuntimeError)
        device = lambda _: SimpleNamespace(use=lambda: None, synchronize=lambda: None)  # noqa: E731
        self.cuda = SimpleNamespace(runtime=runtime, Device=device, Event=Event, get_elapsed_time=elapsed)
        self.launched: list[Any] = []
        self.RawKernel = lambda _code, name: lambda *arguments: self.launched.append((name, arguments))
        self.uint64 = np.uint64


def test_a_queued_time_spans_from_the_wait_to_the_last_part(monkeypatch):
    cupy = PretendedCupy(polls=1)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert CupyDevice(0).queued_time_ms([lambda: None, lambda: None], 1.5) == 4.0
    assert cupy.launched == [("wait_ns", ((1,), (1,), (1_500_000,)))]


def test_a_gpu_that_came_to_a_part_before_it_was_enqueued_gives_no_time_and_one_that_is_missing_an_error(
    monkeypatch,
):
    monkeypatch.setitem(sys.modules, "cupy", PretendedCupy(polls=0))
    assert CupyDevice(0).queued_time_ms([lambda: None], 1.5) is None
    with pytest.raises(BackendUnavailableError, match="no cuda:3: CuPy sees 1 GPUs"):
        CupyDevice(3)
