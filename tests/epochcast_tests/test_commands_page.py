"""docs/commands.md shows what the commands do: every command is there; test_pages.py runs its examples."""

import re

import pytest
import typer
from page_runner import ROOT, blocks

from epochcast.command import build_app

PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
EXAMPLES = [
    line.removeprefix("$ ")
    for block in blocks("docs/commands.md")
    if block.language in ("console", "sh")
    for line in block.text.splitlines()
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


def test_every_option_says_what_it_does():
    """`--help` and the site's reference, which is made of the parser, list them."""
    silent = [
        (words, parameter.opts)
        for words, command in commands()
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.help
    ]
    assert silent == []


def test_help_shows_the_extras_in_square_brackets(epochcast):
    """Help is rich markup, which takes what stands in unescaped square brackets for a style."""
    named = [
        (words, extra)
        for words, command in commands()
        for text in (command.help, *(getattr(each, "help", None) for each in command.params))
        for extra in re.findall(r"epochcast\[[a-z]+\]", (text or "").replace("\\[", "["))
    ]
    lost = [(words, extra) for words, extra in named if extra not in epochcast(*words.split(), "--help").out]
    assert {words for words, _ in named} >= {"offer update", "profile", "predict"}
    assert lost == []


def test_the_page_leads_to_the_reference_and_repeats_no_table_of_options():
    assert "](reference/commands.md)" in PAGE
    assert "| option |" not in PAGE
