"""A store as one file, and a file as a store: the same for SQLite and PostgreSQL, so that one can become the other.

The file is gzipped JSON, a line for each row. Its last line counts the rows, so that a file that was cut off is
no backup.
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

FORMAT = 1
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
        file.write(json.dumps({"epochcast_store": FORMAT, "made_at": now()}) + "\n")
        with reading(engine) as connection:
            _at_one_moment(connection)
            for table in _TABLES:
                for row in connection.execution_options(yield_per=_CHUNK).execute(select(table)):
                    file.write(json.dumps({"table": table.name, "row": dict(row._mapping)}) + "\n")
                    counts[table.name] += 1
        file.write(json.dumps({"end": {table.name: counts[table.name] for table in _TABLES}}) + "\n")
    partial.replace(path)
    return {table.name: counts[table.name] for table in _TABLES}


def restore(engine: Engine, path: Path) -> dict[str, int]:
    """Fill an empty store from a backup, all of it or nothing; rows by table.

    Raises
    ------
    DataError
        If the store is not empty, or the file is not a whole backup.
    """
    from api.store.migrations.versions.v0003_matmul_precision import rewrite_rows

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
        rewrite_rows(connection)  # an older epochcast's backup holds measurements of format version 1
        _number_on(connection)
    return {table.name: counts[table.name] for table in _TABLES}


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a backup by their table; DataError unless it is whole."""
    names, counts, end = {table.name for table in _TABLES}, Counter[str](), None
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            head = json.loads(file.readline())
            if not isinstance(head, dict) or head.get("epochcast_store") != FORMAT:
                raise _no_backup(path, f"it does not begin as one of format {FORMAT}")
            for line in file:
                found = json.loads(line)
                end = found.get("end")
                if end is None:
                    _check(found, names, path)
                    counts[found["table"]] += 1
                    yield found["table"], found["row"]
    except FileNotFoundError:
        raise DataError(
            f"there is no backup {path}. `epochcast store backup {path.name}` writes one."
        ) from None
    except (OSError, EOFError, ValueError) as error:
        raise _no_backup(path, str(error)) from None
    if end != {name: counts[name] for name in (table.name for table in _TABLES)}:
        raise _no_backup(path, "it is cut off, or rows are missing")


def _check(found: dict[str, Any], names: set[str], path: Path) -> None:
    row = found.get("row")
    if found.get("table") not in names or not isinstance(row, dict):
        raise _no_backup(path, "it has a line that is no row")
    sha256 = hashlib.sha256(str(row.get("content")).encode()).hexdigest()
    if found["table"] == measurements.name and sha256 != row.get("content_sha256"):
        raise _no_backup(path, f"measurement {row.get('id')} is not what was stored")


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
