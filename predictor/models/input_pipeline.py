"""Loading of images beside an iteration: workers load the next mini-batches while the GPUs train on this one.

So an iteration takes as long as the slower of the two; with 0 workers the training process itself loads, and the two
times add up. Beside workers the host takes longer to enqueue an iteration than without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.models.ratios import ratios_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def host_beside_workers() -> float:
    """Factor on the host's time to enqueue an iteration while workers load images beside it.

    Python's lock is shared with the threads that receive mini-batches and pin them, cores with the workers.
    """
    return ratios_of("loader")["host"]


def workers_start_s() -> float:
    """Seconds that workers take to start, at each pass over the data set, as a DataLoader's do by default."""
    return ratios_of("loader")["workers_s"]


def beside_workers(
    host_ms: Array, time_ms: Array, low_ms: Array, high_ms: Array
) -> tuple[Array, Array, Array]:
    """Iteration beside workers and its interval, from those without and the host's time.

    max(iteration, `host_beside_workers` x host's time), where the host's time has the relative interval of the
    iteration, joined in squares with the spread of the factor. An unknown (NaN) host's time changes nothing.
    """
    slowed, spread = host_beside_workers() * host_ms, ratios_of("loader").host_spread
    low, high = (np.hypot(np.log(end / time_ms), spread) for end in (low_ms, high_ms))
    slowed_ends = np.fmax(low_ms, slowed / np.exp(low)), np.fmax(high_ms, slowed * np.exp(high))
    return np.fmax(time_ms, slowed), *slowed_ends


