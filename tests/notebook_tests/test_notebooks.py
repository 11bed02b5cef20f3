"""Notebooks keep no outputs, need only epochcast, and run, in this process and in the folder that they lie in."""

import ast
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


render = SimpleNamespace(**runpy.run_path(str(ROOT / "notebooks" / "render.py"), run_name="render"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def test_there_are_five():
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


def test_it_keeps_no_outputs_its_cells_have_names_and_the_readme_links_to_it(notebook, path):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.id for cell in code if cell.outputs or cell.execution_count] == []
    nbformat.validate(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert [cell.id for cell in notebook.cells if not re.fullmatch(r"[a-z]+(-[a-z]+)*", cell.id)] == []
    assert f"(notebooks/{path.name})" in (ROOT / "README.md").read_text(encoding="utf-8")


ALSO = {"04-the-founding-study": {"numpy", "pandas"}, "05-your-own-cnn": {"torch"}}
"""What else a notebook imports: the study fits its regressions by hand, and your own CNN is a PyTorch module."""


def test_it_imports_epochcast_and_what_python_has(path, notebook):
    imported = set()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Import):
                    imported |= {name.name.split(".")[0] for name in node.names}
                elif isinstance(node, ast.ImportFrom):
                    imported.add(node.module.split(".")[0])
    assert imported - sys.stdlib_module_names == {"epochcast", *ALSO.get(path.stem, ())}


def test_it_runs(path, notebook, monkeypatch):
    """Cell by cell, as its reader does; what a cell ends with is shown, as a notebook shows it."""
    for name in ALSO.get(path.stem, ()):
        pytest.importorskip(name)
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {"__name__": "__main__"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            *statements, last = ast.parse(cell.source).body
            exec(compile(ast.Module(statements, []), cell.id, "exec"), names)  # noqa: S102
            kind = "eval" if isinstance(last, ast.Expr) else "exec"
            tree = ast.Expression(last.value) if kind == "eval" else ast.Module([last], [])
            shown = eval(compile(tree, cell.id, kind), names)  # noqa: S307
            for form in ("_repr_html_", "_repr_png_", "__repr__"):
                getattr(shown, form, str)()


def test_a_run_notebook_becomes_a_page_with_its_pictures(tmp_path):
    cell = nbformat.v4.new_code_cell("draw()", id="a-plot")
    cell.outputs = [nbformat.v4.new_output("display_data", {"image/png": "aGVsbG8="})]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A title"), cell])
    text = render.page(notebook, tmp_path / "06-new.ipynb", tmp_path)
    assert "# A title\n\n```python\ndraw()\n```\n\n![What the lines above draw](06-new-a-plot.png)" in text
    assert (tmp_path / "06-new-a-plot.png").read_bytes() == b"hello"
    assert render.digest(notebook) in text


def test_a_data_frame_becomes_a_table_of_markdown():
    import pandas as pd

    frame = pd.DataFrame({"a|b": ["x < y", "2"], "c": [1.5, 2.0]}, index=pd.Index(["p", "q"], name="key"))
    lines = render._table(frame.to_html()).splitlines()
    assert lines == [
        "| key | a\\|b | c |",
        "| --- | --- | --- |",
        "| p | x &lt; y | 1.5 |",
        "| q | 2 | 2.0 |",
    ]
