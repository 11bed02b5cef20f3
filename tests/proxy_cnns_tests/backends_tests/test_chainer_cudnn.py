"""cuDNN's interface for Chainer, asked by a pretended cuDNN: descriptors, choices under a limit, records, errors."""

import gc
import json
from typing import Any

import numpy as np
import pytest
from case_tables import each_row

from predictor.errors import BackendUnavailableError
from proxy_cnns.backends.chainer.cudnn.functions import CudnnFunctions
from proxy_cnns.backends.chainer.cudnn.library import FMA_MATH, Cudnn, open_cudnn
from proxy_cnns.backends.chainer.cudnn.plans import Choice, Convolution, CudnnPlans, algorithms_json

MIB = 2**20
KEEP_GOING = {"auto_tune": False, "tensor_core": "auto"}


def _forward(
    plans: CudnnPlans, batch: int = 4, bias: bool = False, dtype: str = "float32", **how: Any
) -> None:
    x, w = np.zeros((batch, 8, 16, 16), dtype), np.zeros((6, 4, 3, 3), dtype)
    b, y = np.zeros(6, dtype) if bias else None, np.zeros((batch, 6, 7, 7), dtype)
    CudnnFunctions(plans).convolution_forward(x, w, b, y, (0, 0), (2, 2), (2, 2), 2, **(KEEP_GOING | how))


def test_the_release_is_read_from_the_version_number_which_version_8_counts_in_its_own_scale(plans, cudnn):
    assert plans.cudnn.release == "9.19"
    cudnn.cudnnGetVersion = lambda: 8907  # type: ignore[method-assign]
    assert Cudnn(cudnn, "pretended").release == "8.9"


def test_descriptors_say_window_groups_and_sizes(plans, cudnn):
    _forward(plans)
    # padding, stride, dilation, cross-correlation, float32
    assert cudnn.arguments_of("cudnnSetConvolution2dDescriptor")[0][1:] == (0, 0, 2, 2, 2, 2, 1, 0)
    assert cudnn.arguments_of("cudnnSetConvolutionGroupCount")[0][1] == 2
    tensors = [arguments[1:] for arguments in cudnn.arguments_of("cudnnSetTensor4dDescriptor")]
    assert tensors == [(0, 0, 4, 8, 16, 16), (0, 0, 4, 6, 7, 7)]
    assert cudnn.arguments_of("cudnnSetFilter4dDescriptor")[0][1:] == (0, 0, 6, 4, 3, 3)
    cudnn.calls.clear()
    _forward(plans, dtype="float16")  # which is summed in single precision
    assert cudnn.arguments_of("cudnnSetConvolution2dDescriptor")[0][-1] == 0
    assert cudnn.arguments_of("cudnnSetFilter4dDescriptor")[0][1] == 2


def test_the_chosen_algorithm_runs_with_its_workspace(plans, cudnn, memory):
    cudnn.offers = [(6, 0, 3 * MIB, True)]
    _forward(plans)
    arguments = cudnn.arguments_of("cudnnConvolutionForward")[0]
    assert (arguments[7], arguments[8], arguments[9]) == (6, 64, 3 * MIB)
    assert memory.allocated == [3 * MIB]


def test_what_needs_too_much_workspace_or_fails_is_passed_over_until_the_limit_is_larger(plans, cudnn):
    cudnn.offers = [(5, 3000, 0, True), (4, 0, 9 * MIB, True), (0, 0, 8 * MIB, True), (1, 0, 0, True)]
    _forward(plans)
    assert [choice.name for choice in plans.choices()] == ["implicit_gemm"]
    cudnn.offers = [(4, 0, 9 * MIB, True), (0, 0, 0, True)]
    plans.set_max_workspace_size(512 * MIB)
    _forward(plans)
    assert [choice.name for choice in plans.choices()] == ["implicit_gemm", "fft"]


@each_row
def test_what_cudnn_cannot_run_is_refused_with_the_reason(plans, cudnn, offers, fails_in, how, error, words):
    cudnn.offers, cudnn.fails_in = offers or cudnn.offers, fails_in
    with pytest.raises(error, match=words):
        _forward(plans, **how)


def test_the_stream_is_set_and_each_convolution_chosen_for_once(plans, cudnn):
    for batch in (4, 4, 5):
        _forward(plans, batch)
    assert len(cudnn.arguments_of("cudnnSetStream")) == 1
    assert len(cudnn.arguments_of("cudnnGetConvolutionForwardAlgorithm_v7")) == 2
    assert len(cudnn.arguments_of("cudnnConvolutionForward")) == 3


def test_autotuning_tries_all_in_the_whole_workspace(plans, cudnn, memory):
    _forward(plans, auto_tune=True)
    assert memory.allocated == [8 * MIB]
    (choice,) = plans.choices()
    assert (choice.how, choice.time_ms) == ("autotune", 0.5)
    assert not cudnn.arguments_of("cudnnGetConvolutionForwardAlgorithm_v7")


