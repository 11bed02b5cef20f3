"""A store as one file, and a file as a store: the same for SQLite and PostgreSQL, so that one can become the other.

The file is gzipped JSON, a line for each row. Its last line counts the rows and has the SHA-256 of the lines before, so
that a file that was cut off or changed is no backup.
"""

import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, func, insert, select, text

from api.store.engine import reading, writing
from api.store.keys import now
from api.store.tables import api_keys, measurements, repeats, uploads
from predictor.errors import DataError
from predictor.measurements.schema import FORMAT_VERSION

FORMAT = 2
_TABLES: tuple[Table, ...] = (api_keys, uploads, measurements, repeats)  # each after those that it refers to
_CHUNK = 500


def back_up(engine: Engine, path: Path) -> dict[str, int]:
    """Write all keys' hashes, uploads and measurements, as they are at one moment; rows by table.

    The file appears when it is whole, replaces one that was there, and only its owner may read it.
    """
    partial = path.with_name(f"{path.name}.partial")
    counts: Counter[str] = Counter()
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as raw, gzip.open(raw, "wt", encoding="utf-8") as file:
        sha256 = hashlib.sha256()

        def write(content: dict[str, Any]) -> None:
            line = json.dumps(content) + "\n"
            sha256.update(line.encode())
            file.write(line)

        write({"epochcast_store": FORMAT, "made_at": now()})
        with reading(engine) as connection:
            _at_one_moment(connection)
            for table in _TABLES:
                for row in connection.execution_options(yield_per=_CHUNK).execute(select(table)):
                    write({"table": table.name, "row": dict(row._mapping)})
                    counts[table.name] += 1
        write({"end": {table.name: counts[table.name] for table in _TABLES}, "sha256": sha256.hexdigest()})
    partial.replace(path)
    return {table.name: counts[table.name] for table in _TABLES}


def restore(engine: Engine, path: Path) -> dict[str, int]:
    """Fill an empty store from a backup, all of it or nothing; rows by table.

    DataError if the store is not empty, or the file is not a whole backup.
    """
    counts: Counter[str] = Counter()
    with writing(engine) as connection:
        _check_empty(connection)
        waiting: dict[str, list[dict[str, Any]]] = {table.name: [] for table in _TABLES}
        for name, row in _rows(path):
            counts[name] += 1
            waiting[name].append(row)
            if len(waiting[name]) == _CHUNK:
                _write(connection, waiting)
        _write(connection, waiting)
        _number_on(connection)
    return {table.name: counts[table.name] for table in _TABLES}


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a backup by their table; DataError unless it is whole."""
    names, counts, last = {table.name for table in _TABLES}, Counter[str](), None
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            line = file.readline()
            head, sha256 = json.loads(line), hashlib.sha256(line.encode())
            if not isinstance(head, dict) or head.get("epochcast_store") != FORMAT:
                raise _no_backup(
                    path,
                    f"it does not begin as one of format {FORMAT}. Restore others with the epochcast that made them",
                )
            for line in file:
                found = json.loads(line)
                last = found if "end" in found else None
                if last is None:
                    _check(found, names, path)
                    counts[found["table"]] += 1
                    sha256.update(line.encode())
                    yield found["table"], found["row"]
    except FileNotFoundError:
        raise DataError(
            f"there is no backup {path}. `epochcast store backup {path.name}` writes one."
        ) from None
    except (OSError, EOFError, ValueError) as error:
        raise _no_backup(path, str(error)) from None
    if last is None or last["end"] != {table.name: counts[table.name] for table in _TABLES}:
        raise _no_backup(path, "it is cut off, or rows are missing")
    if last.get("sha256") != sha256.hexdigest():
        raise _no_backup(path, "it was changed")


def _check(found: dict[str, Any], names: set[str], path: Path) -> None:
    row = found.get("row")
    if found.get("table") not in names or not isinstance(row, dict):
        raise _no_backup(path, "it has a line that is no row")
    if found["table"] != measurements.name:
        return
    content = str(row.get("content"))
    if hashlib.sha256(content.encode()).hexdigest() != row.get("content_sha256"):
        raise _no_backup(path, f"measurement {row.get('id')} is not what was stored")
    version = json.loads(content).get("format_version")
    if version != FORMAT_VERSION:
        raise _no_backup(
            path,
            f"measurement {row.get('id')} has format version {version!r}, valid: {FORMAT_VERSION}. "
            "Upload its table again instead",
        )


def _no_backup(path: Path, why: str) -> DataError:
    return DataError(f"{path} is not a whole backup of a store: {why}. Nothing was restored.")


def _check_empty(connection: Connection) -> None:
    found = {t.name: connection.execute(select(func.count()).select_from(t)).scalar_one() for t in _TABLES}
    if any(found.values()):
        held = ", ".join(f"{count:,} {name}" for name, count in found.items() if count)
        raise DataError(f"the store is not empty: it holds {held}. Restore into a new one.")


def _write(connection: Connection, waiting: dict[str, list[dict[str, Any]]]) -> None:
    """Insert what waits, tables in the order of their references."""
    for table in _TABLES:
        if waiting[table.name]:
            connection.execute(insert(table), waiting[table.name])
            waiting[table.name].clear()


def _number_on(connection: Connection) -> None:
    """Let PostgreSQL number new rows after those restored; SQLite does so by itself."""
    if connection.dialect.name != "postgresql":
        return
    for table in (api_keys, uploads, measurements):
        last = select(func.coalesce(func.max(table.c.id), 0) + 1).scalar_subquery()
        sequence = func.pg_get_serial_sequence(table.name, "id")
        connection.execute(select(func.setval(sequence, last, False)))


def _at_one_moment(connection: Connection) -> None:
    """Read every table as of one moment, also while others write; SQLite's transactions do so anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
