"""Measure a host: what enqueuing training iterations of a few small CNNs costs, per framework and mode.

On a CPU nothing is enqueued; there one iteration of a tiny CNN is run, whose time is the framework's own.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import numpy as np

from predictor.catalogue.devices import find_gpu, precisions_of
from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import proxy_table
from predictor.errors import BackendUnavailableError
from predictor.measurements.hosts import DISPATCHED, HOST_BATCH_SIZE, HOST_CNNS, HostMeasurement, HostTime
from predictor.measurements.table import canonical_gpu_name
from proxy_cnns.backends import BACKENDS, load_backend
from proxy_cnns.configuration import Backend, Configuration, Subject, mode_of
from proxy_cnns.device import host_name
from proxy_cnns.modes import measurable_modes
from proxy_cnns.profiler import FEWEST, Clock, median_precision
from proxy_cnns.user_cnns import target_subject

HOST_MODES = tuple(map(mode_of, ("fp32", "tf32", "amp_bf16", "amp_fp16", "amp_bf16/channels_last")))
"""Modes in which a host is measured, where framework and GPU have them."""

_SECONDS = 0.3  # of repeats of one CNN in one mode
_PRECISION = 0.01
_WARM_UP = 3
_ROUNDS = 2  # apart in time: hosts change from one second to the next


def measure_host(
    frameworks: Sequence[str] = (), device: str | None = None, clock: Clock = time.perf_counter
) -> HostMeasurement:
    """Measure this machine's host twice, in about ten seconds.

    `frameworks`: all that are installed if there are none given. `device`: ``cuda:N``, or ``cpu`` where the GPU is not
    to be used; without it a GPU where a framework sees one. BackendUnavailableError if a framework of `frameworks`, or
    the device, is missing; or no framework is installed.
    """
    times: list[HostTime] = []
    versions: dict[str, str] = {}
    gpu, host_us, graph_us = None, None, None
    for framework, backend in _backends(frameworks, device):
        about = backend.environment()
        versions[framework] = str(about.get("framework_version"))
        name = canonical_gpu_name(str(about["gpu"]))
        on_gpu = not name.startswith("cpu:")
        if on_gpu:
            gpu, launches = name, backend.launches()
            host_us, graph_us = host_us or launches.host_us, graph_us or launches.graph_us
            able = precisions_of(find_gpu(name))
            modes = [replace(mode, framework=framework) for mode in HOST_MODES if mode.precision in able]
            modes = measurable_modes(modes, "cuda:0", precision_asked=False, format_asked=False)
            subjects = list(map(zoo_subject, HOST_CNNS))
            rounds = [enqueue_times(backend, modes, subjects, True, clock) for _ in range(_ROUNDS)]
            times += map(_of_rounds, *rounds)
            backend = load_backend(framework, "cpu")
        cnn, size = DISPATCHED
        tiny = Subject("proxy", cnn, size, proxy_table(cnn))
        times += enqueue_times(backend, [Mode(framework=framework)], [tiny], False, clock)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return HostMeasurement(host_name(), tuple(times), gpu, host_us, graph_us, versions, now)


def enqueue_times(
    backend: Backend, modes: Iterable[Mode], subjects: Iterable[Subject], on_gpu: bool, clock: Clock
) -> list[HostTime]:
    """Enqueue times of whole CNNs in eager modes, autotuning aside."""
    device, host_times = "gpu" if on_gpu else "cpu", []
    eager = dict.fromkeys(replace(mode, capture="eager", autotune=False) for mode in modes)
    for mode, subject in product(eager, subjects):
        with closing(backend.prepare(Configuration(subject, mode, HOST_BATCH_SIZE))) as prepared:
            prepared.run(_WARM_UP)
            prepared.synchronise()
            start, times = clock(), [prepared.host_time_ms(1) for _ in range(FEWEST)]
            while clock() - start < _SECONDS and _spread(times) > _PRECISION:
                times.append(prepared.host_time_ms(1))
        about = (mode.framework, device, mode.precision, mode.memory_format, subject.name, subject.image_size)
        host_times.append(HostTime(*about, float(f"{np.median(times):.6g}"), round(_spread(times), 4)))
    return host_times


def _of_rounds(*rounds: HostTime) -> HostTime:
    """Geometric mean of a configuration's rounds; its spread is the largest of theirs and of that between them."""
    times_ms = [host_time.host_time_ms for host_time in rounds]
    between = np.log(max(times_ms) / min(times_ms)) / 2
    return replace(
        rounds[0],
        host_time_ms=float(f"{np.exp(np.mean(np.log(times_ms))):.6g}"),
        spread=round(max(between, *(host_time.spread or 0.0 for host_time in rounds)), 4),
    )


def _spread(times: Sequence[float]) -> float:
    """Half width of the 95 % interval of the median of at least `FEWEST` times, as a fraction."""
    precision = median_precision(times)
    assert precision is not None  # noqa: S101 - for the type checker: there are enough times
    return precision


def _backends(frameworks: Sequence[str], device: str | None) -> Iterator[tuple[str, Backend]]:
    """Backends of these frameworks on the device; without names, of all frameworks that are installed."""
    is_any_installed = False
    for framework in frameworks or BACKENDS:
        try:
            try:
                backend = load_backend(framework, "cuda:0" if device is None else device)
            except BackendUnavailableError:
                if device is not None:
                    raise
                backend = load_backend(framework, "cpu")
            yield framework, backend
            is_any_installed = True
        except BackendUnavailableError:
            if frameworks:
                raise
    if not is_any_installed:
        raise BackendUnavailableError(
            f"none of {', '.join(BACKENDS)} is installed: pip install 'epochcast[torch]', then repeat."
        )


def zoo_subject(cnn: tuple[str, int]) -> Subject:
    """A whole CNN of the zoo, by its name and image size."""
    return target_subject(f"{cnn[0]}@{cnn[1]}")
