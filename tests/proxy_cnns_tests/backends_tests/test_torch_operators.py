"""One operator alone computes what it computes in a CNN, in copies that leave the cache."""

from math import prod
from types import ModuleType
from typing import Any

import pytest
from case_tables import each_row

from predictor.catalogue.modes import Mode
from proxy_cnns.backends.layers import copies_of, input_shapes
from proxy_cnns.backends.torch import operators as torch_operators
from proxy_cnns.backends.torch.operators import operator_program
from proxy_cnns.designs import operators_in
from proxy_cnns.presets import preset

_NARROW = Mode(precision="amp_bf16")


def test_a_softmax_over_the_channels_of_maps_reads_the_maps():
    """It ran on vectors of as many channels: 0.009 ms whatever the maps."""
    of_maps, of_vectors = operators_in(["activation softmax: 19@8x6 19@1"])
    assert input_shapes(of_maps, 2) == [(2, 19, 8, 6)]
    assert input_shapes(of_vectors, 2) == [(2, 19)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, torch: ModuleType) -> list[Any]:
    """Tensors of every backward pass: (outputs, what gradients are asked for, incoming gradients)."""
    handed_over: list[Any] = []
    grad = torch.autograd.grad

    def noted(outputs: Any, wanted: Any, gradients: Any) -> Any:
        handed_over.append((outputs, wanted, gradients))
        return grad(outputs, wanted, gradients)

    monkeypatch.setattr(torch.autograd, "grad", noted)
    return handed_over


def run(line: str, mode: Mode = Mode(), cache_bytes: int = 0) -> Any:  # noqa: B008 - a frozen value
    (operator,) = operators_in([line])
    program = operator_program(operator, mode, 2, "cpu", cache_bytes=cache_bytes)
    program.iterate()
    return program


def test_copies_exceed_the_cache_twice_within_limits():
    assert [copies_of(size, cache_bytes=100) for size in (1, 20, 70, 200, 1000)] == [16, 10, 3, 1, 1]


def test_copies_run_forward_and_backward_together(torch, calls):
    assert run("batch_norm: 8@4", cache_bytes=10**5).copies == 16
    assert [len(tensors) for tensors in calls[-1]] == [16, 48, 16]


def test_incoming_gradients_are_tensors_of_their_own(torch, calls):
    run("conv2d 3 plain: 4@8", cache_bytes=10**4)
    outputs, wanted, gradients = calls[-1]
    assert len({tensor.data_ptr() for tensor in (*outputs, *wanted, *gradients)}) == 4 * len(outputs)


def test_the_first_layer_has_no_input_gradient(torch, calls):
    run("conv2d 3 plain image: 3@8>4")
    assert [tuple(tensor.shape) for tensor in calls[-1][1]] == [(4, 3, 3, 3)]


@pytest.mark.parametrize("kind", ["relu", "relu6", "silu", "hardswish", "leaky_relu"])
def test_in_place_activations_overwrite_their_input(kind, torch, calls):
    run(f"activation {kind} in_place: 3@4")
    outputs, wanted, _ = calls[-1]
    assert outputs[0].data_ptr() == wanted[0].data_ptr()


@pytest.mark.parametrize("kind", ["relu", "silu"])
def test_gradients_through_an_activation_in_place_are_those_beside_it(kind, torch):
    function = {"relu": torch.nn.functional.relu, "silu": torch.nn.functional.silu}[kind]
    x, gradient = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    leaf, overwritten = x.clone().requires_grad_(), x.clone().requires_grad_()
    (beside_gradient,) = torch.autograd.grad(function(leaf), leaf, gradient)
    output = function(torch_operators._alias(overwritten), inplace=True)
    (in_place_gradient,) = torch.autograd.grad(output, overwritten, gradient)
    torch.testing.assert_close(in_place_gradient, beside_gradient)


def test_a_sum_of_gradients_runs_forward_alone(torch, calls):
    run("add forward: 3@4")
    assert calls == []


@pytest.mark.parametrize(("mark", "dtype"), [("wide", "float32"), ("", "bfloat16")])
def test_mixed_precision_hands_over_the_type_that_arrives_in_a_cnn(mark, dtype, torch, calls):
    run(f"conv2d 3 plain {mark}: 4@8", _NARROW)
    outputs, wanted, _ = calls[-1]
    assert (outputs[0].dtype, wanted[0].dtype) == (torch.bfloat16, getattr(torch, dtype))
    assert wanted[1].dtype == torch.float32


@each_row
def test_what_comes_from_a_layer_norm_lies_channels_last(line, channels_last, torch, calls):
    run(line)
    out = calls[-1][0][0]
    layouts = (out.is_contiguous(memory_format=torch.channels_last), out.is_contiguous())
    assert layouts == (channels_last, not channels_last)


def test_a_map_of_one_position_lies_channels_last_as_what_pooled_it_down_would_write_it(torch, calls):
    run("avg_pool 1/0: 4@1>4@3", Mode(memory_format="channels_last"))
    pooled = torch.nn.MaxPool2d(2)(torch.randn(2, 4, 2, 2).to(memory_format=torch.channels_last))
    image = calls[-1][1][0]
    assert image.stride() == pooled.stride() != torch.randn(2, 4, 1, 1).stride()


@pytest.mark.parametrize(("line", "copied"), [("permute g2: 4@8", True), ("permute: 4@8", False)])
def test_a_channel_shuffle_copies_and_a_change_of_layout_does_not(line, copied, torch, calls):
    run(line)
    outputs, wanted, _ = calls[-1]
    assert (outputs[0].data_ptr() != wanted[0].data_ptr()) == copied


def test_a_linear_layer_on_a_map_reads_channels_last_and_a_concat_joins_as_many_tensors_as_it_says(calls):
    run("linear: 6@5>24")
    assert tuple(calls[-1][0][0].shape) == (2, 5, 5, 24)
    run("concat n3: 11@4")
    assert [tensor.shape[1] for tensor in calls[-1][1]] == [5, 3, 3]
    assert calls[-1][0][0].shape[1] == 11


def test_an_optimizer_step_moves_all_its_tensors(torch):
    (operator,) = operators_in(["optimizer: 7@700"])
    tensors = torch_operators._trained_tensors(operator, "cpu")
    assert sum(tensor.numel() for tensor in tensors) == 700
    assert len({tensor.grad.data_ptr() for tensor in tensors}) == 7
    run("optimizer: 7@700")


def test_operators_of_trainings_give_as_many_numbers_as_they_say(torch: ModuleType) -> None:
    """A sample on no device: all take a quarter of a minute."""
    operators = [subject.operator for subject in preset("trainings").subjects if subject.operator][::6]
    sizes = {}
    for operator in operators:
        (function,) = torch_operators._functions(operator, Mode(), 2, "meta", 1)
        inputs = (torch.empty(shape, device="meta") for shape in input_shapes(operator, 2))
        sizes[operator.name] = function(*inputs)[0].numel()
    sides = ("channels", "height", "width")
    assert sizes == {
        operator.name: prod(getattr(operator, f"out_{side}") for side in sides) for operator in operators
    }
