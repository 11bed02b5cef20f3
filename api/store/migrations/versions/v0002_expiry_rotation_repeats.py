"""Keys that expire and are replaced, and which uploads brought rows that were there already."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add what keys need, and the table of repeats."""
    op.add_column("api_keys", sa.Column("expires_at", sa.String(32)))
    op.add_column("api_keys", sa.Column("previous_sha256", sa.String(64)))
    op.add_column("api_keys", sa.Column("previous_until", sa.String(32)))
    op.create_index("ix_api_keys_previous_sha256", "api_keys", ["previous_sha256"])
    op.create_table(
        "repeats",
        sa.Column("measurement_id", _ID, nullable=False),
        sa.Column("upload_id", _ID, nullable=False),
        sa.PrimaryKeyConstraint("measurement_id", "upload_id", name="pk_repeats"),
        sa.ForeignKeyConstraint(["measurement_id"], ["measurements.id"], name="fk_repeats_measurement_id"),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], name="fk_repeats_upload_id"),
    )
    op.create_index("ix_repeats_upload_id", "repeats", ["upload_id"])
