"""How GPU and host join to an iteration."""

import numpy as np
import pytest

from predictor.models.join import LAUNCHED, change_host, join_host, join_shares


def joined(gpu_ms, host_ms):
    return float(join_host(np.array([gpu_ms]), np.array([host_ms]))[0])


def test_a_host_of_half_the_gpus_time_hardly_shows():
    assert joined(100.0, 50.0) == pytest.approx(LAUNCHED * 100.0, rel=1e-2)


def test_a_gpu_of_half_the_hosts_time_hardly_shows():
    assert joined(50.0, 100.0) == pytest.approx(100.0, rel=1e-2)


def test_where_both_are_equal_the_iteration_is_a_sixth_longer():
    assert joined(100.0, 100.0) == pytest.approx(116.0, abs=0.1)


def test_without_a_host_the_iteration_is_the_gpus_time():
    assert joined(100.0, 0.0) == 100.0


def test_times_of_any_size_join():
    assert joined(1e70, 1e70) == pytest.approx(1e70 * joined(1.0, 1.0))


def test_shares_are_the_slopes_of_the_joined_time():
    gpu, host, step = np.array([3.0, 10.0]), np.array([4.0, 2.0]), 1e-6
    by_gpu, by_host = join_shares(gpu, host)
    before = join_host(gpu, host)
    assert by_gpu == pytest.approx(np.log(join_host(gpu * (1 + step), host) / before) / step, rel=1e-4)
    assert by_host == pytest.approx(np.log(join_host(gpu, host * (1 + step)) / before) / step, rel=1e-4)


def test_another_host_gives_what_gpu_and_that_host_join_to():
    gpu, before, after = np.array([5.0, 5.0]), np.array([4.0, 0.5]), np.array([9.0, 1.0])
    assert change_host(join_host(gpu, before), before, after) == pytest.approx(join_host(gpu, after))
