"""What an iteration is made of: what bounds it (host, launches, arithmetic, memory), its passes, and jumps of times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.devices import LAUNCH_MS, Gpu, Rates, is_cpu, rates_of
from predictor.cnns.layer_table import LayerTable
from predictor.models.layer_times.library import OperatorLibrary
from predictor.operators.operators import (
    Operator,
    counted_operators,
    has_bias,
    is_product,
    layer_operators,
    operators_of,
    pass_weights,
)
from predictor.operators.work import operator_class, operator_work, roofline_ms

GPU_BOUNDS = ("launch", "compute", "memory")
"""What may bound an operator on the GPU: the fixed time of its kernels, arithmetic, memory bandwidth."""

BOUNDS = ("host", *GPU_BOUNDS, "device", "unknown")
"""What may bound an iteration: `device` if the part of the device is unknown (a CPU, or a CNN without layers),
`unknown` if the GPU time was not measured."""

OVERHEAD = "overhead"
"""Class of GPU time outside the operators: per operator and per iteration."""

_MATRIX_CLASSES = ("convolution", "linear")  # whose products run on tensor cores
_FP32_BYTES = 4.0
_BUSY = 1.15  # ratio of iteration time to GPU time up to which the GPU bounds the iteration


def bounding_ms(
    table: LayerTable,
    gpu: Gpu,
    precision: str,
    batch_sizes: Array,
    class_ms: Mapping[str, Array] | None,
    fp32_products: bool = False,
) -> dict[str, Array]:
    """GPU time by what bounds it, each of shape (n_batches,), in ms; empty for a CPU, whose peak rates are unknown.

    `class_ms` is the time of each operator class; without it the roofline time counts. SchemaError if a layer lacks the
    shape that its work follows from.

    An operator is bound by the greatest of FLOPs / peak, bytes / bandwidth and 4 us per kernel (the roofline of
    Williams, Waterman, Patterson 2009, with launches); a class's time is split in proportion to its operators' roofline
    times. Time outside the operators counts as launches, biases count as memory.
    """
    if is_cpu(gpu.name):
        return {}
    rates = rates_of(gpu, precision, fp32_products)
    batches = np.asarray(batch_sizes, dtype=float) / table.parts
    least: dict[str, Array] = {}  # roofline time of each class by what bounds its operators, (3, n_batches)
    for operator, count in operators_of(table).items():
        parts = _parts_ms(operator, rates, batches)
        sums = least.setdefault(operator_class(operator), np.zeros((len(GPU_BOUNDS), batches.size)))
        sums[parts.argmax(axis=0), np.arange(batches.size)] += count * parts.max(axis=0)
    if class_ms is None:
        return {name: sum(by[i] for by in least.values()) for i, name in enumerate(GPU_BOUNDS)}
    ms_by_bound = {name: np.zeros(len(batch_sizes)) for name in GPU_BOUNDS}
    for name, ms in class_ms.items():
        if name not in least:
            ms_by_bound["launch" if name == OVERHEAD else "memory"] += ms
            continue
        share = least[name] / least[name].sum(axis=0)
        for i, bound in enumerate(GPU_BOUNDS):
            ms_by_bound[bound] += ms * share[i]
    return ms_by_bound


def bounds_of(
    gpu_time_ms: Array,
    host_time_ms: Array,
    by_bound: Mapping[str, Array],
    iteration_time_ms: Array | None = None,
) -> tuple[str, ...]:
    """What bounds the iteration at each batch size, in the words of `BOUNDS`; times in ms, NaN where not measured.

    `by_bound` is as of `bounding_ms`, empty if unknown. Where the host's time is unknown, the GPU bounds an
    `iteration_time_ms` up to 1.15 x its own.
    """
    names = list(by_bound) or ["device"]
    on_gpu = [names[int(i)] for i in np.argmax(list(by_bound.values()) or [gpu_time_ms], axis=0)]
    wall_ms = gpu_time_ms if iteration_time_ms is None else iteration_time_ms
    waits = gpu_time_ms <= host_time_ms
    busy = (gpu_time_ms > host_time_ms) | (wall_ms <= _BUSY * gpu_time_ms)
    return tuple("host" if waits[i] else on_gpu[i] if busy[i] else "unknown" for i in range(len(gpu_time_ms)))


def _parts_ms(operator: Operator, rates: Rates, batches: Array) -> Array:
    """Time of launches, arithmetic and memory traffic of one operator; shape (3, n_batches)."""
    flops, elements, fixed, fixed_bytes, wide, launches = operator_work(operator)
    rate = rates.flop_per_ms if operator_class(operator) in _MATRIX_CLASSES else rates.fp32_flop_per_ms
    rate = rates.product_flop_per_ms if is_product(operator) else rate
    widening = wide * max(0.0, _FP32_BYTES - rates.element_bytes)
    bytes_moved = (elements * batches + fixed) * rates.element_bytes + fixed_bytes + widening * batches
    launch_ms = np.full(batches.size, launches * LAUNCH_MS)
    return np.array([launch_ms, flops * batches / rate, bytes_moved / rates.bytes_per_ms])


_RISE = 1.05  # of time per image: a larger batch should not need more
_FALL = 0.95  # of time: a larger batch should not need less
_LEAST_SHARE = 0.005  # of the iteration's GPU time


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of algorithm between two neighbouring measured batch sizes.

    `layer` is an operator's name, a convolution's shape, or the CNN's name for all its GPU time; `part` the pass whose
    kernel changed, if that was recorded. `before` and `after` name the kernels, None if inferred from a jump of the
    time. `factor` is the time per image after / before; None if inferred from the kernels' names.
    """

    layer: str
    part: str | None
    from_batch_size: int
    to_batch_size: int
    before: str | None
    after: str | None
    factor: float | None


