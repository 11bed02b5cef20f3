"""An ONNX graph with all its shapes, read without running it and without opening any other file.

Weights are dropped as soon as their shapes are known: what remains is small, whatever the CNN's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

from predictor.errors import BackendUnavailableError, DataError, EpochcastError, OutOfRangeError, SchemaError

_MOST_BYTES = 2**31 - 1  # what protobuf itself allows
_MOST_NODES = 100_000
_MOST_ROUNDS = 200  # a CNN that slices needs one round for each slice that follows another
_MOST_NUMBERS = 1024  # in a constant that is kept: enough for shapes and bounds, too few for most weights
_MOST_DIMS = 4_096
"""Dimensions of a tensor, and numbers in a shape that the graph computes; CNNs have some tens."""

_MOST_DIMS_BESIDE = 2**18
"""Dimensions and numbers of all tensors together, beyond a tensor's first `_USUAL_DIMS`."""

_USUAL_DIMS = 64
_WHOLE = (6, 7)  # int32 and int64: constants whose numbers shape inference follows
_FLOATS = (1, 10, 11, 16)  # TensorProto's float, float16, double and bfloat16: what weights are made of
_SHAPELESS = ("GroupNormalization",)  # onnx infers no shape for these, whose output has that of their input
_OPEN_BATCH = 2  # batch size where the file leaves it open
_FUSED_RULES = "pkg.onnxscript.rewriter.rule_name"  # key of the rules by which PyTorch's exporter fused nodes


@dataclass(eq=False, slots=True)
class Value:
    """A tensor between nodes: its shape and, for small constants, its numbers."""

    name: str
    shape: tuple[int, ...] | None = None
    is_weight: bool = False
    constant: Any = None  # numpy array

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape or ())

    def is_contiguous(self) -> bool:
        """Return True: ONNX has no strides."""
        return True


@dataclass(eq=False, slots=True)
class Node:
    """One operator of the graph."""

    operator: str
    name: str
    inputs: list[Value | None]  # None where an optional input is left out
    outputs: list[Value]
    attributes: dict[str, Any]
    fused: str = ""  # rules by which the exporter has put other operators into this one

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
    open_batch: bool  # whether the file leaves the batch size open
    producer: str = ""  # as the file says
    shapes: dict[str, tuple[int, ...] | None] = field(default_factory=dict)  # of every value, by name
    nodes: list[Node] = field(default_factory=list)
    consumers: dict[int, list[Node]] = field(default_factory=dict)


def read_graph(
    path: str | PathLike[str],
    image_size: int | None = None,
    content: bytes | None = None,
    batch: int = _OPEN_BATCH,
) -> Graph:
    """Read a graph and infer its shapes; `batch` is the batch size where the file leaves it open.

    Errors and other arguments are those of `predictor.cnns.onnx_file.from_onnx`: SchemaError if the file is damaged.
    """
    if content is None:
        content = content_of(path)  # before onnx is imported: a wrong path is reported first
    try:
        import onnx
        import onnx.shape_inference
    except ImportError as error:
        raise BackendUnavailableError("onnx is not installed: pip install 'epochcast[onnx]'") from error
    model = _load(content, path, onnx)
    try:
        if model.functions:  # the file's own
            from onnx.inliner import inline_local_functions

            model = inline_local_functions(model)
        image, open_batch = _fix_image(model.graph, image_size, path, batch)
        weights = _drop_weights(model.graph, onnx)
        linked = _linked(_with_shapes(model, path, onnx), image, open_batch, weights, onnx)
        linked.producer = model.producer_name
        return linked
    except EpochcastError:
        raise
    except Exception as error:  # onnx raises many kinds for a damaged file
        raise SchemaError(f"{path} is damaged: {_first_line(error)}.") from error


def content_of(path: str | PathLike[str]) -> bytes:
    """Bytes of an ONNX file; DataError if it cannot be read, SchemaError if it is too large."""
    path = Path(path)
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
    except Exception as error:  # protobuf raises its own kinds
        raise SchemaError(f"{path} is not an ONNX file, or is cut short: {_first_line(error)}.") from error
    if not model.graph.node:
        raise SchemaError(f"{path} is not an ONNX file, or is empty: it has no operators.")
    if len(model.graph.node) > _MOST_NODES:
        n_nodes = len(model.graph.node)
        raise SchemaError(f"{path} has {n_nodes:,} operators; at most {_MOST_NODES:,} are read.")
    return model


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _fix_image(graph: Any, image_size: int | None, path: Any, batch: int) -> tuple[str, bool]:
    """Give the graph's one image its batch and size where they are symbolic; its name, and whether the batch was."""
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    images = [value for value in inputs if len(value.type.tensor_type.shape.dim) == 4]
    if len(images) != 1:
        raise SchemaError(f"{path} reads {len(images)} images (inputs of 4 dimensions); a CNN reads one.")
    dims = images[0].type.tensor_type.shape.dim
    open_batch = not dims[0].dim_value
    if open_batch:
        dims[0].dim_value = batch
    for dim in dims[2:4] if not _is_channels_last([dim.dim_value for dim in dims]) else dims[1:3]:
        if not dim.dim_value and image_size is None:
            raise SchemaError(f"{path} takes images of any size: image_size is needed.").about("image_size")
        if not dim.dim_value:
            dim.dim_value = image_size
        elif image_size not in (None, dim.dim_value) and dim.dim_value > 1:
            raise OutOfRangeError(
                f"image_size {image_size}: {path} is for {dim.dim_value} pixels. Leave image_size out, or "
                "export with that size or with dynamic axes."
            ).about("image_size")
    if not dims[1].dim_value:
        raise SchemaError(f"{path} does not say how many channels its images have.")
    del graph.value_info[:]  # sizes of the export, which may be another batch's
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    return str(images[0].name), open_batch


