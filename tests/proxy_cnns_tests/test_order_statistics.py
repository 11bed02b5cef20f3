"""Medians and their confidence interval, beside NumPy and beside what the interval promises."""

from math import inf

import numpy as np
import pytest

from proxy_cnns.order_statistics import FEWEST, median, median_uncertainty, quantile


@pytest.mark.parametrize("n", [1, 2, 5, 6, 30, 31])
@pytest.mark.parametrize("share", [0, 0.25, 0.5, 0.9, 1])
def test_quantiles_are_numpys(n, share):
    values = np.random.default_rng(n).random(n).tolist()
    assert quantile(values, share) == pytest.approx(np.quantile(values, share))


def test_five_values_have_no_interval():
    assert median_uncertainty([1.0] * (FEWEST - 1)) == inf


def test_the_interval_of_six_values_goes_from_the_least_to_the_most():
    assert median_uncertainty([1, 2, 3, 4, 5, 6]) == pytest.approx(2.5 / 3.5)


@pytest.mark.parametrize("n", [6, 9, 15, 30, 250])
def test_the_interval_holds_the_true_median_at_least_nineteen_times_in_twenty(n):
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        values = sorted(1 + draw.exponential(size=n))
        half = median_uncertainty(values) * median(values)
        low = next(value for value in values for other in values if abs((other - value) / 2 - half) < 1e-12)
        held += low <= 1.6931471805599453 <= low + 2 * half
    assert held / 2000 >= 0.94


def test_the_median_of_equal_times_is_known_exactly():
    assert median_uncertainty([2.0] * 10) == 0
