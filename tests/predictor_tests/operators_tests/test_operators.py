"""Operators of a CNN: the same shape is the same operator, and nothing that costs time is forgotten."""

from dataclasses import replace

import pytest
from case_tables import each_row
from ratios_fit import measured_cnn

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import SchemaError
from predictor.measurements.table import check_measurements
from predictor.operator_types import RUNNING
from predictor.operators.kernels import kernels_of
from predictor.operators.operators import (
    as_run,
    is_view,
    layer_operators,
    operator_from_row,
    operator_row,
    operators_of,
    share_of_passes,
    wide_outputs,
)
from predictor.operators.work import copies_between

SHAPE = {f"{side}_{dimension}": 8 for side in ("in", "out") for dimension in ("channels", "height", "width")}


@pytest.fixture(scope="module")
def operators_of_the_zoo():
    return {operator for cnn in zoo_names() for operator in operators_of(zoo_cnn(cnn))}


def test_resnet50_has_its_53_convolutions_and_161_parameter_tensors():
    counted = operators_of(zoo_cnn("resnet50"))
    assert sum(count for operator, count in counted.items() if operator.type == "conv2d") == 53
    assert [o.n_tensors for o in counted if o.type == "optimizer"] == [161]


def test_the_first_convolution_needs_no_input_gradient_and_reads_fp32_images():
    first = layer_operators(zoo_cnn("resnet50"))[0]
    assert not first.input_gradient
    assert first.wide_input


def test_a_relu_runs_in_place_only_where_nobody_else_reads_its_input():
    table = zoo_cnn("densenet121")
    operators = layer_operators(table)
    relus = [operators[i] for i, layer in enumerate(table) if layer.kind == "relu"]
    assert all(relu.in_place for relu in relus)  # each reads a batch norm of its own
    squeeze = zoo_cnn("efficientnet_b0")
    assert not any(o.in_place for o in layer_operators(squeeze).values() if o.kind == "sigmoid")


def test_a_residual_block_sums_two_gradients():
    counted = operators_of(zoo_cnn("resnet18"))
    sums = [count for operator, count in counted.items() if operator.passes == "forward"]
    assert sum(sums) == sum(layer.type == "add" for layer in zoo_cnn("resnet18"))


def test_a_split_tensor_joins_its_gradients():
    counted = operators_of(zoo_cnn("shufflenet_v2_x1_0"))
    joins = sum(n for o, n in counted.items() if o.type == "concat" and o.passes == "forward")
    assert joins == 13  # units without stride


def test_the_gradient_of_an_overwritten_view_is_copied_four_times():
    norm = Layer(0, "a", "instance_norm", inputs=(IMAGE,), parameters=16, **SHAPE)
    relu = Layer(1, "b", "activation", "relu", inputs=(0,), overwrites=2, **SHAPE)
    for layer, copies in ((relu, {"concat": 4}), (replace(relu, overwrites=0), {})):
        counted = operators_of(LayerTable("cnn", 8, (norm, layer)))
        assert {operator.type: n for operator, n in counted.items() if operator.passes == "forward"} == copies


def test_a_layer_that_runs_again_reads_its_bias_and_weights_again():
    conv = Layer(
        0, "a", "conv2d", inputs=(IMAGE,), parameters=72, kernel_height=1, kernel_width=1, groups=1, **SHAPE
    )
    again = [replace(conv, index=i, name=f"a_{i}", inputs=(i - 1,), parameters=0) for i in (1, 2)]
    of_maps = replace(again[0], index=3, name="b", inputs=(2,), kernel_height=3)
    table = LayerTable("cnn", 8, (conv, *again, of_maps))
    read = [operator.parameters for operator in layer_operators(table).values()]
    assert read == [72, 72, 72, 8 * 8 * 3]  # filters that are maps have no bias
    assert kernels_of(table).parameters == 72  # which the optimizer updates once


def test_layer_scale_and_residual_stream_of_convnext_are_wide_under_mixed_precision():
    table = zoo_cnn("convnext_tiny")
    adds = [o for o in operators_of(table) if o.type == "add" and o.passes == "forward_backward"]
    assert adds
    assert all(add.wide_input for add in adds)


