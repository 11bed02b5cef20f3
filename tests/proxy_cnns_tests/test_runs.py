"""Whole runs: killed and resumed, on several devices at once, refused where they would lie."""

import csv
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import fake_backend
import pytest
from case_tables import each_row
from small_subjects import OPERATORS, TARGETS, configurations_of
from waiting import PATIENCE_S, wait_until

from predictor.catalogue.modes import Mode
from predictor.errors import BackendUnavailableError, NoisyMeasurementError, ProfilingError, SchemaError
from predictor.measurements.table import read_measurements
from proxy_cnns import jobs, runs
from proxy_cnns.device import DeviceState
from proxy_cnns.rows_file import RunFile, configuration_key, key_of, rows_paths, sidecar_path
from proxy_cnns.runs import profile

HERE = Path(__file__).parent
BOTH = configurations_of(TARGETS) + configurations_of(OPERATORS)
SCRIPT = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from pathlib import Path
from small_subjects import *
from proxy_cnns.runs import Request, profile
if __name__ == "__main__":
    configurations = configurations_of(TARGETS, modes=(Mode(),)) + configurations_of(OPERATORS, modes=(Mode(),))
    devices = ("cpu",) * int(sys.argv[2])
    profile(Request("fake", configurations, "pytorch", devices, Path(sys.argv[1]), allow_noise=True,
                    backend="fake_backend:FakeBackend"))
