"""Chainer's iterations from PyTorch's: other kernels of cuDNN for convolutions, and more time of the host.

Chainer calls the interface that cuDNN had before 2020. What cuDNN keeps behind it hardly uses the tensor cores of newer
GPUs, and with Chainer's 8 MiB of workspace no fast algorithm for windows of 3 x 3: in TF32 as in fp32, its iterations
take what PyTorch's take in fp32, convolutions with windows longer. Activations and additions take longer, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import CHAINER, Mode, chainer_lacks
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.measurements.hosts import HostMeasurement
from predictor.models.carried import MEASURED_ON, carried, spread_on
from predictor.models.forecast import IterationForecast, Reason
from predictor.operators.kernels import KERNEL_CLASSES, OPERATOR_CLASS_OF_KERNELS, kernels_of

__all__ = [
    "CONVOLUTIONS",
    "LAW",
    "PRODUCTS",
    "ChainerLaw",
    "chainer_iteration",
    "check_chainer",
    "pytorch_host",
    "pytorch_mode",
    "windowed_share",
]

CONVOLUTIONS = (
    "convolution",
    "depthwise",
    *(name for name in KERNEL_CLASSES if OPERATOR_CLASS_OF_KERNELS.get(name) in ("convolution", "depthwise")),
)
"""Classes of operators and kernels that are convolutions."""

PRODUCTS = ("linear", "matmul")
"""Classes that cuBLAS computes for Chainer and PyTorch alike."""

_SAME_KERNELS_BELOW = 8.0  # compute capability: PyTorch, too, was measured on the old interface there
_ELSEWHERE = math.log(3.0)
"""Half width of the 90 % interval of ln GPU time that other GPUs add: PyTorch's fp32 iterations take about 3 times its
TF32 ones on an H200 (VGG 3.1, ResNet-50 2.4); so far off lies a GPU whose tensor cores the old interface uses."""
_HALF_SPREAD = 0.27
"""The same of half precision, from the two ratios that `ChainerLaw.half` is the mean of."""


@dataclass(frozen=True, slots=True)
class ChainerLaw:
    """Numbers fitted on Chainer's times beside PyTorch's (`predictor.models.chainer_fit`).

    GPU time = time of PyTorch in fp32 x 1 for pointwise convolutions and matrix products, `windowed` for convolutions
    with larger windows, `rest` for all else; all of it x `half` in half and mixed precision. Host time = `host` x
    PyTorch's in the same precision. Before Ampere, GPU time = PyTorch's in the same precision, x `rest` for all but
    convolutions and products. `spread` and `host_spread` are the half widths of the 90 % interval that these add to ln
    time.
    """

    windowed: float
    rest: float
    half: float
    host: float
    spread: float = 0.0
    host_spread: float = 0.0


LAW = ChainerLaw(windowed=1.73, rest=1.2, half=1.41, host=3.47, spread=0.61, host_spread=0.58)
"""As fitted on the project's tables of an H200; a test repeats the fit."""


def check_chainer(mode: Mode) -> None:
    """Refuse what Chainer does not have; OutOfRangeError with the next step."""
    name = chainer_lacks(mode)
    if name is not None:
        raise OutOfRangeError(
            f"Chainer does not have {name} {getattr(mode, name)!r}. It has: {', '.join(CHAINER[name])}. Pass one of "
            "them, or framework pytorch."
        )


def pytorch_mode(gpu: Gpu, mode: Mode) -> Mode:
    """PyTorch's mode whose kernels are like Chainer's: fp32 from Ampere on, the same precision before; always NCHW."""
    precision = mode.precision if _old_interface(gpu) else "fp32"
    return replace(mode, framework="pytorch", precision=precision, memory_format="nchw")


def pytorch_host(host: str | HostMeasurement | None, law: ChainerLaw = LAW) -> str | HostMeasurement | None:
    """The host as PyTorch would find it; one that was measured with Chainer by these times alone."""
    if not isinstance(host, HostMeasurement) or not host.times_of("chainer"):
        return host
    times = host.times_of("chainer")
    return replace(
        host,
        times=tuple(
            replace(each, framework="pytorch", host_time_ms=each.host_time_ms / law.host) for each in times
        ),
    )


def windowed_share(table: LayerTable) -> float:
    """Share of the FLOPs of a CNN's convolutions in those with windows larger than 1 x 1; 0 without convolutions."""
    kernels = kernels_of(table)
    names = np.array(KERNEL_CLASSES)[kernels.kernel_class]
    flops = kernels.count * kernels["flops"] * np.isin(names, CONVOLUTIONS)
    windows = kernels["kernel_height"] * kernels["kernel_width"] > 1
    total = float(flops.sum())
    return float(flops[windows].sum()) / total if total else 0.0


def chainer_iteration(
    known: IterationForecast,
    table: LayerTable,
    gpu: Gpu,
    mode: Mode,
    host_share: float = 1.0,
    law: ChainerLaw = LAW,
) -> IterationForecast:
    """Forecast of an iteration by Chainer from that by PyTorch in `pytorch_mode`.

    Parameters
    ----------
    known : IterationForecast
        With GPU time apart from host time; corrected by Chainer's runs of the CNN if there are any.
    table : LayerTable
    gpu : Gpu
    mode : Mode
    host_share : float
        Host time of PyTorch in the precision of `mode` over that of `known`.

    Returns
    -------
    IterationForecast
        Its interval is that of PyTorch's with what the ratios may err, much wider on other GPUs than an H100 or H200.
    """
    old = _old_interface(gpu)
    half = 1.0 if old or mode.precision in ("fp32", "tf32") else law.half
    share = windowed_share(table)
    convolutions = 1.0 if old else law.windowed * share + 1.0 - share
    spread = math.hypot(law.spread, _HALF_SPREAD if half != 1.0 else 0.0)
    return carried(
        known,
        half * law.rest,
        dict.fromkeys(CONVOLUTIONS, half * convolutions) | dict.fromkeys(PRODUCTS, half),
        law.host * host_share,
        spread_on(gpu, spread, _ELSEWHERE),
        law.host_spread,
        (_reasons(table, gpu),) * len(known.extrapolates),
    )


def _old_interface(gpu: Gpu) -> bool:
    """Whether PyTorch's times on a GPU are of the interface that Chainer calls, or of its like."""
    return gpu.compute_capability < _SAME_KERNELS_BELOW


def _reasons(table: LayerTable, gpu: Gpu) -> tuple[Reason, ...]:
    """Reasons for caution; the interval holds what the first two say."""
    found = [Reason("framework", "Chainer is carried over from PyTorch by ratios measured on an H200", 1.0)]
    if gpu.name not in MEASURED_ON:
        found.append(Reason("gpu", f"Chainer's ratios to PyTorch were not measured on {gpu.name}", 1.0))
    if any((layer.groups or 1) > 1 for layer in table):
        found.append(Reason("operator", "no convolution with groups was measured with Chainer"))
    return tuple(found)
