"""Operator times on one GPU in one mode, and their support: measured, carried over, interpolated, extrapolated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import all_gpus, find_gpu, is_cpu

MEASURED, CARRIED, NEAR, BEYOND, FARAWAY, UNKNOWN = range(6)
"""Support of a time, best first: measured (at this batch size or interpolated between two), carried over from another
card of the chip or another mode where it was measured, interpolated from near shapes, extrapolated beyond the measured
batch sizes, extrapolated from far shapes, of a type that was never measured."""

RUNGS = ("measured", "carried over", "interpolated", "extrapolated", "specifications")
"""Origins of an operator's time, best first."""

RUNG_OF = {
    MEASURED: RUNGS[0],
    CARRIED: RUNGS[1],
    NEAR: RUNGS[2],
    BEYOND: RUNGS[3],
    FARAWAY: RUNGS[3],
    UNKNOWN: RUNGS[3],
}


class DeviceMode(NamedTuple):
    """GPU and mode of a library; without `capture`, since an operator's own time does not depend on it."""

    gpu: str
    framework: str = "pytorch"
    precision: str = "fp32"
    memory_format: str = "nchw"
    autotune: bool = False

    @property
    def kernel_layout(self) -> str | None:
        """Memory format that decides how PyTorch's kernels on a GPU loop; None elsewhere."""
        return None if self.framework != "pytorch" or is_cpu(self.gpu) else self.memory_format

    def __str__(self) -> str:
        return " ".join([*self[:4], *(["autotuned"] if self.autotune else [])])


def cards_of_the_chip(mode: DeviceMode) -> list[DeviceMode]:
    """The same mode on the other cards of the chip."""
    if is_cpu(mode.gpu):
        return []
    return [mode._replace(gpu=name) for name in _cards(find_gpu(mode.gpu).name)]


@lru_cache(maxsize=256)
def _cards(name: str) -> tuple[str, ...]:
    chip = find_gpu(name).chip
    return tuple(gpu.name for gpu in all_gpus() if gpu.chip == chip and gpu.name != name)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorTimes:
    """Times of operators over batch sizes, in ms.

    `gpu_ms` has shape (n_operators, n_batches), `host_ms` (n_operators,), NaN where the library has no host times;
    `shape` (n_operators, n_batches) holds `MEASURED`, `CARRIED`, `NEAR`, `FARAWAY` or `UNKNOWN`, `beyond` -1 where the
    batch size is smaller than those measured, 1 where it is larger.
    """

    gpu_ms: Array
    host_ms: Array
    shape: NDArray[np.int8]
    beyond: NDArray[np.int8]

    @property
    def sureness(self) -> NDArray[np.int8]:
        """`BEYOND` beyond the measured batch sizes, unless the shape says less; else as `shape`."""
        return np.where(self.beyond == 0, self.shape, np.maximum(self.shape, BEYOND)).astype(np.int8)

    def surer_than(self, rival: OperatorTimes) -> NDArray[np.bool_]:
        """Mask, (n_operators, n_batches), of the times with narrower intervals than those of `rival`."""
        own, its = (times.sureness * len(RUNG_OF) + times.shape for times in (self, rival))
        return np.asarray(own < its)

    def changed(self, places: NDArray[np.intp], others: OperatorTimes) -> OperatorTimes:
        """These times, of which those of the operators at these places are `others`."""
        columns = [np.array(getattr(self, name)) for name in self.__slots__]
        for column, name in zip(columns, self.__slots__, strict=True):
            column[places] = getattr(others, name)
        return OperatorTimes(*columns)
