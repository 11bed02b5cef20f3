"""The store opens from nothing, keeps its schema up to date, and says what is wrong with an address."""

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from api.store.engine import open_store, reading, writing
from api.store.tables import metadata
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
        engines = [
            connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous")
        ]
    assert engines == ["wal", 2]


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


@pytest.mark.parametrize("revision", ["0002", "0099"])
def test_a_store_of_another_schema_is_an_error_that_says_so(empty_store_url, revision):
    store = open_store(empty_store_url)
    with writing(store) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    store.dispose()
    with pytest.raises(StoreError, match=f"another schema.*{revision}") as refused:
        open_store(empty_store_url)
    assert "Traceback" not in str(refused.value)
