"""README.md answers first and stays short; README.ja.md has its first screen. test_pages.py runs what they show."""

import argparse
import re
import runpy
import shlex
import sys

import pytest
from page_runner import ROOT, blocks, lines_of

README, JAPANESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.ja.md"))


def test_the_readme_has_at_most_600_words_and_the_answer_first_in_both_languages():
    assert len(re.sub(r"<!--.*?-->|\|", "", README, flags=re.DOTALL).split()) <= 600
    first = next(block.text for block in blocks("README.md") if block.language == "console")
    assert first.startswith("$ make predict\n")
    assert len(first.splitlines()) <= 23
    shown = [(block.language, block.text) for block in blocks("README.md")]
    assert [(block.language, block.text) for block in blocks("README.ja.md")] == shown[:2]
    assert re.findall(r"!\[[^]]*\]\(([^)]+)\)", JAPANESE) == re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert "[日本語](README.ja.md)" in README
    n = re.search(r"machine: (\d+) that others ", README)[1]
    assert f"{n} 件" in JAPANESE
    assert set(re.findall(r"[\d.]+ %", JAPANESE)) == set(re.findall(r"[\d.]+ %", README))
    assert {"[English](README.md)", "[英語版](README.md#how-sure-is-it)"} <= set(
        re.findall(r"\[[^]]+\]\([^)]+\)", JAPANESE)
    )


SCRIPTS = [
    words
    for block in blocks("README.md")
    if block.language == "sh"
    for line, _ in lines_of(block.text)
    if (words := shlex.split(line, comments=True))[0] == "python"
]


class _StartedError(Exception):
    """A script has read its arguments."""


@pytest.mark.parametrize("words", SCRIPTS, ids=" ".join)
def test_a_script_of_the_readme_starts_with_the_arguments_that_are_shown(words, monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def started(parser, *arguments):
        parse(parser, *arguments)
        raise _StartedError

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", words[1:])
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", started)
    with pytest.raises(_StartedError):
        runpy.run_path(words[1], run_name="__main__")


def test_the_readme_names_no_script_that_it_does_not_show_how_to_run():
    shown = {words[1] for words in SCRIPTS}
    outside = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    assert set(re.findall(r"\b\w+\.py\b", outside)) <= {path.split("/")[-1] for path in shown}
    assert shown
