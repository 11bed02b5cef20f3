"""Operators that ONNX writes as several nodes and a framework runs as one.

Called by `predictor.sources.onnx_file`; calls nothing of ours but the graph and the recorder. Matched at the
node that runs first: x sigmoid(x) is SiLU, x hardsigmoid(x) Hardswish, x (1 + erf(x / sqrt 2)) / 2 GELU, and
a matrix product with weights, followed by the sum with a vector of weights, is one dense layer.
"""

from collections.abc import Callable
from typing import Any

from predictor.sources.onnx_graph import Graph, Node, Value
from predictor.sources.recorder import Recorder

__all__ = ["fused"]

Fused = tuple[str, dict[str, Any], list[Node]]
"""PyTorch's operator, its arguments, and the nodes that it stands for, the last one writing its result."""


def fused(graph: Graph, node: Node, recorder: Recorder) -> Fused | None:
    """Return the operator that begins at `node` in several nodes, or None if the node stands for itself."""
    if not node.inputs or not recorder.is_map(node.inputs[0]):
        return None
    match = _MATCHES.get(node.operator)
    return match(graph, node, recorder) if match else None


def _gated(graph: Graph, node: Node, _recorder: Recorder) -> Fused | None:
    product = graph.only_consumer(node.outputs[0])
    if product is None or product.operator != "Mul" or node.inputs[0] not in product.inputs:
        return None
    operator = "silu" if node.operator == "Sigmoid" else "hardswish"
    return operator, {"self": node.inputs[0]}, [node, product]


def _gelu(graph: Graph, node: Node, _recorder: Recorder) -> Fused | None:
    """Match x / sqrt 2 -> erf -> + 1 -> times x -> times 1/2, the halving before or after."""
    x = node.inputs[0]
    if not _with_constant(node):
        return None
    parts = [node]
    for operator in ("Erf", "Add", "Mul"):
        following = graph.only_consumer(parts[-1].outputs[0])
        if following is None or following.operator != operator:
            return None
        parts.append(following)
    product = parts[-1]
    others = [value for value in product.inputs if value is not parts[-2].outputs[0]]
    if others == [x]:
        last = graph.only_consumer(product.outputs[0])
        if last is None or last.operator != "Mul" or not _with_constant(last):
            return None
        return "gelu", {"self": x}, [*parts, last]
    half = [n for n in graph.consumers.get(id(x), []) if n.outputs[:1] == others and _with_constant(n)]
    return ("gelu", {"self": x}, [*half, *parts]) if half else None


def _with_constant(node: Node) -> bool:
    return any(value is not None and value.constant is not None for value in node.inputs)


def _dense(graph: Graph, node: Node, recorder: Recorder) -> Fused | None:
    following = graph.only_consumer(node.outputs[0])
    weight = node.inputs[1]
    if following is None or following.operator != "Add" or weight is None or weight.ndim != 2:
        return None
    bias = [value for value in following.inputs if value is not node.outputs[0]]
    if len(bias) != 1 or not _is_bias(bias[0], weight, recorder):
        return None
    arguments = {"input": node.inputs[0], "weight": weight, "bias": bias[0]}
    return "linear", arguments, [node, following]


def _is_bias(value: Value | None, weight: Value, recorder: Recorder) -> bool:
    return recorder.is_weights(value) and bool(value and weight.shape and value.shape == weight.shape[1:])


_MATCHES: dict[str, Callable[[Graph, Node, Recorder], Fused | None]] = {
    "Sigmoid": _gated,
    "HardSigmoid": _gated,
    "Div": _gelu,
    "MatMul": _dense,
}
