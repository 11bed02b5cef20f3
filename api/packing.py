"""gzip for clients that take it; the others pass by at once.

Added by `api.main` around the routes; calls Starlette's own layer, which costs every answer a little, only where it has
something to do.
"""

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["GZIP_LEVEL", "LEAST_PACKED", "Packing"]

GZIP_LEVEL = 4
"""A third of the time of the default level, and a few percent larger."""

LEAST_PACKED = 1000
"""Bytes below which packing is not worth it."""


class Packing:
    """Wraps the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._packing = GZipMiddleware(app, minimum_size=LEAST_PACKED, compresslevel=GZIP_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        takes = scope["type"] == "http" and any(
            name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"]
        )
        await (self._packing if takes else self._app)(scope, receive, send)
