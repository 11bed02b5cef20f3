"""Chainer's iterations from PyTorch's: other kernels of cuDNN for convolutions, and more time of the host.

Chainer calls the interface that cuDNN had before 2020. What cuDNN keeps behind it hardly uses the tensor cores of newer
GPUs, and with Chainer's 8 MiB of workspace no fast algorithm for windows of 3 x 3: in TF32 as in fp32, its iterations
take what PyTorch's take in fp32, convolutions with windows longer. Activations and additions take longer, too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import CHAINER, USUAL_WORKSPACE_MIB, Mode, chainer_lacks
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.measurements.hosts import HostMeasurement
from predictor.models.forecast import IterationForecast, Reason
from predictor.models.join import with_gpu_share
from predictor.models.ratios import Change, DerivedMode, Ratios, ratios_of
from predictor.operators.kernels import KERNEL_CLASSES, OPERATOR_CLASS_OF_KERNELS, kernels_of

CONVOLUTIONS = (
    "convolution",
    "depthwise",
    *(name for name in KERNEL_CLASSES if OPERATOR_CLASS_OF_KERNELS.get(name) in ("convolution", "depthwise")),
)
"""Classes of operators and kernels that are convolutions."""

PRODUCTS = ("linear", "matmul")
"""Classes that cuBLAS computes for Chainer and PyTorch alike."""

SINGLE = 1.5
"""Factor on the half width for CNNs of one convolution, from proxies left out of the fit."""
_CHANNELS, _PIXELS = 64, 5e4  # where the ratio of convolutions with windows is `windowed`
_SAME_KERNELS_BELOW = 8.0  # compute capability: PyTorch, too, was measured on the old interface there


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


def pytorch_host(host: str | HostMeasurement | None) -> str | HostMeasurement | None:
    """The host with PyTorch's times; a host measured with Chainer gets them from its times with Chainer."""
    if not isinstance(host, HostMeasurement) or not host.times_of("chainer"):
        return host
    ratio, times = ratios_of("chainer")["host"], host.times_of("chainer")
    of_pytorch = (
        replace(time, framework="pytorch", host_time_ms=time.host_time_ms / ratio) for time in times
    )
    return replace(host, times=tuple(of_pytorch))


def windowed_share(table: LayerTable) -> float:
    """Share of the FLOPs of a CNN's convolutions in those with windows larger than 1 x 1; 0 without convolutions."""
    kernels = kernels_of(table)
    names = np.array(KERNEL_CLASSES)[kernels.kernel_class]
    flops = kernels.count * kernels["flops"] * np.isin(names, CONVOLUTIONS)
    windows = kernels["kernel_height"] * kernels["kernel_width"] > 1
    total = float(flops.sum())
    return float(flops[windows].sum()) / total if total else 0.0


def windowed_size(table: LayerTable) -> tuple[float, float]:
    """Mean ln of channels / 64 and of pixels / 50,000 of the convolutions with windows, by FLOPs; 0 without any.

    Channels are the geometric mean of input's and output's, pixels those of the output of one image. Convolutions with
    groups are left out.
    """
    convolutions = [layer for layer in table if layer.type == "conv2d" and (layer.groups or 1) == 1]
    pairs = ("in_channels", "out_channels"), ("out_height", "out_width"), ("kernel_height", "kernel_width")
    sizes = [
        [(getattr(layer, a) or 1) * (getattr(layer, b) or 1) for layer in convolutions] for a, b in pairs
    ]
    products, pixels, kernels = np.array(sizes, float)[:, np.array(sizes[2]) > 1]
    if not kernels.size:
        return 0.0, 0.0
    channels, weights = 0.5 * np.log(products) - math.log(_CHANNELS), products * pixels * kernels
    pixels = np.log(pixels / _PIXELS)
    return float(np.average(channels, weights=weights)), float(np.average(pixels, weights=weights))


def windowed_ratio(size: tuple[float, float], batch_sizes: Array, ratios: Ratios) -> Array:
    """Time of convolutions with windows over PyTorch's, at each batch size; `size` is as of `windowed_size`."""
    channels, pixels = size
    beyond = ratios["channels"] * channels + ratios["pixels"] * (pixels + np.log(batch_sizes))
    return np.asarray(ratios["windowed"] * np.exp(beyond))


