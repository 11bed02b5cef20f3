"""Start of a training: seconds that the first epoch takes longer than later ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, is_cpu
from predictor.catalogue.modes import COMPILED, Mode
from predictor.cnns.layer_table import LayerTable
from predictor.models.compiled import compile_seconds
from predictor.models.forecasts import positions_of_modes
from predictor.models.ratios import ratios_of
from predictor.operators.memory import input_elements
from predictor.operators.operators import is_depthwise

_BATCHES_OF_TWO_SIZES = 2
_SHAPE = attrgetter(
    *("in_channels", "in_height", "in_width", "out_channels", "kernel_height", "kernel_width"),
    *("stride_height", "stride_width", "dilation"),
)
_LARGEST_COMPILED = 7  # side of a kernel; cuDNN has no compiled ones of larger, or of unequal sides


def start_factor() -> float:
    """Factor f of the 90 % interval of a start: start / f to start x f."""
    return math.exp(ratios_of("start").spread)


def has_known_start(gpu: Gpu, mode: Mode) -> bool:
    """Whether starts were measured: PyTorch on GPUs (H100 and H200), without autotuning and graphs."""
    eager_or_compiled = mode.capture in ("eager", *COMPILED) and not mode.autotune
    return mode.framework == "pytorch" and eager_or_compiled and not is_cpu(gpu.name)


@lru_cache(maxsize=256)
def first_calls_s(table: LayerTable, mode: Mode) -> float:
    """Seconds that PyTorch takes longer when it meets a CNN for the first time, whatever the batch size.

    `first_calls_s`, in which libraries and kernels are loaded, whatever the number of layers. In channels-last, and in
    fp16, beside that 2 x `depthwise_shape_s` x distinct shapes of depthwise convolutions of square kernels up to 7 x 7,
    for each of which cuDNN compiles kernels at the batch size, and again at that of the smaller last mini-batch.
    Grouped convolutions of several channels have none. A compiled CNN is compiled at both sizes. Without a smaller last
    mini-batch the second time is not spent.
    """
    ratios = ratios_of("start")
    if mode.is_compiled:
        return ratios["first_calls_s"] + _BATCHES_OF_TWO_SIZES * compile_seconds(table)
    n = len(compiled_shapes(table, mode))
    return ratios["first_calls_s"] + _BATCHES_OF_TWO_SIZES * ratios["depthwise_shape_s"] * n


def first_calls_of_each_s(table: LayerTable, devices: Sequence[tuple[Gpu, Mode]]) -> NDArray[np.float64]:
    """`first_calls_s` on each GPU in its mode; NaN where no start was measured."""
    calls_s = np.full(len(devices), math.nan)
    for mode, places in positions_of_modes(devices).items():
        calls_s[[i for i in places if has_known_start(devices[i][0], mode)]] = first_calls_s(table, mode)
    return calls_s


def first_image_s(table: LayerTable) -> float:
    """Seconds that each image of a GPU's first mini-batch adds to the start.

    `million_values_s` x the image's numbers, in millions: all workers begin at once, and memory is taken and pinned.
    """
    return ratios_of("start")["million_values_s"] * million_values(table)


def million_values(table: LayerTable) -> float:
    """Values (pixels x channels) of one image, in millions."""
    return input_elements(table.layers[0]) / 1e6


def compiled_shapes(table: LayerTable, mode: Mode) -> set[tuple[object, ...]]:
    """Distinct shapes of the depthwise convolutions that cuDNN compiles kernels for: in channels-last and fp16."""
    if mode.memory_format != "channels_last" and mode.precision not in ("fp16", "amp_fp16"):
        return set()
    convolutions = (layer for layer in table if layer.type == "conv2d" and is_depthwise(layer))
    return {
        _SHAPE(layer)
        for layer in convolutions
        if layer.kernel_height == layer.kernel_width and (layer.kernel_height or 0) <= _LARGEST_COMPILED
    }
