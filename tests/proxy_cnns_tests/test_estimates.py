"""Estimates of time and memory: good enough to plan with."""

import pandas as pd
import pytest

from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.files import data_file
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.configuration import Configuration, Subject
from proxy_cnns.designs import operators_in
from proxy_cnns.estimates import estimated_memory_gib, estimated_ms, estimated_seconds

_TF32, _FP32, _BF16 = (Mode(precision=precision) for precision in ("tf32", "fp32", "amp_bf16"))


def _target(name: str, image_size: int | None = None) -> Subject:
    table = zoo_cnn(name, image_size)
    return Subject("target", name, table.image_size, table)


def _alone(operator: Operator) -> Subject:
    return Subject("operator", operator.name, operator.in_height or 1, operator=operator)


def test_estimates_of_whole_cnns_are_within_a_factor_of_three_of_an_h200():
    rows = pd.read_csv(data_file("measurements/h200_pytorch_targets.csv.gz"))
    rows = rows[(rows["precision"] == "tf32") & (rows["batch_size"] == 64)]
    ratios = [
        estimated_ms(_target(cnn, size), 64, _TF32) / measured
        for cnn, size, measured in zip(rows["cnn"], rows["image_size"], rows["gpu_time_ms"], strict=True)
    ]
    assert len(ratios) > 15
    assert 1 / 3 < min(ratios) <= max(ratios) < 3


def test_time_and_memory_grow_with_the_batch():
    subject = _target("resnet18")
    assert estimated_ms(subject, 256, _TF32) > 3 * estimated_ms(subject, 64, _TF32)
    assert estimated_memory_gib(subject, 256, _TF32) > 2 * estimated_memory_gib(subject, 64, _TF32)
    seconds = [estimated_seconds(Configuration(subject, _TF32, batch_size)) for batch_size in (64, 256)]
    assert seconds[0] < seconds[1]


def test_strict_fp32_takes_longer_and_bf16_less_than_tf32_and_both_passes_longer_than_one():
    single, both, convolution = map(
        _alone, operators_in(["add forward: 256@56", "add: 256@56", "conv2d 3: 256@28"])
    )
    assert estimated_ms(single, 256, _TF32) < estimated_ms(both, 256, _TF32)
    times = [estimated_ms(convolution, 128, mode) for mode in (_FP32, _TF32, _BF16)]
    assert times == sorted(times, reverse=True)


def test_the_optimizer_takes_the_same_at_every_batch_size():
    (step,) = map(_alone, operators_in(["optimizer: 161@25000000"]))
    assert estimated_ms(step, 1, _TF32) == estimated_ms(step, 1024, _TF32) == pytest.approx(0.167, rel=0.01)


def test_every_operator_of_every_kind_has_an_estimate():
    for name in ("efficientnet_b0", "convnext_tiny", "densenet121", "googlenet", "dcgan_generator"):
        for operator in operators_of(zoo_cnn(name)):
            assert estimated_ms(_alone(operator), 8, _BF16) > 0
            assert estimated_memory_gib(_alone(operator), 8, _BF16) > 0
