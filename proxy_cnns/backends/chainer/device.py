"""One NVIDIA GPU as Chainer uses it through CuPy: time without idle gaps, memory, refusals.

Chainer's iterations cannot be captured as a graph, so they are queued behind a kernel that waits until the
host has enqueued them.
"""

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from statistics import median
from typing import Any

from predictor.errors import BackendUnavailableError, SchemaError
from proxy_cnns.backends.base import refusing_failures
from proxy_cnns.configuration import Launches

_EMPTY_KERNELS = 200
_EMPTY_REPEATS = 5

_WAIT = r"""
extern "C" __global__ void wait_ns(unsigned long long ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < ns);
}
"""


class CupyDevice:
    """A GPU by its number; it becomes the current one.

    BackendUnavailableError if CuPy is not installed, or sees no such GPU.
    """

    def __init__(self, index: int) -> None:
        cupy = _cupy()
        runtime = cupy.cuda.runtime
        try:
            count = runtime.getDeviceCount()
        except runtime.CUDARuntimeError as error:
            raise BackendUnavailableError(f"CuPy finds no usable GPU: {error}. Give --device cpu.") from error
        if index >= count:
            raise BackendUnavailableError(f"there is no cuda:{index}: CuPy sees {count} GPUs.")
        cupy.cuda.Device(index).use()
        self.index = index
        self.properties: dict[str, Any] = runtime.getDeviceProperties(index)
        self._wait: Any = None

    def versions(self) -> dict[str, object]:
        """The driver's name of it, its size, and the libraries' versions."""
        cupy = _cupy()
        return {
            "gpu": self.properties["name"].decode(),
            "cupy": cupy.__version__,
            "cuda": str(cupy.cuda.runtime.runtimeGetVersion()),
            "cuda_of_driver": str(cupy.cuda.runtime.driverGetVersion()),
            "sm_count": int(self.properties["multiProcessorCount"]),
            "memory_mib": self.properties["totalGlobalMem"] / 2**20,
        }

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability."""
        return int(self.properties["major"]), int(self.properties["minor"])

    @property
    def cache_bytes(self) -> int:
        """Size of the L2 cache."""
        return int(self.properties["l2CacheSize"])

    def synchronise(self) -> None:
        """Wait until everything enqueued is done."""
        _cupy().cuda.Device(self.index).synchronize()

    def launches(self) -> Launches:
        """Time to enqueue one kernel on one number, in microseconds; None for graphs, which Chainer lacks."""
        number = _cupy().zeros(1, dtype="float32")
        times = []
        for _ in range(_EMPTY_REPEATS):
            self.synchronise()
            start = time.perf_counter()
            for _ in range(_EMPTY_KERNELS):
                number += 1
            times.append(time.perf_counter() - start)
        self.synchronise()
        return Launches(host_us=1e6 * median(times) / _EMPTY_KERNELS)

    def queued_time_ms(self, parts: Sequence[Callable[[], None]], wait_ms: float) -> float | None:
        """Time that the GPU takes for `parts`, enqueued one after the other while it waits.

        `parts`: each enqueues a piece of work. `wait_ms`: how long the GPU waits first. Gives None unless the host was
        ahead all the time: a part was enqueued to its end before the GPU came to its beginning, so the time holds no
        gap.
        """
        cupy = _cupy()
        self._wait = self._wait or cupy.RawKernel(_WAIT, "wait_ns")
        self._wait((1,), (1,), (cupy.uint64(int(wait_ms * 1e6)),))
        events, ahead = [_recorded_event()], True
        for enqueue in parts:
            enqueue()
            ahead = ahead and not events[-1].done
            events.append(_recorded_event())
        events[-1].synchronize()
        return float(cupy.cuda.get_elapsed_time(events[0], events[-1])) if ahead else None

    def peak_mib(self, run: Callable[[], None]) -> float:
        """Most memory of the pool that was in use while `run` ran, cuDNN's workspace included."""
        cupy = _cupy()

        class Peak(cupy.cuda.MemoryHook):  # type: ignore[misc,name-defined]
            name = "epochcast peak memory"
            used = most = cupy.get_default_memory_pool().used_bytes()

            def malloc_postprocess(self, **about: Any) -> None:
                self.used += about["mem_size"] * bool(about["mem_ptr"])
                self.most = max(self.most, self.used)

            def free_postprocess(self, **about: Any) -> None:
                self.used -= about["mem_size"]

        hook = Peak()
        with hook:
            run()
        return float(hook.most) / 2**20

    def used_mib(self) -> float:
        """Memory of the pool in use."""
        return float(_cupy().get_default_memory_pool().used_bytes()) / 2**20

    def tidy_if_needed(self) -> None:
        """Keep the pool: memory is given back when it is lacking."""

    def tidy(self) -> None:
        """Free all unused memory."""
        self.synchronise()
        gc.collect()
        _cupy().get_default_memory_pool().free_all_blocks()


def refusing(name: str) -> AbstractContextManager[None]:
    """Turn what Chainer, CuPy and a user's own chain raise into our errors.

    DeviceOutOfMemoryError for a lack of memory, SchemaError for the rest: Chainer's type checks raise anything.
    """
    return refusing_failures("Chainer", name, SchemaError, (Exception,))


def _recorded_event() -> Any:
    event = _cupy().cuda.Event()
    event.record()
    return event


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise BackendUnavailableError(
            "CuPy is not installed: pip install 'epochcast[cuda12]' (CUDA 12) or 'epochcast[cuda13]' (CUDA 13)"
        ) from error
    return cupy
