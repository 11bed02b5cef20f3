"""A Dask cluster of real processes: a worker killed in the middle, rows answered there, a dead scheduler."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from case_tables import each_row
from waiting import PATIENCE_S, wait_until

from epochcast import fleet as fleets
from epochcast.fleet import Fleet, digest_of
from epochcast.profiling import run_profile
from predictor.answers import bulk
from predictor.answers.bulk import predict_rows
from predictor.catalogue.modes import Mode
from predictor.errors import SchemaError, ServiceError
from predictor.measurements.table import read_measurements
from proxy_cnns.jobs import Request
from proxy_cnns.runs import CPU_RESOURCE, profile

ROOT = Path(__file__).parents[2]
FAKES = ROOT / "tests" / "proxy_cnns_tests"


PATIENT = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": f"{PATIENCE_S:g}s"}
"""A loaded machine answers late."""


class Cluster:
    """A scheduler and the workers started for it, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, []
        file = folder / "scheduler.json"
        options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        self.scheduler = self._start("dask_scheduler", *options)
        wait_until(file.exists, alive=lambda: self.scheduler.poll() is None)
        wait_until(lambda: file.read_text().endswith("}"))
        self.address = next(word for word in file.read_text().split('"') if word.startswith("tcp://"))

    def worker(self, name: str, orders: str = "{}") -> subprocess.Popen[bytes]:
        """Start a worker that offers one place; what it measures with does as ordered."""
        (self.folder / name).mkdir()
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--resources", f"{CPU_RESOURCE}=1")
        with Fleet(self.address) as fleet:
            before = fleet._places(CPU_RESOURCE)
            process = self._start(
                "dask_worker", self.address, *options, FAKE_ORDERS=orders, TMPDIR=str(self.folder / name)
            )
            wait_until(lambda: fleet._places(CPU_RESOURCE) > before, alive=lambda: process.poll() is None)
        return process

    def _start(self, program: str, *options: str, **more: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{FAKES}", **PATIENT, **more}
        command = [sys.executable, "-m", f"distributed.cli.{program}", *options]
        with (self.folder / f"{program}.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.folder)
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(fleets, "_CONNECT_S", PATIENCE_S)
    monkeypatch.setattr(fleets, "_PATIENCE_S", PATIENCE_S)
    (tmp_path / "cluster").mkdir()
    started = Cluster(tmp_path / "cluster")
    yield started
    started.end()


@pytest.fixture
def request_of(tmp_path, monkeypatch):
    """A request for the fake framework on the processor."""
    monkeypatch.syspath_prepend(str(FAKES))
    from small_subjects import TARGETS, configurations_of

    four = configurations_of(TARGETS, (4, 16), modes=(Mode(),))
    changes = {"allow_noise": True, "backend": "fake_backend:FakeBackend"}
    return Request("fake", four, "pytorch", ("cpu",), tmp_path / "run.csv", **changes)


def rows_in(folder):
    """Rows files of measuring processes of a worker, and how many rows they have."""
    files = list(folder.rglob("*.rows.jsonl"))
    return files, sum(path.read_bytes().count(b'"row"') for path in files)


def is_written(path):
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def lasting(path):
    """What a table says of its rows, without the times of this machine."""
    names = ["gpu", "host", "kind", "cnn", "image_size", "batch_size", "precision"]
    return read_measurements(path)[names].to_dict("records")


def test_a_worker_killed_in_the_middle_leaves_the_same_table(cluster, request_of, tmp_path):
    undisturbed = replace(request_of, out=tmp_path / "whole.csv")
    profile(undisturbed)
    hangs = cluster.worker("hangs", '{"hangs_after": 1}')
    with ThreadPoolExecutor() as threads:
        running = threads.submit(run_profile, request_of, cluster.address)
        wait_until(lambda: rows_in(cluster.folder / "hangs")[1] == 1, alive=lambda: not running.done())
        cluster.worker("works")
        hangs.send_signal(signal.SIGKILL)
        [left], _ = rows_in(cluster.folder / "hangs")
        outcome = running.result()
    assert (outcome.left, outcome.rows) == (0, len(request_of.configurations))
    assert lasting(request_of.out) == lasting(undisturbed.out)
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run.csv", "run.json"]
    wait_until(lambda: not is_written(left))  # what the killed worker had started has ended, too


def test_rows_are_answered_there_in_their_order(cluster, tmp_path, monkeypatch):
    cluster.worker("works")
    gpus, sizes = ("T4", "H200", "H2O"), (8, 16, 32, 64)
    lines = [f"resnet18,{gpu},{size}" for size in sizes for gpu in gpus]
    rows, local, remote = (tmp_path / name for name in ("rows.csv", "here.csv", "there.csv"))
    rows.write_text("\n".join(["cnn,gpu,batch_size", *lines, ""]))
    predict_rows(rows, local, samples=1000)
    monkeypatch.setattr(bulk, "_ROWS_OF_TEXT", 5)
    with Fleet(cluster.address) as fleet:
        assert predict_rows(rows, remote, spread=fleet.answered, samples=1000) == len(sizes)
        rows.write_text("cnn,gpu,batch_size\nmine.onnx,T4,8\n")
        with pytest.raises(SchemaError, match=r"cnn 'mine.onnx' in the rows is a file of this machine"):
            predict_rows(rows, remote, spread=fleet.answered)
        monkeypatch.setattr(fleets, "fingerprint", lambda: "another")
        with pytest.raises(SchemaError, match=r"is not this machine's: its code or data differ"):
            list(fleet.run(str, iter([(1,)])))
        cluster.scheduler.send_signal(signal.SIGKILL)
        with pytest.raises(ServiceError, match=r"the scheduler at tcp://.* is gone"):
            list(fleet.run(str, ((n,) for n in range(10**6))))
    assert remote.read_bytes() == local.read_bytes()


@pytest.fixture
def closed():
    """An address at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{bound.getsockname()[1]}"


@each_row
def test_a_dead_scheduler_ends_in_an_error_with_its_address(epochcast, closed, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fleets, "_CONNECT_S", 0.1)
    run = epochcast(*words, "--scheduler", closed)
    assert run.code == 2
    assert f"no Dask scheduler answers at {closed}" in run.err
    assert "Start one with `dask scheduler`" in run.err
    assert list(tmp_path.iterdir()) == []


def test_a_scheduler_without_workers_says_what_to_start(monkeypatch):
    monkeypatch.setattr(fleets, "_PATIENCE_S", 0.0)
    fleet = object.__new__(Fleet)
    fleet.address = "tcp://10.0.0.5:8786"
    monkeypatch.setattr(Fleet, "_places", lambda *_: 0)
    with pytest.raises(ServiceError, match=r"dask worker tcp://10.0.0.5:8786 --nthreads 1 --resources GPU=1"):
        fleet.places("GPU")


def test_a_file_with_other_content_has_another_digest(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("one")
    before = digest_of({"measurements": str(path), "host": "a name"})
    path.write_text("two")
    assert digest_of({"measurements": str(path), "host": "a name"}) != before
