"""Keys, uploads, measurements and repeats: the schema that stores of a release begin with."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the four tables."""
    op.create_table(
        "api_keys",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("key_sha256", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(8), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("revoked_at", sa.String(32)),
        sa.Column("expires_at", sa.String(32)),
        sa.Column("previous_sha256", sa.String(64)),
        sa.Column("previous_until", sa.String(32)),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("name", name="uq_api_keys_name"),
        sa.UniqueConstraint("key_sha256", name="uq_api_keys_key_sha256"),
    )
    op.create_index("ix_api_keys_previous_sha256", "api_keys", ["previous_sha256"])
    op.create_table(
        "uploads",
        sa.Column("id", _ID, nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("received_at", sa.String(32), nullable=False),
        sa.Column("n_rows", sa.Integer, nullable=False),
        sa.Column("n_stored", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_uploads_key_id"),
    )
    op.create_index("ix_uploads_key_id", "uploads", ["key_id"])
    op.create_table(
        "measurements",
        sa.Column("id", _ID, nullable=False),
        sa.Column("upload_id", _ID, nullable=False),
        sa.Column("content_sha256", sa.String(64), nullable=False),
        sa.Column("gpu", sa.Text, nullable=False),
        sa.Column("cnn", sa.Text, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("source", sa.Text),
        sa.Column("framework", sa.String(20)),
        sa.Column("host", sa.Text),
        sa.Column("precision", sa.String(20), nullable=False),
        sa.Column("image_size", sa.Integer, nullable=False),
        sa.Column("batch_size", sa.Integer, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
        sa.UniqueConstraint("content_sha256", name="uq_measurements_content_sha256"),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], name="fk_measurements_upload_id"),
    )
    op.create_index("ix_measurements_upload_id", "measurements", ["upload_id"])
    op.create_index("ix_measurements_gpu_kind", "measurements", ["gpu", "kind"])
    op.create_index("ix_measurements_cnn", "measurements", ["cnn"])
    op.create_table(
        "repeats",
        sa.Column("measurement_id", _ID, nullable=False),
        sa.Column("upload_id", _ID, nullable=False),
        sa.PrimaryKeyConstraint("measurement_id", "upload_id", name="pk_repeats"),
        sa.ForeignKeyConstraint(["measurement_id"], ["measurements.id"], name="fk_repeats_measurement_id"),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], name="fk_repeats_upload_id"),
    )
    op.create_index("ix_repeats_upload_id", "repeats", ["upload_id"])
