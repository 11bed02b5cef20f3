"""One NVIDIA GPU as PyTorch uses it: its stream, captured graphs and their memory, timing.

Thousands of operators are measured in a row, in some milliseconds each, so the stream, events and the memory of graphs
are reused.
"""

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from itertools import pairwise
from statistics import median
from typing import Any

from predictor.errors import ProfilingError
from proxy_cnns.backends.base import refusing_failures
from proxy_cnns.configuration import Launches

_TIDY_EVERY = 200  # graphs
_TIDY_SHARE = 0.4  # of the GPU's memory, kept for later
_EMPTY_KERNELS = 200  # on one number each: they do no work that takes time
_EMPTY_REPEATS = 5
_CYCLES_PER_MS = 1_900_000  # of the clock that a waiting kernel counts; needs no accuracy

_FAILURES = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""Errors that PyTorch raises, such as ValueError for a batch norm over one element; a user's own CNN may raise any."""


class CudaDevice:
    """A GPU by its number. Only one captured graph is alive at a time: the memory of graphs is shared."""

    def __init__(self, index: int) -> None:
        import torch

        torch.cuda.set_device(index)
        gc.collect()
        gc.freeze()  # PyTorch's own objects: a collection before every whole CNN then takes 10 ms, not 150
        self.index = index
        self.stream = torch.cuda.Stream(index)
        self.properties = torch.cuda.get_device_properties(index)
        self._anchor: Any = None  # a graph that keeps the graphs' memory pool alive
        self._n_captured = 0
        self._events: list[Any] = []
        self._empty: tuple[Callable[[], None], Any] | None = None

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability."""
        return self.properties.major, self.properties.minor

    def versions(self) -> dict[str, object]:
        """The driver's name of it, its size, and the libraries' versions."""
        import torch

        return {
            "gpu": self.properties.name,
            "cuda": torch.version.cuda,
            "cudnn": str(torch.backends.cudnn.version()),
            "sm_count": self.properties.multi_processor_count,
            "memory_mib": self.properties.total_memory / 2**20,
        }

    def synchronise(self) -> None:
        """Wait until everything enqueued on its stream is done."""
        self.stream.synchronize()

    @property
    def cache_bytes(self) -> int:
        """Size of the L2 cache."""
        return int(self.properties.L2_cache_size)

    def on_stream(self) -> AbstractContextManager[Any]:
        """Run what follows on the stream of this device."""
        import torch

        context: AbstractContextManager[Any] = torch.cuda.stream(self.stream)
        return context

    def capture(self, enqueue: Callable[[], None]) -> Any:
        """Capture what `enqueue` runs as a CUDA graph, and replay it once.

        The checks are PyTorch's own capture_begin and capture_end without the garbage collection and emptying
        of caches that `torch.cuda.graph` adds, which take longer than measuring an operator.
        """
        import torch

        if self._anchor is None:
            self._anchor = torch.cuda.CUDAGraph()
            self._record(self._anchor, lambda: torch.zeros(1, device="cuda"), None)
        graph = torch.cuda.CUDAGraph()
        self._n_captured += 1
        self._record(graph, enqueue, self._anchor.pool())
        with self.on_stream():
            graph.replay()
        return graph

    def _record(self, graph: Any, enqueue: Callable[[], Any], pool: Any) -> None:
        with self.on_stream():
            self.stream.synchronize()
            arguments = {} if pool is None else {"pool": pool}
            graph.capture_begin(capture_error_mode="thread_local", **arguments)
            try:
                enqueue()
            except BaseException:
                with suppress(RuntimeError):  # which PyTorch raises when such a capture ends
                    graph.capture_end()
                raise
            graph.capture_end()

    def replay_times_ms(self, graph: Any, n: int, replays: int, lead_ms: float) -> list[float]:
        """`n` times of one replay, each the mean of `replays` in a row.

        All replays are enqueued behind a kernel that waits `lead_ms`, so the GPU never waits for the host.
        """
        import torch

        while len(self._events) <= n:
            self._events.append(torch.cuda.Event(enable_timing=True))
        events = self._events[: n + 1]
        with self.on_stream():
            torch.cuda._sleep(int(lead_ms * _CYCLES_PER_MS))
            events[0].record(self.stream)
            for event in events[1:]:
                for _ in range(replays):
                    graph.replay()
                event.record(self.stream)
            events[-1].synchronize()
        return [first.elapsed_time(second) / replays for first, second in pairwise(events)]

    def launches(self) -> Launches:
        """Cost of a kernel on one number in microseconds: median of a few queues of them, and of a few graphs."""
        import torch

        if self._empty is None:  # what enqueues them, and their graph, which owns no memory and is kept
            number, graph = torch.zeros(1, device=f"cuda:{self.index}"), torch.cuda.CUDAGraph()

            def enqueue() -> None:
                for _ in range(_EMPTY_KERNELS):
                    number.add_(1)

            with self.on_stream():
                enqueue()
            self._record(graph, enqueue, None)
            self._empty = enqueue, graph
        enqueue_empty, graph = self._empty
        graph_ms = median(self.replay_times_ms(graph, _EMPTY_REPEATS, 1, 0.1))
        host_s = []
        for _ in range(_EMPTY_REPEATS):
            with self.on_stream():
                self.stream.synchronize()
                start = time.perf_counter()
                enqueue_empty()
                host_s.append(time.perf_counter() - start)
        return Launches(1e6 * median(host_s) / _EMPTY_KERNELS, 1000 * graph_ms / _EMPTY_KERNELS)

    def tidy_if_needed(self) -> None:
        """Free cached memory after many graphs, or when much is cached."""
        import torch

        kept = torch.cuda.memory_reserved(self.index)
        if self._n_captured >= _TIDY_EVERY or kept > _TIDY_SHARE * self.properties.total_memory:
            self.tidy()

    def tidy(self) -> None:
        """Free all unused memory, of graphs and cuBLAS as well; no graph may be alive."""
        import torch

        torch.cuda.synchronize(self.index)
        self._anchor = None
        self._n_captured = 0
        gc.collect()
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        torch.cuda.empty_cache()

    def used_mib(self) -> float:
        """Memory that tensors occupy, in MiB."""
        import torch

        return float(torch.cuda.memory_allocated(self.index)) / 2**20

    def peak_mib(self, run: Callable[[], None]) -> float:
        """Most memory that tensors occupied while `run` ran, in MiB."""
        import torch

        torch.cuda.synchronize(self.index)
        torch.cuda.reset_peak_memory_stats(self.index)
        run()
        torch.cuda.synchronize(self.index)
        return float(torch.cuda.max_memory_allocated(self.index)) / 2**20


def refusing(name: str) -> AbstractContextManager[None]:
    """Turn PyTorch's errors into ours: DeviceOutOfMemoryError for a lack of memory, ProfilingError for the rest."""
    return refusing_failures("PyTorch", name, ProfilingError, _FAILURES)
