"""Least times of kernels, and the features by which a kernel misses its least time.

A kernel's time is ``base * exp(features . coefficients)``; `base` is its roofline time. The functions take arrays that
broadcast: flat ones, one entry per kernel of the rows of a fit, or ``(gpus, kernels, batch sizes)``. They call nothing
but functions of the Python array API standard (2024.12), of `xp`: NumPy, or any other library whose arrays are given.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import LAUNCH_MS, Rates
from predictor.operators.kernels import KERNEL_CLASSES

FAMILY_OF = {
    name: "conv"
    if name.startswith("conv_")
    else "depthwise"
    if name.startswith("depthwise")
    else "product"
    if name == "matmul"
    else "element"
    for name in KERNEL_CLASSES
}
FAMILIES = ("conv", "depthwise", "product", "element")
DEPTHWISE = tuple(name for name, family in FAMILY_OF.items() if family == "depthwise")
"""Classes of kernels of depthwise convolutions."""

_SUMS_OVER_THE_BATCH = (
    "conv_backward_weight"  # its product's inner size grows with the batch, not its outer one
)

_FP32_BYTES = 4
_MIDDLE_MULTIPROCESSORS = 60.0


def kernel_base_ms(
    family: str, columns: Mapping[str, Array], batch_size: Array, rates: Rates, xp: ModuleType = np
) -> Array:
    """Roofline time of kernels of one family in fp32, in ms: work over sustained rate, joined, plus the launch.

    `family`: one of `FAMILIES`. `columns`: columns of `predictor.operators.kernels.Kernels`. `rates`: of numbers or
    arrays. `xp`: the library of these arrays. The result has the shape that the arguments broadcast to.
    """
    return _roofline_ms(family, *_compute_and_memory_ms(columns, batch_size, rates), xp)


def kernel_gain(
    family: str, columns: Mapping[str, Array], batch_size: Array, rates: Rates, xp: ModuleType = np
) -> Array:
    """Ln of a kernel's roofline time in fp32 over that in a mode: what the mode gains if its rates are sustained."""
    compute, memory = _compute_and_memory_ms(columns, batch_size, rates)
    in_mode = _roofline_ms(
        family,
        compute * rates.fp32_flop_per_ms / _flop_per_ms(family, rates),
        memory * rates.element_bytes / _FP32_BYTES,
        xp,
    )
    gain: Array = xp.log(_roofline_ms(family, compute, memory, xp) / in_mode)
    return gain


def kernel_least_ms(
    family: str, columns: Mapping[str, Array], batch_size: Array, rates: Rates, xp: ModuleType = np
) -> Any:
    """Time of a kernel's FLOPs at its mode's peak, in ms; 0 for kernels that may do with fewer FLOPs, as by Winograd.

    Arguments are those of `kernel_base_ms`.
    """
    if family not in ("product", "conv"):
        return 0.0
    least = columns["flops"] * batch_size / _flop_per_ms(family, rates)
    return xp.where(columns["kernel_height"] * columns["kernel_width"] == 1, least, 0.0)


def is_gaining(family: str, rates: Rates) -> Any:
    """Whether kernels of a family compute or move data in a mode at another rate than in fp32; shape of `rates`."""
    narrower = rates.element_bytes < _FP32_BYTES
    if family in ("element", "depthwise"):
        return narrower
    if family == "conv":  # tensor cores of the fp32 peak, as a GeForce's in TF32, do more than fp32 lanes
        return narrower | (rates.tensor != 0)
    return narrower | (rates.product_flop_per_ms != rates.fp32_flop_per_ms)


def _roofline_ms(family: str, compute: Array, memory: Array, xp: ModuleType) -> Array:
    if family in ("element", "depthwise"):
        return memory + LAUNCH_MS
    joined: Array = xp.sqrt(compute**2 + memory**2) + LAUNCH_MS
    return joined


def like(name: str) -> str:
    """First kernel class with the same formulas of features: of the family, but for the sum over the batch."""
    if name == _SUMS_OVER_THE_BATCH:
        return name
    return next(candidate for candidate in KERNEL_CLASSES if FAMILY_OF[candidate] == FAMILY_OF[name])


def kernel_features(
    name: str, columns: Mapping[str, Array], batch_size: Array, rates: Rates, xp: ModuleType = np
) -> dict[str, Array]:
    """Features of the kernels of one class, by name; each broadcasts with the arguments."""
    family = FAMILY_OF[name]
    compute, memory = _compute_and_memory_ms(columns, batch_size, rates)
    if family == "conv":
        features = _conv_features(name, columns, batch_size, xp)
        features["compute_bound"] = _compute_bound(compute, memory)
        return features | {"tensor_gain": _tensor_gain(family, compute, memory, rates, xp)}
    if family == "depthwise":
        return {
            "one": xp.ones(1),
            "issue_bound": xp.log(8 * compute / memory),
            "side": xp.log2(columns["positions"]) / 2 - 4,
            "is_strided": _one_if(columns["stride"] > 1, xp),
            "small_batch": _above(6, xp.log2(batch_size), xp),
            "large_kernel": xp.log2(columns["kernel_height"] * columns["kernel_width"] / 9),
        }
    if family == "product":
        rows = batch_size * columns["positions"]
        return {
            "one": xp.ones(1),
            "compute_bound": _compute_bound(compute, memory),
            "narrow": _above(7, xp.log2(columns["out_channels"]), xp),
            # Few rows are slow by what they compute, not by reading weights: no larger mini-batch is faster.
            "small_batch": compute / (compute + memory) * _above(6, xp.log2(rows), xp),
            "tensor_gain": _tensor_gain(family, compute, memory, rates, xp),
        }
    return {
        "one": xp.ones(1),
        "launch_bound": _above(3, xp.log2(memory / LAUNCH_MS), xp) / 3,
        # Large chips reach less of their bandwidth.
        "chip_size": xp.log2(xp.asarray(rates.multiprocessors / _MIDDLE_MULTIPROCESSORS)),
    }


