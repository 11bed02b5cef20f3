"""What a measurement is worth: the expected regret of renting now, and what is left of it after one run there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from predictor.answers.question import Plan
from predictor.answers.ranking import ComparisonRow
from predictor.arrays import Array

MINUTES = 3.0
"""Of a machine, for a profile or some hundred iterations of the CNN."""

WORTH_MEASURING_H = 10 * MINUTES / 60
"""Least hours of a training that is worth measuring before: the measurement takes a tenth of it at most."""

ERRORS_ALIKE = 0.3
"""Correlation of two GPUs' errors about one CNN: 0.32 with the GPU held out, 0.55 with the CNN (PROFET); with the lower
one the regrets that are expected are those that are paid (tag `campaigns`)."""

_CORRECTED = 0.5  # share of a measured GPU's error that answers on GPUs without measurements follow
_REPEATS = 0.04  # standard deviation of ln time that a run leaves on its own GPU
_NORMAL = 2 * 1.645  # standard deviations between the ends of a 90 % interval
_MOST = 10  # rows that are looked at: dearer ones are hardly ever the cheapest
_DRAWS = 1000


@lru_cache(_MOST)  # 96 kB each at most
def _drawn(n: int) -> Array:
    """Draws of a standard normal, (`_DRAWS`, n), alike for all who read them."""
    drawn = np.random.default_rng(0).standard_normal((_DRAWS, n))
    drawn.flags.writeable = False
    return drawn


@dataclass(frozen=True, slots=True)
class Measuring:
    """What `minutes` on the best row's GPU are worth before it is rented for the whole training.

    Renting it now costs `regret_usd` more than the cheapest choice would, on average over the intervals;
    `regret_after_usd` is left if a run there, for `price_usd`, may change the choice.
    """

    minutes: float
    price_usd: float
    regret_usd: float
    regret_after_usd: float


def expected_regrets(cost_usd: Array, spread: Array) -> tuple[float, float]:
    """Expected US$ above the cheapest row: of taking the first one now, and of the choice after a run of it.

    `cost_usd` is the median cost of each row, `spread` the standard deviation of its logarithm.

    Logarithms of costs are normal, with `ERRORS_ALIKE` as correlation of any two. A run is known to 4 %, and moves the
    other rows by half of its error, as answers with an anchor do. A thousand draws of one seed.
    """
    n = len(cost_usd)
    drawn = _drawn(n + 2)
    own, together = drawn[:, :n], drawn[:, n : n + 1]
    errors = spread * (math.sqrt(ERRORS_ALIKE) * together + math.sqrt(1 - ERRORS_ALIKE) * own)
    costs = cost_usd * np.exp(errors)
    chosen = choices_after(cost_usd, spread, errors[:, 0] + _REPEATS * drawn[:, -1])
    least, draw = costs.min(axis=1), np.arange(_DRAWS)
    return float((costs[:, 0] - least).mean()), float((costs[draw, chosen] - least).mean())


def choices_after(cost_usd: Array, spread: Array, error: Array) -> NDArray[np.int64]:
    """Index of the cheapest row for each value of `error`, the logarithm by which a run of the first row was off."""
    follows = np.where(np.arange(len(spread)) == 0, 1.0, _CORRECTED) * spread / spread[0]
    trusted = spread[0] ** 2 / (spread[0] ** 2 + _REPEATS**2)
    chosen: NDArray[np.int64] = (np.log(cost_usd) + trusted * error[:, None] * follows).argmin(axis=1)
    return chosen


def measuring_of(rows: Sequence[ComparisonRow], plan: Plan) -> Measuring | None:
    """Worth of measuring the first row; None where it does not pay, is over a tenth of it, or time decides."""
    payable = (row for row in rows if row.fits_in_memory and row.holds_limits and row.total_cost_usd)
    choices = list(islice(payable, _MOST))
    is_first = len(choices) >= 2 and choices[0] is rows[0]
    if plan.rank_by != "cost" or not is_first or rows[0].total_time_h < WORTH_MEASURING_H:
        return None
    cost_usd = np.array([row.total_cost_usd for row in choices], dtype=float)
    spread = np.array([math.log(row.total_high_h / row.total_low_h) / _NORMAL for row in choices])
    if not spread.all():  # a model without intervals
        return None
    price_usd = (MINUTES / 60 + plan.setup_h) * (rows[0].usd_per_hour or 0.0)
    now, after = expected_regrets(cost_usd, spread)
    return Measuring(MINUTES, price_usd, now, after) if now - after > price_usd else None
