"""Answers that change rarely: clients keep them for a minute, and then ask whether they are the same."""

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

__all__ = ["KeptRoute"]

_CACHING = "public, max-age=60"


class KeptRoute(APIRoute):
    """A route whose answers have an ETag; whoever has the answer already is told so in a few bytes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, with an ETag of what it answers."""
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            answer = await handler(request)
            if answer.status_code != 200 or request.method != "GET":
                return answer
            etag = f'W/"{hashlib.sha256(bytes(answer.body)).hexdigest()[:16]}"'
            headers = {"ETag": etag, "Cache-Control": _CACHING}
            if etag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers=headers)
            answer.headers.update(headers)
            return answer

        return handled
