"""Kriging of residuals, the variances that it needs, and the width of intervals."""

import numpy as np
import pytest

from predictor.answers.answer import predict
from predictor.catalogue.devices import find_gpu
from predictor.models.intervals import fit_variances, interval_factor
from predictor.models.residuals import PARTS, Locations, gp_posterior, prior_variance

VARIANCES = dict.fromkeys(PARTS, 0.01)


def sites(*cells: tuple[str, str, int, float]) -> Locations:
    gpus, cnns, images, batches = zip(*cells, strict=True)
    return Locations([find_gpu(g) for g in gpus], cnns, images, batches, ["fp32"] * len(cells))


def test_without_measurements_nothing_is_corrected():
    asked = sites(("T4", "a", 224, 32))
    mean, variance = gp_posterior(asked.take(np.array([], dtype=int)), np.array([]), asked, VARIANCES)
    assert mean.tolist() == [0.0]
    assert variance[0] == pytest.approx(prior_variance(VARIANCES))


def test_a_measurement_without_noise_is_met():
    known = sites(("T4", "a", 224, 32))
    exact = {**VARIANCES, "noise": 0.0}
    mean, variance = gp_posterior(known, np.array([0.2]), known, exact)
    assert mean[0] == pytest.approx(0.2, rel=1e-3)
    assert variance[0] < 1e-4


def test_the_nearer_measurement_tells_more():
    known = sites(("T4", "a", 224, 32))
    asked = sites(("T4", "a", 224, 64), ("V100-SXM2-16GB", "a", 224, 64), ("V100-SXM2-16GB", "b", 224, 64))
    mean, variance = gp_posterior(known, np.array([0.2]), asked, VARIANCES)
    assert mean[0] > mean[1] > mean[2] == 0.0
    assert variance[0] < variance[1] < variance[2]


def test_the_variance_never_falls_below_the_noise():
    known = sites(*[("T4", "a", 224, 32.0)] * 20)
    _, variance = gp_posterior(known, np.full(20, 0.1), known, VARIANCES)
    assert (variance >= VARIANCES["noise"]).all()


def test_a_bad_cell_of_a_table_counts_no_more_than_six_deviations():
    known = sites(("T4", "a", 224, 32))
    deviation = np.sqrt(prior_variance(VARIANCES))
    wild, outermost = (
        gp_posterior(known, np.array([r]), known, VARIANCES)[0][0] for r in (50.0, 6 * deviation)
    )
    assert wild == pytest.approx(outermost)


def test_a_residual_of_five_deviations_counts_in_full():
    known = sites(("T4", "a", 224, 32))
    deviation = np.sqrt(prior_variance(VARIANCES))
    once, large = (gp_posterior(known, np.array([n * deviation]), known, VARIANCES)[0][0] for n in (1, 5))
    assert large == pytest.approx(5 * once)


def test_a_measurement_of_ones_own_is_met_however_far_it_lies():
    known = sites(("T4", "a", 224, 32))
    mean, variance = gp_posterior(known, np.array([np.log(10.0)]), known, VARIANCES, trusted=True)
    assert np.exp(mean[0]) == pytest.approx(10.0, rel=0.01)
    assert variance[0] >= VARIANCES["noise"]


def test_two_measurements_of_ones_own_at_one_place_are_averaged():
    known = sites(("T4", "a", 224, 32), ("T4", "a", 224, 32))
    mean, _ = gp_posterior(known, np.array([0.9, 1.1]), known.take(np.array([0])), VARIANCES, trusted=True)
    assert mean[0] == pytest.approx(1.0, rel=0.01)


def test_a_measurement_beyond_the_variances_makes_the_rest_less_certain():
    known, asked = sites(("T4", "a", 224, 32)), sites(("T4", "a", 224, 256))
    usual, wild = (
        gp_posterior(known, np.array([r]), asked, VARIANCES, trusted=True)[1][0] for r in (0.1, 2.0)
    )
    assert wild > 5 * usual


def test_variances_are_found_again_in_simulated_residuals():
    rng = np.random.default_rng(0)
    cnns = [f"cnn{i}" for i in range(40)]
    grid = [("T4", cnn, 224, batch) for cnn in cnns for batch in (16.0, 64.0, 256.0)]
    by_cnn = np.repeat(0.3 * rng.standard_normal(len(cnns)), 3)
    found = fit_variances(sites(*grid), by_cnn + 0.05 * rng.standard_normal(len(grid)), ("cnn", "noise"))
    assert found["cnn"] == pytest.approx(0.09, rel=0.5)
    assert found["noise"] == pytest.approx(0.0025, rel=0.5)


def test_the_interval_factor_of_normal_residuals_is_the_normal_quantile():
    residual = 0.1 * np.random.default_rng(0).standard_normal(5000)
    assert interval_factor(residual, np.full(5000, 0.01), 0.9) == pytest.approx(1.645, rel=0.05)


def test_what_belongs_to_the_batch_size_alone_is_met_there_and_carried_less():
    known, asked = sites(("T4", "a", 224, 256)), sites(("T4", "a", 224, 256), ("T4", "a", 224, 64))
    residual = np.array([0.6])
    plain, _ = gp_posterior(known, residual, asked, VARIANCES, trusted=True)
    mean, variance = gp_posterior(known, residual, asked, VARIANCES, trusted=True, local=np.array([0.1]))
    assert mean[0] == pytest.approx(0.6, rel=0.01)
    assert 0 < mean[1] < plain[1] / 2
    assert variance[0] < variance[1]


def test_a_run_that_leaves_little_memory_says_less_of_other_batch_sizes():
    def moved(batch_size):
        anchor = {"gpu": "T4", "batch_size": batch_size}
        plain, usual = (predict("resnet50", "T4", size, method="roofline")[0] for size in (batch_size, 32))
        anchor["iteration_time_ms"] = 1.5 * plain.iteration_time_ms
        (found,) = predict("resnet50", "T4", 32, anchors=[anchor])
        return np.log(found.iteration_time_ms / usual.iteration_time_ms)

    fits, short = 160, 180  # of 15 GiB, with and without a tenth left
    assert 0 < moved(short) < 0.8 * moved(fits)
