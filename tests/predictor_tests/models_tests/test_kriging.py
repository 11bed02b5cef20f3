"""Kriging of residuals, the variances that it needs, and the width of intervals."""

import numpy as np
import pytest

from predictor.answers.answer import predict
from predictor.catalogue.devices import find_gpu
from predictor.cnns.zoo import zoo_cnn
from predictor.models import residuals
from predictor.models.forecast import Anchor
from predictor.models.intervals import fit_variances, interval_factor
from predictor.stopping import stopped_by

VARIANCES = dict.fromkeys(residuals.PARTS, 0.01)


def sites(*cells: tuple[str, str, int, float]) -> residuals.Locations:
    gpus, cnns, images, batches = zip(*cells, strict=True)
    return residuals.Locations([find_gpu(g) for g in gpus], cnns, images, batches, ["fp32"] * len(cells))


def test_without_measurements_nothing_is_corrected_and_one_without_noise_is_met():
    site = sites(("T4", "a", 224, 32))
    mean, variance = residuals.gp_posterior(site.take(np.array([], dtype=int)), np.array([]), site, VARIANCES)
    assert mean.tolist() == [0.0]
    assert variance[0] == pytest.approx(residuals.prior_variance(VARIANCES))
    mean, variance = residuals.gp_posterior(site, np.array([0.2]), site, {**VARIANCES, "noise": 0.0})
    assert mean[0] == pytest.approx(0.2, rel=1e-3)
    assert variance[0] < 1e-4


def test_the_nearer_measurement_tells_more():
    measured, v100 = sites(("T4", "a", 224, 32)), "V100-SXM2-16GB"
    unmeasured = sites(("T4", "a", 224, 64), (v100, "a", 224, 64), (v100, "b", 224, 64))
    mean, variance = residuals.gp_posterior(measured, np.array([0.2]), unmeasured, VARIANCES)
    assert mean[0] > mean[1] > mean[2] == 0.0
    assert variance[0] < variance[1] < variance[2]


def test_the_variance_never_falls_below_the_noise():
    site = sites(*[("T4", "a", 224, 32.0)] * 20)
    _, variance = residuals.gp_posterior(site, np.full(20, 0.1), site, VARIANCES)
    assert (variance >= VARIANCES["noise"]).all()


def test_a_residual_counts_in_full_up_to_six_deviations_and_no_more_beyond():
    site = sites(("T4", "a", 224, 32))
    deviation = np.sqrt(residuals.prior_variance(VARIANCES))
    once, five, outermost, wild = (
        residuals.gp_posterior(site, np.array([n * deviation]), site, VARIANCES)[0][0] for n in (1, 5, 6, 500)
    )
    assert five == pytest.approx(5 * once)
    assert wild == pytest.approx(outermost)


def corrected(runs, batch_sizes=None, parts=VARIANCES):
    """Mean and variance at batch sizes on a T4, given runs of (batch size, residual) there."""
    sizes, residual = zip(*runs, strict=True)
    anchors = [Anchor("Tesla T4", size, 1.0) for size in sizes]
    measured = residuals.Runs(zoo_cnn("resnet18"), anchors, np.array(residual))
    batch_sizes = np.array(sizes if batch_sizes is None else batch_sizes, dtype=float)
    parts = dict(parts)
    noise = np.full(batch_sizes.size, parts.pop("noise"))
    return measured.correction(find_gpu("T4"), batch_sizes, parts, np.ones(batch_sizes.size), noise)


def test_runs_are_met_however_far_they_lie_averaged_at_one_place_and_make_the_rest_less_certain():
    mean, variance = corrected([(32, np.log(10.0))])
    assert np.exp(mean[0]) == pytest.approx(10.0, rel=0.01)
    assert variance[0] >= VARIANCES["noise"]
    assert corrected([(32, 0.9), (32, 1.1)])[0] == pytest.approx([1.0, 1.0], rel=0.01)
    usual, wild = (corrected([(32, r)], [256])[1][0] for r in (0.1, 2.0))
    assert wild > 5 * usual


