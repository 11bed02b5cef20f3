"""`/docs` is complete, served from here, and asks no other server."""

import hashlib
import re

import pytest

from api.pages import FOLDERS

FOLDER = FOLDERS["docs"]


def test_the_page_shows_our_document(client):
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    for name in re.findall(r'(?:src|href)="docs/([^"]+)"', page.text):
        assert client.get(f"/docs/{name}").status_code == 200
    assert 'url: "openapi.json"' in client.get("/docs/init.js").text


def test_nothing_of_the_page_comes_from_elsewhere(client):
    for text in (client.get("/docs").text, client.get("/docs/init.js").text):
        assert not re.search(r"https?://|//[a-z]+\.", text)
    assert "validatorUrl: null" in client.get("/docs/init.js").text


def test_other_files_are_not_served(client):
    for name in ("README.md", "index.html", "../main.py", "..%2f..%2fmain.py", "x"):
        assert client.get(f"/docs/{name}").status_code == 404


@pytest.mark.parametrize("name", ["swagger-ui-bundle.js", "swagger-ui.css"])
def test_vendored_files_are_those_that_the_readme_names(name):
    readme = (FOLDER / "README.md").read_text()
    assert f"| `{name}` | `{hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()}` |" in readme


def test_vendored_files_stay_small_and_carry_no_telemetry():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000
    assert b"scarf" not in (FOLDER / "swagger-ui-bundle.js").read_bytes()
    assert (FOLDER / "LICENSE").is_file()
