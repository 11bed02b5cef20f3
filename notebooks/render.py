"""Runs each notebook and writes what a reader sees to build/notebooks: `make notebooks`.

Neither notebooks nor git keep outputs. The site shows the copy of the notebook as it is now; where there is none, its
cells alone. Tables become Markdown, pictures files beside it.
"""

import base64
import hashlib
import html
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent
RENDERED = NOTEBOOKS.parent / "build" / "notebooks"
_CELL = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>")
_NEVER = 300  # seconds that no cell takes


def digest(notebook: Any) -> str:
    """SHA-256 of what a notebook's cells say, whatever was run."""
    cells = [f"{cell.cell_type}\x1f{cell.source}" for cell in notebook.cells]
    return hashlib.sha256("\x1e".join(cells).encode()).hexdigest()


def render(path: Path, folder: Path = RENDERED) -> Path:
    """Run a notebook and write it, with all it shows, as Markdown."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=_NEVER, resources={"metadata": {"path": str(path.parent)}}).execute()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{path.stem}-*.png"):
        old.unlink()
    target = folder / f"{path.stem}.md"
    target.write_text(page(notebook, path, folder), encoding="utf-8")
    return target


def page(notebook: Any, path: Path, folder: Path) -> str:
    """A notebook as Markdown, with the outputs that it has; their pictures are written into `folder`."""
    parts = [
        f"<!-- Made by `make notebooks` from notebooks/{path.name}, sources {digest(notebook)}. -->",
        f"[The notebook]({path.name}) to run with your own CNN.",
    ]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts.append(f"```python\n{cell.source}\n```")
            picture = folder / f"{path.stem}-{cell.id}.png"
            parts += [_shown(output, picture) for output in _joined(cell.outputs)]
    return "\n\n".join(section for section in parts if section) + "\n"


def _joined(outputs: list[Any]) -> list[Any]:
    """The outputs of a cell, lines that came apart printed together."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else output
        streams = output.output_type == last.output_type == "stream" and output.name == last.name
        if streams and last is not output:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def _shown(output: Any, picture: Path) -> str:
    """One output in Markdown; a picture is written beside it."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```" if output.name == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        picture.write_bytes(base64.b64decode(data["image/png"]))
        return f"![What the lines above draw]({picture.name})"
    if "text/html" in data:
        return _table(data["text/html"])
    return f"```text\n{data['text/plain']}\n```"


def _table(text: str) -> str:
    """Turn the HTML of a data frame into a table of Markdown."""
    rows = [
        [html.escape(html.unescape(cell)).replace("|", "\\|") for cell in re.findall(_CELL, row)]
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.DOTALL)
    ]
    header, *body = rows
    if body and not any(body[0][1:]):  # the index's name has a row of its own
        header[0], body = body[0][0], body[1:]
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Render the notebooks named on the command line, else all."""
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        print(render(path))


if __name__ == "__main__":
    main()
