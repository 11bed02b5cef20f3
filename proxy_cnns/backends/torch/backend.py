"""The PyTorch backend: builds configurations on one device, and describes the device."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from predictor.cnns.torch_trace import import_torch
from predictor.errors import BackendUnavailableError, DeviceOutOfMemoryError, ProfilingError
from proxy_cnns.backends.base import FrameworkBackend, PreparedProgram, gpu_index
from proxy_cnns.backends.torch.device import CudaDevice, refusing
from proxy_cnns.backends.torch.modes import check_mode, switch_precision
from proxy_cnns.backends.torch.operators import operator_program
from proxy_cnns.backends.torch.training import training_program
from proxy_cnns.configuration import Configuration

_FORWARD, _BACKWARD = "aten::convolution", "aten::convolution_backward"
_LONGEST_NAME = 100


def convolution_kernels(enqueue: Callable[[], None]) -> str | None:
    """Which kernels convolutions ran, from one profiled iteration on a GPU, for the column `conv_algorithms`.

    Only where `EPOCHCAST_PROFILER=on` is in the environment: it needs CUPTI, which machines may deny, and a process
    that has profiled enqueues 1.3 to 1.5 times as slowly from then on (four CNNs on an H100).

    Gives JSON: ``<input>_<weight>_s<stride>`` (sizes, joined by x) -> pass -> its longest kernel; the passes are
    forward, backward_data and backward_filter, or ``backward`` where the kernels' names do not tell data from filter.
    None if the profiler saw nothing, or is not asked for.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    if os.environ.get("EPOCHCAST_PROFILER", "").casefold() not in ("on", "1", "yes"):
        return None
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as record:
            enqueue()
            torch.cuda.synchronize()
        events = record.events() or ()
    except (AttributeError, RuntimeError):  # no right to profile, or another profiler is attached
        return None
    passes_by_shape: dict[str, dict[str, str]] = {}
    for event in events:
        if event.name in (_FORWARD, _BACKWARD):
            kernels = list(_kernels(event))
            passes = _forward(kernels) if event.name == _FORWARD else _backward(kernels)
            passes_by_shape.setdefault(_shape(event), {}).update(passes)
    passes_by_shape = {shape: passes for shape, passes in passes_by_shape.items() if passes}
    return json.dumps(passes_by_shape, sort_keys=True) if passes_by_shape else None


def _kernels(event: Any) -> Iterator[Any]:
    yield from event.kernels
    for child in event.cpu_children:
        yield from _kernels(child)


def _forward(kernels: list[Any]) -> dict[str, str]:
    return {"forward": _longest(kernels)} if kernels else {}


def _backward(kernels: list[Any]) -> dict[str, str]:
    """By cuDNN's and CUTLASS's names: wgrad gives the filter's gradient, dgrad the data's."""
    filters = [kernel for kernel in kernels if "wgrad" in kernel.name.casefold()]
    data = [kernel for kernel in kernels if "dgrad" in kernel.name.casefold()]
    if not filters and not data:
        return {"backward": _longest(kernels)} if kernels else {}
    named = {"backward_data": data, "backward_filter": filters}
    return {name: _longest(of_pass) for name, of_pass in named.items() if of_pass}


def _longest(kernels: list[Any]) -> str:
    return str(max(kernels, key=lambda kernel: kernel.duration).name)[:_LONGEST_NAME]


def _shape(event: Any) -> str:
    first = 0 if event.name == _FORWARD else 1  # a backward's first argument is the incoming gradient
    sizes = ["x".join(map(str, input_shape)) for input_shape in event.input_shapes[first : first + 2]]
    concrete = getattr(event, "concrete_inputs", None) or ()
    stride = concrete[3 if event.name == _FORWARD else 4] if len(concrete) > 4 else None
    return "_".join([*sizes, *([f"s{'x'.join(map(str, stride))}"] if stride else [])])


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
