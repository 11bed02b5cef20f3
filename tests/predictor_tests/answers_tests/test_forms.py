"""What explanations and checkups say of layers whose form costs much."""

from dataclasses import replace

import pytest
from case_tables import each_row

from predictor.answers.check import Speed, check
from predictor.answers.explain import explain
from predictor.answers.forms import FormCost, evened, forms_in_words
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


def _decoder(type_: str, channels: int = 120, size: int = 14) -> LayerTable:
    """Convolutions of maps, each doubled and halved again."""
    maps = {"in_channels": channels, "out_channels": channels}
    small, large = {"in": size, "out": 2 * size}, {"in": 2 * size, "out": size}
    grown = Layer(0, "resized", type_, **maps, **_sides(**small))
    pool = Layer(0, "pool", "max_pool", **maps, **_sides(kernel=2, stride=2, **large))
    return _table(_convolution(channels, size, 1), grown, pool, depth=4)


def _plain(channels: int) -> LayerTable:
    return _table(_convolution(channels, 56, 3), depth=6)


def _joined(join: str) -> LayerTable:
    """Two batch norms of the maps of one convolution, which a concatenation or a sum joins."""
    maps = {"in_channels": 64, **_sides(**{"in": 56, "out": 56})}
    norm = Layer(1, "norm", "batch_norm", inputs=(0,), out_channels=64, parameters=128, **maps)
    join_ = Layer(3, "join", join, inputs=(1, 2), out_channels=128 if join == "concat" else 64, **maps)
    first = replace(_convolution(64, 56, 1), inputs=(IMAGE,))
    return LayerTable("cnn", 56, (first, norm, replace(norm, index=2), join_))


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
        (_decoder("upsample", 1024, 8), "H100 SXM", "tf32", "channels_last", {}),
        ("convnext_tiny", "H200", "amp_bf16", "nchw", {"7 x 7 depthwise in NCHW": LAST, "layer norm in NCHW": LAST}),
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
    assert all(0 < cost.saves_ms < explanation.gpu_time_ms[-1] for cost in explanation.forms)


def test_a_layout_saves_what_the_whole_cnn_takes_less_in_it_with_all_copies():
    def explained(layout):
        mode = {"precision": "amp_bf16", "memory_format": layout}
        return explain(Question.of("shufflenet_v2_x0_5", ["H100 SXM"], [8], mode))[0][0]

    own, other = explained("channels_last"), explained("nchw")
    forms, saved_ms = own.forms, own.gpu_time_ms[0] - other.gpu_time_ms[0]
    assert "3 x 3 max pool in channels-last" in [cost.form for cost in forms]
    assert {cost.best for cost in forms} == {"in NCHW"}
    assert [cost.saves_ms for cost in forms] == pytest.approx([saved_ms] * len(forms))


@pytest.mark.parametrize(
    ("host_ms", "bound"),
    [(1, ""), (19, "; the host then bounds the iteration"), (30, "; the host bounds the iteration")],
)
def test_forms_of_one_change_are_told_together_with_what_they_save_once(host_ms, bound):
    norms = FormCost("norm", "batch norm in NCHW", 2, 5.0, "in channels-last", 2.0, 7.0)
    product = FormCost("conv", "1 x 1 conv2d in NCHW", 1, 4.0, "in channels-last", 1.5, 7.0)
    assert forms_in_words([norms, product], 20.0, host_ms) == (
        "In channels-last, the GPU takes 7 ms less: batch norm in NCHW (norm and 1 more) 2 instead of 5 ms, "
        f"1 x 1 conv2d in NCHW (conv) 1.5 instead of 4 ms{bound}."
    )
    other = replace(product, best="by mode='nearest'", saves_ms=1.0)
    words = forms_in_words([norms, other], 20.0, 1.0)
    assert words.endswith(
        " By mode='nearest', the GPU takes 1 ms less: 1 x 1 conv2d in NCHW (conv) 1.5 instead of 4 ms."
    )


def test_an_evened_cnn_keeps_its_image_and_classes_and_widens_joins_and_depthwise_layers():
    maps = _sides(**{"in": 14, "out": 14})
    first = replace(_convolution(58, 14, 1), in_channels=3, parameters=3 * 58, inputs=(IMAGE,))
    depthwise = replace(_convolution(58, 14, 3), index=1, groups=58, parameters=9 * 58 + 58, inputs=(0,))
    join = Layer(2, "join", "concat", in_channels=116, out_channels=116, inputs=(0, 1), **maps)
    pad = Layer(3, "pad", "pad", in_channels=116, out_channels=122, inputs=(2,), **maps)
    last = replace(_convolution(122, 14, 1), index=4, out_channels=10, parameters=122 * 10 + 10, inputs=(3,))
    even = evened(LayerTable("cnn", 14, (first, depthwise, join, pad, last)))
    channels = [(layer.in_channels, layer.out_channels) for layer in even]
    assert channels == [(3, 64), (64, 64), (128, 128), (128, 128), (128, 10)]
    assert [layer.parameters for layer in even] == [3 * 64, 9 * 64 + 64, 0, 0, 128 * 10 + 10]
    assert [layer.type for layer in even][1:4] == ["conv2d", "concat", "flatten"]
    heads = replace(_convolution(58, 14, 1), index=1, type="attention", groups=2, inputs=(0,))
    table = LayerTable("cnn", 14, (first, heads, replace(_convolution(58, 14, 1), index=2, inputs=(1,))))
    assert evened(table) == table


@each_row
def test_batch_norms_before_a_concatenation_are_a_form_in_bf16_alone(join, precision, is_named):
    options = {"precision": precision, "memory_format": "channels_last"}
    [explanation], _ = explain(Question.of(_joined(join), ["H100 SXM"], [64], options))
    named = {cost.best: cost for cost in explanation.forms if "before a concatenation" in cost.form}
    assert list(named) == ["normalised after the concatenation"] * is_named
    assert [cost.count for cost in named.values()] == [2] * is_named


def test_layers_of_a_form_are_counted_once_where_a_mini_batch_runs_in_parts():
    def convolutions(batch_size: int, parts: int) -> list[int]:
        options = {"precision": "tf32", "gradient_accumulation": parts}
        [explanation], _ = explain(Question.of("resnet18_cifar", ["H200"], [batch_size], options))
        return [cost.count for cost in explanation.forms if cost.form.startswith("3 x 3 conv2d")]

    assert convolutions(64, 4) == convolutions(16, 1) == [13]


@pytest.mark.parametrize(("type_", "suspected"), [("upsample_nearest", True), ("upsample", False)])
def test_a_checkup_suspects_bilinear_resizing_in_nchw_where_it_was_not_asked(type_, suspected):
    question = Question.of(_decoder(type_), ["T4"], [64], {})
    checkup = check(question, Speed(iteration_time_ms=1e3))
    remedies = [cause.remedy for cause in checkup.causes if cause.name == "resizing"]
    assert remedies == ["Resize by mode='nearest', or in channels-last."] * suspected
