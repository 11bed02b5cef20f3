"""The `epochcast` command: it parses and renders, nothing else.

Every command lies in `epochcast.commands` and imports what it needs when it runs, so that `--help` is
instant.
"""

import os
import sys
from typing import Annotated

import typer

from epochcast.commands import (
    cnn,
    compare,
    data,
    evaluate,
    explain,
    fit,
    gpu,
    keys,
    offer,
    predict,
    profile,
    serve,
)
from predictor.errors import EpochcastError

__all__ = ["app", "main"]

app = typer.Typer(
    name="epochcast",
    help="How long one epoch of your CNN takes on a GPU, what it costs, and how sure the answer is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"epochcast {version('epochcast')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


app.command("predict")(predict.predict_command)
app.command("compare")(compare.compare_command)
app.command("explain")(explain.explain_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("fit")(fit.fit_command)
app.add_typer(profile.app, name="profile")
app.command("serve")(serve.serve_command)
app.add_typer(data.app, name="data")
app.add_typer(gpu.app, name="gpu")
app.add_typer(offer.app, name="offer")
app.add_typer(cnn.app, name="cnn")
app.add_typer(keys.app, name="keys")


def main() -> None:
    """Run the command; exit code 2 for bad input, with one line on stderr instead of a traceback."""
    try:
        app(prog_name="epochcast")
    except EpochcastError as error:
        _fail(str(error))
    except BrokenPipeError:
        # The reader has gone (`| head`); the interpreter must not complain when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror}. Check the path.")


def _fail(message: str) -> None:
    typer.secho(f"Error: {' '.join(message.split())}", fg=typer.colors.RED, err=True)
    sys.exit(2)
