"""What a change of a CNN costs: the answer's own times, an interval by what differs, and the layers that differ."""

import math
from dataclasses import replace

import pytest
from case_tables import each_row

from predictor.answers.answer import answer
from predictor.answers.diff import diff
from predictor.answers.question import Question
from predictor.models.served import Model

VGG = Question("vgg16", ["T4", "H200"], 64)


def changed(before, after):
    return diff(before, replace(before, cnn=after))


def test_times_are_those_of_the_two_answers_and_the_same_cnn_surely_differs_by_nothing():
    rows = [answer(replace(VGG, cnn=cnn)).rows() for cnn in ("vgg16", "vgg16_bn")]
    for change, before, after in zip(changed(VGG, "vgg16_bn"), *rows, strict=True):
        assert change.ratio == pytest.approx(after.iteration_time_ms / before.iteration_time_ms)
        assert (change.before, change.after) == (before, after)
    for change in changed(VGG, "vgg16"):
        assert (change.ratio, change.low, change.high, change.layers) == (1.0, 1.0, 1.0, ())
        assert "the same operators" in change.sentence


def test_layers_that_were_added_make_the_difference():
    for change in changed(VGG, "vgg16_bn"):
        layers = [layer for layer in change.layers if layer.layer.startswith("batch_norm")]
        assert layers[0] is change.layers[0]
        assert {layer.count_before for layer in layers} == {0}
        before, after = change.class_ms["batch_norm"]
        assert before == 0
        assert sum(layer.after_ms for layer in layers) == pytest.approx(after, rel=0.05)


@pytest.mark.parametrize("method", ["auto", "gpu-specs"])
@pytest.mark.parametrize("cnns", [("vgg16", "vgg16_bn"), ("lenet5", "resnet18"), ("vgg16", "vgg16")])
def test_layers_and_the_rest_add_up_to_the_times_of_the_gpu(method, cnns):
    for change in changed(replace(VGG, cnn=cnns[0], method=method), cnns[1]):
        parts = (*change.layers, change.rest)
        sums = [sum(layer.before_ms for layer in parts), sum(layer.after_ms for layer in parts)]
        assert sums == pytest.approx([sum(ms) for ms in zip(*change.class_ms.values(), strict=True)])


@each_row
def test_a_layer_that_both_cnns_have_takes_as_long_in_both(cnns):
    for change in changed(Question(cnns[0], ["T4", "RTX 3090", "H200"], 64), cnns[1]):
        shared = [layer for layer in change.layers if 0 < layer.count_before == layer.count_after]
        assert [layer.layer for layer in shared if not layer.layer.startswith("optimizer")] == []
        if "resnet50" in cnns:  # every layer of the smaller is in the larger
            assert change.rest.before_ms == pytest.approx(change.rest.after_ms, rel=1e-6)


def test_the_more_operators_differ_the_wider_is_the_interval():
    little, much = (changed(VGG, cnn)[0] for cnn in ("vgg16_bn", "mobilenet_v2"))
    assert little.changed_share < much.changed_share <= 1
    assert math.log(little.high / little.low) < math.log(much.high / much.low)
    rows = answer(replace(VGG, gpus=["T4"])).rows()
    assert little.high / little.low < (rows[0].high_ms / rows[0].low_ms) ** 2  # of two independent errors
    [change] = changed(Question("resnet50", "T4", 64), "resnext50_32x4d")
    assert change.is_sure == (change.low > 1 or change.high < 1)
    assert ("too small to be sure" in change.sentence) != change.is_sure
    for change in changed(replace(VGG, method="gpu-specs"), "vgg16_bn"):  # a regression knows no operators
        assert (change.changed_share, "the same operators" in change.sentence) == (1.0, False)


def test_only_the_mode_that_is_asked_is_forecast(monkeypatch):
    forecast_modes, forecasts = set(), Model.forecasts

    def noted(model, table, devices, *arguments, **more):
        forecast_modes.update((gpu.name, mode.precision, mode.memory_format) for gpu, mode in devices)
        return forecasts(model, table, devices, *arguments, **more)

    monkeypatch.setattr(Model, "forecasts", noted)
    changed(Question("resnet34", "H200", 48, precision="amp_bf16"), "resnet50")
    assert forecast_modes == {("NVIDIA H200", "amp_bf16", "nchw")}
