"""Rows of a comparison: a GPU on an offer as time and money of a training, with limits, ranks and interruptions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.answers.answer import PredictionRow
from predictor.answers.grid import Places
from predictor.answers.notes import duration
from predictor.answers.question import Plan, named
from predictor.arrays import Array
from predictor.errors import OutOfRangeError


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
    of all that train at once, an epoch of which `cost_usd` pays for. `one_gpu_time_h` and `one_gpu_cost_usd` are what
    one GPU would do, None if one works.

    `packing_gain` is the time of one trial at a time on each GPU of the machine over that of `per_gpu`; None if so.

    `common_batch_size` is the size at which GPUs are compared if none is given; a GPU that does not hold it is compared
    at a smaller `batch_size`. `fastest_batch_size` is the smallest within 5 % of the best throughput of the
    same GPUs up to 4,096, beyond which nothing was measured.
    `fast_precision` and `fast_memory_format` name the fastest mode in common use on this GPU, `fast_ratio` the time in
    it, on the same GPUs at the same batch size, as a share of `total_time_h`, `fast_bottleneck` what it waits for; None
    where the question fixes the precision.

    The offer has `vcpus`, which load the images of an iteration in `loading_time_ms`; None where loading is not
    counted. `data_exceeds` names which of its ``memory`` and local ``disk`` the stored data set exceeds.
    `total_watt_hours` is the energy of all epochs and trials, without host and set-up, `total_co2_g` its CO2.

    Where spot machines are interrupted, times, costs and energies are expected ones: `interruption_h` of the time is
    lost to checkpoints every `checkpoint_minutes`, restarts and work done again. None where no rate is stated.
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
    packing_gain: float | None
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
    total_co2_g: float | None
    total_co2_low_g: float | None
    total_co2_high_g: float | None
    interruption_h: float | None
    checkpoint_minutes: float | None

    @property
    def holds_limits(self) -> bool:
        """Whether the estimates hold budget and deadline; True without them."""
        return self.misses_by is None or self.misses_by <= 0


_ALIKE = 1.02  # times the least of costs or times that tie


def ranking_order(
    fits_in_memory: NDArray[np.bool_],
    is_other: NDArray[np.bool_],
    misses_by: Array | None,
    total_cost_usd: Array,
    total_time_h: Array,
    rank_by: str,
    wanted: tuple[Array, Array] | None = None,
) -> Places:
    """Indices of rows, best first: what fits, is for rent and holds the limits, by cost or time; then what misses them.

    The last are in the order of what they miss. `is_other`: a row has another mini-batch than the common one, which is
    another training, and follows all that have it. Costs are NaN where a row is not for rent, and `misses_by` is None
    without limits. Of rows whose costs tie (`tied`) the faster comes first, of those whose times do the cheaper;
    `wanted` is what ranks them so, computed where None.
    """
    cost = np.where(np.isnan(total_cost_usd), np.inf, total_cost_usd)
    if wanted is None:
        wanted = (tied(cost), total_time_h) if rank_by == "cost" else (tied_hours(total_time_h), cost)
    missing = np.zeros(len(cost)) if misses_by is None else np.maximum(0.0, misses_by)
    keys = (~fits_in_memory, np.isnan(total_cost_usd), is_other, missing > 0, missing, *wanted)
    return np.lexsort(keys[::-1])


def tied(values: Array, units: Array | float = 1.0) -> Array:
    """Each value, or the least value that it ties with: within 2 %, and the same to two digits of its unit.

    Answers print two digits, and no interval of theirs is narrower than 2 %.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        in_units = values / units
        digits = 10.0 ** (np.floor(np.log10(in_units)) - 1)
        shown = (np.round(in_units / digits) * digits).tolist()
    keys, least, least_shown = values.copy(), -math.inf, math.nan
    for place, value in zip((order := np.argsort(values)).tolist(), values[order].tolist(), strict=True):
        if value <= _ALIKE * least and math.isclose(shown[place], least_shown):
            keys[place] = least
        else:
            least, least_shown = value, shown[place]
    return keys


def tied_hours(hours: Array) -> Array:
    """As `tied`, in the units that answers print."""
    seconds = 3600.0 * hours
    return tied(hours, np.select([seconds < 120, seconds < 7200], [1 / 3600, 1 / 60], 1.0))


def pareto_front(points: Sequence[tuple[float, float | None] | None]) -> list[bool]:
    """For each (time, cost), whether no other point is at least as good in both and better in one.

    None, and points without a cost, are on no front.
    """
    priced = [index for index, point in enumerate(points) if point is not None and point[1] is not None]
    front = [False] * len(points)
    if not priced:
        return front
    times, costs = np.array([points[index] for index in priced], dtype=float).T
    no_worse = (times[:, None] <= times) & (costs[:, None] <= costs)
    better = (times[:, None] < times) | (costs[:, None] < costs)
    for index, is_beaten in zip(priced, (no_worse & better).any(axis=0).tolist(), strict=True):
        front[index] = not is_beaten
    return front


def place_of(row: ComparisonRow) -> tuple[str, str, str | None]:
    """Key of a row among those of a comparison: GPU, offer and region."""
    return row.gpu, row.offer, row.region


def short_offer(offer: str) -> str:
    """An offer as tables show it beside its GPU: without what the GPU says already; marketplaces are named.

    >>> [short_offer(offer) for offer in ("runpod 1x H100 SXM (Secure Cloud)", "azure Standard_NC24ads_A100_v4")]
    ['runpod', 'azure NC24ads']
    >>> short_offer("vast 1x H100 SXM (marketplace)")
    'vast (marketplace)'
    """
    named_by_gpu = re.fullmatch(r"(\S+) \d+x .*?( \((?:marketplace.*|Community Cloud)\))?", offer)
    if named_by_gpu:
        return named_by_gpu[1] + (named_by_gpu[2] or "")
    return re.sub(r" Standard_([^_]+).*", r" \1", offer).replace("-standard-", "-std-")


