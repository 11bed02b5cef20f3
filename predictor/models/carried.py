"""Carries a forecast over to another way of running the iteration: a ratio for each class of operators and the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from predictor.models.forecast import IterationForecast, Reason, widening
from predictor.models.roofline.terms import join_host

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from predictor.catalogue.devices import Gpu

    Array = NDArray[np.float64]
    Split = tuple[dict[str, Array], dict[str, dict[str, Array]]]

__all__ = ["MEASURED_ON", "carried", "spread_on"]

MEASURED_ON = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
"""GPUs whose iterations were measured both ways."""


def spread_on(gpu: Gpu, spread: float, elsewhere: float) -> float:
    """Half width of the interval of ln of a ratio on a GPU, which other GPUs than the measured ones widen."""
    return spread if gpu.name in MEASURED_ON else math.hypot(spread, elsewhere)


def carried(
    known: IterationForecast,
    ratio: float,
    class_ratios: Mapping[str, float],
    host_ratio: float,
    spread: float,
    host_spread: float,
    reasons: tuple[tuple[Reason, ...], ...],
) -> IterationForecast:
    """Forecast of an iteration from that of the same iteration run in a known way.

    Parameters
    ----------
    known : IterationForecast
        With GPU time apart from host time; corrected by runs of the CNN in the other way if there are any.
    ratio : float
        GPU time over the known one, of all classes but those of `class_ratios`.
    class_ratios : mapping of str to float
        The same by class of operators or kernels.
    host_ratio : float
        Host time over the known one.
    spread, host_spread : float
        Half widths of the 90 % interval that the ratios add to ln of GPU and host time.
    reasons : tuple of tuple of Reason
        What was not measured of the other way, at each batch size; they widen these two.

    Returns
    -------
    IterationForecast
        Its interval is that of the known one with what the ratios may err; runs of the CNN hold that error already.
    """
    apart = {name: ms for name, ms in known.class_ms.items() if name in class_ratios}
    total = sum((apart[name] for name in class_ratios if name in apart), np.zeros_like(known.gpu_time_ms))
    busy = ratio * (known.gpu_time_ms - total) + sum(
        (each * apart[name] for name, each in class_ratios.items() if name in apart), np.zeros_like(total)
    )
    host = host_ratio * known.host_time_ms
    time_ms = join_host(busy, host)
    wider = np.array(widening(reasons))
    if "anchored" in known.method:
        gpu_low, gpu_high = _half_widths(known.gpu_low_ms, known.gpu_time_ms, known.gpu_high_ms)
        low, high = _half_widths(known.low_ms, known.iteration_time_ms, known.high_ms)
    else:
        own = _half_widths(known.gpu_low_ms, known.gpu_time_ms, known.gpu_high_ms)
        gpu_low, gpu_high = (np.hypot(each, wider * spread) for each in own)
        factor = np.exp(np.hypot(known.host_spread, wider * host_spread))
        low, high = (
            np.hypot((busy / time_ms) ** 3 * width, np.log(join_host(busy, end) / time_ms))
            for width, end in ((gpu_low, host / factor), (gpu_high, host * factor))
        )

    def scaled(class_ms: dict[str, Array]) -> dict[str, Array]:
        return {name: ms * class_ratios.get(name, ratio) for name, ms in class_ms.items()}

    def split() -> Split:
        return scaled(known.class_ms), {rung: scaled(ms) for rung, ms in known.rung_ms.items()}

    return replace(
        known,
        iteration_time_ms=time_ms,
        gpu_time_ms=busy,
        host_time_ms=host,
        low_ms=time_ms * np.exp(-low),
        high_ms=time_ms * np.exp(high),
        gpu_low_ms=busy * np.exp(-gpu_low),
        gpu_high_ms=busy * np.exp(gpu_high),
        split=split,
        extrapolates=tuple((*some, *more) for some, more in zip(known.extrapolates, reasons, strict=True)),
    )


def _half_widths(low_ms: Array, middle_ms: Array, high_ms: Array) -> tuple[Array, Array]:
    """How far ln time may lie below and above."""
    return np.log(middle_ms / low_ms), np.log(high_ms / middle_ms)
