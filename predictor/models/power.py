"""The power that a GPU draws while it trains, as a share of its power limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, rates_of
from predictor.cnns.layer_table import LayerTable
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.work import PASSES, layer_flops

__all__ = ["LAW", "MEASURED_GPUS", "PowerLaw", "power_limit_w", "product_times_ms"]

Array = NDArray[np.float64]

MEASURED_GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
"""GPUs whose power was read while CNNs trained on them."""


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """Numbers fitted on power readings of training GPUs (`predictor.models.power_fit`).

    Power / limit = `idle` + `busy` x b + `products` x sqrt(b x p), at most 1: b is the share of an iteration in which
    the GPU works, p that in which its arithmetic units would be busy at their peak rate. `spread` is the half width of
    the 90 % interval of ln power where a GPU's power was measured, `other_spread` where only its limit is known.
    """

    idle: float
    busy: float
    products: float
    spread: float = 0.0
    other_spread: float = 0.0

    def power_w(self, limit_w: Array | float, iteration_ms: Array, gpu_ms: Array, product_ms: Array) -> Array:
        """Mean power of one GPU over an iteration in W; arrays broadcast together.

        Parameters
        ----------
        limit_w : array-like
            Power limit; the GPU lowers its clocks rather than exceed it.
        iteration_ms, gpu_ms : ndarray
            Iteration, and the time in it that the GPU works; more than the whole iteration counts as all of it.
        product_ms : ndarray
            Least time of the iteration's convolutions and matrix products, see `product_times_ms`.
        """
        busy = np.minimum(1.0, gpu_ms / iteration_ms)
        share = self.idle + self.busy * busy + self.products * np.sqrt(busy * product_ms / iteration_ms)
        power: Array = limit_w * np.minimum(1.0, share)
        return power

    def spread_on(self, gpu: Gpu) -> float:
        """Half width of the 90 % interval of ln power on a GPU."""
        return self.spread if gpu.name in MEASURED_GPUS else self.other_spread


LAW = PowerLaw(idle=0.1539, busy=0.4221, products=0.5667, spread=0.14, other_spread=0.36)
"""As fitted on the readings beside `h100_pytorch_ddp` and `h200_pytorch_ddp`; a test repeats the fit.

`other_spread` adds mean powers of four GPUs from the traces of Zeus (You et al., NSDI 2023):
`benchmarks/bench_energy.py`.
"""


def power_limit_w(gpu: Gpu) -> float | None:
    """Power limit of one GPU in W: its share of the card's; None where the catalogue has none, and for a CPU."""
    return None if gpu.tdp_w is None or gpu.is_cpu else gpu.tdp_w / gpu.chips_per_card


def product_times_ms(
    table: LayerTable, gpus: Sequence[Gpu], precisions: Sequence[str], batch_sizes: Array
) -> Array:
    """Least time of an iteration's convolutions and matrix products at each GPU's peak rate, (n_gpus, n_batches)."""
    rates = [rates_of(gpu, precision).flop_per_ms for gpu, precision in zip(gpus, precisions, strict=True)]
    times: Array = _flops_per_image(table) * batch_sizes / np.array(rates)[:, None]
    return times


@lru_cache(maxsize=512)
def _flops_per_image(table: LayerTable) -> float:
    products = (layer for layer in table if OPERATOR_TYPES[layer.type].product)
    return sum(layer_flops(layer, pass_, 1) for layer in products for pass_ in PASSES)
