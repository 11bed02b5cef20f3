"""How GPU and host join to an iteration."""

import numpy as np
import pytest

from predictor.models.join import LAUNCHED, change_host, join_host, join_shares, sharpness_of


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
