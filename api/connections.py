"""Connections: a listening socket for each worker, answers sent at once, and a refusal of what is no HTTP."""

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

from uvicorn.config import STARTUP_FAILURE, Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import Server, ServerState
from uvicorn.supervisors import multiprocess

from api.observability import SECURITY_HEADERS
from api.problems import problem

ON_ITS_WAY_S = 2.0  # for a request of a client that cannot know yet that the service ends


class _State(ServerState):
    """What the connections of a server share: whether it ends, too."""

    ending = False


class Connection(HttpToolsProtocol):
    """uvicorn's connection: it holds back no answer, breaks no request, and refuses what is no HTTP as all else is."""

    server_state: _State

    def connection_made(self, transport: Any) -> None:
        """Send each piece at once: by default a kept connection waits 40 ms for the client's acknowledgement."""
        super().connection_made(transport)
        if isinstance(transport.get_extra_info("peername"), tuple):  # TCP
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.server_state.ending:  # it was taken just before
            self.shutdown()

    def shutdown(self) -> None:
        """End after the answer in work; answer a request that is on its way to an idle connection, too."""
        self.loop.call_later(ON_ITS_WAY_S, super().shutdown)

    def on_headers_complete(self) -> None:
        """Begin to answer; the last answer says that the connection ends."""
        super().on_headers_complete()
        if self.server_state.ending:
            self.cycle.keep_alive = False

    def send_400_response(self, _message: str) -> None:
        """Refuse bytes that are no request, and end the connection."""
        detail = "this is no HTTP request. Send HTTP/1.1, in plain text."
        answer = problem(400, detail, {"Connection": "close"})
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


class _EndingServer(Server):
    """uvicorn's server, which answers connections that wait to be taken when it ends; uvicorn resets them."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.server_state: _State = _State()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take the connections that wait, listen no more, and end once all are answered."""
        self.server_state.ending = True
        loop = asyncio.get_running_loop()
        waiting = [connection for server in self.servers for connection in _waiting(server)]
        taken = [loop.create_task(loop.connect_accepted_socket(self._connection, sock)) for sock in waiting]
        await super().shutdown(sockets)
        await asyncio.gather(*taken)

    def _connection(self) -> asyncio.Protocol:
        return Connection(self.config, self.server_state, self.lifespan.state)


def _waiting(server: asyncio.Server) -> list[socket.socket]:
    """Connections that the kernel has made and nobody has taken."""
    connections = []
    for listening in server.sockets:
        with listening.dup() as own:
            own.setblocking(False)
            try:
                while True:
                    connections.append(own.accept()[0])
            except BlockingIOError:
                continue
    return connections


multiprocess.Server = _EndingServer  # type: ignore[attr-defined] # which uvicorn lets nobody name, for its workers


def serve(config: Config) -> None:
    """Serve by one process, or by several, each with its own socket where the kernel shares a port among them."""
    if config.workers == 1:
        server = _EndingServer(config)
        server.run()
        if not server.started:
            sys.exit(STARTUP_FAILURE)
        return
    own_sockets = sys.platform == "linux"  # which spreads connections over sockets of one port
    sockets: list[Any] = [_OwnSocket(config.host, config.port) if own_sockets else config.bind_socket()]
    multiprocess.Multiprocess(config, sockets).run()
