"""What an operator has to do, and what it looks like: the numbers by which operators are compared.

Called by operator_library and operator_neighbours; calls work (FLOPs and bytes of layers) and the roofline's rates.
Rooflines make operators of different sizes comparable: times span five orders of magnitude, times over rooflines one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.cpus import is_cpu
from predictor.errors import SchemaError
from predictor.gpus import find_gpu
from predictor.layers import IMAGE, Layer
from predictor.operators import Operator
from predictor.roofline.rates import LAUNCH_MS, Rates, rates_of
from predictor.work import PASSES, layer_bytes, layer_flops

__all__ = [
    "OPERATOR_CLASSES",
    "SHAPE_COLUMNS",
    "device_cache_bytes",
    "device_rates",
    "device_sm_count",
    "moved_bytes",
    "operator_class",
    "operator_work",
    "roofline_ms",
    "shape_columns",
]

Array = NDArray[np.float64]

OPERATOR_CLASSES = {
    "conv2d": "convolution",
    "conv_transpose2d": "convolution",
    "linear": "linear",
    "batch_norm": "batch_norm",
    "layer_norm": "layer_norm",
    "activation": "activation",
    "max_pool": "pooling",
    "avg_pool": "pooling",
    "add": "add",
    "multiply": "multiply",
    "concat": "concat",
    "dropout": "dropout",
    "stochastic_depth": "dropout",
    "permute": "permute",
    "pad": "permute",
    "other": "permute",
    "loss": "loss",
    "optimizer": "optimizer",
}
"""Type of an operator -> the class that it is summed in; depthwise convolutions are a class of their own."""

SHAPE_COLUMNS = (
    "in_channels",
    "out_channels",
    "groups",
    "positions",
    "map_ratio",
    "kernel",
    "elongation",
    "stride",
    "dilation",
    "uneven_in",
    "uneven_out",
    "uneven_map",
    "input_gradient",
    "in_place",
    "wide_input",
    "bias",
    "n_tensors",
    "forward",
    "broadcast",
)
"""Columns of `shape_columns`."""

_CPU_RATES = Rates(1e8, 1e8, 2e7, 4, False)  # 0.1 TFLOP/s and 20 GB/s: a scale, which cancels out
_MOMENTUM_TRAFFIC = 5.0  # reads weight, gradient and momentum, writes weight and momentum
_FP32_BYTES = 4.0
_LOSS_PASSES = 8.0


def operator_class(operator: Operator) -> str:
    """Class of operators whose times are added up with one weight."""
    if operator.type == "conv2d" and (operator.groups or 1) > 1 and operator.groups == operator.in_channels:
        return "depthwise"
    return OPERATOR_CLASSES[operator.type]


def device_rates(gpu: str, precision: str) -> Rates:
    """Rates of a GPU of the catalogue; of a CPU (``cpu:<model>``), which has none, those of a usual one."""
    return _CPU_RATES if is_cpu(gpu) else rates_of(find_gpu(gpu), precision)


def device_sm_count(gpu: str) -> int | None:
    """Multiprocessors of a GPU of the catalogue; None of a CPU."""
    return None if is_cpu(gpu) else find_gpu(gpu).sm_count


def device_cache_bytes(gpu: str) -> float | None:
    """L2 cache of a GPU of the catalogue; None of a CPU, and where it is not known."""
    size = None if is_cpu(gpu) else find_gpu(gpu).l2_mib
    return None if size is None else size * 2**20


def moved_bytes(operators: Sequence[Operator], batch_sizes: Array, rates: Rates) -> Array:
    """Bytes that operators read and write at least, forward and backward; shape (n_operators, n_batches)."""
    return _moved(_work(operators), batch_sizes, rates)


def _work(operators: Sequence[Operator]) -> Array:
    """What `operator_work` says of each, a row for each."""
    return np.array([operator_work(operator) for operator in operators], dtype=float).reshape(-1, 6)


def _moved(work: Array, batch_sizes: Array, rates: Rates) -> Array:
    elements, fixed, fixed_bytes, wide = (column[:, None] for column in work.T[1:5])
    batches = np.asarray(batch_sizes, dtype=float)[None, :]
    widening = np.where(rates.element_bytes < _FP32_BYTES, wide, 0.0) * (_FP32_BYTES - rates.element_bytes)
    moved: Array = (elements * batches + fixed) * rates.element_bytes + fixed_bytes + widening * batches
    return moved


def roofline_ms(operators: Sequence[Operator], batch_sizes: Array, rates: Rates) -> Array:
    """Least time of operators at full rates, plus a launch per pass, in ms; shape (n_operators, n_batches).

    Raises
    ------
    SchemaError
        If an operator lacks the shape that its work follows from.
    """
    work = _work(operators)
    flops, launches = work[:, :1], work[:, 5:]
    batches = np.asarray(batch_sizes, dtype=float)[None, :]
    moved = _moved(work, batch_sizes, rates)
    compute, memory = flops * batches / rates.flop_per_ms, moved / rates.bytes_per_ms
    least: Array = np.maximum(compute, memory) + launches * LAUNCH_MS
    return least


def shape_columns(operators: Sequence[Operator]) -> Array:
    """What decides how near an operator comes to its roofline; shape (n_operators, len(SHAPE_COLUMNS)).

    Sizes are base-2 logarithms, so that a difference of 1 means twice as many; flags are 0 or 1.
    """
    return np.array([_shape(operator) for operator in operators], dtype=float).reshape(-1, len(SHAPE_COLUMNS))


@lru_cache(maxsize=65536)
def operator_work(operator: Operator) -> tuple[float, float, float, float, float, float]:
    """FLOPs and elements per image, elements and bytes whatever the batch, wide elements per image, launches."""
    if operator.type == "optimizer":
        return 0.0, 0.0, 0.0, _MOMENTUM_TRAFFIC * _FP32_BYTES * operator.parameters, 0.0, 1.0
    if operator.type == "loss":
        return 0.0, _LOSS_PASSES * (operator.in_channels or 1), 0.0, 0.0, 0.0, 2.0
    layer = _layer(operator)
    passes = PASSES if operator.passes != "forward" else PASSES[:1]
    one, two = (sum(layer_bytes(layer, each, batch, 1.0) for each in passes) for batch in (1, 2))
    flops = sum(layer_flops(layer, each, 1) for each in passes)
    inputs = math.prod(getattr(layer, f"in_{part}") or 1 for part in ("channels", "height", "width"))
    launches = 1.0 if operator.passes == "forward" else 3.0 if operator.parameters else 2.0
    return flops, two - one, 2 * one - two, 0.0, float(inputs) if operator.wide_input else 0.0, launches


def _layer(operator: Operator) -> Layer:
    own = {entry.name for entry in fields(Operator)} & {entry.name for entry in fields(Layer)}
    columns = {name: getattr(operator, name) for name in own}
    inputs = (0,) if operator.input_gradient else (IMAGE,)
    return Layer(index=1, name=operator.name, inputs=inputs, **columns)


@lru_cache(maxsize=65536)
def _shape(operator: Operator) -> tuple[float, ...]:
    if operator.type == "optimizer":
        sizes = {"in_channels": operator.parameters, "n_tensors": operator.n_tensors}
        return tuple(_log2(sizes.get(name, 1)) for name in SHAPE_COLUMNS)
    if not operator.in_channels:
        raise SchemaError(f"{operator.name} has no in_channels, without which its time is unknown.")
    groups = operator.groups or 1
    ins, outs = operator.in_channels, operator.out_channels or operator.in_channels
    side_in = (operator.in_height or 1) * (operator.in_width or 1)
    side_out = (operator.out_height or 1) * (operator.out_width or 1)
    height, width = operator.kernel_height or 1, operator.kernel_width or 1
    weights = ins * outs * height * width / groups
    values = {
        "in_channels": _log2(ins / groups),
        "out_channels": _log2(outs / groups),
        "groups": _log2(groups),
        "positions": _log2(side_out),
        "map_ratio": _log2(side_in / side_out),
        "kernel": _log2(height * width),
        "elongation": abs(_log2(height / width)),
        "stride": _log2((operator.stride_height or 1) * (operator.stride_width or 1)),
        "dilation": _log2(operator.dilation or 1),
        "uneven_in": float((ins // groups) % 8 > 0),
        "uneven_out": float((outs // groups) % 8 > 0),
        "uneven_map": float((operator.out_width or 1) % 4 > 0),
        "input_gradient": float(operator.input_gradient),
        "in_place": float(operator.in_place),
        "wide_input": float(operator.wide_input),
        "bias": float(
            operator.type in ("conv2d", "conv_transpose2d", "linear") and operator.parameters > weights
        ),
        "n_tensors": _log2(operator.n_tensors),
        "forward": float(operator.passes == "forward"),
        "broadcast": float(operator.type == "multiply" and operator.parameters > 0),
    }
    return tuple(values[name] for name in SHAPE_COLUMNS)


def _log2(value: float) -> float:
    return math.log2(value) if value > 0 else 0.0