def _with_shapes(model: Any, path: Any, onnx: Any) -> Any:
    """Alternate shape inference and constant folding until neither changes."""
    for _ in range(_MOST_ROUNDS):
        _check_growth(model.graph, path)
        try:
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
            if not (_fold_constants(model, onnx) | _give_shapes(model.graph, onnx)):
                return model.graph
        except Exception as error:
            raise SchemaError(f"{path}: its shapes cannot be inferred: {_first_line(error)}.") from error
    raise SchemaError(f"{path}: its shapes cannot be inferred in {_MOST_ROUNDS} rounds. Simplify the graph.")


def _check_growth(graph: Any, path: Any) -> None:
    """Refuse shapes that grow beyond any CNN's, before onnx writes them out number by number.

    A file of 1 kB can double a shape thirty times, by joining it with itself or by indexing a tensor with itself.
    """
    ranks = {info.name: len(info.type.tensor_type.shape.dim) for info in (*graph.input, *graph.value_info)}
    values = {}
    for tensor in graph.initializer:
        ranks[tensor.name], values[tensor.name] = len(tensor.dims), _followed(tensor)
    beside = 0
    for node in _nodes_within(graph):
        rank, length = _growth(node, ranks, values)
        for name in node.output:
            rank = max(rank, ranks.get(name, 0))
            ranks[name], values[name] = rank, length
            beside += max(0, rank - _USUAL_DIMS) + max(0, length - _USUAL_DIMS)
        if max(rank, length) > _MOST_DIMS or beside > _MOST_DIMS_BESIDE:
            raise SchemaError(
                f"{path}: the shape of {node.output[0]!r} ({node.op_type}) has or is made of {max(rank, length):,} "
                f"numbers; at most {_MOST_DIMS:,} are read, and {_MOST_DIMS_BESIDE:,} of all tensors together. "
                "Simplify the graph."
            )


def _growth(node: Any, ranks: dict[str, int], values: dict[str, int]) -> tuple[int, int]:
    """Most dimensions of a node's result, and most numbers in it that shape inference follows (0: it follows none)."""
    of_inputs = [ranks.get(name, 1) for name in node.input if name]
    lengths = [values.get(name, 0) for name in node.input if name]
    rank, length = max(of_inputs, default=1), max(lengths, default=0)
    if node.op_type in ("Gather", "GatherND"):
        return sum(of_inputs), length
    if node.op_type == "Unsqueeze":
        axes = (len(attribute.ints) for attribute in node.attribute if attribute.name == "axes")
        return rank + next(axes, sum(lengths[1:])), length
    if node.op_type in ("Reshape", "Expand", "ConstantOfShape", "Tile"):
        return lengths[-1] if lengths and lengths[-1] else rank, 0
    if node.op_type == "Constant":
        tensors = [attribute.t for attribute in node.attribute if attribute.HasField("t")]
        dims = max((len(tensor.dims) for tensor in tensors), default=1)
        return dims, max(map(_followed, tensors), default=0)
    if node.op_type == "Shape":
        return 1, rank
    if node.op_type == "Concat":
        return rank, sum(lengths) if all(lengths) else 0
    return rank + (node.op_type in _ADD_A_DIMENSION), length if node.op_type in _FOLLOWED else 0


def _followed(tensor: Any) -> int:
    return prod(tensor.dims) if tensor.data_type in _WHOLE else 0


_FOLLOWED = ("Add", "Cast", "Mul", "Size", "Slice", "Squeeze", "Sub")
_ADD_A_DIMENSION = ("ConcatFromSequence", "Loop", "OneHot", "Scan")


def _nodes_within(graph: Any) -> Iterator[Any]:
    """Nodes of a graph in its order, those of its branches and loops before the node that holds them."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes_within(attribute.g)
        yield node


def _give_shapes(graph: Any, onnx: Any) -> bool:
    """Copy the input's shape to outputs of shape-preserving operators that onnx does not infer; True if any changed."""
    shapes = {info.name: info for info in (*graph.input, *graph.value_info)}
    inferred = [
        onnx.helper.make_tensor_value_info(node.output[0], source.type.tensor_type.elem_type, _shape(source))
        for node in graph.node
        if node.op_type in _SHAPELESS
        and node.output[0] not in shapes
        and (source := shapes.get(node.input[0])) is not None
        and _shape(source) is not None
    ]
    graph.value_info.extend(inferred)
    return bool(inferred)


