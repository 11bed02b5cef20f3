"""What explanations and checkups say of layers whose form costs much."""

from dataclasses import replace

import pytest

from predictor.answers.check import Speed, check
from predictor.answers.explain import explain
from predictor.answers.question import Question
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable


def _sides(**sides: int) -> dict[str, int]:
    return {f"{of}_{side}": n for of, n in sides.items() for side in ("height", "width")}


def _table(*layers: Layer, depth: int) -> LayerTable:
    """These layers one after the other, `depth` times."""
    rows = (
        replace(layer, index=i, inputs=(i - 1 if i else IMAGE,)) for i, layer in enumerate(layers * depth)
    )
    return LayerTable("cnn", layers[0].in_height, tuple(rows))


def _convolution(channels: int, size: int, window: int) -> Layer:
    return Layer(
        0, "conv", "conv2d", in_channels=channels, out_channels=channels, groups=1, parameters=(window * channels) ** 2,
        **_sides(kernel=window, stride=1, padding=window // 2), in_height=size, in_width=size,
        out_height=size, out_width=size,
    )  # fmt: skip


def _decoder(type_: str) -> LayerTable:
    """Convolutions of 120 maps of 14 x 14, each doubled and halved again."""
    maps = {"in_channels": 120, "out_channels": 120}
    grown = Layer(0, "resized", type_, **maps, in_height=14, in_width=14, out_height=28, out_width=28)
    pool = Layer(0, "pool", "max_pool", **maps, in_height=28, in_width=28, out_height=14, out_width=14,
                 **_sides(kernel=2, stride=2))  # fmt: skip
    return _table(_convolution(120, 14, 1), grown, pool, depth=4)


def _plain(channels: int) -> LayerTable:
    return _table(_convolution(channels, 56, 3), depth=6)


def _joined(join: str) -> LayerTable:
    """Batch norms of 64 maps behind 1 x 1 convolutions, two of which a concatenation or a sum joins, four times."""
    maps = {f"{of}_{side}": 56 for of in ("in", "out") for side in ("height", "width")}
    layers: list[Layer] = []
    for first in range(0, 20, 5):
        before = first - 1 if first else IMAGE
        narrowed = replace(_convolution(64, 56, 1), in_channels=128 if first and join == "concat" else 64)
        norm = Layer(0, "norm", "batch_norm", in_channels=64, out_channels=64, parameters=128, **maps)
        channels = {"in_channels": 64, "out_channels": 128 if join == "concat" else 64}
        block = narrowed, norm, narrowed, norm, Layer(0, "join", join, **channels, **maps)
        inputs = (before,), (first,), (before,), (first + 2,), (first + 1, first + 3)
        layers += (
            replace(layer, index=first + i, inputs=read)
            for i, (layer, read) in enumerate(zip(block, inputs, strict=True))
        )
    return LayerTable("cnn", 56, tuple(layers))


LAST = "in channels-last"
UNEVEN = "3 x 3 conv2d with channels that 8 does not divide, in channels-last"
BICUBIC = {f"upsample bicubic {LAST}": "by mode='nearest'"}
OF_MOBILENET = {f"{layer} in NCHW": LAST for layer in ("batch norm", "1 x 1 conv2d", "3 x 3 depthwise")}


@pytest.mark.parametrize(
    ("cnn", "gpu", "precision", "memory_format", "forms"),
    [
        (_decoder("upsample"), "T4", "fp32", "nchw", {"upsample in NCHW": LAST}),
        (_decoder("upsample_bicubic"), "T4", "fp32", "channels_last", BICUBIC),
        (_decoder("upsample"), "T4", "fp32", "channels_last", {}),
        (_decoder("upsample_nearest"), "T4", "fp32", "nchw", {}),
        ("convnext_tiny", "H200", "amp_bf16", "nchw", {"7 x 7 depthwise in NCHW": LAST}),
        ("mobilenet_v2", "H200", "amp_bf16", "nchw", OF_MOBILENET),
        ("convnext_tiny", "H200", "amp_bf16", "channels_last", {}),
        (_plain(60), "H200", "amp_bf16", "channels_last", {UNEVEN: "with channels in multiples of 8"}),
        (_plain(64), "H200", "amp_bf16", "channels_last", {}),
    ],
)  # fmt: skip
def test_explanations_name_layers_with_a_better_form(cnn, gpu, precision, memory_format, forms):
    options = {"precision": precision, "memory_format": memory_format}
    [explanation], _ = explain(Question.of(cnn, [gpu], [64], options))
    assert {cost.form: cost.best for cost in explanation.forms} == forms
    assert all(cost.ms > 1.5 * cost.best_ms > 0 for cost in explanation.forms)


@pytest.mark.parametrize(
    ("join", "precision", "is_named"),
    [("concat", "amp_bf16", True), ("concat", "amp_fp16", False), ("add", "amp_bf16", False)],
)
def test_batch_norms_before_a_concatenation_are_a_form_in_bf16_alone(join, precision, is_named):
    options = {"precision": precision, "memory_format": "channels_last"}
    [explanation], _ = explain(Question.of(_joined(join), ["H100 SXM"], [64], options))
    named = {cost.best: cost for cost in explanation.forms if "before a concatenation" in cost.form}
    assert list(named) == ["normalised after the concatenation"] * is_named
    assert [cost.count for cost in named.values()] == [8] * is_named


def test_resizing_that_another_card_of_the_chip_measured_has_a_usual_host_time():
    maps = {"in_channels": 1024, "out_channels": 1024, "in_height": 8, "in_width": 8}
    grown = Layer(1, "up", "upsample", inputs=(0,), **maps, out_height=16, out_width=16)
    table = LayerTable("cnn", 8, (replace(_convolution(1024, 8, 3), inputs=(IMAGE,)), grown))
    options = {"precision": "tf32", "memory_format": "channels_last"}
    [explanation], _ = explain(Question.of(table, ["H100 SXM"], [16], options))
    assert 0.2 < explanation.host_time_ms[0] < 5


@pytest.mark.parametrize(("type_", "suspected"), [("upsample_nearest", True), ("upsample", False)])
def test_a_checkup_suspects_bilinear_resizing_in_nchw_where_it_was_not_asked(type_, suspected):
    question = Question.of(_decoder(type_), ["T4"], [64], {})
    checkup = check(question, Speed(iteration_time_ms=1e3))
    remedies = [cause.remedy for cause in checkup.causes if cause.name == "resizing"]
    assert remedies == ["Resize by mode='nearest', or in channels-last."] * suspected
