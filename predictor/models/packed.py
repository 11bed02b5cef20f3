"""Several trainings on one GPU, each a process of its own without MPS: their kernels take turns.

Where the GPU idles while a host enqueues, others use it, and none is slower. Where trainings ask for more than the GPU
has, all get the same share of its time, and switching between processes costs some. Where hosts and loaders ask for
more vCPUs than the machine has, they take turns on these. ``benchmarks/packed.py`` judges the law.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.models.forecast import Reason
from predictor.models.join import change_host
from predictor.models.ratios import ratios_of

ENTRY = "packed"


_ENDS = {0: ("iteration_time_ms", "gpu_time_ms"), -1: ("low_ms", "gpu_low_ms"), 1: ("high_ms", "gpu_high_ms")}


def turns_of_each(needs: Array) -> Array:
    """Times that its GPU time takes a training which waits for the GPU, beside others; at most their number.

    `needs`: share of the GPU's time, switches included, that each training on it asks for, in the first axis. All get
    equal shares; what one does not need, the others share.
    """
    rising = np.sort(needs, axis=0)
    before = np.cumsum(rising, axis=0) - rising
    waiting = np.arange(len(rising), 0, -1).reshape(-1, *[1] * (rising.ndim - 1))
    turns: Array = 1.0 / np.max((1.0 - before) / waiting, axis=0)
    return turns


def packed_times(
    times: Mapping[str, Array],
    per_gpu: NDArray[np.int64],
    per_vcpu: float | Array = 0.0,
    spread: float | Array = 0.0,
    neighbours: Sequence[Mapping[str, Array]] = (),
) -> dict[str, Array]:
    """Times of one of `per_gpu` trainings on a GPU from those of one by itself, by the same names, shape (n_rows,).

    The longer one of its own beside others, and turns x `switches` x GPU time. GPU and host time stay those of one;
    `shared_gpu_ms` is the GPU's, the turns of others included; `beside_` before a name: if the GPU had time for all.
    `neighbours` are times of the other trainings by themselves; without, all are equal. `spread`: half width of the
    90 % interval of ln of `switches`.
    """
    changed, together = dict(times), (times, *neighbours)
    for sign, (end, gpu_end) in _ENDS.items():
        own_ms = _beside_others_ms(times, per_vcpu, sign)
        # faster hosts of neighbours ask for more
        neighbours_ms = [_beside_others_ms(own, per_vcpu, -sign) for own in neighbours]
        turn_ms = [ratios_of(ENTRY)["switches"] * np.exp(sign * spread) * own[gpu_end] for own in together]
        turns = turns_of_each(np.divide(turn_ms, [own_ms, *neighbours_ms])) if neighbours else per_gpu
        changed["shared_gpu_ms"] = changed.get("shared_gpu_ms", turns * times["gpu_time_ms"])
        changed[f"beside_{end}"] = np.where(per_gpu > 1, own_ms, times[end])
        changed[end] = np.where(per_gpu > 1, np.maximum(own_ms, turns * turn_ms[0]), times[end])
    return changed


def _beside_others_ms(times: Mapping[str, Array], per_vcpu: float | Array, sign: int) -> Array:
    """Iteration, or the end of its interval, whose host works beside those of others, on a GPU with time for all.

    `per_vcpu`: hosts whose work, with that of their loaders, falls to each vCPU. A host then takes
    max(1, `host` x `per_vcpu`) times its own time (`change_host`).
    """
    law, alone_ms = ratios_of(ENTRY), times["iteration_time_ms"]
    host_ms = np.minimum(times["host_time_ms"], alone_ms)
    slower_ms = np.maximum(1.0, law["host"] * per_vcpu) * host_ms
    beside_ms, host_end_ms = (
        change_host(alone_ms, host_ms, np.exp(error) * slower_ms) for error in (0.0, sign * law.host_spread)
    )
    error: Array = np.hypot(np.log(times[_ENDS[sign][0]] / alone_ms), np.log(host_end_ms / beside_ms))
    return beside_ms * np.exp(sign * error)


def packed_reasons(gpu: Gpu, mode: Mode, per_vcpu: float) -> tuple[Reason, ...]:
    """Reasons for caution about several trainings on a GPU: other GPUs or loops than those measured, few vCPUs."""
    lacking = [] if ratios_of(ENTRY).measured_on(gpu) else [gpu.name]
    lacking += [word for word in (mode.framework, mode.capture) if word not in ("pytorch", "eager")]
    texts, needed = [], ratios_of(ENTRY)["host"] * per_vcpu
    if needed > 1:
        texts.append(f"hosts and loaders take turns on vCPUs: they need {needed:.3g} times as many")
    if lacking:
        names = " or ".join(lacking)
        texts.append(
            f"several trainings on one GPU were measured on H100 and H200 in PyTorch, not with {names}"
        )
    return tuple(Reason("per_gpu", text) for text in texts)
