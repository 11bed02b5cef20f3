"""Explanations as plain data: what the time of an iteration is made of, and the same as rows of a table.

Made by explain and explain_tables; read by the public face, the service and explain_plots. numpy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.bounds import GPU_BOUNDS
from predictor.switches import Switch

__all__ = [
    "LAW_TOLERANCE",
    "MEASURED_METHOD",
    "Explanation",
    "Numbers",
    "OtherMode",
    "SmallBatchLaw",
    "explanation_rows",
    "row_columns",
    "small_batch_law",
]

Array = NDArray[np.float64]
Numbers = tuple[float, ...]

LAW_TOLERANCE = 0.10
"""How far from its first time an iteration may lie for the law of small batches still to hold."""

MEASURED_METHOD = "measured"
"""The `method` of what a measurement table says."""

_ABOUT = (
    "cnn",
    "image_size",
    "gpu",
    "precision",
    "memory_format",
    "framework",
    "autotune",
    "capture",
    "optimizer",
)
_TIMES = ("iteration_time_ms", "low_ms", "high_ms", "gpu_time_ms", "host_time_ms")


@dataclass(frozen=True, slots=True)
class SmallBatchLaw:
    """An epoch takes `k_s` / batch size, because an iteration takes `iteration_time_ms` whatever the batch.

    Holds within `LAW_TOLERANCE` from one batch size to another. `k_s`, seconds x images, is the time of an epoch at
    batch size 1 by the law; None where nobody said how many samples an epoch has. `because` is what bounds the
    iteration at the first batch size, and `extrapolates` whether that lies beyond the measured ones.
    """

    k_s: float | None
    iteration_time_ms: float
    from_batch_size: int
    up_to_batch_size: int
    because: str
    extrapolates: bool = False


@dataclass(frozen=True, slots=True)
class OtherMode:
    """What another precision or memory format would give, relative to the mode asked about, at each batch size.

    `factor` is its iteration time over that of the mode asked about, `low` and `high` hold 90 % of true factors (NaN
    where both were measured), `gpu_factor` compares the GPU's time alone. NaN: not measured. `extrapolates` says why
    to be careful, besides the reasons that the mode asked about has, too.
    """

    precision: str
    memory_format: str
    factor: Numbers
    low: Numbers
    high: Numbers
    gpu_factor: Numbers
    method: str
    extrapolates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the time of one CNN on one GPU in one mode is made of; numbers over `batch_sizes`, in ms.

    `classes`, time by class of operators, adds up to `gpu_time_ms`, and so does `bound_ms`, which splits it by what
    bounds the operators (empty where nobody knows). `host_time_ms` and `gpu_time_ms` overlap; `bound` names what an
    iteration waits for. NaN: not measured. `method` is ``measured`` where a measurement table is explained.
    """

    cnn: str
    image_size: int
    gpu: str
    precision: str
    memory_format: str
    framework: str
    autotune: bool
    capture: str
    optimizer: str
    batch_sizes: tuple[int, ...]
    iteration_time_ms: Numbers
    low_ms: Numbers
    high_ms: Numbers
    gpu_time_ms: Numbers
    host_time_ms: Numbers
    classes: dict[str, Numbers]
    bound: tuple[str, ...]
    bound_ms: dict[str, Numbers]
    small_batch_law: SmallBatchLaw | None
    switches: tuple[Switch, ...]
    other_modes: tuple[OtherMode, ...]
    host: str
    method: str
    trained_on: str
    extrapolates: tuple[tuple[str, ...], ...]


def small_batch_law(
    batch_sizes: Sequence[int] | Array,
    iteration_time_ms: Sequence[float] | Array,
    bound: Sequence[str],
    k_s_of: Callable[[float], float] | None = None,
) -> SmallBatchLaw | None:
    """The law t ~ K / batch, from iteration times at ascending batch sizes; None where doubling the batch breaks it.

    Parameters
    ----------
    k_s_of : callable, optional
        From the iteration's time in ms to the law's constant in s.
    """
    times, sizes = np.asarray(iteration_time_ms, dtype=float), np.asarray(batch_sizes)
    if not times.size:
        return None
    broken = np.flatnonzero(np.abs(times / times[0] - 1.0) > LAW_TOLERANCE)
    last = int(broken[0]) - 1 if broken.size else times.size - 1
    if sizes[last] < 2 * sizes[0]:
        return None
    first_ms = float(times[0])
    return SmallBatchLaw(
        None if k_s_of is None else float(k_s_of(first_ms)),
        first_ms,
        int(sizes[0]),
        int(sizes[last]),
        bound[0],
    )


def explanation_rows(explanation: Explanation) -> list[dict[str, Any]]:
    """A row for each batch size; classes are columns such as ``convolution_ms``, bounds such as ``launch_bound_ms``."""
    about = {name: getattr(explanation, name) for name in _ABOUT}
    return [
        about
        | {"batch_size": size, "bound": explanation.bound[i]}
        | {name: getattr(explanation, name)[i] for name in _TIMES}
        | {f"{name}_ms": ms[i] for name, ms in explanation.classes.items()}
        | {f"{name}_bound_ms": ms[i] for name, ms in explanation.bound_ms.items()}
        | {name: getattr(explanation, name) for name in ("host", "method", "trained_on")}
        | {"extrapolates": explanation.extrapolates[i]}
        for i, size in enumerate(explanation.batch_sizes)
    ]


def row_columns(explanations: Sequence[Explanation]) -> list[str]:
    """Columns of the rows of several explanations, whose classes may differ."""
    classes = dict.fromkeys(name for each in explanations for name in each.classes)
    return [
        *_ABOUT,
        "batch_size",
        "bound",
        *_TIMES,
        *(f"{name}_ms" for name in classes),
        *(f"{name}_bound_ms" for name in GPU_BOUNDS),
        "host",
        "method",
        "trained_on",
        "extrapolates",
    ]
