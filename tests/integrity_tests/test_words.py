"""Pages, messages, docstrings and the page's texts avoid a few words that make a sentence hard to read."""

import ast
import json
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "datasets/README.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
CODE = [
    path for wing in ("predictor", "api", "epochcast", "proxy_cnns") for path in (ROOT / wing).rglob("*.py")
]
TEXTS = [ROOT / "api/web/strings_en.js", ROOT / "api/web/index.html"]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

_VERBS = "is|was|has|had|gets|takes|keeps|says|holds|asks|answers|needs|uses|names|computes|reads|stands"
REFUSED = {
    r"told": "said, given, set",
    r"alone": "only, on its own",
    r"so (?:many|much)": "the number, how many",
    r"anew": "again, from scratch",
    r"surer": "a narrower interval",
    r"one's own": "your own",
    r"nine times out of ten|meant to (?:lie|hold)": "the 90 % interval",
    rf"each (?:{_VERBS})": "each GPU is, each row has",
    r"(?:of|for|by|with|in|on) each(?=[,.;:)])": "of each GPU",
}
ALLOWED = {"ALONE": "a name of `proxy_cnns.configuration`"}
"""Phrases that may hold a refused word, and why."""


_PATTERNS = {rf"\b{word}\b" if word[-1] != ")" else rf"\b{word}": write for word, write in REFUSED.items()}
_ANY = re.compile("|".join(_PATTERNS), re.IGNORECASE)


def refusals(text: str) -> list[str]:
    """Refused words of a text, with what stands around them and what to write instead."""
    if not _ANY.search(text):
        return []
    for phrase in ALLOWED:
        text = text.replace(phrase, " " * len(phrase))
    return [
        f"{' '.join(text[max(0, hit.start() - 60) : hit.end() + 40].split())!r}: write {instead}"
        for pattern, instead in _PATTERNS.items()
        for hit in re.finditer(pattern, text, re.IGNORECASE)
    ]


def prose(markdown: str) -> str:
    """A page without its code, which programs print or read."""
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", markdown, flags=re.DOTALL | re.MULTILINE)


@cache
def strings(path: Path) -> list[tuple[int, str, bool]]:
    """Line and text of every string constant of a module, and whether it is a docstring."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    comments = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [(node.lineno, node.value, id(node) in comments) for node in constants]


def test_the_list_refuses_what_it_names():
    assert refusals("GPUs alone: each is asked so many times, one for each.")
    assert len(refusals("GPUs alone: each is asked so many times, one for each.")) == 4
    assert refusals("Each GPU is asked; only GPUs.") == []


def test_pages_avoid_the_refused_words():
    assert [
        f"{path.relative_to(ROOT)}: {hit}"
        for path in PAGES
        for hit in refusals(prose(path.read_text(encoding="utf-8")))
    ] == []


def test_notebooks_avoid_the_refused_words():
    cells = [
        (path, "".join(cell["source"]))
        for path in NOTEBOOKS
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    ]
    assert [f"{path.name}: {hit}" for path, text in cells for hit in refusals(prose(text))] == []


def test_messages_avoid_the_refused_words():
    assert [
        f"{path.relative_to(ROOT)}:{line}: {hit}"
        for path in sorted(CODE)
        for line, text, is_docstring in strings(path)
        if not is_docstring
        for hit in refusals(text)
    ] == []


def test_no_page_holds_the_marks_of_a_conflict():
    marks = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
    assert [page.name for page in PAGES if marks.search(page.read_text(encoding="utf-8"))] == []


def test_docstrings_avoid_the_refused_words():
    assert [
        f"{path.relative_to(ROOT)}:{line}: {hit}"
        for path in sorted(CODE)
        for line, text, is_docstring in strings(path)
        if is_docstring
        for hit in refusals(prose(text))
    ] == []


def test_the_pages_texts_avoid_the_refused_words():
    texts = {
        path: re.sub(r"/\*.*?\*/|//[^\n]*|<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for path in TEXTS
    }
    assert [f"{path.name}: {hit}" for path, text in texts.items() for hit in refusals(text)] == []
