"""Curves over batch sizes: linear in between, flat beyond, and no batch size looked at that does not matter."""

import numpy as np
import pytest

from predictor.models.layer_times.interpolation import Curves, between, needed

SIZES = np.array([4.0, 16.0, 64.0, 256.0])
VALUES = np.array([[1.0, 2.0, 4.0, 8.0], [np.nan, 5.0, np.nan, 7.0], [np.nan] * 4])


@pytest.fixture
def curves():
    return Curves.of(SIZES, np.isfinite(VALUES))


def _along(curves, row, *sizes):
    values, beyond = curves.along(np.array([row]), VALUES[[row]], np.array(sizes))
    return list(values[0].round(12)), list(beyond[0])


def test_between_two_known_batch_sizes_a_curve_is_linear_in_the_logarithm(curves):
    assert _along(curves, 0, 4.0, 8.0, 32.0) == ([1.0, 1.5, 3.0], [False] * 3)


def test_each_row_is_joined_between_the_batch_sizes_that_it_is_known_at(curves):
    assert _along(curves, 1, 16.0, 64.0, 256.0) == ([5.0, 6.0, 7.0], [False] * 3)


def test_beyond_its_ends_a_curve_is_flat_and_says_so(curves):
    assert _along(curves, 1, 4.0, 512.0) == ([5.0, 7.0], [-1, 1])


def test_where_nothing_is_known_a_curve_is_zero(curves):
    assert _along(curves, 2, 16.0) == ([0.0], [False])


@pytest.mark.parametrize(
    ("batch_sizes", "positions"),
    [([64], [2]), ([20], [1, 2]), ([4, 256], [0, 3]), ([1], [0]), ([1000], [3]), ([5, 300], [0, 1, 3])],
)
def test_only_the_batch_sizes_around_those_asked_about_are_needed(batch_sizes, positions):
    assert list(needed(np.log(SIZES), np.log(batch_sizes))) == positions


def test_what_is_needed_answers_as_all_batch_sizes_do():
    at, log_sizes, values = np.log(SIZES), np.log(np.array([1.0, 4.0, 9.0, 64.0, 900.0])), VALUES[:1]
    for subset in (log_sizes, *log_sizes[:, None]):
        used = needed(at, subset)
        np.testing.assert_array_equal(between(at[used], subset, values[:, used]), between(at, subset, values))
