"""Small ONNX files of tests, from an image x to the output of the last node."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

__all__ = ["conv_file", "node", "onnx_file", "onnx_model"]


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    """A node; names of inputs are apart by spaces."""
    return _helper().make_node(operator, inputs.split(), [output], **attributes)


def onnx_file(
    nodes: list[Any], weights: Iterable[Any] = (), image: tuple[Any, ...] = (1, 3, 8, 8), **options: Any
) -> bytes:
    """The bytes of a file of nodes and weights; `options` are those of the model."""
    helper, output = _helper(), nodes[-1].output[0] if nodes else "y"
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", image), (output, None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], list(weights))
    return bytes(helper.make_model(graph, **options).SerializeToString())


def conv_file(image: tuple[Any, ...] = (1, 3, 8, 8), after: tuple[str, ...] = ()) -> bytes:
    """The file of a convolution of 216 parameters, and operators after it, one after the other."""
    names = ["x", *(f"v{i}" for i in range(len(after))), "y"]
    nodes = [node("Conv", "x w", names[1])]
    nodes += [node(name, *names[i : i + 2]) for i, name in enumerate(after, 1)]
    return onnx_file(nodes, [_helper().make_tensor("w", 1, [8, 3, 3, 3], [0.5] * 216)], image)


def onnx_model(graph: dict[str, Any]) -> bytes:
    """Bytes of a graph: nodes (operator, names of what it reads and makes, attributes), weights, numbers and arrays."""
    helper = _helper()
    arrays = {name: np.float32(number) for name, number in graph.get("numbers", {}).items()}
    arrays |= {name: np.asarray(array) for name, array in graph.get("arrays", {}).items()}
    arrays |= {name: np.zeros(shape, np.float32) for name, shape in graph.get("weights", {}).items()}
    nodes = [
        helper.make_node(operator, read.split(), made.split(), **dict(*attributes))
        for operator, read, made, *attributes in graph["nodes"]
    ]
    tensor = pytest.importorskip("onnx").numpy_helper.from_array
    tensors = [tensor(np.asarray(array), name) for name, array in arrays.items()]
    opsets = [helper.make_opsetid("", graph.get("opset", 21))]
    return onnx_file(nodes, tensors, graph.get("image", ("n", 3, 16, 16)), opset_imports=opsets)


def _helper() -> Any:
    """The package's helper, or a skip where it is missing."""
    return pytest.importorskip("onnx").helper
