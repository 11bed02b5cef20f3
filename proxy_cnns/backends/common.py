"""What the backends share: checks of a layer's sizes, copies of an operator, refusals and times of an iteration.

No framework is imported here.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import ceil, gcd, prod
from typing import Any, TypeVar

from predictor.cnns.layer_table import Layer
from predictor.errors import (
    BackendUnavailableError,
    DeviceOutOfMemoryError,
    EpochcastError,
    ProfilingError,
    SchemaError,
    nearest,
)
from predictor.operators.operators import Operator
from proxy_cnns.configuration import MEASURE_WHOLE, Configuration, Subject
from proxy_cnns.user_cnns import make_model

__all__ = [
    "CPU_CACHE_BYTES",
    "DROPPED",
    "LEARNING_RATE",
    "USER_CHANNELS",
    "Volume",
    "activation_of",
    "check_convolution",
    "check_empty",
    "check_size",
    "copies_of",
    "copies_of_optimizer",
    "copy_bytes",
    "gpu_index",
    "input_shapes",
    "maker_of",
    "mean_host_ms",
    "norm_groups",
    "number",
    "out_size",
    "pool_rounds_up",
    "precisions_on",
    "reduced_sides",
    "refusing_failures",
    "user_cnn",
    "volume_of",
    "window",
]

DROPPED = {"dropout": 0.5, "stochastic_depth": 0.1}
"""Probability with which each drops. A layer table does not hold it, and no kernel's time depends on it."""

LEARNING_RATE = 1e-6
"""So small that training on random labels does not diverge; the kernels are those of any learning rate."""

USER_CHANNELS = 3
"""Channels of the images that a user's own CNN reads."""

CPU_CACHE_BYTES = 2**24
"""Cache that copies of an operator exceed on a CPU."""

_SIDES = ("height", "width")
_VOLUME = ("in", "kernel", "stride", "out")
_MOST_COPIES = 16
_FLAT_KINDS = ("softmax",)
_LEFT_MIB = 8.0
_OUT_OF_MEMORY = (
    "out of memory",
    "out_of_memory",
    "alloc_failed",
    "cudaerrormemoryallocation",
    "can't allocate memory",
    "not enough memory",
)

_T = TypeVar("_T")


def gpu_index(device: str, framework: str) -> int | None:
    """Number of the GPU of ``cuda:N`` (``cuda`` is 0); None for ``cpu``.

    Raises
    ------
    BackendUnavailableError
        If `device` is neither.
    """
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or not (index or "0").isdecimal():
        raise BackendUnavailableError(f"device {device!r} is not known to {framework}: give cpu or cuda:0.")
    return int(index or 0) if kind == "cuda" else None


_LEAST_CAPABILITY = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (5, 3), "amp_fp16": (5, 3), "amp_bf16": (8, 0)}
"""The compute capability from which a GPU has each precision."""


def precisions_on(
    on_gpu: Sequence[str], on_cpu: Sequence[str], capability: tuple[int, int] | None
) -> tuple[str, ...]:
    """Of a framework's precisions those of a GPU of this compute capability; None: of a CPU."""
    if capability is None:
        return tuple(on_cpu)
    return tuple(each for each in on_gpu if capability >= _LEAST_CAPABILITY[each])


def check_empty(left_mib: float, configuration: Configuration) -> None:
    """Refuse to measure the peak memory of a whole CNN while an earlier configuration occupies memory."""
    if left_mib > _LEFT_MIB:
        raise ProfilingError(
            f"{left_mib:.0f} MiB are still occupied by an earlier configuration, so the peak memory of "
            f"{configuration.words} cannot be read. Close every configuration before the next."
        )


