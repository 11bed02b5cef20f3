"""What is uncertain of a CNN or its optimizer: frozen parts, branches that no table says, operators of unknown cost."""

from dataclasses import replace

import pytest

import epochcast
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable, TableWarning
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
    run = {"gpu": "T4", "batch_size": 64, "iteration_time_ms": 60.0}  # which says what frozen parts cost
    assert epochcast.predict(frozen, "T4", 64, anchors=[run]).iloc[0]["low_ms"] > 40


@pytest.mark.parametrize("gpu", ["H200", "T4"])
def test_a_table_of_branches_without_inputs_is_answered_and_the_answer_says_so(gpu):
    sure = zoo_cnn("resnet18")
    flat = replace(sure, layers=tuple(replace(layer, inputs=None) for layer in sure))
    ours, theirs = (epochcast.predict(table, gpu, 64).iloc[0].to_dict() for table in (sure, flat))
    assert [len(of_kind("edges", row["extrapolates"])) for row in (ours, theirs)] == [0, 1]
    assert theirs["iteration_time_ms"] == pytest.approx(ours["iteration_time_ms"], rel=0.1)
    assert theirs["high_ms"] / theirs["low_ms"] > ours["high_ms"] / ours["low_ms"]


def cnn(unknown=True, warned=True):
    """A convolution and, perhaps, an operator that nobody knows."""
    sides = ("in_height", "in_width", "out_height", "out_width")
    shape = {"in_channels": 64, "out_channels": 64, **dict.fromkeys(sides, 56)}
    layers = [
        Layer(0, "conv", "conv2d", inputs=(IMAGE,), kernel_height=3, kernel_width=3, stride_height=1, stride_width=1,
              padding_height=1, padding_width=1, dilation=1, groups=1, parameters=36864, **shape),
        Layer(1, "moved", "permute", inputs=(0,), **shape),
    ]  # fmt: skip
    layers += [Layer(2, "odd", "other", inputs=(1,), **shape)] if unknown else []
    return LayerTable("odd", 56, tuple(layers), warnings=(TableWarning("operator", "cumsum"),) * warned)


@pytest.mark.parametrize(("warned", "name"), [(True, "cumsum"), (False, "layers of type other")])
def test_the_answer_names_them_with_their_share_of_the_time(warned, name):
    rows = epochcast.predict(cnn(warned=warned), ["T4", "V100-SXM2-16GB"], [1, 64])
    for reasons in rows["extrapolates"]:
        [about] = [str(reason) for reason in reasons if "memory traffic" in reason.text]
        assert about.startswith(f"operator: {name} counted as memory traffic: ")
        assert 0 < int(about.split()[-5]) < 100
        assert not any("unknown cost" in reason.text for reason in reasons)


def test_a_cnn_without_them_has_no_such_reason_and_an_explanation_has_them_as_a_class_of_their_own():
    [reasons] = epochcast.predict(cnn(unknown=False, warned=False), "T4", 64)["extrapolates"]
    assert not any("memory traffic" in reason.text for reason in reasons)
    [explanation] = epochcast.explain(cnn(), "T4", [8, 64]).attrs["explanations"]
    assert {"memory traffic", "permute"} <= set(explanation.classes)
    total = [sum(values) for values in zip(*explanation.classes.values(), strict=True)]
    assert total == pytest.approx(explanation.gpu_time_ms)


@pytest.mark.parametrize("optimizer", ["adamw", "nadam", "rmsprop", "adadelta", "adagrad", "lamb"])
def test_an_optimizer_is_answered_with_its_states_and_passes_and_timms_with_a_doubt(optimizer):
    [row], [momentum] = (
        epochcast.predict("resnet18", "T4", 64, optimizer=name).to_dict("records")
        for name in (optimizer, "momentum")
    )
    assert row["gpu_time_ms"] > momentum["gpu_time_ms"]
    is_wider = row["high_ms"] / row["low_ms"] > 1.02 * momentum["high_ms"] / momentum["low_ms"]
    doubted = any(optimizer in str(why) for why in row["extrapolates"])
    assert (is_wider, doubted) == (optimizer == "lamb",) * 2
    one_state = optimizer in ("rmsprop", "adagrad")
    assert (row["peak_memory_gib"] == momentum["peak_memory_gib"]) == one_state
