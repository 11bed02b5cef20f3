"""Reads an ONNX file into a layer table: nodes, attributes, and the patterns that exporters write."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from os import PathLike
from pathlib import Path
from typing import Any

from predictor.cnns.layer_table import LayerTable, TableWarning
from predictor.cnns.onnx_graph import Graph, Node, content_of, read_graph
from predictor.cnns.recorder import Recorder, tensors_of
from predictor.errors import EpochcastError, SchemaError
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES

Shapes = dict[str, tuple[int, ...] | None]
"""Shapes of all values at another batch size, by name."""

Translation = tuple[str, dict[str, Any]]
"""PyTorch's operator and its arguments by name."""

CREATIONS = {"ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike", "Shape", "Size"}
"""Operators that read only the shape of a value."""

VIEWS = {"Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze"}
"""Operators that move no data."""


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
    """Padding on one side; where both sides differ, half of both, rounded up."""
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


def _plain(operator: str, weights: bool) -> Callable[[Node], Translation]:
    """Translate to `operator` with all inputs; of a layer with weights the first three, others are not trained."""
    return lambda node: (operator, {"inputs": node.inputs[: 3 if weights else None]})


def _first(operator: str) -> Callable[[Node], Translation]:
    """Translate to `operator` with the first input: the others are numbers that are not trained."""
    return lambda node: (operator, _tensors(node, "self"))


def _resize(node: Node) -> Translation:
    """Nearest by default; linear along as many dimensions as the map has, cubic, or over widening windows."""
    mode, source = bytes(node.attributes.get("mode", b"nearest")).decode(), node.inputs[0]
    linear = {3: "upsample_linear1d", 5: "upsample_trilinear3d"}.get(source.ndim if source else 4)
    operators = {
        "nearest": "upsample_nearest2d",
        "cubic": "upsample_bicubic2d",
        "linear": linear or "upsample_bilinear2d",
    }
    if node.attributes.get("antialias"):
        return "_upsample_bilinear2d_aa", _tensors(node, "self")
    return operators.get(mode, operators["linear"]), _tensors(node, "self")


def _two(operator: str) -> Callable[[Node], Translation]:
    """Translate to `operator` with two factors."""
    return lambda node: (operator, _tensors(node, "self", "other"))


def _reduction(operator: str) -> Callable[[Node], Translation]:
    return lambda node: (operator, {**_tensors(node, "self"), "dim": node.number(1, "axes")})


def _dropout(node: Node) -> Translation:
    """Count a dropout as running even in an inference export, since training runs it."""
    ratio = node.number(1, "ratio")
    return "dropout", {**_tensors(node, "input"), "p": 0.5 if ratio is None else ratio}


def _pad(node: Node) -> Translation:
    pads = node.number(1, "pads") or node.attributes.get("paddings")
    operator = "alias" if pads is not None and not any(pads) else "constant_pad_nd"
    return operator, _tensors(node, "self")


def _transpose(node: Node) -> Translation:
    source = node.inputs[0]
    dims = node.attributes.get("perm") or list(reversed(range(source.ndim if source else 0)))
    return "permute", {**_tensors(node, "self"), "dims": list(dims)}


TRANSLATIONS: dict[str, Callable[[Node], Translation]] = {
    **{
        name: _plain(entry.torch[0], entry.weights is not None)
        for entry in OPERATOR_TYPES.values()
        for name in entry.onnx
    },
    **{name: _first(entry.torch[0]) for entry in ACTIVATIONS.values() for name in entry.onnx},
    **dict.fromkeys(OPERATOR_TYPES["upsample_nearest"].onnx, _resize),
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "Clip": lambda node: (
        "clamp",
        {**_tensors(node, "self"), "min": node.number(1, "min"), "max": node.number(2, "max")},
    ),
    "MaxPool": _pool("max_pool2d"),
    "AveragePool": _pool("avg_pool2d"),
    "GlobalAveragePool": _first("adaptive_avg_pool2d"),
    "GlobalMaxPool": _first("adaptive_max_pool2d"),
    "ReduceMean": _reduction("mean"),
    "ReduceSum": _reduction("sum"),
    "ReduceMax": _reduction("amax"),
    "ReduceMin": _reduction("amin"),
    "Mul": _two("mul"),
    "MatMul": _two("matmul"),
    "Dropout": _dropout,
    "Pad": _pad,
    **{
        name: _plain(operator, True)
        for name, operator in (("LSTM", "lstm"), ("GRU", "gru"), ("RNN", "rnn_tanh"))
    },
    "Transpose": _transpose,
}


Fused = tuple[str, dict[str, Any], list[Node]]
"""PyTorch's operator, its arguments, and the nodes that it replaces; the last one writes its result."""


def fused(graph: Graph, node: Node, recorder: Recorder) -> Fused | None:
    """Operator that an exporter wrote as several nodes from `node` on; None if there is none."""
    if not node.inputs or not recorder.is_map(node.inputs[0]):
        return None
    match = _MATCHES.get(node.operator)
    return match(graph, node, recorder) if match else None


