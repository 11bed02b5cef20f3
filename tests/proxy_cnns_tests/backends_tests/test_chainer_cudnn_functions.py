"""Batch norm and pooling for Chainer, asked of a pretended cuDNN: what goes where in NVIDIA's own order, and types."""

import ctypes
import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from case_tables import each_row, table
from pretended_cudnn import PretendedCudnn

from predictor.errors import SchemaError
from proxy_cnns.backends.chainer.cudnn.functions import CudnnFunctions
from proxy_cnns.backends.chainer.cudnn.library import PROTOTYPES
from proxy_cnns.backends.chainer.cudnn.plans import CudnnPlans

SPATIAL, PER_ACTIVATION = 1, 0
HEADER = table(__file__, "parameters in the order of cudnn_ops.h")


def _handed(cudnn: PretendedCudnn, name: str) -> dict[str, Any]:
    """Arguments of the only call, by the header's names."""
    (arguments,) = cudnn.arguments_of(name)
    return dict(zip(HEADER[name].split(), arguments, strict=True))


def _at(array: Any) -> int:
    return int(array.ctypes.data)


def _value(pointer: Any) -> float:
    return float(pointer.contents.value)


MAPS = np.ones((4, 3, 5, 6), np.float32)


def _normalise(plans: CudnnPlans, x: Any, parameters: list[Any], mode: int = SPATIAL, **how: Any) -> Any:
    how_asked = (2e-5, 0.9, mode == SPATIAL, mode, False)
    return CudnnFunctions(plans).batch_normalization_forward_training_ex(
        x, *parameters, None, None, *how_asked, **how
    )


def _parameters(channels: int, dtype: str = "float32") -> list[Any]:
    """Gamma, beta, running mean and variance."""
    return [np.ones(channels, dtype) for _ in range(4)]


@pytest.mark.parametrize("name", HEADER)
def test_prototypes_have_a_type_for_each_parameter(name):
    kinds = {"mode": "c_int", "factor": "c_double", "epsilon": "c_double"}
    wanted = [kinds.get(parameter, "c_void_p") for parameter in HEADER[name].split()]
    assert [prototype.__name__ for prototype in PROTOTYPES[name]] == wanted


def test_batch_norm_hands_over_maps_descriptors_parameters_and_running_statistics(plans, cudnn):
    x, parameters = MAPS, _parameters(3)
    reserved, y, mean, inv_std = _normalise(plans, x, parameters)
    handed = _handed(cudnn, "cudnnBatchNormalizationForwardTraining")
    names = ("x", "bnScale", "bnBias", "runningMean", "runningVar", "y", "saveMean", "saveInvVar")
    assert [handed[parameter] for parameter in names] == list(map(_at, (x, *parameters, y, mean, inv_std)))
    assert (reserved, y.shape, mean.shape, inv_std.shape) == (None, x.shape, (3,), (3,))
    assert (handed["mode"], handed["epsilon"], handed["factor"]) == (SPATIAL, 2e-5, pytest.approx(0.1))
    assert (_value(handed["alpha"]), _value(handed["beta"])) == (1, 0)
    ((maps, *sizes),) = cudnn.arguments_of("cudnnSetTensor4dDescriptor")
    ((derived, source, mode),) = cudnn.arguments_of("cudnnDeriveBNTensorDescriptor")
    assert sizes == [0, 0, 4, 3, 5, 6]
    assert (handed["xDesc"], handed["yDesc"], handed["bnDesc"]) == (maps, maps, derived)
    assert (source, mode) == (maps, SPATIAL)


def test_vectors_are_maps_of_one_pixel(plans, cudnn):
    x = np.ones((8, 5), np.float32)
    _, y, _, _ = _normalise(plans, x, _parameters(5), PER_ACTIVATION)
    ((_, *sizes),) = cudnn.arguments_of("cudnnSetTensor4dDescriptor")
    assert (sizes, y.shape) == ([0, 0, 8, 5, 1, 1], (8, 5))


@each_row
def test_half_precision_parameters_are_widened_and_statistics_written_back(plans, cudnn, maps, narrow, wide):
    """Parameters that are wide already are handed over themselves; double precision is scaled in double."""
    parameters, names = _parameters(3, narrow), ("bnScale", "bnBias", "runningMean", "runningVar")
    parameters[2][:] = (1, 2, 3)
    _, y, mean, inv_std = _normalise(plans, MAPS.astype(maps), parameters)
    handed = _handed(cudnn, "cudnnBatchNormalizationForwardTraining")
    assert [handed[name] == _at(array) for name, array in zip(names, parameters, strict=True)] == [
        narrow == wide
    ] * 4
    assert parameters[2].tolist() == [1, 2, 3]
    assert [array.dtype.name for array in (y, mean, inv_std)] == [maps, wide, wide]
    number = {"float32": ctypes.c_float, "float64": ctypes.c_double}[wide]
    assert isinstance(handed["alpha"].contents, number)


