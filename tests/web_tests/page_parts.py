"""Parts of the page as tests read and use them.

Tests wait with Playwright's `expect`, which looks again until it holds. `wait_for_function` cannot be used with a text:
the page's Content-Security-Policy forbids evaluating it from the second look on.
"""

import csv
import io
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

__all__ = ["answered", "choose", "column", "downloaded", "follow", "predict", "text_rows"]


def answered(page: Any) -> None:
    """Wait until the page shows an answer, its charts are drawn, and nothing is on its way."""
    expect(page.locator("#results")).not_to_have_class(re.compile(r"\b(empty|busy)\b"))
    expect(page.locator("#why")).to_have_attribute("aria-busy", "false")
    for chart in ("time", "cost", "why"):
        expect(page.locator(f"#{chart}-chart > *")).to_have_count(1)


def predict(page: Any) -> None:
    """Press the button and wait for the answer."""
    with page.expect_response("**/v1/explanations"):
        page.click("#ask")
    answered(page)


def choose(page: Any, file: Any) -> None:
    """Choose a file as the CNN and wait until the page says what it is, or what is wrong with it."""
    page.check("[name=source][value=file]")
    page.set_input_files("#file", file)
    expect(page.locator("#file-about:not(:empty), #file-error:not(:empty)")).to_have_count(1)


def follow(page: Any, fragment: str) -> None:
    """Bring another question by the address; on return, what was said of the last one is gone."""
    script = """fragment => new Promise(done => {
        addEventListener("hashchange", () => setTimeout(done), { once: true });
        location.hash = fragment;
    })"""
    page.evaluate(script, fragment)


def text_rows(page: Any, table: str) -> list[list[str]]:
    """What a table shows, cell by cell; reasons folded away are left out."""
    script = """rows => rows.map(row => [...row.cells].map(cell =>
        [...cell.childNodes].map(node => (node.querySelector?.("summary") ?? node).textContent).join(" ").trim()))"""
    return page.eval_on_selector_all(f"{table} tbody tr", script)


def column(page: Any, table: str, key: str) -> list[str]:
    """What a column of a table shows."""
    keys = page.eval_on_selector_all(f"{table} thead th", "heads => heads.map(head => head.dataset.key)")
    return [row[keys.index(key)] for row in text_rows(page, table)]


def downloaded(page: Any, button: str) -> list[dict[str, str]]:
    """The rows of a CSV that a button gives."""
    with page.expect_download() as waiting:
        page.click(button)
    text = Path(waiting.value.path()).read_bytes().decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))
