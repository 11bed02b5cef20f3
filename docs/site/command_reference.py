"""The reference of the commands, made from the parser: every command, argument and option with its help and default."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import typer

from epochcast.command import build_app

_INTRODUCTION = """# Commands

Made from the parser when this site is built, so that it says what `--help` says. [Every command](../commands.md) shows
examples with what they print.
"""


def commands_page() -> str:
    """The page in Markdown."""
    parts = [_INTRODUCTION]
    for words, command in commands_of(typer.main.get_command(build_app())):
        parts += _section(words, command)
    return "\n".join(parts)


def commands_of(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that can be called, with its words, depth first."""
    below = getattr(command, "commands", {})
    if words and (not below or command.invoke_without_command):
        yield words, command
    for name, sub in below.items():
        yield from commands_of(sub, (*words, name))


def _section(words: tuple[str, ...], command: Any) -> Iterator[str]:
    yield f"## epochcast {' '.join(words)}\n"
    yield f"{_prose(command.help)}\n"
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            yield f"`{parameter.make_metavar(_context(command))}`: {_prose(parameter.help)}\n"
    panels: dict[str, list[Any]] = defaultdict(list)
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            panels[getattr(parameter, "rich_help_panel", None) or "Options"].append(parameter)
    for panel, options in panels.items():
        yield f"| {panel} | | by default |\n|---|---|---|"
        yield from (_row(option, command) for option in options)
        yield ""


def _row(option: Any, command: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    metavar = "" if option.is_flag else f" {option.make_metavar(_context(command))}"
    return f"| {names}{_cell(metavar)} | {_cell(_prose(option.help))} | {_cell(_default(option))} |"


def _default(option: Any) -> str:
    """What holds without the option."""
    if isinstance(option.show_default, str):
        return option.show_default
    value = option.default() if callable(option.default) else option.default
    if value is None or value == () or value == [] or option.show_default is False or "UNSET" in repr(value):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(getattr(value, "value", value))


def _context(command: Any) -> Any:
    return typer.Context(command)


def _prose(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
