"""An ONNX graph with all its shapes, read without running it and without opening any other file.

Weights are dropped as soon as their shapes are known: what remains is small, whatever the CNN's size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from predictor.cnns.onnx_constants import FLOATS, MOST_NUMBERS, fold_constants
from predictor.errors import BackendUnavailableError, DataError, EpochcastError, OutOfRangeError, SchemaError

__all__ = ["Graph", "Node", "Value", "read_graph"]

_MOST_BYTES = 2**31 - 1  # what protobuf itself allows
_MOST_NODES = 100_000
_MOST_ROUNDS = 200  # a CNN that slices needs one round for each slice that follows another
_SYMBOLIC_BATCH = 2


@dataclass(eq=False, slots=True)
class Value:
    """What flows between nodes: a shape and, for small constants, the numbers."""

    name: str
    shape: tuple[int, ...] | None = None
    is_weight: bool = False
    constant: Any = None  # numpy array

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape or ())

    def is_contiguous(self) -> bool:
        """Say that a value lies in memory as it is read: ONNX knows no strides."""
        return True


@dataclass(eq=False, slots=True)
class Node:
    """One operator of the graph."""

    operator: str
    name: str
    inputs: list[Value | None]  # None where an optional input is left out
    outputs: list[Value]
    attributes: dict[str, Any]

    def number(self, index: int, attribute: str = "") -> Any:
        """Return a constant given as an input or, in older files, as an attribute; None if neither."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is not None and value.constant is not None:
            return value.constant.tolist()
        return self.attributes.get(attribute)


@dataclass(slots=True)
class Graph:
    """Nodes in the order in which they run, and the image that they read."""

    image: Value
    channels_last: bool
    nodes: list[Node] = field(default_factory=list)
    consumers: dict[int, list[Node]] = field(default_factory=dict)

    def only_consumer(self, value: Value) -> Node | None:
        """Return the node that reads a value, if it is read once."""
        found = self.consumers.get(id(value), [])
        return found[0] if len(found) == 1 else None


def read_graph(
    path: str | PathLike[str], image_size: int | None = None, content: bytes | None = None
) -> Graph:
    """Read a graph and infer its shapes; arguments and errors as of `predictor.cnns.onnx_file.from_onnx`."""
    if content is None:
        content = _content(Path(path))  # before onnx is asked for: a wrong path is the first thing to mend
    onnx = _onnx()
    model = _load(content, path, onnx)
    try:
        model = _inlined(model)
        image = _fix_image(model.graph, image_size, path)
        weights = _drop_weights(model.graph, onnx)
        return _linked(_with_shapes(model, path, onnx), image, weights, onnx)
    except EpochcastError:
        raise
    except Exception as error:  # whatever onnx stumbles over
        raise SchemaError(f"{path} is damaged: {_first_line(error)}.") from error


def _onnx() -> Any:
    try:
        import onnx
        import onnx.shape_inference
    except ImportError as error:
        raise BackendUnavailableError("onnx is not installed: pip install 'epochcast[onnx]'") from error
    return onnx


def _inlined(model: Any) -> Any:
    """Replace calls of the file's own functions by what they do."""
    if not model.functions:
        return model
    from onnx.inliner import inline_local_functions

    return inline_local_functions(model)


