"""Layer tables of PROFET's Keras CNNs, as its project lists them.

What they leave out (pool sizes, activations inside a Keras layer) is taken from the scripts that built the CNNs,
PROFET's data_generation/workload/model_info.py and keras.applications, pools only where the table's shapes agree.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import SchemaError
from predictor.measurements.published.convolutions import smallest_padding
from predictor.measurements.published.reader import LayerTables, find_published, read_published

_LAYERS = "profet_cnn_layers.csv.gz"
_LAYER_COLUMNS = (
    "cnn", "image_size", "index", "name", "type", "in_channels", "in_height", "in_width", "out_channels",
    "out_height", "out_width", "kernel_height", "kernel_width", "stride", "groups", "parameters",
)  # fmt: skip
# Keras layers with activation="relu" hide a ReLU that the published tables do not list.
_RELU_INSIDE = ("LeNet5", "MNIST_CNN", "VGG11", "VGG16", "VGG19")
_RELU_INSIDE_LAYER = {("ResNetSmall", "conv1")}
# Max pools have kernel 2 in the sequential CNNs, 3 in these; the stride is always 2.
_POOLS_OF_3 = ("ResNetSmall", "ResNet18", "ResNet50", "InceptionResNetV2")


def profet_layer_tables(folder: Path) -> LayerTables:
    """Layer tables of PROFET's CNNs, by ``profet/<cnn>`` and image size; empty if their file is not there."""
    path = find_published(folder, _LAYERS)
    if path is None:
        return {}
    table = read_published(path, _LAYER_COLUMNS)
    cnns: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in table.to_dict("records"):
        cnns.setdefault((str(row["cnn"]), int(row["image_size"])), []).append(
            {str(k): v for k, v in row.items()}
        )
    return {(f"profet/{cnn}", size): _layer_table(cnn, size, rows) for (cnn, size), rows in cnns.items()}


def _layer_table(cnn: str, image_size: int, rows: list[dict[str, Any]]) -> LayerTable:
    layers: list[Layer] = []
    for row in rows:
        layers += _layers_of(cnn, row, len(layers), last=row is rows[-1])
    if not any(layer.type in ("add", "concat", "multiply") for layer in layers):
        layers = [_with_input(layer) for layer in layers]
    return LayerTable(cnn=f"profet/{cnn}", image_size=image_size, layers=tuple(layers), source="profet")


def _with_input(layer: Layer) -> Layer:
    return replace(layer, inputs=(layer.index - 1 if layer.index else IMAGE,))


def _layers_of(cnn: str, row: dict[str, Any], index: int, *, last: bool) -> list[Layer]:
    before = [_scale_of_branch(row, index)] if cnn == "InceptionResNetV2" and row["type"] == "add" else []
    layer = _layer(cnn, row, index + len(before), last=last)
    inside = _activation_inside(cnn, row, last=last)
    after = [_activation_after(layer, inside)] if inside else []
    return [*before, layer, *after]


def _layer(cnn: str, row: dict[str, Any], index: int, *, last: bool) -> Layer:
    shape = _shape(row)
    if row["type"] == "concat":  # the published row gives its first input; ours gives the whole
        shape |= {
            f"in_{dimension}": shape[f"out_{dimension}"] for dimension in ("channels", "height", "width")
        }
    return Layer(
        index=index,
        name=str(row["name"]),
        type=str(row["type"]),
        kind=_activation_kind(cnn, last=last) if row["type"] == "activation" else None,
        **shape,
        **_window(cnn, row),
        parameters=_trainable(row),
    )


def _shape(row: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{side}_{dimension}": int(row[f"{side}_{dimension}"])
        for side in ("in", "out")
        for dimension in _PARTS
    }


_PARTS = ("channels", "height", "width")


