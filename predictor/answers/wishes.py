"""Whether a training holds its budget and deadline, how likely that is, and by how much it misses."""

from __future__ import annotations

import math

from predictor.answers.quantities import duration
from predictor.answers.question import Plan

__all__ = ["chance_within", "misses_by", "wishes_in_words", "within"]

_Z = 1.6448536269514722
"""Standard deviations from the median of a normal distribution to its 5 % and 95 % points."""


def chance_within(limit: float, value: float, low: float, high: float) -> float:
    """Probability that a quantity is at most `limit`, from its estimate and 90 % interval.

    Parameters
    ----------
    limit, value, low, high : float
        In one unit; 0 < low <= value <= high.

    Returns
    -------
    float
        Between 0 and 1.

    Notes
    -----
    The logarithm of the quantity is taken as normal on either side of the estimate, with 5 % of the probability beyond
    each end of the interval: an assumption about tails that no calibration tests.

    Examples
    --------
    >>> [round(chance_within(limit, 10.0, 5.0, 20.0), 2) for limit in (5.0, 10.0, 20.0)]
    [0.05, 0.5, 0.95]
    """
    if limit <= 0:
        return 0.0
    distance = math.log(limit / value)
    spread = math.log(high / value) if distance > 0 else math.log(value / low)
    if spread == 0 or distance == 0:
        return 0.5 if distance == 0 else float(distance > 0)
    return 0.5 * (1.0 + math.erf(_Z * distance / spread / math.sqrt(2.0)))


def within(value: float | None, limit: float | None) -> bool | None:
    """Whether a value holds a limit; None where one of them is not known."""
    return None if value is None or limit is None else value <= limit


def misses_by(plan: Plan, total_time_h: float, total_cost_usd: float | None) -> float | None:
    """By which share the wish that is missed most is missed; negative where both hold.

    None without wishes; infinite where there is a budget and the cost is not known.
    """
    ratios = [] if plan.deadline_h is None else [total_time_h / plan.deadline_h]
    if plan.budget_usd is not None:
        ratios.append(math.inf if total_cost_usd is None else total_cost_usd / plan.budget_usd)
    return max(ratios) - 1.0 if ratios else None


def wishes_in_words(plan: Plan) -> str:
    """Budget and deadline: ``US$ 60 and 24 h``; empty without wishes."""
    budget = [] if plan.budget_usd is None else [f"US$ {plan.budget_usd:,.4g}"]
    hours = plan.deadline_h
    if hours is None:
        return " and ".join(budget)
    return " and ".join([*budget, f"{hours:,.4g} h" if hours >= 1 else duration(3600 * hours)])
