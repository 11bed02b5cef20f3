"""Time one prepared configuration: warm up until it settles, repeat until the median is known, keep every repeat.

GPU time, host time and wall time are measured apart: where the host is the bottleneck they differ by up to
ten times, and only the first repeats.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from predictor.errors import DeviceOutOfMemoryError, SchemaError
from proxy_cnns.backends.protocol import Prepared
from proxy_cnns.order_statistics import FEWEST, median, median_uncertainty

__all__ = ["LIMITS", "Clock", "Limits", "Measured", "measure"]

_HOST_SAMPLES = 3  # enqueued copies of an operator: its host time counts less than what taking it costs

Clock = Callable[[], float]
"""Seconds since some fixed moment, such as `time.perf_counter`."""

_NO_GPU_TIME = "no GPU time"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much to measure of one configuration; the seconds bound each of warm-up, wall, GPU and host time.

    Repeating ends when the 95 % confidence interval of the median is within `uncertainty` (a fraction, to either
    side), else when the seconds are over, but not before `repeats_least`. An iteration above `longest_ms` is not
    measured.
    """

    warmup_s: float
    wall_s: float
    gpu_s: float
    host_s: float
    chunk_ms: float
    repeats_least: int
    repeats_most: int
    uncertainty: float = 0.01
    settled: float = 0.02
    longest_ms: float = 1000.0
    quick: bool = False


LIMITS = {
    "operator": Limits(0.02, 0.1, 0.02, 0.002, 2, FEWEST, 24, quick=True),
    "proxy": Limits(0.3, 0.4, 0.3, 0.1, 10, FEWEST, 30),
    "target": Limits(0.5, 0.7, 0.7, 0.3, 20, FEWEST, 30),
}
"""By kind of work. Of an operator on a GPU only GPU and host time are measured, in some milliseconds."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Every repeat of one configuration, in ms for each iteration, and what is to be said about them.

    A wall time is the mean of a chunk of `chunk` iterations that end in one synchronisation.
    """

    iteration_times_ms: tuple[float, ...]
    gpu_times_ms: tuple[float, ...] | None
    host_times_ms: tuple[float, ...]
    peak_memory_mib: float | None
    conv_algorithms: str | None
    n_warmup: int
    chunk: int
    notes: tuple[str, ...]

    @property
    def times_ms(self) -> tuple[float, ...]:
        """Repeats of the time that tells most: of the GPU where it could be timed alone."""
        return self.gpu_times_ms or self.iteration_times_ms


def measure(
    prepared: Prepared, clock: Clock, limits: Limits, *, on_gpu: bool, captured: bool = False
) -> Measured | None:
    """Measure a configuration that has run once.

    Parameters
    ----------
    prepared : Prepared
    clock : callable
        Seconds; `time.perf_counter` outside tests.
    limits : Limits
    on_gpu : bool
        Whether there is GPU time apart from host time.
    captured : bool
        Whether the iteration is trained as a captured graph: its wall time is then that of replays, which follow
        each other without a pause, and the host has next to nothing to do.

    Returns
    -------
    Measured
        None if one iteration takes longer than `limits.longest_ms`.

    Raises
    ------
    DeviceOutOfMemoryError
        If an iteration does not fit in the device's memory.
    SchemaError
        If it is to be captured and cannot be.
    """
    if captured:
        return _as_captured(_measure(prepared, clock, limits, on_gpu=on_gpu))
    return _measure(prepared, clock, limits, on_gpu=on_gpu)


def _measure(prepared: Prepared, clock: Clock, limits: Limits, *, on_gpu: bool) -> Measured | None:
    if limits.quick and on_gpu:
        return _operator_on_gpu(prepared, clock, limits)
    peak = prepared.peak_memory_mib()
    if _wall_ms(prepared, clock, 1) > limits.longest_ms:
        return None
    chunk, n_warmup, settled = _warm_up(prepared, clock, limits)
    notes = [] if settled else ["wall time did not settle in the warm-up"]
    wall = _repeat(lambda: [_wall_ms(prepared, clock, chunk)], clock, limits, limits.wall_s)
    host: list[float] = []
    gpu: list[float] | None = None
    if on_gpu:
        host = _host_times(prepared, clock, limits)
        gpu, reason = _gpu_times(prepared, clock, limits)
        notes += [reason] if reason else []
    notes += _uncertainty_notes(limits, {"wall": wall, "GPU": gpu})
    algorithms = None if limits.quick else prepared.conv_algorithms()
    return Measured(tuple(wall), _tuple(gpu), tuple(host), peak, algorithms, n_warmup, chunk, tuple(notes))


