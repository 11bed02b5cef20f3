"""Small ONNX files of tests, from an image x to y."""

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["conv_file", "node", "onnx_file"]


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    """A node; names of inputs are apart by spaces."""
    return _helper().make_node(operator, inputs.split(), [output], **attributes)


def onnx_file(
    nodes: list[Any], weights: Iterable[Any] = (), image: tuple[Any, ...] = (1, 3, 8, 8), **options: Any
) -> bytes:
    """The bytes of a file of nodes and weights; `options` are those of the model."""
    helper = _helper()
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", image), ("y", None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], list(weights))
    return bytes(helper.make_model(graph, **options).SerializeToString())


def conv_file(image: tuple[Any, ...] = (1, 3, 8, 8), after: tuple[str, ...] = ()) -> bytes:
    """The file of a convolution of 216 parameters, and operators after it, one after the other."""
    names = ["x", *(f"v{i}" for i in range(len(after))), "y"]
    nodes = [node("Conv", "x w", names[1])]
    nodes += [node(name, *names[i : i + 2]) for i, name in enumerate(after, 1)]
    return onnx_file(nodes, [_helper().make_tensor("w", 1, [8, 3, 3, 3], [0.5] * 216)], image)


def _helper() -> Any:
    """The package's helper, or a skip where it is missing."""
    return pytest.importorskip("onnx").helper