def _chain(graph: Graph, node: Node, *operators: str) -> list[Node] | None:
    """The node and those behind it, each the only reader of the one before; None if their operators are others."""
    nodes = [node]
    for operator in operators:
        readers = graph.consumers.get(id(nodes[-1].outputs[0]), [])
        if [reader.operator for reader in readers] != [operator]:
            return None
        nodes += readers
    return nodes


def _gated(graph: Graph, node: Node, _recorder: Recorder) -> Fused | None:
    """Match x -> sigmoid -> times x, and x -> softplus -> tanh -> times x."""
    operators = ("Tanh", "Mul") if node.operator == "Softplus" else ("Mul",)
    nodes = _chain(graph, node, *operators)
    if nodes is None or node.inputs[0] not in nodes[-1].inputs:
        return None
    operator = {"Sigmoid": "silu", "HardSigmoid": "hardswish", "Softplus": "mish"}[node.operator]
    return operator, {"self": node.inputs[0]}, nodes


def _gelu(graph: Graph, node: Node, _recorder: Recorder) -> Fused | None:
    """Match x / sqrt 2 -> erf -> + 1 -> times x -> times 1/2, the halving before or after."""
    x = node.inputs[0]
    parts = _chain(graph, node, "Erf", "Add", "Mul") if _with_constant(node) else None
    if parts is None:
        return None
    factors = [value for value in parts[-1].inputs if value is not parts[-2].outputs[0]]
    if factors == [x]:
        halved = _chain(graph, parts[-1], "Mul")
        return ("gelu", {"self": x}, parts + halved[1:]) if halved and _with_constant(halved[1]) else None
    half = [n for n in graph.consumers.get(id(x), []) if n.outputs[:1] == factors and _with_constant(n)]
    return ("gelu", {"self": x}, [*half, *parts]) if half else None


def _with_constant(node: Node) -> bool:
    return any(value is not None and value.constant is not None for value in node.inputs)


def _dense(graph: Graph, node: Node, recorder: Recorder) -> Fused | None:
    """Match a product with weights -> plus a bias."""
    weight, nodes = node.inputs[1], _chain(graph, node, "Add")
    if nodes is None or weight is None or not weight.shape or weight.ndim != 2:
        return None
    bias, *more = [value for value in nodes[1].inputs if value is not node.outputs[0]] or [None]
    if more or bias is None or bias.shape != weight.shape[1:] or not recorder.is_weights(bias):
        return None
    return "linear", {"input": node.inputs[0], "weight": weight, "bias": bias}, nodes


_MATCHES: dict[str, Callable[[Graph, Node, Recorder], Fused | None]] = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softplus"), _gated),
    "Div": _gelu,
    "MatMul": _dense,
}


INFERENCE_EXPORT = TableWarning(
    "cnn",
    "inference export, batch norms are missing; export for training: torch.onnx.export(module.train(), image, path, "
    "training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, dynamo=False)",
)
"""Warning for a file that seems to be an inference export, with the remedy."""

FUSED_EXPORT = TableWarning(
    "cnn",
    "the exporter has folded batch norms into convolutions; export without that: "
    "torch.onnx.export(module.train(), (image,), path, optimize=False)",
)
"""Warning for a file whose metadata record the folding: PyTorch's default exporter folds even for training."""

KERAS_EXPORT = TableWarning(
    "cnn",
    "Keras exports for inference: batch norms, if it has any, are folded without a trace or in pieces; give the file "
    "of model.save('mine.keras') instead",
)
"""Warning for a file that Keras wrote without batch norms, also where the network has none."""

_KERAS_PRODUCERS, _KERAS_INPUT = ("tf2onnx", "keras"), "keras_tensor"
_FUSED_BATCH_NORM = "FuseBatchNorm"
_FOLDED = "onnx::Conv_"  # PyTorch's exporter gives this name to computed weights; parameters keep theirs
_NORMALIZATIONS = ("LayerNormalization", "GroupNormalization", "InstanceNormalization")


def from_onnx(
    path: str | PathLike[str], image_size: int | None = None, content: bytes | None = None
) -> LayerTable:
    """Layer table of the CNN in an ONNX file.

    `path`: the file; weights that it keeps in other files are not opened, their shapes are enough. `image_size`: height
    and width of the images, in pixels; needed only where the file leaves them open. `content`: bytes of the file, if
    already read: `path` is then only its name, and no file is opened. Gives its layers with the warning `FUSED_EXPORT`
    if the exporter recorded that it folded batch norms into convolutions, `KERAS_EXPORT` if Keras wrote it without any,
    or `INFERENCE_EXPORT` if folding is likely; each includes the remedy. DataError if the file cannot be read;
    BackendUnavailableError if it can, but onnx is not installed; SchemaError if it is no ONNX file, is cut short or too
    large, or its shapes cannot be inferred; OutOfRangeError if it is for images of another size.
    """
    content = content_of(path) if content is None else content
    graph = read_graph(path, image_size, content)
    batch, *sizes = graph.image.shape or ()
    larger = read_graph(path, image_size, content, batch + 1) if graph.open_batch else None
    recorder = Recorder(batch, batch + 1 if larger else None, either_layout=graph.channels_last)
    recorder.image(graph.image, -1 if graph.channels_last else 1)
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value.is_weight and not recorder.is_weights(value):
                recorder.parameter(value)
    try:
        _record(graph, recorder, larger.shapes if larger else None)
    except EpochcastError as error:
        raise type(error)(f"{path}, {recorder.path[-1][0]!r}: {error}") from error
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"{path} is damaged: {error!r} at {recorder.path[-1][0]!r}.") from error
    if not recorder.rows:
        raise SchemaError(f"{path} runs no operator on its image.")
    height = sizes[0] if graph.channels_last else sizes[1]
    size = recorder.rows[-1].out_height if height == 1 else height
    rows = tuple(recorder.rows)
    return LayerTable(Path(path).stem, size or height, rows, "onnx", _warnings(graph, recorder))


