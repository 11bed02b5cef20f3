"""Classes of operators and bounds of measured iterations, from the operators that the same table measured.

Called by explain_tables; calls the zoo, operator libraries, bounds and switches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from predictor.bounds import bounding_ms, operator_classes_of
from predictor.cpus import cpu_device, is_cpu
from predictor.errors import EpochcastError
from predictor.gpus import find_gpu
from predictor.layer_law import CLASSES, LayerSums, layer_sums
from predictor.layers import LayerTable
from predictor.operator_library import NEAR, LibraryMode, OperatorLibrary
from predictor.sources import resolve_cnn
from predictor.switches import Switch, switches_of_library

__all__ = ["MeasuredClasses", "measured_bounds", "measured_classes", "zoo_layers"]

Array = NDArray[np.float64]

_LEAST_KNOWN = 0.9  # of the operators' time: below it, classes are left out
_NEGLIGIBLE = 0.005


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredClasses:
    """Time of classes, and how well they are known; without operators there is none."""

    classes: dict[str, Array]
    about: str
    reasons: tuple[str, ...]
    switches: tuple[Switch, ...]


def zoo_layers(cnn: str, image_size: int) -> LayerTable | None:
    """The layers of a CNN of the zoo; None for any other, and where the zoo's does not allow this size."""
    try:
        return None if Path(cnn).suffix else resolve_cnn(cnn, image_size)
    except EpochcastError:
        return None


def measured_classes(
    table: LayerTable | None, library: OperatorLibrary | None, sizes: Array, busy: Array
) -> MeasuredClasses:
    """Time of each class, scaled to the GPU's time that was measured, and the switches of the CNN's own operators.

    Parameters
    ----------
    table, library : LayerTable, OperatorLibrary
        None where nobody knows the layers, or the table has no operators of this device and mode.
    sizes, busy : ndarray, shape (n_batches,)
        Batch sizes, and the GPU's time in ms; NaN where not measured.
    """
    if table is None or library is None:
        return MeasuredClasses({}, "", (), ())
    sums = layer_sums(library, table, np.asarray(sizes, dtype=float))
    switches = switches_of_library(library, table, _alone_ms(library, table))
    strange, near = _worst(sums, strange=True), _worst(sums, strange=False)
    if strange > 1.0 - _LEAST_KNOWN:
        left_out = (
            f"classes: left out, since {100 * strange:.0f} % of the time is of operators unlike any measured"
        )
        return MeasuredClasses({}, "", (left_out,), switches)
    alone = sums.class_ms.sum(axis=0)
    scale = np.where(np.isfinite(busy), busy / alone, 1.0)
    classes = {name: ms * scale for name, ms in zip(CLASSES, sums.class_ms, strict=True) if ms.any()}
    ratio = np.median((alone / busy)[np.isfinite(busy)]) if np.isfinite(busy).any() else math.nan
    guessed = near + strange
    return MeasuredClasses(
        operator_classes_of(classes),
        f"; classes from {len(library)} operators, which alone add up to {ratio:.2f} x the GPU time",
        (f"classes: {100 * guessed:.0f} % of the time is of operators near to those measured",)
        if guessed > _NEGLIGIBLE
        else (),
        switches,
    )


def _alone_ms(library: OperatorLibrary, table: LayerTable) -> dict[float, float]:
    """What a CNN's operators take one by one, by the library's batch sizes."""
    alone = layer_sums(library, table, library.batch_sizes).class_ms.sum(axis=0)
    return dict(zip(library.batch_sizes.tolist(), alone.tolist(), strict=True))


def _worst(sums: LayerSums, *, strange: bool) -> float:
    """The largest share, over batch sizes, of the time of operators that were not measured themselves."""
    shares = [share for kind, share in sums.shares.items() if (kind == NEAR) != strange]
    return float(max(np.sum(shares, axis=0))) if shares else 0.0


def measured_bounds(
    table: LayerTable | None, mode: LibraryMode, sizes: Array, busy: Array, classes: dict[str, Array]
) -> dict[str, Array]:
    """GPU time by what bounds it: by the classes' times, else by the arithmetic of the layers alone, scaled."""
    if table is None:
        return {}
    gpu = cpu_device(mode.gpu) if is_cpu(mode.gpu) else find_gpu(mode.gpu)
    try:
        found = bounding_ms(table, gpu, mode.precision, sizes, classes or None)
    except EpochcastError:  # a precision without rates, such as fp32_or_tf32
        return {}
    total = sum(found.values(), np.zeros(len(sizes)))
    return {name: ms * busy / total for name, ms in found.items()}