@dataclass(frozen=True, slots=True)
class Feed:
    """Loading of a machine's GPUs, or of many machines' (`vcpus` is an array then); rates in samples per second.

    `per_worker` is the rate of one worker that nothing else holds up, `per_vcpu` that of each vCPU while all are busy,
    `reading` that of the source for the whole machine. `workers` are those of each GPU, None for as many as keep every
    vCPU busy. `vcpus` are those of the machine, within a factor of `vcpus_spread`: infinite where workers are not bound
    by them, NaN where loading is not counted. `measured` are the rates of one GPU's workers by their number, ascending,
    where they were measured together; they stand in place of the former. The 90 % interval of the rates
    is a factor of `spread`; rates of workers may also be `headroom` times higher.
    `decodes`: images are stored as JPEGs. `in_all`: rate of all workers of a machine, which they do not exceed.
    `machine_workers`: their number, where they are no whole number for each GPU; `workers` is None then.
    A worker whose machine is idle but for it is `alone` times as fast, less so the more vCPUs have a worker. `words`
    say where the rates are from.

    Batch sizes, times and numbers of GPUs are arrays that broadcast with `vcpus`.
    """

    per_worker: float
    per_vcpu: float
    workers: int | None
    vcpus: float | Array = math.inf
    reading: float = math.inf
    spread: float = 1.0
    measured: tuple[tuple[float, float], ...] = ()
    headroom: float = 1.0
    decodes: bool = False
    in_all: float = math.inf
    machine_workers: int | None = None
    alone: float = 1.0
    vcpus_spread: float | Array = 1.0
    words: str = ""

    @property
    def between(self) -> bool:
        """Whether the training process loads by itself, between iterations."""
        return self.workers == 0

    def at(self, machines: NDArray[np.int64]) -> Feed:
        """Feed of these machines, given by their indices in `vcpus`."""
        if isinstance(self.vcpus, float) or isinstance(self.vcpus_spread, float):
            return self
        return replace(self, vcpus=self.vcpus[machines], vcpus_spread=self.vcpus_spread[machines])

    def decoding_of_one(self, n_gpus: int | NDArray[np.int64]) -> Array:
        """Samples per second that are decoded for each of `n_gpus` GPUs of the machine."""
        workers = self._workers_of_one(n_gpus)
        if self.measured and workers is not None:
            return np.asarray(self._measured_of(workers))
        own: float | Array = math.inf
        if workers is not None:  # were there no bound for all; faster where vCPUs are idle
            at_least_one = np.where(workers > 0, workers, 1)
            busy = np.where(np.isinf(self.vcpus), 1.0, at_least_one * n_gpus / self.vcpus)
            own = at_least_one * self.per_worker * self.alone ** np.maximum(0.0, 1.0 - busy)
        in_all = np.minimum(self.in_all, self.vcpus * self.per_vcpu)
        shared: Array = np.minimum(own, in_all / np.asarray(n_gpus, dtype=float))
        return shared

    def _workers_of_one(self, n_gpus: int | NDArray[np.int64]) -> float | Array | None:
        """Workers of each of `n_gpus` GPUs of the machine; None for as many as keep every vCPU busy."""
        return self.workers if self.machine_workers is None else self.machine_workers / np.asarray(n_gpus)

    def first_mini_batch_s(self, local_batch_sizes: NDArray[Any], n_gpus: int | NDArray[np.int64]) -> Array:
        """Seconds in which workers begin and one of them loads the first mini-batch of a pass; 0 without workers.

        Unlike later mini-batches, nothing hides it: all workers begin together, with a mini-batch each. NaN where
        loading is not counted.
        """
        sizes = np.asarray(local_batch_sizes, dtype=float)
        if self.workers == 0:
            return np.zeros(sizes.shape)
        workers = self._workers_of_one(n_gpus)
        rate = self.per_vcpu if workers is None else self.decoding_of_one(n_gpus) / workers
        return np.where(np.isnan(self.vcpus), math.nan, workers_start_s() + sizes / rate)

    def loading(self, local_batch_sizes: NDArray[Any], n_gpus: int | NDArray[np.int64]) -> Loading:
        """Time to load each GPU's part of the mini-batches, while `n_gpus` of the machine work.

        local batch size / min(workers x rate of a worker, vCPUs x rate of a busy vCPU / n, rate of the source / n).
        What the interval of the vCPUs makes of it is joined with that of the rates in squares.
        """
        decoding, reading = self.decoding_of_one(n_gpus), self.reading / np.asarray(n_gpus, dtype=float)
        time_ms = 1000.0 * np.asarray(local_batch_sizes, dtype=float) / np.minimum(decoding, reading)
        rates, below = math.log(self.spread), np.where(reading < decoding, 1.0, self.headroom)
        factors = [np.full(time_ms.shape, self.spread)] * 2
        if np.any(self.vcpus_spread != 1.0):
            for end, power in enumerate((1.0, -1.0)):
                vcpus = self.vcpus * self.vcpus_spread**power
                changed = np.minimum(replace(self, vcpus=vcpus).decoding_of_one(n_gpus), reading)
                factors[end] = np.exp(np.hypot(rates, np.log(np.minimum(decoding, reading) / changed)))
        low_ms, high_ms = time_ms / factors[0] / below, time_ms * factors[1]
        return Loading(time_ms, low_ms, high_ms, reading < decoding, self.between)

    def workers_needed(self, local_batch_sizes: NDArray[Any], iteration_time_ms: Array) -> Array:
        """Workers of each GPU at which loading takes no longer than the iteration, a vCPU for each where they share.

        NaN where no measured number of workers is that fast, or the rate of one is not known.
        """
        if math.isinf(self.per_worker):
            return np.full(np.shape(iteration_time_ms), math.nan)
        needed = 1000.0 * np.asarray(local_batch_sizes, dtype=float) / np.asarray(iteration_time_ms)
        if self.measured:
            numbers = range(1, math.floor(self.measured[-1][0]) + 1)
            rates = [(n, self._measured_of(n)) for n in numbers]
            fewest = [next((n for n, rate in rates if rate >= least), math.nan) for least in needed.ravel()]
            return np.array(fewest, dtype=float).reshape(needed.shape)
        sharing = min(self.per_worker, self.per_vcpu)
        workers: Array = np.ceil(needed / np.where(np.isinf(self.vcpus), self.per_worker, sharing))
        return workers

    def _measured_of(self, workers: float | Array) -> Array:
        """Samples per second of `workers` workers of a GPU, linear between the measured numbers."""
        numbers, rates = zip(*self.measured, strict=True)
        return np.asarray(np.interp(workers, numbers, rates))


@dataclass(frozen=True, slots=True, eq=False)
class Loading:
    """Time to load the part of a mini-batch of one GPU, with its 90 % interval, in ms; NaN where it is not counted.

    `is_reading`: the source is what bounds it, not the decoding. `between` says that the training process loads between
    iterations.
    """

    time_ms: Array
    low_ms: Array
    high_ms: Array
    is_reading: NDArray[np.bool_]
    between: bool

    def joined_ms(self, time_ms: Array, low_ms: Array, high_ms: Array) -> tuple[Array, Array, Array]:
        """Iteration with loading and its interval, from those without."""
        if self.between:
            return time_ms + self.time_ms, low_ms + self.low_ms, high_ms + self.high_ms
        own = (time_ms, self.time_ms), (low_ms, self.low_ms), (high_ms, self.high_ms)
        time, low, high = (np.fmax(*pair) for pair in own)
        return time, low, high

    @property
    def ends_ms(self) -> tuple[Array, Array, Array]:
        """Estimate, lower and upper end."""
        return self.time_ms, self.low_ms, self.high_ms
