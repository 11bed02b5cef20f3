"""Order, budget, ends of series, failures and disturbances of a job."""

from math import inf

import pytest
from fake_backend import Clock, FakeBackend, time_ms
from small_subjects import TARGETS, configurations_of

from predictor.errors import NoisyMeasurementError, ProfilingError
from proxy_cnns.device import DeviceState
from proxy_cnns.jobs import Job, Request, Session, remaining
from proxy_cnns.rows_file import Run, RunFile, configuration_key, read_run

ABOUT = {"gpu": "NVIDIA H200", "framework": "pytorch"}
CLEAN = DeviceState(throttle_reasons=("gpu_idle",))
HOT = DeviceState(throttle_reasons=("hw_thermal_slowdown",))
SHARED = DeviceState(other_processes=("4711 python (1024 MiB)",))


@pytest.fixture
def work(tmp_path, readings):
    """Measure with these orders; returns the run, the backend and the file's path."""

    def run(configurations, states=(), clock=None, report=lambda _: None, orders=None, deadline=inf, **more):
        clock = clock or Clock()
        backend = FakeBackend("cuda:0", clock, orders or {})
        path = tmp_path / "run.csv.rows.jsonl"
        file, measured_run = RunFile(path, {}), Run()
        request = Request("fake", tuple(configurations), "pytorch", ("cuda:0",), tmp_path / "run.csv", **more)
        job = Job(request, "cuda:0", "cuda:3", deadline)
        try:
            monitor = readings(*states)
            session = Session(job, backend, monitor, measured_run, file, ABOUT, {}, report, clock)
            run.finished = session.measure_all()
        finally:
            file.close()
            run.on_disk = read_run(tmp_path / "run.csv", {})
            run.backend = backend
        return measured_run

    return run


def test_every_configuration_is_measured_in_its_order_and_its_row_kept_on_disk(work, targets):
    run = work(targets)
    assert list(run.rows) == list(map(configuration_key, targets))
    assert work.finished
    assert run.rows == work.on_disk.rows
    row = run.rows[configuration_key(targets[0])]
    assert row["gpu_time_ms"] == pytest.approx(time_ms(targets[0]))
    assert (row["host_time_ms"], row["peak_memory_mib"]) == (pytest.approx(0.2), 104)


@pytest.fixture
def known_times(monkeypatch):
    """Estimates that are right but for the slowness of a device."""
    law = lambda _subject, batch_size, _mode: 1.0 + 0.1 * batch_size  # noqa: E731
    monkeypatch.setattr("proxy_cnns.jobs.estimated_ms", law)


def test_a_slow_device_is_asked_for_short_iterations_first(work, known_times):
    descending = configurations_of(TARGETS[:1], (90, 64, 16, 4))
    run = work(descending, orders={"slowness": 40.0}, longest_ms=1e9)
    # 400 ms, before the speed is known; then 56 and 104 ms, which are at most 300, and 296.
    assert [int(key[-1]) for key in run.rows] == [90, 64, 16, 4]
    run = work(descending, orders={"slowness": 20.0}, longest_ms=1e9)
    assert [int(key[-1]) for key in run.rows] == [90, 4, 64, 16]


def test_what_would_not_end_in_time_is_left_for_a_shorter_one(work, known_times):
    configurations = configurations_of(TARGETS[:1], (4, 90, 16))
    run = work(configurations, orders={"slowness": 100.0}, longest_ms=1e9, deadline=9.0)
    assert 90 not in {int(key[-1]) for key in run.rows}
    assert not work.finished


def sizes(run):
    return {int(key[-1]) for key in run.rows}


