"""Iterations on several GPUs from those on one: each GPU has a copy of the CNN, and all add up their gradients.

PyTorch's DistributedDataParallel copies gradients into buckets and sums each bucket over all GPUs while the backward
pass goes on. On one host with fast links that adds some work for each parameter tensor, two copies of all gradients, a
share of the sums, and a wait for the slowest GPU; the host enqueues more. Over slow links there is also what the
backward pass cannot hide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu
from predictor.catalogue.links import Link
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.models.forecast import SHARPNESS, TIMES, IterationForecast, Reason
from predictor.models.join import change_host, sharpness_of
from predictor.models.ratios import Ratios, ratios_of
from predictor.models.replicas import compiled_convolutions, replicas_reasons, replicas_times
from predictor.operators.operators import trained_tensors

Places = NDArray[np.int64]

BACKWARD_SHARE = 2.0 / 3.0
"""Share of an iteration that its backward pass takes, as its FLOPs are; sums of gradients can hide behind it."""

BUCKET_BYTES = 25 * 2**20
"""PyTorch's default bucket."""

_GRADIENT_BYTES = 4  # gradients of mixed precision are fp32, too
_COPIES = 4  # into the bucket and back, each a read and a write
_SUMS_OF_A_NORM = (
    2  # statistics of a synchronised batch norm: sums of some KB, forward and backward, never hidden
)


_WAIT = 0.13
"""Rise of ln of the upper end, for teams on several machines, per expected deviation of the slowest GPU."""


@dataclass(frozen=True, slots=True)
class Team:
    """GPUs that train together: `n_gpus` in all, on `nodes` machines, joined by `link`.

    With several nodes `link` joins the machines, which is slower than what joins GPUs. `sync_batch_norm`: batch norms
    take the statistics of the whole mini-batch. `has_replicas`: `torch.nn.DataParallel` spreads it, not DDP.
    """

    n_gpus: int
    nodes: int
    link: Link
    sync_batch_norm: bool = False
    has_replicas: bool = False

    @property
    def joined(self) -> int:
        """Number of GPUs, or of machines, that the link joins."""
        return self.n_gpus if self.nodes == 1 else self.nodes


@dataclass(frozen=True, slots=True)
class Gradients:
    """Sums over GPUs in a CNN's iteration: tensors and bytes of its gradients, batch norms if synchronised.

    Of a mini-batch in several `parts` the gradients are added up once, beside the last part's backward pass, and batch
    norms in each part.
    """

    n_tensors: int
    n_bytes: float
    n_batch_norms: int = 0
    parts: int = 1

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, table: LayerTable) -> Gradients:
        """Gradients of all trainable parameters; cached."""
        norms = table.parts * sum(layer.type == "batch_norm" for layer in table)
        n_bytes = float(_GRADIENT_BYTES * table.parameters)
        return cls(trained_tensors(table), n_bytes, norms, table.parts)

    @property
    def n_buckets(self) -> int:
        """Buckets of PyTorch's default size."""
        return max(1, math.ceil(self.n_bytes / BUCKET_BYTES))

    @property
    def gib(self) -> float:
        """Memory of the buckets on each GPU, in GiB."""
        return self.n_bytes / 2**30


@dataclass(frozen=True, slots=True)
class Exchange:
    """Inputs of the law of gradient exchange, in ms; floats, or arrays with an entry per row.

    `ring_ms` are the sums themselves, `copies_ms` those into buckets and back, `synchronising_ms` the statistics of
    synchronised batch norms; sums can hide behind the `hidden_share` of an iteration. `tensors` counts the tensors
    summed, `norms` the batch norms that are synchronised, and `slowest` is sqrt(2 ln n) of n GPUs.
    """

    ring_ms: Array | float
    copies_ms: Array | float
    synchronising_ms: Array | float
    slowest: Array | float
    hidden_share: Array | float
    tensors: int
    norms: Array | float = 0.0

    @classmethod
    def of(cls, gradients: Gradients, gpu: Gpu, team: Team) -> Exchange:
        """Exchange of one team."""
        copies_ms = _copies_ms(gradients, gpu.memory_bandwidth_gb_per_s)
        return replace(_of_team(gradients, team), copies_ms=copies_ms)

    @classmethod
    def of_rows(
        cls,
        gradients: Gradients,
        gpus: Sequence[Gpu],
        gpu: Places,
        teams: Sequence[Team | None],
        team: Places,
    ) -> Exchange:
        """Exchanges of many rows: row i is that of `teams[team[i]]`, never None, on `gpus[gpu[i]]`."""
        of_teams = [None if entry is None else _of_team(gradients, entry) for entry in teams]
        bandwidth = np.array([entry.memory_bandwidth_gb_per_s for entry in gpus])

        def column(name: str) -> Array:
            return np.array([math.nan if entry is None else getattr(entry, name) for entry in of_teams])[team]

        copies_ms = _copies_ms(gradients, bandwidth[gpu])
        ends = column("ring_ms"), copies_ms, column("synchronising_ms"), column("slowest")
        return cls(*ends, column("hidden_share"), gradients.n_tensors, column("norms"))


