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


def beside_others_ms(
    alone_ms: Array, host_ms: Array, per_vcpu: float | Array = 1.0, error: float = 0.0
) -> Array:
    """Iteration of a training, in ms, whose host works beside those of others, on a GPU that has time for all.

    The host's time grows by the factor `host` x e^`error`, and where there are several trainings `per_vcpu` of the
    machine by their number (`change_host`).
    """
    before_ms = np.minimum(host_ms, alone_ms)
    slower = ratios_of(ENTRY)["host"] * np.exp(error) * np.maximum(1.0, per_vcpu)
    return change_host(alone_ms, before_ms, slower * before_ms)


def packed_ms(
    alone_ms: Array, gpu_ms: Array, host_ms: Array, per_gpu: NDArray[np.int64], per_vcpu: float | Array = 1.0
) -> Array:
    """Iteration of one of `per_gpu` equal trainings on a GPU, in ms, from its own times; of one it is `alone_ms`.

    max(`beside_others_ms`, per_gpu x `switches` x GPU time). Unlike trainings get equal shares of the GPU's time, too;
    what one does not need, the others share.
    """
    beside_ms = beside_others_ms(alone_ms, host_ms, per_vcpu)
    shared = np.maximum(beside_ms, per_gpu * ratios_of(ENTRY)["switches"] * gpu_ms)
    return np.where(per_gpu > 1, shared, alone_ms)


def packed_times(
    times: Mapping[str, Array], per_gpu: NDArray[np.int64], per_vcpu: Array, spread: Array
) -> dict[str, Array]:
    """Times of one of `per_gpu` equal trainings on a GPU from those of one by itself, by the same names.

    All of shape (n_rows,). GPU and host time stay those of one. `spread`: half width of the 90 % interval of ln of
    `switches`. Each end is the longer one of host and GPU, as the estimate is.
    """
    ratios = ratios_of(ENTRY)
    alone_ms, gpu_ms, host_ms = (times[f"{name}_time_ms"] for name in ("iteration", "gpu", "host"))
    beside_ms = beside_others_ms(alone_ms, host_ms, per_vcpu)
    changed = {**times, "iteration_time_ms": packed_ms(alone_ms, gpu_ms, host_ms, per_gpu, per_vcpu)}
    for end, sign in (("low", -1.0), ("high", 1.0)):
        own_ms = times[f"{end}_ms"]
        by_host = np.log(beside_others_ms(alone_ms, host_ms, per_vcpu, sign * ratios.host_spread) / beside_ms)
        end_ms = beside_ms * np.exp(sign * np.hypot(np.log(own_ms / alone_ms), by_host))
        turns_ms = per_gpu * ratios["switches"] * np.exp(sign * spread) * times[f"gpu_{end}_ms"]
        changed[f"{end}_ms"] = np.where(per_gpu > 1, np.maximum(end_ms, turns_ms), own_ms)
    return changed


def packed_reasons(gpu: Gpu, mode: Mode, per_vcpu: float) -> tuple[Reason, ...]:
    """Reasons for caution about several trainings on a GPU: other GPUs or loops than those measured, few vCPUs."""
    lacking = [] if ratios_of(ENTRY).measured_on(gpu) else [gpu.name]
    lacking += [word for word in (mode.framework, mode.capture) if word not in ("pytorch", "eager")]
    texts = [f"{per_vcpu:.3g} trainings share each vCPU: their hosts take turns"] * int(per_vcpu > 1)
    if lacking:
        names = " or ".join(lacking)
        texts.append(f"several trainings on one GPU were measured on H100 in PyTorch, not with {names}")
    return tuple(Reason("per_gpu", text) for text in texts)
