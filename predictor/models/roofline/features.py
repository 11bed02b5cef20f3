"""Features of every kernel class: ln(time / roofline time) is linear in them.

A kernel's time is ``base * exp(features . coefficients)``; `base` is its roofline time.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import LAUNCH_MS, Rates
from predictor.operators.kernels import KERNEL_CLASSES

__all__ = ["FAMILIES", "FAMILY_OF", "FEATURES_OF_FAMILY", "kernel_base_ms", "kernel_features"]

Array = NDArray[np.float64]

FAMILY_OF = {
    name: "conv"
    if name.startswith("conv_")
    else "depthwise"
    if name.startswith("depthwise")
    else "matmul"
    if name == "matmul"
    else "element"
    for name in KERNEL_CLASSES
}
FAMILIES = ("conv", "depthwise", "matmul", "element")

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
        "in_channels_above_256",
        "out_channels_above_256",
        "below_20_tiles",
        "below_160_tiles",
        "below_1280_tiles",
        "short_reduction",
        "medium_reduction",
        "compute_bound",
        "is_3x3_wide",
        "is_3x3_narrow",
        "is_3x3_tile_waste",
        "is_3x3_large_map",
        "small_map",
        "channel_padding",
        "is_1x1_wide",
        "is_1x1_large_map",
        "small_batch",
        "is_large_kernel_large_map",
        "is_strided_wide",
        "tensor_gain",
    ),
    "depthwise": ("one", "issue_bound", "side", "is_strided", "small_batch", "large_kernel"),
    "matmul": ("one", "compute_bound", "narrow", "small_batch", "tensor_gain"),
    "element": ("one", "launch_bound", "few_positions"),
}


def kernel_base_ms(family: str, columns: Mapping[str, Array], batch_size: Array, rates: Rates) -> Array:
    """Roofline time of kernels of one family, in ms: work over sustained rate, smoothly joined, plus the launch.

    Parameters
    ----------
    family : str
        One of `FAMILIES`.
    columns : mapping of arrays, shape (n_kernels, 1)
        Columns of `predictor.operators.kernels.Kernels`.
    batch_size : ndarray, shape (1, n_batches)
    rates : Rates

    Returns
    -------
    ndarray, shape (n_kernels, n_batches)
    """
    compute, memory = _compute_and_memory_ms(columns, batch_size, rates)
    if family in ("element", "depthwise"):
        return memory + LAUNCH_MS
    joined: Array = np.sqrt(compute**2 + memory**2) + LAUNCH_MS
    return joined


def kernel_features(
    name: str, columns: Mapping[str, Array], batch_size: Array, rates: Rates
) -> dict[str, Array]:
    """Features of the kernels of one class, each of shape broadcastable to (n_kernels, n_batches)."""
    family, one = FAMILY_OF[name], np.ones((1, 1))
    compute, memory = _compute_and_memory_ms(columns, batch_size, rates)
    if family == "conv":
        features = _conv_features(name, columns, batch_size, compute / memory)
        return {**features, "tensor_gain": one * _tensor_gain(rates)}
    if family == "depthwise":
        return {
            "one": one,
            "issue_bound": np.log(8 * compute * rates.flop_per_ms / (rates.fp32_flop_per_ms * memory)),
            "side": one * (np.log2(columns["positions"]) / 2 - 4),
            "is_strided": one * (columns["stride"] > 1),
            "small_batch": one * _above(6, np.log2(batch_size)),
            "large_kernel": one * np.log2(columns["kernel_height"] * columns["kernel_width"] / 9),
        }
    if family == "matmul":
        return {
            "one": one,
            "compute_bound": np.tanh(np.log2(compute / memory)),
            "narrow": one * _above(7, np.log2(columns["out_channels"])),
            "small_batch": one * _above(6, np.log2(batch_size * columns["positions"])),
            "tensor_gain": one * _tensor_gain(rates),
        }
    return {
        "one": one,
        "launch_bound": _above(3, np.log2(memory / LAUNCH_MS)) / 3,
        "few_positions": one * _above(6, np.log2(columns["positions"])) / 3,
    }


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
    if name == "conv_backward_weight":
        m, k = columns["gemm_m"], columns["gemm_k"] * batch_size
    tiles = np.log2(np.ceil(m / 64) * np.ceil(n / 64) * columns["groups"] / 20)
    area = columns["kernel_height"] * columns["kernel_width"]
    in_channels = np.log2(columns["in_channels"] / columns["groups"])
    out_channels = np.log2(columns["out_channels"] / columns["groups"])
    narrower = np.minimum(in_channels, out_channels)
    side = np.sqrt(columns["positions"])
    is_1x1 = (area == 1).astype(float)
    is_3x3 = (
        (columns["kernel_height"] == 3) & (columns["kernel_width"] == 3) & (columns["stride"] == 1)
    ).astype(float)
    is_large = (np.maximum(columns["kernel_height"], columns["kernel_width"]) >= 5).astype(float)
    is_strided = (columns["stride"] > 1).astype(float)
    values = {
        "one": 1.0,
        "is_3x3": is_3x3,
        "is_1x1": is_1x1,
        "is_large_kernel": is_large,
        "is_rectangular": columns["kernel_height"] != columns["kernel_width"],
        "is_strided": is_strided,
        "is_stem": columns["in_channels"] <= 4,
        "is_grouped": columns["groups"] > 1,
        "group_width": (columns["groups"] > 1) * (narrower - 4),
        "in_channels_below_32": _above(5, in_channels),
        "in_channels_below_128": _above(7, in_channels),
        "out_channels_below_32": _above(5, out_channels),
        "out_channels_below_128": _above(7, out_channels),
        "in_channels_above_256": _above(in_channels, 8),
        "out_channels_above_256": _above(out_channels, 8),
        "below_20_tiles": _above(0, tiles),
        "below_160_tiles": _above(3, tiles),
        "below_1280_tiles": _above(6, tiles),
        "short_reduction": _above(8, np.log2(k)),
        "medium_reduction": _above(10, np.log2(k)),
        "compute_bound": np.tanh(np.log2(intensity)),
        "is_3x3_wide": is_3x3 * _above(narrower, 6),
        "is_3x3_narrow": is_3x3 * _above(6, narrower),
        "is_3x3_tile_waste": is_3x3 * 2 * np.log2(np.ceil(side / 4) * 4 / side),
        "is_3x3_large_map": is_3x3 * _above(np.log2(side), 5),
        "small_map": _above(3, np.log2(side)),
        "channel_padding": np.log2(np.ceil(n / 32) * 32 / n),
        "is_1x1_wide": is_1x1 * _above(narrower, 6),
        "is_1x1_large_map": is_1x1 * _above(np.log2(side), 5),
        "small_batch": _above(5, np.log2(batch_size)),
        "is_large_kernel_large_map": is_large * _above(np.log2(side), 5),
        "is_strided_wide": is_strided * _above(in_channels, 5),
    }
    return {feature: np.asarray(value, dtype=float) for feature, value in values.items()}


def _above(x: Array | float, y: Array | float) -> Array:
    """max(0, x - y): one bend of a piecewise-linear function."""
    return np.maximum(0.0, np.subtract(x, y))
