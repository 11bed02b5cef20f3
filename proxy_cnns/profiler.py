"""Time one prepared configuration: warm up until it settles, repeat until the median is known, keep every repeat.

GPU time, host time and wall time are measured apart. Where the host is the bottleneck they differ by up to ten times,
and only the GPU time repeats from run to run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from predictor.errors import DeviceOutOfMemoryError, SchemaError
from proxy_cnns.configuration import Prepared

FEWEST = 6
"""With fewer repeats there is no 95 % interval: smallest and largest of five hold the median in 93.8 %."""

_HOST_SAMPLES = 3  # enqueued copies of an operator, whose host time matters less than the time of sampling it

Clock = Callable[[], float]
"""Seconds since some fixed moment, such as `time.perf_counter`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to measure one configuration; the seconds bound warm-up, wall time, GPU time and host time, each.

    Repeating ends when the 95 % confidence interval of the median is within `precision` (a fraction, to either
    side), else when the seconds are over, but not before `repeats_least`. Of host time
    `host_repeats_least` suffice. An iteration above `longest_ms` is not measured.
    """

    warmup_s: float
    wall_s: float
    gpu_s: float
    host_s: float
    chunk_ms: float
    repeats_least: int
    repeats_most: int
    precision: float = 0.01
    settled: float = 0.02
    longest_ms: float = 1000.0
    quick: bool = False
    host_repeats_least: int = FEWEST


LIMITS = {
    "operator": Limits(0.02, 0.1, 0.02, 0.002, 2, FEWEST, 24, quick=True),
    "proxy": Limits(0.3, 0.4, 0.3, 0.1, 10, FEWEST, 30),
    "target": Limits(0.5, 0.7, 0.7, 0.3, 20, FEWEST, 30),
    "all_reduce": Limits(0.1, 0.2, 0.0, 0.0, 20, FEWEST, 30),
}
"""By kind of subject. Of an operator on a GPU only GPU and host time are measured, in some milliseconds."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Every repeat of one configuration, in ms per iteration, and how it was measured.

    A wall time is the mean of a chunk of `chunk` iterations that end in one synchronisation. `settled` says whether
    the wall time settled in the warm-up, `uncaptured` why the iteration is not a captured graph (None: it is one, or
    there is no GPU), `compile_s` how many seconds compiling took.
    """

    iteration_times_ms: tuple[float, ...]
    gpu_times_ms: tuple[float, ...] | None
    host_times_ms: tuple[float, ...]
    peak_memory_mib: float | None = None
    conv_algorithms: str | None = None
    n_warmup: int = 1
    chunk: int = 1
    settled: bool = True
    uncaptured: str | None = None
    compile_s: float | None = None

    @property
    def times_ms(self) -> tuple[float, ...]:
        """Repeats of the GPU time, or of the wall time where there is no GPU time."""
        return self.gpu_times_ms or self.iteration_times_ms

    @property
    def precision(self) -> float | None:
        """Precision of the median of wall or GPU time, whichever is known less well; see `median_precision`."""
        times = [times_ms for times_ms in (self.iteration_times_ms, self.gpu_times_ms) if times_ms]
        precisions = [precision for precision in map(median_precision, times) if precision is not None]
        return max(precisions) if len(precisions) == len(times) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the column `notes`."""
        notes = () if self.settled else ("wall time did not settle in the warm-up",)
        if self.uncaptured is None:
            return notes
        lacking = "no captured iteration" if self.gpu_times_ms else "no GPU time"
        return (*notes, f"{lacking}: {self.uncaptured}")


def measure(
    prepared: Prepared, clock: Clock, limits: Limits, *, on_gpu: bool, captured: bool = False
) -> Measured | None:
    """Measure a configuration that has run once.

    `clock`: seconds; `time.perf_counter` outside tests. `on_gpu`: whether there is GPU time apart from host time.
    `captured`: whether the iteration is trained as a captured graph. Its wall time is then that of replays, which
    follow each other without a pause, and it has no host time. Gives None if one iteration takes longer than
    `limits.longest_ms`. DeviceOutOfMemoryError if an iteration does not fit in the device's memory; SchemaError if it
    is to be captured and cannot be.
    """
    measured = _measure(prepared, clock, limits, on_gpu=on_gpu)
    if not captured or measured is None:
        return measured
    if measured.gpu_times_ms is None:
        reason = measured.uncaptured or "a CPU has no graphs"
        raise SchemaError(f"it cannot be captured as a graph: {reason}. Pass --capture eager.")
    gpu_ms = measured.gpu_times_ms
    return replace(measured, iteration_times_ms=gpu_ms, host_times_ms=(), chunk=1, settled=True)


def median_precision(times_ms: Sequence[float]) -> float | None:
    """Half the width of the 95 % confidence interval of the median, as a fraction of the median.

    Gives None for fewer than `FEWEST` values, which have no such interval.

    Distribution-free interval between order statistics k and n + 1 - k, k the largest for which it holds the median
    with a probability of at least 95 % (David and Nagaraja, Order Statistics, section 7.1). Its ends are those of
    `scipy.stats.quantile_test`, which takes 0.7 ms for each call: operators are measured in a few milliseconds.
    """
    if len(times_ms) < FEWEST:
        return None
    ordered, rank = sorted(times_ms), _rank(len(times_ms))
    return float((ordered[-rank] - ordered[rank - 1]) / 2 / np.median(ordered))


