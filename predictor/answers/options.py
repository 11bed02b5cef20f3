"""How an option of a question is declared: once, as a dataclass field that every face derives its own form from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any
from warnings import warn

from predictor.checks import LARGEST, SMALLEST, as_list, number_within, of_kind, whole_number, yes_or_no
from predictor.errors import EpochcastError, OutOfRangeError, RetiredOptionWarning, SchemaError, nearest

ANSWERS = {
    "predict": "a prediction",
    "compare": "a comparison",
    "bulk": "a table of questions",
    "cell": "a row of a table",
    "watch": "a watched training",
    "explain": "an explanation, which is of an iteration on one GPU",
    "parallel": "ways to share an iteration",
    "memory": "the largest batch size",
}
"""What reads options, in words; ``bulk`` is for all rows of a table, ``cell`` in a row's own cell."""

_BY_FLAGS = ContextVar("_BY_FLAGS", default=False)


@contextmanager
def named_by_flags(by_flags: bool = True) -> Iterator[None]:
    """Name options in messages as the command line does, not as Python, REST and columns of tables do."""
    token = _BY_FLAGS.set(by_flags)
    try:
        yield
    finally:
        _BY_FLAGS.reset(token)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a question, as every face declares it.

    `kind` is one of `KINDS`; of ``words`` and ``sizes`` several may be given. `low` and `high` bound numbers, `free`
    allows US$ 0, `choices` lists words. `flag` holds the names on the command line if they differ from `name`; `usual`
    describes a default of None, `hint` what to pass instead of a word that is no choice. `remote` is False if a service
    uses its own value. `answers` are the words of `ANSWERS` that it changes, and all others refuse it; of an option of
    `epochcast profile` only ``profile``. `now`: of a retired option, the name of the one that replaces it, and the
    form of its value, with {} for the old one.
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
    hint: str = ""
    remote: bool = True
    answers: tuple[str, ...] = ()
    free: bool = False
    now: tuple[str, str] | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """Its names on the command line, the usual one first."""
        return tuple(self.flag.split()) or (f"--{self.name.replace('_', '-')}",)

    @property
    def shown(self) -> str:
        """Its name in messages: the flag, where a command is being carried out (`named_by_flags`)."""
        return self.flags[0] if _BY_FLAGS.get() else self.name

    def checked(self, value: Any) -> Any:
        """Check `value`, or its text from a table's cell, and convert it to this option's type.

        SchemaError or OutOfRangeError if it is of another kind or outside the range; the message names the option.
        """
        if value is None or (isinstance(value, str) and not value.strip()):
            return self.default
        try:
            return KINDS[self.kind].check(self, value)
        except EpochcastError as error:
            error.about(self.name)
            raise


def _whole(declared: Option, value: Any) -> int:
    return whole_number(declared.shown, value, int(declared.low), int(declared.high))


def _flag(declared: Option, value: Any) -> bool:
    return value if isinstance(value, bool) else yes_or_no(declared.shown, str(value))


def _number(declared: Option, value: Any) -> float:
    """A number above 0, of the range that is declared; 0, too, where it is the default."""
    low = 0.0 if declared.default == 0 else max(declared.low, SMALLEST)
    return number_within(declared.shown, value, low, min(declared.high, LARGEST))


def _hours(declared: Option, value: Any) -> float:
    """Hours, or a text of numbers with units: ``90min``, ``1h30m``, ``3 weeks``."""
    text = str(value).strip().casefold()
    if _DURATION.fullmatch(text) and not _MINUTES_OR_MONTHS.fullmatch(text):
        hours = sum(float(number) * _HOURS[unit[0]] for number, unit in _WITH_UNIT.findall(text))
        return number_within(declared.shown, hours)
    if isinstance(value, str) and not _PLAIN.fullmatch(text):
        raise SchemaError(
            f"{declared.shown} {value!r} is not a number of hours, nor one with a unit: 90min, 1h30m, 2d, 3 weeks."
        )
    return number_within(declared.shown, value)


def _usd(declared: Option, value: Any) -> float:
    """US$: ``100``, ``$100``, ``US$ 1,500`` or ``100 USD``."""
    if isinstance(value, str):
        value = _CURRENCY.sub("", value.strip()) or value
    return number_within(declared.shown, value, 0.0 if declared.free else SMALLEST)