def _as_captured(measured: Measured | None) -> Measured | None:
    if measured is not None and measured.gpu_times_ms is None:
        why = [
            note for note in measured.notes if note.startswith(_NO_GPU_TIME)
        ]  # not how well a time is known
        reason = "; ".join(why) or "a CPU has no graphs"
        raise SchemaError(f"it cannot be captured as a graph: {reason}. Pass --capture eager.")
    if measured is None or measured.gpu_times_ms is None:
        return None
    notes = tuple(note for note in measured.notes if "wall time" not in note)
    return replace(measured, iteration_times_ms=measured.gpu_times_ms, host_times_ms=(), chunk=1, notes=notes)


def _operator_on_gpu(prepared: Prepared, clock: Clock, limits: Limits) -> Measured | None:
    """Time an operator by graph replays alone; without them, by wall time."""
    start, host = clock(), [prepared.host_time_ms(1)]
    while len(host) * prepared.copies < _HOST_SAMPLES and clock() - start < limits.host_s:
        host.append(prepared.host_time_ms(1))
    gpu, reason = _gpu_times(prepared, clock, limits)
    notes = [reason] if reason else []
    wall: list[float] = gpu or []
    if wall and median(wall) > limits.longest_ms:
        return None
    chunk, n_warmup = 1, 1
    if gpu is None:
        chunk, n_warmup, _ = _warm_up(prepared, clock, limits)
        wall = _repeat(lambda: [_wall_ms(prepared, clock, chunk)], clock, limits, limits.wall_s)
    notes += _uncertainty_notes(limits, {"GPU": gpu} if gpu else {"wall": wall})
    return Measured(tuple(wall), _tuple(gpu), tuple(host), None, None, n_warmup, chunk, tuple(notes))


def _gpu_times(prepared: Prepared, clock: Clock, limits: Limits) -> tuple[list[float] | None, str | None]:
    """GPU times, or why there are none."""
    try:
        reason = prepared.capture()
        first = prepared.gpu_times_ms(limits.repeats_least)
    except DeviceOutOfMemoryError:
        return None, f"{_NO_GPU_TIME}: the captured iteration does not fit in memory"
    if first is None:
        return None, f"{_NO_GPU_TIME}: {reason or 'the device has none'}"
    times = _repeat(lambda: prepared.gpu_times_ms(FEWEST) or [], clock, limits, limits.gpu_s, first)
    return times, f"no captured iteration: {reason}" if reason else None


def _host_times(prepared: Prepared, clock: Clock, limits: Limits) -> list[float]:
    """Enqueue times of single iterations, each on an empty queue."""
    return _repeat(lambda: [prepared.host_time_ms(1)], clock, limits, limits.host_s)


def _warm_up(prepared: Prepared, clock: Clock, limits: Limits) -> tuple[int, int, bool]:
    """Run until the median of three chunks is that of the three before: (chunk size, iterations, settled)."""
    first = _wall_ms(prepared, clock, 1)
    chunk = max(1, min(20, round(limits.chunk_ms / max(first * prepared.copies, 1e-6))))
    times, n, start = [first], 1, clock()
    while True:
        times.append(_wall_ms(prepared, clock, chunk))
        n += chunk
        if len(times) >= 6 and _agree(median(times[-3:]), median(times[-6:-3]), limits.settled):
            return chunk, n, True
        if clock() - start >= limits.warmup_s:
            return chunk, n, len(times) < 6 and _agree(times[-1], times[-2], 0.1)


def _agree(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * min(one, other)


def _wall_ms(prepared: Prepared, clock: Clock, n: int) -> float:
    """Wall time of one of `n` iterations that are waited for together."""
    prepared.synchronise()
    start = clock()
    prepared.run(n)
    prepared.synchronise()
    return 1000 * (clock() - start) / n / prepared.copies


def _repeat(
    take: Callable[[], list[float]],
    clock: Clock,
    limits: Limits,
    seconds: float,
    first: list[float] | None = None,
) -> list[float]:
    """Collect repeats until their median is known well enough, or the time or their number is over."""
    start, times = clock(), first or take()
    while len(times) < limits.repeats_most:
        enough = len(times) >= limits.repeats_least
        if enough and (clock() - start >= seconds or median_uncertainty(times) <= limits.uncertainty):
            break
        times += take()
    return times


def _uncertainty_notes(limits: Limits, times: dict[str, list[float] | None]) -> list[str]:
    spread = {name: median_uncertainty(each) for name, each in times.items() if each}
    return [
        f"{name} time's median known to {100 * value:.1f} % (95 % interval)"
        for name, value in spread.items()
        if value > limits.uncertainty
    ]


def _tuple(values: list[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values)
