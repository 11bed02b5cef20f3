"""Services as tests run them: in a process of their own, on a port that nobody else can take meanwhile."""

import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Self

from waiting import PATIENCE_S

__all__ = ["ROOT", "Service", "free_port", "listens"]

ROOT = Path(__file__).parents[1]
_RUN = (
    "import sys, uvicorn; from api.connections import serve; from epochcast.commands.serve import server_options; "
    "serve(uvicorn.Config('api.main:create_app', fd=int(sys.argv[1]), log_level='warning', **server_options()))"
)
_COMMAND = (sys.executable, "-c", _RUN)


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def listens(port: int) -> bool:
    """Whether anything answers at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Service:
    """A service in a process of its own, with these settings.

    The socket listens before the process starts, which inherits it: the port is ours from the first moment on, and a
    request waits in the socket's queue until the service takes it.
    """

    def __init__(self, store_url: str = "", **environment: str) -> None:
        ours = {"EPOCHCAST_STORE": store_url, "EPOCHCAST_LOG_LEVEL": "error"}
        self._environment = {**os.environ, **ours, **environment}
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        """Its address, the same after another start."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Run it and return once it answers; AssertionError with its output if it ends instead."""
        with socket.create_server(("127.0.0.1", self._port)) as listening, tempfile.TemporaryFile() as output:
            self._port = listening.getsockname()[1]
            descriptor = listening.fileno()
            self.process = subprocess.Popen(
                [*_COMMAND, str(descriptor)], cwd=ROOT, env=self._environment, pass_fds=[descriptor],
                stdout=output, stderr=output,
            )  # fmt: skip
            listening.close()  # ours: if the process ends, a request must fail rather than wait
            try:
                urllib.request.urlopen(f"{self.url}/healthz", timeout=PATIENCE_S).close()  # noqa: S310 - our own
            except OSError as error:
                self.kill()
                output.seek(0)
                raise AssertionError(f"the service does not start: {output.read().decode()}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self.process.kill()
        self.process.wait()
