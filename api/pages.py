"""The pages: `/` for people, `/docs` for the API. Both are files kept here and need nothing from elsewhere.

Files are listed, read and packed once, when the first is asked for: no path of a request ever reaches the disk.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

__all__ = ["DOCS_POLICY", "FOLDERS", "POLICY", "router"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may do: run its own scripts, no text of any page as one, and ask this service alone."""

DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The same for Swagger UI, which writes styles into its elements."""

FOLDERS = {"web": Path(__file__).parent / "web", "docs": Path(__file__).parent / "static" / "swagger"}
"""Where the files of each page lie, by the first part of their path."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
_PAGE = "index.html"
_ASK_EACH_TIME = "no-cache"  # keep it, and ask whether it is still the same: an ETag answers in a few bytes
_KEEP_A_YEAR = "public, max-age=31536000, immutable"  # its name holds its version

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    packed: bytes
    media_type: str
    etag: str
    caching: str


@router.get("/")
async def page(request: Request) -> Response:
    """The page for people."""
    return _response(request, _files("web")[_PAGE], POLICY)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The page of the API."""
    return _response(request, _files("docs")[_PAGE], DOCS_POLICY)


@router.get("/web/{name:path}")
async def web_file(request: Request, name: str) -> Response:
    """A file of the page for people."""
    return _file(request, "web", name)


@router.get("/docs/{name}")
async def docs_file(request: Request, name: str) -> Response:
    """A file of the API's page."""
    return _file(request, "docs", name)


def _file(request: Request, folder: str, name: str) -> Response:
    found = _files(folder).get(name)
    if found is None or name == _PAGE:
        raise HTTPException(404, f"/{folder} has no file {name[:80]!r}.")
    return _response(request, found)


def _response(request: Request, found: _File, policy: str = "") -> Response:
    headers = {"Cache-Control": found.caching, "ETag": found.etag, "Vary": "Accept-Encoding"}
    headers |= {"Content-Security-Policy": policy} if policy else {}
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(found.content, media_type=found.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(found.packed, media_type=found.media_type, headers=headers)


@cache
def _files(folder: str) -> dict[str, _File]:
    """Every file that a page may ask for, by its path below the folder."""
    root = FOLDERS[folder]
    return {
        path.relative_to(root).as_posix(): _read(path)
        for path in sorted(root.rglob("*"))
        if path.suffix in _TYPES
    }


def _read(path: Path) -> _File:
    content = path.read_bytes()
    return _File(
        content=content,
        packed=gzip.compress(content, mtime=0),
        media_type=_TYPES[path.suffix],
        etag=f'W/"{hashlib.sha256(content).hexdigest()[:16]}"',
        caching=_KEEP_A_YEAR if path.parent.name == "vendor" else _ASK_EACH_TIME,
    )
