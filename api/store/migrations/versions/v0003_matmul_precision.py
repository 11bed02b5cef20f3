"""Measurements of format version 1 become rows of version 2, so that an upload of the same table brings nothing new."""

import json
from hashlib import sha256

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_ROWS = sa.table(
    "measurements",
    sa.column("id", sa.BigInteger),
    sa.column("content", sa.Text),
    sa.column("content_sha256", sa.String),
)


_CHUNK = 1000


def upgrade() -> None:
    """Rewrite the rows of the store that is upgraded."""
    rewrite_rows(op.get_bind())


def rewrite_rows(store: sa.Connection) -> None:
    """Write each row as the check of an upload would; one that is there already in the new form stays as it is."""
    last = -1
    query = sa.select(_ROWS.c.id, _ROWS.c.content).order_by(_ROWS.c.id).limit(_CHUNK)
    while rows := store.execute(query.where(_ROWS.c.id > last)).all():
        last = rows[-1][0]
        for number, content in rows:
            _rewrite(store, number, json.loads(content))


def _rewrite(store: sa.Connection, number: int, row: dict[str, object]) -> None:
    if row.get("format_version") != 1:
        return
    row["format_version"] = 2
    if row.get("framework") in (None, "pytorch") and row.get("precision") == "tf32":
        row["float32_matmul_precision"] = "high"
    text = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = sha256(text.encode()).hexdigest()
    if store.scalar(sa.select(_ROWS.c.id).where(_ROWS.c.content_sha256 == digest)) is None:
        changed = {"content": text, "content_sha256": digest}
        store.execute(_ROWS.update().where(_ROWS.c.id == number).values(changed))
