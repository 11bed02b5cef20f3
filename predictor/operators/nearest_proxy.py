"""Which proxy CNN each layer of a CNN counts as, and how much work it does: the founding study's counts of layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.proxies import proxy_name, proxy_table
from predictor.errors import OutOfRangeError, SchemaError
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.work import PASSES, layer_bytes, layer_flops

_FLOP_PER_BYTE = 200.0
"""FLOPs that count as a byte moved: of 0, 20, 60 and 200 the best where CNNs were left out of the H200's rows."""

_PRODUCTS = tuple(
    name for name, entry in OPERATOR_TYPES.items() if entry.is_convolution and entry.is_measured
)


class ProxyWork(NamedTuple):
    """Layers of a CNN that count as one proxy.

    `ratios` is the work of each layer relative to the proxy's; `flops` sums their operations for one image, in 10^9.
    """

    ratios: NDArray[np.float64]
    flops: float

    @property
    def n_layers(self) -> int:
        """How many layers count as the proxy."""
        return len(self.ratios)


@lru_cache(maxsize=512)
def proxy_work(table: LayerTable, proxies: tuple[str, ...]) -> dict[str, ProxyWork]:
    """Convolutions and linear layers of a CNN by their nearest proxy, in the order of `proxies`.

    OutOfRangeError if the CNN has neither; SchemaError if a part of a layer's shape is unknown.

    The nearest proxy is that of the same class (a grouped, a transposed or another convolution), then of the most
    similar kernel, then of the same stride, then of the most similar size: doublings of height, channels and filters. A
    linear layer counts as a convolution of one pixel. Work is FLOPs + 200 x bytes of one image's three passes.
    """
    shapes: dict[str, list[_Shape]] = {}
    for layer in _products(table):
        shape = _shape(layer)
        shapes.setdefault(_nearest(shape, proxies), []).append(shape)
    if not shapes:
        raise OutOfRangeError(
            f"{table.cnn} has no convolution and no linear layer to count as a proxy. "
            "Leave the method out: the default answers there."
        )
    return {
        name: ProxyWork(
            np.array([shape.work / _shape_of_proxy(name).work for shape in shapes[name]]),
            sum(shape.flops for shape in shapes[name]) / 1e9,
        )
        for name in proxies
        if name in shapes
    }


@lru_cache(maxsize=512)
def moved_bytes_per_image(table: LayerTable, elementwise: bool = False) -> float:
    """Bytes (10^9) that the three passes of layers read and write for one more image, in fp32.

    All layers count, or only those that are no product if `elementwise`.
    """
    layers = [layer for layer in table if not (elementwise and _is_product(layer))]
    return sum(layer_bytes(layer, p, 2) - layer_bytes(layer, p, 1) for layer in layers for p in PASSES) / 1e9


@lru_cache(maxsize=64)
def streaming_proxy(proxies: tuple[str, ...]) -> str:
    """The proxy with the fewest operations for a byte that it moves: its time says how fast memory is."""

    def flops_per_byte(name: str) -> float:
        table = proxy_table(name)
        return sum(layer_flops(layer, p, 1) for layer in table for p in PASSES) / moved_bytes_per_image(table)

    return min(proxies, key=flops_per_byte)


@lru_cache(maxsize=512)
def unlike_layers(table: LayerTable, proxies: tuple[str, ...]) -> tuple[int, int, tuple[str, ...]]:
    """Number of layers that count as a proxy of another shape, number of all products, and such layers in words.

    Words are ``SHAPE as PROXY``, most frequent first.
    """
    unlike: Counter[str] = Counter()
    layers = list(_products(table))
    for layer in layers:
        is_linear = layer.type == "linear"
        name = f"linear_{layer.in_channels}_{layer.out_channels}" if is_linear else proxy_name(layer)
        if name not in proxies:
            unlike[f"{name} as {_nearest(_shape(layer), proxies)}"] += 1
    return unlike.total(), len(layers), tuple(words for words, _ in unlike.most_common())


def _products(table: LayerTable) -> Iterator[Layer]:
    return filter(_is_product, table)


def _is_product(layer: Layer) -> bool:
    return layer.type in _PRODUCTS or layer.type == "linear"


class _Shape(NamedTuple):
    height: float
    inputs: float
    outputs: float
    kernel: float
    stride: int
    kind: str
    work: float
    flops: float


def _shape(layer: Layer) -> _Shape:
    try:
        flops = sum(layer_flops(layer, pass_, 1) for pass_ in PASSES)
        moved = sum(layer_bytes(layer, pass_, 2) - layer_bytes(layer, pass_, 1) for pass_ in PASSES)
        work = flops + _FLOP_PER_BYTE * moved
        if layer.type == "linear":
            sides = float(layer.in_channels or 1), float(layer.out_channels or 1)
            return _Shape(1.0, *sides, 1.0, 1, "plain", work, flops)
        of_layer = (layer.in_height, layer.in_width, layer.in_channels, layer.out_channels)
        height, width, inputs, outputs = (float(side) for side in of_layer if side is not None)
        kernel = float((layer.kernel_height or 0) * (layer.kernel_width or 0))
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"layer {layer.index} {layer.name!r} lacks a part of its shape, so that it counts as no proxy ({error}). "
            "Complete the layer table."
        ) from error
    kind = "grouped" if (layer.groups or 1) > 1 else "plain"
    kind = "transposed" if layer.type == "conv_transpose2d" else kind
    side = (height * width) ** 0.5
    return _Shape(side, inputs, outputs, kernel, layer.stride_height or 1, kind, work, flops)


@lru_cache(maxsize=4096)
def _nearest(shape: _Shape, proxies: tuple[str, ...]) -> str:
    def distance(name: str) -> tuple[bool, float, bool, float]:
        proxy = _shape_of_proxy(name)
        sizes = zip(shape[:3], proxy[:3], strict=True)
        return (
            shape.kind != proxy.kind,
            abs(np.log(shape.kernel / proxy.kernel)),
            shape.stride != proxy.stride,
            sum(abs(float(np.log2(size / proxy_size))) for size, proxy_size in sizes),
        )

    return min(proxies, key=distance)


@lru_cache(maxsize=256)
def _shape_of_proxy(name: str) -> _Shape:
    return _shape(next(layer for layer in proxy_table(name) if layer.type in _PRODUCTS))