def _share(declared: Option, value: Any) -> float:
    """A share, 0 to less than 1."""
    try:
        share = float(value)
    except (OverflowError, TypeError, ValueError):
        share = math.nan
    if isinstance(value, bool) or not 0 <= share < 1:
        raise OutOfRangeError(f"{declared.shown} {value!r} is no share. Give one from 0 to below 1.")
    return share or 0.0


_WITH_UNIT = re.compile(
    r"(\d+(?:\.\d+)?|\.\d+)\s*(s|secs?|seconds?|m|min|mins|minutes?|h|hrs?|hours?|d|days?|w|weeks?)(?![a-z])[\s,]*"
)
_DURATION = re.compile(f"(?:{_WITH_UNIT.pattern})+")
_MINUTES_OR_MONTHS = re.compile(r"[0-9.]+\s*m")
_PLAIN = re.compile(r"[-+0-9.e]+")
_HOURS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0, "w": 168.0}
_CURRENCY = re.compile(r"^(US ?)?\$ ?|^USD ?| ?(USD|\$)$", re.IGNORECASE)


def _choice(declared: Option, value: Any) -> str:
    word = str(value).strip()
    if word not in declared.choices:
        raise SchemaError(
            f"{declared.shown} {value!r} is not known. Nearest: {nearest(word, declared.choices)}; "
            f"known: {', '.join(declared.choices)}.{declared.hint and f' {declared.hint}'}"
        )
    return word


def _workers(declared: Option, value: Any) -> int | str:
    """Workers of each GPU, or of a machine: ``6/machine``."""
    number, slash, unit = str(value).partition("/")
    if not slash:
        return _whole(declared, value)
    if unit.strip() != "machine":
        raise SchemaError(
            f"{declared.shown} {value!r} is of no known unit. Write those of each GPU, 4, or of a machine: 6/machine."
        )
    return f"{whole_number(declared.shown, number, 1, int(declared.high))}/machine"


def _trainings(declared: Option, value: Any) -> int | str:
    """Trainings on each GPU, or ``auto``."""
    return "auto" if str(value).strip() == "auto" else _whole(declared, value)


def _loader(declared: Option, value: Any) -> str:
    """A choice, a rate such as ``300/worker`` or ``2000/machine``, or the path of a JSON file."""
    text = str(value).strip()
    number, _, unit = text.rpartition("/")
    if unit in ("worker", "machine"):
        return f"{number_within(declared.shown, number)}/{unit}"
    if text not in declared.choices and not text.casefold().endswith(".json"):
        raise SchemaError(
            f"{declared.shown} {value!r} is not known. Nearest: {nearest(text, declared.choices)}; known: "
            f"{', '.join(declared.choices)}, images/s such as 300/worker or 2000/machine, and the .json file of "
            "`epochcast profile input`."
        )
    return text


def _file(declared: Option, value: Any) -> Any:
    """A path, or what a file would hold: a table, offers, a model."""
    if value is None or isinstance(value, bool | int | float | bytes):
        of_kind(declared.shown, value, (str, PathLike), "a path, or what such a file holds")
    return value


