"""Inputs and outputs of a model: measured anchors, forecasts, and reasons for caution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from predictor.arrays import Array

GpuTimeSplit = tuple[dict[str, "Array"], dict[str, dict[str, "Array"]]]

COVERAGE = 0.9
"""Intended coverage of intervals."""

SHARPNESS = 5.0
"""Exponent by which GPU and host time join (`join_host`), but for frameworks that have their own."""

WIDENS = 1.25
"""Default factor of a reason on the half width of an interval: a judgement, not a measurement (docs/decisions/003)."""


Kind = Literal[
    "anchor", "autotune", "batch", "capture", "classes", "cnn", "cudnn", "edges", "framework", "frozen",
    "gpu", "host", "layers", "link", "measurements", "memory_format", "method", "mode", "nodes", "noise",
    "operator", "optimizer", "parallel", "per_gpu", "precision", "second_derivatives", "shape", "sync_batch_norm",
    "xla",
]  # fmt: skip
"""What a reason is about. Answers have a remedy for each (`predictor.answers.notes.REMEDIES`)."""

End = Literal["low", "high"]


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why a prediction extrapolates.

    `text` explains it, and `widens` is the factor on the half width of the roofline model's interval, towards the ends
    only in `towards`: fewer images take no longer than more. `spread`: half width of the ln of the GPU's time, which
    joins that interval in quadrature.
    """

    kind: Kind
    text: str
    widens: float = WIDENS
    towards: tuple[End, ...] = ("low", "high")
    spread: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A measured iteration of the CNN in question.

    `image_size` and `precision` default to those of the prediction. `of_table` says that it was read from a measurement
    table, whose times have their unit; one that was typed may have another. `beside_loader`: its host worked beside a
    loader, as in a usual training. `workers`: loader processes whose waits the time includes; None where it includes
    none. `samples`: of the epoch whose mean iteration it is, the last one with what was left of them; None of one
    iteration.
    """

    gpu: str
    batch_size: int
    iteration_time_ms: float
    image_size: int | None = None
    precision: str | None = None
    of_table: bool = False
    beside_loader: bool = True
    workers: int | None = None
    samples: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A term of a regression: its coefficient, and its feature at each batch size, shape (n_batches,)."""

    coefficient: float
    feature: Array


@dataclass(frozen=True, slots=True, eq=False)
class IterationForecast:
    """Times of one iteration of a CNN on one GPU in one mode; arrays of shape (n_batches,), in ms.

    `low_ms` to `high_ms` is the 90 % interval of the iteration time, `gpu_low_ms` to `gpu_high_ms` that of the
    GPU time; `split` computes `class_ms` and `rung_ms`, which explanations need and predictions do not. `extrapolates`
    gives the reasons for caution at each batch size. A method that does not tell the GPU's time from the host's has NaN
    there, and splits the iteration time into the summands of its law. `terms` computes the features and coefficients
    of one that is a regression. `host_spread` is the 90 % half width of the ln of
    the host's speed, an error that all modes on a machine share. `sharpness` is the exponent by which
    GPU and host time join.
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
    split: Callable[[], GpuTimeSplit] | None = None
    host_spread: Array | float = 0.0
    terms: Callable[[], dict[str, Term]] | None = None
    sharpness: float = SHARPNESS

    @property
    def is_whole(self) -> bool:
        """Whether GPU and host time are not separated."""
        return bool((self.gpu_time_ms != self.gpu_time_ms).any())

    @property
    def class_ms(self) -> dict[str, Array]:
        """GPU time by class of kernels or operators; empty if unknown."""
        return {} if self.split is None else self.split()[0]

    @property
    def rung_ms(self) -> dict[str, dict[str, Array]]:
        """GPU time by what it rests on (measured, carried over, interpolated, extrapolated) and class; may be empty."""
        return {} if self.split is None else self.split()[1]


ENDS = ("iteration_time_ms", "low_ms", "high_ms")
"""Time of an iteration and the ends of its interval."""

TIMES = (*ENDS, "gpu_time_ms", "gpu_low_ms", "gpu_high_ms", "host_time_ms")
"""Fields of a forecast that are times."""


def widening(extrapolates: Sequence[tuple[Reason, ...]], *kinds: str) -> tuple[list[float], list[float]]:
    """Products of the reasons' factors on the half widths below and above, at each batch size; of `kinds` if given."""
    keys = list(map(id, extrapolates))  # batch sizes share their tuples
    low, high = dict.fromkeys(keys, 1.0), dict.fromkeys(keys, 1.0)
    for key, reasons in dict(zip(keys, extrapolates, strict=True)).items():
        for why in reasons:
            if not kinds or why.kind in kinds:
                low[key] *= why.widens if "low" in why.towards else 1.0
                high[key] *= why.widens if "high" in why.towards else 1.0
    return [low[key] for key in keys], [high[key] for key in keys]
