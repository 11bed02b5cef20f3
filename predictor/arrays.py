"""Arrays of floating-point numbers, the type that all wings compute with."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Number = TypeVar("Number", np.float64, np.int64)


def distinct_values(values: NDArray[Number]) -> NDArray[Number]:
    """Distinct values, ascending; `numpy.unique` by itself loads masked arrays, a tenth of numpy's own start."""
    return np.unique(values, return_counts=True)[0]
