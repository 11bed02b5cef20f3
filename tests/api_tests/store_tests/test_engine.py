"""The store opens from nothing, keeps its schema up to date, and says what is wrong with an address."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from case_tables import each_row
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


def test_processes_that_open_an_empty_store_at_once_all_find_it_ready(empty_store_url, in_threads):
    tables = []

    def open_one(url):
        engine = open_store(url)
        tables.append(set(inspect(engine).get_table_names()))
        engine.dispose()

    in_threads(open_one, [empty_store_url] * 4)
    assert tables == [{"alembic_version", *metadata.tables}] * 4


def test_sqlite_has_a_write_ahead_log_and_syncs_every_commit(tmp_path):
    with reading(open_store(f"sqlite:///{tmp_path}/store.db")) as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2


@each_row
def test_an_address_of_no_store_is_an_error_that_hides_its_password(url, words):
    with pytest.raises(SchemaError if "Examples" in words else StoreError, match=words) as refused:
        open_store(url)
    assert "hidden" not in str(refused.value)


@each_row
def test_a_store_of_another_schema_is_an_error_that_says_so(empty_store_url, revision, words):
    store = open_store(empty_store_url)
    with writing(store) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    store.dispose()
    with pytest.raises(StoreError, match=words) as refused:
        open_store(empty_store_url)
    assert "Traceback" not in str(refused.value)
