"""Least times of kernels, and the features by which a kernel misses its least time.

A kernel's time is ``base * exp(features . coefficients)``; `base` is its roofline time. Arrays broadcast: flat ones,
one entry per kernel of the rows of a fit, or ``(gpus, kernels, batch sizes)``. Nothing is called but functions of the
Python array API standard (2024.12), of `xp`: NumPy, or any other library whose arrays are given.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import LAUNCH_MS, Rates
from predictor.operators.kernels import KERNEL_CLASSES

_FAMILIES_BY_WORD = {"conv": "conv", "depthwise": "depthwise", "matmul": "product"}
FAMILY_OF = {name: _FAMILIES_BY_WORD.get(name.partition("_")[0], "element") for name in KERNEL_CLASSES}
FAMILIES = ("conv", "depthwise", "product", "element")
DEPTHWISE = tuple(name for name, family in FAMILY_OF.items() if family == "depthwise")
"""Classes of kernels of depthwise convolutions."""

BOUND_BY_TRAFFIC = ("element", "depthwise")
"""Families whose roofline is that of their bytes."""

_FP32_BYTES = 4
_MIDDLE_MULTIPROCESSORS = 60.0


@dataclass(frozen=True, eq=False)
class FamilyKernels:
    """Kernels of one family at batch sizes on GPUs, of any shapes that broadcast; so do all that it gives.

    `family`: one of `FAMILIES`. `columns`: columns of `predictor.operators.kernels.Kernels`. `rates`: of numbers or
    arrays. `xp`: their library. `autocasts`: whether PyTorch's autocast runs the kernels. `which`: the one of `columns`
    that each kernel is like; by default they are the kernels.
    """

    family: str
    columns: Mapping[str, Array]
    batch_size: Array
    rates: Rates
    xp: ModuleType = np
    autocasts: Any = False
    which: Any = None

    def of_each(self, values: Any) -> Any:
        """Of each kernel what `values` are of those of `columns`."""
        return values if self.which is None else self.xp.take(values, self.which, axis=-2)

    @cached_property
    def base_ms(self) -> Any:
        """Roofline time in fp32, in ms: work over sustained rate, joined, plus the launch."""
        if self.family in BOUND_BY_TRAFFIC:
            return self._bytes * (1.0 / self.rates.bytes_per_ms) + LAUNCH_MS
        compute_ms = self._flops * (1.0 / self.rates.fp32_flop_per_ms)
        return compute_ms * self.xp.sqrt(self._joined) + LAUNCH_MS

    def gain(self) -> Any:
        """Ln of the roofline time in fp32 over that in the mode: what the mode gains if its rates are sustained."""
        change, flops = self.rates.element_bytes / _FP32_BYTES, self._of_flops
        if self.family not in BOUND_BY_TRAFFIC:
            change = self.xp.sqrt((flops**2 - change**2) / self._joined + change**2)
        return self.xp.log(self.base_ms / ((self.base_ms - LAUNCH_MS) * change + LAUNCH_MS))

    def least_ms(self, share: Any = 1.0) -> Any:
        """Time of a share of the FLOPs at the mode's peak, in ms; 0 for kernels that may do with fewer, by Winograd."""
        if self.family in BOUND_BY_TRAFFIC:
            return 0.0
        is_1x1 = self.columns["kernel_height"] * self.columns["kernel_width"] == 1
        flop_per_ms = self.rates.fp32_flop_per_ms / self._of_flops
        return self.xp.where(is_1x1, self._flops, 0.0) * (share / flop_per_ms)

    def is_gaining(self) -> Any:
        """Whether the kernels compute or move data in a mode at another rate than in fp32; shape of `rates`."""
        narrower = self.rates.element_bytes < _FP32_BYTES
        if self.family == "element":
            return narrower & ~self.of_each(self._in_float32)
        if self.family in BOUND_BY_TRAFFIC:
            return narrower
        # Tensor cores of the fp32 peak, as a GeForce's in TF32, do more than fp32 lanes.
        return narrower | (self.rates.tensor != 0 if self.family == "conv" else self._of_flops != 1.0)

    def features(self) -> dict[str, Array]:
        """Features by name, in the order of `FEATURES_OF_FAMILY`."""
        of_shape = shape_features(self.family, self.columns, self.xp)
        of_batch = batch_features(self.family, self.columns, self.batch_size, self.xp)
        of_rates = {name: feature(self, 1.0) for name, feature in RATE_FEATURES[self.family].items()}
        return of_shape | of_batch | of_rates

    @cached_property
    def _flops(self) -> Array:
        return self.columns["flops"] * self.batch_size

    @cached_property
    def _bytes(self) -> Any:
        """In fp32, whatever the mode; of kernels that autocast runs in float32, with those of casts."""
        fp32 = _FP32_BYTES * (self.columns["elements"] * self.batch_size + self.columns["elements_fixed"])
        if self.autocasts is False or not self.xp.any(self._in_float32):
            return fp32  # of the same size on all GPUs
        return self.xp.where(self._in_float32, self.columns["in_float32"], 1.0) * fp32

    @cached_property
    def _in_float32(self) -> Any:
        return self.autocasts & (self.columns["in_float32"] > 0.0)

    @property
    def _of_flops(self) -> Any:
        """Time of FLOPs in the mode over that in fp32."""
        of_product = self.family == "product"
        in_mode = self.rates.product_flop_per_ms if of_product else self.rates.flop_per_ms
        return self.rates.fp32_flop_per_ms / in_mode

    @cached_property
    def _joined(self) -> Any:
        """Square of the time by FLOPs and bytes over that by FLOPs, in fp32."""
        squared = (self._bytes / self._flops) ** 2
        return squared * (self.rates.fp32_flop_per_ms / self.rates.bytes_per_ms) ** 2 + 1.0

    def _compute_bound(self, weight: Any) -> Any:
        """From -1, bound by memory, to 1, bound by FLOPs.

        With a coefficient within -1/4 to 1/4 a kernel of time sqrt(compute^2 + memory^2) is never slower for a higher
        peak or bandwidth.
        """
        return 2.0 * weight / self.of_each(self._joined) - weight

    def _tensor_gain(self, weight: Any) -> Any:
        """Log2 of what the tensor cores' peak gains over the fp32 peak at the same bytes; kernels reach a part."""
        gain = self.xp.log2(self._joined / (self._joined + (self._of_flops**2 - 1.0)))
        return self.of_each(gain) * (weight / 2)

    def _issue_bound(self, weight: Any) -> Any:
        per_ms = self.xp.log(self.xp.asarray(self.rates.bytes_per_ms / self.rates.fp32_flop_per_ms))
        return self.of_each(self.xp.log(8 * self._flops / self._bytes) + per_ms) * weight

    def _few_rows(self, weight: Any) -> Any:
        """Few rows are slow by what they compute, not by reading weights: no larger mini-batch is faster."""
        few = _above(6, self.xp.log2(self.batch_size * self.columns["positions"]), self.xp)
        return weight * self.of_each(few) / self.of_each(1.0 + self.xp.sqrt(self._joined - 1.0))

    def _launch_bound(self, weight: Any) -> Any:
        per_launch = self.xp.log2(self._bytes / LAUNCH_MS) / 3
        per_ms = self.xp.log2(self.xp.asarray(self.rates.bytes_per_ms)) / 3
        return self.of_each(_above(per_ms + 1.0, per_launch, self.xp)) * weight

    def _chip_size(self, weight: Any) -> Any:
        """Large chips reach less of their bandwidth."""
        multiprocessors = self.xp.asarray(self.rates.multiprocessors / _MIDDLE_MULTIPROCESSORS)
        return self.xp.log2(multiprocessors) * weight


