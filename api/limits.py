"""How much anybody may ask at once: size of a body, rate, requests in work, waiting time. Pure ASGI.

Added by `api.main` inside `api.observed`; calls rates and problems. What the service cannot take, it refuses at once
and cheaply, with the seconds after which to come back, so that what it has taken is answered in time.
"""

import asyncio
import time
from contextlib import suppress

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.bodies import discard_body
from api.metrics import Metrics
from api.problems import problem
from api.rates import Rates, address_of
from api.settings import Settings

__all__ = ["Limits", "watch_lag"]

_ALWAYS = ("/healthz", "/readyz", "/metrics")
_LOOK_S = 0.1


async def watch_lag(metrics: Metrics) -> None:
    """Note how late the event loop runs, again and again, until cancelled: how long requests wait for their turn."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(_LOOK_S)
        metrics.lag_s = max(0.0, time.perf_counter() - began - _LOOK_S)


class Limits:
    """Wraps the application; refusals are problem documents: 413, 429, 503, 408 and 504."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._rates = Rates(settings.rate_per_s, settings.rate_burst)
        self._held = 0  # bytes of bodies of requests in work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one request."""
        if scope["type"] != "http" or scope["path"] in _ALWAYS:
            await self._app(scope, receive, send)
            return
        refusal = self._busy() or self._too_often(scope)
        if refusal is None and (refusal := self._too_large(scope)) is not None:
            await self._discard(scope, receive)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._in_time(scope, receive, send)

    def _busy(self) -> ASGIApp | None:
        crowded = self._metrics.in_work > self._settings.max_concurrent
        if not crowded and self._metrics.lag_s <= self._settings.max_lag_s:
            return None
        return problem(503, "too many requests are in work. Ask again in a second.", {"Retry-After": "1"})

    def _too_often(self, scope: Scope) -> ASGIApp | None:
        """Count the request against its address and, if it brings one, its key: a key is no way around."""
        wait_s = self._rates.wait_s(address_of(scope.get("client")))
        for name, value in scope["headers"]:
            if name == b"authorization":
                wait_s = max(wait_s, self._rates.wait_s(hash(value)))
        if not wait_s:
            return None
        return problem(
            429,
            f"more than {self._settings.rate_per_s:g} requests per second. Ask again in {wait_s} s; a question may "
            "hold many GPUs and batch sizes.",
            {"Retry-After": str(wait_s)},
        )

    def _too_large(self, scope: Scope) -> ASGIApp | None:
        most = self._settings.max_body_bytes
        for name, value in scope["headers"]:
            if name == b"content-length" and not (value.isdigit() and len(value) < 19 and int(value) <= most):
                return problem(413, f"the body is larger than {most:,} bytes. Send it in several parts.")
        return None

    async def _discard(self, scope: Scope, receive: Receive) -> None:
        """Let whoever sends too much finish, within the time of a request, so that the refusal is read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.timeout_s):
                await discard_body(scope, receive)

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        most, size = self._settings.max_body_bytes, 0
        arriving = begun = False

        async def bounded() -> Message:
            nonlocal size, arriving
            arriving = True
            message = await receive()
            arriving = False
            more = len(message.get("body", b""))
            size += more
            self._held += more
            if size > most:
                raise HTTPException(413, f"the body is larger than {most:,} bytes. Send it in several parts.")
            if self._held > self._settings.max_bytes_in_work:
                raise HTTPException(
                    503, "too many large bodies at once. Send it again.", {"Retry-After": "5"}
                )
            return message

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await self._app(scope, bounded, noting)
        except TimeoutError:
            if begun:
                raise
            await self._late(arriving)(scope, receive, send)
        finally:
            self._held -= size

    def _late(self, arriving: bool) -> ASGIApp:
        seconds = f"{self._settings.timeout_s:g} s"
        if arriving:
            return problem(408, f"the body did not arrive within {seconds}. Send it again.")
        return problem(
            504, f"the answer took longer than {seconds}. Ask in several parts.", {"Retry-After": "5"}
        )
