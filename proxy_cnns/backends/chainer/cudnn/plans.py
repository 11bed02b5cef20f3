"""Convolutions run with cuDNN: an algorithm is chosen once for each convolution, and kept with its descriptors.

CuPy gives addresses, the stream, arrays and workspace, through `CupyMemory`.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from predictor.errors import SchemaError
from proxy_cnns.backends.chainer.cudnn.choice import Choice, Convolution, Operands, choose
from proxy_cnns.backends.chainer.cudnn.library import DEFAULT_MATH, DIRECTIONS, FMA_MATH, Cudnn, Descriptor

_NUMBERS = {"float16": ctypes.c_float, "float32": ctypes.c_float, "float64": ctypes.c_double}
SCALARS = {
    kind: tuple(ctypes.pointer(number(value)) for value in (1, 0)) for kind, number in _NUMBERS.items()
}
"""Addresses of 1 and of 0, in the type that cuDNN wants them in, by the type of the maps."""


class CupyMemory:
    """Access to the device's arrays and memory: CuPy's arrays, stream and memory pool."""

    def device(self) -> int:
        """Return the current device's number."""
        import cupy

        return int(cupy.cuda.runtime.getDevice())

    def stream(self) -> int:
        """Address of the current stream."""
        import cupy

        return int(cupy.cuda.get_current_stream().ptr)

    def contiguous(self, array: Any) -> Any:
        """Return the array as it lies in C's order, copied if need be."""
        import cupy

        return array if array.flags.c_contiguous else cupy.ascontiguousarray(array)

    def address(self, array: Any) -> int:
        """Address of the array's first byte."""
        return int(array.data.ptr)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Make an array in C's order whose numbers are arbitrary."""
        import cupy

        return cupy.empty(shape, dtype)

    def allocate(self, size: int) -> Any:
        """Allocate from the pool; cupy.cuda.memory.OutOfMemoryError if there is no room."""
        import cupy

        return cupy.cuda.alloc(size)


Arrays = tuple[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A choice with all that cuDNN needs to run it."""

    choice: Choice
    convolution: Descriptor
    descriptors: tuple[Descriptor, Descriptor, Descriptor]


class CudnnPlans:
    """Runs convolutions with cuDNN, and keeps every choice of an algorithm until `forget`.

    `allow_tf32`: whether float32 may be multiplied as TF32 on tensor cores (Ampere and later).
    """

    def __init__(self, cudnn: Cudnn, memory: CupyMemory) -> None:
        self.cudnn = cudnn
        self.allow_tf32 = True
        self.memory = memory
        self._workspace_bytes = 8 * 2**20  # as in CuPy and Chainer
        self._plans: dict[Any, _Plan] = {}
        self._kept: dict[Any, tuple[Descriptor, ...]] = {}

    def get_max_workspace_size(self) -> int:
        """Most bytes of workspace that an algorithm may need."""
        return self._workspace_bytes

    def set_max_workspace_size(self, size: int) -> None:
        """Limit the workspace; what was chosen under another limit is chosen again."""
        if size < 0:
            raise SchemaError(f"a workspace of {size} bytes: give 0 or more.")
        self._workspace_bytes = int(size)

    def choices(self) -> list[Choice]:
        """Every choice, in the order in which the convolutions were first met."""
        return [plan.choice for plan in self._plans.values()]

    def forget(self) -> None:
        """Forget all choices and free their descriptors: algorithms are chosen again."""
        self._plans.clear()
        self._kept.clear()

    def kept(self, key: Any, make: Callable[[], tuple[Descriptor, ...]]) -> tuple[Descriptor, ...]:
        """Descriptors of `key`, made at first use and kept until `forget`."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def handle(self) -> ctypes.c_void_p:
        """Context of cuDNN on the current device and stream."""
        return self.cudnn.handle(self.memory.device(), self.memory.stream())

    def run(
        self, convolution: Convolution, arrays: Arrays, autotune: bool, deterministic: bool, tensor_core: bool
    ) -> None:
        """Run one pass; its algorithm is chosen at first use.

        `arrays`: what is read (two, in cuDNN's order) and what is written. `autotune`: whether all algorithms are tried
        rather than the heuristic asked; never if `deterministic`, as in CuPy. SchemaError if no algorithm is within the
        limit of workspace; ProfilingError if cuDNN fails.
        """
        memory, device = self.memory, self.memory.device()
        handle = self.handle()
        first, second, result = memory.contiguous(arrays[0]), memory.contiguous(arrays[1]), arrays[2]
        addresses = (memory.address(first), memory.address(second), memory.address(result))
        plain = not tensor_core or (convolution.dtype == "float32" and not self.allow_tf32)
        tried = autotune and not deterministic
        key = (device, convolution, plain, tried, deterministic, self._workspace_bytes)
        plan = self._plans.get(key) or self._plans.setdefault(key, self._plan(addresses, *key[1:5]))
        unit, zero = SCALARS[convolution.dtype]
        size = plan.choice.workspace_bytes
        workspace = memory.allocate(size) if size else None
        descriptors = [descriptor.pointer for descriptor in plan.descriptors]
        self.cudnn.call(
            f"cudnnConvolution{DIRECTIONS[convolution.direction]}",
            handle,
            *(unit, descriptors[0], addresses[0], descriptors[1], addresses[1]),
            *(plan.convolution.pointer, plan.choice.algorithm, workspace and workspace.ptr, size),
            *(zero, descriptors[2], addresses[2]),
        )

    def _plan(
        self, addresses: Arrays, convolution: Convolution, plain: bool, tried: bool, deterministic: bool
    ) -> _Plan:
        """Choose an algorithm; where only plain arithmetic is allowed, cuDNN's proposed math type is not used."""
        cudnn, dtype = self.cudnn, convolution.dtype
        described = cudnn.convolution(convolution, FMA_MATH if plain else DEFAULT_MATH)
        x, y = (cudnn.tensor(shape, dtype) for shape in (convolution.x, convolution.y))
        w = cudnn.filter(convolution.w, dtype)
        orders = {"forward": (x, w, y), "backward_data": (w, y, x), "backward_filter": (x, y, w)}
        operands = Operands(described, orders[convolution.direction], addresses)
        workspace = self.memory.allocate(self._workspace_bytes) if tried else None
        address = None if workspace is None else workspace.ptr
        limit = self._workspace_bytes
        choice = choose(cudnn, self.handle(), convolution, operands, limit, deterministic, address)
        if not plain:
            described = cudnn.convolution(convolution, choice.math)
        return _Plan(choice, described, operands.descriptors)

    def add_bias(self, b: Any, y: Any) -> None:
        """Add one number for each channel to `y`."""
        memory, dtype, shapes = self.memory, y.dtype.name, ((1, y.shape[1], 1, 1), y.shape)
        b, unit = memory.contiguous(b), SCALARS[dtype][0]
        kept = self.kept(
            ("bias", y.shape, dtype), lambda: tuple(self.cudnn.tensor(shape, dtype) for shape in shapes)
        )
        bias, output = (descriptor.pointer for descriptor in kept)
        addresses = (memory.address(b), memory.address(y))
        self.cudnn.call("cudnnAddTensor", self.handle(), unit, bias, addresses[0], unit, output, addresses[1])
