"""Tests of what an epoch costs beyond its iterations."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row
from hypothesis import given
from hypothesis import strategies as st

from predictor.catalogue.devices import device_of, find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.models.compiled import compile_seconds
from predictor.models.epoch_start import first_calls_s, first_image_s, has_known_start
from predictor.models.epochs import (
    Epochs,
    Iteration,
    epoch_times_s,
    fit_epoch_overhead,
    iterations_per_epoch,
    last_mini_batch,
)
from predictor.models.fit import between_iterations
from predictor.models.ratios import ratios_of


def test_the_last_smaller_batch_is_an_iteration_too_and_what_lies_between_is_of_the_framework():
    assert iterations_per_epoch([50_000, 5_000], [128, 250]).tolist() == [391, 20]
    epochs = Epochs({"tensorflow": 0.5})
    assert epochs.epoch_time_s([10], [9.5], Mode("tensorflow")).tolist() == [0.1]
    assert epochs.epoch_time_s([10], [9.5], Mode("pytorch")).tolist() == [0.095]


def test_a_validation_pass_takes_a_third_of_as_many_iterations():
    plain, validated = (
        epoch_times_s([Iteration(np.array([9.0]))] * 3, np.array([100]), 1000, more, Epochs({}), Mode())
        for more in (0, 400)
    )
    assert plain.tolist() == pytest.approx([0.09])
    assert (validated - plain).tolist() == pytest.approx([4 * 0.003])


@each_row
def test_the_last_mini_batch_has_what_is_left(samples, local_batch_size, n_gpus, parts, images):
    assert last_mini_batch(samples, np.array([local_batch_size]), n_gpus, parts).tolist() == [images]


def test_the_last_iteration_of_each_pass_takes_its_own_time():
    full, last, validated = (Iteration(np.array([ms])) for ms in (9.0, 2.0, 6.0))
    epoch_s = epoch_times_s([full, last, validated], np.array([100]), 1001, 450, Epochs({}), Mode())
    assert epoch_s.tolist() == pytest.approx([(10 * 9 + 2 + (4 * 9 + 6) / 3) / 1e3])


@given(st.floats(0.0, 0.5), st.floats(0.0, 2.0), st.floats(0.0, 0.2))
def test_a_fit_finds_the_overhead_that_made_the_epochs(share, per_iteration, per_mb):
    time_ms, batch_size = np.array([2.0, 50.0, 9.0, 700.0, 31.0]), np.array([16, 32, 64, 128, 256])
    samples, size = np.array([50_000, 5_000, 50_000, 2_000, 5_000]), np.array([32, 64, 32, 256, 128])
    validation = 500
    steps = np.ceil(samples / batch_size) + np.ceil(validation / batch_size)
    fed_mb = (samples + validation) * size**2 * 12.0 / 1e6
    more_ms = share * validation / batch_size * time_ms + per_iteration * steps + per_mb * fed_mb
    epochs = (samples / batch_size * time_ms + more_ms) / 1e3
    fitted = fit_epoch_overhead(epochs, time_ms, samples, batch_size, size, validation)
    assert fitted == pytest.approx((share, per_iteration, per_mb), abs=1e-3)


def test_an_epoch_whose_validation_is_unknown_counts_as_one_without():
    """Of one to six iterations with half a millisecond before the next one."""
    samples, batch_size = np.array([100, 200, 60, 300]), np.array([100, 50, 10, 100])
    epoch_ms = samples / batch_size * (np.array([2.0, 3.0, 5.0, 7.0]) + 0.5)
    columns = {"framework": "tensorflow", "iteration_time_ms": [2.0, 3.0, 5.0, 7.0], "image_size": 32}
    columns |= {"samples_per_epoch": samples, "batch_size": batch_size, "epoch_time_s": epoch_ms / 1000}
    rows = pd.DataFrame(columns).assign(validation_samples=[np.nan, np.nan, np.nan, 0.0])
    assert between_iterations(rows)["tensorflow"] == pytest.approx(0.5)


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
