"""The kernels of a training iteration, from a layer table."""

from dataclasses import replace

import numpy as np
import pytest
from case_tables import each_row

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import SchemaError
from predictor.operator_types import LAYER_TYPES
from predictor.operators.kernels import KERNEL_CLASSES, forward_kernels_of, kernels_of, kernels_of_operator
from predictor.operators.work import PASSES, layer_flops


def conv(
    index: int, inputs: tuple[int, ...], cin: int, cout: int, groups: int = 1, bias: bool = False
) -> Layer:
    weights = cin * cout * 9 // groups
    return Layer(
        index, f"conv{index}", "conv2d", None, inputs, cin, 8, 8, cout, 8, 8, 3, 3, 1, 1, 1, 1, 1, groups,
        weights + cout * bias,
    )  # fmt: skip


def counts(table: LayerTable) -> dict[str, float]:
    kernels = kernels_of(table)
    counted: dict[str, float] = {}
    for number, count in zip(kernels.kernel_class, kernels.count, strict=True):
        counted[KERNEL_CLASSES[number]] = counted.get(KERNEL_CLASSES[number], 0) + count
    return counted


@pytest.mark.parametrize("groups", [1, 4])
def test_the_matrix_products_of_all_passes_are_the_convolution_s_multiply_adds(groups):
    kernels = kernels_of(LayerTable("two", 8, (conv(0, (IMAGE,), 16, 16), conv(1, (0,), 16, 32, groups))))
    products = kernels["gemm_m"] * kernels["gemm_n"] * kernels["gemm_k"] * kernels["groups"]
    of_layer = kernels["out_channels"] == 32
    assert of_layer.sum() == len(PASSES)
    np.testing.assert_allclose(2 * products[of_layer], kernels["flops"][of_layer])


def test_equal_layers_are_counted_not_repeated():
    table = LayerTable("twins", 8, (conv(0, (IMAGE,), 16, 16), conv(1, (0,), 16, 16), conv(2, (1,), 16, 16)))
    kernels = kernels_of(table)
    assert counts(table)["conv_backward_weight"] == 3
    assert (kernels.kernel_class == KERNEL_CLASSES.index("conv_backward_weight")).sum() == 1


def test_the_first_layer_has_no_input_gradient_even_where_nobody_wrote_its_inputs_down():
    table = LayerTable("two", 8, (conv(0, (IMAGE,), 3, 16), conv(1, (0,), 16, 16)))
    assert (counts(table)["conv_forward"], counts(table)["conv_backward_input"]) == (2, 1)
    table = LayerTable("csv", 8, (replace(conv(0, (IMAGE,), 3, 16), inputs=None),))
    assert "conv_backward_input" not in counts(table)


def test_a_depthwise_convolution_has_kernels_of_its_own_class():
    table = LayerTable("dw", 8, (conv(0, (IMAGE,), 3, 16), conv(1, (0,), 16, 16, groups=16)))
    counted = counts(table)
    assert [counted[f"depthwise_{pass_}"] for pass_ in PASSES] == [1, 1, 1]


@pytest.mark.parametrize("bias", [True, False])
def test_a_bias_costs_a_kernel_and_an_activation_right_after_it_has_a_class_of_its_own(bias):
    relu = Layer(1, "relu", "activation", "relu", (0,), 16, 8, 8, 16, 8, 8)
    counted = counts(LayerTable("relu", 8, (conv(0, (IMAGE,), 3, 16, bias=bias), relu)))
    assert (counted.get("bias", 0), "activation_after_bias" in counted) == (bias, bias)


def test_a_view_runs_no_kernel_and_is_not_enqueued():
    flat = Layer(1, "flatten", "flatten", None, (0,), 16, 8, 8, 1024, 1, 1)
    with_view = LayerTable("view", 8, (conv(0, (IMAGE,), 3, 16), flat))
    assert counts(with_view) == counts(LayerTable("no view", 8, with_view.layers[:1]))
    assert kernels_of(with_view).operators == 1


def test_multiply_adds_of_the_kernels_are_those_of_the_layers():
    by_kernels, by_layers = {}, {}
    for cnn in zoo_names():
        kernels = kernels_of(zoo_cnn(cnn))
        products = [layer for layer in zoo_cnn(cnn) if layer.type in ("conv2d", "conv_transpose2d", "linear")]
        by_kernels[cnn] = float((kernels.count * kernels["flops"]).sum())
        by_layers[cnn] = sum(layer_flops(layer, pass_, 1) for layer in products for pass_ in PASSES)
    assert by_kernels == pytest.approx(by_layers)


