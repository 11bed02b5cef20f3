"""docs/commands.md shows what the commands do: every command and option is there, and its examples run."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from epochcast.command import build_app

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n\$ (.*?)\n(.*?)```", PAGE, re.DOTALL)
FILES = {line.removeprefix("cat "): text for line, text in BLOCKS if line.startswith("cat ")}
NEEDS_MORE = (
    "published",
    "measurements.csv",
    "model.json",
    " host ",
    "profile input",
    " keys ",
    " store ",
    " serve ",
    " push ",
)
EXAMPLES = [
    (line, text)
    for line, text in BLOCKS
    if line.startswith("epochcast ") and not any(word in line for word in NEEDS_MORE)
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
    assert any(line.startswith(f"epochcast {words} ") or line == f"epochcast {words}" for line, _ in BLOCKS)


@pytest.mark.parametrize("words", ["predict", "compare", "explain", "evaluate", "fit", "profile"])
def test_every_option_is_described(words):
    options = [
        option for each in dict(commands())[words].params for option in each.opts if option[:2] == "--"
    ]
    assert [option for option in options if f"`{option}" not in PAGE and f" {option} " not in PAGE] == []


@pytest.mark.parametrize(("line", "text"), EXAMPLES, ids=[line for line, _ in EXAMPLES])
def test_an_example_prints_what_the_page_says(line, text, epochcast, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_text(content)
    run = epochcast(*shlex.split(line)[1:])
    assert (run.out + run.err).splitlines()[0] == text.splitlines()[0]