def switches_of_library(
    library: OperatorLibrary,
    table: LayerTable,
    gpu_time_ms: Mapping[float, float],
    fp32_products: bool = False,
) -> tuple[Switch, ...]:
    """Jumps of the measured times of a CNN's operators, largest change of the iteration time first.

    Operators that the library lacks are skipped, and so are changes below 0.5 % of `gpu_time_ms`, the iteration's GPU
    time at the library's batch sizes.

    A jump: time per image rises by more than 5 %, or the time itself falls by more than 5 %, as the batch grows; with
    one algorithm the former falls and the latter rises.
    """
    row_of_operator = {operator: i for i, operator in enumerate(library.operators)}
    switches_by_effect: list[tuple[float, Switch]] = []
    for operator, count in zip(*counted_operators(table, fp32_products), strict=True):
        if operator in row_of_operator and operator.type != "optimizer":
            times = np.exp(library.log_ms[row_of_operator[operator]])
            for excess_ms, switch in jumps_of(operator.name, library.batch_sizes.tolist(), times.tolist()):
                if count * excess_ms > _LEAST_SHARE * gpu_time_ms.get(switch.to_batch_size, np.inf):
                    switches_by_effect.append((count * excess_ms, switch))
    return tuple(switch for _, switch in sorted(switches_by_effect, key=lambda pair: -pair[0]))


def jumps_of(
    name: str, batch_sizes: Sequence[float], times_ms: Sequence[float]
) -> Iterator[tuple[float, Switch]]:
    """Jumps between neighbouring batch sizes of known time, each with its excess over what one algorithm takes."""
    measured = [(size, ms) for size, ms in zip(batch_sizes, times_ms, strict=True) if ms > 0]
    for (small, small_ms), (large, large_ms) in pairwise(measured):
        ratio = large / small
        excess_ms = large_ms - ratio * small_ms if large_ms > _RISE * ratio * small_ms else 0.0
        excess_ms = small_ms - large_ms if large_ms < _FALL * small_ms else excess_ms
        if excess_ms > 0:
            factor = large_ms / small_ms * small / large
            yield excess_ms, Switch(name, None, int(small), int(large), None, None, factor)


def switches_of_algorithms(
    batch_sizes: Sequence[int], algorithms: Sequence[str | None]
) -> tuple[Switch, ...]:
    """Convolutions that another kernel computes at the next measured batch size, from the column conv_algorithms.

    Batch sizes ascend; an algorithm is JSON, layer -> {forward, backward_data, backward_filter}, or None.
    """
    by_size = ((size, _chosen(text, size)) for size, text in zip(batch_sizes, algorithms, strict=True))
    chosen_by_size = [(size, chosen) for size, chosen in by_size if chosen]
    return tuple(
        Switch(*layer_pass, small, large, before[layer_pass], name, None)
        for (small, before), (large, after) in pairwise(chosen_by_size)
        for layer_pass, name in after.items()
        if layer_pass in before and before[layer_pass] != name
    )


def _chosen(text: str | None, batch_size: int) -> dict[tuple[str, str], str]:
    """Kernel of each layer and pass; the batch size at the start of a layer's name is removed."""
    try:
        layers = json.loads(text) if isinstance(text, str) else {}
        return {
            (str(layer).removeprefix(f"{batch_size}x"), str(pass_)): str(name)
            for layer, kernels in layers.items()
            for pass_, name in kernels.items()
        }
    except (ValueError, AttributeError):
        return {}