def test_the_gradient_of_batch_norm_gets_what_the_forward_pass_saved(plans, cudnn):
    x, gy = np.ones((4, 3, 5, 6), np.float16), np.ones((4, 3, 5, 6), np.float16)
    gamma, mean, inv_std = (np.ones(3, np.float32) for _ in range(3))
    gx, ggamma, gbeta = CudnnFunctions(plans).batch_normalization_backward(
        x, gamma, gy, mean, inv_std, 1e-5, True, SPATIAL, False, reserve_space=None
    )
    handed = _handed(cudnn, "cudnnBatchNormalizationBackward")
    names = ("x", "bnScale", "dy", "savedMean", "savedInvVar", "dx", "dBnScale", "dBnBias")
    arrays = x, gamma, gy, mean, inv_std, gx, ggamma, gbeta
    assert [handed[name] for name in names] == list(map(_at, arrays))
    scalars = [handed[name] for name in ("alphaData", "betaData", "alphaParam", "betaParam")]
    assert list(map(_value, scalars)) == [1, 0, 1, 0]
    assert (handed["epsilon"], gx.dtype.name, ggamma.dtype.name) == (1e-5, "float16", "float32")


def test_inference_hands_over_given_statistics(plans, cudnn):
    x, parameters = MAPS, _parameters(3)
    y = CudnnFunctions(plans).batch_normalization_forward_inference(x, *parameters, 2e-5, True, SPATIAL)
    handed = _handed(cudnn, "cudnnBatchNormalizationForwardInference")
    names = ("x", "bnScale", "bnBias", "mean", "var", "y")
    assert [handed[name] for name in names] == [_at(array) for array in (x, *parameters, y)]


def test_channels_last_batch_norm_is_refused(plans):
    with pytest.raises(SchemaError, match="NCHW"):
        _normalise(plans, MAPS, _parameters(3), d_layout=1)


def test_pooling_says_window_padding_stride_and_both_sizes(plans, cudnn):
    x, y = np.ones((2, 3, 9, 8), np.float16), np.empty((2, 3, 5, 3), np.float16)
    CudnnFunctions(plans).pooling_forward(x, y, (3, 2), (2, 3), (1, 0), 3)
    ((_, mode, nan, n, *numbers),) = cudnn.arguments_of("cudnnSetPoolingNdDescriptor")
    assert (mode, nan, n, [list(number) for number in numbers]) == (3, 0, 2, [[3, 2], [1, 0], [2, 3]])
    sizes = [arguments[1:] for arguments in cudnn.arguments_of("cudnnSetTensor4dDescriptor")]
    assert sizes == [(0, 2, 2, 3, 9, 8), (0, 2, 2, 3, 5, 3)]
    handed = _handed(cudnn, "cudnnPoolingForward")
    assert (handed["x"], handed["y"]) == (_at(x), _at(y))
    assert (_value(handed["alpha"]), _value(handed["beta"])) == (1, 0)


def test_the_gradient_of_pooling_gets_input_output_and_its_gradient(plans, cudnn):
    x, y, gy = (np.ones(shape, np.float32) for shape in ((2, 3, 8, 8), (2, 3, 4, 4), (2, 3, 4, 4)))
    gx = CudnnFunctions(plans).pooling_backward(x, y, gy, (2, 2), (2, 2), (0, 0), 0)
    handed = _handed(cudnn, "cudnnPoolingBackward")
    assert [handed[operand] for operand in ("x", "y", "dy", "dx")] == list(map(_at, (x, y, gy, gx)))
    assert handed["xDesc"] == handed["dxDesc"] != handed["yDesc"] == handed["dyDesc"]
    assert gx.shape == x.shape


def test_volumes_are_described_with_their_steps(plans, cudnn):
    x, y = np.ones((2, 3, 4, 6, 8), np.float32), np.empty((2, 3, 2, 3, 4), np.float32)
    CudnnFunctions(plans).pooling_forward(x, y, (2, 2, 2), (2, 2, 2), (0, 0, 0), 0)
    first, _ = cudnn.arguments_of("cudnnSetTensorNdDescriptor")
    assert (first[1:3], *map(list, first[3:])) == ((0, 5), [2, 3, 4, 6, 8], [576, 192, 48, 8, 1])