@contextmanager
def refusing_failures(
    framework: str, what: str, refusal: type[EpochcastError], failures: tuple[type[Exception], ...]
) -> Iterator[None]:
    """Turn what a framework raises into our errors, and free what the failed calls held.

    Parameters
    ----------
    framework, what : str
        Names for the message.
    refusal : type
        Error for a failure that is no lack of memory.
    failures : tuple of types
        Exceptions that the framework raises; others pass.

    Raises
    ------
    DeviceOutOfMemoryError
        If memory was lacking: the error says so, in the words of cuDNN, cuBLAS, CUDA or the framework.
    """
    refused: Exception | None = None
    try:
        yield
    except Exception as error:
        ours = isinstance(error, EpochcastError)
        if isinstance(error, MemoryError) or any(words in str(error).casefold() for words in _OUT_OF_MEMORY):
            refused = DeviceOutOfMemoryError(f"{what} does not fit in memory. Choose a smaller batch size.")
        elif ours or not isinstance(error, failures):
            raise
        else:
            text = " ".join(str(error).split())[:300] or "no message"
            refused = refusal(f"{framework} cannot run {what}: {type(error).__name__}: {text}")
        traceback.clear_frames(error.__traceback__)
    if refused is not None:
        raise refused


def mean_host_ms(
    synchronise: Callable[[], None],
    ready: Callable[[], AbstractContextManager[Callable[[], None]]],
    n: int,
) -> float:
    """Mean time to enqueue what `ready` gives, each of `n` times on an empty queue."""
    total = 0.0
    for _ in range(n):
        synchronise()
        with ready() as enqueue:
            start = time.perf_counter()
            enqueue()
            total += time.perf_counter() - start
    synchronise()
    return 1000 * total / n


def user_cnn(subject: Subject, of_type: type, framework: str, wanted: str) -> Any:
    """The CNN that a user's own function makes, checked to be of the framework's type; SchemaError if it is not."""
    if subject.builder is None:
        raise SchemaError(
            f"{subject.name!r} of kind {subject.kind!r} has neither a layer table nor a builder."
        )
    path, function = subject.builder
    model = make_model(subject.builder)
    if not isinstance(model, of_type):
        raise SchemaError(
            f"{function}() of {path} gives a {type(model).__name__}, no {wanted}: to measure it with {framework}, "
            "return one."
        )
    return model


def maker_of(layer: Layer | Operator, makers: Mapping[str, _T], framework: str) -> _T:
    """The maker of a layer's type; SchemaError where the framework has none."""
    if layer.type not in makers:
        raise SchemaError(
            f"layer {layer.name!r} is of type {layer.type!r}, which {framework} cannot run from a layer table alone. "
            f"{MEASURE_WHOLE}"
        )
    return makers[layer.type]


def activation_of(layer: Layer | Operator, kinds: Mapping[str, _T]) -> _T:
    """The activation of a layer's kind; SchemaError with the known kinds."""
    if layer.kind is None or layer.kind not in kinds:
        raise SchemaError(
            f"layer {layer.name!r} is an activation of kind {layer.kind!r}. "
            f"Nearest: {nearest(str(layer.kind), kinds)}; known: {', '.join(kinds)}."
        )
    return kinds[layer.kind]


def copies_of(bytes_of_one: int, cache_bytes: int) -> int:
    """Copies that together exceed the cache twice; at least 1, at most 16."""
    return max(1, min(_MOST_COPIES, ceil(2 * cache_bytes / max(1, bytes_of_one))))


