"""Inputs and outputs of a model: measured anchors, forecasts, and reasons for caution."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["COVERAGE", "WIDENS", "Anchor", "IterationForecast", "Reason"]

COVERAGE = 0.9
"""Intended coverage of intervals."""

WIDENS = 1.25
"""Default factor of a reason on the half width of an interval: a judgement, not a measurement (docs/decisions/003)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why a prediction extrapolates.

    `kind` is one word (gpu, host, framework, precision, memory_format, mode, capture, optimizer, operator, shape,
    batch, anchor, layers, cnn, method), `text` explains it, and `widens` is the factor on the half width of the
    roofline model's interval.
    """

    kind: str
    text: str
    widens: float = WIDENS

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A measured iteration of the CNN in question.

    `image_size` and `precision` default to those of the prediction.
    """

    gpu: str
    batch_size: int
    iteration_time_ms: float
    image_size: int | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class IterationForecast:
    """Times of one iteration of a CNN on one GPU in one mode; arrays of shape (n_batches,), in ms.

    `low_ms` to `high_ms` is the 90 % interval of the iteration time, `gpu_low_ms` to `gpu_high_ms` that of the
    GPU time; `class_ms` splits the GPU time by class of kernels or operators, `rung_ms` by what it rests on (measured,
    carried over, interpolated, extrapolated, specifications) and class. `extrapolates` gives the reasons for
    caution at each batch size. A method that does not tell the GPU's time from the host's has NaN there, and its
    `class_ms` holds the summands of the iteration time.
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
    rung_ms: dict[str, dict[str, Array]] = field(default_factory=dict)

    @property
    def splits(self) -> bool:
        """Whether it tells the GPU's time from the host's."""
        return not bool((self.gpu_time_ms != self.gpu_time_ms).any())