@lru_cache(maxsize=1000)
def _rank(n: int) -> int:
    from scipy.stats import binom

    return int(binom.ppf(0.025, n, 0.5))


def _measure(prepared: Prepared, clock: Clock, limits: Limits, *, on_gpu: bool) -> Measured | None:
    if limits.quick and on_gpu:
        return _operator_on_gpu(prepared, clock, limits)
    peak = prepared.peak_memory_mib()
    if _wall_ms(prepared, clock, 1) > limits.longest_ms:
        return None
    chunk, n_warmup, settled = _warm_up(prepared, clock, limits)
    wall = _repeat(lambda: [_wall_ms(prepared, clock, chunk)], clock, limits, limits.wall_s)
    host: list[float] = []
    gpu, uncaptured = None, None
    if on_gpu:
        enough = replace(limits, repeats_least=limits.host_repeats_least)
        host = _repeat(lambda: [prepared.host_time_ms(1)], clock, enough, limits.host_s)
        gpu, uncaptured = _gpu_times(prepared, clock, limits)
    algorithms = None if limits.quick else prepared.conv_algorithms()
    times = (tuple(wall), None if gpu is None else tuple(gpu), tuple(host))
    return Measured(*times, peak, algorithms, n_warmup, chunk, settled, uncaptured, prepared.compile_s())


def _operator_on_gpu(prepared: Prepared, clock: Clock, limits: Limits) -> Measured | None:
    """Time an operator only by graph replays; without them, by wall time."""
    start, host = clock(), [prepared.host_time_ms(1)]
    while len(host) * prepared.copies < _HOST_SAMPLES and clock() - start < limits.host_s:
        host.append(prepared.host_time_ms(1))
    gpu, uncaptured = _gpu_times(prepared, clock, limits)
    if gpu is not None:
        if np.median(gpu) > limits.longest_ms:
            return None
        return Measured(tuple(gpu), tuple(gpu), tuple(host), uncaptured=uncaptured)
    chunk, n_warmup, _ = _warm_up(prepared, clock, limits)
    wall = _repeat(lambda: [_wall_ms(prepared, clock, chunk)], clock, limits, limits.wall_s)
    return Measured(tuple(wall), None, tuple(host), None, None, n_warmup, chunk, uncaptured=uncaptured)


def _gpu_times(prepared: Prepared, clock: Clock, limits: Limits) -> tuple[list[float] | None, str | None]:
    """GPU times, and why they are not those of a captured iteration."""
    try:
        reason = prepared.capture()
        first = prepared.gpu_times_ms(limits.repeats_least)
    except DeviceOutOfMemoryError:
        return None, "the captured iteration does not fit in memory"
    if first is None:
        return None, reason or "the device has none"
    return _repeat(lambda: prepared.gpu_times_ms(FEWEST) or [], clock, limits, limits.gpu_s, first), reason


def _warm_up(prepared: Prepared, clock: Clock, limits: Limits) -> tuple[int, int, bool]:
    """Run until the median of three chunks is that of the three before: (chunk size, iterations, settled)."""
    first = _wall_ms(prepared, clock, 1)
    chunk = max(1, min(20, round(limits.chunk_ms / max(first * prepared.copies, 1e-6))))
    times, n, start = [first], 1, clock()
    while True:
        times.append(_wall_ms(prepared, clock, chunk))
        n += chunk
        if len(times) >= 6:
            latest_ms, earlier_ms = float(np.median(times[-3:])), float(np.median(times[-6:-3]))
            if _agree(latest_ms, earlier_ms, limits.settled):
                return chunk, n, True
        if clock() - start >= limits.warmup_s:
            return chunk, n, len(times) < 6 and _agree(times[-1], times[-2], 0.1)


def _agree(time_ms: float, earlier_ms: float, tolerance: float) -> bool:
    return abs(time_ms - earlier_ms) <= tolerance * min(time_ms, earlier_ms)


def _wall_ms(prepared: Prepared, clock: Clock, n: int) -> float:
    """Wall time of one of `n` iterations that are waited for together."""
    prepared.synchronise()
    start = clock()
    prepared.run(n)
    prepared.synchronise()
    return 1000 * (clock() - start) / n / prepared.copies


def _repeat(
    take: Callable[[], list[float]], clock: Clock, limits: Limits, seconds: float, first: Sequence[float] = ()
) -> list[float]:
    """Collect repeats until their median is known well enough, or the time or their number is over."""
    start, times = clock(), list(first) or take()
    while len(times) < limits.repeats_most:
        if len(times) >= limits.repeats_least:
            precision = median_precision(times)
            if clock() - start >= seconds or (precision is not None and precision <= limits.precision):
                break
        times += take()
    return times
