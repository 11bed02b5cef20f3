"""The start of a training: the shapes that a framework meets, and the kernels that cuDNN compiles for some."""

from dataclasses import replace

import pytest
from case_tables import each_row

from predictor.catalogue.devices import device_of, find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.models.compiled import compile_seconds
from predictor.models.epoch_start import first_calls_s, first_image_s, has_known_start
from predictor.models.ratios import ratios_of

TF32 = Mode(precision="tf32")
AMP = Mode(precision="amp_bf16", memory_format="channels_last")


@each_row
def test_a_shape_is_compiled_once_and_none_of_large_or_oblong_kernels(changes, is_compiled):
    table = zoo_cnn("mobilenet_v2", 224)
    depthwise = next(layer for layer in table if (layer.groups or 1) > 1)
    again = replace(depthwise, index=len(table), name="again", **changes)
    added_s = first_calls_s(replace(table, layers=(*table.layers, again)), AMP) - first_calls_s(table, AMP)
    assert (added_s > 0, added_s == 0) == (is_compiled, not is_compiled)


def test_kernels_are_compiled_for_depthwise_convolutions_alone_in_channels_last_and_half_precision():
    plain, grouped, depthwise = (zoo_cnn(cnn, 224) for cnn in ("resnet50", "resnext50_32x4d", "mobilenet_v2"))
    shape_s = ratios_of("start")["depthwise_shape_s"]
    assert first_calls_s(plain, AMP) == first_calls_s(grouped, AMP) == first_calls_s(plain, TF32)
    for mode in (AMP, Mode(precision="amp_fp16")):
        added_s = first_calls_s(depthwise, mode) - first_calls_s(depthwise, TF32)
        assert added_s == pytest.approx(10 * 2 * shape_s)
    assert first_calls_s(depthwise, Mode(precision="amp_bf16")) == first_calls_s(depthwise, TF32)


def test_the_start_grows_with_the_numbers_of_a_mini_batch_whatever_the_cnn():
    plain, depthwise = (first_image_s(zoo_cnn(cnn, 224)) for cnn in ("resnet50", "mobilenet_v2"))
    assert plain == depthwise == pytest.approx(49 * first_image_s(zoo_cnn("resnet18_cifar", 32)))


def test_a_compiled_training_compiles_for_both_sizes_of_mini_batches():
    table = zoo_cnn("resnet50", 224)
    added_s = first_calls_s(table, Mode(capture="compile")) - first_calls_s(table, TF32)
    assert added_s == pytest.approx(2 * compile_seconds(table))


def test_no_start_is_known_of_other_frameworks_graphs_autotuned_trainings_and_cpus():
    gpu, cpu = find_gpu("H200"), device_of("cpu:AMD EPYC")
    unknown = (Mode(framework="chainer"), Mode(capture="graph"), Mode(autotune=True))
    assert [has_known_start(gpu, mode) for mode in (TF32, AMP, *unknown)] == [True, True, False, False, False]
    assert not has_known_start(cpu, Mode(precision="fp32"))
