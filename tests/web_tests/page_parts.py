"""Parts of the page as tests read and use them."""

import csv
import io
from pathlib import Path
from typing import Any

__all__ = ["answered", "column", "downloaded", "predict", "text_rows"]


def answered(page: Any) -> None:
    """Wait until the page shows an answer and nothing is on its way."""
    page.wait_for_selector("#results:not(.empty, .busy) #cost-chart svg")
    page.wait_for_selector("#why[aria-busy=false]", state="attached")


def predict(page: Any) -> None:
    """Press the button and wait for the answer."""
    with page.expect_response(lambda response: "/v1/explanations" in response.url):
        page.click("#ask")
    page.wait_for_selector("#results:not(.busy)")
    page.wait_for_selector("#why[aria-busy=false]", state="attached")


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
