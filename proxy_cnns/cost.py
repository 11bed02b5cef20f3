"""About how long one configuration runs, and how much memory it needs: to skip what is too much, and for plans.

These are napkin figures for an H200, within a factor of two or three, never measurements and never shown as
such.
"""

from dataclasses import fields
from functools import lru_cache

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.operators.operators import Operator, operators_of
from predictor.operators.work import PASSES, layer_bytes, layer_flops
from proxy_cnns.work import Work

__all__ = ["estimated_memory_gib", "estimated_ms", "estimated_seconds"]

_BYTES_PER_S = 3e12
_FLOP_PER_S = {"fp32": 40e12, "tf32": 120e12, "fp16": 200e12, "amp_fp16": 200e12, "amp_bf16": 200e12}
_GROUPED = 5.0  # times the bytes of a depthwise or grouped convolution: its weight gradients are slow
_CAST = 1.5  # mixed precision reads float32 weights and inputs, too
_LEAST_MS = 0.01  # launching the kernels of one operator
_OPTIMIZER_BYTES = 20  # read value, gradient, momentum; write value, momentum
_COPIES_OF_A_MAP = 4  # input, output and their gradients
_WORKSPACE_GIB = 0.5

_SETUP_S = {"operator": 0.015, "proxy": 0.15, "target": 3.0}
"""Building, capturing and settling one configuration."""
_ITERATIONS = {"operator": 10, "proxy": 30, "target": 30}
"""Warm-up and repeats together."""


def estimated_ms(work: Work | Operator, batch_size: int, mode: Mode) -> float:
    """GPU time of one iteration (of an operator: forward + backward) on an H200, in ms.

    The user's own CNN, which is not read yet, counts as ResNet-50.
    """
    share = 0.5 if mode.precision.startswith(("amp", "fp16")) else 1.0
    total = 0.0
    for operator, count in _operators(work).items():
        flops, of_maps, of_weights = _per_image(operator)
        bytes_ = 4 * (batch_size * of_maps * share * (_CAST if share < 1 else 1) + of_weights)
        seconds = max(batch_size * flops / _FLOP_PER_S[mode.precision], bytes_ / _BYTES_PER_S)
        total += count * max(_LEAST_MS, 1000 * seconds)
    return total


def estimated_memory_gib(work: Work | Operator, batch_size: int, mode: Mode) -> float:
    """Device memory of one copy of it, in GiB: maps with their gradients, weights, workspace."""
    element_bytes = 2 if mode.precision.startswith(("amp", "fp16")) else 4
    operators = _operators(work)
    numbers = [count * _map_numbers(operator) for operator, count in operators.items()]
    if not isinstance(work, Operator) and work.operator is None:
        maps = sum(numbers) / 2  # half of all layers' inputs and outputs: each map once
    else:
        maps = _COPIES_OF_A_MAP / 2 * sum(numbers)
    weights = max((operator.parameters for operator in operators), default=0)
    return (batch_size * maps * element_bytes + 16 * weights) / 2**30 + _WORKSPACE_GIB


def estimated_seconds(work: Work, batch_size: int, mode: Mode) -> float:
    """Time of measuring one configuration on an H200, in s."""
    return _SETUP_S[work.kind] + _ITERATIONS[work.kind] * estimated_ms(work, batch_size, mode) / 1000


def _operators(work: Work | Operator) -> dict[Operator, int]:
    if isinstance(work, Operator):
        return {work: 1}
    if work.operator is not None:
        return {work.operator: 1}
    return _of_table(work.table if work.table is not None else _resnet50(work.image_size))


@lru_cache(maxsize=256)
def _of_table(table: LayerTable) -> dict[Operator, int]:
    return dict(operators_of(table))


def _resnet50(image_size: int) -> LayerTable:
    from predictor.cnns.zoo import zoo_cnn

    return zoo_cnn("resnet50", image_size)


@lru_cache(maxsize=100_000)
def _per_image(operator: Operator) -> tuple[float, float, float]:
    """FLOPs and numbers moved for each image, numbers moved for the weights."""
    if operator.type == "optimizer":
        return 0.0, 0.0, operator.parameters * _OPTIMIZER_BYTES / 4
    if operator.type == "loss":
        return 0.0, 8.0 * (operator.in_channels or 0), 0.0
    layer = _layer(operator)
    passes = PASSES[:1] if operator.passes == "forward" else PASSES
    flops = sum(layer_flops(layer, each, 1) for each in passes)
    one, two = (sum(layer_bytes(layer, each, batch, 1) for each in passes) for batch in (1, 2))
    moved = (two - one) * (_GROUPED if (operator.groups or 1) > 1 else 1)
    return flops, moved, max(0.0, 2 * one - two)


def _layer(operator: Operator) -> Layer:
    own = {entry.name for entry in fields(Layer)} & {entry.name for entry in fields(Operator)}
    columns = {name: getattr(operator, name) for name in own}
    return Layer(1, operator.name, inputs=(0 if operator.input_gradient else IMAGE,), **columns)


def _map_numbers(operator: Operator) -> float:
    """Numbers in an operator's input and output, for one image."""
    if operator.type == "optimizer":
        return 0.0
    sides = [
        [getattr(operator, f"{side}_{part}") or 1 for part in ("channels", "height", "width")]
        for side in ("in", "out")
    ]
    return float(sum(channels * height * width for channels, height, width in sides))
