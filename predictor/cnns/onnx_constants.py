"""Computes the small constants of an ONNX graph, on which the shapes of slices and reshapes depend.

Exporters write ``x[:, : x.shape[1] // 2]`` as half a dozen operators on the shape of x; those are computed
here, on arrays of at most `MOST_NUMBERS` numbers, and nothing else is.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

__all__ = ["FLOATS", "MOST_NUMBERS", "fold_constants"]

MOST_NUMBERS = 1024
"""Numbers in a constant that is kept: enough for shapes and bounds, too few for most weights."""

FLOATS = (1, 10, 11, 16)
"""TensorProto's float, float16, double and bfloat16: what weights are made of."""

_Array = np.ndarray[Any, Any]


def fold_constants(graph: Any, onnx: Any) -> bool:
    """Replace nodes whose result is a small constant by that constant, in place; return whether any was.

    Parameters
    ----------
    graph : onnx.GraphProto
        With the shapes that are known so far in its `value_info`.
    onnx : module
    """
    known: dict[str, _Array] = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if not tensor.dims or tensor.data_type not in FLOATS  # the rest may be weights, which stay weights
    }
    shapes = {info.name: _shape(info) for info in (*graph.input, *graph.value_info)}
    left = []
    for node in graph.node:
        value = _value(node, known, shapes, onnx)
        if value is None or value.size > MOST_NUMBERS or len(node.output) != 1:
            left.append(node)
            continue
        known[node.output[0]] = value
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), node.output[0]))
    folded = len(left) < len(graph.node)
    del graph.node[:]
    graph.node.extend(left)
    return folded


def _shape(info: Any) -> tuple[int, ...] | None:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return tuple(dim.dim_value for dim in tensor.shape.dim)


def _value(
    node: Any, known: dict[str, _Array], shapes: dict[str, tuple[int, ...] | None], onnx: Any
) -> _Array | None:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Constant":
        return _constant(attributes, onnx)
    if node.op_type == "Shape":
        shape = shapes.get(node.input[0])
        return None if shape is None else np.array(shape[attributes.get("start", 0) : attributes.get("end")])
    fold = _FOLDS.get(node.op_type)
    if fold is None or not all(name in known for name in node.input if name):
        return None
    try:
        return np.asarray(fold([known[name] for name in node.input if name], attributes))
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        return None  # a damaged file: its shapes stay unknown, which is an error where they matter


def _constant(attributes: dict[str, Any], onnx: Any) -> _Array | None:
    tensor = attributes.get("value")
    if tensor is None:
        name, value = next(iter(attributes.items()), ("", None))
        return None if value is None else np.asarray(value, np.float32 if "float" in name else None)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or prod(tensor.dims) > MOST_NUMBERS:
        return None
    return np.asarray(onnx.numpy_helper.to_array(tensor))


def _cast(values: list[_Array], attributes: dict[str, Any]) -> Any:
    import onnx

    return values[0].astype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _divide(values: list[_Array], _attributes: dict[str, Any]) -> Any:
    if np.issubdtype(values[0].dtype, np.integer):
        return (values[0] / values[1]).astype(values[0].dtype)  # ONNX rounds towards 0
    return values[0] / values[1]


def _slice(values: list[_Array], _attributes: dict[str, Any]) -> Any:
    source, starts, ends = values[:3]
    axes = values[3] if len(values) > 3 else np.arange(len(starts))
    steps = values[4] if len(values) > 4 else np.ones(len(starts), np.int64)
    where = [slice(None)] * source.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        where[int(axis)] = slice(int(start), int(end), int(step))
    return source[tuple(where)]


def _axes(values: list[_Array], attributes: dict[str, Any]) -> tuple[int, ...]:
    axes = values[1].tolist() if len(values) > 1 else attributes["axes"]
    return tuple(axes)


def _filled(values: list[_Array], attributes: dict[str, Any]) -> Any:
    if prod(values[0].tolist()) > MOST_NUMBERS:
        raise ValueError("not small")
    import onnx

    value = attributes.get("value")
    number = np.float32(0) if value is None else onnx.numpy_helper.to_array(value)[0]
    return np.full(values[0].tolist(), number)


def _expand(values: list[_Array], _attributes: dict[str, Any]) -> Any:
    if prod(values[1].tolist()) > MOST_NUMBERS:
        raise ValueError("not small")
    return values[0] * np.ones(values[1].tolist(), values[0].dtype)


_FOLDS: dict[str, Callable[[list[_Array], dict[str, Any]], Any]] = {
    "Add": lambda values, _: values[0] + values[1],
    "Cast": _cast,
    "CastLike": lambda values, _: values[0].astype(values[1].dtype),
    "Concat": lambda values, attributes: np.concatenate(values, attributes["axis"]),
    "ConstantOfShape": _filled,
    "Div": _divide,
    "Expand": _expand,
    "Gather": lambda values, attributes: np.take(values[0], values[1], attributes.get("axis", 0)),
    "Identity": lambda values, _: values[0],
    "Mul": lambda values, _: values[0] * values[1],
    "Reshape": lambda values, _: values[0].reshape(values[1].tolist()),
    "Slice": _slice,
    "Squeeze": lambda values, attributes: np.squeeze(values[0], _axes(values, attributes)),
    "Sub": lambda values, _: values[0] - values[1],
    "Unsqueeze": lambda values, attributes: np.expand_dims(values[0], _axes(values, attributes)),
}
