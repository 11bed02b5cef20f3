"""One answer of `predict`, and which of them is recommended.

Called by predict, compare and the public face; calls nothing of ours.
"""

import math
from dataclasses import dataclass, replace

__all__ = ["NEAR_BEST", "PredictionRow", "mark_best"]

NEAR_BEST = 1.05
"""Batch sizes within this factor of the best epoch time are equally good; the smallest is recommended."""


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """The answer for one CNN, GPU and batch size. None where nothing was asked or is known.

    Intervals (`low`, `high`) are meant to hold the truth nine times out of ten. `cost_usd` is one epoch on
    the whole instance of `offer`, at its price of `priced_on`; `gpus_used` of its `offer_gpu_count` GPUs
    work.
    """

    cnn: str
    image_size: int
    gpu: str
    batch_size: int
    precision: str
    memory_format: str
    framework: str
    iterations_per_epoch: int | None
    iteration_time_ms: float
    low_ms: float
    high_ms: float
    gpu_time_ms: float
    host_time_ms: float
    epoch_time_s: float | None
    epoch_low_s: float | None
    epoch_high_s: float | None
    throughput_samples_per_s: float
    cost_usd: float | None
    offer: str
    offer_gpu_count: float | None
    gpus_used: int
    priced_on: str | None
    peak_memory_gib: float
    fits_in_memory: bool
    memory_estimate_validated: bool
    best_batch: bool
    host: str
    method: str
    trained_on: str
    extrapolates: tuple[str, ...]


def mark_best(rows: list[PredictionRow]) -> list[PredictionRow]:
    """Mark the smallest batch size that fits and lies within 5 % of the best epoch time of those that fit."""

    def seconds_per_sample(row: PredictionRow) -> float:
        return row.epoch_time_s or 1.0 / row.throughput_samples_per_s

    fitting = [row for row in rows if row.fits_in_memory]
    best = min((seconds_per_sample(row) for row in fitting), default=math.inf)
    for i, row in enumerate(rows):
        if row.fits_in_memory and seconds_per_sample(row) <= NEAR_BEST * best:
            return [*rows[:i], replace(row, best_batch=True), *rows[i + 1 :]]
    return rows
