"""The README as a package index shows it: nothing in it leads into the repository, which is not there."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HOOK = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]


def shown():
    """What the hook makes of the README, by the rules that it documents: each substitution in turn."""
    text = "".join((ROOT / fragment["path"]).read_text(encoding="utf-8") for fragment in HOOK["fragments"])
    for rule in HOOK["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    return text


def test_no_link_and_no_picture_is_relative():
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)|(?:src|href)=\"(?!https?://|#)[^\"]*", shown()) == []


def test_names_of_files_stay():
    text = shown()
    files = re.findall(r"\]\(((?!https?://|#)[^)!]+\.md)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [file for file in files if f"`{file}`" not in text] == []
    assert files


def test_what_is_left_is_the_readme():
    words = (ROOT / "README.md").read_text(encoding="utf-8").split()
    assert len(shown().split()) > 0.9 * len(words)
