"""Layer tables of PROFET's Keras CNNs, as its project lists them.

What they leave out (pool sizes, activations inside a Keras layer) is taken from the scripts that built the CNNs,
PROFET's data_generation/workload/model_info.py and keras.applications, pools only where the table's shapes agree.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import SchemaError
from predictor.measurements.published.reader import (
    LayerTables,
    find_published,
    read_published,
    smallest_padding,
)

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


_SIDES = ("height", "width")
_DIMENSIONS = ("channels", *_SIDES)


def profet_layer_tables(folder: Path) -> LayerTables:
    """Layer tables of PROFET's CNNs, by ``profet/<cnn>`` and image size; empty if the file is missing."""
    path = find_published(folder, _LAYERS)
    if path is None:
        return {}
    tables: LayerTables = {}
    rows_by_cnn: Any = read_published(path, _LAYER_COLUMNS).groupby(["cnn", "image_size"], sort=False)
    for (cnn, size), frame in rows_by_cnn:
        rows, layers = frame.to_dict("records"), list[Layer]()
        for row in rows:
            layers += _layers_of(cnn, row, len(layers), last=row is rows[-1])
        if not any(layer.type in ("add", "concat", "multiply") for layer in layers):  # a chain
            layers = [replace(layer, inputs=(layer.index - 1 if layer.index else IMAGE,)) for layer in layers]
        name = f"profet/{cnn}"
        tables[name, int(size)] = LayerTable(name, int(size), tuple(layers), source="profet")
    return tables


def _layers_of(cnn: str, row: Mapping[Hashable, Any], index: int, *, last: bool) -> list[Layer]:
    """A row's layer, with what Keras runs inside it: the scale of a branch before, an activation behind."""
    name, type_ = str(row["name"]), str(row["type"])
    shape: dict[str, Any] = {
        f"{side}_{size}": int(row[f"{side}_{size}"]) for side in ("in", "out") for size in _DIMENSIONS
    }
    layers = []
    if cnn == "InceptionResNetV2" and type_ == "add":
        # keras.applications scales a branch by a constant inside the layer that adds it
        layers.append(Layer(index=index, name=f"{name}/scale", type="multiply", **shape))
    outputs: dict[str, Any] = {
        f"{side}_{size}": shape[f"out_{size}"] for side in ("in", "out") for size in _DIMENSIONS
    }
    kind = None
    if type_ == "activation":
        kind = "softmax" if last else "relu6" if cnn == "MobileNetV2" else "relu"
    layer = Layer(
        index=index + len(layers),
        name=name,
        type=type_,
        kind=kind,
        **(outputs if type_ == "concat" else shape),  # the published row of a concat gives its first input
        **_window(cnn, row),
        parameters=_trainable(row),
    )
    layers.append(layer)
    hides_relu = cnn in _RELU_INSIDE or (cnn, name) in _RELU_INSIDE_LAYER
    if type_ in ("conv2d", "linear") and (last or hides_relu):
        kind = "softmax" if last else "relu"
        layers.append(Layer(layer.index + 1, f"{name}/{kind}", "activation", kind, **outputs))
    return layers


def _window(cnn: str, row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """Kernel, stride, padding, dilation and groups, as far as the layer has them and they are known."""
    if row["type"] == "conv2d":
        kernel, stride = (int(row["kernel_height"]), int(row["kernel_width"])), int(row["stride"])
        return _padded(row, kernel, (stride, stride)) | {"dilation": 1, "groups": int(row["groups"])}
    if row["type"] == "avg_pool" and row["out_height"] == row["out_width"] == 1:
        map_size = (int(row["in_height"]), int(row["in_width"]))
        return _padded(row, map_size, map_size)
    if row["type"] == "avg_pool":
        return _pool(row, 3, 1)
    if row["type"] == "max_pool":
        return _pool(row, 3 if cnn in _POOLS_OF_3 else 2, 2)
    if row["type"] == "pad":  # unknown where one side gets more than the other (Keras pads MobileNet so)
        added = {side: int(row[f"out_{side}"] - row[f"in_{side}"]) for side in _SIDES}
        return {f"padding_{side}": more // 2 if more % 2 == 0 else None for side, more in added.items()}
    return {}


def _pool(row: Mapping[Hashable, Any], kernel: int, stride: int) -> dict[str, Any]:
    """Take the pool of the script that built the CNN, or nothing where the published shapes contradict it."""
    window = _padded(row, (kernel, kernel), (stride, stride))
    is_same = all(row[f"out_{side}"] == -(-row[f"in_{side}"] // stride) for side in _SIDES)
    return window if is_same or window["padding_height"] is not None else {}


def _padded(row: Mapping[Hashable, Any], kernel: tuple[int, int], stride: tuple[int, int]) -> dict[str, Any]:
    """A window with the padding that the row's sizes imply."""
    window: dict[str, Any] = {}
    for side, size, step in zip(_SIDES, kernel, stride, strict=True):
        padding = smallest_padding(int(row[f"in_{side}"]), int(row[f"out_{side}"]), size, step)
        window |= {f"kernel_{side}": size, f"stride_{side}": step, f"padding_{side}": padding}
    return window


def _trainable(row: Mapping[Hashable, Any]) -> int:
    """Trainable parameters: Keras counts a batch norm's two running statistics per channel as well."""
    parameters, channels = int(row["parameters"]), int(row["in_channels"])
    if row["type"] != "batch_norm":
        return parameters
    if parameters not in (3 * channels, 4 * channels):
        raise SchemaError(
            f"batch norm {row['name']!r} of {row['cnn']} has {row['parameters']} parameters for "
            f"{row['in_channels']} channels. Valid: 3 (no scale) or 4 per channel."
        )
    return parameters - 2 * channels
