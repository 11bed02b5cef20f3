"""`epochcast serve`: the service, on this machine alone unless told otherwise."""

import os
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["serve_command"]

_KEEP_ALIVE_S = 75  # proxies keep connections for 60 s: whoever closes first must not be the one who is asked


def serve_command(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where measurements and keys are kept; '' for a service that only answers.",
            show_default="$EPOCHCAST_STORE, else sqlite:///epochcast.db",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A model that `fit` wrote; replaced while the service runs, it is read again.",
            show_default="$EPOCHCAST_MODEL, else the shipped model",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that answer.")] = 1,
) -> None:
    """Serve predictions, comparisons and measurements over HTTP (docs/api.md)."""
    from predictor.errors import BackendUnavailableError

    try:
        import uvicorn

        import api.main  # noqa: F401 - so that what is missing is said before a server starts
    except ModuleNotFoundError as error:
        raise BackendUnavailableError(
            f"{error.name} is not installed, which the service needs: pip install 'epochcast[api]'."
        ) from None
    _tell("EPOCHCAST_STORE", store)
    _tell("EPOCHCAST_MODEL", None if model is None else str(model.resolve()))
    _check()
    uvicorn.run(
        "api.main:create_app",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )


def _tell(variable: str, value: str | None) -> None:
    """Settings reach the processes that answer through the environment."""
    if value is not None:
        os.environ[variable] = value


def _check() -> None:
    """Open what the service needs once, so that a mistake is one line here and no traceback of a server."""
    from pydantic import ValidationError

    from api.main import create_app
    from predictor.errors import SchemaError

    try:
        app = create_app()
    except ValidationError as error:
        first = error.errors()[0]
        name = "EPOCHCAST_" + "_".join(str(part) for part in first["loc"]).upper()
        raise SchemaError(
            f"{name} is {first['input']!r}: {first['msg']}. Set it right, or leave it out."
        ) from None
    if app.state.store is not None:
        app.state.store.dispose()
