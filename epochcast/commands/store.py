"""`epochcast store`: what is in the measurement store no longer."""

from typing import Annotated

import typer

from epochcast.commands import options as o
from epochcast.measured import open_store

app = typer.Typer(help="The measurement store: delete an upload.", no_args_is_help=True)


@app.callback()
def _store() -> None:
    """Make `store` a group, though it has one command."""


@app.command("delete-upload")
def delete_upload_command(
    upload: Annotated[int, typer.Argument(min=1, help="Its number, as rows and receipts give it.")],
    store: str = o.STORE,
) -> None:
    """Delete an upload, with the rows that no other upload brought."""
    engine = open_store(store, new=False)
    from api.store.measurements import delete_upload

    deletion = delete_upload(engine, upload)
    typer.echo(
        f"Upload {upload}: {deletion.deleted:,} rows deleted, {deletion.kept:,} kept for other uploads.",
        err=True,
    )
