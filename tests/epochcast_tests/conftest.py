"""The command, run in this process."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from epochcast.command import main


class Run(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def epochcast(monkeypatch, capsys) -> Callable[..., Run]:
    """Run `epochcast` with these arguments, wide enough that nothing is left out."""
    monkeypatch.setenv("COLUMNS", "400")

    def run(*arguments: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["epochcast", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run
