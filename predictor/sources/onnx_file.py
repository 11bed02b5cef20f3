"""An ONNX file as a layer table: shapes inferred, nothing run, nothing else opened.

Called by `predictor.sources.resolve_cnn`; calls `onnx_graph` to read the file, `onnx_operators` to put its
operators into PyTorch's words, and `recorder` to make rows of them. A file exported for inference has its
batch norms folded into convolutions, up to a third of the training time: the table then carries a warning.
"""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from predictor.errors import EpochcastError, SchemaError
from predictor.layers import LayerTable
from predictor.sources.onnx_graph import Graph, Node, Value, read_graph
from predictor.sources.onnx_operators import CREATIONS, TRANSLATIONS, VIEWS
from predictor.sources.onnx_patterns import fused
from predictor.sources.recorder import Recorder

__all__ = ["INFERENCE_EXPORT", "TRAINING_EXPORT_HINT", "from_onnx"]

INFERENCE_EXPORT = "inference export"
"""The warning of a table whose file seems to have been exported for inference."""

TRAINING_EXPORT_HINT = (
    "export for training: torch.onnx.export(module.train(), image, path, "
    "training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, dynamo=False)"
)
"""What to do about it."""

_FOLDED = "onnx::Conv_"  # PyTorch's exporter so names what it computed; parameters keep their names
_NORMALIZATIONS = ("LayerNormalization", "GroupNormalization", "InstanceNormalization")


def from_onnx(
    path: str | PathLike[str], image_size: int | None = None, content: bytes | None = None
) -> LayerTable:
    """Layer table of the CNN in an ONNX file.

    Parameters
    ----------
    path : str or path
        The file; weights that it keeps in other files are not opened, their shapes are enough.
    image_size : int, optional
        Height and width of the images, in pixels; needed only where the file leaves them open.
    content : bytes, optional
        The file's bytes, where somebody has them already: `path` is then its name alone, and nothing is opened.

    Returns
    -------
    LayerTable
        With the warning `INFERENCE_EXPORT` where batch norms seem to be folded into convolutions; export for
        training then: ``torch.onnx.export(module.train(), image, path,
        training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, dynamo=False)``.

    Raises
    ------
    DataError
        If the file cannot be read.
    BackendUnavailableError
        If it can, but onnx is not installed.
    SchemaError
        If it is no ONNX file, is cut short or too large, or its shapes cannot be inferred.
    OutOfRangeError
        If it is for images of another size.
    """
    graph = read_graph(path, image_size, content)
    batch, *sizes = graph.image.shape or ()
    recorder = Recorder(batch)
    recorder.image(graph.image, -1 if graph.channels_last else 1)
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value.is_weight and not recorder.is_weights(value):
                recorder.parameter(value)
    try:
        _record(graph, recorder)
    except EpochcastError as error:
        raise type(error)(f"{path}: {error}") from error
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"{path} is damaged: {error!r} at {recorder.path[-1][0]!r}.") from error
    if not recorder.rows:
        raise SchemaError(f"{path} runs no operator on its image.")
    height = sizes[0] if graph.channels_last else sizes[1]
    size = recorder.rows[-1].out_height if height == 1 else height
    return LayerTable(
        Path(path).stem, size or height, tuple(recorder.rows), "onnx", _warnings(graph, recorder)
    )


def _record(graph: Graph, recorder: Recorder) -> None:
    done: set[int] = set()
    for node in graph.nodes:
        if id(node) in done or not node.outputs:
            continue
        recorder.path[:] = [(node.name, True)]
        whole = fused(graph, node, recorder)
        if whole is not None:
            operator, arguments, nodes = whole
            done |= {id(part) for part in nodes}
            _run(recorder, operator, arguments, nodes[-1].outputs, is_view=False)
        else:
            _record_alone(node, recorder)