def _change(
    _: IterationForecast, table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Array, ratios: Ratios
) -> Change:
    old = _old_interface(gpu)
    half = 1.0 if old or mode.precision in ("fp32", "tf32") else ratios["half"]
    share = windowed_share(table)
    ratio = windowed_ratio(windowed_size(table), batch_sizes / table.parts, ratios)
    convolutions = np.ones(len(batch_sizes)) if old else ratio * share + 1.0 - share
    spread = math.hypot(ratios.spread, ratios["half_spread"] if half != 1.0 else 0.0)
    classes = dict.fromkeys(CONVOLUTIONS, half * convolutions) | dict.fromkeys(PRODUCTS, half)
    spreads = replace(ratios, spread=spread).spread_on(gpu), ratios.host_spread
    reasons = (_reasons(ratios, table, gpu),) * len(batch_sizes)
    return Change(half * ratios["rest"], classes, ratios["host"], *spreads, reasons)


CHAINER_BY_PYTORCH = DerivedMode(
    "chainer",
    lambda _, gpu, mode: pytorch_mode(gpu, mode),
    lambda mode: replace(mode, framework="pytorch", memory_format="nchw"),
    _change,
)
"""Chainer's iterations from PyTorch's in `pytorch_mode`.

GPU time = time of PyTorch in fp32 x 1 for pointwise convolutions and matrix products, `windowed` x (channels /
64)^`channels` x (pixels of the mini-batch / 50,000)^`pixels` for convolutions with larger windows, `rest` for all else;
all of it x `half` in half and mixed precision, within `half_spread`. Host time = `host` x PyTorch's in the same
precision. Before Ampere, GPU time = PyTorch's in the same precision, x `rest` for all but convolutions and products.
On a GPU whose tensor cores the old interface uses, predictions may be a factor of 3 too long: on an H200, PyTorch's
fp32 iterations take 2.4 (ResNet-50) to 3.1 times (VGG) as long as its TF32 ones.
"""


_WITHOUT_CUDNN = 2.1, 1.05, 5.0
_PER_DOUBLING, _LEAST_SHARE = 0.04, 0.5


def with_convolutions(
    forecast: IterationForecast, *, no_cudnn: bool, workspace_mib: float
) -> IterationForecast:
    """Chainer's forecast without cuDNN, or with another limit of cuDNN's workspace than its own 8 MiB.

    Without cuDNN the GPU takes 2.1 times as long, from 1.05 to 5: 1.1 to 1.3 of a VGG on 32 pixels, 1.4 of VGG-16, 3.6
    to 5.0 of ResNets on an H100, 2.5 on an H200, 2.0 on the founding talk's V100. Each doubling of the limit spares 4 %
    of the GPU's time (-5 to 50 % in all): 28 iterations of five CNNs on an H100 at 64 and 512 MiB take 0.53 to 1.04 of
    theirs at 8.
    """
    if no_cudnn:
        share, best, worst = _WITHOUT_CUDNN
        text = (
            "without cuDNN, 9 iterations on a V100, an H100 and an H200 took 1.1 to 5 times as long; counted as "
            f"{share:g} times"
        )
    elif workspace_mib != USUAL_WORKSPACE_MIB:
        share = math.exp(-_PER_DOUBLING * math.log2(workspace_mib / USUAL_WORKSPACE_MIB))
        best, worst = (_LEAST_SHARE, 1.05) if share < 1.0 else (1.0, 1.0 / _LEAST_SHARE)
        text = (
            f"workspaces of 64 and 512 MiB were measured only on an H100 (0.53 to 1.04 of the GPU's time with "
            f"{USUAL_WORKSPACE_MIB:g}); {workspace_mib:g} MiB is counted as {share:.2g} of it"
        )
    else:
        return forecast
    return with_gpu_share(forecast, share, best, worst, Reason("cudnn", text))


def _old_interface(gpu: Gpu) -> bool:
    """Whether PyTorch runs the same or similar kernels on this GPU as the interface that Chainer calls."""
    return gpu.compute_capability < _SAME_KERNELS_BELOW


def _reasons(ratios: Ratios, table: LayerTable, gpu: Gpu) -> tuple[Reason, ...]:
    """Reasons for caution; the interval holds what the first two say."""
    where = "Chainer is carried over from PyTorch by ratios measured on an H100 and an H200"
    reasons = [Reason("framework", where, 1.0)]
    if not ratios.measured_on(gpu):
        reasons.append(Reason("gpu", f"Chainer's ratios to PyTorch were not measured on {gpu.name}", 1.0))
    if any((layer.groups or 1) > 1 and layer.groups != layer.in_channels for layer in table):
        text = "no convolution with groups of several channels was measured with Chainer"
        reasons.append(Reason("operator", text))
    if sum(layer.type == "conv2d" for layer in table) == 1:
        reasons.append(Reason("shape", "the error of a single convolution does not average out", SINGLE))
    return tuple(reasons)