def test_runs_correct_as_the_inverse_of_their_covariance_says():
    rng = np.random.default_rng(0)
    sizes, other_sizes = np.arange(2, 302, 2), (3, 71, 30_001)
    residual = 0.2 * rng.standard_normal(sizes.size)
    measured, unmeasured = (
        sites(*[("T4", "a", 224, size) for size in batch_sizes]) for batch_sizes in (sizes, other_sizes)
    )
    parts = {"gpu": 0.02, "cnn_image": 0.03, "series": 0.01}
    of_pairs = [residuals.covariances(locations, measured) for locations in (measured, unmeasured)]
    among, across = (sum(parts[name] * correlations[name] for name in parts) for correlations in of_pairs)
    solved = np.linalg.solve(among + 0.004 * np.eye(sizes.size), np.column_stack([across.T, residual]))
    left = 0.064 - (across * solved[:, :3].T).sum(axis=1)
    surprise = residual @ solved[:, 3] / sizes.size
    runs = list(zip(sizes.tolist(), residual, strict=True))
    mean, variance = corrected(runs, other_sizes, parts | {"noise": 0.004})
    assert mean == pytest.approx(across @ solved[:, 3], rel=1e-8)
    assert variance == pytest.approx(left * max(1.0, surprise), rel=1e-8)


def test_ten_thousand_runs_need_no_matrix_of_their_pairs(monkeypatch):
    compared, covariances = [], residuals.covariances

    def counted(a, b):
        compared.append(len(a) * len(b))
        return covariances(a, b)

    monkeypatch.setattr(residuals, "covariances", counted)
    corrected([(size, 0.1) for size in range(1, 10_001)], [32, 64])
    assert sum(compared) < 200 * 10_000  # of 10_000 * 10_000


def test_a_correction_ends_when_it_is_stopped():
    def stop():
        raise TimeoutError

    with pytest.raises(TimeoutError), stopped_by(stop):
        corrected([(size, 0.1) for size in range(1, 100)])


def test_many_runs_far_from_the_model_are_one_reason_that_names_the_farthest():
    anchors = [Anchor("Tesla T4", size, 1.0) for size in (8, 16, 32)]
    (reason,) = residuals.far_anchors(anchors, np.log([5.0, 9.0, 1.0]), 0.01)
    assert str(reason).startswith("anchor: 9 times the model's own time on Tesla T4 at batch 16 (and 1 more)")


def test_variances_are_found_again_in_simulated_residuals():
    rng = np.random.default_rng(0)
    cnns = [f"cnn{i}" for i in range(40)]
    grid = [("T4", cnn, 224, batch) for cnn in cnns for batch in (16.0, 64.0, 256.0)]
    by_cnn = np.repeat(0.3 * rng.standard_normal(len(cnns)), 3)
    variances = fit_variances(sites(*grid), by_cnn + 0.05 * rng.standard_normal(len(grid)), ("cnn", "noise"))
    assert variances["cnn"] == pytest.approx(0.09, rel=0.5)
    assert variances["noise"] == pytest.approx(0.0025, rel=0.5)


def test_an_interval_factor_is_the_normal_quantile_of_normal_residuals_and_machines_weigh_the_same_in_it():
    residual = 0.1 * np.random.default_rng(0).standard_normal(5000)
    assert interval_factor(residual, np.full(5000, 0.01), 0.9) == pytest.approx(1.645, rel=0.05)
    residual, weight = (np.repeat(values, [1000, 10]) for values in ((0.1, 1.0), (1 / 1000, 1 / 10)))
    assert interval_factor(residual, np.ones(1010), 0.8) == pytest.approx(0.1)
    assert interval_factor(residual, np.ones(1010), 0.8, weight) == pytest.approx(1.0)


def test_what_belongs_to_the_batch_size_alone_is_met_there_and_carried_less(monkeypatch):
    plain, _ = corrected([(256, 0.6)], [64])
    monkeypatch.setattr("predictor.models.residuals._short_of_memory", lambda *_: np.ones(1))
    mean, variance = corrected([(256, 0.6)], [256, 64])
    assert mean[0] == pytest.approx(0.6, rel=0.01)
    assert 0 < mean[1] < plain[0] / 2
    assert variance[0] < variance[1]


def test_a_run_that_leaves_little_memory_says_less_of_other_batch_sizes():
    def moved(batch_size):
        anchor = {"gpu": "T4", "batch_size": batch_size}
        plain, usual = (predict("resnet50", "T4", size, method="roofline")[0] for size in (batch_size, 32))
        anchor["iteration_time_ms"] = 1.5 * plain.iteration_time_ms
        (anchored,) = predict("resnet50", "T4", 32, anchors=[anchor])
        return np.log(anchored.iteration_time_ms / usual.iteration_time_ms)

    fits, short = 140, 160  # of 15 GiB, with and without a tenth left
    assert 0 < moved(short) < 0.8 * moved(fits)
