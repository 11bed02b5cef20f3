"""What mkdocs does beside its own work: pages that are made when the site is built, and links that lead out of docs/.

References are made from the parser, the docstrings and the OpenAPI document. Pages that stand beside docs/
(CONTRIBUTING.md, CHANGELOG.md, datasets/README.md) are shown, too, and so are notebooks: with what they print where
`make notebooks` ran them as they are now, else their cells alone.
"""

import re
import sys
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent), str(ROOT / "notebooks")]

from references import commands_page, measurements_page, python_page, rest_page  # noqa: E402
from render import RENDERED, digest, page  # noqa: E402

_BESIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "datasets/README.md": "data.md",
    "README.md": "index.md",
}
"""Files beside docs/ and the pages that show them; what README.md says is on the first page."""


_MADE = {
    "reference/python.md": python_page,
    "reference/commands.md": commands_page,
    "reference/rest.md": rest_page,
    "reference/measurements.md": measurements_page,
}
_SOURCES = {page: source for source, page in _BESIDE.items() if page != "index.md"}
_LINK = re.compile(r"(?<!!)\[(?P<name>[^\]]+)\]\((?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, those that stand beside docs/, and the notebooks."""
    for name, make in _MADE.items():
        files.append(File.generated(config, name, content=make()))
    for source, name in _BESIDE.items():
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        _add_notebook(files, path, config)
    return files


def _add_notebook(files: Files, path: Path, config: Any) -> None:
    """Add a notebook to download and its page, with pictures where it was run as it is now."""
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    copy = RENDERED / f"{path.stem}.md"
    shown = copy.read_text(encoding="utf-8") if copy.exists() else ""
    if digest(notebook) in shown:
        for picture in RENDERED.glob(f"{path.stem}-*.png"):
            files.append(File.generated(config, f"notebooks/{picture.name}", content=picture.read_bytes()))
    else:
        shown = page(notebook, path, RENDERED)
    files.append(File.generated(config, f"notebooks/{path.name}", content=text))
    files.append(File.generated(config, f"notebooks/{path.stem}.md", content=shown))


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Lead links out of docs/ to the pages that show what lies there; a file that no page shows is named alone."""
    name = page.file.src_uri
    source = _SOURCES.get(name, f"docs/{name}")

    def lead(link: re.Match[str]) -> str:
        target = _page_of(normpath(join(dirname(source), link["path"])))
        if target is None or files.get_file_from_path(target) is None:
            return link["name"] if link["path"].startswith("../") or name in _SOURCES else link[0]
        return f"[{link['name']}]({relpath(target, dirname(name) or '.')}{link['anchor'] or ''})"

    return _LINK.sub(lead, markdown)


def _page_of(target: str) -> str | None:
    """The page or file of the site that a file of the checkout becomes."""
    if target in _BESIDE:
        return _BESIDE[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return target.replace(".ipynb", ".md") if target.startswith("notebooks/") else None
