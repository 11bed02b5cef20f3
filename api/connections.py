"""Connections: a listening socket for each worker, answers sent at once, and a refusal of what is no HTTP."""

import socket
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from api.observability import SECURITY_HEADERS
from api.problems import problem

_ON_ITS_WAY_S = 0.5  # for a request that a client sent before it could know that the service ends


class Connection(HttpToolsProtocol):
    """uvicorn's connection: it holds back no answer, breaks no request, and refuses what is no HTTP as all else is."""

    _ending = False

    def connection_made(self, transport: Any) -> None:
        """Send each piece at once: by default a kept connection waits 40 ms for the client's acknowledgement."""
        super().connection_made(transport)
        if isinstance(transport.get_extra_info("peername"), tuple):  # TCP
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def shutdown(self) -> None:
        """End after the answer in work; answer a request that is on its way to an idle connection, too."""
        self._ending = True
        self.loop.call_later(_ON_ITS_WAY_S, super().shutdown)

    def on_headers_complete(self) -> None:
        """Begin to answer; the last answer says that the connection ends."""
        super().on_headers_complete()
        if self._ending:
            self.cycle.keep_alive = False

    def send_400_response(self, _message: str) -> None:
        """Refuse bytes that are no request, and end the connection."""
        answer = problem(
            400, "this is no HTTP request. Send HTTP/1.1, in plain text.", {"Connection": "close"}
        )
        headers = [*self.server_state.default_headers, *SECURITY_HEADERS, *answer.raw_headers]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[400] + lines + b"\r\n" + bytes(answer.body))
        self.transport.close()


class _OwnSocket:
    """What is sent to a worker in place of a socket, and becomes one of its own there.

    The kernel spreads connections over sockets of one port; of workers that share one, the first awake takes most.
    The parent has none, which would take connections that nobody answers while the workers end.
    """

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port

    def __reduce__(self) -> tuple[Callable[[str, int], socket.socket], tuple[str, int]]:
        return _own_socket, self._address


def _own_socket(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    own = socket.socket(family, kind, protocol)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        own.setsockopt(socket.SOL_SOCKET, option, 1)
    own.bind(address)
    return own


def serve_by_workers(config: Config) -> None:
    """Serve by several processes, each with its own socket, until a signal ends them; on Linux."""
    Multiprocess(config, [_OwnSocket(config.host, config.port)]).run()  # type: ignore[list-item]
