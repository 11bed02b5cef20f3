"""The store opens from nothing, keeps its schema up to date, and says what is wrong with an address."""

import json
import threading
from hashlib import sha256

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from api.store.engine import migrate, open_store, reading, writing
from api.store.measurements import find_rows, store_rows
from api.store.tables import measurements, metadata
from predictor.errors import SchemaError, StoreError


def test_migrations_make_from_nothing_just_the_tables_that_the_code_uses(empty_store_url):
    with open_store(empty_store_url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_opening_a_store_again_changes_nothing(store, store_url, secret):
    open_store(store_url).dispose()
    with reading(store) as connection:
        assert connection.execute(text("SELECT name FROM api_keys")).scalars().all() == ["alice"]


def test_processes_that_open_an_empty_store_at_once_all_find_it_ready(empty_store_url):
    tables, errors = [], []

    def open_one():
        try:
            engine = open_store(empty_store_url)
            tables.append(set(inspect(engine).get_table_names()))
            engine.dispose()
        except Exception as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert tables == [{"alembic_version", *metadata.tables}] * 4


def test_sqlite_has_a_write_ahead_log_and_syncs_every_commit(tmp_path):
    with reading(open_store(f"sqlite:///{tmp_path}/store.db")) as connection:
        found = [
            connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous")
        ]
    assert found == ["wal", 2]


@pytest.mark.parametrize("url", ["", "store.db", "mysql://u:hidden@h/d", "sqlite://", "sqlite:///:memory:"])
def test_an_address_of_no_store_is_refused_with_examples(url):
    with pytest.raises(SchemaError, match="Examples: sqlite:////var/lib") as refused:
        open_store(url)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite:////no/such/folder/store.db", "postgresql://u:hidden@127.0.0.1:1/d"])
def test_a_store_that_cannot_be_reached_is_an_error_that_hides_its_password(url):
    with pytest.raises(StoreError, match="does not answer as it should") as refused:
        open_store(url)
    assert "hidden" not in str(refused.value)


def test_a_store_of_a_newer_epochcast_is_an_error_that_says_so(empty_store_url):
    store = open_store(empty_store_url)
    with writing(store) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0099'"))
    store.dispose()
    with pytest.raises(
        StoreError, match=r"another schema than this epochcast knows.*0099.*a newer one"
    ) as refused:
        open_store(empty_store_url)
    assert "Traceback" not in str(refused.value)


def test_rows_of_format_version_1_are_upgraded_and_come_again_as_duplicates(store, key_id, make_rows):
    asked = {"framework": "pytorch", "precision": "tf32", "gpu": "NVIDIA H200"}
    old = make_rows(3, format_version=1, **asked)
    store_rows(store, old, key_id)
    with writing(store) as connection:  # as an epochcast before version 2 left them
        for row in old:
            before = json.loads(row.content) | {"format_version": 1}
            del before["float32_matmul_precision"]
            content = json.dumps(before, sort_keys=True, separators=(",", ":"))
            changed = {"content": content, "content_sha256": sha256(content.encode()).hexdigest()}
            connection.execute(
                measurements.update().where(measurements.c.content_sha256 == row.sha256).values(changed)
            )
        connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))
    migrate(store)
    assert {found.content for found in find_rows(store, {}).rows} == {row.content for row in old}
    assert store_rows(store, old, key_id).duplicates == 3
