"""Tables of cases that lie in `tables.json` beside the tests that walk them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from predictor import errors


def table(test_file: str, name: str) -> Any:
    """The table of this name beside a test file."""
    return json.loads(Path(test_file).with_name("tables.json").read_text(encoding="utf-8"))[name]


def each_row(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test for each row of the table that has its name.

    The first row names the arguments, of which `error` is the name of an error; an entry behind these says why its row
    is there, and names its case.
    """
    names, *rows = table(test.__code__.co_filename, test.__name__)
    if not rows:
        raise ValueError(f"{test.__name__} has no cases in tables.json.")
    if "error" in names:
        at = names.index("error")
        rows = [[*row[:at], getattr(errors, row[at]), *row[at + 1 :]] for row in rows]
    cases = [pytest.param(*row[: len(names)], id=next(iter(row[len(names) :]), None)) for row in rows]
    return pytest.mark.parametrize(names, cases)(test)
