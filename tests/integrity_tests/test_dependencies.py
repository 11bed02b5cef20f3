"""docs/dependencies.md says of every dependency why it is there."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
FOUND = sorted(
    {
        re.split(r"[<>=!~\[; ]", requirement)[0]
        for requirements in [
            PROJECT["build-system"]["requires"],
            PROJECT["project"]["dependencies"],
            *PROJECT["project"]["optional-dependencies"].values(),
        ]
        for requirement in requirements
    }
)


@pytest.mark.parametrize("package", FOUND)
def test_a_dependency_has_its_reason(package):
    assert f"`{package}`" in PAGE


@pytest.mark.parametrize("extra", sorted(PROJECT["project"]["optional-dependencies"]))
def test_an_extra_is_described(extra):
    assert f"`{extra}`" in PAGE
