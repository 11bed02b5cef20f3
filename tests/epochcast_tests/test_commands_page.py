"""docs/commands.md shows what the commands do: every command and option is there; test_pages.py runs its examples."""

import pytest
import typer
from page_runner import ROOT, blocks

from epochcast.command import build_app

PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
EXAMPLES = [
    block.text.removeprefix("$ ").split("\n")[0]
    for block in blocks("docs/commands.md")
    if block.language in ("console", "sh")
]


def commands(command=None, path=()):
    """Every command with its words, depth first."""
    command = command or typer.main.get_command(build_app())
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield " ".join(path), command
    for name, sub in below.items():
        yield from commands(sub, (*path, name))


@pytest.mark.parametrize("words", [words for words, _ in commands()])
def test_every_command_has_an_example(words):
    assert any(f"{line} ".startswith(f"epochcast {words} ") for line in EXAMPLES)


@pytest.mark.parametrize("words", ["predict", "compare", "explain", "evaluate", "fit", "profile"])
def test_every_option_is_described(words):
    options = [
        option for each in dict(commands())[words].params for option in each.opts if option[:2] == "--"
    ]
    assert [option for option in options if f"`{option}" not in PAGE and f" {option} " not in PAGE] == []
