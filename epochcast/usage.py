"""Wrong commands, options and values that the parser of the command line refuses, as one line like all errors."""

import re
from collections.abc import Iterable
from typing import Any

import typer

from predictor.errors import nearest

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What the parser raises: of click, or of typer's copy of it."""

_VALUE = re.compile(r"'?(.*?)'? is not ")
_WORD = re.compile(r"'(.*?)'| \((.*)\)")


def usage_message(error: Any, called: str) -> str:
    """Sentence on what is wrong, the nearest right words, and the help to read; `called` is the command's name."""
    kind, message = type(error).__name__, error.format_message()
    command = error.ctx.command_path if error.ctx is not None else f"epochcast {called}".rstrip()
    shows = f"`{command} --help`"
    if kind == "NoSuchOption":
        shown = (parameter for parameter in error.ctx.command.params if not parameter.hidden)
        flags = [name for parameter in shown for name in parameter.opts if name.startswith("-")]
        return _unknown("option", error.option_name, flags, shows)
    if message.startswith("No such command"):
        return _unknown("command", _named_in(message), error.ctx.command.list_commands(error.ctx), shows)
    if kind == "MissingParameter":
        return f"{_shown(error.param)} is missing. {shows} shows what it is."
    if "requires an argument" in message:
        return f"{error.option_name} needs a value. {shows} shows which."
    if "does not take a value" in message:
        return f"{error.option_name} takes no value. Leave out what follows it."
    if "unexpected extra argument" in message:
        return f"{_named_in(message)!r} is more than `{command}` takes. {shows} shows what it does."
    value = _VALUE.match(error.message)
    if getattr(error, "param", None) is not None and value is not None:
        return _wrong_value(error, value[1], shows)
    return f"{message.rstrip('.')}. {shows} shows what is right."


def _unknown(noun: str, name: str, names: Iterable[str], shows: str) -> str:
    return f"no {noun} is called {name!r}. Nearest: {nearest(name, names)}. {shows} shows all."


def _wrong_value(error: Any, value: str, shows: str) -> str:
    shown, of = _shown(error.param), error.param.type
    if getattr(of, "choices", None):
        choices = [str(getattr(choice, "value", choice)) for choice in of.choices]
        return f"{shown} {value!r} is not known. Nearest: {nearest(value, choices)}; known: {', '.join(choices)}."
    if not of.name.startswith(("int", "float")):
        return f"{shown} {value!r} {error.message.partition(' is ')[2].rstrip('.')}. {shows} shows what is right."
    number = "whole number" if of.name.startswith("int") else "number"
    low, high = getattr(of, "min", None), getattr(of, "max", None)
    ends = [f"{word} {end:,}" for word, end in (("from", low), ("to", high)) if end is not None]
    return f"{shown} {value!r} is not a {number}{' '.join(['', *ends])}. {shows} shows what it is."


def _shown(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    return str(max(parameter.opts, key=len) if is_option else (parameter.metavar or parameter.name).upper())


def _named_in(message: str) -> str:
    """The word that a message quotes, or has in brackets."""
    quoted = _WORD.search(message)
    return (quoted[1] or quoted[2]) if quoted else message
