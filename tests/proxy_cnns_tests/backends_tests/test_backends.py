"""Both frameworks keep the protocol on a CPU, run one table of operators, and say what they cannot do."""

import sys
import weakref
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from case_tables import each_row
from small_subjects import RARE, kinds_of_operator

from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.errors import BackendUnavailableError, DeviceOutOfMemoryError, ProfilingError, SchemaError
from predictor.operators.operators import Operator
from proxy_cnns.backends import load_backend
from proxy_cnns.backends.chainer import device as chainer_device
from proxy_cnns.backends.chainer.modes import check_mode as check_chainer
from proxy_cnns.backends.torch import device as torch_device
from proxy_cnns.backends.torch.modes import check_mode as check_torch
from proxy_cnns.configuration import Builder, Configuration, Launches, Subject
from proxy_cnns.designs import operators_in

CPU_MODES = [
    Mode(precision=precision, memory_format=memory_format)
    for precision in ("fp32", "amp_bf16")
    for memory_format in ("nchw", "channels_last")
]
CNNS = {
    "pytorch": ("mobilenet_v3_small", "shufflenet_v2_x0_5", "convnext_tiny", "dcgan_generator"),
    "chainer": ("googlenet", "convnext_tiny", "efficientnet_b0", "shufflenet_v2_x0_5"),
}
"""CNNs whose kinds of operators each framework runs."""

MODES = [*CPU_MODES, Mode("chainer")]
NO_MEMORY = DeviceOutOfMemoryError


class Opened(NamedTuple):
    """A framework's name, module, backend on the CPU, and the module whose ``grad`` it calls."""

    framework: str
    module: ModuleType
    backend: Any
    gradients: Any


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Callable[[str], Opened]:
    """Open a framework on the CPU; skips where it is not installed."""

    def of(framework: str) -> Opened:
        module = request.getfixturevalue("torch" if framework == "pytorch" else framework)
        gradients = module.autograd if framework == "pytorch" else module
        return Opened(framework, module, load_backend(framework, "cpu"), gradients)

    return of


@pytest.fixture(params=CNNS)
def each_framework(request: pytest.FixtureRequest, opened: Callable[[str], Opened]) -> Opened:
    """Each framework in turn."""
    return opened(request.param)


def whole(
    framework: str, cnn: str = "lenet5", size: int = 32, batch_size: int = 2, **mode: Any
) -> Configuration:
    subject = Subject("target", cnn, size, table=zoo_cnn(cnn, size))
    return Configuration(subject, Mode(framework, **mode), batch_size)


def alone(operator: Operator, mode: Mode) -> Configuration:
    subject = Subject("operator", operator.name, operator.in_height or 1, operator=operator)
    return Configuration(subject, mode, 2)


def test_it_names_the_device_and_the_versions(each_framework):
    about = each_framework.backend.environment()
    assert each_framework.backend.framework == each_framework.framework
    assert str(about["gpu"]).startswith("cpu:")
    assert about["framework_version"] == each_framework.module.__version__
    if each_framework.framework == "chainer":
        assert (about["convolutions"], about["batch_norm_and_pooling"]) == ("im2col", "numpy")


@each_row
def test_a_cnn_trains_in_every_mode_of_a_cpu_which_gives_wall_times_alone(opened, framework, mode):
    backend = opened(framework).backend
    prepared = backend.prepare(whole(framework, **mode))
    assert prepared.copies == 1
    prepared.run(2)
    prepared.synchronise()
    assert prepared.host_time_ms(2) > 0
    assert prepared.capture() == "a CPU has no CUDA graphs"
    assert (prepared.gpu_times_ms(3), prepared.peak_memory_mib(), prepared.conv_algorithms()) == (None,) * 3
    assert backend.launches() == Launches()


def test_a_closed_configuration_does_not_run(each_framework):
    prepared = each_framework.backend.prepare(whole(each_framework.framework))
    prepared.close()
    prepared.close()
    with pytest.raises(ProfilingError, match="lenet5 at batch size 2 in fp32 is closed"):
        prepared.run(1)


def test_an_operators_time_is_that_of_one_copy(each_framework):
    (operator,) = operators_in(["batch_norm: 8@4"])
    prepared = each_framework.backend.prepare(alone(operator, Mode(each_framework.framework)))
    assert prepared.copies == 16
    assert prepared.host_time_ms(1) > 0
    prepared.close()


@pytest.mark.parametrize(
    "mode", MODES, ids=lambda mode: f"{mode.framework}-{mode.precision}-{mode.memory_format}"
)
def test_every_kind_of_operator_runs_forward_and_backward(opened, monkeypatch, mode):
    """Operators that few CNNs have give outputs of their size, or are refused where a framework lacks them."""
    framework = opened(mode.framework)
    tables = (zoo_cnn(name, max(32, ZOO[name].minimum_image_size)) for name in CNNS[mode.framework])
    for operator in kinds_of_operator(*tables):
        run(framework, operator, mode)
    handed_over: list[Any] = []
    grad = framework.gradients.grad
    monkeypatch.setattr(framework.gradients, "grad", lambda *how: handed_over.append(how[0]) or grad(*how))
    shapes = {}
    for name, (operator, _, in_chainer) in RARE.items():
        if mode.framework == "chainer" and not in_chainer:
            with pytest.raises(SchemaError, match=f"{operator.name}.*Chainer cannot run"):
                run(framework, operator, mode)
        else:
            run(framework, operator, mode)
            shapes[name] = tuple(handed_over[-1][0].shape)
    assert shapes == {name: RARE[name].output for name in shapes}


