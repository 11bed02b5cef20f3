"""Convolutions run with cuDNN: an algorithm is chosen once for each convolution, and kept with its descriptors.

cuDNN's heuristic chooses, or all are tried, within a limit of workspace. Iteration times jump between batch sizes where
the choice changes. CuPy gives addresses, the stream, arrays and workspace, through `CupyMemory`.
"""

import ctypes
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from predictor.errors import SchemaError
from proxy_cnns.backends.chainer.cudnn.library import (
    ALGORITHMS,
    DEFAULT_MATH,
    DIRECTIONS,
    FMA_MATH,
    Cudnn,
    Descriptor,
    Performance,
)

Shape = tuple[int, ...]
MOST_RESULTS = 16
"""More than any pass has algorithms and math types."""
_HINT = "Raise the limit: EPOCHCAST_WORKSPACE_MIB in the environment gives it in MiB."


@dataclass(frozen=True, slots=True)
class Convolution:
    """One pass of a convolution in cuDNN's terms.

    `direction` is ``forward``, ``backward_data`` or ``backward_filter``; `x`, `w`, `y` are the shapes of the input,
    the weights and the output (or of their gradients), in the order of NCHW.
    """

    direction: str
    x: Shape
    w: Shape
    y: Shape
    padding: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    dtype: str

    @property
    def name(self) -> str:
        """Shape of the layer at its batch size, such as ``128x64x32x32_64x64x3x3_s1x1_p1x1``."""
        parts = [_sizes(self.x), _sizes(self.w), f"s{_sizes(self.stride)}", f"p{_sizes(self.padding)}"]
        parts += [f"d{_sizes(self.dilation)}"] * (self.dilation != (1, 1))
        parts += [f"g{self.groups}"] * (self.groups > 1)
        return "_".join(parts)


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm of one pass.

    `how` is ``heuristic`` or ``autotune``, `time_ms` what autotuning measured (None: it was not), `math` cuDNN's
    number of the arithmetic.
    """

    convolution: Convolution
    how: str
    algorithm: int
    workspace_bytes: int
    math: int
    time_ms: float | None = None

    @property
    def name(self) -> str:
        """Name that cuDNN gives the algorithm."""
        names = ALGORITHMS[self.convolution.direction]
        return names[self.algorithm] if self.algorithm < len(names) else f"algorithm {self.algorithm}"


def algorithms_json(choices: Iterable[Choice]) -> str | None:
    """JSON for the column `conv_algorithms`: shape -> pass -> algorithm; None if nothing was chosen.

    Where one shape was chosen for more than once (as when a limit changed), the last choice counts.
    """
    names: dict[str, dict[str, str]] = {}
    for choice in choices:
        names.setdefault(choice.convolution.name, {})[choice.convolution.direction] = choice.name
    return json.dumps(names, sort_keys=True) if names else None


def _sizes(numbers: Iterable[int]) -> str:
    return "x".join(map(str, numbers))


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
        """Choose the fastest algorithm within the limit of workspace, as cuDNN's heuristic (v7) or a trial of all says.

        `tried`: every algorithm is tried in the whole workspace, and what is written is overwritten. `deterministic`:
        only algorithms that always give the same bits are taken. Where only `plain` arithmetic is allowed, cuDNN's
        proposed math type is not used. SchemaError if no algorithm is within the limit; ProfilingError if cuDNN fails.
        """
        cudnn, dtype, limit = self.cudnn, convolution.dtype, self._workspace_bytes
        direction, pass_name = convolution.direction, DIRECTIONS[convolution.direction]
        described = cudnn.convolution(convolution, FMA_MATH if plain else DEFAULT_MATH)
        x, y = (cudnn.tensor(shape, dtype) for shape in (convolution.x, convolution.y))
        w = cudnn.filter(convolution.w, dtype)
        descriptors = {"forward": (x, w, y), "backward_data": (w, y, x), "backward_filter": (x, y, w)}[
            direction
        ]
        first, second, result = (descriptor.pointer for descriptor in descriptors)
        results, count = (Performance * MOST_RESULTS)(), ctypes.c_int()
        out = (MOST_RESULTS, ctypes.byref(count), results)
        if tried:
            workspace = self.memory.allocate(limit)
            pairs = (first, addresses[0], second, addresses[1], described.pointer, result, addresses[2])
            name = f"cudnnFindConvolution{pass_name}AlgorithmEx"
            cudnn.call(name, self.handle(), *pairs, *out, workspace.ptr, limit)
        else:
            name = f"cudnnGetConvolution{pass_name}Algorithm_v7"
            cudnn.call(name, self.handle(), first, second, described.pointer, result, *out)
        offers = results[: count.value]
        for offer in offers:
            if offer.status == 0 and offer.memory <= limit and (offer.deterministic or not deterministic):
                how, time_ms = ("autotune", float(offer.time_ms)) if tried else ("heuristic", None)
                choice = Choice(convolution, how, offer.algorithm, int(offer.memory), offer.math, time_ms)
                if not plain:
                    described = cudnn.convolution(convolution, choice.math)
                return _Plan(choice, described, descriptors)
        names = dict(enumerate(ALGORITHMS[direction]))
        words = [
            f"{names.get(offer.algorithm, offer.algorithm)} "
            + (cudnn.status(offer.status) if offer.status else f"{offer.memory / 2**20:.1f} MiB")
            for offer in offers
        ]
        raise SchemaError(
            f"cuDNN has no algorithm for {convolution.name} ({direction}, {dtype}) within {limit / 2**20:g} MiB of "
            f"workspace: {', '.join(words) or 'it offers none'}. {_HINT}"
        )

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
