"""Least times of kernels, and the features by which a kernel misses its least time.

A kernel's time is ``base * exp(features . coefficients)``; `base` is its roofline time. The functions take arrays that
broadcast: flat ones, one entry per kernel of the rows of a fit, or ``(gpus, kernels, batch sizes)``.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import LAUNCH_MS, Rates
from predictor.operators.kernels import KERNEL_CLASSES

__all__ = [
    "DEPTHWISE",
    "FAMILIES",
    "FAMILY_OF",
    "FEATURES_OF_FAMILY",
    "kernel_base_ms",
    "kernel_features",
    "like",
]

Array = NDArray[np.float64]

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

FEATURES_OF_FAMILY: dict[str, tuple[str, ...]] = {
    "conv": (
        "one",
        "is_3x3",
        "is_1x1",
        "is_large_kernel",
        "is_rectangular",
        "is_strided",
        "is_stem",
        "is_grouped",
        "group_width",
        "in_channels_below_32",
        "in_channels_below_128",
        "out_channels_below_32",
        "out_channels_below_128",
        "below_20_tiles",
        "below_160_tiles",
        "below_1280_tiles",
        "short_reduction",
        "compute_bound",
        "is_3x3_tile_waste",
        "small_map",
        "small_batch",
        "tensor_gain",
    ),
    "depthwise": ("one", "issue_bound", "side", "is_strided", "small_batch", "large_kernel"),
    "product": ("one", "compute_bound", "narrow", "small_batch", "tensor_gain"),
    "element": ("one", "launch_bound"),
}


def kernel_base_ms(family: str, columns: Mapping[str, Array], batch_size: Array, rates: Rates) -> Array:
    """Roofline time of kernels of one family, in ms: work over sustained rate, smoothly joined, plus the launch.

    Parameters
    ----------
    family : str
        One of `FAMILIES`.
    columns : mapping of arrays
        Columns of `predictor.operators.kernels.Kernels`.
    batch_size : ndarray
    rates : Rates
        Of numbers or arrays.

    Returns
    -------
    ndarray
        Of the shape that the arguments broadcast to.
    """
    compute, memory = _compute_and_memory_ms(columns, batch_size, rates)
    if family in ("element", "depthwise"):
        return memory + LAUNCH_MS
    joined: Array = np.sqrt(compute**2 + memory**2) + LAUNCH_MS
    return joined


def like(name: str) -> str:
    """The first kernel class whose features follow the same formulas: of its family, but for one pass."""
    if name == _SUMS_OVER_THE_BATCH:
        return name
    return next(each for each in KERNEL_CLASSES if FAMILY_OF[each] == FAMILY_OF[name])


def kernel_features(
    name: str, columns: Mapping[str, Array], batch_size: Array, rates: Rates
) -> dict[str, Array]:
    """Features of the kernels of one class, by name; each broadcasts with the arguments."""
    family = FAMILY_OF[name]
    compute, memory = _compute_and_memory_ms(columns, batch_size, rates)
    if family == "conv":
        features = _conv_features(name, columns, batch_size, compute / memory)
        return {**features, "tensor_gain": _tensor_gain(rates)}
    if family == "depthwise":
        return {
            "one": np.ones(1),
            "issue_bound": np.log(8 * compute * rates.flop_per_ms / (rates.fp32_flop_per_ms * memory)),
            "side": np.log2(columns["positions"]) / 2 - 4,
            "is_strided": (columns["stride"] > 1).astype(float),
            "small_batch": _above(6, np.log2(batch_size)),
            "large_kernel": np.log2(columns["kernel_height"] * columns["kernel_width"] / 9),
        }
    if family == "product":
        return {
            "one": np.ones(1),
            "compute_bound": np.tanh(np.log2(compute / memory) / 2),
            "narrow": _above(7, np.log2(columns["out_channels"])),
            "small_batch": _above(6, np.log2(batch_size * columns["positions"])),
            "tensor_gain": _tensor_gain(rates),
        }
    return {"one": np.ones(1), "launch_bound": _above(3, np.log2(memory / LAUNCH_MS)) / 3}


def _tensor_gain(rates: Rates) -> Array:
    """Log2 of the tensor cores' peak over the fp32 peak; kernels reach only part of this gain."""
    return np.asarray(np.log2(rates.flop_per_ms / rates.fp32_flop_per_ms))


def _compute_and_memory_ms(
    columns: Mapping[str, Array], batch_size: Array, rates: Rates
) -> tuple[Array, Array]:
    elements = columns["elements"] * batch_size + columns["elements_fixed"]
    return columns[
        "flops"
    ] * batch_size / rates.flop_per_ms, rates.element_bytes * elements / rates.bytes_per_ms


def _conv_features(
    name: str, columns: Mapping[str, Array], batch_size: Array, intensity: Array
) -> dict[str, Array]:
    """Features of a convolution pass seen as the matrix product (m, n, k) in tiles of 64 x 64.

    Tiles are not divided by the number of SMs: coefficients fitted that way extrapolated badly to larger GPUs.
    """
    m, n, k = columns["gemm_m"] * batch_size, columns["gemm_n"], columns["gemm_k"]
    if name == _SUMS_OVER_THE_BATCH:
        m, k = columns["gemm_m"], columns["gemm_k"] * batch_size
    tiles = np.log2(np.ceil(m / 64) * np.ceil(n / 64) * columns["groups"] / 20)
    height, width, stride = columns["kernel_height"], columns["kernel_width"], columns["stride"]
    in_channels = np.log2(columns["in_channels"] / columns["groups"])
    out_channels = np.log2(columns["out_channels"] / columns["groups"])
    side = np.sqrt(columns["positions"])
    is_3x3 = (height == 3) & (width == 3) & (stride == 1)
    is_grouped = columns["groups"] > 1
    values = {
        "one": np.ones(1),
        "is_3x3": is_3x3,
        "is_1x1": height * width == 1,
        "is_large_kernel": np.maximum(height, width) >= 5,
        "is_rectangular": height != width,
        "is_strided": stride > 1,
        "is_stem": columns["in_channels"] <= 4,
        "is_grouped": is_grouped,
        "group_width": is_grouped * (np.minimum(in_channels, out_channels) - 4),
        "in_channels_below_32": _above(5, in_channels),
        "in_channels_below_128": _above(7, in_channels),
        "out_channels_below_32": _above(5, out_channels),
        "out_channels_below_128": _above(7, out_channels),
        "below_20_tiles": _above(0, tiles),
        "below_160_tiles": _above(3, tiles),
        "below_1280_tiles": _above(6, tiles),
        "short_reduction": _above(10, np.log2(k)),
        "compute_bound": np.tanh(np.log2(intensity) / 2),
        "is_3x3_tile_waste": is_3x3 * 2 * np.log2(np.ceil(side / 4) * 4 / side),
        "small_map": _above(4, np.log2(side)),
        "small_batch": _above(5, np.log2(batch_size)),
    }
    return {feature: np.asarray(value, dtype=float) for feature, value in values.items()}


def _above(x: Array | float, y: Array | float) -> Array:
    """max(0, x - y): one bend of a piecewise-linear function."""
    return np.maximum(0.0, np.subtract(x, y))
