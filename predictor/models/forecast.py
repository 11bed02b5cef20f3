"""What a model is asked and answers about iterations: anchors in, forecasts out; plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["COVERAGE", "Anchor", "IterationForecast"]

Array = NDArray[np.float64]

COVERAGE = 0.9
"""Share of true times that an interval is meant to hold."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A measurement of the CNN asked about, in the same mode; without image size, at the size asked about."""

    gpu: str
    batch_size: int
    iteration_time_ms: float
    image_size: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class IterationForecast:
    """Times of one iteration over batch sizes; arrays of shape (n_batches,), in ms.

    `low_ms` and `high_ms` end the interval that holds 90 % of the true times, `class_ms` splits the time that the
    GPU is busy by class of kernels, `extrapolates` gives each batch size's reasons for caution.
    """

    iteration_time_ms: Array
    gpu_time_ms: Array
    host_time_ms: Array
    low_ms: Array
    high_ms: Array
    method: str
    trained_on: str
    extrapolates: tuple[tuple[str, ...], ...]
    host: str
    class_ms: dict[str, Array] = field(default_factory=dict)