def _compute_bound(compute: Array, memory: Array) -> Array:
    """From -1, bound by memory, to 1, bound by FLOPs.

    With a coefficient within -1/4 to 1/4 a kernel of time sqrt(compute^2 + memory^2) is never slower for a higher peak
    or bandwidth.
    """
    return (compute**2 - memory**2) / (compute**2 + memory**2)


def _tensor_gain(family: str, compute: Array, memory: Array, rates: Rates, xp: ModuleType) -> Array:
    """Log2 of what the tensor cores' peak gains over the fp32 peak at the same bytes; kernels reach a part of it."""
    on_tensor_cores = compute * rates.fp32_flop_per_ms / _flop_per_ms(family, rates)
    gain: Array = xp.log2((compute**2 + memory**2) / (on_tensor_cores**2 + memory**2)) / 2
    return gain


def _flop_per_ms(family: str, rates: Rates) -> Any:
    return rates.product_flop_per_ms if family == "product" else rates.flop_per_ms


def _compute_and_memory_ms(
    columns: Mapping[str, Array], batch_size: Array, rates: Rates
) -> tuple[Array, Array]:
    """Least times by FLOPs and by bytes in fp32, whatever the mode."""
    elements = columns["elements"] * batch_size + columns["elements_fixed"]
    compute = columns["flops"] * batch_size / rates.fp32_flop_per_ms
    return compute, _FP32_BYTES * elements / rates.bytes_per_ms


def _conv_features(
    name: str, columns: Mapping[str, Array], batch_size: Array, xp: ModuleType
) -> dict[str, Array]:
    """Features of a convolution pass seen as the matrix product (m, n, k) in tiles of 64 x 64.

    Tiles are not divided by the number of SMs: coefficients fitted that way extrapolated badly to larger GPUs.
    """
    m, n, k = columns["gemm_m"] * batch_size, columns["gemm_n"], columns["gemm_k"]
    if name == _SUMS_OVER_THE_BATCH:
        m, k = columns["gemm_m"], columns["gemm_k"] * batch_size
    tiles = xp.log2(xp.ceil(m / 64) * xp.ceil(n / 64) * columns["groups"] / 20)
    height, width, stride = columns["kernel_height"], columns["kernel_width"], columns["stride"]
    in_channels = xp.log2(columns["in_channels"] / columns["groups"])
    out_channels = xp.log2(columns["out_channels"] / columns["groups"])
    side = xp.sqrt(columns["positions"])
    is_3x3 = _one_if((height == 3) & (width == 3) & (stride == 1), xp)
    is_grouped = _one_if(columns["groups"] > 1, xp)
    return {
        "one": xp.ones(1),
        "is_3x3": is_3x3,
        "is_1x1": _one_if(height * width == 1, xp),
        "is_large_kernel": _one_if(xp.maximum(height, width) >= 5, xp),
        "is_rectangular": _one_if(height != width, xp),
        "is_strided": _one_if(stride > 1, xp),
        "is_stem": _one_if(columns["in_channels"] <= 4, xp),
        "is_grouped": is_grouped,
        "group_width": is_grouped * (xp.minimum(in_channels, out_channels) - 4),
        "in_channels_below_32": _above(5, in_channels, xp),
        "in_channels_below_128": _above(7, in_channels, xp),
        "out_channels_below_32": _above(5, out_channels, xp),
        "out_channels_below_128": _above(7, out_channels, xp),
        "below_20_tiles": _above(0, tiles, xp),
        "below_160_tiles": _above(3, tiles, xp),
        "below_1280_tiles": _above(6, tiles, xp),
        "short_reduction": _above(10, xp.log2(k), xp),
        "is_3x3_tile_waste": is_3x3 * 2 * xp.log2(xp.ceil(side / 4) * 4 / side),
        "small_map": _above(4, xp.log2(side), xp),
        "small_batch": _above(5, xp.log2(batch_size), xp),
    }


def _one_if(condition: NDArray[np.bool_], xp: ModuleType) -> Array:
    indicator: Array = xp.where(condition, xp.ones(1), 0.0)
    return indicator


def _above(x: Array | float, y: Array | float, xp: ModuleType) -> Array:
    """max(0, x - y): one bend of a piecewise-linear function."""
    excess: Array = xp.maximum(x - y, 0.0)
    return excess


_ONES: dict[str, Array] = defaultdict(lambda: np.ones(1))
FEATURES_OF_FAMILY = {
    family: tuple(kernel_features(name, _ONES, np.ones(1), Rates(*[True] * len(fields(Rates)))))
    for family, name in {family: name for name, family in reversed(FAMILY_OF.items())}.items()
}
"""Names of the features that `kernel_features` gives the kernels of each family, in its order."""
