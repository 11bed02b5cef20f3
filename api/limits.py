"""How much a client may ask at once: size of a body, rate, requests in work, waiting time. Pure ASGI.

What the service cannot take, it refuses at once and cheaply, with the seconds after which to ask again, so that what it
has taken is answered in time.
"""

import asyncio
import ipaddress
import math
import time
from collections.abc import Callable, Hashable
from contextlib import suppress

from cachetools import LRUCache
from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.bodies import discard_body
from api.observability import Metrics
from api.problems import problem
from api.settings import Settings

__all__ = ["Limits", "Rates", "address_of", "watch_lag"]

_ALWAYS = ("/healthz", "/readyz", "/metrics")
_WATCH_EVERY_S = 0.1
_MOST_BUCKETS = 20_000


async def watch_lag(metrics: Metrics) -> None:
    """Measure how late the event loop runs, that is how long requests wait for it, until cancelled."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(_WATCH_EVERY_S)
        metrics.lag_s = max(0.0, time.perf_counter() - began - _WATCH_EVERY_S)


class Rates:
    """Token buckets: `burst` requests at once, `per_s` each second after that; `per_s` 0 allows all.

    The number of buckets is bounded. Those unused for longest go first, and are full by then unless one client has very
    many addresses.
    """

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, float(burst), clock
        self._buckets: LRUCache[Hashable, tuple[float, float]] = LRUCache(_MOST_BUCKETS)

    def wait_s(self, client: Hashable) -> int:
        """Take a token; 0, or the seconds after which there is one again."""
        if not self._per_s:
            return 0
        now = self._clock()
        tokens, last = self._buckets.get(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - last) * self._per_s)
        allowed = tokens >= 1.0
        self._buckets[client] = (tokens - 1.0 if allowed else tokens, now)
        return 0 if allowed else max(1, math.ceil((1.0 - tokens) / self._per_s))


def address_of(client: tuple[str, int] | None) -> str:
    """Address that a rate counts for: all of IPv4, the network (/64) of IPv6, which one machine has whole."""
    host = client[0] if client else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


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
            f"more than {self._settings.rate_per_s:g} requests per second. Ask again in {wait_s} s; one question may "
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
        """Let a client that sends too much finish, within the time of a request, so that it reads the refusal."""
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
