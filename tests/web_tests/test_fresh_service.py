"""A service that has just started beside a busy core refuses no page to a quiet visitor."""

import os
import subprocess
import sys

import pytest
from page_parts import answered
from services import Service
from waiting import wait_until

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

PATHS = ("openapi.json", "docs", "")


@pytest.fixture
def busy_cores():
    burning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)
    ]
    yield
    for process in burning:
        process.kill()
        process.wait()


@pytest.fixture
def fresh(busy_cores):
    service = Service()
    yield service.url
    service.kill()


def test_two_tabs_open_at_once_while_the_api_document_is_made(fresh, browser):
    window = browser.new_context(locale="en-US")
    window.set_default_timeout(60_000)
    refused = []
    window.on("response", lambda answer: answer.status >= 400 and refused.append((answer.status, answer.url)))
    opener = window.new_page()
    opener.evaluate("urls => { for (const url of urls) open(url); }", [f"{fresh}/{path}" for path in PATHS])
    wait_until(lambda: opener.wait_for_timeout(10) or len(window.pages) == 1 + len(PATHS))
    for tab in window.pages[1:]:
        tab.wait_for_url(f"{fresh}/**")
    tabs = {tab.url.removeprefix(f"{fresh}/"): tab for tab in window.pages[1:]}
    answered(tabs[""])
    playwright.expect(tabs["docs"].locator(".opblock").first).to_be_visible()
    window.close()
    assert refused == []