def run(framework: Opened, operator: Operator, mode: Mode) -> None:
    """Run one iteration of a single copy."""
    device = framework.backend._device
    program = import_module(f"proxy_cnns.backends.{framework.module.__name__}.operators").operator_program
    with framework.backend.running(alone(operator, mode)):
        program(operator, mode, 2, device, cache_bytes=0).iterate()


OWN = {
    "pytorch": "import torch\nmodel = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 3))\n",
    "chainer": "import chainer.links as L\nmodel = L.Classifier(L.Convolution2D(3, 4, 3))\n",
}
_TWO_HEADS = """import torch
class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(16, 3), torch.nn.Linear(16, 5)
    def forward(self, x):
        x = x.mean((1, 2))
        return self.a(x), {'aux': self.b(x)}
model = Two()
"""


@pytest.fixture
def own(tmp_path):
    """A configuration of the user's own CNN, which this code makes."""

    def of(code: str, framework: str) -> Configuration:
        path = tmp_path / f"own_{framework}_{abs(hash(code))}.py"
        path.write_text(f"{code}\ndef make_model():\n    return model\n")
        subject = Subject("target", "mine", 16, builder=Builder(path, "make_model"))
        return Configuration(subject, Mode(framework), 2)

    return of


def test_a_users_own_cnn_is_trained_itself(each_framework, own, monkeypatch):
    monkeypatch.setattr(f"proxy_cnns.backends.{each_framework.module.__name__}.training.LEARNING_RATE", 0.1)
    prepared = each_framework.backend.prepare(own(OWN[each_framework.framework], each_framework.framework))
    prefix = f"epochcast_user_own_{each_framework.framework}"
    (module,) = (loaded for name, loaded in sys.modules.items() if name.startswith(prefix))
    is_torch = each_framework.framework == "pytorch"
    weights = module.model[1].weight.detach().numpy() if is_torch else module.model.predictor.W.array
    before = weights.copy()
    prepared.run(3)
    assert not (before == weights).all()
    del sys.modules[module.__name__]


def test_all_outputs_of_a_tuple_are_trained(opened, own):
    assert opened("pytorch").backend.prepare(own(_TWO_HEADS, "pytorch")).host_time_ms(1) > 0


def test_the_configuration_of_chainer_is_left_as_it_was(opened):
    chainer, backend = opened("chainer").module, opened("chainer").backend
    with chainer.using_config("train", False):
        backend.prepare(whole("chainer", autotune=True)).run(1)
        assert (chainer.config.train, chainer.config.autotune) == (False, False)


@each_row
def test_what_cannot_be_prepared_is_refused_in_words(opened, own, framework, code, options, error, words):
    """The code of a user's file, or options of a CNN of the zoo."""
    backend = opened(framework).backend
    asks = own(code, framework) if code else whole(framework, **options)
    with pytest.raises(error, match=words):
        backend.prepare(asks)


def test_an_unknown_operator_is_refused_by_its_name(opened):
    backend, operator = opened("chainer").backend, Operator("other", in_channels=3, in_height=8, in_width=8)
    with pytest.raises(SchemaError, match="other_3x8x8"):
        backend.prepare(alone(operator, Mode("chainer")))


@each_row
def test_a_mode_that_a_framework_or_gpu_lacks_is_refused_with_what_it_has(framework, mode, capability, words):
    check, usual = (check_torch, "pytorch") if framework == "torch" else (check_chainer, "chainer")
    with pytest.raises(SchemaError, match=words):
        check(Mode(**{"framework": usual} | mode), capability and tuple(capability))


@each_row
def test_a_device_that_is_not_there_is_refused(opened, monkeypatch, framework, device, words):
    opened(framework)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailableError, match=words):
        load_backend(framework, device)


def test_a_workspace_that_is_no_number_is_refused(chainer, monkeypatch):
    monkeypatch.setenv("EPOCHCAST_WORKSPACE_MIB", "much")
    with pytest.raises(SchemaError, match="'much': give a number of MiB"):
        load_backend("chainer", "cpu")


@pytest.mark.parametrize(
    ("device", "raised", "error", "words"),
    [
        (torch_device, RuntimeError("CUDA out of memory. Tried"), NO_MEMORY, "vgg16 does not fit"),
        (torch_device, RuntimeError("CUDNN_STATUS_ALLOC_FAILED"), NO_MEMORY, "vgg16 does not fit"),
        (chainer_device, MemoryError("allocating 3 bytes"), NO_MEMORY, "vgg16 does not fit in memory"),
        (chainer_device, RuntimeError("cudaErrorMemoryAllocation: x"), NO_MEMORY, "does not fit"),
        (chainer_device, ProfilingError("CUDNN_STATUS_ALLOC_FAILED (2)"), NO_MEMORY, "does not fit"),
        (chainer_device, ValueError("no"), SchemaError, "Chainer cannot run vgg16: ValueError: no"),
    ],
)
def test_lack_of_memory_is_told_from_other_failures(device, raised, error, words):
    with pytest.raises(error, match=words), device.refusing("vgg16"):
        raise raised


def test_what_a_failed_call_held_is_let_go(torch):
    held: list[Any] = []

    def fail() -> None:
        tensor = torch.zeros(3)
        held.append(weakref.ref(tensor))
        raise RuntimeError("out of memory")

    with pytest.raises(DeviceOutOfMemoryError), torch_device.refusing("a CNN"):
        fail()
    assert held[0]() is None


def test_kernels_are_profiled_only_where_asked_for_since_a_profile_slows_what_follows(torch, monkeypatch):
    from proxy_cnns.backends.torch.backend import convolution_kernels

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    profiled: list[str] = []
    for setting in ("", "off", "on"):
        assert profiled == []
        monkeypatch.setenv("EPOCHCAST_PROFILER", setting)
        convolution_kernels(lambda: profiled.append("an iteration"))
    assert profiled == ["an iteration"]
