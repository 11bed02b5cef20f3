"""One operator alone computes what it computes in a CNN, in copies that leave the cache."""

from dataclasses import replace
from math import prod
from types import ModuleType
from typing import Any

import pytest

from predictor.catalogue.modes import Mode
from predictor.operators.operators import Operator
from proxy_cnns.backends.layers import copies_of, input_shapes
from proxy_cnns.backends.torch import operators as torch_operators
from proxy_cnns.backends.torch.operators import operator_program
from proxy_cnns.designs import adaptive_pool, conv, from_to, linear, optimizer, same_shape
from proxy_cnns.presets import preset

_NARROW = Mode(precision="amp_bf16")


def test_a_softmax_over_the_channels_of_maps_reads_the_maps():
    """It ran on vectors of as many channels: 0.009 ms whatever the maps."""
    for shape, read in (((19, 8, 6), (2, 19, 8, 6)), ((19, 1, 1), (2, 19))):
        operator = replace(from_to("activation", shape, shape), kind="softmax")
        assert input_shapes(operator, 2) == [read]


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


def run(operator: Operator, mode: Mode = Mode()) -> Any:  # noqa: B008 - a frozen value
    program = operator_program(operator, mode, 2, "cpu", cache_bytes=0)
    program.iterate()
    return program


def test_copies_exceed_the_cache_twice_within_limits():
    assert [copies_of(size, cache_bytes=100) for size in (1, 20, 70, 200, 1000)] == [16, 10, 3, 1, 1]


def test_copies_run_forward_and_backward_together(torch, calls):
    program = operator_program(same_shape("batch_norm", 8, 4), Mode(), 2, "cpu", cache_bytes=10**5)
    program.iterate()
    assert program.copies == 16
    assert [len(tensors) for tensors in calls[-1]] == [16, 48, 16]


def test_incoming_gradients_are_tensors_of_their_own(torch, calls):
    operator_program(conv(4, 8, 4, (3, 3)), Mode(), 2, "cpu", cache_bytes=10**4).iterate()
    outputs, wanted, gradients = calls[-1]
    assert len({tensor.data_ptr() for tensor in (*outputs, *wanted, *gradients)}) == 4 * len(outputs)


def test_the_first_layer_has_no_input_gradient(torch, calls):
    run(conv(3, 8, 4, (3, 3), first=True))
    assert [tuple(tensor.shape) for tensor in calls[-1][1]] == [(4, 3, 3, 3)]


@pytest.mark.parametrize("kind", ["relu", "relu6", "silu", "hardswish", "leaky_relu"])
def test_in_place_activations_overwrite_their_input(kind, torch, calls):
    run(same_shape("activation", 3, 4, kind=kind, in_place=True))
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
    run(same_shape("add", 3, 4, passes="forward"))
    assert calls == []


@pytest.mark.parametrize(("wide", "dtype"), [(True, "float32"), (False, "bfloat16")])
def test_mixed_precision_hands_over_the_type_that_arrives_in_a_cnn(wide, dtype, torch, calls):
    run(conv(4, 8, 4, (3, 3), wide=wide), _NARROW)
    outputs, wanted, _ = calls[-1]
    assert (outputs[0].dtype, wanted[0].dtype) == (torch.bfloat16, getattr(torch, dtype))
    assert wanted[1].dtype == torch.float32


@pytest.mark.parametrize(
    ("operator", "channels_last"),
    [
        (conv(4, 8, 4, (3, 3)), False),
        (conv(4, 8, 4, (7, 7), groups=4, wide=True), True),
        (same_shape("multiply", 4, 8, parameters=4), True),
        (conv(3, 8, 4, (3, 3), first=True), False),
    ],
)
def test_what_comes_from_a_layer_norm_lies_channels_last(operator, channels_last, torch, calls):
    run(operator)
    out = calls[-1][0][0]
    layouts = (out.is_contiguous(memory_format=torch.channels_last), out.is_contiguous())
    assert layouts == (channels_last, not channels_last)


def test_a_map_of_one_position_lies_channels_last_as_what_pooled_it_down_would_write_it(torch, calls):
    run(adaptive_pool(4, 1, 3), Mode(memory_format="channels_last"))
    pooled = torch.nn.MaxPool2d(2)(torch.randn(2, 4, 2, 2).to(memory_format=torch.channels_last))
    image = calls[-1][1][0]
    assert image.stride() == pooled.stride() != torch.randn(2, 4, 1, 1).stride()


@pytest.mark.parametrize(("groups", "copied"), [(2, True), (None, False)])
def test_a_channel_shuffle_copies_and_a_change_of_layout_does_not(groups, copied, torch, calls):
    run(same_shape("permute", 4, 8, groups=groups))
    outputs, wanted, _ = calls[-1]
    assert (outputs[0].data_ptr() != wanted[0].data_ptr()) == copied


def test_a_linear_layer_on_a_map_reads_channels_last_and_a_concat_joins_as_many_tensors_as_it_says(calls):
    run(linear(6, 24, side=5))
    assert tuple(calls[-1][0][0].shape) == (2, 5, 5, 24)
    run(same_shape("concat", 11, 4, n_tensors=3))
    assert [tensor.shape[1] for tensor in calls[-1][1]] == [5, 3, 3]
    assert calls[-1][0][0].shape[1] == 11


def test_an_optimizer_step_moves_all_its_tensors(torch):
    operator = optimizer(7, 700)
    tensors = torch_operators._trained_tensors(operator, "cpu")
    assert sum(tensor.numel() for tensor in tensors) == 700
    assert len({tensor.grad.data_ptr() for tensor in tensors}) == 7
    run(operator)


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