def test_a_transposed_convolution_multiplies_at_every_input_position():
    layer = Layer(
        0, "up", "conv_transpose2d", None, (0,), 64, 8, 8, 32, 16, 16, 4, 4, 2, 2, 1, 1, 1, 1, 64 * 32 * 16
    )  # fmt: skip
    kernels = kernels_of_operator(layer, "forward")
    assert kernels["flops"].tolist() == [2 * 64 * 32 * 4 * 4 * 8 * 8]


def test_two_passes_of_a_convolution_are_one_product_turned_around():
    layer, sizes = conv(0, (0,), 16, 32), ("gemm_m", "gemm_n", "gemm_k")
    forward, weight = (kernels_of_operator(layer, pass_) for pass_ in ("forward", "backward_weight"))
    assert [forward[name] for name in sizes] == [weight[name] for name in reversed(sizes)]


def test_every_number_of_a_kernel_is_finite_and_at_least_zero():
    wrong = [
        (cnn, name)
        for cnn in zoo_names()
        for name, values in kernels_of(zoo_cnn(cnn)).columns.items()
        if not (np.isfinite(values).all() and (values >= 0).all())
    ]
    assert wrong == []


def test_without_optimizer_one_kernel_is_missing():
    table = zoo_cnn("lenet5")
    assert kernels_of(table).count.sum() - kernels_of(table, update=0.0).count.sum() == 1


BARE_LAYERS = [Layer(0, "conv0", type_, inputs=(IMAGE,)) for type_ in LAYER_TYPES if type_ != "flatten"]
COLUMNS = [
    "out_channels",
    "kernel_height",
    "kernel_width",
    "in_height",
    "in_width",
    "out_height",
    "out_width",
]
HOLES = [(layer, "in_channels") for layer in BARE_LAYERS]
HOLES += [(replace(conv(0, (IMAGE,), 3, 16), **{column: None}), column) for column in COLUMNS]


@pytest.mark.parametrize(("layer", "column"), HOLES)
def test_a_layer_that_lacks_a_column_is_refused_by_name_and_column(layer, column):
    with pytest.raises(SchemaError, match=rf"holes: layer 0 \({layer.type} 'conv0'\) has no {column}"):
        kernels_of(LayerTable("holes", 8, (layer,)))


def test_a_single_pass_of_a_layer_is_one_convolution_kernel_and_one_that_it_does_not_have_is_refused():
    for pass_ in PASSES:
        kernels = kernels_of_operator(conv(0, (IMAGE,), 16, 16), pass_)
        assert [KERNEL_CLASSES[number] for number in kernels.kernel_class] == [f"conv_{pass_}"]
    with pytest.raises(SchemaError, match="has no pass 'sideways'"):
        kernels_of_operator(conv(0, (IMAGE,), 16, 16), "sideways")


def test_a_forward_pass_has_no_gradients_and_less_of_the_rest():
    table = zoo_cnn("resnet50")
    trained, forward = kernels_of(table, update=0.0), forward_kernels_of(table)
    names = {KERNEL_CLASSES[number] for number in forward.kernel_class}
    assert {"conv_forward", "batch_norm", "matmul", "add"} <= names
    assert not [name for name in names if "backward" in name or name in ("optimizer", "fan_out")]
    work = [float(kernels["flops"] @ kernels.count) for kernels in (trained, forward)]
    assert work[1] == pytest.approx(work[0] / 3, rel=0.02)
    moved = [float(kernels["elements"] @ kernels.count) for kernels in (trained, forward)]
    assert moved[1] < 0.45 * moved[0]


@each_row
def test_every_pass_of_a_product_counts_as_the_share_of_the_passes_that_run(runs, share):
    forwards, of_input, of_weights = runs
    layer = replace(
        conv(1, (0,), 16, 16), forwards=forwards, input_gradients=of_input, weight_gradients=of_weights
    )
    counted = counts(LayerTable("parts", 8, (conv(0, (IMAGE,), 16, 16), layer)))
    stem = counts(LayerTable("stem", 8, (conv(0, (IMAGE,), 16, 16),)))
    for name in (f"conv_{pass_}" for pass_ in PASSES):
        assert counted[name] - stem.get(name, 0) == pytest.approx(share)


def test_a_first_layer_that_runs_as_usual_has_the_kernels_of_a_cnn_trained_whole():
    usual = conv(0, (IMAGE,), 3, 16)
    frozen = replace(usual, forwards=1, input_gradients=0, weight_gradients=1)
    assert counts(LayerTable("said", 8, (frozen,))) == counts(LayerTable("usual", 8, (usual,)))