def _is_channels_last(sizes: Sequence[int]) -> bool:
    """Whether an image of these sizes, 0 where unknown, has its channels last."""
    return sizes[3] in (1, 3, 4) and sizes[1] not in (0, 1, 3, 4)


def _drop_weights(graph: Any, onnx: Any) -> dict[str, Value]:
    """Replace weights by inputs of their shape; small constants stay. External data files are never opened."""
    values, kept = {}, []
    declared = {value.name for value in graph.input}
    for tensor in graph.initializer:
        shape = tuple(tensor.dims)
        value = Value(tensor.name, shape, is_weight=bool(shape) and tensor.data_type in _FLOATS)
        values[tensor.name] = value
        if prod(shape) <= _MOST_NUMBERS and tensor.data_location != onnx.TensorProto.EXTERNAL:
            kept.append(tensor)
        elif tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return values


def _fold_constants(model: Any, onnx: Any) -> bool:
    """Replace nodes whose result is a small constant by that constant, in place; return whether any was.

    Exporters write ``x[:, : x.shape[1] // 2]`` as half a dozen operators on the shape of x.
    """
    graph = model.graph
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if not tensor.dims or tensor.data_type not in _FLOATS  # the rest may be weights, which stay weights
    }
    shapes = {info.name: _shape(info) for info in (*graph.input, *graph.value_info, *graph.output)}
    opsets, left = {opset.domain: opset.version for opset in model.opset_import}, []
    for node in graph.node:
        value = _constant(node, constants, shapes, opsets, onnx)
        if value is None:
            left.append(node)
            continue
        constants[node.output[0]] = value
        graph.initializer.append(onnx.numpy_helper.from_array(value, node.output[0]))
    folded = len(left) < len(graph.node)
    del graph.node[:]
    graph.node.extend(left)
    return folded


def _constant(
    node: Any,
    constants: dict[str, Any],
    shapes: dict[str, tuple[int, ...] | None],
    opsets: dict[str, int],
    onnx: Any,
) -> Any:
    """Result of a node whose inputs, or whose input's shape, are known; None if it is large.

    Shape inference gives the result's size before it is computed.
    """
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    if len(node.output) != 1 or node.op_type.startswith("Random") or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Shape" and shapes.get(node.input[0]) is not None:
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        shape = shapes[node.input[0]][bounds.get("start", 0) : bounds.get("end")]  # type: ignore[index]
        return np.array(shape, np.int64)
    size = shapes.get(node.output[0])
    is_known = all(name in constants for name in node.input if name)
    if size is None or prod(size) > _MOST_NUMBERS or not is_known:
        return None
    if any(attribute.t.data_location == onnx.TensorProto.EXTERNAL for attribute in node.attribute):
        return None
    inputs, outputs = (
        [onnx.ValueInfoProto(name=name) for name in names if name] for names in (node.input, node.output)
    )
    graph = onnx.GraphProto(node=[node], input=inputs, output=outputs)
    try:
        numbers = {name: constants[name] for name in node.input if name}
        return np.asarray(ReferenceEvaluator(graph, opsets).run(None, numbers)[0])
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError):
        return None  # a damaged file: its shapes stay unknown, which is an error where they matter


def _linked(graph: Any, image: str, open_batch: bool, values: dict[str, Value], onnx: Any) -> Graph:
    for tensor in graph.initializer:
        constant = values.setdefault(tensor.name, Value(tensor.name, tuple(tensor.dims)))
        constant.constant = onnx.numpy_helper.to_array(tensor)
    for info in (*graph.input, *graph.output, *graph.value_info):
        values.setdefault(info.name, Value(info.name)).shape = _shape(info)
    linked = Graph(values[image], _is_channels_last(values[image].shape or ()), open_batch)
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    types |= {
        info.name: info.type.tensor_type.elem_type
        for info in (*graph.input, *graph.output, *graph.value_info)
    }
    for number, proto in enumerate(graph.node):
        inputs = [values.setdefault(name, Value(name)) if name else None for name in proto.input]
        to = next((attribute.i for attribute in proto.attribute if attribute.name == "to"), None)
        if proto.op_type == "Cast" and types.get(proto.input[0]) == to and inputs[0] is not None:
            values[proto.output[0]] = inputs[0]  # nothing is written
            continue
        outputs = [values.setdefault(name, Value(name)) for name in proto.output if name]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        fused = next((prop.value for prop in proto.metadata_props if prop.key == _FUSED_RULES), "")
        name = proto.name or f"{proto.op_type}_{number}"
        node = Node(proto.op_type, name, inputs, outputs, attributes, fused)
        linked.nodes.append(node)
        for value in inputs:
            if value is not None:
                linked.consumers.setdefault(id(value), []).append(node)
    linked.shapes = {name: value.shape for name, value in values.items()}
    return linked


def _shape(info: Any) -> tuple[int, ...] | None:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    is_fixed = all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    return tuple(dim.dim_value for dim in tensor.shape.dim) if is_fixed else None
