"""The `epochcast` command: it parses and renders, nothing else.

Every command is a module of `epochcast.commands`, imported when it is called: `epochcast --help` imports none of them.
"""

import atexit
import gc
import json
import os
import sys
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from epochcast.installation import shadowed

try:
    from epochcast.usage import ShortHelp, UsageError, usage_message
    from predictor.errors import EpochcastError, EpochcastWarning, LeftOutWarning, RetiredOptionWarning
except ImportError:
    if not shadowed():
        raise
    sys.exit(f"Error: {' '.join(shadowed())}")  # before `main`, which needs the package that is hidden

_ANSWERS = ("check", "compare", "diff", "explain", "fit-memory", "predict")
_PYTHON_SHOWS = warnings.showwarning

COMMANDS: dict[str, str] = json.loads(Path(__file__).with_name("commands.json").read_text("utf-8"))
"""Each command and the first line of its help, which stands in its module, too; a test compares them."""


@cache
def build_app(called: str | None = None) -> typer.Typer:
    """The application, with all commands; if one is called, the others have only their names and help."""
    app = typer.Typer(
        name="epochcast",
        help="How long one epoch of your CNN takes on a GPU, what it costs, and how sure the answer is.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name, text in COMMANDS.items():
        if called in (None, name):
            word = name.replace("-", "_")
            module = import_module(f"epochcast.commands.{word}")
            if hasattr(module, "app"):
                app.add_typer(module.app, name=name)
            else:
                app.command(name, cls=ShortHelp)(getattr(module, f"{word}_command"))
        else:
            app.command(name, help=text)(lambda: None)  # only its help is printed
    return app


def main() -> None:
    """Run the command; exit code 2 for bad input, with one line on stderr instead of a traceback."""
    # Before numpy is loaded: our matrices are small, and threads that wait for each other take what other work needs.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.simplefilter("always", LeftOutWarning)
    warnings.simplefilter("default", RetiredOptionWarning)
    warnings.showwarning = _show_warning
    called = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    words = sys.argv[1:]
    if called in _ANSWERS:
        # What they make they keep: to look through it each 700 objects took a seventh of compare, at the end another.
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)
    completes = "_EPOCHCAST_COMPLETE" in os.environ  # a shell asks, which may want any command's options
    try:
        if any(word.partition("=")[0] == "--args" for word in words):
            from epochcast.timm_arguments import with_timm_arguments

            words, note = with_timm_arguments(words)
            typer.echo(note, err=True)
        code = build_app(None if completes else called)(words, prog_name="epochcast", standalone_mode=False)
        sys.exit(code or 0)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help was printed
            sys.exit(2)
        _fail(usage_message(error, called))
    except EpochcastError as error:
        _fail(str(error))
    except SystemExit as end:
        # The reader has what it wants (`| head`): typer and rich end with 1 where a pipe is broken.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}. Check the path.")


def _print_version(is_given: bool) -> None:
    if is_given:
        from importlib.metadata import version

        typer.echo(f"epochcast {version('epochcast')}")
        for beware in shadowed():
            typer.echo(f"Beware: {beware}", err=True)
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def _show_warning(message: Warning | str, category: type[Warning], *location: Any, **stream: Any) -> None:
    """Print which GPUs an answer leaves out, and retired options, as one line; other warnings as Python does."""
    if issubclass(category, EpochcastWarning):
        typer.echo(str(message), err=True)
    else:
        _PYTHON_SHOWS(message, category, *location, **stream)


def _fail(message: str) -> None:
    typer.secho(f"Error: {' '.join(message.split())}", fg=typer.colors.RED, err=True)
    sys.exit(2)
