"""Array library of the law's large arrays: NumPy, or CuPy on a GPU.

Its arithmetic (`features.py`, `law.py`) calls only functions of the Python array API standard, which both have.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.errors import BackendUnavailableError, SchemaError

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Arrays:
    """A library by the array API standard (2024.12), and how its arrays become NumPy's.

    `n_at_once`: numbers in an array with which its processor computes fastest; of a CPU, what its cache holds.
    """

    xp: ModuleType
    to_numpy: Callable[[Any], NDArray[np.float64]]
    n_at_once: int = 2**18

    def sums(self, values: Any, starts: NDArray[np.intp]) -> NDArray[np.float64]:
        """Sums of `values` (n, n_values, n_more) from each start to the next along the second axis.

        NumPy's `reduceat` adds up in one order, whatever `n` and `n_more` are; `matmul` and `sum` do not.
        """
        if self.xp is np:
            return np.add.reduceat(values, starts, axis=1)
        spans = zip(starts, [*starts[1:], values.shape[1]], strict=True)
        return self.to_numpy(
            self.xp.stack([self.xp.sum(values[:, int(a) : int(b), :], axis=1) for a, b in spans], axis=1)
        )

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        """Pickled by the name of the device, for modules cannot be."""
        return arrays_on, ("cpu" if self.xp is np else "cuda",)


NUMPY = Arrays(np, np.asarray)
np.empty(2**22 - 2**10)
"""Freed at once: arrays of up to 32 MiB stay with the process from now on (docs/decisions/070-memory-that-stays.md)."""


def arrays_on(device: str) -> Arrays:
    """Array library that computes on a device of `DEVICES`.

    SchemaError if there is no such device; BackendUnavailableError if CuPy is not installed, or finds no GPU.
    """
    if device == "cpu":
        return NUMPY
    if device != "cuda":
        raise SchemaError(f"no device is called {device!r}. Known: {', '.join(DEVICES)}.")
    try:
        import cupy
    except ImportError:
        raise BackendUnavailableError(
            "CuPy is not installed, which device 'cuda' needs: pip install 'epochcast[cuda13]' (CUDA 13) or "
            "'epochcast[cuda12]' (CUDA 12). Or leave the device out."
        ) from None
    try:
        cupy.cuda.runtime.getDeviceCount()  # asks the driver
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailableError(
            f"CuPy finds no usable GPU ({error}). Leave device 'cuda' out, or check `nvidia-smi`."
        ) from None
    return Arrays(cupy, cupy.asnumpy, 2**24)
