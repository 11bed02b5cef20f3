"""What resizing maps costs, and what it would by another memory format or mode: factors of up to 30 in PyTorch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from predictor.answers.resolved import Device
from predictor.catalogue.devices import is_cpu
from predictor.cnns.layer_table import LayerTable
from predictor.operator_types import RESIZING_TYPES
from predictor.operators.operators import as_run, operators_of
from predictor.operators.work import base_ms, device_rates, loops_of

_NEAREST = "upsample_nearest"
_LEAST_SHARE, _LEAST_FACTOR = 0.1, 2.0  # of the GPU's time, and of what another way saves, to be said


def resizing_ms(
    table: LayerTable, device: Device, batch_size: float, memory_format: str, type_: str = ""
) -> float:
    """Time of a CNN's resizing by specifications in a memory format, in ms; all by `type_` if it is given.

    0 in frameworks other than PyTorch and on a CPU.
    """
    gpu, mode = device
    if mode.framework != "pytorch" or is_cpu(gpu.name):
        return 0.0
    size, rates = np.array([batch_size / table.parts]), device_rates(gpu.name, mode.precision)
    total = 0.0
    for operator, count in operators_of(table).items():
        if operator.type in RESIZING_TYPES:
            running = as_run(operator, mode.framework, memory_format, mode.precision)
            changed = replace(running, type=type_ or operator.type)
            total += table.parts * count * float(base_ms([changed], size, rates, memory_format)[0, 0])
    return total


def advice_on_resizing(table: LayerTable, device: Device, batch_size: int, gpu_time_ms: float) -> str:
    """Sentence where loops of resizing take much of the GPU's time and another way saves it; else empty."""
    memory_format = device[1].memory_format
    own = [loops_of(layer)[memory_format == "channels_last"] for layer in table if layer.type != _NEAREST]
    own_ms = min(gpu_time_ms, resizing_ms(table, device, batch_size, memory_format)) if any(own) else 0.0
    if own_ms < _LEAST_SHARE * gpu_time_ms:
        return ""
    others = [("by mode='nearest'", resizing_ms(table, device, batch_size, memory_format, _NEAREST))]
    if memory_format == "nchw":
        others.insert(0, ("in channels-last", resizing_ms(table, device, batch_size, "channels_last")))
    faster = [f"{words} {own_ms / ms:.0f} x" for words, ms in others if own_ms > _LEAST_FACTOR * ms]
    if not faster:
        return ""
    share = f"{100 * own_ms / gpu_time_ms:.0f} % of the GPU's time at batch {batch_size:,}"
    return (
        f"Resizing maps takes about {share}: in this layout a few threads loop over images and channels; "
        f"{', '.join(faster)} faster."
    )
