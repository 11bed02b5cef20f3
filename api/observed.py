"""Around every request: an id, a line in the log, a count, safe headers, and an answer even if all else fails.

Added by `api.main` as the outermost layer; pure ASGI, because a layer that wraps requests and answers in objects costs
more than a prediction.
"""

import itertools
import logging
import re
import secrets
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.logs import REQUEST_ID
from api.metrics import Metrics
from api.problems import problem

__all__ = ["SECURITY_HEADERS", "Observed"]

SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every answer; docs/security.md says what each is against."""

_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}", re.ASCII)
_ACCESS = logging.getLogger("epochcast.access")
_LOG = logging.getLogger("epochcast")


class Observed:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._begin, self._count = secrets.token_hex(6), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = self._id(scope)
        token = REQUEST_ID.set(request_id)
        common = (*SECURITY_HEADERS, (b"x-request-id", request_id.encode()))
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"] = [*message.get("headers", ()), *common]
                if not any(name == b"content-security-policy" for name, _ in headers):
                    headers.append(_POLICY)
            await send(message)

        self._metrics.in_work += 1
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:  # noqa: BLE001 - the last resort: a line in the log, and an answer
            _LOG.exception("the service failed")
            if not status:
                answer = problem(
                    500, f"something went wrong here. Tell whoever runs this, with {request_id}."
                )
                await answer(scope, receive, send_with_headers)
        finally:
            self._metrics.in_work -= 1
            self._note(scope, status or 499, time.perf_counter() - started)
            REQUEST_ID.reset(token)

    def _id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _ID.fullmatch(value):
                return str(value, "ascii")
        return f"{self._begin}-{next(self._count):x}"

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count the request and, if access is logged, write its line."""
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.add(scope["method"] if route != "other" else "any", route, status, seconds)
        if _ACCESS.isEnabledFor(logging.INFO):
            client = scope.get("client")
            fields: dict[str, Any] = {
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status,
                "ms": round(seconds * 1000, 3),
                "client": client[0] if client else None,
            }
            key = scope.get("state", {}).get("api_key")
            if key:
                fields["key"] = key
            _ACCESS.info("request", extra={"fields": fields})
