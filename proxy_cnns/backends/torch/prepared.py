"""One configuration built with PyTorch: runs eagerly or as a captured graph, and is timed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from predictor.errors import DeviceOutOfMemoryError, ProfilingError
from proxy_cnns.backends.common import mean_host_ms
from proxy_cnns.backends.torch.device import CudaDevice, refusing
from proxy_cnns.backends.torch.kernels import convolution_kernels
from proxy_cnns.backends.torch.training import Program

__all__ = ["TorchPrepared"]

_SAMPLE_MS = 0.3  # events are read to half a microsecond
_MOST_REPLAYS = 20


class TorchPrepared:
    """A program on a device; see `proxy_cnns.backends.protocol.Prepared`.

    Parameters
    ----------
    program : Program
        Has run once.
    gpu : CudaDevice or None
        None: the CPU.
    what : str
        Name for messages.
    whole : bool
        Whether it is a whole CNN, which is given all of the device's memory.
    peak_memory_mib : float or None
        As measured before anything was captured.
    """

    def __init__(
        self, program: Program, gpu: CudaDevice | None, what: str, whole: bool, peak_memory_mib: float | None
    ) -> None:
        self.copies = program.copies
        self._program: Program | None = program
        self._gpu = gpu
        self._what = what
        self._whole = whole
        self._peak_memory_mib = peak_memory_mib
        self._graph: Any = None
        self._replays = 0

    def run(self, n: int) -> None:
        """Enqueue `n` iterations eagerly, as they are trained."""
        self._repeat(self._running.iterate, n)

    def synchronise(self) -> None:
        """Wait for the device."""
        if self._gpu is not None:
            with refusing(self._what):
                self._gpu.stream.synchronize()

    def capture(self) -> str | None:
        """Capture an iteration as a CUDA graph; the reason if that cannot be."""
        if self._gpu is None:
            return "a CPU has no CUDA graphs"
        try:
            self._graph = self._captured(self._gpu)
        except DeviceOutOfMemoryError:
            return "captured as a graph, it does not fit in memory"
        except ProfilingError as error:
            return f"it cannot be captured as a graph: {error}"
        return None

    def gpu_times_ms(self, n: int) -> list[float] | None:
        """Times of one iteration in replays of the graph that follow each other without a pause."""
        if self._gpu is None or self._graph is None:
            return None
        lead_ms = 2.0 if self._whole else 0.1
        if not self._replays:
            first = self._gpu.replay_times_ms(self._graph, 1, 1, lead_ms)[0]
            self._replays = max(1, min(_MOST_REPLAYS, round(_SAMPLE_MS / max(first, 1e-3))))
        times = self._gpu.replay_times_ms(self._graph, n, self._replays, lead_ms)
        return [each / self.copies for each in times]

    def host_time_ms(self, n: int) -> float:
        """Time to enqueue one iteration, each on an empty queue; on a CPU, to run it."""
        return mean_host_ms(self.synchronise, self._ready, n) / self.copies

    def peak_memory_mib(self) -> float | None:
        """Most memory that tensors occupied in an eager iteration of a whole CNN."""
        return self._peak_memory_mib

    def compile_s(self) -> float | None:
        """Time of the first iteration of a CNN that it compiled; None of any other."""
        return self._running.compile_s()

    def conv_algorithms(self) -> str | None:
        """JSON of the kernels that each convolution ran in one eager iteration; None where that cannot be seen."""
        if self._gpu is None:
            return None
        try:
            with refusing(self._what), self._on_stream():
                return convolution_kernels(self._running.enqueue)
        except ProfilingError:
            return None

    def close(self) -> None:
        """Free everything; a whole CNN's memory is returned at once, operators' is reused."""
        if self._program is None:
            return
        self._program.release()
        self._program = self._graph = None
        if self._gpu is not None and self._whole:
            self._gpu.tidy()

    @property
    def _running(self) -> Program:
        if self._program is None:
            raise ProfilingError(f"{self._what} is closed: prepare it again.")
        return self._program

    def _captured(self, gpu: CudaDevice) -> Any:
        """Capture; what eager iterations left cached is given back before, as a capture cannot do that itself."""
        self.synchronise()
        if self._whole:
            gpu.tidy()
        enqueue = self._running.enqueue
        with refusing(self._what):
            return gpu.capture(enqueue)

    def _repeat(self, iterate: Callable[[], None], n: int) -> None:
        with refusing(self._what), self._on_stream():
            for _ in range(n):
                iterate()

    @contextmanager
    def _ready(self) -> Iterator[Callable[[], None]]:
        with self._on_stream():
            yield self._running.enqueue

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._gpu is None else self._gpu.on_stream()
