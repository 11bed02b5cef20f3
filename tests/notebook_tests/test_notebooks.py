"""Notebooks keep no outputs, need epochcast alone, and their rendered copies belong to them. nbmake runs them."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def _render():
    spec = importlib.util.spec_from_file_location("render", ROOT / "notebooks" / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


render = _render()


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


@pytest.fixture
def copy(path):
    return (render.RENDERED / f"{path.stem}.md").read_text(encoding="utf-8")


def test_there_are_five():
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


def test_it_keeps_no_outputs(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.id for cell in code if cell.outputs or cell.execution_count] == []


def test_it_is_a_notebook_of_any_machine(notebook):
    nbformat.validate(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"


def test_its_cells_have_names_not_numbers(notebook):
    """So that a change of one shows as one in git, and pictures keep their names."""
    assert [cell.id for cell in notebook.cells if not re.fullmatch(r"[a-z]+(-[a-z]+)*", cell.id)] == []


ALSO = {"04-the-founding-study": {"numpy", "pandas", "predictor"}, "05-your-own-cnn": {"torch"}}
"""What else a notebook imports: the study fits estimators by hand, and one's own CNN is a PyTorch module."""


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


def test_its_rendered_copy_is_of_what_it_says_now(notebook, copy):
    (made_of,) = re.findall(r"sources ([0-9a-f]{64})", copy)
    assert made_of == render.digest(notebook), "type: make notebooks"


def test_its_rendered_copy_shows_every_picture_and_no_other(path, copy):
    shown = re.findall(r"!\[[^]]+\]\(([^)]+\.png)\)", copy)
    assert sorted(shown) == sorted(file.name for file in render.RENDERED.glob(f"{path.stem}-*.png"))
    assert shown


def test_its_rendered_copy_holds_no_machine_path_and_no_error(copy):
    assert re.findall(r"Traceback|/home/|/work/|/tmp/|<style", copy) == []


def test_the_readme_links_to_it(path):
    assert f"(docs/notebooks/{path.stem}.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


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
