"""Intervals of sums of measured layers: wider where less was measured, and named."""

import numpy as np
import pytest

from predictor.anchor_kriging import layer_variances
from predictor.layer_law import CLASSES, LayerLaw, LayerSums
from predictor.operator_library import BEYOND, FARAWAY, NEAR, UNKNOWN


def sums(**shares):
    kinds = {"near": NEAR, "beyond": BEYOND, "far": FARAWAY, "unknown": UNKNOWN}
    told = {kind: np.array([shares.get(name, 0.0)]) for name, kind in kinds.items()}
    names = {kind: ("permute_8x4x4_8x4x4_g2",) if told[kind][0] else () for kind in kinds.values()}
    return LayerSums(np.ones((len(CLASSES), 1)), 1.0, 10.0, told, names)


LAW = LayerLaw(spread=0.03, spread_near=0.12, spread_strange=0.5)


def test_all_measured_has_the_narrowest_interval():
    assert LAW.half_width(sums())[0] == pytest.approx(0.03)


@pytest.mark.parametrize("share", ["near", "beyond", "far", "unknown"])
def test_whatever_was_not_measured_widens_the_interval(share):
    assert LAW.half_width(sums(**{share: 0.3}))[0] > LAW.half_width(sums(**{share: 0.1}))[0] > 0.03


def test_an_operator_of_unknown_type_is_named_and_widens_by_its_whole_share():
    near, unknown = sums(near=0.2), sums(unknown=0.2)
    assert LAW.half_width(unknown)[0] == pytest.approx(LAW.half_width(near)[0] + 0.2)
    assert "permute never measured" in unknown.reasons()[0][0]


def test_measurements_of_a_cnn_leave_the_roughness_between_batch_sizes():
    assert layer_variances(0.01, 0.02)["noise"] == pytest.approx(0.001)
    assert layer_variances(0.0001, 0.02)["noise"] == pytest.approx(0.0004)
