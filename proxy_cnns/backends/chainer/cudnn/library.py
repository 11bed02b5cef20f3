"""cuDNN's legacy interface over ctypes: the library, the types of its functions, error texts, handles and descriptors.

CuPy 14 has no cuDNN module any more, but cuDNN 9 still exports the functions that Chainer's convolutions, batch norm
and pooling were written for. Names, numbers and structures are those of NVIDIA's cudnn_cnn.h and cudnn_ops.h (cuDNN 9).
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

from predictor.errors import BackendUnavailableError, ProfilingError

ALGORITHMS = {
    direction: tuple(names.split())
    for direction, names in {
        "forward": "implicit_gemm implicit_precomp_gemm gemm direct fft fft_tiling winograd winograd_nonfused",
        "backward_data": "algo_0 algo_1 fft fft_tiling winograd winograd_nonfused",
        "backward_filter": "algo_0 algo_1 fft algo_3 winograd winograd_nonfused fft_tiling",
    }.items()
}
"""Algorithms of each pass in the order of cuDNN's numbers."""

DEFAULT_MATH, FMA_MATH = 0, 3
"""cuDNN's math types: tensor cores where the GPU has them (TF32 for float32), and plain fused multiply-add."""

_DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2}
_NCHW, _CROSS_CORRELATION, _NAN_IS_NOT_PROPAGATED = 0, 1, 0
_N_MAP_DIMENSIONS = 4
_PATH_VARIABLE = "EPOCHCAST_CUDNN"
_NO_STATUS_TEXT = 512


class Descriptor:
    """A descriptor of cuDNN, destroyed with this object."""

    def __init__(self, cudnn: Cudnn, kind: str, *settings: tuple[Any, ...]) -> None:
        self.pointer = ctypes.c_void_p()
        cudnn.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(self.pointer))
        destroy = getattr(cudnn.functions, f"cudnnDestroy{kind}Descriptor")
        weakref.finalize(self, destroy, self.pointer).atexit = False  # then, the device may be gone
        for name, *arguments in settings:
            cudnn.call(name, self.pointer, *arguments)


class Cudnn:
    """An open cuDNN.

    `functions`: has cuDNN's functions as attributes, as a `ctypes.CDLL` does. `path`: where it was found.
    """

    def __init__(self, functions: Any, path: str) -> None:
        self.functions = functions
        self.path = path
        self.version = int(functions.cudnnGetVersion())
        self._handles: dict[int, ctypes.c_void_p] = {}
        self._streams: dict[int, int] = {}

    @property
    def release(self) -> str:
        """Major and minor version, such as ``9.19``."""
        scale = 10000 if self.version >= 90000 else 1000  # cuDNN 9 counts in another scale than 8
        return f"{self.version // scale}.{self.version % scale // 100}"

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of cuDNN.

        ProfilingError if cuDNN reports a failure; says which, and cuDNN's own text.
        """
        status = getattr(self.functions, name)(*arguments)
        if status:
            text = ctypes.create_string_buffer(_NO_STATUS_TEXT)
            last_error = getattr(self.functions, "cudnnGetLastErrorString", None)  # only cuDNN 9 has it
            if last_error is not None:
                last_error(text, ctypes.c_size_t(_NO_STATUS_TEXT))
            words = text.value.decode(errors="replace")
            raise ProfilingError(f"{name} failed with {self.status(status)}. {words}".strip())

    def status(self, number: int) -> str:
        """Name that cuDNN gives a status."""
        return f"{self.functions.cudnnGetErrorString(number).decode()} ({number})"

    def handle(self, device: int, stream: int) -> ctypes.c_void_p:
        """Context of cuDNN on a device, set to a stream."""
        if device not in self._handles:
            handle = ctypes.c_void_p()
            self.call("cudnnCreate", ctypes.byref(handle))
            self._handles[device] = handle
        if self._streams.get(device) != stream:
            self.call("cudnnSetStream", self._handles[device], stream)
            self._streams[device] = stream
        return self._handles[device]

    def tensor(self, shape: tuple[int, ...], dtype: str) -> Descriptor:
        """Describe an array of (batch, channels, height, width), or more sides, that lies in this order."""
        kind = _data_type(dtype)
        if len(shape) == _N_MAP_DIMENSIONS:
            return Descriptor(self, "Tensor", ("cudnnSetTensor4dDescriptor", _NCHW, kind, *shape))
        steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        sizes = (kind, len(shape), _numbers(shape), _numbers(steps))
        return Descriptor(self, "Tensor", ("cudnnSetTensorNdDescriptor", *sizes))

    def batch_norm(self, maps: Descriptor, mode: int) -> Descriptor:
        """Describe the parameters that batch norm has for `maps`: float32 where these are float16."""
        return Descriptor(self, "Tensor", ("cudnnDeriveBNTensorDescriptor", maps.pointer, mode))

    def pooling(
        self, mode: int, window: Sequence[int], padding: Sequence[int], stride: Sequence[int]
    ) -> Descriptor:
        """Describe a pooling; a maximum ignores NaN, as it did in CuPy."""
        numbers = [_numbers(sides) for sides in (window, padding, stride)]
        settings = (mode, _NAN_IS_NOT_PROPAGATED, len(window), *numbers)
        return Descriptor(self, "Pooling", ("cudnnSetPoolingNdDescriptor", *settings))

    def filter(self, shape: tuple[int, ...], dtype: str) -> Descriptor:
        """Describe weights of (output channels, input channels / groups, height, width)."""
        return Descriptor(self, "Filter", ("cudnnSetFilter4dDescriptor", _data_type(dtype), _NCHW, *shape))

    def convolution(self, convolution: Any, math: int) -> Descriptor:
        """Describe a `choice.Convolution`; float16 is summed in float32."""
        dtype = convolution.dtype
        summed = _data_type("float32" if dtype == "float16" else dtype)
        window = (*convolution.padding, *convolution.stride, *convolution.dilation)
        return Descriptor(
            self,
            "Convolution",
            ("cudnnSetConvolution2dDescriptor", *window, _CROSS_CORRELATION, summed),
            ("cudnnSetConvolutionGroupCount", convolution.groups),
            ("cudnnSetConvolutionMathType", math),
        )


def _numbers(values: Iterable[int]) -> Any:
    """Lay numbers out as cuDNN reads them."""
    listed = [int(value) for value in values]
    return (ctypes.c_int * len(listed))(*listed)


def _data_type(dtype: str) -> int:
    """Number that cuDNN gives a type; ProfilingError if it has none."""
    if dtype not in _DATA_TYPES:
        raise ProfilingError(f"cuDNN computes with {', '.join(_DATA_TYPES)}, not {dtype}.")
    return _DATA_TYPES[dtype]


def open_cudnn() -> Cudnn:
    """Open cuDNN: the file in ``EPOCHCAST_CUDNN``, else that of NVIDIA's package, else the system's.

    BackendUnavailableError if there is none, or it lacks the legacy interface.
    """
    problems = []
    for path in _places():
        try:
            functions = ctypes.CDLL(path)
            functions.cudnnGetVersion.restype = ctypes.c_size_t
            functions.cudnnGetErrorString.restype = ctypes.c_char_p
            functions.cudnnGetErrorString.argtypes = [ctypes.c_int]
            for name, types in PROTOTYPES.items():  # AttributeError if one is missing
                function = getattr(functions, name)
                function.restype, function.argtypes = ctypes.c_int, types
        except (OSError, AttributeError) as error:
            problems.append(str(error))
        else:
            return Cudnn(functions, path)
    raise BackendUnavailableError(
        "cuDNN is not installed: pip install nvidia-cudnn-cu12 (CUDA 12) or nvidia-cudnn-cu13 (CUDA 13), or name "
        f"the library in {_PATH_VARIABLE}. Tried: {'; '.join(problems)}"
    )


def _places() -> Iterator[str]:
    named = os.environ.get(_PATH_VARIABLE)
    if named:
        yield named
        return
    try:
        package = find_spec("nvidia.cudnn")
    except (ImportError, ValueError):
        package = None
    for folder in (package.submodule_search_locations if package else None) or ():
        yield from map(str, sorted(Path(folder, "lib").glob("libcudnn.so.[0-9]*"), reverse=True))
    yield from ("libcudnn.so.9", "libcudnn.so")


DIRECTIONS = {"forward": "Forward", "backward_data": "BackwardData", "backward_filter": "BackwardFilter"}
"""Our word for each of a convolution's three passes, and cuDNN's."""


class Performance(ctypes.Structure):
    """cuDNN's record of one algorithm: ``cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t``."""

    _fields_ = (
        ("algorithm", ctypes.c_int), ("status", ctypes.c_int), ("time_ms", ctypes.c_float),
        ("memory", ctypes.c_size_t), ("deterministic", ctypes.c_int), ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )  # fmt: skip


