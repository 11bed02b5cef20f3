"""The power that a GPU draws while it trains, as a share of its power limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu, rates_of
from predictor.cnns.layer_table import LayerTable
from predictor.models.ratios import Ratios, ratios_of
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.work import PASSES, layer_flops


def power_w(
    limit_w: Array | float,
    iteration_ms: Array,
    gpu_ms: Array,
    product_ms: Array,
    ratios: Ratios | None = None,
) -> Array:
    """Mean power of one GPU over an iteration in W; arrays broadcast together.

    `limit_w`: power limit; the GPU lowers its clocks rather than exceed it. `iteration_ms`, `gpu_ms`: iteration, and
    the time in it that the GPU works; more than the whole iteration counts as all of it. `product_ms`: least time of
    the iteration's convolutions and matrix products, as of `PowerOfGpus`. `ratios`: the shipped ones by default,
    fitted on power readings of training GPUs.

    Power / limit = `idle` + `busy` x b + `products` x sqrt(b x p), at most 1: b is the share of an iteration in which
    the GPU works, p that in which its arithmetic units would be busy at their peak rate.
    """
    shares = (ratios or ratios_of("power")).numbers
    busy = np.minimum(1.0, gpu_ms / iteration_ms)
    of_products = shares["products"] * np.sqrt(busy * product_ms / iteration_ms)
    share = shares["idle"] + shares["busy"] * busy + of_products
    return limit_w * np.minimum(1.0, share)


def power_limit_w(gpu: Gpu) -> float | None:
    """Power limit of one GPU in W: its share of the card's; None where the catalogue has none, and for a CPU."""
    return None if gpu.tdp_w is None else gpu.tdp_w / gpu.chips_per_card


@dataclass(frozen=True, slots=True, eq=False)
class PowerOfGpus:
    """Inputs of the power law of GPUs that train a CNN; arrays with an entry per GPU.

    `limit_w` is the power limit, NaN where it is unknown, `spread` the half width of the 90 % interval of ln power, and
    `product_ms` the least time of an image's convolutions and matrix products.
    """

    limit_w: Array
    spread: Array
    product_ms: Array

    @classmethod
    def of(cls, table: LayerTable, gpus: Sequence[Gpu], precisions: Sequence[str]) -> PowerOfGpus:
        """Inputs of the power law for each GPU in its precision."""
        figures = [_limit_spread_and_rate(gpu, word) for gpu, word in zip(gpus, precisions, strict=True)]
        limit_w, spread, flop_per_ms = np.array(figures).reshape(-1, 3).T
        return cls(limit_w, spread, _flops_per_image(table) / flop_per_ms)


@lru_cache(maxsize=4096)
def _limit_spread_and_rate(gpu: Gpu, precision: str) -> tuple[float, float, float]:
    limit_w, rate = power_limit_w(gpu), rates_of(gpu, precision).flop_per_ms
    return math.nan if limit_w is None else limit_w, ratios_of("power").spread_on(gpu), rate


@lru_cache(maxsize=512)
def _flops_per_image(table: LayerTable) -> float:
    products = (layer for layer in table if OPERATOR_TYPES[layer.type].product)
    flops = sum(layer_flops(layer, pass_, 1) for layer in products for pass_ in PASSES)
    return flops / table.parts  # an image goes through one of the parts
