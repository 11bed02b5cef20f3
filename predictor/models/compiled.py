"""What torch.compile changes in an iteration: it fuses what lies between matrix products, and copies and casts less.

Inductor, PyTorch's compiler, leaves convolutions to cuDNN and makes one kernel of the batch norms, activations and
additions between two of them, which then read and write the feature maps once. It also runs most CNNs channels-last,
whatever the memory format of the model, which is more than half of what it gains in TF32. Loss and optimizer stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from predictor.catalogue.devices import COMPILES_FROM, ELEMENT_BYTES, Gpu, compiles, is_cpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.carried import MEASURED_ON, carried, spread_on
from predictor.models.forecast import IterationForecast, Reason

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

__all__ = [
    "LAW",
    "MEASURED_WHERE",
    "UNCHANGED",
    "CompileLaw",
    "check_compiles",
    "compile_seconds",
    "compiled",
    "eager_mode",
    "is_mixed",
]

UNCHANGED = ("loss", "optimizer")
"""Classes of operators that are not compiled."""

_SMALL = 64  # channels
_MEASURED_IN = ("tf32", "amp_bf16")
_MEASURED_AT = (16, 256)  # images, from and to
MEASURED_WHERE = f"at batch {_MEASURED_AT[0]} to {_MEASURED_AT[1]} on an H100 and an H200"
"""Of the ratios of compiled iterations."""

_ELSEWHERE = 0.17
"""Half width of the 90 % interval of ln of the ratio compiled / eager from one GPU to another: forward passes of 1,625
CNNs and transformers on a GeForce RTX 4090 and 5090 (timm; `benchmarks/bench_compile.py`)."""


@dataclass(frozen=True, slots=True)
class CompileLaw:
    """Numbers fitted on compiled iterations beside the eager ones that are predicted (`predictor.models.compiled_fit`).

    GPU time = `full` (fp32, TF32) or `mixed` (half and mixed precision) x that of the eager iteration in the memory
    format that the compiler chooses, loss and optimizer apart, which stay; host time = `host` x that of the eager one
    in the model's own format. `spread` is the half width of the 90 % interval that the ratio adds to ln of the GPU time
    of an unseen CNN, `host_spread` to that of the host time. Compiling takes `compile_s` + `compile_layer_s` x layers,
    in seconds.
    """

    full: float
    mixed: float
    host: float
    spread: float = 0.0
    host_spread: float = 0.0
    compile_s: float = 0.0
    compile_layer_s: float = 0.0

    def ratio(self, precision: str) -> float:
        """Compiled / eager GPU time."""
        return self.mixed if is_mixed(precision) else self.full


LAW = CompileLaw(
    full=0.835,
    mixed=0.683,
    host=1.037,
    spread=0.103,
    host_spread=0.464,
    compile_s=7.1,
    compile_layer_s=0.166,
)
"""As fitted on the tables `*_compiled.csv.gz`; a test repeats the fit."""


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


def compiled(
    eager: IterationForecast,
    gpu: Gpu,
    mode: Mode,
    batch_sizes: ArrayLike,
    host_share: float = 1.0,
    law: CompileLaw = LAW,
) -> IterationForecast:
    """Forecast of a compiled iteration from that of the eager one in `eager_mode`.

    Parameters
    ----------
    eager : IterationForecast
        With GPU time apart from host time; corrected by compiled runs of the CNN if there are any.
    gpu : Gpu
    mode : Mode
    batch_sizes : array-like of shape (n_batches,)
    host_share : float
        Host time of an eager iteration in `mode` over that of `eager`.

    Returns
    -------
    IterationForecast
        Its interval is that of the eager one with what the law may err; runs of the CNN hold that error already.
    """
    return carried(
        eager,
        law.ratio(mode.precision),
        dict.fromkeys(UNCHANGED, 1.0),
        law.host * host_share,
        spread_on(gpu, law.spread, _ELSEWHERE),
        law.host_spread,
        _reasons(gpu, mode, np.asarray(batch_sizes, dtype=float)),
    )


def _reasons(gpu: Gpu, mode: Mode, batch_sizes: Array) -> tuple[tuple[Reason, ...], ...]:
    """Reasons for caution at each batch size: what of torch.compile was not measured."""
    common = []
    if gpu.name not in MEASURED_ON:  # the width of another GPU is in the interval
        common.append(Reason("capture", "compile was measured on an H100 and an H200 alone", 1.0))
    if mode.precision not in _MEASURED_IN:
        common.append(Reason("capture", f"compile was measured in {' and '.join(_MEASURED_IN)} alone"))
    least, most = _MEASURED_AT
    beyond = (*common, Reason("capture", f"compile was measured at batch sizes {least} to {most} alone"))
    return tuple(tuple(common) if least <= size <= most else beyond for size in batch_sizes.tolist())


def compile_seconds(table: LayerTable, law: CompileLaw = LAW) -> float:
    """Seconds of the first iteration, which compiles, on the hosts that measured it."""
    return law.compile_s + law.compile_layer_s * len(table)