def test_maps_that_lie_otherwise_are_copied_first(plans, cudnn):
    x = np.ones((2, 8, 8, 3), np.float32).transpose(0, 3, 1, 2)
    CudnnFunctions(plans).pooling_forward(x, np.empty((2, 3, 4, 4), np.float32), (2, 2), (2, 2), (0, 0), 0)
    assert _handed(cudnn, "cudnnPoolingForward")["x"] != _at(x)


def test_descriptors_are_made_once_and_freed_when_forgotten(plans, cudnn):
    x, y = np.ones((2, 3, 8, 8), np.float32), np.ones((2, 3, 4, 4), np.float32)
    for _ in range(2):
        _normalise(plans, MAPS, _parameters(3))
        CudnnFunctions(plans).pooling_forward(x, y, (2, 2), (2, 2), (0, 0), 0)
        CudnnFunctions(plans).pooling_backward(x, y, y, (2, 2), (2, 2), (0, 0), 0)
    assert len(cudnn.arguments_of("cudnnSetPoolingNdDescriptor")) == 1
    created = [name for name, _ in cudnn.calls if name.startswith("cudnnCreate") and "Descriptor" in name]
    plans.forget()
    gc.collect()
    destroyed = [name for name, _ in cudnn.calls if name.startswith("cudnnDestroy")]
    assert len(created) == len(destroyed) == 5


def _trained(chainer: ModuleType, link: Any, x: Any) -> Any:
    """Run a link or function and its gradient as Chainer does on a GPU."""
    y = link(chainer.Variable(x))
    y.grad = np.ones_like(y.array)
    y.backward()
    return y


@pytest.mark.parametrize("precision", ["float32", "mixed16", "float16"])
def test_chainers_batch_norm_of_maps_reaches_cudnn(enabled, cudnn, precision):
    kind = enabled.mixed16 if precision == "mixed16" else np.dtype(precision)
    with enabled.using_config("dtype", kind):
        link = enabled.links.BatchNormalization(3)
    x = np.ones((4, 3, 5, 6), "float32" if precision == "float32" else "float16")
    _trained(enabled, link, x)
    wide = "float16" if precision == "float16" else "float32"
    assert (link.gamma.grad.dtype.name, link.beta.grad.dtype.name) == (wide, wide)
    for name in ("ForwardTraining", "Backward"):
        assert _handed(cudnn, f"cudnnBatchNormalization{name}")["mode"] == SPATIAL


def test_chainers_batch_norm_of_vectors_reaches_cudnn(enabled, cudnn):
    link = enabled.links.BatchNormalization(5)
    _trained(enabled, link, np.ones((8, 5), np.float32))
    assert _handed(cudnn, "cudnnBatchNormalizationBackward")["mode"] == PER_ACTIVATION


def test_chainers_batch_norm_outside_training_reaches_cudnn(enabled, cudnn):
    link = enabled.links.BatchNormalization(3)
    with enabled.using_config("train", False):
        link(MAPS)
    assert len(cudnn.arguments_of("cudnnBatchNormalizationForwardInference")) == 1


@each_row
def test_chainers_pooling_reaches_cudnn(enabled, cudnn, as_on_a_gpu, name, deterministic, mode):
    with enabled.using_config("cudnn_deterministic", deterministic):
        maps = np.ones((2, 3, 9, 9), np.float32)
        _trained(enabled, lambda x: getattr(enabled.functions, name)(x, 3, 2, 1), maps)
    assert cudnn.arguments_of("cudnnSetPoolingNdDescriptor")[0][1] == mode
    names = "cudnnPoolingForward", "cudnnPoolingBackward"
    assert [len(cudnn.arguments_of(name)) for name in names] == [1, 1]


def test_never_in_chainers_configuration_means_chainers_own_batch_norm(enabled, cudnn):
    mode = enabled.functions.normalization.batch_normalization._BNMode(MAPS, np.ones(3, np.float32), (1,))
    with enabled.using_config("use_cudnn", "never"):
        assert not mode.can_use_cudnn(np)
    assert mode.can_use_cudnn(np)


@pytest.fixture
def as_on_a_gpu(enabled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pooling take the path for a GPU though its maps are NumPy's."""
    from chainer.functions.pooling import average_pooling_2d as average
    from chainer.functions.pooling import max_pooling_nd as most

    nodes = (most.MaxPoolingND, most.MaxPoolingNDGrad, average.AveragePooling2D, average.AveragePooling2DGrad)
    for node in nodes:
        monkeypatch.setattr(node, "forward_cpu", node.forward_gpu)
