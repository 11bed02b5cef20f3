"""What training on several GPUs adds to an iteration: each GPU has a copy of the CNN, and all add up their gradients.

PyTorch's DistributedDataParallel copies gradients into buckets and sums each bucket over all GPUs while the backward
pass goes on. On one host with fast links that adds some work for each parameter tensor, two copies of all gradients, a
share of the sums, and a wait for the slowest GPU; the host enqueues more. Over slow links there is also what the
backward pass cannot hide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from predictor.catalogue.devices import Gpu
from predictor.catalogue.links import Link
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.models.forecast import IterationForecast, Reason
from predictor.models.ratios import Ratios, ratios_of
from predictor.operators.operators import parameter_tensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = [
    "BACKWARD_SHARE",
    "BUCKET_BYTES",
    "Gradients",
    "Team",
    "added_gpu_ms",
    "team_iteration_ms",
    "together",
]

BACKWARD_SHARE = 2.0 / 3.0
"""Share of an iteration that its backward pass takes, as its FLOPs are; sums of gradients can hide behind it."""

BUCKET_BYTES = 25 * 2**20
"""PyTorch's default bucket."""

_GRADIENT_BYTES = 4  # gradients of mixed precision are fp32, too
_COPIES = 4  # into the bucket and back, each a read and a write
_SUMS_OF_A_NORM = 2  # one of the forward and one of the backward pass
_SHARPNESS = 8.0
"""Exponent of the smooth maximum of GPU and host: sharper than that of one GPU, whose time already holds both."""


@dataclass(frozen=True, slots=True)
class Team:
    """GPUs that train together: `n_gpus` in all, on `nodes` machines, joined by `link`.

    With several nodes `link` joins the machines, which is slower than what joins GPUs. `sync_batch_norm`: batch norms
    take the statistics of the whole mini-batch.
    """

    n_gpus: int
    nodes: int
    link: Link
    sync_batch_norm: bool = False

    @property
    def joined(self) -> int:
        """Number of GPUs, or of machines, that the link joins."""
        return self.n_gpus if self.nodes == 1 else self.nodes


@dataclass(frozen=True, slots=True)
class Gradients:
    """What a CNN's iteration adds up: parameter tensors with their bytes; its batch norms, if they are synchronised."""

    n_tensors: int
    n_bytes: float
    n_batch_norms: int = 0

    @classmethod
    def of(cls, table: LayerTable) -> Gradients:
        """Gradients of all trainable parameters."""
        norms = sum(layer.type == "batch_norm" for layer in table)
        return cls(sum(map(parameter_tensors, table)), float(_GRADIENT_BYTES * table.parameters), norms)

    @property
    def n_buckets(self) -> int:
        """Buckets of PyTorch's default size."""
        return max(1, math.ceil(self.n_bytes / BUCKET_BYTES))

    @property
    def gib(self) -> float:
        """Memory of the buckets on each GPU."""
        return self.n_bytes / 2**30


def added_gpu_ms(
    iteration_ms: Array, gradients: Gradients, gpu: Gpu, team: Team, ratios: Ratios | None = None
) -> Array:
    """Work and waiting that data parallelism adds on each GPU, shape as `iteration_ms`.

    Notes
    -----
    `tensor_ms` x parameter tensors + 4 gradient bytes / memory bandwidth + `wait` x iteration x sqrt(2 ln n) +
    max(`ring` x r, r - 2/3 iteration), r the time of the sums alone. The wait is for the slowest of n GPUs, n normal
    variates exceeding their mean by at most sqrt(2 ln n) deviations in expectation.
    """
    ratios = ratios or ratios_of("data_parallel")
    ring = team.link.all_reduce_ms(gradients.n_bytes, team.n_gpus, team.joined, gradients.n_buckets)
    exposed = np.maximum(ratios["ring"] * ring, ring - BACKWARD_SHARE * iteration_ms)
    copies = _COPIES * gradients.n_bytes / (1e6 * gpu.memory_bandwidth_gb_per_s)
    wait = ratios["wait"] * math.sqrt(2 * math.log(team.n_gpus)) * iteration_ms
    tensors = ratios["tensor_ms"] * gradients.n_tensors
    return tensors + copies + wait + exposed + _synchronising_ms(gradients, team)


