"""The frameworks, or a skip that says that one is missing; a pretended cuDNN, alone and enabled in Chainer."""

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from case_tables import table
from pretended_cudnn import Numbers, PretendedCudnn

from proxy_cnns.backends.chainer.cudnn.functions import CudnnFunctions, enable
from proxy_cnns.backends.chainer.cudnn.library import Cudnn
from proxy_cnns.backends.chainer.cudnn.plans import CudnnPlans

_CHANGED = table(__file__, "what enable writes")
"""What `enable` writes into Chainer's modules."""


@pytest.fixture(scope="session", autouse=True)
def single_thread() -> Iterator[None]:
    """One thread for each process: arrays are small here, and threads that wait for each other keep cores busy."""
    from threadpoolctl import threadpool_limits

    try:
        import torch
    except ImportError:
        pass
    else:
        torch.set_num_threads(1)
    with threadpool_limits(1):
        yield


@pytest.fixture
def cudnn() -> PretendedCudnn:
    return PretendedCudnn()


@pytest.fixture
def memory() -> Numbers:
    return Numbers()


@pytest.fixture
def plans(cudnn: PretendedCudnn, memory: Numbers) -> CudnnPlans:
    return CudnnPlans(Cudnn(cudnn, "pretended"), memory)


@pytest.fixture
def enabled(plans: CudnnPlans, chainer: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Chainer with the pretended cuDNN, and NumPy as its CuPy: its path for a GPU runs here, for one test."""
    for module, names in _CHANGED.items():
        for name in names:
            changed = import_module(f"chainer.{module}")
            monkeypatch.setattr(changed, name, getattr(changed, name, None), raising=False)
    cuda = import_module("chainer.backends.cuda")
    monkeypatch.setattr(cuda.check_cuda_available, "_already_warned", False, raising=False)
    enable(CudnnFunctions(plans))
    monkeypatch.setattr(cuda, "cupy", np)
    return chainer


@pytest.fixture
def convolution_2d(enabled: ModuleType) -> Any:
    """Chainer's module of convolutions with the pretended cuDNN."""
    return enabled.functions.connection.convolution_2d
