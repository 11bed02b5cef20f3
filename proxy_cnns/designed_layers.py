"""The designed operators besides convolutions: ladders of sizes, for what mostly waits for memory.

Such an operator's time follows its bytes, so a ladder over the numbers in a map and a few divisions of them
into channels and positions are enough.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from predictor.operators.operators import Operator
from proxy_cnns.operator_shapes import adaptive_pool, linear, optimizer, pool, same_shape
from proxy_cnns.spread import Draw, draws

__all__ = ["LAYER_FAMILIES", "layers"]

_MOST_NUMBERS = 20_000_000  # of a map of one image

Make = Callable[[Draw], Operator]


def _size(draw: Draw, low: int = 4, high: int = 240) -> tuple[int, int]:
    """Channels and side of a map."""
    side = draw.side(low, high)
    return draw.channels(min(7500, draw.between(350, 60_000) / side)), side


def _plain(draw: Draw, type_: str, low: int = 4, high: int = 240, wide: float = 0.0, **more: Any) -> Operator:
    channels, side = _size(draw, low, high)
    return same_shape(type_, channels, side, wide_input=draw.happens(wide), **more)


def _shuffle(draw: Draw) -> Operator:
    """A channel shuffle of two groups; a mere change of layout moves nothing."""
    channels, side = _size(draw, 7, 64)
    return same_shape("permute", channels + channels % 2, side, groups=2)


def _small_map(draw: Draw, type_: str, even: bool = False, **more: Any) -> Operator:
    """On the last maps of a CNN for images of 32 pixels: one to six positions a side."""
    side = draw.side(1, 6)
    channels = draw.channels(draw.between(300, 3000) / side)
    return same_shape(type_, channels + channels % 2 * even, side, **more)


def _vector(draw: Draw, type_: str, low: float, high: float, **more: Any) -> Operator:
    return same_shape(type_, draw.channels(draw.between(low, high)), 1, **more)


def _activation(kind: str, in_place: bool = False, vectors: float = 0.0) -> Make:
    def make(draw: Draw) -> Operator:
        more: dict[str, Any] = {"kind": kind, "in_place": in_place}
        if draw.happens(vectors):
            return _vector(draw, "activation", 3, 7000, **more)
        return _plain(draw, "activation", **more)

    return make


def _small(draw: Draw, kind: str) -> Operator:
    """Activation of a small CNN's map, as of LeNet-5."""
    channels = draw.channels(draw.between(4, 256))
    return same_shape("activation", channels, draw.side(1, 64), kind=kind)


def _layer_scale(draw: Draw) -> Operator:
    channels, side = draw.channels(draw.between(64, 1600)), draw.side(7, 60)
    return same_shape("multiply", channels, side, parameters=channels)


def _concat(draw: Draw) -> Operator:
    """Tensors of one width each, as dense blocks and branches join them; up to 49 in DenseNet."""
    side = draw.side(7, 72)
    n_tensors = round(draw.between(2, 49.4))
    total = draw.between(1500, 24_000) / side
    each = max(8, draw.channels(total / n_tensors))
    return same_shape("concat", n_tensors * each, side, n_tensors=n_tensors)


def _concat_small(draw: Draw) -> Operator:
    """As dense blocks join them on small maps: many narrow tensors."""
    side, n_tensors = draw.side(1, 6), round(draw.between(2, 26))
    return same_shape("concat", n_tensors * draw.channels(draw.between(16, 96)), side, n_tensors=n_tensors)


