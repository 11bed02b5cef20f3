"""The command, run in this process, and services for it to ask."""

import sys
from collections.abc import Callable
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


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service with a store of its own."""
    from api.main import create_app
    from api.settings import Settings

    folder = tmp_path_factory.mktemp("service")
    return create_app(Settings(store=f"sqlite:///{folder}/store.db", rate_per_s=0))


@pytest.fixture(scope="module")
def url(serve: Callable[[Any], str], app: Any) -> str:
    """Its address."""
    return serve(app)


@pytest.fixture(scope="module")
def client(url: str) -> Any:
    """A client of it."""
    from epochcast.client import Client

    return Client(url)


@pytest.fixture(scope="module")
def own_cnn() -> Any:
    """A CNN of nobody's zoo, whose layers are numbered oddly and which warns."""
    from predictor.cnns.layer_table import Layer, LayerTable, TableWarning

    layers = (
        Layer(3, "c", "conv2d", None, (-1,), 3, 32, 32, 16, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 448),
        Layer(7, "r", "activation", "relu", (3,), 16, 32, 32, 16, 32, 32),
        Layer(9, "p", "avg_pool", None, (7,), 16, 32, 32, 16, 1, 1, 32, 32, 32, 32, 0, 0),
        Layer(12, "l", "linear", None, (9,), 16, 1, 1, 10, 1, 1, parameters=170),
    )
    return LayerTable("mine", 32, layers, source="torch", warnings=(TableWarning("cnn", "inference export"),))
