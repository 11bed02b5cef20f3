"""What explanations and checkups say of layers whose form costs much."""

from dataclasses import replace

import pytest

from predictor.answers.check import Speed, check
from predictor.answers.explain import explain
from predictor.answers.question import Question
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable


def _decoder(type_: str, depth: int = 4) -> LayerTable:
    """Convolutions of 120 maps of 14 x 14, each doubled and halved again."""
    window = dict.fromkeys(("kernel_height", "kernel_width", "stride_height", "stride_width"), 1) | {
        "groups": 1
    }
    small, large = (
        {f"{of}_{side}": n for of in ("in", "out") for side in ("height", "width")} for n in (14, 28)
    )
    conv = Layer(
        0,
        "conv",
        "conv2d",
        inputs=(IMAGE,),
        in_channels=120,
        out_channels=120,
        parameters=14400,
        **small,
        **window,
    )
    grown = replace(conv, name="resized", type=type_, parameters=0, out_height=28, out_width=28, groups=None,
                    **dict.fromkeys(window.keys() - {"groups"}))  # fmt: skip
    pool = replace(
        grown, name="pool", type="max_pool", **large, kernel_height=2, kernel_width=2, stride_height=2, stride_width=2
    )  # fmt: skip
    layers = [
        replace(layer, index=3 * block + i, inputs=(3 * block + i - 1 if block + i else IMAGE,))
        for block in range(depth)
        for i, layer in enumerate((conv, grown, replace(pool, out_height=14, out_width=14)))
    ]
    return LayerTable("decoder", 14, tuple(layers))


def _plain(channels: int, depth: int = 6) -> LayerTable:
    """Convolutions of that many maps of 56 x 56 with windows of 3 x 3."""
    sides = {f"{of}_{side}": 56 for of in ("in", "out") for side in ("height", "width")}
    window = {f"{of}_{side}": n for of, n in (("kernel", 3), ("stride", 1)) for side in ("height", "width")}
    sizes = {"in_channels": channels, "out_channels": channels, "parameters": 9 * channels**2, "groups": 1}
    return LayerTable("plain", 56, tuple(
        Layer(i, f"conv{i}", "conv2d", inputs=(i - 1 if i else IMAGE,), **sizes, **sides, **window,
              padding_height=1, padding_width=1)
        for i in range(depth)
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("cnn", "gpu", "precision", "memory_format", "forms"),
    [
        (_decoder("upsample"), "T4", "fp32", "nchw", {"upsample in NCHW": "in channels-last"}),
        (
            _decoder("upsample_bicubic"), "T4", "fp32", "channels_last",
            {"upsample bicubic in channels-last": "by mode='nearest'"},
        ),
        (_decoder("upsample"), "T4", "fp32", "channels_last", {}),
        (_decoder("upsample_nearest"), "T4", "fp32", "nchw", {}),
        ("convnext_tiny", "H200", "amp_bf16", "nchw", {"7 x 7 depthwise in NCHW": "in channels-last"}),
        (
            "mobilenet_v2", "H200", "amp_bf16", "nchw",
            {f"{layer} in NCHW": "in channels-last" for layer in ("batch norm", "1 x 1 conv2d", "3 x 3 depthwise")},
        ),
        ("convnext_tiny", "H200", "amp_bf16", "channels_last", {}),
        (
            _plain(60), "H200", "amp_bf16", "channels_last",
            {"3 x 3 conv2d with channels that 8 does not divide, in channels-last": "with channels in multiples of 8"},
        ),
        (_plain(64), "H200", "amp_bf16", "channels_last", {}),
    ],
)  # fmt: skip
def test_explanations_name_layers_with_a_better_form(cnn, gpu, precision, memory_format, forms):
    options = {"precision": precision, "memory_format": memory_format}
    [explanation], _ = explain(Question.of(cnn, [gpu], [64], options))
    assert {form.what: form.best for form in explanation.forms} == forms
    assert all(form.ms > 1.5 * form.best_ms > 0 for form in explanation.forms)


@pytest.mark.parametrize(("type_", "suspected"), [("upsample_nearest", True), ("upsample", False)])
def test_a_checkup_suspects_bilinear_resizing_in_nchw_where_it_was_not_asked(type_, suspected):
    question = Question.of(_decoder(type_), ["T4"], [64], {})
    checkup = check(question, Speed(iteration_time_ms=1e3))
    remedies = [cause.remedy for cause in checkup.causes if cause.name == "resizing"]
    assert remedies == ["Resize by mode='nearest', or in channels-last."] * suspected
