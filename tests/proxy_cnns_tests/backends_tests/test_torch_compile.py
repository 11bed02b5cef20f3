"""A CNN under torch.compile: measured, its time of compiling kept, everything freed, failures without a row."""

import gc
import shutil
import weakref
from types import ModuleType
from typing import Any

import pytest

from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import proxy_table
from predictor.errors import ProfilingError
from proxy_cnns.backends import load_backend
from proxy_cnns.backends.torch import training
from proxy_cnns.configuration import Backend, Configuration, Subject

COMPILED = Mode(capture="compile")


@pytest.fixture(scope="module")
def backend(torch: ModuleType) -> Backend:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch.compile needs a C++ compiler on a CPU, and neither g++ nor clang++ is here")
    return load_backend("pytorch", "cpu")


def small(mode: Mode = COMPILED) -> Configuration:
    """A convolution, its norm and a dense layer: each operator more is seconds of a C++ compiler."""
    table = proxy_table("2_8_8")
    return Configuration(Subject("target", "2_8_8", table.image_size, table=table), mode, 2)


def test_a_compiled_cnn_trains_in_one_graph_says_its_time_of_compiling_and_leaves_nothing_behind(
    backend, torch, monkeypatch
):
    from torch._dynamo.utils import counters

    models: list[Any] = []
    network = training.network
    monkeypatch.setattr(
        training,
        "network",
        lambda *arguments: models.append(weakref.ref(model := network(*arguments))) or model,
    )
    counters.clear()
    prepared = backend.prepare(small())
    prepared.run(2)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert (prepared.compile_s() or 0) > 0.5
    prepared.close()
    gc.collect()
    assert models[0]() is None


def test_an_eager_cnn_has_no_time_of_compiling(backend):
    assert backend.prepare(small(Mode())).compile_s() is None


def test_a_failure_to_compile_names_the_configuration(backend, monkeypatch):
    def broken(_model: Any) -> Any:
        def fails(_images: Any) -> Any:
            raise RuntimeError("no C compiler found")

        return fails

    monkeypatch.setattr(training, "compiled", broken)
    with pytest.raises(ProfilingError, match="2_8_8 at batch size 2 in fp32, compiled: RuntimeError: no C"):
        backend.prepare(small())
