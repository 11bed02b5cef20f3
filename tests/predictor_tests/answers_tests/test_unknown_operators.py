"""Operators of unknown cost are counted as memory traffic, and the answer says what share of the time that is."""

import pytest

import epochcast
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable, TableWarning


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
