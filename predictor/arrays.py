"""Arrays of floating-point numbers, the type that all wings compute with."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Number = TypeVar("Number", np.float64, np.int64)


def distinct_values(values: NDArray[Number]) -> NDArray[Number]:
    """Distinct values, ascending; `numpy.unique` by itself loads masked arrays, a tenth of numpy's own start."""
    return np.unique(values, return_counts=True)[0]


def sums_in_order(values: Array, axis: int = 0) -> Array:
    """Sums along an axis, each in the order of its numbers, however many are computed.

    The order of `sum`, `einsum` and `matmul`, and so the last digit, depends on the shape.
    """
    sums: Array = np.add.reduceat(values, [0], axis=axis).take(0, axis)
    return sums


def weighted_sums(weights: Array, values: Array) -> Array:
    """Sums (n, ...) of `values` (n, k, ...) by `weights` (n, k), as of `sums_in_order`."""
    return sums_in_order(weights.reshape(*weights.shape, *[1] * (values.ndim - 2)) * values, axis=1)
