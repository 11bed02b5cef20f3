"""README.md answers first and stays short; README.ja.md says the same. test_pages.py runs what they show."""

import argparse
import re
import runpy
import shlex
import sys

import pytest
from page_runner import ROOT, blocks, lines_of

README, JAPANESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.ja.md"))


def test_the_readme_has_at_most_700_words_beside_its_examples():
    assert len(re.sub(r"```.*?```|<!--.*?-->", "", README, flags=re.DOTALL).split()) <= 700


def test_the_answer_comes_first_and_fits_half_a_screen():
    first = next(block.text for block in blocks("README.md") if block.language == "console")
    assert first.startswith("$ make predict\n")
    assert len(first.splitlines()) <= 23


def test_the_japanese_readme_shows_the_same_commands_and_what_they_print():
    shown = [(block.language, block.text) for block in blocks("README.md")]
    assert [(block.language, block.text) for block in blocks("README.ja.md")] == shown


def test_the_japanese_readme_links_to_the_same_files():
    files = r"\]\(([^)]+)\)"
    assert re.findall(files, JAPANESE)[1:] == re.findall(files, README)[1:]
    assert "[日本語](README.ja.md)" in README
    assert "[English](README.md)" in JAPANESE


def test_the_japanese_readme_has_the_same_figures():
    def rows(text):
        return [
            re.findall(r"\d+(?:\.\d+)? %|[\d.]+ / [\d.]+ %", line)
            for line in text.splitlines()
            if line[:2] == "| "
        ]

    assert rows(JAPANESE) == rows(README)


def test_the_japanese_readme_has_the_same_sections():
    def sections(text):
        return re.findall(r"^#+ ", text, re.MULTILINE)

    assert sections(JAPANESE) == sections(README)


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
    assert len(shown) == 5


def test_measured_epochs_of_the_readme_are_there():
    files = [word for words in SCRIPTS for word in words if word.endswith(".csv")]
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []
