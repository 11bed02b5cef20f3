"""What PyTorch's switches for debugging and repeating cost an iteration, where they are left on."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.devices import ELEMENT_BYTES, Gpu
from predictor.catalogue.modes import Habits, Mode
from predictor.cnns.layer_table import LayerTable
from predictor.models.forecast import IterationForecast
from predictor.models.hosts import autocast_host, enqueued
from predictor.models.join import join_host
from predictor.models.ratios import ratios_of
from predictor.operator_types import FILLED, OPERATOR_TYPES
from predictor.operators.memory import input_elements, output_elements
from predictor.operators.operators import is_depthwise, trained_tensors
from predictor.operators.work import device_rates

_FILL_MS = 0.0025
"""GPU time of filling a small tensor: a kernel and the pause behind it."""

_FILL_WEIGHT = 0.14
"""Host time of filling a tensor, over that of a CNN's mean layer."""

_TRACEBACK, _CHECK = 1.8, 0.5
"""Host time of anomaly detection for a node of autograd, over that of a CNN's mean layer: in the forward pass it keeps
a traceback, in the backward pass it launches a search for NaN in each gradient and waits for what that finds.

Fitted on nine CNNs in sixteen modes on two H200 (PyTorch 2.11): a traceback takes 4 to 10 us a line, of 16 to 24."""

_CHECK_BYTES = 2.0
"""Bytes that the search writes and reads for each number of a gradient, beside the number itself."""

_ANOMALY_SPREAD = 0.30
"""Half width of the ln of the time by what anomaly detection costs, on a host of known speed."""

_BY_INDICES_BYTES = 2000.0
"""Reads and writes of bilinear resizing by indices, forward and backward, for each number that it gives."""

_WIDE_BYTES = 10.0
"""Bytes for each number of a layer that autocast runs in float32: itself, and its copies in both types."""


@lru_cache(maxsize=256)
def autograd_nodes(table: LayerTable, *, amp: bool) -> int:
    """Nodes of autograd in an iteration: layers, trained tensors, and autocast's copies of the weights of layers."""
    weighted = sum(OPERATOR_TYPES[layer.type].weights == "filters" for layer in table)
    return table.parts * (len(table.layers) + trained_tensors(table) + weighted * amp)


@lru_cache(maxsize=256)
def filled(table: LayerTable, memory_format: str, precision: str) -> tuple[float, float]:
    """Bytes of an image, and tensors of an iteration, that `use_deterministic_algorithms` fills.

    It fills what kernels allocate by `torch.empty`: norms, copies, PyTorch's own depthwise convolutions and gradients
    of clamps; no results of cuDNN's convolutions, of sums, products and most activations. By PyTorch 2.11's source
    (`fill_empty_deterministic_`).
    """
    in_bytes, tensors, amp = 0.0, 0.0, precision.startswith("amp")
    for layer in table:
        kind, runs = layer.type, 1 if layer.forwards is None else layer.forwards
        if OPERATOR_TYPES[kind].weights == "filters":
            kind = "depthwise" if is_depthwise(layer) and memory_format == "nchw" else "weights"
        outputs, inputs, count = FILLED.get(
            "clamp" if layer.kind in ("relu6", "hardswish") else kind, (0, 0, 0)
        )
        numbers = outputs * output_elements(layer) + inputs * input_elements(layer)
        is_wide = amp and OPERATOR_TYPES[layer.type].amp_output == "wide"
        in_bytes += runs * numbers * (_WIDE_BYTES if is_wide else ELEMENT_BYTES[precision])
        tensors += runs * count * table.parts
    return in_bytes, tensors


def with_habits(
    forecast: IterationForecast, table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Array, habits: Habits
) -> IterationForecast:
    """The forecast of an iteration of PyTorch in eager mode whose switches are on.

    Filling takes the bytes of new tensors at the GPU's memory bandwidth and `_FILL_MS` a tensor, the host a seventh
    of a layer's time; bilinear resizing reads and adds by indices instead of its own kernel. With anomaly detection
    the host waits for each gradient, so that the GPU's time, its search in all gradients, and the host's time with that
    for all nodes add up, but for the forward pass, a third of the GPU's time, which waits for nothing. The interval's
    ends are those of a GPU and a host as much faster or slower, of which another one may decide than without them.
    """
    gpu_ms, host_ms = slower_gpu, slower_host = forecast.gpu_time_ms, forecast.host_time_ms
    if habits.deterministic:
        in_bytes, tensors = filled(table, mode.memory_format, mode.precision)
        resized = sum(output_elements(layer) for layer in table if layer.type == "upsample")
        moved = (in_bytes + resized * _BY_INDICES_BYTES) * batch_sizes
        slower_gpu = gpu_ms + moved / device_rates(gpu.name, mode.precision).bytes_per_ms + _FILL_MS * tensors
        slower_host = host_ms * (1.0 + _FILL_WEIGHT * tensors / enqueued(table, mode.optimizer))
    spread, beside_ms = 0.0, np.zeros(batch_sizes.shape)  # of the GPU's time, the host's before it waits
    if habits.detect_anomaly:
        nodes = autograd_nodes(table, amp=mode.precision.startswith("amp"))
        node_ms = slower_host / (autocast_host(mode) * enqueued(table, mode.optimizer))
        numbers = sum(map(output_elements, table)) * batch_sizes
        searched = numbers * (ELEMENT_BYTES[mode.precision] + _CHECK_BYTES)
        slower_gpu = slower_gpu + searched / device_rates(gpu.name, mode.precision).bytes_per_ms
        beside_ms = ratios_of("host")["forward"] * slower_host + _TRACEBACK * nodes * node_ms
        slower_host, spread = slower_host + (_TRACEBACK + _CHECK) * nodes * node_ms, _ANOMALY_SPREAD

    def longer(gpu: Array | float, host: Array | float) -> Array:
        """Ratio of the times with and without the switches, of a GPU and a host that take these factors of theirs."""
        before_ms, busy_ms = join_host(gpu * gpu_ms, host * host_ms, forecast.sharpness), gpu * slower_gpu
        if habits.detect_anomaly:
            return (busy_ms + host * slower_host - np.minimum(host * beside_ms, busy_ms / 3)) / before_ms
        return join_host(busy_ms, host * slower_host, forecast.sharpness) / before_ms

    middle, slow = longer(1.0, 1.0) * forecast.iteration_time_ms, np.exp(forecast.host_spread)
    low = longer(forecast.gpu_low_ms / gpu_ms, 1.0 / slow) * forecast.low_ms
    high = longer(forecast.gpu_high_ms / gpu_ms, slow) * forecast.high_ms
    below, above = (np.hypot(np.log(ratio), spread) for ratio in (middle / low, high / middle))
    times: dict[str, Any] = {"iteration_time_ms": middle, "low_ms": middle * np.exp(-below)}
    times["high_ms"] = middle * np.exp(above)
    for name in ("gpu_time_ms", "gpu_low_ms", "gpu_high_ms"):
        times[name] = slower_gpu / gpu_ms * getattr(forecast, name)
    return replace(forecast, host_time_ms=slower_host, **times)
