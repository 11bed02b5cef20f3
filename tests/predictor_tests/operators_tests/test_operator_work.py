"""Work and shapes of operators: what makes them comparable."""

from dataclasses import replace

import numpy as np
import pytest

from predictor.catalogue.devices import LAUNCH_MS
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import SchemaError
from predictor.operator_types import OPERATOR_CLASSES
from predictor.operators.operators import Operator, operators_of
from predictor.operators.work import (
    SHAPE_COLUMNS,
    device_rates,
    operator_class,
    roofline_ms,
    shape_columns,
    share_of_types,
)

H200 = device_rates("NVIDIA H200", "tf32")
CONVOLUTION = next(o for o in operators_of(zoo_cnn("resnet18")) if o.type == "conv2d" and o.input_gradient)


def _ms(operator, batch_size=64, rates=H200):
    return float(roofline_ms([operator], np.array([batch_size]), rates)[0, 0])


def test_small_maps_of_an_instance_norm_take_a_launch_for_four_on_each_multiprocessor():
    small = {f"{side}_{name}": 4 for side in ("in", "out") for name in ("height", "width")}
    norm = Operator("instance_norm", in_channels=512, out_channels=512, parameters=1024, **small)
    rounds = 64 * 512 / (4 * H200.multiprocessors)
    assert _ms(norm) == pytest.approx((2 * rounds + 3) * LAUNCH_MS)  # on an H100 0.50 ms
    assert _ms(replace(norm, repeats=2), 32) == pytest.approx(_ms(norm))
    large = replace(norm, in_height=64, in_width=64, out_height=64, out_width=64)
    assert _ms(large) == _ms(replace(large, type="batch_norm"))  # whose numbers take longer


def test_channels_are_uneven_where_a_group_has_no_multiple_of_eight():
    groups = ((64, 8), (64, 16), (60, 1))
    shapes = [replace(CONVOLUTION, in_channels=64, out_channels=out, groups=n) for out, n in groups]
    columns = shape_columns(shapes)  # shared by all who ask
    assert columns[:, SHAPE_COLUMNS.index("uneven_out")].tolist() == [0, 1, 1]
    assert not columns.flags.writeable


def test_a_large_convolution_is_bound_by_its_multiply_adds():
    sides = (1024, 64, 64, 1024, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1)
    large = Operator("conv2d", None, *sides, parameters=9 * 1024**2)
    flops = 3 * 2 * 1024**2 * 9 * 64**2 * 64
    assert _ms(large) == pytest.approx(flops / H200.flop_per_ms, rel=0.01)


def test_the_first_convolution_makes_no_gradient_of_images():
    assert _ms(replace(CONVOLUTION, input_gradient=False)) < _ms(CONVOLUTION)


def test_an_optimizer_step_does_not_depend_on_the_batch_size():
    step = Operator("optimizer", parameters=10**7, n_tensors=100)
    assert _ms(step, 1) == _ms(step, 512) > 0.03


def test_wide_inputs_cost_bytes_in_half_precision_only():
    norm = Operator("layer_norm", None, 96, 56, 56, 96, 56, 56, parameters=192)
    half = device_rates("NVIDIA H200", "amp_bf16")
    assert _ms(replace(norm, wide_input=True), rates=half) > _ms(norm, rates=half)
    assert _ms(replace(norm, wide_input=True)) == _ms(norm)


def test_a_cpu_has_rates_too():
    assert _ms(CONVOLUTION, rates=device_rates("cpu:Xeon", "fp32")) > _ms(CONVOLUTION)


def test_every_operator_of_the_zoo_has_a_class_a_time_and_a_shape():
    operators = list({operator for cnn in zoo_names() for operator in operators_of(zoo_cnn(cnn))})
    assert {operator_class(operator) for operator in operators} <= {*OPERATOR_CLASSES.values(), "depthwise"}
    assert (roofline_ms(operators, np.array([1.0, 512.0]), H200) > 0).all()
    assert np.isfinite(shape_columns(operators)).all()


def test_shapes_count_doublings():
    wider = replace(CONVOLUTION, in_channels=2 * CONVOLUTION.in_channels)
    first, second = shape_columns([CONVOLUTION, wider])
    assert dict(zip(SHAPE_COLUMNS, second - first, strict=True))["in_channels"] == 1


@pytest.mark.parametrize("operator", [Operator("activation", "relu"), Operator("conv2d")])
def test_an_operator_without_its_shape_is_refused_by_name(operator):
    for work in (shape_columns, lambda operators: _ms(operators[0])):
        with pytest.raises(SchemaError, match="in_channels"):
            work([operator])


def test_the_share_of_types_is_that_of_their_least_time():
    table, batches = zoo_cnn("convnext_tiny"), np.array([1.0, 32.0])
    share = share_of_types(table, batches, H200, {"layer_norm"})
    counted = operators_of(table)
    least = {o: count * roofline_ms([o], batches, H200)[0] for o, count in counted.items()}
    norms = sum(ms for operator, ms in least.items() if operator.type == "layer_norm")
    assert share == pytest.approx(norms / sum(least.values()))
    assert (share > 0.05).all()


def test_an_operator_of_unknown_cost_has_a_share():
    layer = Layer(0, "x", "other", None, (-1,), 8, 4, 4, 8, 4, 4)
    share = share_of_types(LayerTable("one", 4, (layer,)), np.array([64.0]), H200, {"other"})
    assert 0 < share[0] < 1  # the loss and the optimizer step are known


def test_an_operator_that_repeats_moves_as_much_as_at_a_larger_batch():
    single = Operator("activation", "relu", 64, 56, 56, 64, 56, 56)
    rates = device_rates("NVIDIA H200", "tf32")
    repeated = roofline_ms([replace(single, repeats=16)], np.array([2.0]), rates)
    assert repeated == pytest.approx(roofline_ms([single], np.array([32.0]), rates))
