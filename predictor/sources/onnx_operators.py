"""ONNX operators in PyTorch's words, which the recorder understands: one translation each, in one dict.

Called by `predictor.sources.onnx_file`; calls nothing of ours but `onnx_graph`'s types.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

from predictor.sources.onnx_graph import Node

__all__ = ["CREATIONS", "TRANSLATIONS", "VIEWS", "Translation"]

Translation = tuple[str, dict[str, Any]]
"""PyTorch's operator and its arguments by name."""

CREATIONS = {"ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike", "Shape", "Size"}
"""Operators that read a value for its shape alone."""

VIEWS = {"Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze"}
"""Operators that move no number."""


def _convolution(node: Node) -> Translation:
    weight = node.inputs[1]
    kernel = list((weight.shape if weight and weight.shape else ())[2:])
    dilation = node.attributes.get("dilations") or [1] * len(kernel)
    stride = node.attributes.get("strides") or [1] * len(kernel)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    return "convolution", {
        **_tensors(node, "input", "weight", "bias"),
        "stride": stride,
        "padding": _padding(node, reach, stride),
        "dilation": dilation,
        "transposed": node.operator == "ConvTranspose",
        "groups": node.attributes.get("group", 1),
    }


def _tensors(node: Node, *names: str) -> dict[str, Any]:
    return dict(zip(names, node.inputs, strict=False))


def _padding(node: Node, reach: list[int], stride: list[int]) -> list[int]:
    """Return the padding on one side; where both sides differ, half of both, rounded up."""
    automatic = node.attributes.get("auto_pad", b"NOTSET")
    if automatic in (b"SAME_UPPER", b"SAME_LOWER") and node.operator != "ConvTranspose":
        source = node.inputs[0]
        sizes = list((source.shape if source and source.shape else ())[2:])
        both = [
            max((ceil(size / step) - 1) * step + k - size, 0)
            for size, k, step in zip(sizes, reach, stride, strict=True)
        ]
        return [ceil(total / 2) for total in both]
    pads = node.attributes.get("pads") or [0] * (2 * len(reach))
    return [ceil((pads[i] + pads[i + len(reach)]) / 2) for i in range(len(reach))]


def _pool(operator: str) -> Callable[[Node], Translation]:
    def translate(node: Node) -> Translation:
        kernel = list(node.attributes["kernel_shape"])
        stride = node.attributes.get("strides") or [1] * len(kernel)
        dilation = node.attributes.get("dilations") or [1] * len(kernel)
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        window = {"kernel_size": kernel, "stride": stride, "padding": _padding(node, reach, stride)}
        return operator, {**_tensors(node, "self"), **window, "dilation": dilation}

    return translate


def _plain(operator: str, *names: str) -> Callable[[Node], Translation]:
    """Translate to `operator` with the first inputs by these names (others are no trained tensors)."""

    def translate(node: Node) -> Translation:
        return operator, _tensors(node, *(names or ("self", "other")))

    return translate


def _clip(node: Node) -> Translation:
    bounds = {"min": node.number(1, "min"), "max": node.number(2, "max")}
    return "clamp", {**_tensors(node, "self"), **bounds}


def _mean(node: Node) -> Translation:
    axes = node.number(1, "axes")
    return "mean", {**_tensors(node, "self"), "dim": axes}


def _dropout(node: Node) -> Translation:
    """Take a dropout as running, even where the file is for inference: training runs it."""
    ratio = node.number(1, "ratio")
    return "dropout", {**_tensors(node, "input"), "p": 0.5 if ratio is None else ratio}


def _concat(node: Node) -> Translation:
    return "cat", {"tensors": node.inputs}


def _sum(node: Node) -> Translation:
    return "add", {"tensors": node.inputs}


def _pad(node: Node) -> Translation:
    pads = node.number(1, "pads") or node.attributes.get("paddings")
    operator = "alias" if pads is not None and not any(pads) else "constant_pad_nd"
    return operator, _tensors(node, "self")


def _transpose(node: Node) -> Translation:
    source = node.inputs[0]
    dims = node.attributes.get("perm") or list(reversed(range(source.ndim if source else 0)))
    return "permute", {**_tensors(node, "self"), "dims": list(dims)}


TRANSLATIONS: dict[str, Callable[[Node], Translation]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "Gemm": _plain("linear", "input", "weight", "bias"),
    "BatchNormalization": _plain("batch_norm", "input", "weight", "bias"),
    "LayerNormalization": _plain("layer_norm", "input", "weight", "bias"),
    "GroupNormalization": _plain("group_norm", "input", "weight", "bias"),
    "InstanceNormalization": _plain("instance_norm", "input", "weight", "bias"),
    "Relu": _plain("relu", "self"),
    "LeakyRelu": _plain("leaky_relu", "self"),
    "Sigmoid": _plain("sigmoid", "self"),
    "Tanh": _plain("tanh", "self"),
    "HardSigmoid": _plain("hardsigmoid", "self"),
    "HardSwish": _plain("hardswish", "self"),
    "Swish": _plain("silu", "self"),
    "Gelu": _plain("gelu", "self"),
    "Softmax": _plain("softmax", "self"),
    "LogSoftmax": _plain("log_softmax", "self"),
    "Clip": _clip,
    "MaxPool": _pool("max_pool2d"),
    "AveragePool": _pool("avg_pool2d"),
    "GlobalAveragePool": _plain("adaptive_avg_pool2d", "self"),
    "GlobalMaxPool": _plain("adaptive_max_pool2d", "self"),
    "ReduceMean": _mean,
    "Add": _plain("add"),
    "Sub": _plain("sub"),
    "Sum": _sum,
    "Mul": _plain("mul"),
    "Div": _plain("div"),
    "Concat": _concat,
    "Dropout": _dropout,
    "Pad": _pad,
    "Transpose": _transpose,
}
