"""What a model is given and gives back about iterations: measured anchors in, forecasts with reasons out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["COVERAGE", "WIDENS", "Anchor", "IterationForecast", "Reason"]

COVERAGE = 0.9
"""Share of true times that an interval is meant to hold."""

WIDENS = 1.25
"""Usual factor of a reason on the half width of an interval: a judgement, not a measurement (docs/decisions/003)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an answer extrapolates.

    `kind` is one word (gpu, host, framework, precision, memory_format, mode, capture, optimizer, operator, shape,
    batch, anchor, layers, cnn), `text` says it to people, and `widens` is the factor on the half width of the interval
    where specifications answer.
    """

    kind: str
    text: str
    widens: float = WIDENS

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A measured iteration of the CNN in question.

    Without `image_size` it holds at the image size in question, without `precision` in the precision in question.
    """

    gpu: str
    batch_size: int
    iteration_time_ms: float
    image_size: int | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class IterationForecast:
    """Times of one iteration of a CNN on one GPU in one mode; arrays of shape (n_batches,), in ms.

    `low_ms` to `high_ms` is the interval meant to hold 90 % of the true iteration times, `gpu_low_ms` to `gpu_high_ms`
    that of the time that the GPU is busy, which `class_ms` splits by class of kernels. `extrapolates` gives the reasons
    for caution at each batch size.
    """

    iteration_time_ms: Array
    gpu_time_ms: Array
    host_time_ms: Array
    low_ms: Array
    high_ms: Array
    gpu_low_ms: Array
    gpu_high_ms: Array
    method: str
    trained_on: str
    extrapolates: tuple[tuple[Reason, ...], ...]
    host: str
    class_ms: dict[str, Array] = field(default_factory=dict)
