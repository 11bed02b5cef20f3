"""Chainer's functions in PyTorch's words, which the recorder understands: one translation each, in one dict.

Called by `predictor.sources.chainer_chain`; calls nothing of ours. Knows Chainer's functions by the names of
their classes only: Chainer itself is not imported here.
"""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["operator_of"]

Translation = tuple[str, dict[str, Any]]


def operator_of(function: Any, inputs: Sequence[Any]) -> tuple[str, dict[str, Any], bool]:
    """Return PyTorch's operator for a Chainer function, its arguments by name, and whether it is a view.

    Parameters
    ----------
    function : chainer.FunctionNode
        Having run forward.
    inputs : sequence
        What it read, as the recorder knows it. A function of no known class keeps its own name, which the
        recorder takes for an operator of unknown cost.
    """
    name = type(getattr(function, "function", function)).__name__
    if name in _VIEWS:
        return "view", {"self": inputs[0]}, True
    if name not in _TRANSLATIONS:
        return name, {"inputs": list(inputs)}, False
    operator, arguments = _TRANSLATIONS[name](function, inputs)
    return operator, arguments, operator == "permute"


_VIEWS = {"Broadcast", "BroadcastTo", "ExpandDims", "GetItem", "Reshape", "SplitAxis", "Squeeze"}


def _named(names: Sequence[str], inputs: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, inputs, strict=False))


def _plain(operator: str, *names: str) -> Callable[[Any, Sequence[Any]], Translation]:
    def translate(_function: Any, inputs: Sequence[Any]) -> Translation:
        return operator, _named(names or ("self", "other"), inputs)

    return translate


def _convolution(function: Any, inputs: Sequence[Any]) -> Translation:
    return "convolution", {
        **_named(("input", "weight", "bias"), inputs),
        "stride": (function.sy, function.sx),
        "padding": (function.ph, function.pw),
        "dilation": (function.dy, function.dx),
        "transposed": "Deconvolution" in type(function).__name__,
        "groups": function.groups,
    }


def _pool(operator: str) -> Callable[[Any, Sequence[Any]], Translation]:
    def translate(function: Any, inputs: Sequence[Any]) -> Translation:
        window = {"kernel_size": function.ksize, "stride": function.stride, "padding": function.pad}
        known = operator if len(function.ksize) == 2 else type(function).__name__
        return known, {**_named(("self",), inputs), **window}

    return translate


def _clipped_relu(function: Any, inputs: Sequence[Any]) -> Translation:
    return "clamp", {**_named(("self",), inputs), "min": 0, "max": function.cap}


def _many(operator: str) -> Callable[[Any, Sequence[Any]], Translation]:
    def translate(_function: Any, inputs: Sequence[Any]) -> Translation:
        return operator, {"tensors": list(inputs)}

    return translate


def _dropout(function: Any, inputs: Sequence[Any]) -> Translation:
    return "dropout", {**_named(("input",), inputs), "p": function.dropout_ratio}


def _mean(function: Any, inputs: Sequence[Any]) -> Translation:
    return "mean", {**_named(("self",), inputs), "dim": function.axis}


def _transpose(function: Any, inputs: Sequence[Any]) -> Translation:
    dims = function.axes or tuple(reversed(range(inputs[0].ndim)))
    return "permute", {**_named(("self",), inputs), "dims": list(dims)}


_TRANSLATIONS: dict[str, Callable[[Any, Sequence[Any]], Translation]] = {
    "Convolution2DFunction": _convolution,
    "Deconvolution2DFunction": _convolution,
    "LinearFunction": _plain("linear", "input", "weight", "bias"),
    "BatchNormalization": _plain("batch_norm", "input", "weight", "bias"),
    "FixedBatchNormalization": _plain("batch_norm", "input", "weight", "bias"),
    "LayerNormalization": _plain("layer_norm", "input", "weight", "bias"),
    "GroupNormalization": _plain("group_norm", "input", "weight", "bias"),
    "ReLU": _plain("relu", "self"),
    "LeakyReLU": _plain("leaky_relu", "self"),
    "ClippedReLU": _clipped_relu,
    "Sigmoid": _plain("sigmoid", "self"),
    "HardSigmoid": _plain("hardsigmoid", "self"),
    "Tanh": _plain("tanh", "self"),
    "Swish": _plain("silu", "self", "beta"),
    "Softmax": _plain("softmax", "self"),
    "LogSoftmax": _plain("log_softmax", "self"),
    "MaxPoolingND": _pool("max_pool2d"),
    "AveragePoolingND": _pool("avg_pool2d"),
    "Mean": _mean,
    "Sum": _mean,
    "Add": _plain("add"),
    "AddConstant": _plain("add"),
    "MultiAdd": _many("add"),
    "Sub": _plain("sub"),
    "SubFromConstant": _plain("sub"),
    "Mul": _plain("mul"),
    "MulConstant": _plain("mul"),
    "Div": _plain("div"),
    "Concat": _many("cat"),
    "Dropout": _dropout,
    "Pad": _plain("constant_pad_nd", "self"),
    "Transpose": _transpose,
}
