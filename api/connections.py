"""Connections: heads of bounded size and time, and a bounded number of them, so that nobody can take all.

uvicorn's own protocol waits for a head as long as it takes, however long it grows, on any number of connections. A
reverse proxy bounds these better (docs/security.md); this is for a service that stands alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from functools import cache
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from api.limits import address_of
from api.settings import Settings

__all__ = ["BoundedProtocol", "Crowd"]

MAX_HEAD_BYTES = 32 * 2**10
"""Of a request's line and headers: browsers and proxies send some kilobytes."""

FIRST_BYTE_S = 20.0
"""From a connection to its first byte: browsers open some before they need them."""

MAX_UNSENT_BYTES = 64 * 2**20
"""Of answers that the clients of one address have not taken yet; more closes the connection."""

_OTHER_FILES = 100  # of the database, of processes that read files, of logs
_SLOWEST_BYTES_PER_S = 16 * 2**10  # at which an answer must be taken

_ONE_HOST = b"exactly one Host is needed"


class Crowd:
    """All open connections of a process: how many, whose, and which have waited longest without a request.

    Parameters
    ----------
    most : int
        Above it, the connection that has waited longest without a request is closed, or the new one if all work.
    most_each : int
        Of one address; addresses in `trusted` (of proxies, whose connections are many clients') have no bound.
    head_timeout_s : float
        From a head's first byte to its last.
    take_timeout_s : float
        Within which a client must take a part of its answer.
    """

    def __init__(
        self, most: int, most_each: int, trusted: frozenset[str], head_timeout_s: float, take_timeout_s: float
    ) -> None:
        self._most, self._most_each, self._trusted = most, most_each, trusted
        self.head_timeout_s, self.take_timeout_s = head_timeout_s, take_timeout_s
        self._of: Counter[str] = Counter()
        self._unsent: dict[BoundedProtocol, None] = {}
        self._idle: OrderedDict[BoundedProtocol, None] = OrderedDict()

    def admit(self, connection: BoundedProtocol) -> bool:
        """Count a new connection; False if it must be closed."""
        host = connection.client[0] if connection.client else ""
        self._of[connection.address] += 1
        if host not in self._trusted and self._of[connection.address] > self._most_each:
            return False
        if self._of.total() > self._most:
            if not self._idle:
                return False
            next(iter(self._idle)).leave()
        self._idle[connection] = None
        return True

    def works(self, connection: BoundedProtocol) -> None:
        """A request's head is in: the connection is not idle."""
        self._idle.pop(connection, None)

    def waits(self, connection: BoundedProtocol) -> None:
        """An answer is out: the connection is idle."""
        self._idle[connection] = None

    def owes(self, connection: BoundedProtocol) -> bool:
        """A client takes its answer slowly; False if its address leaves too much untaken."""
        self._unsent[connection] = None
        host = connection.client[0] if connection.client else ""
        of_address = [each for each in self._unsent if each.address == connection.address]
        return host in self._trusted or sum(each.unsent for each in of_address) <= MAX_UNSENT_BYTES

    def owes_nothing(self, connection: BoundedProtocol) -> None:
        """The answer is taken."""
        self._unsent.pop(connection, None)

    def forget(self, connection: BoundedProtocol) -> None:
        """The connection is closed."""
        self.owes_nothing(connection)
        self._idle.pop(connection, None)
        self._of[connection.address] -= 1
        if not self._of[connection.address]:
            del self._of[connection.address]


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds; all connections of a server share its `Crowd`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.address = ""
        self.crowd = _crowd_of(config)
        self._admitted = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._take_timer: asyncio.TimerHandle | None = None

    @property
    def unsent(self) -> int:
        """Bytes of an answer that the client has not taken."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or close it."""
        super().connection_made(transport)
        self.address = address_of(self.client)
        self._admitted = self.crowd.admit(self)
        if self._admitted:
            self._head_timer = self.loop.call_later(FIRST_BYTE_S, self.leave)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._head_is_in()
        self._taken()
        self.crowd.forget(self)
        super().connection_lost(exc)

    def leave(self) -> None:
        """Close at once, whatever was sent or is left to send."""
        self.crowd.works(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on, unless a head grows too large."""
        if not self._admitted:
            return
        if self._head_timer is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", b"the head is larger than 32 KiB")

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._head_is_in()
        self._head_timer = self.loop.call_later(self.crowd.head_timeout_s, self.leave)

    def on_headers_complete(self) -> None:
        """Answer, if the head is small and names one host."""
        if self.transport.is_closing():
            return
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        hosts = sum(name == b"host" for name, _ in self.headers)
        if size > MAX_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", b"the head is larger than 32 KiB")
        elif hosts > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            self._refuse(b"400 Bad Request", _ONE_HOST)
        else:
            self._head_is_in()
            self.crowd.works(self)
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, unless its head was refused."""
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a body, unless its head was refused."""
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle is not None and self.cycle.response_complete:
            self.crowd.waits(self)

    def pause_writing(self) -> None:
        """Watch whether the client takes its answer."""
        super().pause_writing()
        if self.crowd.owes(self):
            self._take_timer = self.loop.call_later(self.crowd.take_timeout_s, self._look, self.unsent)
        else:
            self.leave()

    def resume_writing(self) -> None:
        """The client has taken its answer."""
        super().resume_writing()
        self._taken()

    def _look(self, before: int) -> None:
        """Close a connection whose client takes too little of its answer."""
        if before - self.unsent < self.crowd.take_timeout_s * _SLOWEST_BYTES_PER_S:
            self.leave()
        else:
            self._take_timer = self.loop.call_later(self.crowd.take_timeout_s, self._look, self.unsent)

    def _taken(self) -> None:
        self.crowd.owes_nothing(self)
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None

    def _head_is_in(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: bytes, why: bytes) -> None:
        if self.transport.is_closing():
            return
        self._head_is_in()
        self.transport.write(
            b"HTTP/1.1 " + status + b"\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: "
            + str(len(why)).encode() + b"\r\nconnection: close\r\n\r\n" + why
        )  # fmt: skip
        self.transport.close()


@cache
def _crowd_of(config: Config) -> Crowd:
    """The connections of a server in this process."""
    settings = Settings()
    trusted = config.forwarded_allow_ips
    addresses = trusted.split(",") if isinstance(trusted, str) else trusted
    most = min(settings.max_connections, _files() - _OTHER_FILES)
    proxies = frozenset(each.strip() for each in addresses)
    return Crowd(most, settings.max_per_address, proxies, settings.head_timeout_s, settings.body_timeout_s)


def _files() -> int:
    """Files that this process may have open, raised to what the system lets it."""
    try:
        import resource
    except ImportError:  # Windows
        return 2048
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
