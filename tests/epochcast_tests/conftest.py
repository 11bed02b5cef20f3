"""The command, run in this process, and services for it to ask."""

import sys
from collections.abc import Callable
from pathlib import Path
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


@pytest.fixture
def epochcast_command(epochcast: Callable[..., Run]) -> Callable[..., Run]:
    """As `epochcast`, for tests that import the package, too."""
    return epochcast


@pytest.fixture
def fake_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake framework of tests/proxy_cnns_tests in the place of PyTorch."""
    from proxy_cnns import backends

    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "proxy_cnns_tests"))
    monkeypatch.setitem(backends.BACKENDS, "pytorch", "fake_backend:FakeBackend")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service with a store of its own."""
    from api.main import create_app
    from api.settings import Settings

    folder = tmp_path_factory.mktemp("service")
    return create_app(Settings(store=f"sqlite:///{folder}/store.db"))


@pytest.fixture(scope="module")
def url(serve: Callable[[Any], str], app: Any) -> str:
    """Its address."""
    return serve(app)
