"""docs/dependencies.md says of every dependency why it is there."""

import re
import tomllib
from pathlib import Path

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
            *PROJECT["dependency-groups"].values(),
        ]
        for requirement in requirements
    }
)


def test_every_dependency_has_its_reason():
    assert [package for package in FOUND if f"`{package}`" not in PAGE] == []


def test_every_extra_is_described():
    extras = PROJECT["project"]["optional-dependencies"]
    assert [extra for extra in sorted(extras) if f"`{extra}`" not in PAGE] == []
