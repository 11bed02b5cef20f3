"""`/`: the page where people ask without typing commands, from files kept here; it works offline and has no build step.

Included by the application; calls nothing of ours. Files are listed and read once, when the first is asked for: no path
of a request ever reaches the disk.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

__all__ = ["POLICY", "router"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may do: run its own scripts, no text of any page as one, and ask this service alone."""

_FOLDER = Path(__file__).parent / "web"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
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
    """The page itself."""
    return _response(request, _files()[_PAGE], {"Content-Security-Policy": POLICY})


@router.get("/web/{name:path}")
async def file(request: Request, name: str) -> Response:
    """One of its files."""
    found = _files().get(name)
    if found is None or name == _PAGE:
        raise HTTPException(404, f"/web has no file {name[:80]!r}.")
    return _response(request, found, {})


def _response(request: Request, found: _File, headers: dict[str, str]) -> Response:
    headers |= {"Cache-Control": found.caching, "ETag": found.etag, "Vary": "Accept-Encoding"}
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(found.content, media_type=found.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(found.packed, media_type=found.media_type, headers=headers)


@cache
def _files() -> dict[str, _File]:
    """Every file that the page may ask for, packed once, by its path below `web`."""
    return {
        path.relative_to(_FOLDER).as_posix(): _read(path)
        for path in sorted(_FOLDER.rglob("*"))
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
