"""What torch.compile changes in an iteration: it fuses what lies between matrix products, and copies and casts less.

Inductor, PyTorch's compiler, leaves convolutions to cuDNN and makes one kernel of the batch norms, activations and
additions between two of them, which then read and write the feature maps once. It also runs most CNNs channels-last,
whatever the memory format of the model, which is more than half of what it gains in TF32. Loss and optimizer stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from predictor.catalogue.devices import COMPILES_FROM, ELEMENT_BYTES, Gpu, compiles, is_cpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.forecast import Reason
from predictor.models.ratios import Change, Ratios, Way, ratios_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = [
    "COMPILED",
    "UNCHANGED",
    "check_compiles",
    "compile_seconds",
    "eager_mode",
    "is_mixed",
    "measured_where",
]

UNCHANGED = ("loss", "optimizer")
"""Classes of operators that are not compiled."""

_SMALL = 64  # channels


def is_mixed(precision: str) -> bool:
    """Whether feature maps are of two bytes."""
    return ELEMENT_BYTES[precision] == 2


def check_compiles(gpu: Gpu, mode: Mode) -> None:
    """Refuse what PyTorch's compiler does not do, or nobody measured; OutOfRangeError with the next step."""
    if mode.framework != "pytorch":
        raise OutOfRangeError(
            f"capture compile is PyTorch's torch.compile, which {mode.framework} does not have. Leave capture out, or "
            "pass framework pytorch."
        )
    if is_cpu(gpu.name):
        raise OutOfRangeError(f"capture compile is predicted on GPUs, not on {gpu.name}. Pass capture eager.")
    if not compiles(gpu):
        raise OutOfRangeError(
            f"{gpu.name} has compute capability {gpu.compute_capability:g}, and torch.compile makes kernels from "
            f"{COMPILES_FROM} on. Pass capture eager or graph, or a GPU from Volta on."
        )


def eager_mode(table: LayerTable, mode: Mode) -> Mode:
    """The eager mode whose convolutions are those of the compiled iteration.

    Notes
    -----
    PyTorch's compiler makes a training CNN channels-last unless a convolution has groups of several channels, one with
    a window halves its channels or more, or all are small (`torch._inductor.graph.GraphLowering.decide_layout_opt`).
    """
    layout = "channels_last" if _turns_channels_last(table) else mode.memory_format
    return replace(mode, capture="eager", memory_format=layout)


def _turns_channels_last(table: LayerTable) -> bool:
    convolutions = [layer for layer in table if layer.type == "conv2d"]
    return bool(convolutions) and not (
        any(map(_keeps_layout, convolutions)) or all(map(_is_small, convolutions))
    )


def _channels_of_a_filter(layer: Layer) -> int:
    return (layer.in_channels or 1) // (layer.groups or 1)


def _keeps_layout(layer: Layer) -> bool:
    own = _channels_of_a_filter(layer)
    grouped = (layer.groups or 1) > 1 and own > 1
    return grouped or (2 * (layer.out_channels or 1) <= own and (layer.kernel_height or 1) > 1)


def _is_small(layer: Layer) -> bool:
    return (layer.out_channels or 1) <= _SMALL and _channels_of_a_filter(layer) <= _SMALL


def _known_mode(table: LayerTable, gpu: Gpu, mode: Mode) -> Mode:
    check_compiles(gpu, mode)
    return eager_mode(table, mode)


def _change(_: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Array, ratios: Ratios) -> Change:
    return Change(
        ratios["mixed" if is_mixed(mode.precision) else "full"],
        dict.fromkeys(UNCHANGED, 1.0),
        ratios["host"],
        ratios.spread_on(gpu),
        ratios.host_spread,
        _reasons(ratios, gpu, mode, batch_sizes),
    )


COMPILED = Way("compile", _known_mode, lambda mode: replace(mode, capture="eager"), _change)
"""Compiled iterations from eager ones in `eager_mode`.

GPU time = `full` (fp32, TF32) or `mixed` (half and mixed precision) x that of the eager iteration, loss and optimizer
apart; host time = `host` x that of the eager one in the model's own memory format. Compiling takes `compile_s` +
`compile_layer_s` x layers, in seconds. Elsewhere than on measured GPUs the ratio varies as that of forward passes of
1,625 CNNs and transformers does from a GeForce RTX 4090 to a 5090 (timm).
"""


def _reasons(ratios: Ratios, gpu: Gpu, mode: Mode, batch_sizes: Array) -> tuple[tuple[Reason, ...], ...]:
    """Reasons for caution at each batch size: what of torch.compile was not measured."""
    common = []
    if not ratios.measured_on(gpu):  # the width of another GPU is in the interval
        common.append(Reason("capture", "compile was measured on an H100 and an H200 alone", 1.0))
    if mode.precision not in ratios.precisions:
        common.append(Reason("capture", f"compile was measured in {' and '.join(ratios.precisions)} alone"))
    least, most = ratios.batch_sizes
    beyond = (*common, Reason("capture", f"compile was measured at batch sizes {least} to {most} alone"))
    return tuple(tuple(common) if least <= size <= most else beyond for size in batch_sizes.tolist())


def measured_where() -> str:
    """Where compiled iterations were measured, in words."""
    least, most = ratios_of("compile").batch_sizes
    return f"at batch {least} to {most} on an H100 and an H200"


def compile_seconds(table: LayerTable) -> float:
    """Seconds of the first iteration, which compiles, on the hosts that measured it."""
    ratios = ratios_of("compile")
    return ratios["compile_s"] + ratios["compile_layer_s"] * len(table)
