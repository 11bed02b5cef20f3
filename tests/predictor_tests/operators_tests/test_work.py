"""Layer arithmetic against published facts, hand calculation and the laws that it must obey."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError, SchemaError
from predictor.operator_types import LAYER_TYPES
from predictor.operators.work import (
    PASSES,
    arithmetic_intensity,
    cnn_flops,
    layer_bytes,
    layer_bytes_read,
    layer_flops,
    multiply_adds,
)

# The founding slides' bare layer, AlexNet's first: 3 -> 96, 224 x 224, 11 x 11, stride 4, padding 2; no bias.
BARE = Layer(
    0, "bare", "conv2d", None, (IMAGE,), 3, 224, 224, 96, 55, 55, 11, 11, 4, 4, 2, 2, 1, 1, 3 * 11 * 11 * 96
)  # fmt: skip
LATER = replace(BARE, index=1, inputs=(0,))
NORM = Layer(1, "norm", "batch_norm", None, (0,), 96, 55, 55, 96, 55, 55, parameters=192)


def test_the_bare_layer_does_and_moves_at_batch_128_what_the_slides_say():
    assert 128 * multiply_adds(BARE) == pytest.approx(13.493e9, rel=1e-4)
    assert layer_flops(BARE, "forward", 128) == 2 * 128 * multiply_adds(BARE)
    images, filters = 128 * 3 * 224 * 224 * 4, BARE.parameters * 4
    assert (images, filters) == (pytest.approx(77.07e6, rel=1e-3), pytest.approx(0.14e6, rel=1e-2))
    assert layer_bytes_read(BARE, "forward", 128) == images + filters == pytest.approx(77.2e6, rel=1e-3)
    # The slide says 63.7 MB, which cannot be reproduced: 128 x 96 x 55 x 55 numbers of 4 bytes are 148.7 MB.
    written = layer_bytes(BARE, "forward", 128) - layer_bytes_read(BARE, "forward", 128)
    assert written == pytest.approx(148.7e6, rel=1e-3)
    flop_per_byte_read = arithmetic_intensity(BARE, "forward", 128)
    assert flop_per_byte_read == pytest.approx(2 * 175, rel=2e-3)


@pytest.mark.parametrize(("cnn", "billions"), [("vgg16", 15.47), ("resnet50", 4.09)])
def test_known_cnns_take_their_published_multiply_adds(cnn, billions):
    assert sum(map(multiply_adds, zoo_cnn(cnn, 224))) == pytest.approx(billions * 1e9, rel=2e-3)


def test_backward_passes_take_as_many_operations_as_forward_but_the_image_needs_no_gradient():
    assert len({layer_flops(LATER, pass_, 8) for pass_ in PASSES}) == 1
    assert [work(BARE, "backward_input", 128) for work in (layer_flops, layer_bytes)] == [0, 0]


def test_groups_divide_the_work():
    grouped = replace(LATER, in_channels=96, groups=96)
    assert multiply_adds(grouped) == multiply_adds(replace(grouped, groups=1)) / 96


def test_a_transposed_convolution_works_as_hard_as_the_convolution_that_it_turns_around():
    sizes = ("channels", "height", "width")
    turned = {f"in_{name}": getattr(LATER, f"out_{name}") for name in sizes}
    turned |= {f"out_{name}": getattr(LATER, f"in_{name}") for name in sizes}
    assert multiply_adds(replace(LATER, type="conv_transpose2d", **turned)) == multiply_adds(LATER)


def test_a_dense_layer_works_at_each_position():
    dense = Layer(1, "fc", "linear", None, (0,), 96, 56, 56, 384, 56, 56, parameters=37248)
    assert multiply_adds(dense) == 96 * 384 * 56 * 56


def test_batch_norm_moves_eight_tensors_in_training():
    numbers = 4 * 96 * 55 * 55
    moved = sum(layer_bytes(NORM, pass_, 2) - layer_bytes(NORM, pass_, 1) for pass_ in PASSES)
    assert moved == 8 * numbers


def test_half_precision_moves_half_the_bytes():
    assert layer_bytes(LATER, "forward", 8, element_bytes=2) == layer_bytes(LATER, "forward", 8) / 2


def test_a_learned_scale_has_a_gradient_of_its_own_and_a_computed_one_has_not():
    scale = Layer(1, "scale", "multiply", None, (0,), 96, 7, 7, 96, 7, 7, parameters=96)
    assert layer_bytes(scale, "backward_weight", 8) > 0
    assert layer_bytes(replace(scale, parameters=0), "backward_weight", 8) == 0


def test_flattening_costs_nothing_and_a_pooling_of_unknown_kernel_looks_at_every_number_once():
    flat = Layer(1, "flatten", "flatten", None, (0,), 96, 7, 7, 96 * 49, 1, 1)
    assert [layer_bytes(flat, pass_, 8) + layer_flops(flat, pass_, 8) for pass_ in PASSES] == [0, 0, 0]
    pool = Layer(1, "pool", "max_pool", None, (0,), 96, 8, 8, 96, 4, 4)
    assert layer_flops(pool, "forward", 1) == 96 * 8 * 8


def test_a_cnn_takes_the_sum_of_its_layers():
    table = LayerTable("two", 224, (BARE, NORM))
    assert cnn_flops(table, 4) == sum(layer_flops(layer, p, 4) for layer in table for p in PASSES)


@pytest.mark.parametrize(
    ("work", "changes", "pass_", "batch_size", "words"),
    [
        (
            layer_flops,
            {"kernel_height": None},
            "forward",
            1,
            r"0 'bare' \(conv2d\): kernel_height is unknown",
        ),
        (layer_flops, {}, "forwards", 1, "Nearest: 'forward'"),
        *((layer_bytes, {}, "forward", size, "batch_size") for size in (0, -1, float("nan"))),
    ],
)
def test_an_unknown_column_or_pass_and_a_batch_of_nothing_are_refused(
    work, changes, pass_, batch_size, words
):
    with pytest.raises((SchemaError, OutOfRangeError), match=words):
        work(replace(BARE, **changes), pass_, batch_size)


_SIZES = st.integers(1, 64)


@st.composite
def _layers(draw: st.DrawFn) -> Layer:
    type_, sizes = draw(st.sampled_from(LAYER_TYPES)), [draw(_SIZES) for _ in range(8)]
    weights = draw(st.integers(1, 10**6))
    return Layer(5, "any", type_, None, (4,), *sizes, 1, 1, 0, 0, 1, 1, parameters=weights)


@given(_layers(), st.sampled_from(PASSES), st.integers(1, 1000), st.integers(2, 9))
def test_operations_grow_in_proportion_to_the_batch(layer, pass_, batch, times):
    assert layer_flops(layer, pass_, batch * times) == pytest.approx(times * layer_flops(layer, pass_, batch))


@given(_layers(), st.sampled_from(PASSES), st.integers(1, 1000))
def test_work_is_never_negative(layer, pass_, batch):
    assert layer_flops(layer, pass_, batch) >= 0
    assert layer_bytes(layer, pass_, batch) >= layer_bytes_read(layer, pass_, batch) >= 0
    assert arithmetic_intensity(layer, pass_, batch) >= 0


@given(_layers(), st.sampled_from(PASSES), st.integers(1, 1000))
def test_bytes_are_a_constant_plus_a_share_of_each_image(layer, pass_, batch):
    single, double = layer_bytes(layer, pass_, 1), layer_bytes(layer, pass_, 2)
    assert layer_bytes(layer, pass_, batch) == pytest.approx(single + (batch - 1) * (double - single))


@given(_layers())
def test_every_type_but_a_view_moves_something_both_ways(layer):
    moved = [layer_bytes(layer, pass_, 1) for pass_ in ("forward", "backward_input")]
    assert all(moved) or layer.type == "flatten"