RUNS = {
    "lack of memory ends the series and not the run, and everything is closed": (
        {"orders": {"memory_for": 64}},
        lambda run, work: (
            sizes(run) == {4, 16}
            and {end["batch_size"] for end in run.ended.values()} == {64}
            and work.finished
            and all(prepared.closed for prepared in work.backend.prepared)
        ),
    ),
    "too long an iteration ends the series and says so": (
        {"longest_ms": 5},
        lambda run, _: (
            sizes(run) == {4, 16} and all("longer than 5 ms" in end["reason"] for end in run.ended.values())
        ),
    ),
    "the budget ends the run between configurations": (
        {"deadline": 1.0},
        lambda run, work: 0 < len(run.rows) < 8 and not work.finished,
    ),
    "what broke alone is noted": (
        {"orders": {"breaks_at": [16]}},
        lambda run, _: ({key[-1] for key in run.failed}, sizes(run)) == ({"16"}, {4, 64, 256}),
    ),
}
"""Orders, and what they leave of eight configurations, by the fact that holds."""


@pytest.mark.parametrize("fact", RUNS)
def test_a_run_leaves_what_its_row_says(work, targets, fact):
    orders, holds = RUNS[fact]
    assert holds(work(targets, **orders), work)


def test_larger_batches_than_one_that_did_not_fit_are_not_tried(work):
    descending = configurations_of(TARGETS[:1], (64, 256, 1024, 16))
    work(descending, orders={"memory_for": 64})
    assert [prepared.configuration.batch_size for prepared in work.backend.prepared] == [64, 16]


def test_many_that_cannot_be_built_are_noted_and_not_tried_again_and_do_not_stop_the_rest(work):
    configurations = configurations_of(TARGETS, range(1, 30))
    run = work(configurations, orders={"cannot": ["first"]})
    assert [key[1] for key in run.rows] == ["second"] * 29
    assert list(run.failed.values()) == ["SchemaError: first cannot be built"] * 29
    assert remaining(configurations, run) == []


def test_when_nothing_works_any_more_the_run_stops(work):
    with pytest.raises(ProfilingError, match="10 configurations failed one after the other"):
        work(configurations_of(TARGETS, range(1, 30)), orders={"broken": True})
    assert work.on_disk.failed == {}


@pytest.mark.parametrize(
    ("states", "words", "is_any_kept"),
    [
        ([CLEAN, HOT], r"cuda:3 .*hw_thermal_slowdown.*--allow-noise", False),
        ([CLEAN, CLEAN, SHARED], "process 4711 python", True),
    ],
)
def test_rows_since_the_last_clean_reading_are_taken_back(work, targets, states, words, is_any_kept):
    with pytest.raises(NoisyMeasurementError, match=words):
        work(targets, states)
    assert bool(work.on_disk.rows) == is_any_kept
    assert len(work.on_disk.rows) < len(targets)


def test_allowed_noise_is_noted_in_the_rows_it_concerns(work, targets):
    run = work(targets, [CLEAN, CLEAN, SHARED], allow_noise=True)
    notes = [row.get("notes", "") for row in run.rows.values()]
    assert notes[0] == ""
    assert "disturbed: process 4711 python (1024 MiB) is on the GPU" in notes
    assert [row.get("notes", "") for row in work.on_disk.rows.values()] == notes
    marked = [bool(row.get("disturbed")) for row in run.rows.values()]
    assert marked == ["disturbed" in note for note in notes]


def test_progress_counts_and_the_device_is_read_every_second_at_most(work, targets):
    clock, reports = Clock(), []
    work(targets, clock=clock, report=reports.append, deadline=1e9)
    readings = [event for event in work.on_disk.events if "device" in event]
    assert 3 <= len(readings) <= clock.now + 2
    assert [progress.done for progress in reports] == list(range(1, len(targets) + 1))
    assert reports[-1].seconds_left == 0
    assert not any(progress.limited for progress in reports)


def test_progress_says_that_the_time_limit_ends_the_run(work, targets):
    reports = []
    work(targets, report=reports.append, deadline=1.0)
    assert all(0 <= progress.seconds_left <= 1 for progress in reports)
    assert reports[0].limited
    assert len(reports) < len(targets)
