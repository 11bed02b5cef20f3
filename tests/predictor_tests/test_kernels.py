"""The kernels of a training iteration, from a layer table."""

import pytest

from predictor.errors import SchemaError
from predictor.kernels import KERNEL_CLASSES, kernels_of, kernels_of_operator
from predictor.layers import IMAGE, Layer, LayerTable
from predictor.zoo import zoo_cnn


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
    found: dict[str, float] = {}
    for number, count in zip(kernels.kernel_class, kernels.count, strict=True):
        found[KERNEL_CLASSES[number]] = found.get(KERNEL_CLASSES[number], 0) + count
    return found


def test_equal_layers_are_counted_not_repeated():
    table = LayerTable("twins", 8, (conv(0, (IMAGE,), 16, 16), conv(1, (0,), 16, 16), conv(2, (1,), 16, 16)))
    kernels = kernels_of(table)
    assert counts(table)["conv_backward_weight"] == 3
    assert (kernels.kernel_class == KERNEL_CLASSES.index("conv_backward_weight")).sum() == 1


def test_the_first_layer_has_no_input_gradient():
    table = LayerTable("two", 8, (conv(0, (IMAGE,), 3, 16), conv(1, (0,), 16, 16)))
    assert (counts(table)["conv_forward"], counts(table)["conv_backward_input"]) == (2, 1)


def test_a_depthwise_convolution_has_kernels_of_its_own_class():
    table = LayerTable("dw", 8, (conv(0, (IMAGE,), 3, 16), conv(1, (0,), 16, 16, groups=16)))
    found = counts(table)
    assert (
        found["depthwise_forward"]
        == found["depthwise_backward_input"]
        == found["depthwise_backward_weight"]
        == 1
    )


def test_a_bias_costs_a_kernel_and_none_costs_none():
    without = LayerTable("no bias", 8, (conv(0, (IMAGE,), 3, 16),))
    with_bias = LayerTable("bias", 8, (conv(0, (IMAGE,), 3, 16, bias=True),))
    assert "bias" not in counts(without)
    assert counts(with_bias)["bias"] == 1


def test_flops_of_resnet50_are_those_of_its_layers():
    from predictor.work import layer_flops

    table = zoo_cnn("resnet50")
    kernels = kernels_of(table)
    forward = kernels.kernel_class == KERNEL_CLASSES.index("conv_forward")
    expected = sum(layer_flops(layer, "forward", 1) for layer in table if layer.type == "conv2d")
    assert float((kernels.count * kernels["flops"])[forward].sum()) == pytest.approx(expected)


def test_without_optimizer_one_kernel_is_missing():
    table = zoo_cnn("lenet5")
    assert kernels_of(table).count.sum() - kernels_of(table, optimizer=False).count.sum() == 1


def test_a_layer_without_shape_is_refused_by_name():
    table = LayerTable("holes", 8, (Layer(0, "mystery", "conv2d", inputs=(IMAGE,), in_channels=3),))
    with pytest.raises(
        SchemaError, match=r"holes: layer 0 \(conv2d 'mystery'\) has no in_height|has no out_channels"
    ):
        kernels_of(table)


@pytest.mark.parametrize("pass_", ["forward", "backward_input", "backward_weight"])
def test_a_single_pass_of_a_layer_is_one_convolution_kernel(pass_):
    kernels = kernels_of_operator(conv(0, (IMAGE,), 16, 16), pass_)
    assert [KERNEL_CLASSES[number] for number in kernels.kernel_class] == [f"conv_{pass_}"]


def test_a_pass_that_a_layer_does_not_have_is_refused():
    with pytest.raises(SchemaError, match="has no pass 'sideways'"):
        kernels_of_operator(conv(0, (IMAGE,), 16, 16), "sideways")
