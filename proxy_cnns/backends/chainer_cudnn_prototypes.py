"""Types of the parameters of cuDNN's legacy functions, as NVIDIA's cudnn_cnn.h and cudnn_ops.h declare them (cuDNN 9).

Read by `chainer_cudnn_library`, which gives them to the library, and by those who call it; calls nothing.
"""

import ctypes
from typing import Any

__all__ = ["DIRECTIONS", "MOST_RESULTS", "PROTOTYPES", "Performance"]

DIRECTIONS = {"forward": "Forward", "backward_data": "BackwardData", "backward_filter": "BackwardFilter"}
"""Our word for each of a convolution's three passes, and cuDNN's."""

MOST_RESULTS = 16
"""More than any pass has algorithms and math types."""


class Performance(ctypes.Structure):
    """What cuDNN says of one algorithm: ``cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t``."""

    _fields_ = (
        ("algorithm", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time_ms", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("deterministic", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


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