"""


def keys_of(path):
    with path.open() as file:
        return [key_of(row) for row in csv.DictReader(file)]


def test_a_run_ends_in_a_table_and_its_sidecar_alone_and_repeated_changes_nothing(request_of):
    request = request_of(BOTH)
    outcome = profile(request)
    assert (outcome.rows, outcome.new, outcome.left) == (len(BOTH), len(BOTH), 0)
    assert sorted(path.name for path in request.out.parent.iterdir()) == ["run.csv", "run.json"]
    assert set(read_measurements(request.out)["kind"]) == {"target", "operator"}
    assert set(keys_of(request.out)) == set(map(configuration_key, request.configurations))
    before = [path.read_bytes() for path in (request.out, sidecar_path(request.out))]
    outcome = profile(request)
    assert (outcome.new, outcome.left) == (0, 0)
    assert [path.read_bytes() for path in (request.out, sidecar_path(request.out))] == before


def test_more_batch_sizes_are_added_to_a_finished_run(request_of):
    request = request_of(configurations_of(TARGETS))
    profile(request)
    first = keys_of(request.out)
    outcome = profile(request_of(configurations_of(TARGETS, (4, 16, 32, 64, 256))))
    assert (outcome.rows, outcome.new) == (10, 2)
    assert set(first) < set(keys_of(request.out))


@pytest.fixture
def an_hour_each(monkeypatch):
    """A clock on which preparing a configuration takes an hour, and measuring it milliseconds."""
    clock, prepare = fake_backend.Clock(), fake_backend.FakeBackend.prepare

    def prepare_for_an_hour(self, configuration):
        clock.now += 3600
        return prepare(self, configuration)

    monkeypatch.setattr(fake_backend, "Clock", lambda: clock)
    monkeypatch.setattr(fake_backend.FakeBackend, "prepare", prepare_for_an_hour)
    for module in (runs, jobs):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr(jobs, "Session", partial(jobs.Session, clock=clock))


def test_the_budget_ends_a_run_that_the_same_command_completes(request_of, an_hour_each):
    unlimited = request_of(BOTH)
    profile(unlimited)
    limited = request_of(BOTH, out=unlimited.out.with_name("part.csv"), budget_s=5 * 3600)
    outcome = profile(limited)
    assert (outcome.rows, outcome.left) == (5, len(BOTH) - 5)
    profile(replace(limited, budget_s=None))
    assert keys_of(limited.out) == keys_of(unlimited.out)


def test_a_killed_run_on_two_devices_resumes_to_the_table_of_one(tmp_path, request_of):
    n_devices = 2
    undisturbed = request_of(BOTH)
    profile(undisturbed)
    out = tmp_path / "killed.csv"
    environment = os.environ | {"FAKE_ORDERS": '{"hangs_after": 4}', "PYTHONPATH": str(HERE.parents[1])}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(out), str(n_devices)]
    process = subprocess.Popen(command, env=environment)
    wait_until(lambda: rows_on_disk(out) == 4 * n_devices, alive=lambda: process.poll() is None)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    assert rows_on_disk(out) == 4 * n_devices
    wait_until(lambda: nobody_writes(out))
    subprocess.run(command, env=environment | {"FAKE_ORDERS": "{}"}, check=True)
    assert keys_of(out) == keys_of(undisturbed.out)
    assert rows_paths(out) == []


def test_an_error_in_one_of_several_processes_is_raised_and_their_progress_added(request_of, orders):
    configurations, reports = configurations_of(TARGETS, (4, 8)), []
    profile(request_of(configurations, devices=("cpu", "cpu")), reports.append)
    assert max(progress.total for progress in reports) == len(configurations)
    orders(broken=True)
    configurations = configurations_of(TARGETS, (4, *range(8, 46)))
    with pytest.raises(ProfilingError, match="one after the other"):
        profile(request_of(configurations, devices=("cpu", "cpu")))


@each_row
def test_another_runs_table_is_refused_and_stays(request_of, orders, n_devices, change, words):
    request = request_of(BOTH)
    profile(request)
    before = request.out.read_bytes()
    orders(**change)
    with pytest.raises(SchemaError, match=words):
        profile(request_of(configurations_of(TARGETS, (4, 5)), devices=("cpu",) * n_devices))
    in_other_mode = configurations_of(TARGETS, modes=[Mode(memory_format="channels_last")])
    with pytest.raises(SchemaError, match="modes"):
        profile(replace(request, configurations=in_other_mode))
    assert request.out.read_bytes() == before
    assert rows_paths(request.out) == []


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"configurations": BOTH}, SchemaError, r"cpu:fake has no tf32. It has: fp32"),
        ({"backend": "fake_backend:Missing"}, BackendUnavailableError, r"epochcast\[torch\]"),
    ],
)
def test_a_missing_framework_or_precision_is_refused_before_a_file_is_made(request_of, change, error, words):
    request = replace(request_of(BOTH), **change)
    with pytest.raises(error, match=words):
        profile(request)
    assert rows_paths(request.out) == []


def test_a_busy_gpu_is_refused_with_the_process_and_the_next_step(request_of, monkeypatch, readings):
    busy = DeviceState(other_processes=("4711 python (1024 MiB)",))
    monkeypatch.setattr(jobs, "open_monitor", lambda _device: readings(busy))
    monkeypatch.setattr(jobs, "_PATIENCE_S", 0.0)
    request = replace(request_of(BOTH), devices=("cuda:0",), allow_noise=False)
    with pytest.raises(NoisyMeasurementError, match=r"process 4711 python \(1024 MiB\).*--allow-noise"):
        profile(request)
    assert rows_paths(request.out) == []


def test_a_refused_addition_to_a_finished_table_leaves_the_table_alone(request_of, monkeypatch, readings):
    request = request_of(configurations_of(TARGETS))
    profile(request)
    before = sorted(path.name for path in request.out.parent.iterdir())
    monkeypatch.setattr(jobs, "open_monitor", lambda _device: readings(DeviceState(cpu_busy=0.9)))
    monkeypatch.setattr(jobs, "_PATIENCE_S", 0.0)
    more = request_of(configurations_of(TARGETS, (4, 5)), allow_noise=False)
    with pytest.raises(NoisyMeasurementError, match=r"the CPU is not free: other processes use 90 %"):
        profile(more)
    assert sorted(path.name for path in request.out.parent.iterdir()) == before


def test_the_echo_of_our_own_last_run_is_waited_for_and_a_gpu_has_its_time(request_of, monkeypatch, readings):
    states = [DeviceState(utilisation_percent=90)] * 3 + [DeviceState(utilisation_percent=0)]
    monkeypatch.setattr(jobs, "open_monitor", lambda _device: readings(*states))
    monkeypatch.setattr(jobs, "_PATIENCE_S", PATIENCE_S)
    request = replace(request_of(BOTH), configurations=BOTH, devices=("cuda:0",), allow_noise=False)
    assert profile(request).left == 0
    table = read_measurements(request.out)
    assert table["gpu_time_ms"].notna().all()
    assert set(table["gpu"]) == {"NVIDIA H200"}


def rows_on_disk(out):
    return sum(path.read_bytes().count(b'"row"') for path in rows_paths(out))


def nobody_writes(out):
    """Whether the processes that a killed run had started are gone, too."""
    try:
        for path in rows_paths(out):
            RunFile(path, {}).close()
    except SchemaError:
        return False
    return True
