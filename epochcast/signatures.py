"""Signatures and documentation of functions that take a question's options: each option's own, wherever it is taken.

An option is declared once, as a field of `Question` or `Plan`. What `help`, editors and the reference show of
`epochcast.predict` is made of these fields, so that none is hidden behind ``**options``. What type checkers and
completion read is the stub `epochcast.typed_options`, which `python -m epochcast.signatures` prints.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache, wraps
from pathlib import Path
from textwrap import indent, wrap
from typing import Any, TypeVar, cast

from epochcast.project import with_defaults
from predictor.answers.options import KINDS, Option, options_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PLACE = re.compile(r"^(?P<margin> *)\*\*options\n(?:(?P=margin) +.*\n)*", re.MULTILINE)
_WIDTH = 108
_KEYWORD, _MORE = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD


def takes_options(*declared: type[Any], answer: str) -> Callable[[_Function], _Function]:
    """Say of a function with ``**options`` which they are, in its signature and in its docstring.

    It takes the options of these dataclasses (`Question`, `Plan`) that `answer`, a word of
    `predictor.answers.options.ANSWERS`, reads. In the docstring the entry ``**options`` is replaced by one for each
    option. Options that are not given are the project's (`epochcast.project`), but for those of a profile.
    """
    kinds: tuple[Any, ...] = declared
    options = {
        name: (option, annotation)
        for kind in kinds
        for name, (option, annotation) in _annotated(kind).items()
        if answer in option.answers
    }

    def say(function: _Function) -> _Function:
        called: Any = function
        own = inspect.signature(function)
        new = {name: option for name, option in options.items() if name not in own.parameters}
        kept = [parameter for parameter in own.parameters.values() if parameter.kind is not _MORE]
        added = [
            inspect.Parameter(name, _KEYWORD, default=option.default, annotation=annotation)
            for name, (option, annotation) in new.items()
        ]
        called.__signature__ = own.replace(parameters=[*kept, *added])
        if called.__doc__:
            entry = _PLACE.search(called.__doc__)
            if entry is None:
                raise ValueError("the docstring has no entry **options to replace")
            text = ""
            for name, (option, annotation) in new.items():
                usual = option.usual or ("" if option.default in (None, ()) else repr(option.default))
                about = f"{_help(option).rstrip('.')}; by default {usual}." if usual else _help(option)
                text += f"{name} : {annotation}{'' if usual else ', optional'}\n"
                text += "".join(f"    {line}\n" for line in wrap(about, _WIDTH))
            text = indent(text, entry["margin"])
            called.__doc__ = called.__doc__[: entry.start()] + text + called.__doc__[entry.end() :]
        if answer == "profile":
            return function
        read = {name: option for name, (option, _) in new.items()}

        @wraps(called)
        def call(*args: Any, **options: Any) -> Any:
            with with_defaults(read, options) as (options, _):
                return called(*args, **options)

        return cast(_Function, call)

    return say


@cache
def _annotated(kind: Any) -> dict[str, tuple[Option, str]]:
    """Options of a dataclass with the types of their fields as they are written."""
    written = {column.name: str(column.type) for column in fields(kind)}
    return {name: (option, written[name]) for name, option in options_of(kind).items()}


def _help(option: Option) -> str:
    return option.help.replace("\\[", "[")  # the terminal takes what stands in brackets for a style


_OF_FILES = {"measurements": "pd.DataFrame | str | PathLike[str]"}
"""Where a file is not as the field has it."""

_FUNCTIONS = ("predict", "compare", "explain", "parallel", "memory", "watch", "profile")
_OWN = {"watch": {"model"}, "profile": {"preset"}}
"""Options that are parameters of the function."""


def typed_options() -> str:
    """The text of `epochcast.typed_options`: its head, and a TypedDict for each function, of parts that they share."""
    from epochcast.profiling import ProfileRequest
    from predictor.answers.question import Plan, Question

    parts: dict[tuple[str, ...], list[str]] = {}
    for kind in (Question, Plan, ProfileRequest):
        for name, (option, annotation) in _annotated(kind).items():
            readers = [function for function in _FUNCTIONS if function in option.answers]
            takers = tuple(function for function in readers if name not in _OWN.get(function, ()))
            if takers:
                usual = f" By default {option.usual}." if option.usual else ""
                entry = f'{name}: {_type(option, annotation)}\n"""{_help(option)}{usual}"""\n'
                parts.setdefault(takers, []).append(entry)
    text = "".join(_typed_dict(_part(takers), ("TypedDict",), entries) for takers, entries in parts.items())
    for function in _FUNCTIONS:
        bases = [_part(takers) for takers in parts if function in takers]
        text += _typed_dict(f"{function.capitalize()}Options", bases, [f'"""Options of `{function}`."""\n'])
    head, _, _ = Path(__file__).with_name("typed_options.pyi").read_text("utf-8").partition("\n\n\nclass ")
    return f"{head}\n{text}"


def _part(takers: tuple[str, ...]) -> str:
    return f"_Of{''.join(taker.capitalize() for taker in takers)}"


def _typed_dict(name: str, bases: Iterable[str], entries: Iterable[str]) -> str:
    body = indent("".join(entries), "    ")
    return f"\n\nclass {name}({', '.join(bases)}, total=False):\n{body}"


def _type(option: Option, annotation: str) -> str:
    if option.kind == "choice":
        written = f"Literal[{', '.join(map(repr, option.choices))}]".replace("'", '"')
    elif option.kind == "file":
        written = _OF_FILES.get(option.name, annotation.removesuffix(" | None"))
    else:
        written = KINDS[option.kind].python
    return f"{written} | None" if option.default is None else written


if __name__ == "__main__":
    print(typed_options(), end="")
