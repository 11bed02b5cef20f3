"""Rows of a comparison: a GPU on an offer as time and money of a training, whether it holds its limits, their order."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.answers.answer import PredictionRow
from predictor.answers.quantities import duration
from predictor.answers.question import Plan


@dataclass(frozen=True, slots=True)
class ComparisonRow(PredictionRow):
    """One GPU on one offer: a prediction, and what it makes of a whole training. None without an offer or a limit.

    `total_time_h` and `total_cost_usd` are all epochs and trials, each with its start as far as it is known
    (`start_s`), plus the set-up time; `_low` and `_high` are the ends of 90 % intervals, as of `cost_usd`, one epoch.
    `rank` is None where the training does not fit in memory. `pareto`: no other row that fits is as fast and as cheap
    and better in one of the two. `chance` is the probability that budget and deadline hold, `misses_by` the share by
    which the worse of the two is missed. `speedup` and `cost_ratio` compare with `relative_to`: 2 is twice as fast, or
    twice as expensive.

    `gpus_used` train together, joined by `link`, each on `local_batch_size` images; of several trials they are those
    of all that train at once. `one_gpu_time_h` and `one_gpu_cost_usd` are what one GPU would do, None if one works.

    `common_batch_size` is the size at which GPUs are compared if none is given; a GPU that does not hold it is compared
    at a smaller `batch_size`. `fastest_batch_size` is the smallest within 5 % of the best throughput. `fast_precision`
    and `fast_memory_format` name the fastest mode in common use on this GPU, `fast_ratio` its time as a share of
    `total_time_h`, `fast_bottleneck` what it waits for; None where the question fixes the precision.

    The offer has `vcpus`, which load the images of an iteration in `loading_time_ms`; None where loading is not
    counted. `data_exceeds` names which of its ``memory`` and local ``disk`` the stored data set exceeds.
    `total_watt_hours` is the energy of all epochs and trials, without host and set-up.
    """

    epoch_time_s: float
    epoch_low_s: float
    epoch_high_s: float
    rank: int | None
    region: str | None
    usd_per_hour: float | None
    vcpus: float | None
    data_exceeds: tuple[str, ...]
    one_gpu_time_h: float | None
    one_gpu_cost_usd: float | None
    cost_low_usd: float | None
    cost_high_usd: float | None
    epochs: int
    trials: int
    total_time_h: float
    total_low_h: float
    total_high_h: float
    total_cost_usd: float | None
    total_low_usd: float | None
    total_high_usd: float | None
    pareto: bool
    within_budget: bool | None
    within_deadline: bool | None
    chance: float | None
    misses_by: float | None
    speedup: float | None
    cost_ratio: float | None
    common_batch_size: int | None
    fastest_batch_size: int
    fastest_epoch_time_s: float
    fast_precision: str | None
    fast_memory_format: str | None
    fast_ratio: float | None
    fast_time_h: float | None
    fast_cost_usd: float | None
    fast_bottleneck: str | None
    total_watt_hours: float | None
    total_watt_hours_low: float | None
    total_watt_hours_high: float | None

    @property
    def holds_limits(self) -> bool:
        """Whether the estimates hold budget and deadline; True without them."""
        return self.misses_by is None or self.misses_by <= 0


def ranking_key(
    fits_in_memory: bool,
    misses_by: float | None,
    total_cost_usd: float | None,
    total_time_h: float,
    rank_by: str,
) -> tuple[float, ...]:
    """Sort key of a row: what fits and holds the limits, by cost or time; then what misses them, by how much."""
    cost = math.inf if total_cost_usd is None else total_cost_usd
    wanted = (cost, total_time_h) if rank_by == "cost" else (total_time_h, cost)
    missing = max(0.0, misses_by or 0.0)
    return (not fits_in_memory, missing > 0, missing, *wanted)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """For each (time, cost), whether no other point is at least as good in both and better in one."""
    if not points:
        return []
    times, costs = np.array(points, dtype=float).T
    no_worse = (times[:, None] <= times) & (costs[:, None] <= costs)
    better = (times[:, None] < times) | (costs[:, None] < costs)
    front: list[bool] = (~(no_worse & better).any(axis=0)).tolist()
    return front


def place_of(row: ComparisonRow) -> tuple[str, str, str | None]:
    """What tells the rows of a comparison apart: GPU, offer and region."""
    return row.gpu, row.offer, row.region


def short_offer(offer: str) -> str:
    """An offer as tables show it beside its GPU: without what the GPU says already.

    Examples
    --------
    >>> [short_offer(offer) for offer in ("runpod 1x H100 SXM (Secure Cloud)", "azure Standard_NC24ads_A100_v4")]
    ['runpod', 'azure NC24ads']
    """
    marketplace = re.fullmatch(r"(\S+) \d+x .*", offer)
    if marketplace:
        return marketplace[1]
    return re.sub(r" Standard_([^_]+).*", r" \1", offer).replace("-standard-", "-std-")


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
    """By which share the limit that is missed most is missed; negative where both hold.

    None without limits; infinite where there is a budget and the cost is not known.
    """
    ratios = [] if plan.deadline_h is None else [total_time_h / plan.deadline_h]
    if plan.budget_usd is not None:
        ratios.append(math.inf if total_cost_usd is None else total_cost_usd / plan.budget_usd)
    return max(ratios) - 1.0 if ratios else None


def limits_in_words(plan: Plan) -> str:
    """Budget and deadline: ``US$ 60 and 24 h``; empty without them."""
    budget = [] if plan.budget_usd is None else [f"US$ {plan.budget_usd:,.4g}"]
    hours = plan.deadline_h
    if hours is None:
        return " and ".join(budget)
    return " and ".join([*budget, f"{hours:,.4g} h" if hours >= 1 else duration(3600 * hours)])
