"""The parts of an interval's width: what each is for, and that their sizes are found again."""

from dataclasses import astuple, replace

import numpy as np
import pytest

from predictor.catalogue.devices import find_gpu
from predictor.models.intervals import Calibration, Shares, Spread, fit_spread, generations_from

SPREAD = Spread(cnn=0.01, gpu=0.02, generation=0.03, host=0.5, enqueued=0.1, depthwise=0.2, unmeasured=0.7)
CNN_SPREAD = replace(SPREAD, kernel=0.4)
T4, RTX, H200, B200, P4 = (find_gpu(name) for name in ("T4", "RTX 2080 Ti", "H200", "B200", "P4"))


FACTORS = {"specifications": {"0.5": 0.7, "0.9": 1.6}, "new-cnn": {"0.5": 0.7, "0.9": 1.8}}
CALIBRATION = Calibration(
    ("Tesla T4",), ("a",), ("turing",), SPREAD, CNN_SPREAD, {"cnn": {}, "gpu": {}}, FACTORS
)


def shares(host=0.0, new_host=0.0, depthwise=0.0, unmeasured=0.0, kernel=0.0, shape=(1,)) -> Shares:
    values = (host, new_host, depthwise, unmeasured, kernel)
    return Shares(*(np.broadcast_to(np.asarray(value), shape) for value in values))


def width(gpu=T4, coverage=0.9, is_known=False, **of) -> float:
    return float(CALIBRATION.half_widths([gpu], [is_known], shares(**of), coverage)[0])


def test_a_new_gpu_never_has_a_narrower_interval_than_a_new_cnn_on_a_measured_one():
    of_cnn = np.hypot(1.8 * 0.1, 1.6 * 0.12)  # a new CNN, and another campaign
    assert width(is_known=True) == pytest.approx(of_cnn)
    assert width(P4) > of_cnn
    assert width(P4) == pytest.approx(np.hypot(of_cnn, 1.6 * np.sqrt(0.02 + 2 * 0.03)))
    nearly = replace(CALIBRATION, spread=Spread(cnn=0.01, gpu=0.0001), cnn_spread=Spread(cnn=0.01))
    measured, new = nearly.half_widths([P4, P4], [True, False], shares(shape=(2,)), 0.9)
    assert measured == pytest.approx(of_cnn)
    assert new == pytest.approx(np.hypot(of_cnn, 1.6 * 0.01))


def test_whatever_was_not_measured_widens_the_interval():
    """A new GPU, a far generation, a host, depthwise convolutions, kernels never measured, few of them."""
    measured, new, far, newest = CALIBRATION.half_widths(
        [T4, RTX, H200, B200], [False] * 4, shares(shape=(4,)), 0.9
    )
    assert measured < new < far < newest
    assert width() < width(host=0.5) < width(host=0.5, new_host=0.5)
    assert width() < width(depthwise=0.5)
    assert width() < width(unmeasured=0.02) < width(unmeasured=0.1)
    assert width(kernel=1 / 200) < width(kernel=1 / 20)
    assert width(coverage=0.5) < width(coverage=0.9)


def test_half_widths_have_the_shape_of_the_shares():
    share = np.array([[0.0, 0.1, 0.9], [0.0, 0.0, 0.0]])
    widths = CALIBRATION.half_widths([T4, P4], [False] * 2, shares(share, share, shape=share.shape), 0.9)
    assert widths.shape == (2, 3)
    assert (np.diff(widths[0]) > 0).all()


def test_generations_count_beyond_the_oldest_and_the_newest_measured_one():
    gpus = [T4, find_gpu("V100-SXM2-16GB"), find_gpu("K80"), H200]
    assert generations_from(gpus, {"turing", "maxwell"}).tolist()[:3] == [0.0, 0.0, 1.0]
    assert generations_from([H200], {"turing", "maxwell"})[0] > 1
    assert generations_from([T4], set()).tolist() == [0.0]


def test_the_parts_are_found_again_in_simulated_residuals():
    rng, n = np.random.default_rng(0), 40_000
    is_new, steps = rng.integers(0, 2, n).astype(float), rng.integers(0, 3, n).astype(float)
    host, depthwise, unmeasured = (np.where(rng.random(n) < 0.5, rng.random(n), 0.0) for _ in range(3))
    new_host = np.where(rng.random(n) < 0.5, host, 0.0)
    of = Shares(host, new_host, depthwise, unmeasured, 1.0 / rng.integers(2, 50, n))
    true = (0.01, 0.02, 0.03, 0.05, 0.04, 0.06, 0.3, 0.4)
    residual = rng.standard_normal(n) * np.sqrt(Spread(*true).variance(is_new > 0, steps, of))
    fitted = fit_spread(is_new, steps, of, residual, np.ones(n))
    assert astuple(fitted) == pytest.approx(true, rel=0.35)


def test_a_part_of_which_the_rows_say_nothing_keeps_its_usual_size():
    """None has depthwise convolutions, new kernels or a GPU beyond the measured generations."""
    nothing = np.zeros(500)
    residual = 0.1 * np.random.default_rng(0).standard_normal(500)
    fitted = fit_spread(nothing, nothing, Shares(*[nothing] * 5), residual, np.ones(500))
    assert fitted.cnn == pytest.approx(0.01, rel=0.3)
    assert (fitted.depthwise, fitted.generation, fitted.unmeasured) == pytest.approx((0.35, 0.04, 0.7))


def test_a_calibration_read_from_its_json_is_the_same():
    again = Calibration.from_json(CALIBRATION.to_json())
    share = np.array([0.0, 0.3, 0.6])
    arguments = ([T4, P4, B200], [True, False, False], Shares(*[share] * 5), 0.9)
    assert again.half_widths(*arguments).tolist() == CALIBRATION.half_widths(*arguments).tolist()


def test_half_precision_on_a_gpu_never_measured_has_an_interval_1_5_times_as_wide():
    gpus, is_half = [P4, P4, T4], [False, True, True]
    plain, half, measured = CALIBRATION.half_widths(gpus, [False] * 3, shares(shape=(3,)), 0.9, is_half)
    assert half == pytest.approx(1.5 * plain)
    assert measured == pytest.approx(width())
