"""Measurements in the store: written once each, found again by what they are, and handed to a fit.

Rows are inserted in the order of their hashes, so that two uploads of the same rows wait for each other and
never for each other in a circle.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from sqlalchemy import Connection, Engine, Select, and_, delete, func, insert, select, text, true, update
from sqlalchemy.dialects import postgresql, sqlite

from api.store.engine import reading, writing
from api.store.keys import now
from api.store.tables import SEARCHABLE, api_keys, measurements, repeats, uploads
from api.store.uploads import Row
from api.words import described
from predictor.errors import DataError, SchemaError

if TYPE_CHECKING:
    import pandas as pd

FILTERS = (*SEARCHABLE, "upload", "key")
"""Filters of rows: their own values, the number of their upload, the name of the key that sent them."""

MAX_BYTES = 16 * 2**20
"""Largest page of rows."""

_CHUNK = 500
_DELETION_LOCK = 7_316_402_119
_INSERTS: dict[str, Callable[[Any], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


@dataclass(frozen=True, slots=True)
class UploadReceipt:
    """What became of an upload. `ids` are its rows', in the order sent, new and known ones alike."""

    upload: Annotated[int, described("UploadReceipt.upload")]
    stored: Annotated[int, described("UploadReceipt.stored")]
    duplicates: Annotated[int, described("UploadReceipt.duplicates")]
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Stored:
    """A measurement with its attribution: the upload that brought it first, when, and by whose key."""

    id: int
    upload: int
    key: str
    received_at: str
    content: str

    def row(self) -> dict[str, Any]:
        """The measurement's own columns; what is unknown is left out."""
        columns: dict[str, Any] = json.loads(self.content)
        return columns


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the rows found; `more` follow after the last."""

    rows: list[Stored]
    more: bool


def store_rows(engine: Engine, rows: Sequence[Row], key_id: int) -> UploadReceipt:
    """Store an upload, all of it or nothing; when this returns, it is committed.

    Rows that are there already, or come twice, are stored once and counted as duplicates.
    """
    distinct = sorted({row.sha256: row for row in rows}.values(), key=lambda row: row.sha256)
    with writing(engine) as connection:
        _wait_for_deletions(connection)
        row = {"key_id": key_id, "received_at": now(), "n_rows": len(rows), "n_stored": 0}
        upload = int(connection.execute(insert(uploads).values(row).returning(uploads.c.id)).scalar_one())
        ids: dict[str, tuple[int, int]] = {}  # of a row, and of the upload that brought it, by hash
        for start in range(0, len(distinct), _CHUNK):
            chunk = distinct[start : start + _CHUNK]
            _insert(connection, chunk, upload)
            m, hashes = measurements.c, [row.sha256 for row in chunk]
            query = select(m.content_sha256, m.id, m.upload_id).where(m.content_sha256.in_(hashes))
            ids |= {sha256: (id_, by) for sha256, id_, by in connection.execute(query)}
        stored = sum(by == upload for _, by in ids.values())
        again = [{"measurement_id": id_, "upload_id": upload} for id_, by in ids.values() if by != upload]
        if again:
            connection.execute(insert(repeats), again)
        connection.execute(uploads.update().where(uploads.c.id == upload).values(n_stored=stored))
    return UploadReceipt(upload, stored, len(rows) - stored, [ids[row.sha256][0] for row in rows])


@dataclass(frozen=True, slots=True)
class Deletion:
    """What became of an upload's rows: numbers deleted, and kept since another upload brought them, too."""

    upload: int
    deleted: int
    kept: int


def delete_upload(engine: Engine, upload: int, key_id: int | None = None) -> Deletion:
    """Delete an upload with the rows that only it brought; the others pass to the next upload that brought them.

    DataError if there is no such upload, or it came with another key than `key_id`, if one is given.
    """
    with writing(engine) as connection:
        _wait_for_deletions(connection, deleting=True)
        mine = and_(uploads.c.id == upload, true() if key_id is None else uploads.c.key_id == key_id)
        if connection.execute(select(uploads.c.id).where(mine)).first() is None:
            raise DataError(f"there is no upload {upload}{'' if key_id is None else ' of this key'}.")
        connection.execute(delete(repeats).where(repeats.c.upload_id == upload))
        kept = _pass_on(connection, upload)
        deleted = connection.execute(delete(measurements).where(measurements.c.upload_id == upload)).rowcount
        connection.execute(delete(uploads).where(uploads.c.id == upload))
    return Deletion(upload, deleted, kept)


