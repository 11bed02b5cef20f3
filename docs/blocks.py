"""The code blocks of the pages, which a test runs and `refresh_examples.py` renews.

Above a block a page may say, invisibly to its readers:

- `<!-- not run: needs a GPU -->`: why a test cannot run it;
- `<!-- numbers vary: a key is made -->`: why what it prints is compared without its numbers;
- `<!-- file mine.csv.gz: datasets/measurements/NAME.csv.gz -->`: what stands in for a file that the reader has;
  `... as NVIDIA L40S -->`: with that GPU's name in its rows.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MARK = r"<!-- (?:not run: (?P<reason>.*?)|numbers vary: (?P<varies>.*?)) -->\n"
_FENCE = re.compile(
    rf"^(?:{_MARK})?```(?P<language>[^`\n]*)\n(?P<text>.*?)^```$"
    r"|^<!-- file (?P<file>\S+): (?P<stand_in>.*?) -->$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, or (language `file`) a file that stands in for the reader's."""

    page: str
    line: int
    language: str
    text: str
    reason: str = ""
    """Why a test does not run it; empty if it does."""
    varies: str = ""
    """Why its numbers differ from run to run; empty if they do not."""

    @property
    def place(self) -> str:
        """Where it stands, as editors jump to it."""
        return f"{self.page}:{self.line}"


def page_paths() -> list[str]:
    """Every page with code, relative to the checkout: notebooks' rendered copies are run as notebooks."""
    pages = [*ROOT.glob("README*.md"), ROOT / "CONTRIBUTING.md", ROOT / "datasets/README.md"]
    pages += [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "notebooks"]
    return sorted(str(path.relative_to(ROOT)) for path in pages)


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in its order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [_block(page, text, fence) for fence in _FENCE.finditer(text)]


def _block(page: str, text: str, fence: re.Match[str]) -> Block:
    line = text.count("\n", 0, fence.start()) + 1
    if fence["file"]:
        return Block(page, line, "file", f"{fence['file']} {fence['stand_in']}")
    return Block(page, line, fence["language"], fence["text"], fence["reason"] or "", fence["varies"] or "")
