"""Which GPUs are measured, and what a process is shown of them."""

import os
import sys
from types import SimpleNamespace

import pytest

from predictor.errors import BackendUnavailableError, SchemaError
from proxy_cnns.device import visible_gpus
from proxy_cnns.runs import _show_only


@pytest.fixture
def gpus(monkeypatch):
    """Give this machine GPUs of these names."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def have(*names):
        library = SimpleNamespace(
            NVMLError=OSError,
            nvmlInit=lambda: None,
            nvmlDeviceGetCount=lambda: len(names),
            nvmlDeviceGetHandleByIndex=lambda number: number,
            nvmlDeviceGetName=lambda handle: names[handle],
        )
        monkeypatch.setitem(sys.modules, "pynvml", library)

    return have


def test_all_is_every_gpu(gpus):
    gpus("NVIDIA H200", "NVIDIA H200")
    assert visible_gpus("all") == ("cuda:0", "cuda:1")


def test_numbers_choose_some(gpus):
    gpus(*["NVIDIA H200"] * 4)
    assert visible_gpus("0, 3") == ("cuda:0", "cuda:3")


def test_only_what_is_visible_counts(gpus, monkeypatch):
    gpus(*["NVIDIA H200"] * 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert visible_gpus("all") == ("cuda:0", "cuda:1")


def test_gpus_of_different_kinds_are_not_one_table(gpus):
    gpus("NVIDIA H200", "Tesla T4")
    with pytest.raises(SchemaError, match="these GPUs differ: NVIDIA H200, Tesla T4"):
        visible_gpus("all")


def test_a_gpu_that_is_not_there_is_named(gpus):
    gpus("NVIDIA H200")
    with pytest.raises(BackendUnavailableError, match="there is no GPU 3: this machine has 1"):
        visible_gpus("0,3")


@pytest.mark.parametrize("wanted", ["", "first", "0,0", "-1"])
def test_what_names_no_gpus_is_refused(gpus, wanted):
    gpus("NVIDIA H200")
    with pytest.raises(SchemaError, match="neither `all` nor different numbers"):
        visible_gpus(wanted)


def test_all_of_none_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(BackendUnavailableError, match="profile doctor"):
        visible_gpus("all")


@pytest.mark.parametrize(("visible", "shown"), [("", "1"), ("4,7", "7"), ("GPU-a,GPU-b", "GPU-b")])
def test_a_process_is_shown_its_gpu_alone(monkeypatch, visible, shown):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _show_only("cuda:1") == "cuda:0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == shown
