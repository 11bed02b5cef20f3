"""The PyTorch backend: builds configurations on one device, and describes the device."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from predictor.cnns.torch_trace import import_torch
from predictor.errors import BackendUnavailableError, DeviceOutOfMemoryError, ProfilingError
from proxy_cnns.backends.base import FrameworkBackend, PreparedProgram, gpu_index
from proxy_cnns.backends.torch.device import CudaDevice, refusing
from proxy_cnns.backends.torch.kernels import convolution_kernels
from proxy_cnns.backends.torch.modes import check_mode, switch_precision
from proxy_cnns.backends.torch.operators import operator_program
from proxy_cnns.backends.torch.training import training_program
from proxy_cnns.configuration import Configuration

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


class TorchBackend(FrameworkBackend):
    """PyTorch on the CPU or on one GPU.

    `device`: ``cpu``, ``cuda`` or ``cuda:N``. BackendUnavailableError if PyTorch is not installed, or there is no such
    device.
    """

    framework = "pytorch"
    prepared = TorchPrepared
    check_mode = staticmethod(check_mode)
    training_program = staticmethod(training_program)
    operator_program = staticmethod(operator_program)
    switch = staticmethod(switch_precision)

    def __init__(self, device: str) -> None:
        torch = import_torch()
        index = gpu_index(device, "PyTorch")
        self._gpu: CudaDevice | None = None
        if index is not None:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            if index >= count:
                raise BackendUnavailableError(
                    f"there is no {device}: PyTorch {torch.__version__} sees {count} GPUs. Pass --device cpu, or "
                    "install a PyTorch built for your CUDA driver (https://pytorch.org/get-started)."
                )
            self._gpu = CudaDevice(index)
        self._device = "cpu" if self._gpu is None else f"cuda:{self._gpu.index}"

    @contextmanager
    def running(self, configuration: Configuration) -> Iterator[None]:
        """Run what follows on the device's stream, and turn PyTorch's errors into ours."""
        with refusing(configuration.words), nullcontext() if self._gpu is None else self._gpu.on_stream():
            yield

    def _libraries(self) -> dict[str, object]:
        torch = import_torch()
        return {"framework_version": str(torch.__version__), "torch_threads": torch.get_num_threads()}
