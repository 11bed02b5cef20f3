"""ONNX models of small graphs, for tests of what reads them."""

from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["onnx_model"]


def onnx_model(onnx: ModuleType, graph: dict[str, Any]) -> bytes:
    """Bytes of a graph: nodes (operator, names of what it reads and makes, attributes), weights, numbers and arrays."""
    helper = onnx.helper
    numbers = {name: np.float32(number) for name, number in graph.get("numbers", {}).items()}
    numbers |= {name: np.asarray(array) for name, array in graph.get("arrays", {}).items()}
    numbers |= {name: np.zeros(shape, np.float32) for name, shape in graph.get("weights", {}).items()}
    nodes = [
        helper.make_node(operator, read.split(), made.split(), **dict(*attributes))
        for operator, read, made, *attributes in graph["nodes"]
    ]
    image = helper.make_tensor_value_info("x", 1, graph.get("image", ("n", 3, 16, 16)))
    output = helper.make_tensor_value_info(nodes[-1].output[0], 1, None)
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()]
    opsets = [helper.make_opsetid("", graph.get("opset", 21))]
    made = helper.make_graph(nodes, "made", [image], [output], tensors)
    return bytes(helper.make_model(made, opset_imports=opsets).SerializeToString())
