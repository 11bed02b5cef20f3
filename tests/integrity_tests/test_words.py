"""Pages, messages, public docstrings and the page's texts avoid a few words that make a sentence hard to read."""

import ast
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "datasets/README.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
CODE = [
    path for wing in ("predictor", "api", "epochcast", "proxy_cnns") for path in (ROOT / wing).rglob("*.py")
]
PUBLIC = (
    "api",
    "epochcast",
    "predictor/answers",
    "predictor/cnns/builder.py",
    "predictor/cnns/torch_step.py",
)
"""Where the docstrings lie that `import epochcast`, `--help`, the generated reference and OpenAPI show."""
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


def refusals(text: str) -> list[str]:
    """Refused words of a text, with what stands around them and what to write instead."""
    for phrase in ALLOWED:
        text = text.replace(phrase, " " * len(phrase))
    return [
        f"{' '.join(text[max(0, hit.start() - 60) : hit.end() + 40].split())!r}: write {instead}"
        for word, instead in REFUSED.items()
        for hit in re.finditer(rf"\b{word}\b" if word[-1] != ")" else rf"\b{word}", text, re.IGNORECASE)
    ]


def prose(markdown: str) -> str:
    """A page without its code, which programs print or read."""
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", markdown, flags=re.DOTALL | re.MULTILINE)


def strings(path: Path, docstrings: bool) -> list[tuple[int, str]]:
    """Line and text of every string constant of a module: of its docstrings, or of all others."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    comments = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [
        node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [(node.lineno, node.value) for node in constants if (id(node) in comments) is docstrings]


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
        for line, text in strings(path, docstrings=False)
        for hit in refusals(text)
    ] == []


def test_public_docstrings_avoid_the_refused_words():
    paths = [path for path in sorted(CODE) if str(path.relative_to(ROOT)).startswith(PUBLIC)]
    assert len(paths) > 100
    assert [
        f"{path.relative_to(ROOT)}:{line}: {hit}"
        for path in paths
        for line, text in strings(path, docstrings=True)
        for hit in refusals(prose(text))
    ] == []


def test_the_pages_texts_avoid_the_refused_words():
    texts = {
        path: re.sub(r"/\*.*?\*/|//[^\n]*|<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for path in TEXTS
    }
    assert [f"{path.name}: {hit}" for path, text in texts.items() for hit in refusals(text)] == []
