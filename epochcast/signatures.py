"""Signatures and documentation of functions that take a question's options: each option's own, wherever it is taken.

An option is declared once, as a field of `Question` or `Plan`. What `help`, editors and the reference show of
`epochcast.predict` is made of these fields, so that none is hidden behind ``**options``.
"""

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import fields
from functools import cache
from textwrap import wrap
from typing import Any, TypeVar

from predictor.answers.options import Option, options_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PLACE = re.compile(r"^(?P<margin> *)\*\*options\n(?:(?P=margin) +.*\n)*", re.MULTILINE)
_WIDTH = 108


def takes_options(
    *declared: type[Any], answer: str, without: Collection[str] = ()
) -> Callable[[_Function], _Function]:
    """Say of a function with ``**options`` which they are, in its signature and in its docstring.

    Parameters
    ----------
    *declared : type
        Dataclasses whose options it takes, `Question` and `Plan`.
    answer : str
        What it gives, a word of `predictor.answers.options.ANSWERS`: it takes what that reads.
    without : collection of str
        Options that it refuses all the same.

    Returns
    -------
    callable
        A decorator. In the docstring the entry ``**options`` is replaced by one for each option; signature and
        docstring change, nothing else.
    """
    kinds: tuple[Any, ...] = declared
    known = {
        name: (each, annotation)
        for kind in kinds
        for name, (each, annotation) in _annotated(kind).items()
        if answer in each.answers and name not in without
    }

    def say(function: _Function) -> _Function:
        called: Any = function
        own = inspect.signature(function)
        new = {name: each for name, each in known.items() if name not in own.parameters}
        called.__signature__ = _with(own, new)
        if called.__doc__:
            called.__doc__ = _documented(called.__doc__, new)
        return function

    return say


@cache
def _annotated(kind: Any) -> dict[str, tuple[Option, str]]:
    """Options of a dataclass with the types of their fields as they are written."""
    written = {each.name: str(each.type) for each in fields(kind)}
    return {name: (each, written[name]) for name, each in options_of(kind).items()}


def _with(signature: inspect.Signature, known: dict[str, tuple[Option, str]]) -> inspect.Signature:
    """The signature with options in place of ``**options``."""
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)
        for name, (option, annotation) in known.items()
    ]
    return signature.replace(parameters=[*own, *options])


def _documented(text: str, known: dict[str, tuple[Option, str]]) -> str:
    """The docstring with an entry for each option in place of that of ``**options``."""
    found = _PLACE.search(text)
    if found is None:
        raise ValueError("the docstring has no entry **options to replace")
    entries = (_entry(name, each, kind, found["margin"]) for name, (each, kind) in known.items())
    return text[: found.start()] + "".join(entries) + text[found.end() :]


def _entry(name: str, option: Option, annotation: str, margin: str) -> str:
    """What a docstring says of an option: its type, its help, and what holds without it."""
    usual = option.usual or ("" if option.default in (None, ()) else repr(option.default))
    text = option.help.replace("\\[", "[")  # the terminal takes what stands in brackets for a style
    said = f"{text.rstrip('.')}; by default {usual}." if usual else text
    lines = [
        f"{name} : {annotation}{'' if usual else ', optional'}",
        *(f"    {line}" for line in wrap(said, _WIDTH)),
    ]
    return "".join(f"{margin}{line}\n" for line in lines)
