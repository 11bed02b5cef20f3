"""The pages: `/` for people, `/docs` for the API, and its document, `/openapi.json`. They need nothing from elsewhere.

Files are listed, read and packed once, when the first is asked for: no path of a request ever reaches the disk.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, HTTPException, Request, Response

from api.caching import File, file_response
from api.queues import Queue
from api.words import WORDS

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may do: run its own scripts, no text of any page as one, and ask only this service."""

DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The same for Swagger UI, which writes styles into its elements."""

FOLDERS = {"web": Path(__file__).parent / "web", "docs": Path(__file__).parent / "static" / "swagger"}
"""Where the files of each page lie, by the first part of their path."""

_TYPES: dict[str, str] = WORDS["media_types"]
_PAGE = "index.html"
_CSP = "Content-Security-Policy"
_ASK_EACH_TIME = "no-cache"  # keep it, and ask whether it is still the same: an ETag answers in a few bytes
_KEEP_A_YEAR = "public, max-age=31536000, immutable"  # its name holds its version

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page(request: Request) -> Response:
    """The page for people."""
    return file_response(request, _files("web")[_PAGE], {_CSP: POLICY})


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The page of the API."""
    return file_response(request, _files("docs")[_PAGE], {_CSP: DOCS_POLICY})


class Document:
    """The OpenAPI document as a file, made once: with the answers to its examples it takes more than a second.

    Each example is worked out once, in its turn before the model (`queue`), so that nobody waits for all of them.
    """

    def __init__(
        self, make: Callable[[], dict[str, Any]], examples: Mapping[str, Callable[[], Any]], queue: Queue
    ) -> None:
        self._make, self._examples, self._queue = make, examples, queue
        self._made: asyncio.Task[File] | None = None

    def begin(self) -> asyncio.Task[File]:
        """The task that makes the file, begun at the first call and again after a failure."""
        if self._made is None or (self._made.done() and self._made.exception() is not None):
            self._made = asyncio.create_task(self._in_turns())
        return self._made

    async def _in_turns(self) -> File:
        for example in self._examples.values():
            await self._queue.run(self, example)
        return await asyncio.to_thread(
            lambda: File.kept(orjson.dumps(self._make()), "application/json", _ASK_EACH_TIME)
        )


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """The OpenAPI document."""
    return file_response(request, await asyncio.shield(request.app.state.document.begin()))


@router.get("/web/{name:path}")
async def web_file(request: Request, name: str) -> Response:
    """A file of the page for people."""
    return _file(request, "web", name)


@router.get("/docs/{name}")
async def docs_file(request: Request, name: str) -> Response:
    """A file of the API's page."""
    return _file(request, "docs", name)


def _file(request: Request, folder: str, name: str) -> Response:
    file = _files(folder).get(name)
    if file is None or name == _PAGE:
        raise HTTPException(404, f"/{folder} has no file {name[:80]!r}.")
    return file_response(request, file)


@cache
def _files(folder: str) -> dict[str, File]:
    """Every file that a page may ask for, by its path below the folder."""
    root, files = FOLDERS[folder], {}
    for path in sorted(root.rglob("*")):
        if path.suffix in _TYPES:
            caching = _KEEP_A_YEAR if path.parent.name == "vendor" else _ASK_EACH_TIME
            file = File.kept(path.read_bytes(), _TYPES[path.suffix], caching)
            files[path.relative_to(root).as_posix()] = file
    return files
