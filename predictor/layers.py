"""One layer of a CNN, and the layer table: the form in which every predictor sees a CNN.

Written by `predictor.zoo` and `predictor.sources`; read by work, memory and features. Calls nothing of ours
but the error tree.
"""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["ACTIVATION_KINDS", "IMAGE", "LAYER_TYPES", "Layer", "LayerTable"]

LAYER_TYPES = (
    "conv2d",
    "conv_transpose2d",
    "linear",
    "batch_norm",
    "layer_norm",
    "activation",
    "max_pool",
    "avg_pool",
    "add",
    "multiply",
    "concat",
    "dropout",
    "stochastic_depth",
    "permute",
    "pad",
    "flatten",
    "other",
)

ACTIVATION_KINDS = (
    "relu",
    "relu6",
    "leaky_relu",
    "silu",
    "gelu",
    "hardswish",
    "hardsigmoid",
    "sigmoid",
    "tanh",
    "softmax",
)

IMAGE = -1
"""Index that stands for the CNN's own input in `Layer.inputs`."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator of a CNN at one image size. Shapes are per image; None means unknown.

    `parameters` counts trainable numbers. A dense layer on a flat vector has height and width 1. An adaptive or
    global pooling is written as the pooling with kernel ceil(in / out) and stride floor(in / out) that it does.
    """

    index: int
    name: str
    type: str
    kind: str | None = None
    inputs: tuple[int, ...] | None = None
    in_channels: int | None = None
    in_height: int | None = None
    in_width: int | None = None
    out_channels: int | None = None
    out_height: int | None = None
    out_width: int | None = None
    kernel_height: int | None = None
    kernel_width: int | None = None
    stride_height: int | None = None
    stride_width: int | None = None
    padding_height: int | None = None
    padding_width: int | None = None
    dilation: int | None = None
    groups: int | None = None
    parameters: int = 0


@dataclass(frozen=True, slots=True)
class LayerTable:
    """The layers of one CNN at one image size, in the order in which they run.

    `source` names where it came from (zoo, python, csv, onnx, torch, chainer, or a published data set);
    `warnings` are reasons why an answer about it extrapolates, such as ``inference export``.
    """

    cnn: str
    image_size: int
    layers: tuple[Layer, ...]
    source: str = "zoo"
    warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def parameters(self) -> int:
        """Trainable parameters of the whole CNN."""
        return sum(layer.parameters for layer in self.layers)
