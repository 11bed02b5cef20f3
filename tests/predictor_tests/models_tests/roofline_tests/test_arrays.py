"""The law by another library: nothing beyond the array API standard, and no device that is not there."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest

from predictor.catalogue.devices import find_gpu
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import BackendUnavailableError
from predictor.models.roofline.arrays import NUMPY, Arrays, arrays_on
from predictor.models.roofline.terms import KernelContext
from predictor.models.served import Model
from predictor.operators.kernels import KERNEL_CLASSES, kernels_of

CNNS = ("mobilenet_v2", "convnext_tiny", "densenet121", "vgg11", "inception_v3")  # of every class of kernels
CONTEXTS = (
    KernelContext(find_gpu("Tesla K80"), "fp32", "pytorch"),
    KernelContext(find_gpu("Tesla T4"), "amp_fp16", "pytorch", "channels_last"),
    KernelContext(find_gpu("A100-SXM4-40GB"), "tf32", "tensorflow", xla=True),
)


class NoGpuError(RuntimeError):
    pass


@pytest.fixture
def strict() -> Arrays:
    """A library that refuses whatever the standard of 2024.12 does not have."""
    with array_api_strict.ArrayAPIStrictFlags(api_version="2024.12"):
        yield Arrays(array_api_strict, np.asarray)


def test_another_library_gives_the_same_times_of_every_class_by_the_standard_alone(strict):
    law, batches, classes = Model.load().roofline.law_, [1, 7, 64, 512], set()
    strict_law = replace(law, arrays=strict)
    for cnn in CNNS:
        expected = law.times(kernels_of(zoo_cnn(cnn)), CONTEXTS, batches)
        strict_times = strict_law.times(kernels_of(zoo_cnn(cnn)), CONTEXTS, batches)
        assert isinstance(strict_times.iteration_ms, np.ndarray)
        np.testing.assert_allclose(strict_times.iteration_ms, expected.iteration_ms, rtol=1e-12)
        for name, ms in expected.class_ms.items():
            np.testing.assert_allclose(strict_times.class_ms[name], ms, rtol=1e-12)
        classes |= set(strict_times.class_ms)
    assert classes >= set(KERNEL_CLASSES) - {"pad", "other"}


def test_the_library_of_a_law_is_not_written_with_it_and_the_cpus_is_numpy(strict):
    law = Model.load().roofline.law_
    assert replace(law, arrays=strict).to_json() == law.to_json()
    assert arrays_on("cpu") is NUMPY


def test_cuda_without_cupy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailableError, match=r"epochcast\[cuda13\]"):
        arrays_on("cuda")


def test_cuda_without_a_gpu_is_an_error_and_no_answer_by_the_cpu(monkeypatch):
    def get_device_count() -> int:
        raise NoGpuError("cudaErrorNoDevice")

    runtime = SimpleNamespace(CUDARuntimeError=NoGpuError, getDeviceCount=get_device_count)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    with pytest.raises(BackendUnavailableError, match=r"cudaErrorNoDevice.*nvidia-smi"):
        arrays_on("cuda")