RATE_FEATURES: dict[str, dict[str, Callable[[FamilyKernels, Any], Any]]] = {
    "conv": {"compute_bound": FamilyKernels._compute_bound, "tensor_gain": FamilyKernels._tensor_gain},
    "depthwise": {"issue_bound": FamilyKernels._issue_bound},
    "product": {
        "compute_bound": FamilyKernels._compute_bound,
        "small_batch": FamilyKernels._few_rows,
        "tensor_gain": FamilyKernels._tensor_gain,
    },
    "element": {"chip_size": FamilyKernels._chip_size, "launch_bound": FamilyKernels._launch_bound},
}
"""Features of each family's kernels that depend on the GPU's rates, times a weight; each broadcasts those before it."""


def shape_features(family: str, columns: Mapping[str, Array], xp: ModuleType = np) -> dict[str, Array]:
    """Features that neither batch size nor GPU changes, of the shape of a column."""
    features = {"one": xp.ones_like(columns["flops"])}
    if family == "product":
        features["narrow"] = _above(7, xp.log2(columns["out_channels"]), xp)
    if family == "depthwise":
        features |= {
            "side": xp.log2(columns["positions"]) / 2 - 4,
            "is_strided": _one_if(columns["stride"] > 1, xp),
            "large_kernel": xp.log2(columns["kernel_height"] * columns["kernel_width"] / 9),
        }
    if family != "conv":
        return features
    height, width, stride = columns["kernel_height"], columns["kernel_width"], columns["stride"]
    in_channels = xp.log2(columns["in_channels"] / columns["groups"])
    out_channels = xp.log2(columns["out_channels"] / columns["groups"])
    side = xp.sqrt(columns["positions"])
    is_3x3 = _one_if((height == 3) & (width == 3) & (stride == 1), xp)
    is_grouped = _one_if(columns["groups"] > 1, xp)
    return features | {
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
        "is_3x3_tile_waste": is_3x3 * 2 * xp.log2(xp.ceil(side / 4) * 4 / side),
        "small_map": _above(4, xp.log2(side), xp),
    }


