"""Runs the migrations on the connection that `api.store.engine.migrate` hands over, inside its transaction."""

from alembic import context

from api.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,  # SQLite's, too: the engine begins its transactions itself
)
with context.begin_transaction():
    context.run_migrations()
