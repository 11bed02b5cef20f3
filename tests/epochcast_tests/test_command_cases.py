"""Commands, their exit codes, words of their output and words that it lacks, by the fact that a row holds.

command_cases.json has the rows, `[command, exit code, words, words that are absent]`, files, and missing packages.
A refusal is one line on stderr, and no command here leaves a file.
"""

import json
import shlex
import sys
from pathlib import Path

import pytest

TABLE = json.loads(Path(__file__).with_name("command_cases.json").read_text("utf-8"))
CASES = [(fact, *case) for fact, cases in TABLE["cases"].items() for case in cases]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder where commands run, with the small files."""
    path = tmp_path_factory.mktemp("cases")
    for name, lines in TABLE["files"].items():
        (path / name).write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}: {case[1]}")
def test_a_command_answers_as_its_row_says(epochcast, folder, monkeypatch, case):
    _, command, code, words, *absent = case
    monkeypatch.chdir(folder)
    for name in ("EPOCHCAST_STORE", "EPOCHCAST_MODEL"):
        monkeypatch.setenv(name, "")  # `serve` sets them: set here first, they are as before afterwards
        monkeypatch.delenv(name)
    if command in TABLE["missing"]:
        monkeypatch.setitem(sys.modules, TABLE["missing"][command], None)
    run = epochcast(*shlex.split(command))
    output = " ".join(f"{run.out} {run.err}".split())
    assert run.code == code, output
    assert [text for text in words if text not in output] == []
    assert [text for text in (absent[0] if absent else ()) if text in output] == []
    if code == 2:
        assert (run.out, run.err[:7], run.err.count("\n")) == ("", "Error: ", 1)
    assert {path.name for path in folder.iterdir()} == set(TABLE["files"])