@lru_cache(maxsize=1024)
def _of_team(gradients: Gradients, team: Team) -> Exchange:
    """Exchange of a team without the copies, which follow from the GPU; cached: GPUs share a few teams."""
    norms = gradients.n_batch_norms * team.sync_batch_norm
    return Exchange(
        team.link.all_reduce_ms(gradients.n_bytes, team.n_gpus, team.joined, gradients.n_buckets),
        0.0,
        _SUMS_OF_A_NORM * norms * team.link.latency_us / 1000,
        math.sqrt(2 * math.log(team.n_gpus)),
        BACKWARD_SHARE / gradients.parts if team.link.overlaps else 0.0,
        gradients.n_tensors,
        float(norms),
    )


def _copies_ms(gradients: Gradients, bandwidth_gb_per_s: Array | float) -> Array | float:
    return _COPIES * gradients.n_bytes / (1e6 * bandwidth_gb_per_s)


def added_gpu_ms(iteration_ms: Array, exchange: Exchange, ratios: Ratios | None = None) -> Array:
    """Work and waiting that data parallelism adds on each GPU, shape as `iteration_ms`.

    `tensor_ms` x parameter tensors + 4 gradient bytes / memory bandwidth + `wait` x iteration x sqrt(2 ln n) +
    max(`ring` x r, r - 2/3 iteration), r the time of the sums themselves; r where the link does not overlap them with
    computing. The wait is for the slowest of n GPUs, n normal variates exceeding their mean by at most sqrt(2 ln n)
    deviations in expectation.
    """
    ratios, ring_ms = ratios or ratios_of("data_parallel"), exchange.ring_ms
    exposed = np.maximum(ratios["ring"] * ring_ms, ring_ms - exchange.hidden_share * iteration_ms)
    wait = ratios["wait"] * exchange.slowest * iteration_ms
    tensors = ratios["tensor_ms"] * exchange.tensors
    return tensors + exchange.copies_ms + wait + exposed + exchange.synchronising_ms


def team_host_ms(host_ms: Array, exchange: Exchange, ratios: Ratios | None = None) -> Array:
    """The host's time for an iteration of a team from that for one GPU; 0 stays 0, as of captured iterations.

    `host` x that of one GPU + `sync_norm_ms` x synchronised batch norms: Python waits for their statistics.
    """
    ratios = ratios or ratios_of("data_parallel")
    waits: Array = np.where(host_ms > 0, ratios["sync_norm_ms"] * exchange.norms, 0.0)
    return host_ms * ratios["host"] + waits


def team_iteration_ms(
    one_ms: Array,
    host_ms: Array,
    exchange: Exchange,
    ratios: Ratios | None = None,
    sharpness: float = SHARPNESS,
) -> Array:
    """Iteration of a team and its host's time, in ms, from the iteration of one GPU at the same local batch size.

    The host, whose time grows by `team_host_ms`, counts where it becomes the slower one (`change_host`).
    """
    busy = one_ms + added_gpu_ms(one_ms, exchange, ratios)
    before = np.minimum(host_ms, one_ms)
    return change_host(busy, before, team_host_ms(before, exchange, ratios), sharpness)


def add_data_parallelism(
    single_gpu: IterationForecast, table: LayerTable, gpu: Gpu, mode: Mode, team: Team
) -> IterationForecast:
    """Forecast of a team's iteration from that of one of its GPUs at the same local batch sizes.

    `single_gpu`: of `gpu` in `mode` at the batch sizes of one GPU; returned itself for a team of one. The interval is
    that of one GPU joined with the law's error, wider for teams that were not measured.
    """
    if team.n_gpus == 1:
        return single_gpu
    times, reasons = {name: getattr(single_gpu, name) for name in TIMES}, team_reasons(team, mode)
    first = np.zeros(len(single_gpu.extrapolates), dtype=np.int64)
    changed: dict[str, Any] = team_times(times, table, [(gpu, mode)], first, [team], first)
    changed["extrapolates"] = tuple((*at_size, *reasons) for at_size in single_gpu.extrapolates)
    return replace(single_gpu, **changed)


