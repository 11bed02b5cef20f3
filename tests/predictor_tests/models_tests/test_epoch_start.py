"""The start of a training: the shapes that a framework meets, and the kernels that cuDNN compiles for some."""

from dataclasses import replace

import pytest

from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.models.epoch_start import first_calls_s, has_known_start

TF32 = Mode(precision="tf32")
AMP = Mode(precision="amp_bf16", memory_format="channels_last")


def test_a_shape_is_met_once_however_often_it_is_run():
    table = zoo_cnn("resnet50", 224)
    convolution = next(layer for layer in table if layer.type == "conv2d")
    again = replace(convolution, index=len(table), name="again")
    assert first_calls_s(replace(table, layers=(*table.layers, again)), TF32) == first_calls_s(table, TF32)
    other = replace(again, in_height=7)
    assert first_calls_s(replace(table, layers=(*table.layers, other)), TF32) > first_calls_s(table, TF32)


def test_kernels_are_compiled_for_grouped_convolutions_in_channels_last_and_half_precision():
    plain, depthwise = zoo_cnn("resnet50", 224), zoo_cnn("mobilenet_v2", 224)
    assert first_calls_s(plain, AMP) == first_calls_s(plain, TF32)
    for mode in (AMP, Mode(precision="amp_fp16")):
        assert first_calls_s(depthwise, mode) - first_calls_s(depthwise, TF32) == pytest.approx(10 * 2 * 0.75)
    assert first_calls_s(depthwise, Mode(precision="amp_bf16")) == first_calls_s(depthwise, TF32)


def test_no_start_is_known_of_other_frameworks_compiled_and_autotuned_trainings():
    unknown = (Mode(framework="chainer"), Mode(capture="compile"), Mode(autotune=True))
    assert [has_known_start(mode) for mode in (TF32, AMP, *unknown)] == [True, True, False, False, False]