@each_row
def test_a_convolution_behind_a_group_norm_reads_what_its_mode_makes_of_the_map(memory_format, narrow, wide):
    table, _ = measured_cnn("other_families.group_norm_se", 64)
    convolutions = [o for o in operators_of(table) if o.type == "conv2d" and o.wide_in_nchw]
    assert convolutions
    for operator in convolutions:
        running = as_run(operator, "pytorch", memory_format, "amp_bf16" if narrow else "tf32")
        assert (running.wide_input, running.wide_in_nchw) == (wide, False)


@each_row
def test_a_float32_state_joined_to_the_image_lies_in_nchw_unless_a_layer_norm_left_it(behind, in_nchw):
    window = {"kernel_height": 3, "kernel_width": 3, "parameters": 9 * 8 * 8}
    first = {
        "sigmoid": Layer(0, "a", "activation", "sigmoid", inputs=(IMAGE,), **SHAPE),
        "layer_norm": Layer(0, "a", "layer_norm", inputs=(IMAGE,), parameters=16, **SHAPE),
        "convolution": Layer(0, "a", "conv2d", inputs=(IMAGE,), **window, **SHAPE),
    }
    runs = {"forwards": 1, "input_gradients": 1, "weight_gradients": 1}
    layers = first[behind], Layer(1, "b", "conv2d", inputs=(0,), **runs, **window, **SHAPE)
    last = layer_operators(LayerTable("cnn", 8, layers))[1]
    assert (last.wide_in_nchw, last.wide_input) == (in_nchw, behind != "convolution")


@pytest.mark.parametrize(("inputs", "in_nchw"), [((0, 1), True), ((1, 0), False)])
def test_a_sum_lies_in_memory_as_its_first_operand(inputs, in_nchw):
    first = Layer(0, "a", "conv2d", inputs=(IMAGE,), kernel_height=3, kernel_width=3, parameters=576, **SHAPE)
    normed = Layer(1, "b", "layer_norm", inputs=(0,), parameters=16, **SHAPE)
    table = LayerTable("cnn", 8, (first, normed, Layer(2, "c", "add", inputs=inputs, **SHAPE)))
    assert wide_outputs(table)[1][2] is in_nchw


@each_row
def test_maps_in_another_format_and_slices_are_copied(reader, memory_format, ps):
    first = Layer(0, "a", "conv2d", inputs=(IMAGE,), kernel_height=3, kernel_width=3, parameters=576, **SHAPE)
    table = LayerTable("cnn", 8, (first, Layer(1, "b", reader, inputs=(0,), parameters=16, **SHAPE)))
    copies = copies_between(list(layer_operators(table).values()), "tf32", memory_format)
    assert (copies.ps[:, 0] / 8**3).tolist() == pytest.approx(ps)


@pytest.mark.parametrize(("memory_format", "wide"), [("nchw", True), ("channels_last", False)])
def test_a_depthwise_convolution_of_tokens_runs_as_in_channels_last(memory_format, wide):
    window = {"kernel_height": 3, "kernel_width": 3, "parameters": 9 * 8, "groups": 8}
    layers = (
        Layer(0, "a", "linear", inputs=(IMAGE,), parameters=72, **SHAPE),
        Layer(1, "b", "conv2d", inputs=(0,), **window, **SHAPE),
    )
    operator = layer_operators(LayerTable("cnn", 8, layers))[1]
    assert (operator.narrow_last, operator.wide_input) == (True, False)
    running = as_run(operator, "pytorch", memory_format, "amp_bf16")
    assert (running.narrow_last, running.wide_input) == (False, wide)


def test_a_sum_of_float32_gradients_is_a_wide_sum_of_maps_in_half_precision():
    sums = [o for o in operators_of(zoo_cnn("convnext_tiny")) if o.passes == "forward" and o.wide_input]
    half, full = (as_run(sums[0], "pytorch", "nchw", precision) for precision in ("amp_bf16", "tf32"))
    assert (half.wide_input, half.passes) == (True, "forward_backward")
    assert (full.wide_input, full.passes) == (False, "forward")


def test_an_operator_survives_the_measurement_table(operators_of_the_zoo):
    run = [as_run(operator, "pytorch", "nchw", "amp_bf16") for operator in operators_of_the_zoo]
    changed = [o for o in run if operator_from_row(operator_row(o)) != o]
    assert changed == []


