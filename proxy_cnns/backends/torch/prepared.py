"""One configuration built with PyTorch: runs eagerly or as a captured graph, and is timed."""

from typing import Any

from predictor.errors import DeviceOutOfMemoryError, ProfilingError
from proxy_cnns.backends.base import PreparedProgram
from proxy_cnns.backends.torch.device import refusing
from proxy_cnns.backends.torch.kernels import convolution_kernels

_SAMPLE_MS = 0.3  # events are read to half a microsecond
_MOST_REPLAYS = 20


class TorchPrepared(PreparedProgram):
    """A program that is captured as a CUDA graph to be timed."""

    _graph: Any = None
    _replays = 0

    def capture(self) -> str | None:
        """Capture an iteration as a CUDA graph; the reason if that cannot be."""
        if self._gpu is None:
            return "a CPU has no CUDA graphs"
        try:
            self.synchronise()
            if self._whole:  # what eager iterations left cached, as a capture cannot give it back itself
                self._gpu.tidy()
            with refusing(self._what):
                self._graph = self._gpu.capture(self._open.enqueue)
        except DeviceOutOfMemoryError:
            return "captured as a graph, it does not fit in memory"
        except ProfilingError as error:
            return f"it cannot be captured as a graph: {error}"
        return None

    def gpu_times_ms(self, n: int) -> list[float] | None:
        """`n` times of one iteration in ms, in replays of the graph without a pause; None without a GPU or graph."""
        if self._gpu is None or self._graph is None:
            return None
        lead_ms = 2.0 if self._whole else 0.1
        if not self._replays:
            first = self._gpu.replay_times_ms(self._graph, 1, 1, lead_ms)[0]
            self._replays = max(1, min(_MOST_REPLAYS, round(_SAMPLE_MS / max(first, 1e-3))))
        times = self._gpu.replay_times_ms(self._graph, n, self._replays, lead_ms)
        return [time_ms / self.copies for time_ms in times]

    def conv_algorithms(self) -> str | None:
        """JSON of the kernels that each convolution ran in one eager iteration; None where that cannot be seen."""
        if self._gpu is None:
            return None
        try:
            with self._ready() as program:
                return convolution_kernels(program.enqueue)
        except ProfilingError:
            return None

    def _forget(self) -> None:
        self._graph = None
