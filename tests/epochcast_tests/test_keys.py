"""`epochcast keys`: made once, listed without the secret, revoked by name."""

import json

import pytest


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("EPOCHCAST_STORE", f"sqlite:///{tmp_path}/store.db")


def test_a_key_is_printed_alone_once_is_not_listed_and_shows_when_it_was_revoked(store, epochcast):
    run = epochcast("keys", "add", "alice")
    assert (run.code, run.out.startswith("epochcast_"), len(run.out.split())) == (0, True, 1)
    assert "shown once" in run.err
    key = run.out.strip()
    run = epochcast("keys", "list", "--format", "json")
    assert [row["name"] for row in json.loads(run.out)["rows"]] == ["alice"]
    assert key not in run.out
    assert epochcast("keys", "revoke", "alice").code == 0
    assert json.loads(epochcast("keys", "list", "--format", "json").out)["rows"][0]["revoked_at"]
    assert epochcast("keys", "revoke", "bob").code == 2