def copies_of_optimizer(operator: Operator, cache_bytes: int, most_tensors: int) -> int:
    """Copies of an optimizer step: as many as exceed the cache twice, with at most `most_tensors` tensors in all."""
    return max(1, min(copies_of(12 * operator.parameters, cache_bytes), most_tensors // operator.n_tensors))


def copy_bytes(
    operator: Operator, shapes: Sequence[tuple[int, ...]], batch_size: int, element_bytes: int
) -> int:
    """Bytes that one copy of an operator reads and writes in its forward pass."""
    out = [getattr(operator, f"out_{part}") or 0 for part in ("channels", "height", "width")]
    elements = sum(map(prod, shapes)) + batch_size * prod(out)
    return int(elements * element_bytes + 4 * operator.parameters)


def input_shapes(operator: Operator, batch_size: int) -> list[tuple[int, ...]]:
    """Shape of each input of an operator.

    A map is (batch, channels, height, width), a vector (batch, channels); linear layers and layer norms on maps read
    (batch, height, width, channels). A product without parameters multiplies a map by factors for each channel.
    """
    sizes = [getattr(operator, f"in_{part}") for part in ("channels", "height", "width")]
    if None in sizes:
        raise SchemaError(f"operator {operator.name!r} lacks its input's size: it cannot be run.")
    channels, height, width = map(int, sizes)
    shape = (batch_size, channels, height, width)
    flat = operator.type == "loss" or operator.kind in _FLAT_KINDS
    if flat or (operator.type == "linear" and height == width == 1):
        return [(batch_size, channels)]
    if operator.type in ("linear", "layer_norm"):
        return [(batch_size, height, width, channels)]
    if operator.type == "add":
        return [shape, shape]
    if operator.type == "multiply" and not operator.parameters:
        return [(batch_size, channels, 1, 1), shape]
    if operator.type in ("matmul", "attention"):
        return _product_shapes(operator, batch_size)
    if operator.type == "conv3d":
        return [(batch_size, channels, *volume_of(operator).size)]
    if operator.type == "concat":
        return [(batch_size, each, height, width) for each in _parts(channels, operator.n_tensors)]
    return [shape]


def _product_shapes(operator: Operator, batch_size: int) -> list[tuple[int, ...]]:
    """Shapes of the factors of a ``matmul``, or of queries, keys and values; `groups` products for each image."""
    groups, rows = number(operator, "groups"), number(operator, "in_height")
    inner, columns = (number(operator, f"{side}_channels") // groups for side in ("in", "out"))
    if operator.type == "matmul":
        return [(batch_size, groups, rows, inner), (batch_size, groups, inner, columns)]
    keys = number(operator, "kernel_height")
    return [(batch_size, groups, n, size) for n, size in ((rows, inner), (keys, inner), (keys, columns))]


def _parts(channels: int, n: int) -> list[int]:
    """Channels of each tensor that a concat joins: equal, the first with the remainder."""
    each = max(1, channels // n)
    return [max(1, channels - (n - 1) * each), *[each] * (n - 1)]


def reduced_sides(layer: Layer | Operator) -> tuple[int, ...]:
    """Dimensions of (batch, channels, height, width) that a ``mean`` reduces to 1: those whose size changes."""
    parts = enumerate(("channels", *_SIDES), 1)
    sizes = [(axis, number(layer, f"in_{part}"), number(layer, f"out_{part}")) for axis, part in parts]
    reduced = tuple(axis for axis, size, out in sizes if size != out)
    if not reduced or any(out != 1 for axis, _, out in sizes if axis in reduced):
        raise SchemaError(
            f"layer {layer.name!r} is a mean that reduces no whole dimension of its input: it cannot be run from a "
            f"layer table alone. {MEASURE_WHOLE}"
        )
    return reduced


def norm_groups(layer: Layer | Operator) -> int:
    """Groups of a group norm: 32 as in the paper (arXiv:1803.08494), or the most that divide the channels."""
    channels = number(layer, "in_channels")
    return layer.groups or gcd(channels, 32)


@dataclass(frozen=True, slots=True)
class Volume:
    """A convolution over (depth, height, width)."""

    size: tuple[int, int, int]
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    padding: tuple[int, int, int]


def volume_of(layer: Layer | Operator) -> Volume:
    """Sizes of a ``conv3d``, whose row holds depth x height as height; images and windows are taken as square.

    Raises
    ------
    SchemaError
        If they are not square, or no padding gives the output that the row says.
    """
    pairs = [(number(layer, f"{what}_height"), number(layer, f"{what}_width")) for what in _VOLUME]
    (depth, kernel, stride, out), rest = zip(*(divmod(height, width) for height, width in pairs), strict=True)
    side, window_side, step, out_side = (width for _, width in pairs)
    padding = layer.padding_width or 0
    depth_padding = max(0, -(-((out - 1) * stride + kernel - depth) // 2))
    fits = stride and (depth + 2 * depth_padding - kernel) // stride + 1 == out
    if any(rest) or not fits or (side + 2 * padding - window_side) // step + 1 != out_side:
        raise SchemaError(
            f"layer {layer.name!r} is a conv3d over images or windows that are not square: its depth is unknown. "
            f"{MEASURE_WHOLE}"
        )
    return Volume(
        (depth, side, side),
        (kernel, window_side, window_side),
        (stride, step, step),
        (depth_padding, padding, padding),
    )


def check_convolution(layer: Layer | Operator) -> None:
    """Refuse a convolution whose window gives an output of another size than its table says."""
    dilation = layer.dilation or 1
    for part, kernel, stride, padding in zip(_SIDES, *window(layer), strict=True):
        free = number(layer, f"in_{part}") + 2 * padding - dilation * (kernel - 1) - 1
        check_size(layer, part, free // stride + 1)


def number(layer: Layer | Operator, name: str, least: int = 1) -> int:
    """Value of a column that must be known and at least `least`; SchemaError names the layer."""
    value = getattr(layer, name)
    if value is None or value < least:
        raise SchemaError(
            f"layer {layer.name!r} of type {layer.type!r} has {name} {value!r}: to run it, every size must be "
            f"known and at least {least}. Complete the layer table."
        )
    return int(value)


def window(
    layer: Layer | Operator, stride_from: int = 1
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Kernel, stride, padding, each (height, width); only an adaptive pool may have stride 0."""
    kernel = (number(layer, "kernel_height"), number(layer, "kernel_width"))
    stride = (number(layer, "stride_height", stride_from), number(layer, "stride_width", stride_from))
    return kernel, stride, (layer.padding_height or 0, layer.padding_width or 0)


def out_size(layer: Layer | Operator) -> tuple[int, int]:
    """Height and width of the output."""
    return number(layer, "out_height"), number(layer, "out_width")


def check_size(layer: Layer | Operator, part: str, size: int) -> None:
    """Refuse a layer whose window gives another `part` (height, width) than its table states; SchemaError."""
    stated = getattr(layer, f"out_{part}")
    if size != stated:
        raise SchemaError(
            f"layer {layer.name!r}: its kernel, stride and padding give {part} {size}, but out_{part} is {stated}. "
            "Correct the layer table."
        )


def pool_rounds_up(layer: Layer | Operator) -> bool | None:
    """Whether a pool's output size is rounded up; None where no window gives it: an adaptive pool.

    Raises
    ------
    SchemaError
        If it is neither.
    """
    kernel, stride, padding = window(layer, stride_from=0)
    if 0 not in stride:
        for up in (False, True):
            if _pooled_size(layer, up) == out_size(layer):
                return up
    sizes = [(number(layer, f"in_{part}"), number(layer, f"out_{part}")) for part in _SIDES]
    adaptive = tuple(-(-size // out) for size, out in sizes), tuple(size // out for size, out in sizes)
    if (kernel, stride) != adaptive or padding != (0, 0):
        for part, size in zip(_SIDES, _pooled_size(layer, up=False), strict=True):
            check_size(layer, part, size)
    return None


def _pooled_size(layer: Layer | Operator, up: bool) -> tuple[int, ...]:
    """Output size of a pool; rounded up, its last window begins inside the input or left padding."""
    sizes = []
    for part, kernel, stride, padding in zip(_SIDES, *window(layer), strict=True):
        size = number(layer, f"in_{part}")
        free = size + 2 * padding - (layer.dilation or 1) * (kernel - 1) - 1
        out = (free + (stride - 1) * up) // stride + 1
        sizes.append(out - 1 if up and (out - 1) * stride >= size + padding else out)
    return tuple(sizes)
