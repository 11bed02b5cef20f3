"""The PyTorch backend keeps the protocol on a CPU, and says what it cannot do."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import proxy_table
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import (
    BackendUnavailableError,
    DeviceOutOfMemoryError,
    ProfilingError,
    SchemaError,
)
from proxy_cnns.backends import load_backend
from proxy_cnns.backends.protocol import Backend, Launches
from proxy_cnns.backends.torch.device import refusing
from proxy_cnns.backends.torch.modes import check_mode
from proxy_cnns.configuration import Builder, Configuration, Subject
from proxy_cnns.designs import conv


@pytest.fixture(scope="module")
def backend(torch: ModuleType) -> Backend:
    return load_backend("pytorch", "cpu")


def whole(
    cnn: str = "lenet5", batch_size: int = 2, image_size: int | None = None, **mode: Any
) -> Configuration:
    table = zoo_cnn(cnn, image_size)
    return Configuration(Subject("target", cnn, table.image_size, table=table), Mode(**mode), batch_size)


def test_it_names_the_device_and_the_versions(backend, torch):
    about = backend.environment()

    assert str(about["gpu"]).startswith("cpu:")
    assert about["framework_version"] == torch.__version__


def test_a_cpu_gives_wall_times_alone(backend):
    prepared = backend.prepare(whole())

    prepared.run(2)
    prepared.synchronise()

    assert prepared.host_time_ms(2) > 0
    assert prepared.capture() == "a CPU has no CUDA graphs"
    assert prepared.gpu_times_ms(3) is None
    assert prepared.peak_memory_mib() is None
    assert prepared.conv_algorithms() is None


@pytest.mark.parametrize(
    "mode", [{"precision": "amp_bf16"}, {"memory_format": "channels_last"}, {"optimizer": "sgd"}]
)
def test_a_proxy_trains_in_every_mode_of_a_cpu(mode, backend):
    table = proxy_table("8_16_16")

    prepared = backend.prepare(Configuration(Subject("proxy", table.cnn, 8, table=table), Mode(**mode), 4))
    prepared.run(1)

    assert prepared.copies == 1


def test_an_operators_time_is_that_of_one_copy(backend):
    operator = conv(8, 8, 8, (3, 3))

    prepared = backend.prepare(
        Configuration(Subject("operator", operator.name, 8, operator=operator), Mode(), 2)
    )

    assert prepared.copies == 16
    assert prepared.host_time_ms(1) > 0


def test_a_closed_configuration_does_not_run(backend):
    prepared = backend.prepare(whole())

    prepared.close()
    prepared.close()

    with pytest.raises(ProfilingError, match="lenet5 at batch size 2 in fp32 is closed"):
        prepared.run(1)


def test_a_batch_norm_over_one_number_is_refused_in_words(backend):
    with pytest.raises(ProfilingError, match=r"resnet18 at batch size 1 .*more than 1 value per channel"):
        backend.prepare(whole("resnet18", batch_size=1, image_size=32))


class TestOwnModules:
    """FILE.py:make_model."""

    def configuration(self, path: Path, text: str) -> Configuration:
        path.write_text(text)
        return Configuration(Subject("target", "mine", 16, builder=Builder(path, "make_model")), Mode(), 2)

    def test_it_trains_the_module_itself(self, backend, tmp_path, torch):
        configuration = self.configuration(
            tmp_path / "two_layers.py",
            "import torch\nmodel = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 3))\n"
            "def make_model(): return model\n",
        )
        prepared = backend.prepare(configuration)
        name = next(module for module in sys.modules if module.startswith("epochcast_user_two_layers"))
        module = sys.modules[name].model
        before = module[1].weight.detach().clone()

        prepared.run(3)

        assert not torch.equal(before, module[1].weight)

    def test_all_outputs_of_a_tuple_are_trained(self, backend, tmp_path):
        configuration = self.configuration(
            tmp_path / "two_heads.py",
            "import torch\nclass Two(torch.nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n"
            "        self.a, self.b = torch.nn.Linear(16, 3), torch.nn.Linear(16, 5)\n"
            "    def forward(self, x):\n        x = x.mean((1, 2))\n"
            "        return self.a(x), {'aux': self.b(x)}\n"
            "def make_model(): return Two()\n",
        )

        assert backend.prepare(configuration).host_time_ms(1) > 0

    def test_anything_but_a_module_is_refused(self, backend, tmp_path):
        configuration = self.configuration(tmp_path / "no_cnn.py", "def make_model(): return 7\n")

        with pytest.raises(SchemaError, match=r"make_model\(\) of .* gives a int"):
            backend.prepare(configuration)

    def test_its_own_errors_are_told(self, backend, tmp_path):
        text = "import torch\ndef make_model(): return torch.nn.Linear(7, 3)\n"

        with pytest.raises(ProfilingError, match="mine at batch size 2 in fp32: RuntimeError: mat1 and mat2"):
            backend.prepare(self.configuration(tmp_path / "misfit.py", text))


@pytest.mark.parametrize("precision", ["tf32", "amp_fp16", "fp16"])
def test_a_cpu_lacks_these_precisions(precision, backend):
    with pytest.raises(SchemaError, match="fp32, amp_bf16"):
        backend.prepare(whole(precision=precision))


@pytest.mark.parametrize(
    ("capability", "has"),
    [((3, 7), "fp32"), ((7, 0), "fp32, amp_fp16"), ((8, 0), "fp32, tf32, amp_fp16, amp_bf16")],
)
def test_a_gpu_has_the_precisions_of_its_generation(capability, has):
    with pytest.raises(SchemaError, match=rf"another of {has}\."):
        check_mode(Mode(precision="fp16"), capability)


@pytest.mark.parametrize("mode", [{"xla": True}, {"capture": "static_graph"}, {"optimizer": "adam"}])
def test_what_is_not_measured_is_refused(mode, backend):
    with pytest.raises(SchemaError, match="measured"):
        backend.prepare(whole(**mode))


@pytest.mark.parametrize("device", ["cuda:77", "tpu", "cuda:first"])
def test_a_device_that_is_not_there_is_refused(device, torch):
    with pytest.raises(BackendUnavailableError, match=device):
        load_backend("pytorch", device)


def test_without_pytorch_the_extra_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(BackendUnavailableError, match=r"epochcast\[torch\]"):
        load_backend("pytorch", "cpu")


@pytest.mark.parametrize("text", ["CUDA out of memory. Tried", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"])
def test_lack_of_memory_is_told_from_other_failures(text):
    with pytest.raises(DeviceOutOfMemoryError, match="vgg16 does not fit"), refusing("vgg16"):
        raise RuntimeError(text)


def test_what_a_failed_call_held_is_let_go(torch):
    import weakref

    held: list[Any] = []

    def fail() -> None:
        tensor = torch.zeros(3)
        held.append(weakref.ref(tensor))
        raise RuntimeError("out of memory")

    with pytest.raises(DeviceOutOfMemoryError), refusing("a CNN"):
        fail()

    assert held[0]() is None


def test_a_cpu_has_no_queue_and_no_graph_of_kernels(backend):
    assert backend.launches() == Launches()


def test_kernels_are_profiled_only_where_asked_for_since_a_profile_slows_what_follows(monkeypatch):
    torch = pytest.importorskip("torch")
    from proxy_cnns.backends.torch.kernels import convolution_kernels

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    profiled = []
    for setting in (None, "off"):
        monkeypatch.delenv("EPOCHCAST_PROFILER", raising=False)
        if setting:
            monkeypatch.setenv("EPOCHCAST_PROFILER", setting)
        assert convolution_kernels(lambda: profiled.append("an iteration")) is None
    assert profiled == []
    monkeypatch.setenv("EPOCHCAST_PROFILER", "on")
    convolution_kernels(lambda: profiled.append("an iteration"))
    assert profiled == ["an iteration"]
