"""Opens the store: connections, their transactions, and the schema brought up to date.

SQLite runs with a write-ahead log, so that readers and the writer do not wait for each other, and syncs every
commit to disk: an upload that was acknowledged outlives a crash of the process and of the machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, TimeoutError  # noqa: A004

from predictor.errors import SchemaError, StoreError

_WAIT_S = 10
_STATEMENT_S = 60
_MIGRATION_LOCK = 7_310_524_171  # a number that nothing else locks in this database
_EXAMPLES = "sqlite:////var/lib/epochcast/store.db, postgresql://user:password@host/database"


def open_store(url: str, *, new: bool = True) -> Engine:
    """Open the store at a database URL and bring its schema up to date; make it where none is, if it may be `new`.

    SchemaError if the URL is none, or of another database; StoreError if the database cannot be reached or written, or
    there is no such file and it may not be new.
    """
    address = _checked(url)
    file = address.database or ""
    is_file = address.get_backend_name() == "sqlite" and not file.startswith("file:")
    if is_file and not new and not Path(file).exists():
        raise StoreError(
            f"there is no store {file}. `epochcast keys add NAME` makes one; --store or $EPOCHCAST_STORE names another."
        )
    engine = _engine(address)
    migrate(engine)
    return engine


def migrate(engine: Engine) -> None:
    """Bring the schema up to date; processes that start at once wait for the first.

    StoreError if another epochcast has written the store, with a schema that this one does not know.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            head = str(ScriptDirectory.from_config(config).get_current_head())
            own = str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar())
            shown = engine.url.render_as_string(hide_password=True)
            if own < head:  # of development versions, whose steps are gone
                why = f"{own}, of an epochcast before 0.2.0, which this one does not update. Upload its tables to"
            else:
                known = f"{own}, which this epochcast does not know ({head})"
                why = f"{known}. Use the one that wrote it, or name"
            raise StoreError(f"the store {shown} has the schema {why} another store.") from error


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Lend a connection for one consistent reading transaction."""
    with _refusing(engine), engine.connect().execution_options(reading=True) as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Lend a connection for one transaction, committed when the block ends well and undone otherwise."""
    with _refusing(engine), engine.begin() as connection:
        yield connection


@contextmanager
def _refusing(engine: Engine) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise  # the data's fault, not the database's
    except (DBAPIError, TimeoutError) as error:
        shown = engine.url.render_as_string(hide_password=True)
        reason = error.orig if isinstance(error, DBAPIError) else "all its connections are in use"
        raise StoreError(
            f"the store {shown} does not answer as it should: {reason}. "
            "Nothing was stored. Check that the database runs, that its disk has room, and the URL."
        ) from error


def _checked(url: str) -> URL:
    try:
        address = make_url(url)
    except ArgumentError:
        raise SchemaError(f"the store's address is not a database URL. Examples: {_EXAMPLES}.") from None
    backend = address.get_backend_name()
    if backend == "sqlite" and address.database not in (None, "", ":memory:"):
        return address.set(drivername="sqlite")
    if backend in ("postgresql", "postgres"):
        return address.set(drivername="postgresql+psycopg")
    raise SchemaError(
        f"the store cannot be {address.render_as_string(hide_password=True)!r}: it takes a SQLite file or "
        f"PostgreSQL. Examples: {_EXAMPLES}."
    )


def _engine(url: URL) -> Engine:
    pool: dict[str, Any] = {"pool_size": 5, "max_overflow": 10, "pool_timeout": _WAIT_S}
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _WAIT_S}, **pool)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    options = {
        "connect_timeout": _WAIT_S,
        "application_name": "epochcast",
        "options": f"-c statement_timeout={1000 * _STATEMENT_S} -c lock_timeout={1000 * _WAIT_S}",
    }
    return create_engine(url, connect_args=options, pool_pre_ping=True, **pool)


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says, not where sqlite3 does
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock first: a reader that turns writer would fail where another has written meanwhile."""
    reads = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