def team_times(
    times: Mapping[str, Array],
    table: LayerTable,
    devices: Sequence[tuple[Gpu, Mode]],
    device: Places,
    teams: Sequence[Team | None],
    team: Places,
) -> dict[str, Array]:
    """Times of teams' iterations from those of one of their GPUs at the same local batch sizes.

    `times`, shape (n_rows,): the times of an `IterationForecast`, by the names of its fields. `device`, shape
    (n_rows,): the place of each row's GPU with its mode in `devices`, which are alike in framework and capture. `team`,
    shape (n_rows,): the place of each row's team in `teams`, which is not None there, and all of which have replicas or
    none.

    The interval is as of `add_data_parallelism`; among several machines its upper end rises by the wait for the
    slowest, 0.13 sqrt(2 ln n): in one cluster iterations were missed by 6 % on 2 GPUs and by 32 % on 64, in another of
    64 GPUs by 7 %.
    """
    mode = devices[0][1]
    # By team: the factor of its reasons on the half widths, and ln of what the slowest of several machines may add.
    by_team = np.full((2, len(teams)), math.nan)
    for i, entry in enumerate(teams):
        if entry is not None:
            slowest = 0.0 if entry.nodes == 1 else _WAIT * math.sqrt(2 * math.log(entry.n_gpus))
            by_team[:, i] = math.prod(reason.widens for reason in team_reasons(entry, mode)), slowest
    widens, slowest_machine = by_team[:, team]
    if any(entry is not None and entry.has_replicas for entry in teams):
        n_gpus = np.array([1 if entry is None else entry.n_gpus for entry in teams])[team]
        compiled = np.array([compiled_convolutions(table, of_device) for _, of_device in devices])[device]
        return replicas_times(dict(times), n_gpus, compiled, table.parts, widens)
    exchange = Exchange.of_rows(Gradients.of(table), [gpu for gpu, _ in devices], device, teams, team)
    ratios = ratios_of("data_parallel")
    one_ms, one_gpu_ms, one_host_ms = (times[f"{name}_time_ms"] for name in ("iteration", "gpu", "host"))
    eager = not mode.replays
    waits_ms = one_host_ms if eager else np.zeros_like(one_ms)
    time_ms = team_iteration_ms(one_ms, waits_ms, exchange, sharpness=sharpness_of(mode.framework))
    low_ms, high_ms = _interval(one_ms, times["low_ms"], times["high_ms"], time_ms, ratios.spread, widens)
    high_ms *= np.exp(slowest_machine)
    gpu_ms = one_gpu_ms + added_gpu_ms(one_gpu_ms, exchange)
    of_gpu = _interval(one_gpu_ms, times["gpu_low_ms"], times["gpu_high_ms"], gpu_ms, ratios.spread, widens)
    host_ms = team_host_ms(one_host_ms, exchange) if eager else one_host_ms
    return dict(zip(TIMES, (time_ms, low_ms, high_ms, gpu_ms, *of_gpu, host_ms), strict=True))


def _interval(
    one_ms: Array, low_ms: Array, high_ms: Array, time_ms: Array, spread: float, widens: Array
) -> tuple[Array, Array]:
    """Interval of a team's time: the relative one of one GPU, and the law's error in quadrature."""
    law = np.log1p(spread * (time_ms - one_ms) / time_ms)
    below, above = (np.hypot(np.log(ratio), law) for ratio in (one_ms / low_ms, high_ms / one_ms))
    return time_ms * np.exp(-widens * below), time_ms * np.exp(widens * above)


@lru_cache(maxsize=1024)
def team_reasons(team: Team, mode: Mode) -> tuple[Reason, ...]:
    """Reasons for caution about a team that was not measured; cached."""
    if team.has_replicas:
        return replicas_reasons(team.n_gpus)
    reasons = []
    if team.nodes > 1:
        text = f"{team.nodes} machines: the law of one machine over {team.link.name}, not measured"
        reasons.append(Reason("nodes", text))
    elif not team.link.is_measured(team.n_gpus):
        through = (
            "" if team.link.overlaps else " (through the host's memory, as without peer access: assumed)"
        )
        text = f"training on {team.n_gpus} GPUs over {team.link.name}{through} was not measured here"
        reasons.append(Reason("link", text))
    if team.sync_batch_norm:
        text = "computed from what two H100 took for each batch norm, and the link's latency"
        reasons.append(Reason("sync_batch_norm", text))
    if mode.framework != "pytorch":
        text = f"data parallelism was measured with PyTorch, not with {mode.framework}"
        reasons.append(Reason("framework", text))
    if mode.capture != "eager":
        reasons.append(Reason("capture", "data parallelism was measured without capture"))
    return tuple(reasons)
