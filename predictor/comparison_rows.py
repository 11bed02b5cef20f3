"""One line of a comparison, its rank, and the Pareto front of time and cost.

Called by compare and the public face; calls nothing of ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["RANKINGS", "ComparisonRow", "mark_pareto", "pareto_front", "ranked"]

RANKINGS = ("cost", "time")
"""What rows can be ranked by: `total_cost_usd` or `total_time_h`."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One way to train: a GPU at its best batch size, on an offer. None where there is no offer or wish.

    `cost_usd` is one epoch; `total_time_h` and `total_cost_usd` are all epochs plus the set-up time. `rank`
    is None where the training does not fit in memory. `pareto`: nothing that fits is as fast and as cheap and
    better in one of the two. `speedup` and `cost_ratio` compare with `relative_to`: 2 is twice as fast, or
    twice as dear.
    """

    rank: int | None
    gpu: str
    batch_size: int
    offer: str
    region: str | None
    offer_gpu_count: float | None
    gpus_used: int
    usd_per_hour: float | None
    priced_on: str | None
    cnn: str
    image_size: int
    precision: str
    memory_format: str
    framework: str
    iteration_time_ms: float
    epoch_time_s: float
    epoch_low_s: float | None
    epoch_high_s: float | None
    cost_usd: float | None
    epochs: int
    total_time_h: float
    total_cost_usd: float | None
    pareto: bool
    within_budget: bool | None
    within_deadline: bool | None
    speedup: float | None
    cost_ratio: float | None
    peak_memory_gib: float
    fits_in_memory: bool
    memory_estimate_validated: bool
    host: str
    method: str
    trained_on: str
    extrapolates: tuple[str, ...]


def mark_pareto(rows: list[ComparisonRow]) -> list[ComparisonRow]:
    """Mark the front among rows that fit and have a price."""
    candidates = [i for i, row in enumerate(rows) if row.fits_in_memory and row.total_cost_usd is not None]
    points = [(rows[i].total_time_h, rows[i].total_cost_usd or 0.0) for i in candidates]
    on_front = {i for i, front in zip(candidates, pareto_front(points), strict=True) if front}
    return [replace(row, pareto=i in on_front) for i, row in enumerate(rows)]


def ranked(rows: list[ComparisonRow], rank_by: str) -> list[ComparisonRow]:
    """Order by cost or time, what does not fit last, and number what fits."""

    def key(row: ComparisonRow) -> tuple[bool, float, float]:
        cost = math.inf if row.total_cost_usd is None else row.total_cost_usd
        numbers = (cost, row.total_time_h) if rank_by == "cost" else (row.total_time_h, cost)
        return (not row.fits_in_memory, *numbers)

    ordered = sorted(rows, key=key)
    return [replace(row, rank=i + 1 if row.fits_in_memory else None) for i, row in enumerate(ordered)]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """For each (time, cost), whether no other point is at least as good in both and better in one."""
    return [
        not any(other[0] <= point[0] and other[1] <= point[1] and other != point for other in points)
        for point in points
    ]
