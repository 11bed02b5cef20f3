"""A run on a cluster: gathered into the table of one run, and refused where its rows would not belong together."""

import csv
import json
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
from case_tables import each_row
from small_subjects import OPERATORS, TARGETS, configurations_of

from predictor.errors import ProfilingError, SchemaError
from proxy_cnns import jobs, runs
from proxy_cnns.configuration import Builder, Subject
from proxy_cnns.rows_file import rows_paths
from proxy_cnns.runs import JobResult, measure_here, measure_request, measured_by, profile

HERE = Path(__file__).parent
LASTING = (
    "gpu", "host", "kind", "cnn", "image_size", "batch_size", "precision", "memory_format", "gpu_time_ms",
)  # fmt: skip
BOTH = configurations_of(TARGETS) + configurations_of(OPERATORS)


class Here:
    """A cluster that runs its jobs in this process, one after the other."""

    def places(self, _resource):
        return 4

    def run(self, function, arguments, _resource):
        for argument in arguments:
            yield function(*argument)


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Measure jobs without processes of their own, and remember what they were asked; `then` happens before each."""
    asked_jobs = SimpleNamespace(sizes=[], then=lambda _n: None)

    def measure(request):
        asked_jobs.then(len(asked_jobs.sizes))
        out = tmp_path / f"job{len(asked_jobs.sizes)}.csv"
        asked_jobs.sizes.append(len(request.configurations))
        result = runs._result_of(measure_here, replace(request, out=out), inf, lambda _: None)
        lines = [line for path in rows_paths(out) for line in path.read_text().splitlines()]
        return JobResult(f"machine {len(asked_jobs.sizes)}", [json.loads(line) for line in lines], result)

    monkeypatch.setattr(runs, "measure_request", measure)
    return asked_jobs


def rows_of(path):
    """What a table says of its rows, without the times of this machine."""
    with path.open() as file:
        return [{name: row[name] for name in LASTING if name in row} for row in csv.DictReader(file)]


def test_jobs_give_the_table_of_one_run(request_of, tmp_path, measured, monkeypatch, readings):
    monkeypatch.setattr(jobs, "open_monitor", lambda _device: readings())
    undivided = replace(request_of(BOTH), devices=("cuda:0",))  # whose times are the formula's
    profile(undivided)
    gathered = replace(undivided, out=tmp_path / "gathered.csv")
    reports = []
    outcome = profile(gathered, reports.append, measured_by(Here()))
    assert (outcome.left, len(measured.sizes) > 3) == (0, True)
    assert rows_of(gathered.out) == rows_of(undivided.out)
    assert max(progress.done for progress in reports) == outcome.rows
    assert rows_paths(gathered.out) == []


def test_what_is_measured_already_is_not_sent(request_of, measured):
    profile(request_of(configurations_of(TARGETS)))
    profile(request_of(BOTH), measure=measured_by(Here()))
    assert sum(measured.sizes) == len(configurations_of(OPERATORS))


def test_a_series_that_ended_in_one_job_is_left_out_of_the_next(request_of, orders, measured):
    orders(memory_for=64)
    outcome = profile(request_of(configurations_of(TARGETS)), measure=measured_by(Here()))
    assert (outcome.rows, len(outcome.ended)) == (4, 2)
    assert sum(measured.sizes) == 6


def test_an_error_keeps_the_rows_and_names_the_worker(request_of, orders, measured):
    measured.then = lambda n: orders(broken=n > 0)
    configurations = configurations_of(TARGETS, range(1, 60))
    with pytest.raises(ProfilingError, match=r"worker machine 2: 10 configurations failed"):
        profile(request_of(configurations), measure=measured_by(Here()))
    request = request_of(configurations)
    assert len(measured.sizes) == 2
    orders()
    outcome = profile(request)
    assert (outcome.left, outcome.new < outcome.rows) == (0, True)


def test_a_worker_unlike_the_others_is_refused(request_of, orders, measured):
    measured.then = lambda n: orders(version=f"{1 + n}.0")
    with pytest.raises(SchemaError, match=r"machine 2 .*framework_version '2.0', not '1.0'"):
        profile(request_of(BOTH), measure=measured_by(Here()))


def test_another_runs_table_is_refused_and_stays(request_of, orders, measured):
    request = request_of(configurations_of(TARGETS))
    profile(request)
    before = request.out.read_bytes()
    orders(version="2.0")
    with pytest.raises(SchemaError, match=r"another run: framework_version '1.0' there"):
        profile(request_of(BOTH), measure=measured_by(Here()))
    assert request.out.read_bytes() == before


def test_the_time_limit_ends_the_jobs(request_of, measured, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("proxy_cnns.runs.time", SimpleNamespace(perf_counter=lambda: clock.now))
    measured.then = lambda _n: setattr(clock, "now", clock.now + 100)
    outcome = profile(request_of(BOTH, budget_s=150.0), measure=measured_by(Here()))
    assert len(measured.sizes) == 2
    assert 0 < outcome.left < len(BOTH)


@each_row
def test_a_process_of_its_own_sends_its_error_or_last_words(request_of, monkeypatch, backend, error, words):
    monkeypatch.setenv("PYTHONPATH", f"{HERE}:{HERE.parents[1]}")
    job = measure_request(replace(request_of(BOTH), backend=backend))
    assert (job.entries, type(job.result)) == ([], error)
    assert words in str(job.result)


def test_code_of_this_machine_is_not_sent(request_of, measured):
    own = Subject("target", "mine", 8, builder=Builder(Path("mine.py"), "make"))
    with pytest.raises(SchemaError, match=r"mine.py is code of this machine"):
        profile(request_of(configurations_of([own])), measure=measured_by(Here()))
    assert measured.sizes == []
