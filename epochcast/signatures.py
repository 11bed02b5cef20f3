"""Signatures and documentation of functions that take a question's options: each option's own, wherever it is taken.

An option is declared once, as a field of `Question` or `Plan`. What `help`, editors and the reference show of
`epochcast.predict` is made of these fields, so that none is hidden behind ``**options``. What type checkers and
completion read is `epochcast.typed_options`, which `python -m epochcast.signatures` prints.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache
from textwrap import indent, wrap
from typing import Any, TypeVar

from predictor.answers.options import KINDS, Option, options_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PLACE = re.compile(r"^(?P<margin> *)\*\*options\n(?:(?P=margin) +.*\n)*", re.MULTILINE)
_WIDTH = 108


def takes_options(*declared: type[Any], answer: str) -> Callable[[_Function], _Function]:
    """Say of a function with ``**options`` which they are, in its signature and in its docstring.

    It takes the options of these dataclasses (`Question`, `Plan`) that `answer`, a word of
    `predictor.answers.options.ANSWERS`, reads. In the docstring the entry ``**options`` is replaced by one for each
    option; signature and docstring change, nothing else.
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
        called.__signature__ = _with(own, new)
        if called.__doc__:
            called.__doc__ = _documented(called.__doc__, new)
        return function

    return say


@cache
def _annotated(kind: Any) -> dict[str, tuple[Option, str]]:
    """Options of a dataclass with the types of their fields as they are written."""
    written = {column.name: str(column.type) for column in fields(kind)}
    return {name: (option, written[name]) for name, option in options_of(kind).items()}


def _with(signature: inspect.Signature, options: dict[str, tuple[Option, str]]) -> inspect.Signature:
    """The signature with options in place of ``**options``."""
    own = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)
        for name, (option, annotation) in options.items()
    ]
    return signature.replace(parameters=[*own, *parameters])


def _documented(text: str, options: dict[str, tuple[Option, str]]) -> str:
    """The docstring with an entry for each option in place of that of ``**options``."""
    entry = _PLACE.search(text)
    if entry is None:
        raise ValueError("the docstring has no entry **options to replace")
    entries = (_entry(name, option, kind, entry["margin"]) for name, (option, kind) in options.items())
    return text[: entry.start()] + "".join(entries) + text[entry.end() :]


def _entry(name: str, option: Option, annotation: str, margin: str) -> str:
    """Docstring entry of an option: its type, help and default."""
    usual = option.usual or ("" if option.default in (None, ()) else repr(option.default))
    text = option.help.replace("\\[", "[")  # the terminal takes what stands in brackets for a style
    sentence = f"{text.rstrip('.')}; by default {usual}." if usual else text
    lines = [
        f"{name} : {annotation}{'' if usual else ', optional'}",
        *(f"    {line}" for line in wrap(sentence, _WIDTH)),
    ]
    return "".join(f"{margin}{line}\n" for line in lines)


_OF_FILES = {"measurements": "pd.DataFrame | str | PathLike[str]"}
"""Where a file is not as the field has it."""

_HEAD = '''"""The options of each function as type checkers and completion read them.

`epochcast.predict(cnn, gpu, **options)` takes `PredictOptions`, and so on. What an option means is declared once
(`predictor.answers.question`): `python -m epochcast.signatures` prints this file, and a test compares.
"""
# fmt: off
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import pandas as pd

    from predictor.catalogue.offers import Offer
    from predictor.models.forecast import Anchor
    from predictor.models.served import Model
'''

_FUNCTIONS = ("predict", "compare", "explain", "parallel", "memory", "watch", "profile")
_OWN = {"watch": {"loader", "model"}, "profile": {"preset"}}
"""Options that are parameters of the function."""


def typed_options() -> str:
    """The text of `epochcast.typed_options`: a TypedDict for each function, of parts that functions share."""
    from epochcast.profiling import ProfileRequest
    from predictor.answers.question import Plan, Question

    parts: dict[tuple[str, ...], list[str]] = {}
    for kind in (Question, Plan, ProfileRequest):
        for name, (option, annotation) in _annotated(kind).items():
            takers = tuple(
                function
                for function in _FUNCTIONS
                if function in option.answers and name not in _OWN.get(function, ())
            )
            if takers:
                entry = f"{name}: {_type(option, annotation)}\n{_described(option)}"
                parts.setdefault(takers, []).append(entry)
    text = "".join(_typed_dict(_part(takers), ("TypedDict",), entries) for takers, entries in parts.items())
    for function in _FUNCTIONS:
        bases = [_part(takers) for takers in parts if function in takers]
        text += _typed_dict(f"{function.capitalize()}Options", bases, [f'"""Options of `{function}`."""\n'])
    return _HEAD + text


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


def _described(option: Option) -> str:
    usual = f" By default {option.usual}." if option.usual else ""
    plain = option.help.replace("\\[", "[")  # the terminal takes what stands in brackets for a style
    return f'"""{plain}{usual}"""\n'


if __name__ == "__main__":
    print(typed_options(), end="")
