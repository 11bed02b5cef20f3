"""Tables of the store; `migrations` makes them, a test holds both to each other.

A measurement is kept as canonical JSON beside its SHA-256, so that a new column of the measurement schema
needs no migration; what people search by has columns of its own.
"""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in a column of type INTEGER

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("key_sha256", String(64), nullable=False, unique=True),
    Column("hint", String(8), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("revoked_at", String(32)),
    Column("expires_at", String(32)),
    Column("previous_sha256", String(64), index=True),
    Column("previous_until", String(32)),
)
"""Who may write. Times are ISO 8601 in UTC, `hint` the first characters of the key, to tell keys apart by eye.
A key that was replaced is taken as `previous` for a while."""

uploads = Table(
    "uploads",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("key_id", ForeignKey("api_keys.id"), nullable=False, index=True),
    Column("received_at", String(32), nullable=False),
    Column("n_rows", Integer, nullable=False),
    Column("n_stored", Integer, nullable=False),
)
"""One acknowledged request each; the rows that it brought and that were new are those of `measurements`."""

measurements = Table(
    "measurements",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("upload_id", ForeignKey("uploads.id"), nullable=False, index=True),
    Column("content_sha256", String(64), nullable=False, unique=True),
    Column("gpu", Text, nullable=False),
    Column("cnn", Text, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("source", Text),
    Column("framework", String(20)),
    Column("host", Text),
    Column("precision", String(20), nullable=False),
    Column("image_size", Integer, nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("content", Text, nullable=False),
    Index(None, "gpu", "kind"),
    Index(None, "cnn"),
)
"""One measurement each: `content` is the row as canonical JSON, `content_sha256` the hash of just these bytes."""

repeats = Table(
    "repeats",
    metadata,
    Column("measurement_id", ForeignKey("measurements.id"), primary_key=True),
    Column("upload_id", ForeignKey("uploads.id"), primary_key=True, index=True),
)
"""Uploads that sent a measurement already stored by an earlier upload, whose deletion then keeps the measurement."""

SEARCHABLE = ("gpu", "cnn", "kind", "source", "framework", "host", "precision", "image_size", "batch_size")
"""Columns of `measurements` that repeat a value of `content`."""
