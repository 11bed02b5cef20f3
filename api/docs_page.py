"""`/docs`: the API's own page, from files kept here, so that it works offline and tells nobody.

Included by the application; calls nothing of ours. Only the files named here are served.
"""

from functools import cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Response

__all__ = ["router"]

_FOLDER = Path(__file__).parent / "static" / "swagger"
_FILES = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "init.js": "text/javascript; charset=utf-8",
    "favicon.png": "image/png",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

_KEEP = {"Cache-Control": "public, max-age=86400", "Vary": "Accept-Encoding"}

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def page() -> Response:
    """The page itself."""
    return Response(_read("index.html"), media_type="text/html", headers={"Content-Security-Policy": _POLICY})


@router.get("/docs/{name}")
async def file(name: str) -> Response:
    """One of its files."""
    if name not in _FILES:
        raise HTTPException(404, f"/docs has no file of this name. It has: {', '.join(_FILES)}.")
    return Response(_read(name), media_type=_FILES[name], headers=_KEEP)


@cache
def _read(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()
