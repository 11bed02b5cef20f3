"""Medians, quantiles and the confidence interval of a median, in plain Python."""

from collections.abc import Sequence
from functools import lru_cache
from math import comb, floor, inf, sqrt

__all__ = ["FEWEST", "median", "median_uncertainty", "quantile"]

FEWEST = 6
"""With fewer repeats there is no 95 % interval: smallest and largest of five hold the median in 93.8 %."""

_EXACT = 200  # repeats up to which the binomial distribution is summed


def median(values: Sequence[float]) -> float:
    """Middle of `values`, of an even number the mean of both middle ones."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], share: float) -> float:
    """Value below which this share lies, interpolated linearly as NumPy does by default."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def median_uncertainty(values: Sequence[float]) -> float:
    """Half the width of the 95 % confidence interval of the median, relative to the median.

    Returns
    -------
    float
        Infinite for fewer than `FEWEST` values.

    Notes
    -----
    Distribution-free interval between order statistics k and n + 1 - k: it holds the median with probability
    1 - 2 P(B <= k - 1), B binomial with n trials of 1/2; k is the largest with at least 95 % (David and
    Nagaraja, Order Statistics, section 7.1).
    """
    if len(values) < FEWEST:
        return inf
    ordered = sorted(values)
    rank = _rank(len(ordered))
    return (ordered[-rank] - ordered[rank - 1]) / 2 / median(ordered)


@lru_cache(maxsize=1000)
def _rank(n: int) -> int:
    if n > _EXACT:
        return floor(n / 2 - 0.98 * sqrt(n))
    below, rank = 0, 0
    while 2 * (below + comb(n, rank)) <= 0.05 * 2**n:
        below += comb(n, rank)
        rank += 1
    return rank