def _window(cnn: str, row: dict[str, Any]) -> dict[str, Any]:
    """Kernel, stride, padding, dilation and groups, as far as the layer has them and they are known."""
    if row["type"] == "conv2d":
        kernel, stride = (int(row["kernel_height"]), int(row["kernel_width"])), int(row["stride"])
        return _checked_window(row, kernel, (stride, stride)) | {"dilation": 1, "groups": int(row["groups"])}
    if row["type"] == "avg_pool" and row["out_height"] == row["out_width"] == 1:
        map_size = (int(row["in_height"]), int(row["in_width"]))
        return _checked_window(row, map_size, map_size)
    if row["type"] == "avg_pool":
        return _pool(row, 3, 1)
    if row["type"] == "max_pool":
        return _pool(row, 3 if cnn in _POOLS_OF_3 else 2, 2)
    if row["type"] == "pad":
        return _pad(row)
    return {}


def _pool(row: dict[str, Any], kernel: int, stride: int) -> dict[str, Any]:
    """Take the pool of the script that built the CNN, or nothing where the published shapes contradict it."""
    window = _checked_window(row, (kernel, kernel), (stride, stride))
    same = all(
        row[f"out_{dimension}"] == -(-row[f"in_{dimension}"] // stride) for dimension in ("height", "width")
    )
    return window if same or window["padding_height"] is not None else {}


def _checked_window(row: dict[str, Any], kernel: tuple[int, int], stride: tuple[int, int]) -> dict[str, Any]:
    height = smallest_padding(int(row["in_height"]), int(row["out_height"]), kernel[0], stride[0])
    width = smallest_padding(int(row["in_width"]), int(row["out_width"]), kernel[1], stride[1])
    return {
        "kernel_height": kernel[0],
        "kernel_width": kernel[1],
        "stride_height": stride[0],
        "stride_width": stride[1],
        "padding_height": height,
        "padding_width": width,
    }


def _pad(row: dict[str, Any]) -> dict[str, Any]:
    """Amount per side; unknown where one side gets more than the other (Keras pads MobileNet so)."""
    added = {
        dimension: int(row[f"out_{dimension}"] - row[f"in_{dimension}"]) for dimension in ("height", "width")
    }
    return {f"padding_{dimension}": more // 2 if more % 2 == 0 else None for dimension, more in added.items()}


def _trainable(row: dict[str, Any]) -> int:
    """Trainable parameters: Keras counts a batch norm's two running statistics per channel as well."""
    if row["type"] != "batch_norm":
        return int(row["parameters"])
    trainable = int(row["parameters"]) - 2 * int(row["in_channels"])
    if trainable not in (int(row["in_channels"]), 2 * int(row["in_channels"])):
        raise SchemaError(
            f"batch norm {row['name']!r} of {row['cnn']} has {row['parameters']} parameters for "
            f"{row['in_channels']} channels. Valid: 3 (no scale) or 4 per channel."
        )
    return trainable


def _activation_kind(cnn: str, *, last: bool) -> str:
    if last:
        return "softmax"
    return "relu6" if cnn == "MobileNetV2" else "relu"


def _activation_inside(cnn: str, row: dict[str, Any], *, last: bool) -> str | None:
    if row["type"] not in ("conv2d", "linear"):
        return None
    if last:
        return "softmax"
    return "relu" if cnn in _RELU_INSIDE or (cnn, row["name"]) in _RELU_INSIDE_LAYER else None


def _activation_after(layer: Layer, kind: str) -> Layer:
    shape = {
        f"{side}_{dimension}": getattr(layer, f"out_{dimension}")
        for side in ("in", "out")
        for dimension in _PARTS
    }
    return Layer(index=layer.index + 1, name=f"{layer.name}/{kind}", type="activation", kind=kind, **shape)


def _scale_of_branch(row: dict[str, Any], index: int) -> Layer:
    """keras.applications scales an Inception-ResNet branch by a constant inside the layer that adds it."""
    return Layer(index=index, name=f"{row['name']}/scale", type="multiply", **_shape(row))
