"""The host is measured in the modes that framework and GPU have, and notes what each run's host was like."""

import csv
import json

import fake_backend
import pytest
from small_subjects import OPERATORS, configurations_of

from predictor.catalogue.hosts import REFERENCE_CNN
from predictor.catalogue.modes import Mode
from predictor.errors import BackendUnavailableError
from predictor.measurements.hosts import DISPATCHED, HOST_CNNS, HostTime
from proxy_cnns import backends, host
from proxy_cnns.device import Monitor
from proxy_cnns.host import HOST_MODES, enqueue_times, measure_host, zoo_subject
from proxy_cnns.jobs import Request
from proxy_cnns.rows_file import sidecar_path
from proxy_cnns.runs import profile


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(host, "BACKENDS", {"pytorch": "fake_backend:FakeBackend"})
    monkeypatch.setitem(backends.BACKENDS, "pytorch", "fake_backend:FakeBackend")


def test_on_a_gpu_every_mode_of_every_cnn_is_enqueued_and_one_cnn_runs_on_the_cpu(fake):
    measured = measure_host(clock=fake_backend.Clock())
    on_gpu = measured.times_of("pytorch")
    assert {(host_time.precision, host_time.memory_format) for host_time in on_gpu} == {
        (mode.precision, mode.memory_format) for mode in HOST_MODES
    }
    assert {host_time.subject for host_time in on_gpu} == set(HOST_CNNS)
    assert [host_time.subject for host_time in measured.times_of("pytorch", "cpu")] == [DISPATCHED]
    assert (measured.gpu, measured.kernel_us, measured.graph_kernel_us) == ("NVIDIA H200", 5.0, 1.5)


def test_on_a_cpu_only_what_the_framework_takes_is_known(fake):
    measured = measure_host(device="cpu", clock=fake_backend.Clock())
    assert [host_time.device for host_time in measured.times] == ["cpu"]
    assert (measured.gpu, measured.kernel_us) == (None, None)


def test_without_any_framework_or_the_named_one_the_next_step_is_said(monkeypatch):
    missing = dict.fromkeys(backends.BACKENDS, "fake_backend:Missing")
    monkeypatch.setattr(host, "BACKENDS", missing)
    for name, path in missing.items():
        monkeypatch.setitem(backends.BACKENDS, name, path)
    with pytest.raises(BackendUnavailableError, match="none of pytorch, chainer is installed"):
        measure_host()
    with pytest.raises(BackendUnavailableError, match="pip install"):
        measure_host(["pytorch"])


def test_captured_and_autotuned_modes_are_enqueued_as_eager_ones():
    backend = fake_backend.FakeBackend("cuda:0")
    modes = [Mode(precision="tf32", capture="graph"), Mode(precision="tf32", autotune=True)]
    assert len(enqueue_times(backend, modes, [zoo_subject(REFERENCE_CNN)], True, backend.clock)) == 1


@pytest.fixture
def run_on_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr("proxy_cnns.jobs.open_monitor", lambda _device: Monitor(dict))

    def run():
        out, how = tmp_path / "run.csv", {"allow_noise": True, "backend": "fake_backend:FakeBackend"}
        profile(Request("fake", configurations_of(OPERATORS, (4,)), "pytorch", ("cuda:0",), out, **how))
        with out.open() as file:
            return list(csv.DictReader(file)), json.loads(sidecar_path(out).read_text())["events"]

    return run


def test_rows_say_what_the_run_s_host_takes_and_the_sidecar_keeps_each_reading(run_on_gpu):
    rows, events = run_on_gpu()
    columns = ("host_cnn_ms", "host_kernel_us", "graph_kernel_us")
    assert {tuple(row[name] for name in columns) for row in rows} == {("0.2", "5.0", "1.5")}
    assert [event["host"]["precision"] for event in events if "host" in event] == ["tf32"]
    assert [event["graph_kernel_us"] for event in events if "device" in event] == [1.5, 1.5]


def test_a_host_that_cannot_be_timed_leaves_the_column_empty_and_says_why(run_on_gpu, orders):
    orders(cannot=["resnet18"])
    rows, events = run_on_gpu()
    assert all("host_cnn_ms" not in row for row in rows)
    assert "cannot be built" in next(event["host"]["failed"] for event in events if "host" in event)


def test_two_rounds_apart_in_time_say_how_steady_a_host_is():
    cnn = ("pytorch", "gpu", "tf32", "nchw", "resnet18", 32)
    mean = host._of_rounds(*(HostTime(*cnn, ms, 0.02) for ms in (5.0, 7.2)))
    assert mean.host_time_ms == pytest.approx(6.0)
    assert mean.spread == pytest.approx(0.1823, abs=1e-4)  # ln 1.2
