"""`epochcast host` prints what enqueuing costs, and writes the file that questions take."""

import json

import pytest

from predictor.measurements.hosts import read_host
from proxy_cnns import host


@pytest.fixture(autouse=True)
def fake_host(fake_framework, monkeypatch):
    monkeypatch.setattr(host, "BACKENDS", {"pytorch": "fake_backend:FakeBackend"})
    monkeypatch.setattr(host, "_SECONDS", 0.0)


def test_it_prints_each_mode_writes_a_file_that_is_read_back_and_json_has_the_same_times(epochcast, tmp_path):
    run = epochcast("host")
    assert run.code == 0
    assert "amp_bf16" in run.out
    assert "A kernel without work takes 5.00 us to enqueue." in run.out
    run = epochcast("host", "--device", "cpu", "--out", tmp_path / "host.json")
    assert "There is no GPU" in run.out
    assert len(read_host(tmp_path / "host.json").times) == 1
    rows = json.loads(epochcast("host", "--format", "json").out)["rows"]
    assert {row["host_time_ms"] for row in rows} == {0.2}


@pytest.mark.parametrize("out", [".", "none/host.json"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(epochcast, monkeypatch, out):
    monkeypatch.setattr(host, "measure_host", lambda *_: pytest.fail("it was measured"))
    run = epochcast("host", "--out", out)
    assert (run.code, run.err.startswith(f"Error: {out}: ")) == (2, True)


def test_a_busy_machine_gives_no_file_an_exit_code_and_what_to_do(epochcast, monkeypatch, tmp_path):
    monkeypatch.setattr(host, "_spread", lambda _times: 7.0)
    run = epochcast("host", "--out", tmp_path / "host.json")
    assert run.code == 1
    assert "up to 700 % from their mean, and 50 % is the limit. End other programs" in run.err
    assert not (tmp_path / "host.json").exists()