def test_operators_pass_the_schema_and_come_back():
    import pandas as pd

    operators = list(operators_of(zoo_cnn("mobilenet_v3_small")))
    mode = {"gpu": "NVIDIA H200", "image_size": 1, "batch_size": 8, "precision": "tf32"}
    rows = [operator_row(operator) | mode | {"iteration_time_ms": 1.0} for operator in operators]
    checked = check_measurements(pd.DataFrame(rows), "operators")
    assert [operator_from_row(row) for row in checked.to_dict("records")] == operators


def test_names_are_unique(operators_of_the_zoo):
    assert len({operator.name for operator in operators_of_the_zoo}) == len(operators_of_the_zoo)


@pytest.mark.parametrize(("kind", "type_"), [("target", None), ("target", "conv2d"), ("operator", None)])
def test_a_row_of_a_target_or_without_a_type_is_refused(kind, type_):
    with pytest.raises(SchemaError, match="no operator"):
        operator_from_row({"kind": kind, "cnn": "resnet50", "type": type_})


def test_a_layer_of_unknown_inputs_reads_the_layer_before():
    table = zoo_cnn("alexnet")
    layers = tuple(replace(layer, inputs=None) for layer in table)
    unknown = replace(table, layers=layers)
    assert [o.type for o in operators_of(unknown)] == [o.type for o in operators_of(table)]


def test_a_change_of_layout_is_a_view_in_pytorch_alone_and_a_convolution_in_none():
    permute = next(o for o in operators_of(zoo_cnn("convnext_tiny")) if o.type == "permute")
    convolution = next(iter(operators_of(zoo_cnn("resnet18"))))
    for operator, views in ((permute, [True, False]), (convolution, [False, False])):
        assert [is_view(operator, framework) for framework in ("pytorch", "chainer")] == views


def frozen(type_, kernel=1, groups=1, **more):
    return Layer(
        1, "frozen", type_, None, (0,), 96, 56, 56, 96, 56, 56, kernel, kernel, 1, 1, 0, 0, 1, groups, 96,
        forwards=1, input_gradients=1, weight_gradients=0, **more,
    )  # fmt: skip


def test_the_layout_decides_what_the_weights_gradient_of_a_depthwise_convolution_takes():
    layer = frozen("conv2d", 7, 96)
    forms = [{}, {"channels_last": True}, {"channels_last": True, "half": True}]
    shares = [share_of_passes(layer, input_gradient=True, **form) for form in forms]
    assert shares == pytest.approx([0.49, 0.14, 0.75])


@each_row
def test_in_16_bits_the_gradients_of_a_frozen_layers_weights_are_the_dearest(type_, forward, of_input):
    """Sums over the shapes of ConvNeXt-S in `benchmarks/passes_h100.csv`."""
    layer = frozen(type_)
    shares = [
        share_of_passes(variant, input_gradient=True, half=True)
        for variant in (replace(layer, input_gradients=0), layer)
    ]
    assert shares == pytest.approx([forward, of_input], abs=0.02)


def test_both_gradients_of_a_batch_norm_are_one_kernel():
    layer = frozen("batch_norm")
    trained = replace(layer, input_gradients=0, weight_gradients=1)
    assert [share_of_passes(variant, input_gradient=True) for variant in (layer, trained)] == [1, 1]
    forward_alone = replace(layer, input_gradients=0)
    assert share_of_passes(forward_alone, input_gradient=False) == pytest.approx(3 / 8)


@each_row
def test_a_norm_of_running_statistics_is_cheap_but_for_the_gradient_that_channels_last_copies(
    form, whole, frozen_share
):
    layer = replace(frozen("batch_norm"), kind=RUNNING)
    learns = replace(layer, weight_gradients=1)
    options = dict(zip(("channels_last", "half"), form, strict=True))
    shares = [share_of_passes(norm, input_gradient=True, **options) for norm in (learns, layer)]
    assert shares == pytest.approx([whole, frozen_share])
    assert layer_operators(LayerTable("cnn", 8, (replace(layer, index=0, inputs=(IMAGE,)),)))[0].kind is None
