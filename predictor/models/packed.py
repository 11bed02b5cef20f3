"""Several trainings on one GPU, each a process of its own without MPS: their kernels take turns.

Where the GPU idles while a host enqueues, others use it, and a training is slower only by what the hosts take from each
other. Where they ask for more than the GPU has, all get the same share of its time, and switching between processes
costs some. ``benchmarks/packed.py`` judges the law.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.models.forecast import Reason
from predictor.models.join import change_host
from predictor.models.ratios import ratios_of

ENTRY = "packed"


def beside_others_ms(alone_ms: Array, host_ms: Array, slower: float | None = None) -> Array:
    """Iteration of a training, in ms, whose host works beside those of others, on a GPU that has time for all.

    The host's time grows by the factor `slower`, that of the fit by default (`change_host`).
    """
    before_ms = np.minimum(host_ms, alone_ms)
    return change_host(alone_ms, before_ms, (slower or ratios_of(ENTRY)["host"]) * before_ms)


def packed_ms(alone_ms: Array, gpu_ms: Array, host_ms: Array, per_gpu: NDArray[np.int64]) -> Array:
    """Iteration of one of `per_gpu` equal trainings on a GPU, in ms, from its own times; of one it is `alone_ms`.

    max(`beside_others_ms`, per_gpu x `switches` x GPU time). Unlike trainings get equal shares of the GPU's time, too;
    what one does not need, the others share.
    """
    shared = np.maximum(beside_others_ms(alone_ms, host_ms), per_gpu * ratios_of(ENTRY)["switches"] * gpu_ms)
    return np.where(per_gpu > 1, shared, alone_ms)


def packed_times(times: Mapping[str, Array], per_gpu: NDArray[np.int64], spread: Array) -> dict[str, Array]:
    """Times of one of `per_gpu` equal trainings on a GPU from those of one by itself, by the same names.

    All of shape (n_rows,). GPU and host time stay those of one. `spread`: half width of the 90 % interval of ln of
    `switches`. Each end is the longer one of host and GPU, as the estimate is.
    """
    ratios = ratios_of(ENTRY)
    alone_ms, gpu_ms, host_ms = (times[f"{name}_time_ms"] for name in ("iteration", "gpu", "host"))
    beside_ms = beside_others_ms(alone_ms, host_ms)
    changed = {**times, "iteration_time_ms": packed_ms(alone_ms, gpu_ms, host_ms, per_gpu)}
    for end, sign in (("low", -1.0), ("high", 1.0)):
        own_ms = times[f"{end}_ms"]
        slower = ratios["host"] * np.exp(sign * ratios.host_spread)
        by_host = np.log(beside_others_ms(alone_ms, host_ms, slower) / beside_ms)
        end_ms = beside_ms * np.exp(sign * np.hypot(np.log(own_ms / alone_ms), by_host))
        turns_ms = per_gpu * ratios["switches"] * np.exp(sign * spread) * times[f"gpu_{end}_ms"]
        changed[f"{end}_ms"] = np.where(per_gpu > 1, np.maximum(end_ms, turns_ms), own_ms)
    return changed


def packed_spread(gpu: Gpu) -> float:
    """Half width of the 90 % interval of ln of what switching costs on a GPU."""
    return ratios_of(ENTRY).spread_on(gpu)


def packed_reasons(gpu: Gpu, mode: Mode) -> tuple[Reason, ...]:
    """Reasons for caution about several trainings on a GPU: another GPU or another loop than those measured."""
    lacking = [] if ratios_of(ENTRY).measured_on(gpu) else [gpu.name]
    lacking += [word for word in (mode.framework, mode.capture) if word not in ("pytorch", "eager")]
    text = f"several trainings on one GPU were measured on H100 in PyTorch, not with {' or '.join(lacking)}"
    return (Reason("per_gpu", text),) if lacking else ()