def _anchors(declared: Option, value: Any) -> tuple[Any, ...]:
    right = "a list of measurements, such as [{'gpu': 'T4', 'batch_size': 64, 'iteration_time_ms': 80.5}]"
    anchors = tuple(as_list(value))
    for anchor in anchors:
        if not isinstance(anchor, Mapping) and not hasattr(anchor, "iteration_time_ms"):
            of_kind(declared.shown, anchor, Mapping, right)
    return anchors


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of option: how a value of an option is checked, its type in Python and in JSON, and its name in help."""

    check: Callable[[Option, Any], Any]
    python: str
    json: tuple[str, ...]
    metavar: str


KINDS: dict[str, Kind] = {
    "whole": Kind(_whole, "int", ("integer",), "N"),
    "number": Kind(_number, "float", ("number",), "X"),
    "hours": Kind(_hours, "float | str", ("number", "string"), "X"),
    "usd": Kind(_usd, "float | str", ("number", "string"), "X"),
    "share": Kind(_share, "float", ("number",), "X"),
    "choice": Kind(_choice, "str", ("string",), "WORD"),
    "workers": Kind(_workers, "int | str", ("integer", "string"), "N"),
    "trainings": Kind(_trainings, "int | str", ("integer", "string"), "N"),
    "loader": Kind(_loader, "str | PathLike[str]", ("string",), "WORD"),
    "word": Kind(lambda _, value: str(value).strip(), "str", ("string",), "NAME"),
    "flag": Kind(_flag, "bool", ("boolean",), ""),
    "file": Kind(_file, "str | PathLike[str]", ("string",), "FILE"),
    "names": Kind(
        lambda _, value: ",".join(map(str, as_list(value))), "str | Sequence[str]", ("string",), "NAMES"
    ),
    "words": Kind(lambda _, value: tuple(as_list(value)), "str | Sequence[str]", ("array",), "WORD"),
    "sizes": Kind(lambda _, value: tuple(as_list(value)), "int | str | Sequence[int | str]", ("array",), "N"),
    "anchors": Kind(_anchors, "Iterable[Anchor | Mapping[str, Any]]", ("array",), ""),
}


def option(
    default: Any, help_: str, kind: str = "word", panel: str = "", *, answers: tuple[str, ...], **more: Any
) -> Any:
    """Declare an option of a question as a dataclass field with a default, and the answers that read it."""
    return field(
        default=default, metadata={"help": help_, "kind": kind, "panel": panel, "answers": answers, **more}
    )


def worded(
    default: Any, kind: str = "word", panel: str = "", *, answers: tuple[str, ...], **more: Any
) -> Any:
    """`option`, with the texts of its name, or class and name, in ``options.json``; {choices} stands for its words."""
    return option(default, "", kind, panel, answers=answers, **more)


def check_known(name: str, names: Collection[str]) -> None:
    """SchemaError, with the nearest names, for a name that is no option."""
    if name not in names:
        raise SchemaError(
            f"no option is called {name!r}. Nearest: {nearest(name, names)}; known: {', '.join(names)}."
        )


def options_of(kind: type[Any], answer: str | None = None) -> Mapping[str, Option]:
    """The options that a dataclass declares with `option`, by name, in order; those that an answer reads, if given."""
    kind_: Any = kind
    options = _declared(kind_)
    return {name: own for name, own in options.items() if answer in own.answers} if answer else options


def renewed(options: Mapping[str, Any], declared: Mapping[str, Option]) -> dict[str, Any]:
    """Options with the retired ones under their new names and with new values; a RetiredOptionWarning tells of it.

    SchemaError if an option is given by its old name and its new one.
    """
    new = {name: value for name, value in options.items() if name not in declared or not declared[name].now}
    for name in (name for name in options if name not in new):
        old = declared[name]
        if old.now is None or (value := old.checked(options[name])) is None:
            continue
        new_name, form = old.now
        shown = declared[new_name].shown
        if new.get(new_name) is not None:
            raise SchemaError(f"{old.shown} is {shown} by its old name, and both are given. Pass {shown}.")
        new[new_name] = form.format(value)
        text = f"{old.shown} goes with the next minor version. Write {shown} {form.format(KINDS[old.kind].metavar)}."
        warn(RetiredOptionWarning(text), stacklevel=3)
    return new


def check_options(question: Any) -> None:
    """Check every option of a question or plan, and convert it to its type; errors as of `Option.checked`."""
    for name, declared in options_of(type(question)).items():
        value = getattr(question, name)
        if value is not declared.default:
            object.__setattr__(question, name, declared.checked(value))


def check_read(question: Any, answer: str) -> None:
    """Refuse an option that an answer does not read; SchemaError unless it has its default."""
    for name, declared in options_of(type(question)).items():
        if answer in declared.answers or question.followed(name):
            continue
        value, default = getattr(question, name), declared.default
        if value is not default and not (isinstance(value, str | int | float | tuple) and value == default):
            raise SchemaError(f"{declared.shown} has no effect on {ANSWERS[answer]}. Leave it out.")


@cache
def _declared(kind: Any) -> dict[str, Option]:
    options = {}
    for column in fields(kind):
        if column.metadata:
            texts: Mapping[str, Any] = {}
            if not column.metadata["help"]:
                texts = _texts().get(f"{kind.__name__}.{column.name}") or _texts()[column.name]
            declared = Option(name=column.name, default=column.default, **{**column.metadata, **texts})
            options[column.name] = replace(
                declared, help=declared.help.replace("{choices}", ", ".join(declared.choices))
            )
    return options


@cache
def _texts() -> dict[str, dict[str, str]]:
    texts: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("options.json").read_text("utf-8"))
    return texts
