"""The command, run in this process, and services for it to ask."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from epochcast.command import main


class Run(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def epochcast(monkeypatch, capsys) -> Callable[..., Run]:
    """Run `epochcast` with these arguments, wide enough that nothing is left out."""
    monkeypatch.setenv("COLUMNS", "400")

    def run(*arguments: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["epochcast", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[Any], str]]:
    """Run an application in a thread, on a socket; gives its address. It ends with the module's tests."""
    import uvicorn

    running: list[tuple[Any, threading.Thread]] = []

    def run(app: Any) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield run
    for server, thread in running:
        server.should_exit = True
        thread.join()