def _concat_forward(draw: Draw) -> Operator:
    channels, side = _size(draw, 7, 60)
    return same_shape("concat", channels // 2 * 2 or 2, side, n_tensors=2, passes="forward")


def _linear_vectors(draw: Draw) -> Operator:
    wide = draw.happens(0.2)
    return linear(draw.channels(draw.between(64, 26_000)), draw.channels(draw.between(8, 4500)), wide=wide)


def _linear_maps(draw: Draw) -> Operator:
    """Linear layers on maps widen or narrow them four times, in CNNs that borrow from transformers."""
    side, widen = draw.side(7, 60), draw.happens(0.5)
    narrow = draw.channels(draw.between(4500, 12_000) / side)
    return linear(narrow, 4 * narrow, side, wide=True) if widen else linear(4 * narrow, narrow, side)


def _pool(type_: str, kernel: int, stride: int, padding: int = 0, low: int = 8, high: int = 230) -> Make:
    def make(draw: Draw) -> Operator:
        channels, side = _size(draw, low, high)
        return pool(type_, channels, side, kernel, stride, padding)

    return make


def _pool_up(draw: Draw) -> Operator:
    """An adaptive pool that widens: a classifier made for larger images reads a small map."""
    side, out = round(draw.between(1, 3.4)), draw.one_of((6, 7))
    return adaptive_pool(draw.channels(draw.between(128, 1024)), side, out)


def _global_pool(draw: Draw, low: int = 4, high: int = 300) -> Operator:
    channels, side = _size(draw, low, high)
    return replace(pool("avg_pool", channels, side, side, side), wide_input=draw.happens(0.1))


def _optimizer(draw: Draw) -> Operator:
    n_tensors = round(draw.between(7, 1000))
    return optimizer(n_tensors, max(100 * n_tensors, round(draw.between(4e4, 4e8))))


def _loss(draw: Draw) -> Operator:
    return same_shape(
        "loss", draw.channels(draw.between(1, 22_000)), 1, out_channels=None, out_height=None, out_width=None
    )


LAYER_FAMILIES: dict[str, tuple[int, Make]] = {
    "batch norm": (72, partial(_plain, type_="batch_norm", low=2, high=300)),
    "batch norm, small maps": (10, partial(_small_map, type_="batch_norm")),
    "batch norm, vectors": (4, partial(_vector, type_="batch_norm", low=64, high=4096)),
    "relu in place": (44, _activation("relu", in_place=True)),
    "relu in place, vectors": (9, _activation("relu", in_place=True, vectors=1)),
    "relu in place, small maps": (4, partial(_small_map, type_="activation", kind="relu", in_place=True)),
    "relu": (12, _activation("relu")),
    "silu in place": (24, _activation("silu", in_place=True)),
    "silu in place, vectors": (8, _activation("silu", in_place=True, vectors=1)),
    "silu": (5, _activation("silu")),
    "relu6 in place": (8, _activation("relu6", in_place=True)),
    "relu6 in place, small maps": (2, partial(_small_map, type_="activation", kind="relu6", in_place=True)),
    "leaky relu in place": (6, _activation("leaky_relu", in_place=True)),
    "hardswish in place": (11, _activation("hardswish", in_place=True, vectors=0.3)),
    "hardsigmoid": (7, _activation("hardsigmoid", vectors=0.85)),
    "sigmoid": (16, _activation("sigmoid", vectors=0.8)),
    "gelu": (14, _activation("gelu")),
    "tanh": (6, partial(_small, kind="tanh")),
    "softmax": (3, _activation("softmax", vectors=1)),
    "add": (32, partial(_plain, type_="add", low=4, wide=0.2)),
    "add of gradients": (32, partial(_plain, type_="add", low=4, passes="forward")),
    "add, small maps": (4, partial(_small_map, type_="add")),
    "add of gradients, small maps": (4, partial(_small_map, type_="add", passes="forward")),
    "multiply, small maps": (4, partial(_small_map, type_="multiply")),
    "multiply": (32, partial(_plain, type_="multiply", low=7)),
    "layer scale": (10, _layer_scale),
    "concat": (60, _concat),
    "concat, small maps": (6, _concat_small),
    "concat of gradients, small maps": (
        2,
        partial(_small_map, type_="concat", even=True, n_tensors=2, passes="forward"),
    ),
    "concat of gradients": (8, _concat_forward),
    "copy": (4, partial(_plain, type_="concat", low=7, high=64)),
    "layer norm": (16, partial(_plain, type_="layer_norm", low=7, high=64, wide=0.5)),
    "layer norm, vectors": (3, partial(_vector, type_="layer_norm", low=256, high=2048, wide_input=True)),
    "linear, vectors": (28, _linear_vectors),
    "linear, maps": (20, _linear_maps),
    "dropout": (6, partial(_plain, type_="dropout", low=2, high=40)),
    "dropout, vectors": (6, partial(_vector, type_="dropout", low=64, high=10_000)),
    "stochastic depth": (24, partial(_plain, type_="stochastic_depth", low=7, wide=0.3)),
    "stochastic depth, small maps": (3, partial(_small_map, type_="stochastic_depth")),
    "channel shuffle, small maps": (4, partial(_small_map, type_="permute", even=True, groups=2)),
    "channel shuffle": (16, _shuffle),
    "permute": (6, partial(_plain, type_="permute", low=7, high=64, wide=0.5)),
    "permute, vectors": (2, partial(_vector, type_="permute", low=512, high=2048, wide_input=True)),
    "max pool 2/2": (14, _pool("max_pool", 2, 2, low=2)),
    "max pool 3/2": (14, _pool("max_pool", 3, 2)),
    "max pool 3/2 padded": (9, _pool("max_pool", 3, 2, 1, 14, 240)),
    "max pool 3/2, small maps": (3, _pool("max_pool", 3, 2, 0, 3, 7)),
    "max pool 3/2 padded, small maps": (3, _pool("max_pool", 3, 2, 1, 2, 12)),
    "max pool 3/1": (9, _pool("max_pool", 3, 1, 1, 7, 60)),
    "average pool 2/2": (9, _pool("avg_pool", 2, 2)),
    "average pool 2/2, small maps": (2, _pool("avg_pool", 2, 2, 0, 2, 7)),
    "average pool 3/1": (7, _pool("avg_pool", 3, 1, 1, 7, 60)),
    "pool to the same size": (3, _pool("avg_pool", 1, 1, 0, 7, 14)),
    "pool to a larger size": (4, _pool_up),
    "global pool, small maps": (6, partial(_global_pool, low=1, high=3)),
    "global pool": (34, _global_pool),
    "loss": (6, _loss),
    "optimizer": (28, _optimizer),
}
"""Name of a family -> how many shapes of it the smallest library has, and how one is made from a draw."""


def layers() -> Iterator[tuple[str, int, Iterator[Operator]]]:
    """Family by family: its name, how many shapes the smallest library takes, and its endless shapes."""
    for name, (count, make) in LAYER_FAMILIES.items():
        yield name, count, _shapes(name, make)


def _shapes(name: str, make: Make) -> Iterator[Operator]:
    for draw in draws(name):
        operator = make(draw)
        sizes = (operator.in_channels or 1, operator.in_height or 1, operator.in_width or 1)
        if sizes[0] * sizes[1] * sizes[2] <= _MOST_NUMBERS and operator.parameters <= 7e8:
            yield operator
