"""Carries operator times over from another card of the same chip, or from another mode of the same card.

Nothing here is fitted. Part of an operator's time follows the memory bandwidth; the rest (arithmetic, cache, launch)
follows multiprocessors x clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import design_of, find_gpu
from predictor.models.forecast import Reason
from predictor.models.layer_times.times import (
    CARRIED,
    MEASURED,
    DeviceMode,
    OperatorSource,
    OperatorTimes,
)
from predictor.operators.operators import Operator
from predictor.operators.work import device_rates, moved_bytes, roofline_ms

Array = NDArray[np.float64]

_SUSTAINED = 0.92
"""Share of the data sheet's bandwidth that large element-wise kernels reach on an H200."""

_CACHE_BYTES = 40e6
"""Bytes moved below which most of an operator's data stay in the L2 cache of 50 to 60 MB; from 15 to 120 MB the whole
CNNs' error on an H100 stays within 0.2 points."""


_ALIKE, _OTHER = 1.5, 3.0
"""Factors on the half width of the GPU's time: the H200's operators miss CNNs on an H100 by 1.3 (TF32) and 1.8 times
(AMP channels-last) what the H100's own do; cards that differ in more were not judged."""


@dataclass(frozen=True, slots=True, eq=False)
class CarriedOver:
    """Operator times of `mode`, from those of another card of its chip, another mode, or both.

    Another card: t = t_r (s B_r / B + (1 - s) C_r / C), with B the memory bandwidth, C multiprocessors x boost clock
    and s = min(1, bytes / (0.92 B_r t_r)) / (1 + (40 MB / bytes)^2) the share of the time that the memory decides.
    Another mode: t = t_r x (roofline there / roofline here).
    """

    source: OperatorSource
    mode: DeviceMode

    @property
    def host(self) -> str | None:
        """The machine on which the source's host times were measured."""
        return self.source.host

    @property
    def host_mode(self) -> DeviceMode:
        """GPU and mode that the host times are taken for."""
        return self.mode

    @property
    def origin(self) -> str:
        """Source of the times in words, for answers."""
        return (
            f"{len(self)} operators measured on {self.source.mode.gpu}, a card of the same chip, carried over"
        )

    @property
    def reason(self) -> Reason:
        """Why the times extrapolate; wider where the cards differ in more than their memory."""
        card, source = find_gpu(self.mode.gpu), find_gpu(self.source.mode.gpu)
        alike = design_of(card) == design_of(source)
        text = f"operators carried over from {source.name}, a card of the same chip"
        return Reason(
            "gpu",
            text if alike else f"{text} with other multiprocessors or clocks",
            _ALIKE if alike else _OTHER,
        )

    @property
    def n_measured(self) -> int:
        """Number of measured times: operators x batch sizes of the source."""
        return self.source.n_measured

    def __len__(self) -> int:
        return len(self.source)

    def without(self, operators: Sequence[Operator]) -> CarriedOver:
        """The same without the source's measurements of these operators."""
        return replace(self, source=self.source.without(operators))

    def times(self, operators: Sequence[Operator], batch_sizes: Array) -> OperatorTimes:
        """Time of each operator at each batch size; errors as of `OperatorLibrary.times`."""
        source_times = self.source.times(operators, batch_sizes)
        gpu_ms = source_times.gpu_ms * self._ratio(operators, batch_sizes, source_times.gpu_ms)
        shape = np.where(source_times.shape == MEASURED, CARRIED, source_times.shape).astype(np.int8)
        return replace(source_times, gpu_ms=gpu_ms, shape=shape)

    def _ratio(self, operators: Sequence[Operator], batch_sizes: Array, source_ms: Array) -> Array:
        ratio = np.ones(source_ms.shape)
        if self.mode.precision != self.source.mode.precision:
            own_roofline, source_roofline = (
                roofline_ms(operators, batch_sizes, device_rates(self.source.mode.gpu, precision))
                for precision in (self.mode.precision, self.source.mode.precision)
            )
            ratio = own_roofline / source_roofline
        if self.mode.gpu != self.source.mode.gpu:
            ratio = ratio * self._card_ratio(operators, batch_sizes, source_ms * ratio)
        return ratio

    def _card_ratio(self, operators: Sequence[Operator], batch_sizes: Array, source_ms: Array) -> Array:
        card, source = find_gpu(self.mode.gpu), find_gpu(self.source.mode.gpu)
        moved = moved_bytes(
            operators, batch_sizes, device_rates(source.name, self.mode.precision).element_bytes
        )
        reached = source.memory_bandwidth_gb_per_s * 1e6 * _SUSTAINED  # bytes per ms
        with np.errstate(divide="ignore"):
            bound = np.minimum(1.0, moved / (reached * np.maximum(source_ms, 1e-12))) / (
                1.0 + (_CACHE_BYTES / moved) ** 2
            )
        memory = source.memory_bandwidth_gb_per_s / card.memory_bandwidth_gb_per_s
        arithmetic = (source.sm_count * source.boost_clock_ghz) / (card.sm_count * card.boost_clock_ghz)
        ratio: Array = bound * memory + (1.0 - bound) * arithmetic
        return ratio
