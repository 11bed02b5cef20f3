"""What explanations and checkups say of resizing maps."""

import re
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


@pytest.mark.parametrize(
    ("type_", "memory_format", "words"),
    [
        ("upsample", "nchw", "in channels-last .* faster"),
        ("upsample_bicubic", "channels_last", "by mode='nearest'"),
        ("upsample", "channels_last", "^$"),
        ("upsample_nearest", "nchw", "^$"),
    ],
)
def test_explanations_say_what_resizing_otherwise_saves(type_, memory_format, words):
    question = Question.of(_decoder(type_), ["T4"], [64], {"memory_format": memory_format})
    [explanation], _ = explain(question)
    assert re.search(words, explanation.resizing), explanation.resizing


@pytest.mark.parametrize(("type_", "suspected"), [("upsample_nearest", True), ("upsample", False)])
def test_a_checkup_suspects_bilinear_resizing_in_nchw_where_it_was_not_asked(type_, suspected):
    question = Question.of(_decoder(type_), ["T4"], [64], {})
    checkup = check(question, Speed(iteration_time_ms=1e3))
    remedies = [cause.remedy for cause in checkup.causes if cause.name == "resizing"]
    assert remedies == ["Resize by mode='nearest', or in channels-last."] * suspected
