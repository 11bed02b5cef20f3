"""`epochcast store` and keys that are replaced: what an operator types."""

import pytest

from api.store.engine import open_store
from api.store.keys import add_key, find_key
from api.store.measurements import find_rows, store_rows
from api.store.uploads import rows_of, table_of_rows

ROW = {"gpu": "T4", "cnn": "resnet50", "image_size": 224, "batch_size": 32, "precision": "fp32"}


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with a key and an upload, as the environment names it."""
    url = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv("EPOCHCAST_STORE", url)
    monkeypatch.chdir(tmp_path)
    engine = open_store(url)
    add_key(engine, "alice")
    rows = rows_of(table_of_rows([ROW | {"iteration_time_ms": 90.0 + i} for i in range(3)]))[1]
    store_rows(engine, rows, 1)
    yield engine
    engine.dispose()


def test_an_upload_is_deleted_and_a_key_replaced(epochcast, store):
    assert "3 rows deleted, 0 kept" in epochcast("store", "delete-upload", "1").err
    assert find_rows(store, {}).rows == []
    assert epochcast("store", "delete-upload", "1").code == 2
    secret = epochcast("keys", "rotate", "alice", "--days", "30").out.strip()
    assert find_key(store, secret).expires_at is not None
    assert epochcast("keys", "rotate", "nobody").code == 2
