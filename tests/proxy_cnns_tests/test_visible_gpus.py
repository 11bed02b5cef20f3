"""Which GPUs are measured, and what a process is shown of them."""

import os

import pytest

from proxy_cnns.device import visible_gpus
from proxy_cnns.runs import _show_only


@pytest.mark.parametrize(
    ("visible", "numbers", "devices"),
    [
        (None, "all", ("cuda:0", "cuda:1", "cuda:2", "cuda:3")),
        (None, "0, 3", ("cuda:0", "cuda:3")),
        ("2,3", "all", ("cuda:0", "cuda:1")),
    ],
)
def test_numbers_choose_among_the_visible_gpus(gpus, monkeypatch, visible, numbers, devices):
    gpus(*["NVIDIA H200"] * 4)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus(numbers) == devices


@pytest.mark.parametrize(("visible", "shown"), [("", "1"), ("4,7", "7"), ("GPU-a,GPU-b", "GPU-b")])
def test_a_process_is_shown_its_gpu_alone(monkeypatch, visible, shown):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _show_only("cuda:1") == "cuda:0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == shown
