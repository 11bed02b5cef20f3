"""docs/commands.md shows what the commands do: every command is there; test_pages.py runs its examples."""

import os
import re
import subprocess
import sys

import pytest
from case_tables import each_row
from command_tree import commands
from page_runner import ROOT, blocks

from epochcast.commands.options import complete_gpu
from predictor.catalogue.devices import all_gpus, find_gpu

PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
EXAMPLES = [
    line.removeprefix("$ ")
    for block in blocks("docs/commands.md")
    if block.language in ("console", "sh")
    for line in block.text.splitlines()
]


@pytest.mark.parametrize("words", [words for words, _ in commands()])
def test_every_command_has_an_example(words):
    assert any(f"{line} ".startswith(f"epochcast {words} ") for line in EXAMPLES)


def test_every_option_says_what_it_does_and_help_shows_the_extras_in_square_brackets(epochcast):
    """`--help` and the site's reference, which is made of the parser, list them."""
    silent = [
        (words, parameter.opts)
        for words, command in commands()
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.help
    ]
    assert silent == []
    named = [
        (words, extra)
        for words, command in commands()
        for text in (command.help, *(getattr(param, "help", None) for param in command.params))
        for extra in re.findall(r"epochcast\[[a-z]+\]", (text or "").replace("\\[", "["))
    ]
    lost = [
        (words, extra)
        for words, extra in named
        if extra not in epochcast(*words.split(), "--help-all" if words == "predict" else "--help").out
    ]
    assert {words for words, _ in named} >= {"offer update", "profile", "predict"}
    assert lost == []
    assert "](reference/commands.md)" in PAGE
    assert "| option |" not in PAGE


@each_row
def test_shells_complete_names_and_options(typed, completed):
    words = ["epochcast", *typed.split()]
    completion = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    run = subprocess.run(
        [sys.executable, "-m", "epochcast"],
        env=os.environ | completion | {"_EPOCHCAST_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
    )
    assert set(completed) <= set(run.stdout.split()), run.stderr


def test_every_completed_gpu_is_one_word_that_is_understood():
    words = [word for word in complete_gpu() if word != "all"]
    assert {find_gpu(word).name for word in words} == {gpu.name for gpu in all_gpus()}
    assert not any(" " in word for word in words)