PASSES_OF_STEP = ("forward", "recomputed", "backward_input", "backward_weight", "update", "other")
"""Passes of a training step: forward, the same again by gradient checkpointing, gradients of inputs and of weights, the
optimizer, and time outside the layers."""


@dataclass(frozen=True, slots=True)
class PartEffect:
    """What the ``frozen`` or ``recomputed`` parts of a step save at each batch size; below 0 is what they cost.

    `saves_ms` is the iteration time of the same step with these parts trained, or kept in memory, less its own;
    `saves_gib` the same of peak memory.
    """

    part: str
    saves_ms: tuple[float, ...]
    saves_gib: tuple[float, ...]


def passes_ms(
    table: LayerTable, rates: Rates, batch_sizes: Array, class_ms: Mapping[str, Array]
) -> dict[str, dict[str, Array]]:
    """GPU time by pass, then operator class, each of shape (n_batches,), in ms; passes that do not run are left out.

    SchemaError if a layer lacks the shape that its work follows from.

    A class's time is split in proportion to its operators' roofline times, and each operator's among its passes by
    `predictor.operators.operators.pass_weights`, as often as they run. Half of the loss is forward.
    """
    weights = _weights(table, rates, np.asarray(batch_sizes, dtype=float) / table.parts)
    ms_by_pass: dict[str, dict[str, Array]] = {name: {} for name in PASSES_OF_STEP}
    for name, ms in class_ms.items():
        ms_by_pass_of_class = weights.get(name)
        if ms_by_pass_of_class is None:
            ms_by_pass["other"][name] = ms
            continue
        total = sum(ms_by_pass_of_class.values())
        for pass_, pass_ms in ms_by_pass_of_class.items():
            ms_by_pass[pass_][name] = ms * pass_ms / total
    return {pass_: by_class for pass_, by_class in ms_by_pass.items() if by_class}


def _weights(table: LayerTable, rates: Rates, sizes: Array) -> dict[str, dict[str, Array]]:
    """Relative time of each class's passes, of shape (n_batches,)."""
    weights_by_class: dict[str, dict[str, Array]] = {}

    def add(of_class: str, pass_: str, ms: Array) -> None:
        by_pass = weights_by_class.setdefault(of_class, {})
        by_pass[pass_] = by_pass.get(pass_, np.zeros(sizes.size)) + ms

    by_layer = layer_operators(table)
    layers_ms = roofline_ms(list(by_layer.values()), sizes, rates)
    for (position, operator), least in zip(by_layer.items(), layers_ms, strict=True):
        layer = table.layers[position]
        weights, again = pass_weights(layer), table.recomputations(layer)
        gradients = (int(operator.input_gradient), 1)
        if layer.forwards is not None:
            gradients = (layer.input_gradients or 0, layer.weight_gradients or 0)
        first = (layer.forwards or 1) - again
        once = sum(weights) if operator.input_gradient else weights[0] + weights[2]
        order = (weights[0], weights[0], weights[1], weights[2])
        for pass_, runs, weight in zip(PASSES_OF_STEP, (first, again, *gradients), order, strict=False):
            if runs * weight:
                add(operator_class(operator), pass_, least * runs * weight / once)
        if has_bias(layer):  # a kernel of its own in a law of kernels: it reads and writes, then reads
            for pass_, numbers in zip(PASSES_OF_STEP, (2 * first, 2 * again, 0, gradients[1]), strict=False):
                if numbers:
                    add("bias", pass_, sizes * numbers * layer.repeats * (layer.out_channels or 1)
                        * (layer.out_height or 1) * (layer.out_width or 1))  # fmt: skip
    other_operators = {
        op: n for op, n in operators_of(table).items() if op.passes == "forward" or op.type in _PASSES_OF
    }
    others_ms = roofline_ms(list(other_operators), sizes, rates)
    for (operator, count), least in zip(other_operators.items(), others_ms, strict=True):
        passes = _PASSES_OF.get(operator.type, ("backward_input",))
        for pass_ in passes:
            add(operator_class(operator), pass_, count * least / len(passes))
    return weights_by_class


_PASSES_OF = {"optimizer": ("update",), "loss": ("forward", "backward_input")}
"""Passes of operators that are no layers; sums and joins of gradients are gradients of inputs."""


def operator_roofline_ms(
    operators: Sequence[Operator], gpu: Gpu, precision: str, batch_size: int
) -> list[float]:
    """Roofline time of each operator at a batch size, in ms; of a CPU, whose peak rates are unknown, its FLOPs."""
    if is_cpu(gpu.name):
        return [operator_work(operator)[0] * batch_size for operator in operators]
    rates, batches = rates_of(gpu, precision, False), np.array([float(batch_size)])
    return [float(_parts_ms(operator, rates, batches).max()) for operator in operators]
