"""Rows of a comparison: a GPU on an offer as time and money of a whole training, ranked, with the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from predictor.answers.energy import EnergyBasis
from predictor.answers.notes import Reason

__all__ = ["ComparisonRow", "mark_pareto", "pareto_front", "place_of", "ranked", "ranking_key"]


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One GPU on one offer. Fields are None without an offer, a budget or a deadline.

    `cost_usd` is one epoch; `total_time_h` and `total_cost_usd` are all epochs and trials, each with its start as far
    as it is known (`start_s`, as of predictions), plus the set-up time; `_low`
    and `_high` are the ends of 90 % intervals. `rank` is None where the training does not fit in memory. `pareto`: no
    other row that fits is as fast and as cheap and better in one of the two. `chance` is the probability that budget
    and deadline hold, `misses_by` the share by which the worse of the two is missed. `speedup` and `cost_ratio` compare
    with `relative_to`: 2 is twice as fast, or twice as expensive.

    `gpus_used` train together, joined by `link`, each on `local_batch_size` images (or, of several trials, each on one
    training); `one_gpu_time_h` and `one_gpu_cost_usd` are what one of them would do, None if one works.
    `scaling_efficiency` is the throughput over that of so many single GPUs, `added_ms` what an iteration takes longer.

    `common_batch_size` is the size at which GPUs are compared if none is given; a GPU that does not hold it is compared
    at a smaller `batch_size`. `largest_batch_size` fits with a tenth of the memory left; `fastest_batch_size` is the
    smallest within 5 % of the best throughput. `fast_precision` and `fast_memory_format` name the fastest mode in
    common use on this GPU, `fast_ratio` its time as a share of `total_time_h`, `fast_bottleneck` what it waits for;
    None where the question fixes the precision.

    `loading_time_ms` is the time in which the offer's `vcpus` load the images of an iteration, None where loading is
    not counted; `iteration_time_ms` and what follows from it hold the slower of it and `training_time_ms`. `bottleneck`
    and `workers_needed` are as of predictions. `data_exceeds` names which of the offer's ``memory`` and local
    ``disk`` the stored data set exceeds.

    `power_w` is the mean power of one GPU, `watt_hours` the energy of an epoch on all that work, `total_watt_hours`
    that of all epochs and trials, without host and set-up; `energy_basis` says what they rest on.
    """

    rank: int | None
    gpu: str
    batch_size: int
    offer: str
    region: str | None
    offer_gpu_count: float | None
    gpus_used: int
    nodes: int
    link: str | None
    local_batch_size: int
    added_ms: float
    scaling_efficiency: float
    one_gpu_time_h: float | None
    one_gpu_cost_usd: float | None
    usd_per_hour: float | None
    priced_on: str | None
    cnn: str
    image_size: int
    precision: str
    memory_format: str
    framework: str
    iteration_time_ms: float
    low_ms: float
    high_ms: float
    gpu_time_ms: float | None
    gpu_low_ms: float | None
    gpu_high_ms: float | None
    host_time_ms: float | None
    training_time_ms: float
    loading_time_ms: float | None
    bottleneck: str
    workers_needed: int | None
    vcpus: float | None
    data_exceeds: tuple[str, ...]
    epoch_time_s: float
    epoch_low_s: float
    epoch_high_s: float
    start_s: float | None
    start_low_s: float | None
    start_high_s: float | None
    cost_usd: float | None
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
    largest_batch_size: int | None
    fastest_batch_size: int
    fastest_epoch_time_s: float
    fast_precision: str | None
    fast_memory_format: str | None
    fast_ratio: float | None
    fast_time_h: float | None
    fast_cost_usd: float | None
    fast_bottleneck: str | None
    power_w: float | None
    watt_hours: float | None
    watt_hours_low: float | None
    watt_hours_high: float | None
    total_watt_hours: float | None
    total_watt_hours_low: float | None
    total_watt_hours_high: float | None
    energy_basis: EnergyBasis
    peak_memory_gib: float
    fits_in_memory: bool
    memory_estimate_validated: bool
    host: str
    method: str
    trained_on: str
    extrapolates: tuple[Reason, ...]

    @property
    def holds_wishes(self) -> bool:
        """Whether the estimates hold budget and deadline; True without wishes."""
        return self.misses_by is None or self.misses_by <= 0


def ranking_key(row: ComparisonRow, rank_by: str) -> tuple[float, ...]:
    """Sort key: what fits and holds the wishes first, then by cost or time; what misses, by how much it misses."""
    cost = math.inf if row.total_cost_usd is None else row.total_cost_usd
    wanted = (cost, row.total_time_h) if rank_by == "cost" else (row.total_time_h, cost)
    missing = 0.0 if row.holds_wishes else row.misses_by or 0.0
    return (not row.fits_in_memory, not row.holds_wishes, missing, *wanted)


def ranked(rows: Sequence[ComparisonRow], rank_by: str) -> list[ComparisonRow]:
    """Order by `ranking_key`, and number what fits."""
    ordered = sorted(rows, key=lambda row: ranking_key(row, rank_by))
    return [replace(row, rank=i + 1 if row.fits_in_memory else None) for i, row in enumerate(ordered)]


def mark_pareto(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Mark the front among rows that fit and have a price."""
    candidates = [i for i, row in enumerate(rows) if row.fits_in_memory and row.total_cost_usd is not None]
    points = [(rows[i].total_time_h, rows[i].total_cost_usd or 0.0) for i in candidates]
    on_front = {i for i, front in zip(candidates, pareto_front(points), strict=True) if front}
    return [replace(row, pareto=i in on_front) for i, row in enumerate(rows)]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """For each (time, cost), whether no other point is at least as good in both and better in one."""
    return [
        not any(other[0] <= point[0] and other[1] <= point[1] and other != point for other in points)
        for point in points
    ]


def place_of(row: ComparisonRow) -> tuple[str, str, str | None]:
    """What tells the rows of a comparison apart: GPU, offer and region."""
    return row.gpu, row.offer, row.region
