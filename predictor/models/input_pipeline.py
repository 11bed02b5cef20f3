"""What loading images adds to an iteration: workers load the next mini-batches while the GPUs train on this one.

So an iteration takes as long as the slower of the two; with 0 workers the training process itself loads, and the two
times add up. Beside workers the host takes longer to enqueue an iteration than alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from predictor.models.ratios import ratios_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["BOTTLENECKS", "Feed", "Loading", "beside_workers", "host_beside_workers"]

BOTTLENECKS = ("gpu", "host", "loading", "reading")
"""What an iteration waits for: the GPU, the host that enqueues its kernels, workers that decode images, or the source
that images are read from."""


def host_beside_workers() -> float:
    """Times as long as alone that the host takes to enqueue an iteration beside workers.

    Python's lock is shared with the threads that receive mini-batches and pin them, cores with the workers.
    """
    return ratios_of("loader")["host"]


def beside_workers(
    host_ms: Array, time_ms: Array, low_ms: Array, high_ms: Array
) -> tuple[Array, Array, Array]:
    """Iteration beside workers and its interval, from those without and the host's time.

    Notes
    -----
    max(iteration, `host_beside_workers` x host's time), where the host's time has the relative interval of the
    iteration, joined in squares with the spread of the factor. An unknown (NaN) host's time changes nothing.
    """
    slowed, spread = host_beside_workers() * host_ms, ratios_of("loader").host_spread
    low, high = (np.hypot(np.log(end / time_ms), spread) for end in (low_ms, high_ms))
    return (
        np.fmax(time_ms, slowed),
        np.fmax(low_ms, slowed / np.exp(low)),
        np.fmax(high_ms, slowed * np.exp(high)),
    )


@dataclass(frozen=True, slots=True)
class Feed:
    """What feeds the GPUs of one machine; rates in samples per second.

    `per_worker` is the rate of one worker that nothing else holds up, `per_vcpu` that of each vCPU while all are busy,
    `reading` that of the source for the whole machine. `workers` are those of each GPU, None for as many as keep every
    vCPU busy. `vcpus` are those of the machine, None where workers are not bound by them. `measured` are the rates of
    one GPU's workers by their number, in ascending order, where they were measured together; they stand in place of the
    former. The true rates are meant to lie within a factor of `spread` nine times out of ten; those of workers may be
    `headroom` times higher beside.
    """

    per_worker: float
    per_vcpu: float
    workers: int | None
    vcpus: float | None
    reading: float = math.inf
    spread: float = 1.0
    measured: tuple[tuple[float, float], ...] = ()
    headroom: float = 1.0

    @property
    def between(self) -> bool:
        """Whether the training process loads by itself, between iterations."""
        return self.workers == 0

    def decoding_of_one(self, n_gpus: int) -> float:
        """Samples per second that are decoded for each of `n_gpus` GPUs of the machine."""
        if self.measured and self.workers is not None:
            return self._measured_of(self.workers)
        own = math.inf if self.workers is None else max(1, self.workers) * self.per_worker
        shared = math.inf if self.vcpus is None else self.vcpus * self.per_vcpu / n_gpus
        return min(own, shared)

    def first_mini_batch_s(self, local_batch_sizes: Array, n_gpus: int) -> Array:
        """Seconds in which one of the workers loads the first mini-batch; 0 where no workers do.

        Unlike later mini-batches, nothing hides it: all workers begin together, with a mini-batch each.
        """
        if self.between:
            return np.zeros(len(local_batch_sizes))
        rate = self.per_vcpu if self.workers is None else self.decoding_of_one(n_gpus) / self.workers
        return np.asarray(local_batch_sizes, dtype=float) / rate

    def loading(self, local_batch_sizes: Array, n_gpus: int) -> Loading:
        """Time to load each GPU's part of the mini-batches, while `n_gpus` of the machine work.

        Notes
        -----
        local batch size / min(workers x rate of a worker, vCPUs x rate of a busy vCPU / n, rate of the source / n).
        """
        decoding, reading = self.decoding_of_one(n_gpus), self.reading / n_gpus
        time_ms = 1000.0 * np.asarray(local_batch_sizes, dtype=float) / min(decoding, reading)
        name = "reading" if reading < decoding else "loading"
        low_ms = time_ms / self.spread / (self.headroom if name == "loading" else 1.0)
        return Loading(time_ms, low_ms, time_ms * self.spread, name, self.between)

    def workers_needed(self, local_batch_size: float, iteration_time_ms: float) -> int | None:
        """Workers of each GPU at which loading takes no longer than the iteration, a vCPU for each where they share.

        None where no measured number of workers is that fast.
        """
        if self.measured:
            asked = 1000.0 * local_batch_size / iteration_time_ms
            numbers = range(1, math.floor(self.measured[-1][0]) + 1)
            return next((n for n in numbers if self._measured_of(n) >= asked), None)
        rate = self.per_worker if self.vcpus is None else min(self.per_worker, self.per_vcpu)
        return math.ceil(1000.0 * local_batch_size / iteration_time_ms / rate)

    def _measured_of(self, workers: int) -> float:
        """Samples per second of so many workers of a GPU, linear between the measured numbers."""
        numbers, rates = zip(*self.measured, strict=True)
        return float(np.interp(workers, numbers, rates))


@dataclass(frozen=True, slots=True, eq=False)
class Loading:
    """Time to load the part of a mini-batch of one GPU, with its 90 % interval, in ms; `name` as of `BOTTLENECKS`.

    `between` says that the training process loads between iterations.
    """

    time_ms: Array
    low_ms: Array
    high_ms: Array
    name: str
    between: bool

    def joined_ms(self, time_ms: Array, low_ms: Array, high_ms: Array) -> tuple[Array, Array, Array]:
        """Iteration with loading and its interval, from those without."""
        if self.between:
            return time_ms + self.time_ms, low_ms + self.low_ms, high_ms + self.high_ms
        own = (time_ms, self.time_ms), (low_ms, self.low_ms), (high_ms, self.high_ms)
        time, low, high = (np.maximum(*pair) for pair in own)
        return time, low, high

    @property
    def ends_ms(self) -> tuple[Array, Array, Array]:
        """Estimate, lower and upper end."""
        return self.time_ms, self.low_ms, self.high_ms
