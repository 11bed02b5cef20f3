"""Keys, uploads, measurements and repeats: the schema that stores of a release begin with."""

from alembic import op

from api.store.tables import metadata

revision = "0003"
down_revision = None


def upgrade() -> None:
    """Make the four tables as they are: the first change of them after a release writes here what they were."""
    metadata.create_all(op.get_bind())