_P, _I, _SIZE, _DOUBLE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_double
_RESULTS = [_I, ctypes.POINTER(_I), ctypes.POINTER(Performance)]
# function -> types of its parameters; each returns a status
PROTOTYPES: dict[str, list[Any]] = {
    "cudnnCreate": [_P],
    "cudnnSetStream": [_P, _P],
    "cudnnSetTensor4dDescriptor": [_P, *[_I] * 6],
    "cudnnSetFilter4dDescriptor": [_P, *[_I] * 6],
    "cudnnSetConvolution2dDescriptor": [_P, *[_I] * 8],
    "cudnnSetConvolutionMathType": [_P, _I],
    "cudnnSetConvolutionGroupCount": [_P, _I],
    "cudnnSetTensorNdDescriptor": [_P, _I, _I, _P, _P],
    "cudnnSetPoolingNdDescriptor": [_P, *[_I] * 3, _P, _P, _P],
    "cudnnAddTensor": [_P] * 7,
    "cudnnDeriveBNTensorDescriptor": [_P, _P, _I],
    "cudnnBatchNormalizationForwardTraining": [_P, _I, *[_P] * 9, _DOUBLE, _P, _P, _DOUBLE, _P, _P],
    "cudnnBatchNormalizationForwardInference": [_P, _I, *[_P] * 11, _DOUBLE],
    "cudnnBatchNormalizationBackward": [_P, _I, *[_P] * 14, _DOUBLE, _P, _P],
    "cudnnPoolingForward": [_P] * 8,
    "cudnnPoolingBackward": [_P] * 12,
}
for _kind in ("Tensor", "Filter", "Convolution", "Pooling"):
    PROTOTYPES |= {f"cudnnCreate{_kind}Descriptor": [_P], f"cudnnDestroy{_kind}Descriptor": [_P]}
for _pass in DIRECTIONS.values():
    PROTOTYPES |= {
        f"cudnnConvolution{_pass}": [*[_P] * 7, _I, _P, _SIZE, _P, _P, _P],
        f"cudnnGetConvolution{_pass}Algorithm_v7": [*[_P] * 5, *_RESULTS],
        f"cudnnFindConvolution{_pass}AlgorithmEx": [*[_P] * 8, *_RESULTS, _P, _SIZE],
    }