def batch_features(
    family: str, columns: Mapping[str, Array], batch_size: Array, xp: ModuleType = np
) -> dict[str, Array]:
    """Features that the batch size changes, and no GPU does.

    A pass of a convolution is seen as the matrix product (m, n, k) in tiles of 64 x 64; that of the weights' gradient
    sums over the batch, so that k grows with it and not m. Tiles are not divided by the number of SMs: coefficients
    fitted that way extrapolated badly to larger GPUs.
    """
    if family == "depthwise":
        return {"small_batch": _above(6, xp.log2(batch_size), xp)}
    if family != "conv":
        return {}
    sums = columns["sums_over_batch"] > 0
    m = columns["gemm_m"] * xp.where(sums, 1.0, batch_size)
    k = columns["gemm_k"] * xp.where(sums, batch_size, 1.0)
    tiles = xp.log2(xp.ceil(m / 64) * (xp.ceil(columns["gemm_n"] / 64) * columns["groups"] / 20))
    return {
        "below_20_tiles": _above(0, tiles, xp),
        "below_160_tiles": _above(3, tiles, xp),
        "below_1280_tiles": _above(6, tiles, xp),
        "short_reduction": _above(10, xp.log2(k), xp),
        "small_batch": _above(5, xp.log2(batch_size), xp),
    }


def _one_if(condition: NDArray[np.bool_], xp: ModuleType) -> Any:
    return xp.where(condition, xp.ones(1), 0.0)


def _above(x: Array | float, y: Array, xp: ModuleType) -> Any:
    """max(0, x - y): one bend of a piecewise-linear function."""
    return xp.maximum(x - y, 0.0)


_ONES: dict[str, Array] = defaultdict(lambda: np.ones(1))
FEATURES_OF_FAMILY = {
    family: (
        *shape_features(family, _ONES),
        *batch_features(family, _ONES, np.ones(1)),
        *RATE_FEATURES[family],
    )
    for family in FAMILIES
}
"""Names of the features of the kernels of each family, in the order of `FamilyKernels.features`."""
