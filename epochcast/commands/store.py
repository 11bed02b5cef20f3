"""`epochcast store`: the measurement store as a file, and what is in it no longer."""

from pathlib import Path
from typing import Annotated

import typer

from epochcast.commands import options as o
from epochcast.measured import open_store

app = typer.Typer(
    help="The measurement store: back it up, restore it, delete an upload.", no_args_is_help=True
)


@app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(help="Such as store.jsonl.gz; replaced if it is there.")],
    store: o.Store = o.USUAL_STORE,
) -> None:
    """Write keys (their hashes), uploads and measurements to a file, while the service runs."""
    engine = open_store(store, new=False)
    from api.store.backup import back_up

    _say("backed up", back_up(engine, file))


@app.command("restore")
def restore_command(
    file: Annotated[Path, typer.Argument(help="What `epochcast store backup` wrote.")],
    store: o.Store = o.USUAL_STORE,
) -> None:
    """Fill an empty store from a backup, of the same database or the other."""
    engine = open_store(store)
    from api.store.backup import restore

    _say("restored", restore(engine, file))


@app.command("delete-upload")
def delete_upload_command(
    upload: Annotated[int, typer.Argument(min=1, help="Its number, as rows and receipts give it.")],
    store: o.Store = o.USUAL_STORE,
) -> None:
    """Delete an upload, with the rows that no other upload brought."""
    engine = open_store(store, new=False)
    from api.store.measurements import delete_upload

    found = delete_upload(engine, upload)
    typer.echo(
        f"Upload {upload}: {found.deleted:,} rows deleted, {found.kept:,} kept for other uploads.", err=True
    )


def _say(what: str, counts: dict[str, int]) -> None:
    listed = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    typer.echo(f"{what}: {listed}", err=True)
