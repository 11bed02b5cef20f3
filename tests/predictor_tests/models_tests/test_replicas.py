"""The law of `torch.nn.DataParallel`: what it was fitted on, how well it holds, and who answers by it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from case_tables import each_row
from ratios_fit import REPLICAS, replicas_pairs

from predictor.answers.answer import predict
from predictor.answers.check import Speed, check
from predictor.answers.question import Question
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Step
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import SchemaError
from predictor.models.ratios import ratios_of
from predictor.models.replicas import compiled_convolutions
from predictor.models.served import Model


@pytest.fixture(scope="module")
def pairs():
    return replicas_pairs(Model.load())


def row_of(cnn="resnet50", batch_size=128, n_gpus=2, **options):
    (row,) = predict(cnn, "NVIDIA H200", batch_size, n_gpus=n_gpus, **options)
    return row


def test_the_shipped_numbers_are_near_those_of_a_fit(pairs):
    numbers = REPLICAS.fitted(pairs).numbers
    assert {name: ratios_of("replicas")[name] for name in numbers} == pytest.approx(numbers, rel=0.15)


def test_the_spread_holds_nine_of_ten_iterations_of_cnns_held_out(pairs):
    without, shipped = REPLICAS.held_out(pairs), ratios_of("replicas")
    wrong = [
        abs(math.log(pair.measured_ms / pair.predicted_ms(without[pair.cnn])))
        for pair in pairs
        if not pair.compiled
    ]
    assert np.mean(wrong) < 0.2
    assert 0.87 <= np.mean(np.array(wrong) <= shipped.spread) <= 0.94


@each_row
def test_dataparallel_takes_as_long_as_on_two_h200(cnn, batch_size, precision, measured_ms, factor):
    row = row_of(cnn, batch_size, precision=precision, parallel="dp")
    assert row.low_ms < measured_ms < row.high_ms
    assert measured_ms / factor < row.iteration_time_ms < measured_ms * factor
    assert row.iteration_time_ms > 1.4 * row_of(cnn, batch_size, precision=precision).iteration_time_ms


def test_depthwise_convolutions_that_cudnn_compiles_take_seconds():
    assert row_of("mobilenet_v2", 64, precision="amp_fp16", parallel="dp").iteration_time_ms > 1000
    counts = {
        (cnn, precision): compiled_convolutions(zoo_cnn(cnn), Mode(precision=precision))
        for cnn in ("mobilenet_v2", "convnext_tiny", "resnext50_32x4d")
        for precision in ("tf32", "amp_fp16")
    }
    assert list(counts.values()) == [0, 17, 18, 18, 0, 0]


def test_more_gpus_take_the_host_longer_and_the_interval_holds_a_host_of_two():
    two, four = row_of(parallel="dp"), row_of(batch_size=256, n_gpus=4, parallel="dp")
    assert four.host_time_ms == pytest.approx(2 * two.host_time_ms)
    assert four.low_ms < two.iteration_time_ms
    assert "threads take turns" in str(four.extrapolates[0])


@each_row
def test_what_dataparallel_cannot_do_is_refused(options, about):
    with pytest.raises(SchemaError, match=about):
        row_of(parallel="dp", **options)


def test_check_suspects_dataparallel_and_says_how_much_faster_the_other_way_is():
    slow_ms = row_of(parallel="dp").iteration_time_ms
    checked = check(Question("resnet50", "NVIDIA H200", 128, n_gpus=2), Speed(iteration_time_ms=slow_ms))
    (cause,) = [cause for cause in checked.causes if cause.name == "parallel"]
    assert cause.remedy.endswith(f"(torchrun): {slow_ms / checked.normal_ms:.1f} x faster.")


def test_a_recorded_dataparallel_spreads_its_own_batch_and_is_its_module_on_one_gpu():
    step = Step(128, precision="tf32", optimizer="momentum", parallel="dp")
    table = replace(zoo_cnn("resnet50"), step=step)
    two, one = row_of(table, None), row_of(table, None, n_gpus=1)
    assert (two.batch_size, two.local_batch_size) == (128, 64)
    asked = row_of(precision="tf32", parallel="dp"), row_of(precision="tf32", n_gpus=1)
    expected = [row.iteration_time_ms for row in asked]
    assert [two.iteration_time_ms, one.iteration_time_ms] == pytest.approx(expected)
