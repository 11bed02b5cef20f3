"""`epochcast keys`: made once, listed without the secret, revoked by name."""

import json

import pytest


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("EPOCHCAST_STORE", f"sqlite:///{tmp_path}/store.db")


def test_adding_prints_the_key_alone_on_stdout(store, epochcast):
    run = epochcast("keys", "add", "alice")
    assert (run.code, run.out.startswith("epochcast_"), len(run.out.split())) == (0, True, 1)
    assert "shown once" in run.err


def test_the_list_does_not_show_the_key(store, epochcast):
    key = epochcast("keys", "add", "alice").out.strip()
    run = epochcast("keys", "list", "--format", "json")
    assert [row["name"] for row in json.loads(run.out)["rows"]] == ["alice"]
    assert key not in run.out


def test_a_revoked_key_shows_when(store, epochcast):
    epochcast("keys", "add", "alice")
    assert epochcast("keys", "revoke", "alice").code == 0
    assert json.loads(epochcast("keys", "list", "--format", "json").out)["rows"][0]["revoked_at"]


def test_revoking_a_key_that_is_not_there_is_exit_code_2(store, epochcast):
    assert epochcast("keys", "revoke", "bob").code == 2
