"""What is uncertain of a CNN itself: frozen parts, and branches that its table does not say."""

from dataclasses import replace

import pytest

import epochcast
from predictor.cnns.layer_table import TableWarning
from predictor.cnns.zoo import zoo_cnn

MEASURED_FROZEN, MEASURED_WHOLE = 11.8, 39.3  # ms, of one CNN on an H200


def of_kind(kind, reasons):
    return [reason for reason in reasons if reason.kind == kind]


@pytest.mark.parametrize("gpu", ["H200", "T4"])
@pytest.mark.parametrize("capture", ["eager", "compile"])
def test_frozen_parts_widen_the_interval_down_to_a_forward_pass(gpu, capture):
    sure = zoo_cnn("resnet18")
    frozen = replace(sure, warnings=(TableWarning("frozen", "11,176,512"),))
    ours, theirs = (
        epochcast.predict(table, gpu, 256, capture=capture).iloc[0].to_dict() for table in (sure, frozen)
    )
    assert len(of_kind("frozen", theirs["extrapolates"])) == 1
    for name in ("iteration_time_ms", "gpu_time_ms", "high_ms", "gpu_high_ms"):
        assert theirs[name] == pytest.approx(ours[name])
    least = 1.1 * MEASURED_FROZEN / MEASURED_WHOLE
    assert theirs["gpu_low_ms"] / theirs["gpu_time_ms"] < least
    if capture == "eager":  # what compiling may err is added in quadrature, so there the ends are nearer
        assert theirs["gpu_low_ms"] / ours["gpu_low_ms"] < least
    at_most = least if capture == "eager" else 0.6  # bounded by the host
    assert theirs["low_ms"] / ours["low_ms"] < at_most


def test_a_run_of_the_cnn_says_what_its_frozen_parts_cost():
    frozen = replace(zoo_cnn("resnet18"), warnings=(TableWarning("frozen", "11,176,512"),))
    anchor = {"gpu": "T4", "batch_size": 64, "iteration_time_ms": 60.0}
    assert epochcast.predict(frozen, "T4", 64, anchors=[anchor]).iloc[0]["low_ms"] > 40


@pytest.mark.parametrize("gpu", ["H200", "T4"])
def test_a_table_of_branches_without_inputs_is_answered_and_the_answer_says_so(gpu):
    sure = zoo_cnn("resnet18")
    flat = replace(sure, layers=tuple(replace(layer, inputs=None) for layer in sure))
    ours, theirs = (epochcast.predict(table, gpu, 64).iloc[0].to_dict() for table in (sure, flat))
    assert [len(of_kind("edges", row["extrapolates"])) for row in (ours, theirs)] == [0, 1]
    assert theirs["iteration_time_ms"] == pytest.approx(ours["iteration_time_ms"], rel=0.1)
    assert theirs["high_ms"] / theirs["low_ms"] > ours["high_ms"] / ours["low_ms"]