def _record_alone(node: Node, recorder: Recorder) -> None:
    if node.operator in CREATIONS:
        random = "rand_like" if node.operator.startswith("Random") else "empty_like"
        recorder.record(random, {"inputs": node.inputs}, [_known(value) for value in node.outputs], False)
    elif node.operator in VIEWS or _selects(node):
        _run(recorder, "view", {"self": node.inputs[0]}, node.outputs, is_view=True)
    elif node.operator == "CastLike":
        _run(recorder, "CastLike", {"self": node.inputs[0]}, node.outputs, is_view=False)
    elif node.operator == "MatMul" and _multiplies_by_weights(node, recorder):
        _run(
            recorder, "linear", dict(zip(("input", "weight"), node.inputs, strict=True)), node.outputs, False
        )
    elif node.operator in TRANSLATIONS:
        operator, arguments = TRANSLATIONS[node.operator](node)
        view = operator in ("permute", "alias")
        _run(recorder, operator, arguments, node.outputs[:1], view)
    else:
        _run(recorder, node.operator, {"inputs": node.inputs}, node.outputs, is_view=False)


def _selects(node: Node) -> bool:
    """Whether a Gather takes one position of a dimension, which moves no number."""
    index = node.inputs[1] if node.operator == "Gather" else None
    return index is not None and index.constant is not None and index.ndim == 0


def _multiplies_by_weights(node: Node, recorder: Recorder) -> bool:
    return recorder.is_map(node.inputs[0]) and recorder.is_weights(node.inputs[1])


def _run(
    recorder: Recorder, operator: str, arguments: dict[str, Any], outputs: Iterable[Value], is_view: bool
) -> None:
    """Record an operator, provided that the shapes of all feature maps that it reads and writes are known."""
    outputs = list(outputs)
    if any(recorder.is_map(value) for value in _values(arguments.values())):
        for value in outputs[:1]:
            if value.shape is None:
                raise SchemaError(
                    f"the shape of {value.name!r} ({operator}) is unknown. Export with fixed sizes."
                )
    recorder.record(operator, arguments, [_known(value) for value in outputs], is_view)


def _values(arguments: Iterable[Any]) -> list[Value]:
    flat: list[Value] = []
    for value in arguments:
        if isinstance(value, Value):
            flat.append(value)
        elif isinstance(value, list):
            flat.extend(v for v in value if isinstance(v, Value))
    return flat


def _known(value: Value) -> Value:
    """Give a value of unknown shape none: it is no feature map, so nobody asks."""
    if value.shape is None:
        value.shape = ()
    return value


def _warnings(graph: Graph, recorder: Recorder) -> tuple[str, ...]:
    found = []
    if _is_inference_export(graph, recorder):
        found.append(INFERENCE_EXPORT)
    if recorder.unknown:
        found.append("operators of unknown cost: " + ", ".join(sorted(recorder.unknown)))
    return tuple(found)


def _is_inference_export(graph: Graph, recorder: Recorder) -> bool:
    """Whether batch norms seem to be folded away.

    Weights that PyTorch named after the operator say yes: they are no parameter's, but a product of two. A sign of
    training (a batch norm or dropout in training mode, a random operator) or another kind of normalization says no;
    ten convolutions, a quarter of them with a bias over a feature map, say yes.
    """
    convolutions = [node for node in graph.nodes if node.operator == "Conv"]
    if any(value and value.name.startswith(_FOLDED) for node in convolutions for value in node.inputs[1:]):
        return True
    if len(convolutions) < 10 or any(_trains(node) for node in graph.nodes):
        return False
    return 4 * sum(_has_bias(node, recorder) for node in convolutions) >= len(convolutions)


def _trains(node: Node) -> bool:
    if node.operator == "BatchNormalization":
        return bool(node.attributes.get("training_mode"))
    if node.operator == "Dropout":
        return bool(node.number(2))
    return node.operator in _NORMALIZATIONS or node.operator.startswith("Random")


def _has_bias(node: Node, recorder: Recorder) -> bool:
    """Whether a convolution over more than one pixel has a bias (squeeze-and-excitation's always do)."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    shape = node.outputs[0].shape or ()
    return recorder.is_weights(bias) and shape[2:] != (1, 1)
