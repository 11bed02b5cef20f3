"""What the first epoch of a training takes longer than later ones: its start, which a training pays once."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from predictor.models.ratios import ratios_of
from predictor.operator_types import OPERATOR_TYPES

if TYPE_CHECKING:
    from predictor.catalogue.modes import Mode
    from predictor.cnns.layer_table import Layer, LayerTable

__all__ = ["first_calls_s", "grouped_shapes", "has_known_start", "shapes", "start_factor"]

_BATCHES_OF_TWO_SIZES = 2


def start_factor() -> float:
    """Factor to each side within which a start is meant to lie nine times out of ten."""
    return math.exp(ratios_of("start").spread)


def has_known_start(mode: Mode) -> bool:
    """Whether starts were measured: PyTorch's eager mode without autotuning, on H100 and H200."""
    return mode.framework == "pytorch" and mode.capture == "eager" and not mode.autotune


@lru_cache(maxsize=256)
def first_calls_s(table: LayerTable, mode: Mode) -> float:
    """Seconds that a framework takes longer when it meets the shapes of a CNN for the first time.

    Notes
    -----
    `shape_s` x distinct shapes of convolutions and linear layers, whose kernels are loaded and chosen. In
    channels-last, and in fp16, beside that 2 x `grouped_shape_s` x distinct shapes of grouped (and depthwise)
    convolutions, for each of which cuDNN compiles kernels at the batch size, and again at that of the smaller last
    mini-batch; without a smaller one the second time is not spent. Fitted on 37 whole epochs of three CNNs on H100
    and H200, one of which has grouped convolutions (`benchmarks/real_epochs.py`); single ones took 0.5 to 1.9 s when
    operators were measured.
    """
    compiles = mode.memory_format == "channels_last" or mode.precision in ("fp16", "amp_fp16")
    ratios = ratios_of("start")
    again = compiles * _BATCHES_OF_TWO_SIZES * ratios["grouped_shape_s"] * len(grouped_shapes(table))
    return ratios["shape_s"] * len(shapes(table)) + again


def shapes(table: LayerTable) -> set[tuple[object, ...]]:
    """Distinct shapes of convolutions and linear layers."""
    return {_shape(layer) for layer in table if layer.type == "linear" or _is_convolution(layer)}


def grouped_shapes(table: LayerTable) -> set[tuple[object, ...]]:
    """Distinct shapes of grouped and depthwise convolutions."""
    return {_shape(layer) for layer in table if _is_convolution(layer) and (layer.groups or 1) > 1}


def _is_convolution(layer: Layer) -> bool:
    return layer.type in OPERATOR_TYPES and OPERATOR_TYPES[layer.type].is_convolution


def _shape(layer: Layer) -> tuple[object, ...]:
    return (
        layer.type, layer.in_channels, layer.in_height, layer.in_width, layer.out_channels, layer.kernel_height,
        layer.kernel_width, layer.stride_height, layer.stride_width, layer.dilation, layer.groups,
    )  # fmt: skip