def team_iteration_ms(
    one_ms: Array, host_ms: Array, gradients: Gradients, gpu: Gpu, team: Team, ratios: Ratios | None = None
) -> Array:
    """Iteration of all GPUs from that of one at the same local batch size, and the host's time for it.

    Notes
    -----
    ((t + added)^8 + h_n^8 - h^8)^(1/8), a smooth maximum: the host, whose time grows by `host`, counts where it becomes
    the slower one.
    """
    ratios = ratios or ratios_of("data_parallel")
    busy = one_ms + added_gpu_ms(one_ms, gradients, gpu, team, ratios)
    before = np.minimum(host_ms, one_ms)
    after = before * ratios["host"]
    scale = np.maximum(busy, after)  # keeps the eighth powers finite
    powers = (busy / scale) ** _SHARPNESS + (after / scale) ** _SHARPNESS - (before / scale) ** _SHARPNESS
    joined: Array = scale * powers ** (1 / _SHARPNESS)
    return joined


def _synchronising_ms(gradients: Gradients, team: Team) -> float:
    """Time of the statistics of synchronised batch norms: two sums of some KB for each, which nothing hides."""
    return _SUMS_OF_A_NORM * gradients.n_batch_norms * team.link.latency_us / 1000 * team.sync_batch_norm


def together(
    one: IterationForecast,
    table: LayerTable,
    gpu: Gpu,
    mode: Mode,
    team: Team,
) -> IterationForecast:
    """Forecast of a team's iteration from that of one of its GPUs at the same local batch sizes.

    Parameters
    ----------
    one : IterationForecast
        Of `gpu` in `mode` at the batch sizes of one GPU.
    table : LayerTable
    gpu : Gpu
    mode : Mode
    team : Team
        Two GPUs or more; one GPU gives `one` itself.

    Returns
    -------
    IterationForecast
        Its interval is that of one GPU with what the law may err, wider for teams that were not measured.
    """
    if team.n_gpus == 1:
        return one
    gradients, eager, ratios = Gradients.of(table), not mode.replays, ratios_of("data_parallel")
    host_ms = one.host_time_ms if eager else np.zeros_like(one.iteration_time_ms)
    time_ms = team_iteration_ms(one.iteration_time_ms, host_ms, gradients, gpu, team)
    reasons = _reasons(team, mode)
    widens = math.prod(reason.widens for reason in reasons)
    low, high = _interval(one.iteration_time_ms, one.low_ms, one.high_ms, time_ms, ratios.spread, widens)
    gpu_ms = one.gpu_time_ms + added_gpu_ms(one.gpu_time_ms, gradients, gpu, team)
    gpu_low, gpu_high = _interval(
        one.gpu_time_ms, one.gpu_low_ms, one.gpu_high_ms, gpu_ms, ratios.spread, widens
    )
    return replace(
        one,
        iteration_time_ms=time_ms,
        low_ms=low,
        high_ms=high,
        gpu_time_ms=gpu_ms,
        gpu_low_ms=gpu_low,
        gpu_high_ms=gpu_high,
        host_time_ms=one.host_time_ms * ratios["host"] if eager else one.host_time_ms,
        extrapolates=tuple((*some, *reasons) for some in one.extrapolates),
    )


def _interval(
    one_ms: Array, low_ms: Array, high_ms: Array, time_ms: Array, spread: float, widens: float
) -> tuple[Array, Array]:
    """Interval of a team's time: the relative one of one GPU, and the law's error in quadrature."""
    law = np.log1p(spread * (time_ms - one_ms) / time_ms)
    below, above = np.log(one_ms / low_ms), np.log(high_ms / one_ms)
    return (
        time_ms * np.exp(-widens * np.hypot(below, law)),
        time_ms * np.exp(widens * np.hypot(above, law)),
    )


def _reasons(team: Team, mode: Mode) -> tuple[Reason, ...]:
    reasons = []
    if team.nodes > 1:
        reasons.append(
            Reason(
                "nodes", f"{team.nodes} machines: the law of one machine over {team.link.name}, not measured"
            )
        )
    elif not team.link.is_measured(team.n_gpus):
        reasons.append(
            Reason("link", f"training on {team.n_gpus} GPUs over {team.link.name} was not measured here")
        )
    if team.sync_batch_norm:
        reasons.append(
            Reason("sync_batch_norm", "computed from the link's latency, never measured; about 10 % is usual")
        )
    if mode.framework != "pytorch":
        reasons.append(
            Reason("framework", f"data parallelism was measured with PyTorch, not with {mode.framework}")
        )
    if mode.capture != "eager":
        reasons.append(Reason("capture", "data parallelism was measured without capture"))
    return tuple(reasons)
