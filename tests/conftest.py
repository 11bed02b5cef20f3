"""Fixtures that tests of several packages share. PyTorch is optional: its comparisons skip without it."""

import gc
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from torchvision_import import import_torchvision
from waiting import wait_until

# Arrays here are small. Threads of linear algebra that wait for a busy core spin: a fit then takes ten times as long.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")  # read when NumPy and PyTorch are first imported

# At its defaults, the collector of garbage takes a sixth of the tests' time.
gc.set_threshold(200_000, 20, 100)

# The name by which Starlette's client asks.
os.environ.setdefault("EPOCHCAST_HOSTS", '["testserver"]')

# How long an example takes is the machine's affair.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

_FRAMEWORK = re.compile(
    r"^\s*(import|from) (torch|chainer|keras|onnx)|importorskip\(\"(torch|chainer|keras|onnx)", re.M
)
_FRAMEWORK_FIXTURES = {"torch", "torchvision_models", "torchvision_cnn"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of modules that import a framework, and those that a fixture gives one."""
    paths = {item.path for item in items}
    imports = {path: bool(_FRAMEWORK.search(path.read_text("utf-8"))) for path in paths}
    for item in items:
        if imports[item.path] or _FRAMEWORK_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("framework")


def pytest_collection_finish() -> None:
    """What is imported stays: the collector need not walk it again for each test, which took a tenth of the time."""
    gc.freeze()


_NO_AUXILIARY = {"aux_logits": False, "init_weights": False}
_OPTIONS: dict[str, dict[str, Any]] = {"googlenet": _NO_AUXILIARY, "inception_v3": _NO_AUXILIARY}


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
        wait_until(lambda: server.started, alive=thread.is_alive)
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield run
    for server, thread in running:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, or a skip that says that it is missing."""
    return pytest.importorskip("torch", reason="PyTorch is not installed: comparisons with it are skipped")


@pytest.fixture(scope="session")
def chainer() -> ModuleType:
    """Chainer, imported beside a current numpy, or a skip that says that it is missing."""
    from predictor.cnns.chainer_compat import install
    from predictor.errors import BackendUnavailableError

    try:
        return install()
    except BackendUnavailableError as error:
        pytest.skip(f"Chainer is not installed here: comparisons with it are skipped ({error})")


@pytest.fixture(scope="session")
def torchvision_models(torch: ModuleType) -> ModuleType:
    """`torchvision.models`, or a skip that says that it is missing."""
    try:
        return import_torchvision()
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        pytest.skip("torchvision is not installed: it is compared with")


@pytest.fixture(scope="session")
def torchvision_cnn(torch: ModuleType, torchvision_models: ModuleType) -> Callable[[str], Any]:
    """Build a CNN of torchvision by its name: shapes without numbers, auxiliary classifiers off."""
    from torchvision.models.regnet import BlockParams

    widths_of = BlockParams.from_init_params

    def widths_on_cpu(*args: Any, **kwargs: Any) -> Any:
        with torch.device("cpu"):  # RegNet computes its widths with tensors
            return widths_of(*args, **kwargs)

    def build(name: str) -> Any:
        with pytest.MonkeyPatch.context() as patch, torch.device("meta"):
            patch.setattr(BlockParams, "from_init_params", widths_on_cpu)
            for draw in ("erfinv_", "normal_", "uniform_"):  # half the time of building, for no number
                patch.setattr(torch.Tensor, draw, lambda shape, *_, **__: shape)
            return getattr(torchvision_models, name)(**_OPTIONS.get(name, {}))

    return build
