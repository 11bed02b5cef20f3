"""A cuDNN that computes nothing and notes every call, and NumPy in the place of a GPU's memory."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np

from proxy_cnns.backends.chainer.cudnn.library import Performance


class PretendedCudnn:
    """Answers as cuDNN's functions do, and notes every call; offers are (algorithm, status, bytes, deterministic)."""

    def __init__(self) -> None:
        self.offers: list[tuple[int, int, int, bool]] = [(1, 0, 0, True)]
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.fails_in = ""
        self._n_created = 0

    def cudnnGetVersion(self) -> int:  # noqa: N802
        return 91900

    def cudnnGetErrorString(self, status: int) -> bytes:  # noqa: N802
        return b"CUDNN_STATUS_NOT_SUPPORTED" if status else b"CUDNN_STATUS_SUCCESS"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cudnn") or name == "cudnnGetLastErrorString":
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            if name == self.fails_in:
                return 3000
            if name.startswith("cudnnCreate"):
                self._n_created += 1
                arguments[0]._obj.value = self._n_created
            if "Algorithm" in name:
                self._offer(
                    *[argument for argument in arguments if isinstance(argument, ctypes.Array)], arguments
                )
            return 0

        return function

    def _offer(self, results: Any, arguments: tuple[Any, ...]) -> None:
        count = arguments[list(map(id, arguments)).index(id(results)) - 1]
        count._obj.value = len(self.offers)
        for position, (algorithm, status, memory, deterministic) in enumerate(self.offers):
            results[position] = Performance(algorithm, status, 0.5, memory, deterministic, 1)

    def arguments_of(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]


class Numbers:
    """NumPy's arrays in the place of CuPy's."""

    def __init__(self) -> None:
        self.allocated: list[int] = []

    def device(self) -> int:
        return 0

    def stream(self) -> int:
        return 0

    def contiguous(self, array: Any) -> Any:
        return np.ascontiguousarray(array)

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return np.empty(shape, dtype)

    def allocate(self, size: int) -> Any:
        self.allocated.append(size)
        return SimpleNamespace(ptr=64)
