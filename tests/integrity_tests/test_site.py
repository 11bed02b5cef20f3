"""The documentation site is built strictly, names every command, function and route, and asks no other host."""

import html
import logging
import re
from pathlib import Path

import pytest
import typer

import epochcast
from epochcast.command import build_app
from predictor.measurements.schema import COLUMNS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `make docs` builds it; a warning fails."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.chdir(ROOT)
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


@pytest.fixture(autouse=True)
def warnings_of_mkdocs(caplog):
    """So that a strict build that fails shows why."""
    caplog.set_level(logging.WARNING, "mkdocs")


def text_of(page):
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def commands(command, words=()):
    below = getattr(command, "commands", {})
    if words and (not below or command.invoke_without_command):
        yield words, command
    for name, sub in below.items():
        yield from commands(sub, (*words, name))


def test_every_command_and_option_is_in_the_reference(site):
    page = text_of(site / "reference" / "commands.html")
    named = {f"epochcast {' '.join(words)}" for words, _ in commands(typer.main.get_command(build_app()))}
    options = {
        name
        for _, command in commands(typer.main.get_command(build_app()))
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in parameter.opts
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
    paths = create_app(Settings(store="")).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert sorted(route for route in routes if route not in page) == []


def test_no_page_asks_another_host(site):
    asking = re.compile(
        r"<(?:script|img|iframe)[^>]+src=.?(?:https?:)?//|<link[^>]+rel=.?stylesheet[^>]+href=.?https?://"
    )
    assert [
        page.name for page in site.rglob("*.html") if asking.search(page.read_text(encoding="utf-8"))
    ] == []


def test_a_page_keeps_no_mark_of_the_tests(site):
    assert [page.name for page in site.rglob("*.html") if "not run: " in text_of(page)] == []


def test_a_new_page_needs_no_place_in_the_navigation():
    recipe = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "omitted_files: info" in recipe
