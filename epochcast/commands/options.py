"""Options that several commands share; those of a question are derived from where it declares them."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from epochcast.tables import Format
from predictor.answers.question import ANCHOR_FIELDS, Option, options_of

__all__ = ["BatchSizes", "ImageSize", "Offers", "OutputFormat", "Server", "with_options"]

BatchSizes = Annotated[
    list[str] | None,
    typer.Option("--batch-size", "-b", help="Mini-batch size; repeat it, or write 32,64.", metavar="N"),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Ask this service instead; the answer is its model's, with its prices.",
        show_default=False,
        rich_help_panel="Model",
    ),
]
ImageSize = Annotated[
    int | None, typer.Option(help="Side of the square images in pixels.", show_default="the CNN's")
]
Offers = Annotated[
    Path | None,
    typer.Option(
        help="Your own price file, with the columns of offers.csv.", show_default="the shipped prices"
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="What to print.")]

_TYPES = {"whole": int, "number": float, "choice": str, "word": str, "file": Path}
_ANCHOR = "anchor_"


def with_options(
    *kinds: type[Any], without: Iterable[str] = (), usual: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that these dataclasses declare; those given reach it as the dict `options`.

    Parameters
    ----------
    *kinds : dataclass
        Such as `Question` and `Plan`.
    without : iterable of str
        Options that this command does not take.
    usual : mapping of str to str, optional
        What to show as the default of an option instead of what it declares.
    """
    declared = {
        name: each for kind in kinds for name, each in options_of(kind).items() if name not in without
    }
    shown = usual or {}
    derived = [
        _parameter(each, each.name, each.flag or _flag_of(each.name), shown.get(name, ""))
        for name, each in declared.items()
        if each.kind != "anchors"
    ]
    if "anchors" in declared:
        derived += [
            _parameter(each, _ANCHOR + name, each.flag or _flag_of(_ANCHOR + name), "")
            for name, each in ANCHOR_FIELDS.items()
            if name != "image_size"  # the command line measures no other size
        ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [each for each in inspect.signature(command).parameters.values() if each.name != "options"]

        @functools.wraps(command)
        def call(**values: Any) -> None:
            given = {each.name: values.pop(each.name) for each in derived}
            command(**values, options=_given(given))

        signature = inspect.Signature([*own, *derived])
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        return call

    return decorate


def _parameter(known: Option, name: str, flag: str, shown: str) -> inspect.Parameter:
    panel = known.panel or None
    if known.kind == "flag":
        about = typer.Option(flag, help=known.help, rich_help_panel=panel)
        return _keyword(name, Annotated[bool, about], False)
    default = known.usual or ("" if known.default in (None, 0) else str(known.default))
    about = typer.Option(
        flag,
        help=known.help,
        metavar="N" if known.kind == "whole" else None,
        show_default=shown or default or False,
        rich_help_panel=panel,
    )
    return _keyword(name, Annotated[_TYPES[known.kind] | None, about], None)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were typed, the anchor's fields as one anchor."""
    typed = {name: value for name, value in values.items() if value is not None and value is not False}
    anchor = {name.removeprefix(_ANCHOR): typed.pop(name) for name in list(typed) if name.startswith(_ANCHOR)}
    return typed | ({"anchors": [anchor]} if anchor else {})