def _record(graph: Graph, recorder: Recorder, other_shapes: Shapes | None) -> None:
    """Record all nodes; SchemaError if one reads a feature map and the shape of its result is unknown."""
    done: set[int] = set()
    for node in graph.nodes:
        if id(node) in done or not node.outputs:
            continue
        recorder.path[:] = [(node.name, True)]
        operator, arguments, nodes = fused(graph, node, recorder) or (*_translated(node, recorder), [node])
        done |= set(map(id, nodes))
        outputs = nodes[-1].outputs[: 1 if nodes[-1].operator in TRANSLATIONS else None]
        reads_map = any(map(recorder.is_map, tensors_of(arguments.values())))
        if reads_map and outputs[0].shape is None and node.operator not in CREATIONS:
            name = outputs[0].name
            raise SchemaError(f"the shape of {name!r} ({operator}) is unknown. Export with fixed sizes.")
        for value in outputs:
            value.shape = value.shape or ()  # unknown only of what is no feature map, whose shape is not used
        shapes = None if other_shapes is None else [other_shapes.get(value.name) for value in outputs]
        recorder.record(operator, arguments, outputs, operator in ("view", "permute", "alias"), shapes)


def _translated(node: Node, recorder: Recorder) -> Translation:
    index = node.inputs[1] if node.operator == "Gather" else None
    takes_one_position = index is not None and index.constant is not None and index.ndim == 0
    if node.operator in CREATIONS:
        return "rand_like" if node.operator.startswith("Random") else "empty_like", {"inputs": node.inputs}
    if node.operator in VIEWS or takes_one_position:
        return "view", {"self": node.inputs[0]}
    if node.operator == "CastLike":
        return "CastLike", {"self": node.inputs[0]}
    factors = node.inputs if node.operator == "MatMul" else ()
    if factors and recorder.is_map(factors[0]) and recorder.is_weights(factors[1]):
        return "linear", _tensors(node, "input", "weight")
    translate = TRANSLATIONS.get(node.operator)
    return translate(node) if translate else (node.operator, {"inputs": node.inputs})


def _warnings(graph: Graph, recorder: Recorder) -> tuple[TableWarning, ...]:
    # Keras wrote the file, by its producer or its name for an input, and no convolution has a norm behind.
    by_keras = graph.producer.casefold() in _KERAS_PRODUCERS or graph.image.name.startswith(_KERAS_INPUT)
    operators = {node.operator for node in graph.nodes}
    if by_keras and "Conv" in operators and not {"BatchNormalization", *_NORMALIZATIONS} & operators:
        return KERAS_EXPORT, *recorder.warnings()
    if any(_FUSED_BATCH_NORM in node.fused for node in graph.nodes):
        return FUSED_EXPORT, *recorder.warnings()
    if _is_inference_export(graph, recorder):
        return INFERENCE_EXPORT, *recorder.warnings()
    return tuple(recorder.warnings())


def _is_inference_export(graph: Graph, recorder: Recorder) -> bool:
    """Whether batch norms were probably folded into convolutions.

    Yes if weights have names that PyTorch gives to computed products. No with a sign of training (a batch norm or
    dropout in training mode, a random operator) or another kind of normalization. Else yes with ten or more
    convolutions, a quarter of them with a bias over more than one pixel (squeeze-and-excitation's always have one).
    """
    convolutions = [node for node in graph.nodes if node.operator == "Conv"]
    if any(value and value.name.startswith(_FOLDED) for node in convolutions for value in node.inputs[1:]):
        return True
    if len(convolutions) < 10 or any(_trains(node) for node in graph.nodes):
        return False
    over_maps = [node for node in convolutions if (node.outputs[0].shape or ())[2:] != (1, 1)]
    biases = sum(any(map(recorder.is_weights, node.inputs[2:3])) for node in over_maps)
    return 4 * biases >= len(convolutions)


def _trains(node: Node) -> bool:
    if node.operator == "BatchNormalization":
        return bool(node.attributes.get("training_mode"))
    if node.operator == "Dropout":
        return bool(node.number(2))
    return node.operator in _NORMALIZATIONS or node.operator.startswith("Random")
