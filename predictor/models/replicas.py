"""Iterations of `torch.nn.DataParallel`: one process copies the CNN to its GPUs and runs a thread per GPU.

The threads share one interpreter, so that the host decides: it takes about seven times as long as for one GPU's share
of the images. cuDNN keeps the plans of a thread, and these threads live for one forward pass: depthwise convolutions
whose kernels it compiles are compiled in every pass. ``benchmarks/ratios_fit.py`` fits the numbers on
``benchmarks/replicas_h200.csv``.
"""

from __future__ import annotations

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.models.forecast import WIDENS, Reason
from predictor.models.ratios import Ratios, ratios_of

ENTRY = "replicas"
_MEASURED_ON = 2  # GPUs


def compiled_convolutions(table: LayerTable, mode: Mode) -> int:
    """Depthwise convolutions whose kernels cuDNN compiles: those in 16 bits or channels-last.

    Layer norms over channels leave channels-last maps behind them, as in ConvNeXt.
    """
    types = {layer.type for layer in table}
    is_last = mode.memory_format == "channels_last" or {"permute", "layer_norm"} <= types
    if not is_last and mode.precision in ("fp32", "tf32"):
        return 0
    convolutions = (layer for layer in table if layer.type == "conv2d")
    depthwise = (layer for layer in convolutions if 1 < (layer.groups or 1) == layer.in_channels)
    return sum(layer.repeats for layer in depthwise)


def replicas_host_ms(
    host_ms: Array, n_gpus: Array, compiled: Array, parts: int = 1, ratios: Ratios | None = None
) -> Array:
    """The host's time for an iteration, in ms, from that for one GPU's share of the images.

    (`host_ms` x parts + `host` x that of one GPU + `compiled_ms` x compiled convolutions x parts) x n / 2: measured on
    two GPUs, whose threads take turns.
    """
    ratios = ratios or ratios_of(ENTRY)
    begins = parts * (ratios["host_ms"] + ratios["compiled_ms"] * compiled)
    return (begins + ratios["host"] * host_ms) * n_gpus / _MEASURED_ON


def replicas_iteration_ms(gpu_ms: Array, host_ms: Array, ratios: Ratios | None = None) -> Array:
    """Iteration in ms: the host's time, or the GPU's after `before_gpu` of it, whichever is longer."""
    ratios = ratios or ratios_of(ENTRY)
    return np.maximum(host_ms, gpu_ms + ratios["before_gpu"] * host_ms)


def replicas_times(
    times: dict[str, Array], n_gpus: Array, compiled: Array, parts: int, widens: Array
) -> dict[str, Array]:
    """Times of iterations under DataParallel from those of one GPU at its share of the images, by the same names.

    `times`, `n_gpus`, `compiled` (of `compiled_convolutions`), `widens`: shape (n_rows,). The interval is that of one
    GPU joined with the law's error; for more than two GPUs it reaches down to a host that takes as long as for two.
    """
    ratios = ratios_of(ENTRY)
    host_ms = replicas_host_ms(times["host_time_ms"], n_gpus, compiled, parts, ratios)
    time_ms = replicas_iteration_ms(times["gpu_time_ms"], host_ms, ratios)
    compiling = parts * ratios["compiled_ms"] * compiled * n_gpus / _MEASURED_ON / time_ms
    law = np.hypot(ratios.spread, ratios["compiled_spread"] * np.minimum(compiling, 1.0))
    fewer = replicas_iteration_ms(times["gpu_time_ms"], host_ms * _MEASURED_ON / n_gpus, ratios)
    one_ms = times["iteration_time_ms"]
    below = np.hypot(np.hypot(law, np.log(one_ms / times["low_ms"])) * widens, np.log(time_ms / fewer))
    above = np.hypot(law, np.log(times["high_ms"] / one_ms)) * widens
    ends = {"low_ms": time_ms * np.exp(-below), "high_ms": time_ms * np.exp(above)}
    return {**times, **ends, "iteration_time_ms": time_ms, "host_time_ms": host_ms}


def replicas_reasons(n_gpus: int) -> tuple[Reason, ...]:
    """Reasons for caution about iterations under DataParallel."""
    text = "nn.DataParallel by a law of 56 iterations of 23 CNNs on two H200"
    more = f"; on {n_gpus} GPUs its threads take turns: assumed" if n_gpus > _MEASURED_ON else ""
    return (Reason("parallel", text + more, WIDENS if more else 1.0),)