def test_deterministic_gradients_are_not_autotuned_and_take_deterministic_algorithms(plans, cudnn):
    cudnn.offers = [(0, 0, 0, False), (1, 0, 0, True)]
    x, gy, gw = (np.zeros(shape, np.float32) for shape in ((2, 3, 8, 8), (2, 4, 6, 6), (4, 3, 3, 3)))
    how = {"deterministic": True, "auto_tune": True, "tensor_core": "auto"}
    CudnnFunctions(plans).convolution_backward_filter(x, gy, gw, (0, 0), (1, 1), (1, 1), 1, **how)
    (choice,) = plans.choices()
    assert (choice.how, choice.name) == ("heuristic", "algo_1")


def test_without_tf32_float32_stays_plain_whatever_cudnn_proposes_and_half_precision_does_not(plans, cudnn):
    plans.allow_tf32 = False
    for dtype in ("float32", "float16"):
        cudnn.calls.clear()
        _forward(plans, dtype=dtype)
        kinds = {arguments[1] for arguments in cudnn.arguments_of("cudnnSetConvolutionMathType")}
        assert (kinds == {FMA_MATH}, FMA_MATH in kinds) == ((dtype == "float32",) * 2)


def test_backward_passes_hand_cudnn_their_operands_in_its_order(plans, cudnn):
    x, w, gy = (np.zeros(shape, np.float32) for shape in ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6)))
    how = {"deterministic": False, **KEEP_GOING}
    functions = CudnnFunctions(plans)
    functions.convolution_backward_data(w, gy, None, x, (0, 0), (1, 1), (1, 1), 1, **how)
    functions.convolution_backward_filter(x, gy, w, (0, 0), (1, 1), (1, 1), 1, **how)
    at = [array.ctypes.data for array in (x, w, gy)]
    data = cudnn.arguments_of("cudnnConvolutionBackwardData")[0]
    filters = cudnn.arguments_of("cudnnConvolutionBackwardFilter")[0]
    assert [data[3], data[5], data[12]] == [at[1], at[2], at[0]]
    assert [filters[3], filters[5], filters[12]] == [at[0], at[2], at[1]]


def test_a_bias_is_added_after_the_convolution_and_forgetting_frees_the_descriptors(plans, cudnn):
    _forward(plans, bias=True)
    names = [name for name, _ in cudnn.calls]
    assert names.index("cudnnAddTensor") > names.index("cudnnConvolutionForward")
    plans.forget()
    gc.collect()
    created = [name for name, _ in cudnn.calls if name.startswith("cudnnCreate") and "Descriptor" in name]
    destroyed = [name for name, _ in cudnn.calls if name.startswith("cudnnDestroy")]
    assert (len(destroyed), plans.choices()) == (len(created), [])


def test_choices_become_one_entry_for_each_shape():
    shape = ((4, 8, 16, 16), (6, 4, 3, 3), (4, 6, 7, 7), (0, 0), (2, 2), (2, 2), 2, "float32")
    choices = [
        Choice(Convolution(direction, *shape), "heuristic", number, 0, 0)  # type: ignore[arg-type]
        for direction, number in (("forward", 1), ("backward_data", 4), ("backward_filter", 3))
    ]
    names = {"forward": "implicit_precomp_gemm", "backward_data": "winograd", "backward_filter": "algo_3"}
    assert json.loads(algorithms_json(choices) or "") == {"4x8x16x16_6x4x3x3_s2x2_p0x0_d2x2_g2": names}
    assert algorithms_json([]) is None


def test_a_missing_cudnn_says_what_to_install(monkeypatch):
    monkeypatch.setenv("EPOCHCAST_CUDNN", "/nowhere/libcudnn.so.9")
    with pytest.raises(BackendUnavailableError, match="pip install nvidia-cudnn-cu12"):
        open_cudnn()


def test_chainers_gpu_path_reaches_all_three_functions(convolution_2d, chainer, cudnn):
    x, w, gy = (np.ones(shape, np.float32) for shape in ((2, 4, 8, 8), (6, 2, 3, 3), (2, 6, 4, 4)))
    node = convolution_2d.Convolution2DFunction(2, 1, groups=2)
    node.inputs = ()
    gradient = convolution_2d.Convolution2DGradW(node, w.shape, w.dtype, None)
    deconvolutions = chainer.functions.connection.deconvolution_2d
    deconvolution = deconvolutions.Deconvolution2DFunction(2, 1, outsize=(8, 8), groups=2)
    for function, arrays in ((node, (x, w)), (gradient, (x, gy)), (deconvolution, (gy, w))):
        function.retain_inputs = lambda _: None
        function._input_layouts = (None, None)
        function.forward_gpu(arrays)
    for name in ("Forward", "BackwardData", "BackwardFilter"):
        assert len(cudnn.arguments_of(f"cudnnConvolution{name}")) == 1, name


def test_never_in_chainers_configuration_means_no_cudnn_as_for_its_other_functions(convolution_2d, chainer):
    assert not chainer.should_use_cudnn(">=auto")
    with chainer.using_config("use_cudnn", "never"):
        assert not convolution_2d.chainer.should_use_cudnn(">=auto")
    assert convolution_2d.chainer.should_use_cudnn(">=auto")


def test_chainers_workspace_limit_is_ours(convolution_2d, chainer, plans):
    chainer.backends.cuda.set_max_workspace_size(3 * MIB)
    assert plans.get_max_workspace_size() == chainer.backends.cuda.get_max_workspace_size() == 3 * MIB
