"""What people read of the command line: its help, and what its parser refuses, as one line like all errors.

The help of commands with many options has those that people use first, and the rest by ``--help-all``.
"""

import re
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand

from predictor.errors import nearest

_FOR_ALL = "gpu batch_size data_set precision as_json"
_FIRST = {
    "compare": "epochs budget_usd deadline_h rank_by n_gpus spot verbose",
    "predict": "image_size n_gpus workers spot out plot verbose",
    "explain": "image_size memory_format capture optimizer host method verbose",
    "check": "log images_per_s iteration_time_ms epoch_time_s waiting_share workers epochs",
    "fit-memory": "memory_gib allow code image_size epochs optimizer n_gpus",
    "diff": "fail_over markdown image_size memory_format optimizer n_gpus host",
}
_ALL = "epochcast.help_all"
_ANSWER_OF = {
    **dict.fromkeys(("predict", "check", "diff"), "predict"),
    **dict.fromkeys(("compare", "fit-memory"), "compare"),
    "explain": "explain",
}
"""The answer whose options a command takes (`predictor.answers.options.ANSWERS`)."""


class ShortHelp(TyperCommand):
    """A command whose ``--help`` shows twelve options, and whose ``--help-all`` shows every option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--help-all`` as help of all options."""
        if "--help-all" in args:
            ctx.meta[_ALL], args = True, ["--help"]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, without the options that people use less."""
        first = f"{_FOR_ALL} {_FIRST.get(self.name or '', '')}".split()
        params: list[Any] = self.params if self.name in _FIRST and _ALL not in ctx.meta else []
        options = [param for param in params if param.param_type_name == "option" and not param.hidden]
        rest = [option for option in options if option.name not in first]
        for option in rest:
            option.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for option in rest:
                option.hidden = False
        if rest:
            typer.echo(f" --help-all lists {len(rest)} more options.\n")


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
        if commands := _commands_with(error.option_name):
            *others, last = (f"`{own}`" for own in commands)
            takers = f"{', '.join(others)} and {last}" if others else last
            return f"{error.option_name} is an option of {takers}, not of `{command}`. Pass it there, or leave it out."
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


def _commands_with(flag: str) -> list[str]:
    """The commands that answer with an option of a question or plan; empty for any other."""
    from predictor.answers.options import options_of
    from predictor.answers.question import Plan, Question

    options = (*options_of(Question).values(), *options_of(Plan).values())
    answers = next((option.answers for option in options if flag in option.flags), ())
    return [command for command, answer in _ANSWER_OF.items() if answer in answers]


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