_Z = 1.6448536269514722
"""Standard deviations from the median of a normal distribution to its 5 % and 95 % points."""

SURE = 2.3263478740408408 / _Z
"""Safety from which a chance reads over 99 %, which no data can tell apart."""


def chance_within(limit: ArrayLike, value: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Probability that quantities are at most `limit`, from estimates and 90 % intervals, 0 < low <= value <= high.

    The logarithm of a quantity is taken as normal on either side of the estimate, with 5 % of the probability beyond
    each end of the interval: an assumption about tails that no calibration tests.
    """
    sigmas = _Z * safety(limit, value, low, high)
    return np.where(np.isnan(limit), np.nan, 0.5 * (1.0 + _ERF(sigmas / math.sqrt(2.0))))


def safety(limit: ArrayLike, value: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """What grows with the chance that limits hold: `chance_within` before its error function; least for NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(np.divide(np.maximum(limit, 0.0), value))
        spread = np.where(distance > 0, np.log(np.divide(high, value)), np.log(np.divide(value, low)))
        grows = np.where(distance == 0, 0.0, distance / spread)
    return np.where(np.isnan(grows), -np.inf, grows)


_ERF = np.vectorize(math.erf, otypes=[float])


def within(values: Sequence[float | None], limit: float | None) -> list[bool | None]:
    """Whether each value holds a limit; None where one of them is not known."""
    return [None if value is None or limit is None else value <= limit for value in values]


def misses_by(plan: Plan, total_time_h: Array, total_cost_usd: Array) -> Array | None:
    """Share by which the limit missed most is missed; negative where both hold.

    None without limits; infinite where there is a budget and the cost is not known (NaN).
    """
    ratios = [] if plan.deadline_h is None else [total_time_h / plan.deadline_h]
    if plan.budget_usd is not None:
        cost_ratio = total_cost_usd / plan.budget_usd
        ratios.append(np.where(np.isnan(cost_ratio), np.inf, cost_ratio))
    return np.max(ratios, axis=0) - 1.0 if ratios else None


def limits_in_words(plan: Plan) -> str:
    """Budget and deadline: ``US$ 60 and 24 h``; empty without them."""
    budget = [] if plan.budget_usd is None else [f"US$ {plan.budget_usd:,.4g}"]
    hours = plan.deadline_h
    if hours is None:
        return " and ".join(budget)
    return " and ".join([*budget, f"{hours:,.4g} h" if hours >= 1 else duration(3600 * hours)])


NOT_COUNTED = (
    "Spot machines may be taken away; no interruptions are counted, since no rate of them is stated."
)
"""What a comparison by spot prices leaves out where its plan states no rate."""

_LONGEST = 5.0  # times between interruptions that one interval lasts: one in 150 is survived


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Interruptions of a training's machines, any of which stops it; hours as of `expected_h`."""

    interval_h: float
    checkpoint_h: float
    restart_h: float
    between_h: float

    @classmethod
    def of(cls, plan: Plan, nodes: int) -> Interruptions | None:
        """Interruptions that a plan states, on this number of machines; None where it states no rate."""
        if plan.interruptions_per_day is None or plan.checkpoint_seconds is None:
            return None
        between_h, checkpoint_h = 24.0 / plan.interruptions_per_day / nodes, plan.checkpoint_seconds / 3600.0
        minutes = plan.checkpoint_minutes
        interval_h = young_interval_h(checkpoint_h, between_h) if minutes is None else minutes / 60.0
        lasting_h = {"checkpoint_minutes": interval_h + checkpoint_h, "setup_minutes": plan.setup_h}
        for name, hours in lasting_h.items():
            if hours > _LONGEST * between_h:
                raise OutOfRangeError(
                    f"{named(name)}: {60 * hours:,.0f} minutes lie between interruptions that come every "
                    f"{60 * between_h:,.0f} on average, so hardly any of them is survived. Pass at most "
                    f"{_LONGEST * 60 * between_h:,.0f}."
                ).about(name)
        return cls(interval_h, checkpoint_h, plan.setup_h, between_h)

    def expected_h(self, work_h: Array, restart_h: float | None = None) -> Array:
        """Expected hours of a training that is interrupted, and goes on from its last checkpoint.

        `work_h` is its hours without interruptions, `interval_h` of them lie between checkpoints, each of which takes
        `checkpoint_h`; shorter trainings write none. An interruption comes at random every `between_h` (exponentially
        distributed) and takes `restart_h`, if no other is given, which may be interrupted, too.

        M e^(R/M) (e^((τ + C)/M) - 1) work / τ: J. T. Daly, A higher order estimate of the optimum checkpoint interval
        for restart dumps, Future Generation Computer Systems 22 (3), 2006. Exact for whole numbers of intervals.
        """
        between_h, restart_h = self.between_h, self.restart_h if restart_h is None else restart_h
        again = between_h * math.exp(restart_h / between_h)
        segment = again * math.expm1((self.interval_h + self.checkpoint_h) / between_h)
        alone = again * np.expm1(np.minimum(work_h, self.interval_h) / between_h)
        return np.where(work_h <= self.interval_h, alone, segment * work_h / self.interval_h)


def young_interval_h(checkpoint_h: float, between_h: float) -> float:
    """Hours of work between checkpoints that lose the least: √(2 x a checkpoint's time x time between interruptions).

    J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (9), 1974.

    >>> young_interval_h(checkpoint_h=0.02, between_h=4.0)
    0.4
    """
    return math.sqrt(2.0 * checkpoint_h * between_h)
