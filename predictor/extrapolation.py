"""Why an answer goes beyond what was measured: one short reason for each way in which it does.

Called by `predictor.model` and by fitting, which records the ranges; calls the CNN's kernels and the mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.gpus import Gpu
from predictor.kernels import KERNEL_CLASSES, Kernels
from predictor.layers import LayerTable
from predictor.modes import Mode

__all__ = ["Ranges", "reasons", "shape_ranges"]

_SHAPES = ("in_channels", "out_channels", "positions", "kernel_height", "kernel_width", "groups")
_FREE_TYPES = ("flatten",)  # no kernel runs


@dataclass(frozen=True, slots=True)
class Ranges:
    """What the training rows covered.

    `gpu_precisions` lists "gpu|precision" and `modes` "framework|precision|memory_format" as measured, `layer_types`
    the types of layers, `shapes` the least and greatest value of each column of convolutions, `batch_size`
    those of the mini-batch.
    """

    gpus: tuple[str, ...]
    generations: tuple[str, ...]
    gpu_precisions: tuple[str, ...]
    modes: tuple[str, ...]
    layer_types: tuple[str, ...]
    shapes: dict[str, tuple[float, float]]
    batch_size: tuple[int, int]

    def as_json(self) -> dict[str, Any]:
        """Plain lists and dicts."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Ranges:
        """Back from plain lists and dicts."""
        low, high = found["batch_size"]
        return cls(
            tuple(found["gpus"]),
            tuple(found["generations"]),
            tuple(found["gpu_precisions"]),
            tuple(found["modes"]),
            tuple(found["layer_types"]),
            {name: (float(a), float(b)) for name, (a, b) in found["shapes"].items()},
            (int(low), int(high)),
        )


def shape_ranges(kernels: Iterable[Kernels]) -> dict[str, tuple[float, float]]:
    """Least and greatest value of each convolution column among CNNs."""
    extremes = [(each[name][_conv(each)], name) for each in kernels if _conv(each).any() for name in _SHAPES]
    return {
        name: (
            float(min(values.min() for values, column in extremes if column == name)),
            float(max(values.max() for values, column in extremes if column == name)),
        )
        for name in _SHAPES
    }


def reasons(
    ranges: Ranges,
    table: LayerTable,
    kernels: Kernels,
    gpu: Gpu,
    mode: Mode,
    batch_sizes: NDArray[np.float64],
) -> tuple[tuple[str, ...], ...]:
    """Reasons for caution, for each batch size."""
    common = [
        *_of_gpu(ranges, gpu),
        *_of_mode(ranges, gpu, mode),
        *_of_cnn(ranges, table, kernels),
        *table.warnings,
    ]
    low, high = ranges.batch_size
    beyond = f"batch: measured from {low} to {high}"
    return tuple((*common, beyond) if not low <= batch <= high else tuple(common) for batch in batch_sizes)


def _of_gpu(ranges: Ranges, gpu: Gpu) -> list[str]:
    if gpu.name in ranges.gpus:
        return []
    if gpu.generation in ranges.generations:
        return ["gpu: never measured, from its specifications"]
    return [f"gpu: never measured, nor any of its generation ({gpu.generation})"]


def _of_mode(ranges: Ranges, gpu: Gpu, mode: Mode) -> list[str]:
    found = []
    frameworks = {word.split("|")[0] for word in ranges.modes}
    if mode.framework not in frameworks:
        found.append(f"framework: {mode.framework} was never measured")
    elif not any(word.startswith(f"{mode.framework}|{mode.precision}|") for word in ranges.modes):
        found.append(f"precision: {mode.precision} was never measured with {mode.framework}")
    elif gpu.name in ranges.gpus and f"{gpu.name}|{mode.precision}" not in ranges.gpu_precisions:
        found.append(f"precision: {mode.precision} was never measured on {gpu.name}")
    if not any(word.endswith(f"|{mode.memory_format}") for word in ranges.modes):
        found.append(f"memory format: {mode.memory_format} was never measured")
    if mode.capture != "eager":
        found.append(f"capture: no {mode.capture} was measured, the host's time is taken as zero")
    return found


def _of_cnn(ranges: Ranges, table: LayerTable, kernels: Kernels) -> list[str]:
    found = []
    unknown = sorted({layer.type for layer in table} - {*ranges.layer_types, *_FREE_TYPES})
    if unknown:
        found.append(f"operator: {', '.join(unknown)} never measured")
    conv = _conv(kernels)
    outside = [
        f"{name} beyond {low:g} to {high:g}"
        for name, (low, high) in ranges.shapes.items()
        if conv.any() and not low <= kernels[name][conv].min() <= kernels[name][conv].max() <= high
    ]
    if outside:
        found.append(f"shape: convolutions with {', '.join(outside)} never measured")
    return found


def _conv(kernels: Kernels) -> NDArray[np.bool_]:
    numbers = [i for i, name in enumerate(KERNEL_CLASSES) if name.startswith(("conv_", "depthwise_"))]
    return np.isin(kernels.kernel_class, numbers)
