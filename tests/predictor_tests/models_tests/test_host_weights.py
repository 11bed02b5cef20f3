"""The host's weights: learned from whole CNNs, with sums of gradients counted as those CNNs say."""

import numpy as np
import pytest

from predictor.models.join import LAUNCHED, change_host, join_host, join_shares, sharpness_of
from predictor.models.layer_times.fit import _Design, _with_host
from predictor.models.layer_times.law import SummingLaw

N_ROWS = 12
CNNS = np.repeat(
    ["alexnet", "densenet", "googlenet", "inception", "resnet18", "resnet50", "shufflenet", "vgg"], N_ROWS
)
N_LAYERS = np.repeat([25.0, 480.0, 200.0, 320.0, 70.0, 175.0, 190.0, 40.0], N_ROWS)
N_GRADIENTS = np.repeat([0.0, 480.0, 27.0, 30.0, 8.0, 16.0, 16.0, 0.0], N_ROWS)
LAYERS_MS = np.repeat([0.15, 0.12, 0.2, 0.18, 0.16, 0.25, 0.11, 0.19], N_ROWS) * N_LAYERS
GRADIENTS_MS = 0.008 * N_GRADIENTS
APART = 0.1 * LAYERS_MS + 0.05 * N_LAYERS + GRADIENTS_MS + 1.0
TOGETHER = 0.1 * (LAYERS_MS + GRADIENTS_MS) + 0.05 * (N_LAYERS + N_GRADIENTS) + 1.0


def design(host_ms):
    n = len(CNNS)
    together = np.column_stack([LAYERS_MS + GRADIENTS_MS, np.zeros(n), N_LAYERS + N_GRADIENTS])
    apart = np.column_stack([LAYERS_MS, GRADIENTS_MS, N_LAYERS])
    parts = np.stack([together, apart], axis=1)
    return _Design(np.ones((n, 1)), np.ones(n), parts, host_ms, np.zeros(n), CNNS)


def told(law):
    own, added, n = design(APART).host_parts[:, int(law.gradients_apart)].T
    return law.host_weight * own + added + law.host_operator_ms * n + law.host_iteration_ms


def test_sums_of_gradients_count_apart_or_as_other_operators_whichever_is_nearer_to_cnns_left_out():
    for host_ms, apart in ((APART, True), (TOGETHER, False)):
        law = _with_host(SummingLaw(), design(host_ms))
        assert law.gradients_apart == apart
        np.testing.assert_allclose(told(law), host_ms, rtol=0.1)


def test_one_iteration_that_waited_for_a_full_queue_does_not_bend_the_weights():
    stuck = APART.copy()
    stuck[0] *= 4
    usual, bent = (_with_host(SummingLaw(), design(host_ms)) for host_ms in (APART, stuck))
    np.testing.assert_allclose(told(bent), told(usual), rtol=0.05)


def test_where_no_host_time_is_known_the_law_stays_as_it_was():
    prior = SummingLaw(host_weight=0.7)
    assert _with_host(prior, design(np.full(len(CNNS), np.nan))) == prior


def test_the_longer_time_decides_and_equal_ones_add_a_sixth_whatever_their_size():
    joined = join_host(np.array([100.0, 50.0, 100.0, 1e70]), np.array([50.0, 100.0, 100.0, 1e70]))
    assert joined[:2] == pytest.approx([LAUNCHED * 100.0, 100.0], rel=1e-2)
    assert joined[2] == pytest.approx(116.0, abs=0.1)
    assert joined[3] == pytest.approx(1e68 * joined[2])
    assert join_host(np.array([100.0]), np.zeros(1)) == [100.0]


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_shares_are_the_slopes_of_the_joined_time(framework):
    gpu, host, step, sharpness = np.array([3.0, 10.0]), np.array([4.0, 2.0]), 1e-6, sharpness_of(framework)
    before = join_host(gpu, host, sharpness)
    shares = join_shares(gpu, host, sharpness)
    for share, longer in zip(shares, ((gpu * (1 + step), host), (gpu, host * (1 + step))), strict=True):
        assert share == pytest.approx(np.log(join_host(*longer, sharpness) / before) / step, rel=1e-4)


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_another_host_gives_what_gpu_and_that_host_join_to(framework):
    gpu, before, after = np.array([5.0, 5.0]), np.array([4.0, 0.5]), np.array([9.0, 1.0])
    sharpness = sharpness_of(framework)
    changed = change_host(join_host(gpu, before, sharpness), before, after, sharpness)
    assert changed == pytest.approx(join_host(gpu, after, sharpness))


def test_tensorflow_overlaps_gpu_and_host_less():
    equal = np.array([100.0])
    assert join_host(equal, equal, sharpness_of("tensorflow"))[0] > 1.5 * 100.0
