"""How an option of a question is declared: once, as a dataclass field that every face derives its own form from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from typing import Any

from predictor.checks import positive_number, whole_number, yes_or_no
from predictor.errors import SchemaError, nearest

__all__ = ["Option", "option", "options_of"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a question, as every face declares it.

    `kind` is ``whole``, ``number``, ``hours``, ``choice``, ``word``, ``flag``, ``file`` or ``anchors``; `low` and
    `high` bound numbers, `choices` lists words. `flag` holds the names on the command line if they differ from `name`;
    `usual` describes a default of None. `remote` is False if a service uses its own value.
    """

    name: str
    help: str
    kind: str
    default: Any
    panel: str
    low: float = 0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    flag: str = ""
    usual: str = ""
    remote: bool = True

    def checked(self, value: Any) -> Any:
        """Check `value`, or its text from a table's cell, and convert it to this option's type.

        Raises
        ------
        SchemaError, OutOfRangeError
            If it is of another kind or outside the range; the message names the option.
        """
        if value is None or (isinstance(value, str) and not value.strip()):
            return self.default
        return _CHECKS[self.kind](self, value)


def _whole(known: Option, value: Any) -> int:
    return whole_number(known.name, value, low=int(known.low), high=int(known.high))


def _number(known: Option, value: Any) -> float:
    """A number above 0; 0, too, where it is the default."""
    if known.default == 0 and str(value).strip() in _ZERO:
        return 0.0
    return positive_number(known.name, value)


def _hours(known: Option, value: Any) -> float:
    """Hours, or a text of a number with a unit: ``90min``, ``36h``, ``2d``."""
    text = str(value).strip()
    match = _WITH_UNIT.fullmatch(text)
    if match is not None:
        return positive_number(known.name, match["number"]) * _HOURS[match["unit"][0].casefold()]
    if isinstance(value, str) and not _PLAIN.fullmatch(text):
        raise SchemaError(
            f"{known.name} {value!r} is not a number of hours, nor one with a unit: 90min, 36h, 2d."
        )
    return positive_number(known.name, value)


_ZERO = ("0", "0.0")
_WITH_UNIT = re.compile(r"(?P<number>[0-9.]+)\s*(?P<unit>s|min|minutes|h|hours|d|days)", re.IGNORECASE)
_PLAIN = re.compile(r"[-+0-9.e]+", re.IGNORECASE)
_HOURS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0}


def _choice(known: Option, value: Any) -> str:
    word = str(value).strip()
    if word not in known.choices:
        raise SchemaError(
            f"{known.name} {value!r} is not known. Nearest: {nearest(word, known.choices)}; "
            f"known: {', '.join(known.choices)}."
        )
    return word


def _word(_known: Option, value: Any) -> str:
    return str(value).strip()


def _flag(known: Option, value: Any) -> bool:
    return value if isinstance(value, bool) else yes_or_no(known.name, str(value))


def _as_given(_known: Option, value: Any) -> Any:
    return value


def _anchors(_known: Option, value: Any) -> tuple[Any, ...]:
    return tuple(value)


_CHECKS: dict[str, Callable[[Option, Any], Any]] = {
    "whole": _whole,
    "number": _number,
    "hours": _hours,
    "choice": _choice,
    "word": _word,
    "flag": _flag,
    "file": _as_given,
    "anchors": _anchors,
}


def option(default: Any, help_: str, kind: str = "word", panel: str = "", **more: Any) -> Any:
    """Declare an option of a question as a dataclass field with a default."""
    return field(default=default, metadata={"help": help_, "kind": kind, "panel": panel, **more})


def options_of(kind: type[Any]) -> Mapping[str, Option]:
    """The options that a dataclass declares with `option`, by name, in order."""
    declared: Any = kind
    return _declared(declared)


@cache
def _declared(kind: Any) -> dict[str, Option]:
    return {each.name: _option_of(each) for each in fields(kind) if each.metadata}


def _option_of(each: Field[Any]) -> Option:
    known = dict(each.metadata)
    default = None if each.default is MISSING else each.default
    return Option(each.name, known.pop("help"), known.pop("kind"), default, known.pop("panel"), **known)
