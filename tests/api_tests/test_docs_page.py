"""`/docs` is complete, served from here, and asks no other server."""

import re

from api.pages import FOLDERS

FOLDER = FOLDERS["docs"]


def test_the_page_shows_our_document_from_small_files_without_telemetry_and_nothing_elsewhere(client):
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    for name in re.findall(r'(?:src|href)="docs/([^"]+)"', page.text):
        assert client.get(f"/docs/{name}").status_code == 200
    assert 'url: "openapi.json"' in client.get("/docs/init.js").text
    for text in (client.get("/docs").text, client.get("/docs/init.js").text):
        assert not re.search(r"https?://|//[a-z]+\.", text)
    assert "validatorUrl: null" in client.get("/docs/init.js").text
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000
    assert b"scarf" not in (FOLDER / "swagger-ui-bundle.js").read_bytes()
    assert (FOLDER / "LICENSE").is_file()
