"""The Chainer backend on the CPU, and its timing on a pretended GPU."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_subjects import RARE, kinds_of_operator

from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import (
    BackendUnavailableError,
    DeviceOutOfMemoryError,
    NoisyMeasurementError,
    ProfilingError,
    SchemaError,
)
from predictor.operators.operators import Operator
from proxy_cnns.backends import load_backend
from proxy_cnns.backends.base import Program
from proxy_cnns.backends.chainer.backend import ChainerBackend
from proxy_cnns.backends.chainer.device import CupyDevice, refusing
from proxy_cnns.backends.chainer.modes import check_mode, configured
from proxy_cnns.backends.chainer.operators import operator_program
from proxy_cnns.backends.chainer.prepared import ChainerPrepared
from proxy_cnns.configuration import Builder, Configuration, Subject
from proxy_cnns.designs import same_shape

FP32 = Mode(framework="chainer")


@pytest.fixture
def backend(chainer: ModuleType) -> ChainerBackend:
    return ChainerBackend("cpu")


def _target(name: str, size: int, batch_size: int = 2, mode: Mode = FP32) -> Configuration:
    return Configuration(Subject("target", name, size, table=zoo_cnn(name, size)), mode, batch_size)


def _operator(operator: Operator, batch_size: int = 2) -> Configuration:
    return Configuration(
        Subject("operator", operator.name, operator.in_height or 1, operator=operator), FP32, batch_size
    )


def test_the_backend_is_found_by_its_name(chainer):
    assert load_backend("chainer", "cpu").framework == "chainer"


def test_without_cudnn_the_environment_says_how_convolutions_run(backend):
    about = backend.environment()
    assert (about["convolutions"], about["batch_norm_and_pooling"]) == ("im2col", "numpy")
    assert about["framework_version"] == "7.8.1"
    assert str(about["gpu"]).startswith("cpu:")


def test_an_unknown_device_is_refused(chainer):
    with pytest.raises(BackendUnavailableError, match="give cpu or cuda:0"):
        ChainerBackend("tpu")


def test_a_gpu_without_cupy_is_refused_with_what_to_install(chainer, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailableError, match=r"epochcast\[cuda12\]"):
        ChainerBackend("cuda:0")


def test_a_workspace_that_is_no_number_is_refused(chainer, monkeypatch):
    monkeypatch.setenv("EPOCHCAST_WORKSPACE_MIB", "much")
    with pytest.raises(SchemaError, match="'much': give a number of MiB"):
        ChainerBackend("cpu")


@pytest.mark.parametrize("capture", ["eager", "static_graph"])
def test_a_cnn_runs_and_is_timed(backend, capture):
    prepared = backend.prepare(_target("lenet5", 32, mode=Mode("chainer", capture=capture)))
    prepared.run(2)
    prepared.synchronise()
    assert prepared.host_time_ms(1) > 0
    assert prepared.capture() == "a CPU has no CUDA graphs"
    assert (prepared.gpu_times_ms(3), prepared.peak_memory_mib(), prepared.conv_algorithms()) == (
        None,
        None,
        None,
    )


def test_training_changes_the_parameters(backend, monkeypatch):
    made: list[Any] = []
    from proxy_cnns.backends.chainer import training

    build = training.network
    monkeypatch.setattr(training, "network", lambda *a, **k: made.append(build(*a, **k)) or made[-1])
    monkeypatch.setattr(training, "LEARNING_RATE", 0.1)
    prepared = backend.prepare(_target("lenet5", 32))
    before = [param.array.copy() for param in made[0].params()]
    prepared.run(1)
    assert all(
        not np.array_equal(*pair) for pair in zip(before, (p.array for p in made[0].params()), strict=True)
    )


def test_the_configuration_is_left_as_it_was(backend, chainer):
    with chainer.using_config("train", False):
        backend.prepare(_target("lenet5", 32, mode=Mode("chainer", autotune=True))).run(1)
        assert (chainer.config.train, chainer.config.autotune) == (False, False)


def test_a_closed_configuration_does_not_run(backend):
    prepared = backend.prepare(_target("lenet5", 32))
    prepared.close()
    prepared.close()
    with pytest.raises(ProfilingError, match="is closed"):
        prepared.run(1)


def test_every_operator_of_a_cnn_runs_alone(chainer):
    cnns = ("googlenet", "convnext_tiny", "efficientnet_b0", "shufflenet_v2_x0_5")
    with configured(FP32):
        for operator in kinds_of_operator(*(zoo_cnn(name, 64) for name in cnns)):
            operator_program(operator, FP32, 2, "@numpy", cache_bytes=0).iterate()


def test_rare_operators_run_forward_and_backward(chainer):
    ran = set()
    with configured(FP32):
        for name, operator in RARE.items():
            try:
                operator_program(operator, FP32, 2, "@numpy", cache_bytes=0).iterate()
            except SchemaError:
                continue
            ran.add(name)
    assert ran == RARE.keys() - {"roll", "attention", "lstm", "gru", "instance_norm"}


def test_an_operator_is_prepared_in_copies_and_closed(backend):
    prepared = backend.prepare(_operator(same_shape("batch_norm", 8, 4)))
    assert prepared.copies == 16
    prepared.close()


def test_small_operators_run_in_many_copies_large_ones_alone(chainer):
    operator = Operator(
        "add", in_channels=64, in_height=8, in_width=8, out_channels=64, out_height=8, out_width=8
    )
    small = operator_program(operator, FP32, 1, "@numpy", 2**20)
    large = operator_program(operator, FP32, 256, "@numpy", 2**20)
    assert (small.copies, large.copies) == (16, 1)


def test_an_unknown_operator_is_refused_by_name(backend):
    with pytest.raises(SchemaError, match="other_3x8x8"):
        backend.prepare(_operator(Operator("other", in_channels=3, in_height=8, in_width=8)))


def test_a_chain_of_the_users_own_is_trained(backend, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "import chainer.links as L\ndef make_model():\n    return L.Classifier(L.Convolution2D(3, 4, 3))\n"
    )
    subject = Subject("target", "own.py:make_model", 8, builder=Builder(path, "make_model"))
    backend.prepare(Configuration(subject, FP32, 2)).run(1)


def test_what_is_no_chain_is_refused(backend, tmp_path):
    path = tmp_path / "own.py"
    path.write_text("def make_model():\n    return 3\n")
    subject = Subject("target", "own.py:make_model", 8, builder=Builder(path, "make_model"))
    with pytest.raises(SchemaError, match=r"gives a int, no chainer\.Chain"):
        backend.prepare(Configuration(subject, FP32, 2))


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (Mode("chainer", "amp_bf16"), "choose fp32, tf32, fp16, amp_fp16"),
        (Mode("chainer", memory_format="channels_last"), "choose nchw"),
        (Mode("chainer", capture="graph"), "choose eager or static_graph"),
        (Mode("chainer", capture="compile"), "choose eager or static_graph"),
        (Mode("chainer", optimizer="adam"), "choose momentum or sgd"),
        (Mode("pytorch"), "framework 'pytorch'"),
    ],
)
def test_a_mode_that_chainer_lacks_is_refused_with_what_it_has(mode, words):
    with pytest.raises(SchemaError, match=words):
        check_mode(mode, (9, 0))


def test_tf32_is_refused_before_ampere():
    with pytest.raises(SchemaError, match=r"compute capability 7\.0: choose fp32, fp16, amp_fp16"):
        check_mode(Mode("chainer", "tf32"), (7, 0))


def test_a_cpu_has_fp32_alone():
    with pytest.raises(SchemaError, match="on a CPU: choose fp32"):
        check_mode(Mode("chainer", "fp16"), None)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Out of memory allocating 3 bytes"),
        RuntimeError("cudaErrorMemoryAllocation: out of memory"),
        ProfilingError("cudnnCreate failed with CUDNN_STATUS_ALLOC_FAILED (2)"),
    ],
)
def test_lack_of_memory_is_told_from_other_failures(error):
    with pytest.raises(DeviceOutOfMemoryError, match="it does not fit in memory"), refusing("it"):
        raise error


def test_other_failures_are_what_chainer_cannot_run():
    with pytest.raises(SchemaError, match="Chainer cannot run it: ValueError: no"), refusing("it"):
        raise ValueError("no")


class PretendedGpu:
    """Takes `busy_ms` for an iteration; the host is ahead if the GPU waits at least `needs_ms`."""

    def __init__(self, needs_ms: float, busy_ms: float = 1.0) -> None:
        self.needs_ms = needs_ms
        self.busy_ms = busy_ms
        self.waits: list[float] = []

    def synchronise(self) -> None:
        pass

    def tidy(self) -> None:
        pass

    def queued_time_ms(self, parts: Sequence[Callable[[], None]], wait_ms: float) -> float | None:
        for part in parts:
            part()
        self.waits.append(wait_ms)
        return self.busy_ms * len(parts) if wait_ms >= self.needs_ms else None


def _prepared(gpu: PretendedGpu, copies: int = 1) -> ChainerPrepared:
    program = Program((lambda: None,), copies)
    return ChainerPrepared(program, gpu, "it", partial(configured, FP32), True)  # type: ignore[arg-type]


def test_gpu_time_is_that_of_an_iteration_queued_behind_a_wait(chainer):
    prepared = _prepared(PretendedGpu(needs_ms=0))
    assert "queued behind a waiting kernel" in (prepared.capture() or "")
    assert prepared.gpu_times_ms(3) == [1.0, 1.0, 1.0]


def test_short_iterations_are_timed_several_together(chainer):
    prepared = _prepared(PretendedGpu(needs_ms=0, busy_ms=0.05), copies=5)
    prepared.capture()
    assert prepared.gpu_times_ms(1) == [pytest.approx(0.01)]


def test_a_host_that_is_never_ahead_gives_no_gpu_time_and_the_reason(chainer):
    prepared = _prepared(PretendedGpu(needs_ms=1e9))
    assert "more kernels than can be queued" in (prepared.capture() or "")
    assert prepared.gpu_times_ms(3) is None


def test_a_wait_grows_when_the_host_falls_behind(chainer):
    gpu = PretendedGpu(needs_ms=0)
    prepared = _prepared(gpu)
    prepared.capture()
    gpu.needs_ms = 2 * gpu.waits[-1]
    assert prepared.gpu_times_ms(1) == [1.0]


def test_a_host_that_stays_behind_is_a_disturbance(chainer):
    gpu = PretendedGpu(needs_ms=0)
    prepared = _prepared(gpu)
    prepared.capture()
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

        def elapsed(one: Any, other: Any) -> float:
            return 2.0 * (recorded.index(other) - recorded.index(one))

        runtime = SimpleNamespace(
            getDeviceCount=lambda: 1, getDeviceProperties=lambda _: gpu, CUDARuntimeError=RuntimeError
        )
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


def test_a_gpu_that_came_to_a_part_before_it_was_enqueued_gives_no_time(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", PretendedCupy(polls=0))
    assert CupyDevice(0).queued_time_ms([lambda: None], 1.5) is None


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", PretendedCupy(polls=0))
    with pytest.raises(BackendUnavailableError, match="no cuda:3: CuPy sees 1 GPUs"):
        CupyDevice(3)
