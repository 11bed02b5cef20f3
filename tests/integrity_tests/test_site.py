"""The documentation site is built strictly, names every command, function and route, and asks no other host."""

import html
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_tree import commands

import epochcast
from predictor.measurements.schema import COLUMNS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `make docs` builds it: by its own process, whose loop of events is no test's."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def text_of(page):
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_every_command_and_option_is_in_the_reference(site):
    page = text_of(site / "reference" / "commands.html")
    named = {f"epochcast {words}" for words, _ in commands()}
    options = {
        flag
        for _, command in commands()
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden
        for flag in parameter.opts
    }
    assert sorted(name for name in named | options if name not in page) == []


def test_every_public_name_and_option_of_python_is_in_the_reference(site):
    page = text_of(site / "reference" / "python.html")
    assert [name for name in epochcast.__all__ if name not in page] == []
    assert "**options" not in page
    assert "US$ that the training may cost" in page


def test_every_column_of_measurements_is_in_the_reference(site):
    page = text_of(site / "reference" / "measurements.html")
    assert [name for name in [*(column.name for column in COLUMNS), "cpu:<model>"] if name not in page] == []


def test_every_route_is_in_the_reference(site):
    from api.main import create_app
    from api.settings import Settings

    page = text_of(site / "reference" / "rest.html")
    with ThreadPoolExecutor(1) as thread:  # where no other test left a loop of events
        paths = thread.submit(lambda: create_app(Settings(store="")).openapi()["paths"]).result()
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert sorted(route for route in routes if route not in page) == []


def test_no_page_asks_another_host_or_keeps_a_mark_of_the_tests(site):
    asking = re.compile(
        r"<(?:script|img|iframe)[^>]+src=.?(?:https?:)?//|<link[^>]+rel=.?stylesheet[^>]+href=.?https?://"
    )
    pages = site.rglob("*.html")
    assert [page.name for page in pages if asking.search(page.read_text(encoding="utf-8"))] == []
    assert [page.name for page in site.rglob("*.html") if "not run: " in text_of(page)] == []
    assert (site / "search" / "search_index.js").exists()  # what a site opened as a file searches
