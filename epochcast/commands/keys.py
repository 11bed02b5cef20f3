"""`epochcast keys`: the API keys with which measurements can be uploaded to a service."""

from dataclasses import asdict
from typing import Annotated

import typer

from epochcast.commands import options as o
from epochcast.measured import open_store
from epochcast.tables import Format, counted, print_as, table_columns

app = typer.Typer(help="API keys of the service: who may upload measurements.", no_args_is_help=True)

_Name = Annotated[str, typer.Argument(help="Whose key it is; uploads are attributed to this name.")]
_FIELDS = ("name", "hint", "created_at", "expires_at", "revoked_at", "uploads", "rows")


_Days = Annotated[
    float | None,
    typer.Option(help="Days for which it is valid.", show_default="until revoked", min=0.001, max=36_500),
]


@app.command("add")
def add_command(name: _Name, days: _Days = None, store: str = o.STORE) -> None:
    """Make a key and print it, once: the store keeps only its hash."""
    engine = open_store(store)
    from api.store.keys import add_key

    _show(add_key(engine, name, days))


@app.command("rotate")
def rotate_command(
    name: _Name,
    days: _Days = None,
    keep_old: float = o.option("Days for which the old key is taken, too.", default=0.0, min=0, max=365),
    store: str = o.STORE,
) -> None:
    """Make another key for a name and print it, once; the old one is refused from now on, or after some days."""
    engine = open_store(store, new=False)
    from api.store.keys import rotate_key

    _show(rotate_key(engine, name, days, keep_old))


@app.command("revoke")
def revoke_command(name: _Name, store: str = o.STORE) -> None:
    """Refuse a key from now on; measurements uploaded with it stay, under its name."""
    engine = open_store(store, new=False)
    from api.store.keys import revoke_key

    revoke_key(engine, name)
    typer.echo(f"The key of {name} is refused from now on.", err=True)


@app.command("list")
@o.with_json
def list_command(store: str = o.STORE, output: o.OutputFormat = Format.table) -> None:
    """List the keys by name, with their first characters and their numbers of uploads."""
    engine = open_store(store, new=False)
    from api.store.keys import list_keys

    records = [asdict(key) for key in list_keys(engine)]
    shown = [{name: record[name] for name in _FIELDS} for record in records]
    print_as(output, shown, table_columns("keys list"), counted(len(shown), "key"), _FIELDS)


def _show(secret: str) -> None:
    typer.echo("Keep this key: it is shown once.", err=True)
    typer.echo(secret)
