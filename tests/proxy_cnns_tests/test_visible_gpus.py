"""Which GPUs are measured, and what a process is shown of them."""

import os

import pytest

from proxy_cnns.device import visible_gpus
from proxy_cnns.runs import _show_only


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


@pytest.mark.parametrize(("visible", "shown"), [("", "1"), ("4,7", "7"), ("GPU-a,GPU-b", "GPU-b")])
def test_a_process_is_shown_its_gpu_alone(monkeypatch, visible, shown):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _show_only("cuda:1") == "cuda:0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == shown