def _content(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise SchemaError(
                f"{path} has {size:,} bytes; at most {_MOST_BYTES:,} are read. Keep weights apart."
            )
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the ONNX file {path}: {error.strerror or error}.") from error


def _load(content: bytes, path: str | PathLike[str], onnx: Any) -> Any:
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own errors: whatever is no ONNX file
        raise SchemaError(f"{path} is no ONNX file, or is cut short: {_first_line(error)}.") from error
    if not model.graph.node:
        raise SchemaError(f"{path} is no ONNX file, or is empty: it has no operators.")
    if len(model.graph.node) > _MOST_NODES:
        raise SchemaError(
            f"{path} has {len(model.graph.node):,} operators; at most {_MOST_NODES:,} are read."
        )
    return model


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _fix_image(graph: Any, image_size: int | None, path: Any) -> str:
    """Give the graph's one image its batch and size where they are symbolic; return its name."""
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    images = [value for value in inputs if len(value.type.tensor_type.shape.dim) == 4]
    if len(images) != 1:
        raise SchemaError(f"{path} reads {len(images)} images (inputs of 4 dimensions); a CNN reads one.")
    dims = images[0].type.tensor_type.shape.dim
    if not dims[0].dim_value:
        dims[0].dim_value = _SYMBOLIC_BATCH
    for dim in dims[2:4] if not _is_channels_last(dims) else dims[1:3]:
        if not dim.dim_value and image_size is None:
            raise SchemaError(f"{path} takes images of any size: image_size is needed.")
        if not dim.dim_value:
            dim.dim_value = image_size
        elif image_size not in (None, dim.dim_value) and dim.dim_value > 1:
            raise OutOfRangeError(
                f"image_size {image_size}: {path} is for {dim.dim_value} pixels. Leave image_size out, or "
                "export with that size or with dynamic axes."
            )
    if not dims[1].dim_value:
        raise SchemaError(f"{path} does not say how many channels its images have.")
    del graph.value_info[:]  # sizes of the export, which may be another batch's
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    return str(images[0].name)


def _with_shapes(model: Any, path: Any, onnx: Any) -> Any:
    """Infer shapes and compute the constants that they depend on, in turns, until both stand still."""
    for _ in range(_MOST_ROUNDS):
        try:
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
            if not fold_constants(model.graph, onnx):
                return model.graph
        except Exception as error:
            raise SchemaError(f"{path}: its shapes cannot be inferred: {_first_line(error)}.") from error
    raise SchemaError(f"{path}: its shapes cannot be inferred in {_MOST_ROUNDS} rounds. Simplify the graph.")


def _is_channels_last(dims: Any) -> bool:
    channels = (1, 3, 4)
    return dims[3].dim_value in channels and dims[1].dim_value not in channels and dims[1].dim_value != 0


def _drop_weights(graph: Any, onnx: Any) -> dict[str, Value]:
    """Turn weights into inputs of their shape; small constants stay. What lies elsewhere is never opened."""
    values, kept = {}, []
    declared = {value.name for value in graph.input}
    for tensor in graph.initializer:
        shape = tuple(tensor.dims)
        value = Value(tensor.name, shape, is_weight=bool(shape) and tensor.data_type in FLOATS)
        values[tensor.name] = value
        count = 1
        for size in shape:
            count *= size
        if count <= MOST_NUMBERS and tensor.data_location != onnx.TensorProto.EXTERNAL:
            kept.append(tensor)
        elif tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return values


def _linked(graph: Any, image: str, values: dict[str, Value], onnx: Any) -> Graph:
    for tensor in graph.initializer:
        constant = values.setdefault(tensor.name, Value(tensor.name, tuple(tensor.dims)))
        constant.constant = onnx.numpy_helper.to_array(tensor)
    for info in (*graph.input, *graph.value_info, *graph.output):
        values.setdefault(info.name, Value(info.name)).shape = _shape(info)
    linked = Graph(values[image], _is_channels_last([_Dim(size) for size in values[image].shape or ()]))
    for number, proto in enumerate(graph.node):
        inputs = [values.setdefault(name, Value(name)) if name else None for name in proto.input]
        outputs = [values.setdefault(name, Value(name)) for name in proto.output if name]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        node = Node(proto.op_type, proto.name or f"{proto.op_type}_{number}", inputs, outputs, attributes)
        linked.nodes.append(node)
        for value in inputs:
            if value is not None:
                linked.consumers.setdefault(id(value), []).append(node)
    return linked


@dataclass(frozen=True, slots=True)
class _Dim:
    dim_value: int


def _shape(info: Any) -> tuple[int, ...] | None:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    known = all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    return tuple(dim.dim_value for dim in tensor.shape.dim) if known else None
