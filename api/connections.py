"""Connections: heads of bounded size and time, and a bounded number of them, so that nobody can take all.

uvicorn's own protocol waits for a head as long as it takes, however long it grows, on any number of connections. A
reverse proxy bounds these better (docs/security.md); this is for a service without one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import cache
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from api.addresses import address_of
from api.settings import Settings

MAX_HEAD_BYTES = 32 * 2**10
"""Of a request's line and headers, and of the headers after a body: browsers and proxies send some kilobytes."""

_OTHER_FILES = 100  # of the database, of processes that read files, of logs


class _Open:
    """All open connections of a process: how many of each address, and which wait for a request.

    An address may have `Settings.max_per_address`, unless it is a proxy's. Above `Settings.max_connections` the one
    that has waited longest for a request is closed.
    """

    def __init__(self, settings: Settings, proxies: frozenset[str]) -> None:
        self.settings, self.proxies = settings, proxies
        self.most = min(settings.max_connections, _most_files() - _OTHER_FILES)
        self.of_address: Counter[str] = Counter()
        self.idle: dict[BoundedProtocol, None] = {}

    def add(self, connection: BoundedProtocol) -> None:
        """Count a connection; close it, or another, if there are too many."""
        self.of_address[connection.address] += 1
        self.idle[connection] = None
        if not connection.is_proxy and self.of_address[connection.address] > self.settings.max_per_address:
            connection.leave()
        elif self.of_address.total() > self.most:
            next(iter(self.idle)).leave()

    def remove(self, connection: BoundedProtocol) -> None:
        """Forget a connection that has ended."""
        self.idle.pop(connection, None)
        self.of_address[connection.address] -= 1
        if not self.of_address[connection.address]:
            del self.of_address[connection.address]


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds, which all connections of a server share."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._open = _open_of(config)
        self.address, self.is_proxy = "", False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._take_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and wait for its head."""
        super().connection_made(transport)
        self.address = address_of(self.client)
        self.is_proxy = self.client is not None and self.client[0] in self._open.proxies
        self._await_head()
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._head_is_in()
        self._taken()
        self._open.remove(self)
        super().connection_lost(exc)

    def leave(self) -> None:
        """Close at once, whatever was sent or is left to send."""
        self._open.idle.pop(self, None)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on, unless a head or what follows a body grows too large."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes <= MAX_HEAD_BYTES:
            return
        if self._head_timer is None:  # of trailers, or of extensions of a chunk
            self.leave()
        else:
            self._head_is_in()
            self.send_400_response("The head of the request is larger than 32 KiB.")

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header of the head; those that follow a body in chunks are dropped: nobody checked them."""
        if self._head_timer is not None:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, which is bounded elsewhere."""
        self._head_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Answer, if the head is small; ValueError, which the parser answers with 400."""
        self._head_is_in()
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")
        self._open.idle.pop(self, None)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._open.idle[self] = None

    def pause_writing(self) -> None:
        """Close the connection unless its client takes what is sent in time."""
        super().pause_writing()
        self._take_timer = self.loop.call_later(self._open.settings.take_timeout_s, self.leave)

    def resume_writing(self) -> None:
        """The client has taken what was sent."""
        super().resume_writing()
        self._taken()

    def _taken(self) -> None:
        if self._take_timer is not None:
            self._take_timer.cancel()

    def _head_is_in(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _await_head(self) -> None:
        self._head_is_in()
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self._open.settings.head_timeout_s, self.leave)


@cache
def _open_of(config: Config) -> _Open:
    """The connections of a server in this process."""
    trusted = config.forwarded_allow_ips
    addresses = trusted.split(",") if isinstance(trusted, str) else trusted
    return _Open(Settings(), frozenset(address.strip() for address in addresses))


def _most_files() -> int:
    """Files that this process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return 2048
    return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**20)
