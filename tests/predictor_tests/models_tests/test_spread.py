"""The parts of an interval's width: what each is for, and that their sizes are found again."""

import numpy as np
import pytest

from predictor.catalogue.devices import find_gpu
from predictor.errors import OutOfRangeError
from predictor.models.intervals import (
    Calibration,
    Spread,
    fit_spread,
    generations_from,
    interval_factor,
)

SPREAD = Spread(cnn=0.01, gpu=0.02, generation=0.03, host=0.5)
T4, H200, B200, P4 = (find_gpu(name) for name in ("T4", "H200", "B200", "P4"))


def calibration() -> Calibration:
    factors = {"specifications": {"0.5": 0.7, "0.9": 1.6}}
    return Calibration(("Tesla T4",), ("a",), ("turing",), SPREAD, {"cnn": {}, "gpu": {}}, factors)


def test_a_measured_gpu_on_a_measured_machine_has_the_cnns_part_alone():
    assert calibration().half_widths([T4], np.zeros(1), 0.9)[0] == pytest.approx(1.6 * 0.1)


def test_a_new_gpu_a_far_generation_and_an_unknown_host_each_widen_the_interval():
    known, new, far, newest = calibration().half_widths([T4, P4, H200, B200], np.zeros(4), 0.9)
    assert known < new < far < newest
    assert calibration().half_widths([T4], np.array([0.5]), 0.9)[0] > known


def test_half_widths_have_the_shape_of_the_hosts_shares():
    share = np.array([[0.0, 0.1, 0.9], [0.0, 0.0, 0.0]])
    found = calibration().half_widths([T4, P4], share, 0.9)
    assert found.shape == (2, 3)
    assert (np.diff(found[0]) > 0).all()


def test_a_higher_coverage_is_a_wider_interval():
    half, most = (calibration().half_widths([T4], np.zeros(1), coverage)[0] for coverage in (0.5, 0.9))
    assert half < most


def test_generations_are_counted_from_the_nearest_measured_one():
    assert generations_from(
        [T4, find_gpu("V100-SXM2-16GB"), find_gpu("K80")], {"turing", "maxwell"}
    ).tolist() == [
        0.0,
        1.0,
        1.0,
    ]
    assert generations_from([T4], set()).tolist() == [0.0]


def test_the_parts_are_found_again_in_simulated_residuals():
    rng, n = np.random.default_rng(0), 40_000
    is_new, steps = rng.integers(0, 2, n).astype(float), rng.integers(0, 3, n).astype(float)
    share = np.where(rng.random(n) < 0.5, rng.random(n), 0.0)
    residual = rng.standard_normal(n) * np.sqrt(
        Spread(0.01, 0.02, 0.03, 0.05).variance(is_new > 0, steps, share)
    )
    found = fit_spread(is_new, steps, share, residual, np.ones(n))
    assert (found.cnn, found.gpu, found.generation, found.host) == pytest.approx(
        (0.01, 0.02, 0.03, 0.05), rel=0.35
    )


def test_every_machine_weighs_the_same_in_a_factor():
    residual = np.concatenate([np.full(1000, 0.1), np.full(10, 1.0)])
    weight = np.concatenate([np.full(1000, 1 / 1000), np.full(10, 1 / 10)])
    assert interval_factor(residual, np.ones(1010), 0.8) == pytest.approx(0.1)
    assert interval_factor(residual, np.ones(1010), 0.8, weight) == pytest.approx(1.0)


def test_a_calibration_read_from_its_json_is_the_same():
    again = Calibration.from_json(calibration().to_json())
    asked = ([T4, P4, B200], np.array([0.0, 0.3, 0.6]), 0.9)
    assert again.half_widths(*asked).tolist() == calibration().half_widths(*asked).tolist()


def test_without_anything_held_out_no_interval_is_given():
    with pytest.raises(OutOfRangeError, match=r"has one CNN \(a\) on one chip \(Tesla T4\)"):
        Calibration(("Tesla T4",), ("a",)).half_widths([T4], np.zeros(1), 0.9)
