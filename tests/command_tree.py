"""The commands of `epochcast` with their words, for tests that look at each of them."""

from collections.abc import Iterator
from typing import Any

import typer

from epochcast.command import build_app


def commands(command: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that runs, with its words, depth first."""
    command = command or typer.main.get_command(build_app())
    below = getattr(command, "commands", {})
    if words and (not below or command.invoke_without_command):
        yield " ".join(words), command
    for name, sub in below.items():
        yield from commands(sub, (*words, name))
