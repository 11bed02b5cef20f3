"""How much a client may ask at once: size of a body, rate, requests in work, waiting time. Pure ASGI.

What the service cannot take, it refuses at once and cheaply, with the seconds after which to ask again, so that what it
has taken is answered in time. No address can take the whole service: a request counts among all
requests once its body is in, and until then only among those of its address.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress

from cachetools import LRUCache
from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.addresses import address_of, is_allowed_host
from api.bodies import discard_body
from api.observability import Metrics
from api.problems import problem
from api.settings import Settings
from api.untaken import PIECE_BYTES, Untaken

_WATCHING = ("/healthz", "/readyz", "/metrics")
"""Answered while the service is busy; their rate is counted apart from questions."""

_PAGES = ("/web/", "/docs/")
_PAGE_FILE = 0.1  # tokens: a page has some forty files, kept in memory, and several people share an address
_SLOWEST_BYTES_PER_S = 64 * 2**10  # of a body after its first seconds
_MOST_BUCKETS = 20_000


class Rates:
    """Token buckets: `burst` requests at once, `per_s` each second after that; `per_s` 0 allows all.

    The number of buckets is bounded. Those unused for longest go first, and are full by then unless one client has very
    many addresses.
    """

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, float(burst), clock
        self._buckets: LRUCache[Hashable, tuple[float, float]] = LRUCache(_MOST_BUCKETS)

    def wait_s(self, client: Hashable, cost: float = 1.0) -> int:
        """Take a token, or a part of one; 0, or the seconds after which there is one again."""
        if not self._per_s:
            return 0
        now = self._clock()
        tokens, last = self._buckets.get(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - last) * self._per_s)
        allowed = tokens >= cost
        self._buckets[client] = (tokens - cost if allowed else tokens, now)
        return 0 if allowed else max(1, math.ceil((cost - tokens) / self._per_s))


class Limits:
    """Wraps the application; refusals are problem documents: 400, 413, 429, 503, 408 and 504."""

    def __init__(
        self, app: ASGIApp, settings: Settings, metrics: Metrics, untaken: Untaken | None = None
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._untaken = untaken or Untaken()
        self._hosts = frozenset(name.casefold() for name in settings.hosts)
        self._rates = Rates(settings.rate_per_s, settings.rate_burst)
        self._watching = Rates(settings.rate_per_s, settings.rate_burst)
        self._begun: Counter[Hashable] = Counter()  # requests that are not answered, by address and key
        self._held: Counter[str] = Counter()  # bytes of bodies in work, by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address, watching = address_of(scope.get("client")), scope["path"] in _WATCHING
        clients = [address, *(hash(value) for name, value in scope["headers"] if name == b"authorization")]
        refusal = self._wrong_host(scope) or self._too_often(scope, clients, watching)
        self._begun.update(clients)
        try:
            await self._answer(scope, receive, send, refusal, address, watching)
        finally:
            self._begun.subtract(clients)
            for client in clients:
                if not self._begun[client]:
                    del self._begun[client]

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        refusal: ASGIApp | None,
        address: str,
        watching: bool,
    ) -> None:
        if refusal is None and not watching and self._metrics.in_work >= self._settings.max_concurrent:
            refusal = problem(
                503, "too many requests are in work. Ask again in a second.", {"Retry-After": "1"}
            )
        if refusal is None and (refusal := self._too_large(scope)) is not None:
            with suppress(
                TimeoutError
            ):  # a client that sends too much is let finish, so that it reads the refusal
                async with asyncio.timeout(self._settings.body_timeout_s):
                    await discard_body(scope, receive)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif watching:
            await self._app(scope, receive, send)
        else:
            await self._in_time(scope, receive, send, address)

    def _too_often(self, scope: Scope, clients: list[Hashable], watching: bool) -> ASGIApp | None:
        """Count a request against its address and, if it brings one, its key, whose other requests are in work.

        Who waits for an answer before the next question is never too fast: others take turns with it.
        """
        rates = self._watching if watching else self._rates
        cost = _PAGE_FILE if scope["path"].startswith(_PAGES) else 1.0
        wait_s = max((rates.wait_s(each, cost) for each in clients if self._begun[each]), default=0)
        if not wait_s:
            return None
        return problem(
            429,
            f"more than {self._settings.rate_per_s:g} requests per second beside others of yours. Ask again in "
            f"{wait_s} s, or one after another; one question may hold many GPUs and batch sizes.",
            {"Retry-After": str(wait_s)},
        )

    def _too_large(self, scope: Scope) -> ASGIApp | None:
        most = self._settings.max_body_bytes
        for name, value in scope["headers"]:
            if name == b"content-length" and not (value.isdigit() and len(value) < 19 and int(value) <= most):
                return problem(413, f"the body is larger than {most:,} bytes. Send it in several parts.")
        return None

    async def _in_time(self, scope: Scope, receive: Receive, send: Send, address: str) -> None:
        """Answer within the time of a body and, once it is in, that of an answer; it counts as in work from then on."""
        loop, settings = asyncio.get_running_loop(), self._settings
        began, size, complete, awaited, answered, ended = loop.time(), 0, False, False, False, False

        def completed() -> None:
            nonlocal complete
            complete = True
            self._metrics.add_in_work(1)
            deadline.reschedule(loop.time() + settings.timeout_s)

        async def bounded() -> Message:
            nonlocal size, awaited
            awaited = True
            message = await receive()
            awaited = False
            if message["type"] == "http.request" and not complete:
                size += len(message.get("body", b""))
                self._held[address] += len(message.get("body", b""))
                if not message.get("more_body", False):
                    completed()
                else:
                    body_s = settings.body_timeout_s + size / _SLOWEST_BYTES_PER_S
                    deadline.reschedule(began + min(body_s, settings.timeout_s))
                self._check_size(size, address)
            return message

        def forget() -> None:
            """Count the request no longer: what is left is to send its answer."""
            nonlocal ended
            if not ended:
                ended = True
                self._metrics.add_in_work(-complete)
                self._held[address] -= size
                if not self._held[address]:
                    del self._held[address]

        async def noting(message: Message) -> None:
            nonlocal answered
            if not answered:
                answered = True
                deadline.reschedule(None)  # the connection bounds how long it may lie untaken
                forget()
            await self._send(message, send, address)

        try:
            async with asyncio.timeout(settings.body_timeout_s) as deadline:
                if not _has_body(scope):
                    completed()
                await self._app(scope, bounded, noting)
        except TimeoutError:
            if answered:
                raise ClientDisconnect from None  # it does not take its answer
            await self._late(awaited)(scope, receive, send)
        finally:
            forget()

    async def _send(self, message: Message, send: Send, address: str) -> None:
        """Send a large body in pieces, each after the one before was taken."""
        body: bytes = message.get("body", b"")
        if len(body) <= PIECE_BYTES:
            await send(message)
            return
        async with self._untaken.sending(address, len(body)) as taken:
            for begin in range(0, len(body), PIECE_BYTES):
                piece = body[begin : begin + PIECE_BYTES]
                more = message.get("more_body", False) or begin + PIECE_BYTES < len(body)
                await send({**message, "body": piece, "more_body": more})
                taken()

    def _wrong_host(self, scope: Scope) -> ASGIApp | None:
        """Refuse a request without a host, with several, or to a name that is not this service's."""
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not hosts and scope["http_version"] == "1.0":
            return None
        if len(hosts) != 1:
            said = f"the request names {len(hosts)} hosts. Send exactly one Host."
        elif not is_allowed_host(hosts[0], self._hosts):
            said = (
                f"this service is not called {hosts[0][:80]!r}. Ask it by its address; its operator names it in "
                "EPOCHCAST_HOSTS."
            )
        else:
            return None
        return problem(400, said, {"Connection": "close"})

    def _check_size(self, size: int, address: str) -> None:
        """Refuse a body that grows too large, by itself or with others; HTTPException 413, 429 or 503."""
        most, together = self._settings.max_body_bytes, self._settings.max_bytes_in_work
        if size > most:
            raise HTTPException(413, f"the body is larger than {most:,} bytes. Send it in several parts.")
        if self._held[address] > max(together // 2, most):
            raise HTTPException(
                429, "too many large bodies of your address at once. Send them in turn.", {"Retry-After": "5"}
            )
        if self._held.total() > together:
            raise HTTPException(503, "too many large bodies at once. Send it again.", {"Retry-After": "5"})

    def _late(self, awaited: bool) -> ASGIApp:
        if awaited:
            return problem(
                408,
                f"the body did not arrive in time: {self._settings.body_timeout_s:g} s, and a second more per "
                f"{_SLOWEST_BYTES_PER_S:,} bytes, {self._settings.timeout_s:g} s at most. Send it again, or a smaller "
                "one.",
                {"Connection": "close"},
            )
        return problem(
            504,
            f"the answer took longer than {self._settings.timeout_s:g} s. Ask in several parts.",
            {"Retry-After": "5"},
        )


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )
