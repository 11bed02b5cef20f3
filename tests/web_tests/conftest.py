"""A real service, a real Chromium, and a page that may ask nobody else and may not complain."""

import json
import shutil
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from services import Service
from waiting import PATIENCE_S

sys.path.insert(0, str(Path(__file__).parent))

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

from page_parts import answered  # noqa: E402 - it needs playwright

_PHONE = 900
_PATIENCE_MS = 1000 * PATIENCE_S
sync_api.expect.set_options(timeout=_PATIENCE_MS)
_REFUSED = (  # said of every refusal, and where a test cuts the service off
    "Failed to load resource: the server responded with a status of",
    "Failed to load resource: net::ERR_FAILED",
)
_FREE = "web/icon.svg"
"""What a page shows that no test uses: of the same service, else the next one gets a process of its own."""

Open = Callable[..., Any]


class Sized(NamedTuple):
    """A window at a width and height, in pixels; those of a desktop if not said."""

    context: Any
    width: int = 1280
    height: int = 900


@pytest.fixture(scope="session")
def service() -> Iterator[str]:
    """The address of a service of its own."""
    with Service() as running:
        yield running.url


@pytest.fixture(scope="session")
def ask(service: str) -> Callable[[str, dict[str, Any]], Any]:
    """Ask the service directly, as the page should."""

    def asked(path: str, question: dict[str, Any]) -> Any:
        body, headers = json.dumps(question).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{service}/v1/{path}", body, headers)  # noqa: S310 - our own
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return json.load(answer)

    return asked


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, or the one that Playwright installed."""
    with sync_api.sync_playwright() as playwright:
        path = shutil.which("chromium") or playwright.chromium.executable_path
        if not shutil.which(path):
            pytest.skip("no Chromium: apt-get install chromium, or playwright install chromium")
        options = {"executable_path": path, "args": ["--no-sandbox"], "timeout": 1000 * PATIENCE_S}
        yield playwright.chromium.launch(**options)


@pytest.fixture(scope="session")
def window(browser: Any) -> Any:
    """What pages of a desktop share, such as kept files."""
    return browser.new_context(locale="en-US", accept_downloads=True)


@pytest.fixture
def open_page(service: str, window: Any) -> Iterator[Open]:
    """Open the page, wait for its answer; at the end, nothing may have complained or asked another server."""
    yield from _pages(service, window)


@pytest.fixture(scope="session")
def sized(browser: Any, window: Any) -> Callable[..., Sized]:
    """A window of a width and height, in pixels, for `open_page`: the desktop's, where no option differs."""
    windows: dict[tuple[Any, ...], Any] = {("en-US",): window}

    def make(width: int, height: int, locale: str = "en-US", **options: Any) -> Sized:
        key = (locale, *options.items())
        if key not in windows:
            windows[key] = browser.new_context(locale=locale, **options)
        return Sized(windows[key], width, height)

    return make


@pytest.fixture
def page(open_page: Open) -> Any:
    """The page as a first visit shows it."""
    return open_page()


@pytest.fixture(scope="module")
def shared_first_visit(service: str, window: Any) -> Iterator[Any]:
    """The same, one for all tests of a module."""
    pages = _pages(service, window)
    yield next(pages)()
    next(pages, None)


@pytest.fixture
def first_visit(shared_first_visit: Any) -> Any:
    """The same for tests that ask nothing new."""
    shared_first_visit.bring_to_front()  # the browser draws no other page
    return shared_first_visit


def _pages(service: str, window: Any) -> Iterator[Open]:
    pages: list[Any] = []
    complaints: list[str] = []
    requested: list[str] = []
    listeners: dict[str, Callable[[Any], None]] = {
        "console": lambda message: complaints.append(f"{message.type}: {message.text}"),
        "pageerror": lambda error: complaints.append(str(error)),
        "request": lambda request: requested.append(request.url),
    }

    def opened(
        fragment: str = "", size: Sized | None = None, wait: str | None = None, unfold: bool = True
    ) -> Any:
        shared, width, height = size or Sized(window)
        page = next((page for page in shared.pages if page.url.endswith(_FREE)), None) or shared.new_page()
        page.bring_to_front()
        page.set_viewport_size({"width": width, "height": height})
        pages.append(page)
        shared.set_default_timeout(_PATIENCE_MS)
        for event, listener in listeners.items():
            page.on(event, listener)
        page.goto(f"{service}/{fragment}")
        if wait is None:
            answered(page)
        else:
            sync_api.expect(page.locator(wait).first).to_be_visible()
        if unfold and width > _PHONE and "folded" in page.get_attribute("#question", "class"):
            page.evaluate("document.getElementById('fold').click()")  # all fields in sight; the focus stays
        return page

    yield opened
    for page in pages:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        page.unroute_all()
        page.emulate_media(media="null")
        page.goto(f"{service}/{_FREE}")
    assert [text for text in complaints if not any(message in text for message in _REFUSED)] == []
    assert [url for url in requested if not url.startswith((service, "data:", f"blob:{service}"))] == []