def _pass_on(connection: Connection, upload: int) -> int:
    """Reassign an upload's rows to the next upload that also sent them; returns their number."""
    heirs = connection.execute(
        select(repeats.c.measurement_id, func.min(repeats.c.upload_id))
        .join(measurements, measurements.c.id == repeats.c.measurement_id)
        .where(measurements.c.upload_id == upload)
        .group_by(repeats.c.measurement_id)
    ).all()
    for row, heir in heirs:
        connection.execute(update(measurements).where(measurements.c.id == row).values(upload_id=heir))
        taken_over = repeats.c.measurement_id == row, repeats.c.upload_id == heir
        connection.execute(delete(repeats).where(*taken_over))
    for heir, count in Counter(heir for _, heir in heirs).items():
        more = uploads.c.n_stored + count
        connection.execute(update(uploads).where(uploads.c.id == heir).values(n_stored=more))
    return len(heirs)


def _wait_for_deletions(connection: Connection, deleting: bool = False) -> None:
    """Keep uploads and a deletion apart, where the database does not do so itself: SQLite has one writer."""
    if connection.dialect.name == "postgresql":
        lock = "pg_advisory_xact_lock" if deleting else "pg_advisory_xact_lock_shared"
        connection.execute(text(f"SELECT {lock}(:key)"), {"key": _DELETION_LOCK})


def find_rows(
    engine: Engine,
    filters: Mapping[str, object],
    after: int = 0,
    limit: int = 1000,
    max_bytes: int = MAX_BYTES,
) -> Page:
    """Find rows above number `after` by their values, in the order in which they were stored, at most `limit`.

    `filters` maps names of `FILTERS` to the value that rows must have; SchemaError for another name. The row that
    passes `max_bytes` ends the page: some rows are large.
    """
    query = _query(filters).where(measurements.c.id > after).limit(limit + 1)
    rows: list[Stored] = []
    size = 0
    with reading(engine) as connection:
        for row in connection.execution_options(yield_per=200).execute(query):
            if len(rows) == limit or size > max_bytes:
                return Page(rows, more=True)
            rows.append(Stored(*row))
            size += len(rows[-1].content)
    return Page(rows, more=False)


def stored_frame(engine: Engine) -> pd.DataFrame:
    """Read all rows as a checked measurement table; DataError if there is none."""
    with reading(engine) as connection:
        rows = [Stored(*row) for row in connection.execute(_query({}))]
    if not rows:
        raise DataError("the store has no such measurement. Upload some: `epochcast profile --push URL`.")
    return frame_of(rows)


def frame_of(rows: Sequence[Stored]) -> pd.DataFrame:
    """Stored rows, at least one, as a checked measurement table; without rows the check raises SchemaError."""
    import pandas as pd

    from predictor.measurements.table import check_measurements

    return check_measurements(pd.DataFrame([stored.row() for stored in rows]), "the store")


def _query(filters: Mapping[str, object]) -> Select[Any]:
    m = measurements.c
    columns = {name: m[name] for name in SEARCHABLE} | {"upload": m.upload_id, "key": api_keys.c.name}
    query = (
        select(m.id, m.upload_id, api_keys.c.name, uploads.c.received_at, m.content)
        .join(uploads, uploads.c.id == measurements.c.upload_id)
        .join(api_keys, api_keys.c.id == uploads.c.key_id)
        .order_by(measurements.c.id)
    )
    for name, value in filters.items():
        if name not in columns:
            raise SchemaError(f"rows cannot be found by {name!r}. Valid: {', '.join(FILTERS)}.")
        query = query.where(columns[name] == value)
    return query


def _insert(connection: Connection, rows: Sequence[Row], upload: int) -> None:
    statement = _INSERTS[connection.dialect.name](measurements).on_conflict_do_nothing(
        index_elements=["content_sha256"]
    )
    values = [
        {"upload_id": upload, "content_sha256": row.sha256, "content": row.content} | row.searchable
        for row in rows
    ]
    connection.execute(statement, values)
