"""What was measured is sent to a service: after measuring, or later."""

import pytest
from case_tables import each_row

from api.store.keys import add_key
from api.store.measurements import find_rows

QUICKLY = ("--preset", "cnn:lenet5", "--device", "cpu", "--limit", "3", "--allow-noise")


@pytest.fixture(scope="module")
def key(app):
    return add_key(app.state.store, "alice")


@pytest.fixture
def table(tmp_path):
    header = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms"
    (tmp_path / "table.csv").write_text(f"{header}\nTesla T4,resnet50,224,32,fp32,310.5\n")
    return tmp_path / "table.csv"


def test_profile_sends_what_it_measured(epochcast, fake_framework, url, app, key, monkeypatch, tmp_path):
    monkeypatch.setenv("EPOCHCAST_API_KEY", key)
    run = epochcast("profile", *QUICKLY, "--out", tmp_path / "x.csv", "--push", url)
    assert (run.code, "3 of 3 measurements stored, 0 there already" in run.err) == (0, True)
    assert len(find_rows(app.state.store, {"framework": "pytorch", "key": "alice"}).rows) == 3


@each_row
def test_before_it_measures_profile_finds_that_nothing_could_be_sent(
    epochcast, fake_framework, url, monkeypatch, tmp_path, address, words
):
    monkeypatch.setenv("EPOCHCAST_API_KEY", "epochcast_x")
    monkeypatch.setattr("epochcast.pushing.time.sleep", lambda _: None)
    where = address.format(url=url)
    run = epochcast("profile", *QUICKLY, "--out", tmp_path / "x.csv", "--push", where)
    assert (run.code, words in run.err) == (2, True)
    assert not (tmp_path / "x.csv").exists()


def test_without_a_key_it_says_who_makes_them(epochcast, fake_framework, url, monkeypatch, tmp_path):
    monkeypatch.delenv("EPOCHCAST_API_KEY", raising=False)
    run = epochcast("profile", *QUICKLY, "--out", tmp_path / "x.csv", "--push", url)
    assert (run.code, "Set EPOCHCAST_API_KEY" in run.err) == (2, True)


def test_a_table_can_be_sent_later_and_again_and_white_space_is_no_part_of_a_key(
    epochcast, url, key, table, monkeypatch
):
    monkeypatch.setenv("EPOCHCAST_API_KEY", key)
    assert "1 of 1 measurements stored, 0 there already" in epochcast("data", "push", table, url).err
    assert "0 of 1 measurements stored, 1 there already" in epochcast("data", "push", table, url).err
    monkeypatch.setenv("EPOCHCAST_API_KEY", f" {key}\r\n")
    run = epochcast("data", "push", table, url)
    assert (run.code, "1 measurements stored" in run.err) == (0, True)


@each_row
def test_a_wrong_key_is_one_line_that_does_not_show_it(epochcast, url, table, monkeypatch, wrong, words):
    monkeypatch.setenv("EPOCHCAST_API_KEY", wrong)
    run = epochcast("data", "push", table, url)
    assert (run.code, len(run.err.splitlines()), words in run.err) == (2, 1, True)
    assert not any(secret in run.err for secret in ("日本", "cret", "epochcast_se", "\udcff"))
