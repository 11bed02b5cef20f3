"""The Chainer backend: builds configurations on one device, and describes the device.

On a CPU NumPy computes, on a GPU CuPy, with cuDNN where it is installed (not with `EPOCHCAST_CUDNN=off`; then a
convolution is im2col and a matrix product, batch norm and pooling are CuPy's kernels).
`EPOCHCAST_WORKSPACE_MIB` limits the workspace of an algorithm, 8 MiB unless given, as in Chainer.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.cnns.chainer_compat import install
from predictor.errors import BackendUnavailableError, NoisyMeasurementError, SchemaError
from proxy_cnns.backends.base import FrameworkBackend, PreparedProgram, Program, gpu_index
from proxy_cnns.backends.chainer.cudnn.functions import CudnnFunctions, enable
from proxy_cnns.backends.chainer.cudnn.library import open_cudnn
from proxy_cnns.backends.chainer.cudnn.plans import CudnnPlans, CupyMemory, algorithms_json
from proxy_cnns.backends.chainer.device import CupyDevice, refusing
from proxy_cnns.backends.chainer.modes import check_mode, configured, multiply_as_tf32
from proxy_cnns.backends.chainer.operators import operator_program
from proxy_cnns.backends.chainer.training import training_program
from proxy_cnns.configuration import Configuration

_SAMPLE_MS = 0.3  # events are read to half a microsecond
_MOST_ROUNDS = 20
_FEWEST_WAIT_MS = 0.2
_WAITS = (1.5, 3.0, 6.0, 12.0)  # times the enqueue time
_MOST_ATTEMPTS = 30
_NO_GRAPH = "Chainer cannot be captured as a CUDA graph"


class ChainerPrepared(PreparedProgram):
    """A program that is queued behind a waiting kernel to be timed.

    The backend's plans hold only the choices of this configuration; None: convolutions without cuDNN.
    """

    def __init__(self, backend: Any, *arguments: Any) -> None:
        super().__init__(backend, *arguments)
        self._plans: CudnnPlans | None = backend._plans
        self._rounds = 1
        self._wait_ms: float | None = None

    def capture(self) -> str | None:
        """Find and keep how long the GPU waits for the host to be ahead; gives the reason for no graph, always."""
        if self._gpu is None:
            return "a CPU has no CUDA graphs"
        host_ms = self.host_time_ms(3) * self.copies
        first = self._queued_ms(self._gpu, 1, max(_FEWEST_WAIT_MS, 3 * host_ms)) or host_ms
        # as many iterations in one sample as make it long against an event's resolution, or else one
        most = max(1, min(_MOST_ROUNDS, round(_SAMPLE_MS / max(first, 1e-3))))
        for rounds in dict.fromkeys((most, 1)):
            for factor in _WAITS:
                wait_ms = max(_FEWEST_WAIT_MS, factor * host_ms * rounds)
                if self._queued_ms(self._gpu, rounds, wait_ms) is not None:
                    self._rounds, self._wait_ms = rounds, wait_ms
                    return f"{_NO_GRAPH}: timed while queued behind a waiting kernel"
        return f"{_NO_GRAPH}, and an iteration has more kernels than can be queued ahead of the GPU"

    def gpu_times_ms(self, n: int) -> list[float] | None:
        """Times of one iteration that the host enqueued ahead of the GPU."""
        if self._gpu is None or self._wait_ms is None:
            return None
        return [self._gpu_time_ms(self._gpu, self._wait_ms) for _ in range(n)]

    def conv_algorithms(self) -> str | None:
        """JSON of the algorithms that cuDNN runs each convolution with; None without cuDNN."""
        return None if self._plans is None else algorithms_json(self._plans.choices())

    def _forget(self) -> None:
        if self._plans is not None:
            self._plans.forget()

    def _queued_ms(self, gpu: CupyDevice, rounds: int, wait_ms: float) -> float | None:
        self.synchronise()
        with self._ready() as program:
            parts: list[Callable[[], None]] = [*program.parts] * rounds
            return gpu.queued_time_ms(parts, wait_ms)

    def _gpu_time_ms(self, gpu: CupyDevice, wait_ms: float) -> float:
        """One sample; repeated where something held the host up, with ever longer waits."""
        for attempt in range(_MOST_ATTEMPTS):
            total = self._queued_ms(gpu, self._rounds, wait_ms * (1 + attempt / 5))
            if total is not None:
                return total / self._rounds / self.copies
        raise NoisyMeasurementError(
            f"the host fell behind the GPU {_MOST_ATTEMPTS} times while {self._what} was enqueued, though it was ahead "
            "before: something else keeps its processors busy. Repeat when nothing else runs."
        )


class ChainerBackend(FrameworkBackend):
    """Chainer on the CPU (NumPy) or on one GPU (CuPy).

    `device`: ``cpu``, ``cuda`` or ``cuda:N``. BackendUnavailableError if Chainer or CuPy is not installed, or there is
    no such device; SchemaError if `EPOCHCAST_WORKSPACE_MIB` is no number.
    """

    framework = "chainer"
    prepared = ChainerPrepared
    check_mode = staticmethod(check_mode)
    training_program = staticmethod(training_program)
    operator_program = staticmethod(operator_program)

    def __init__(self, device: str) -> None:
        chainer = install()
        index = gpu_index(device, "Chainer")
        self._version = str(chainer.__version__)
        self._gpu = None if index is None else CupyDevice(index)
        self._device = "@numpy" if self._gpu is None else f"@cupy:{self._gpu.index}"
        self._workspace_bytes = _workspace_bytes()
        self._plans, self._why_not = None, ""
        if self._gpu is not None and os.environ.get("EPOCHCAST_CUDNN", "").casefold() in ("off", "0", "no"):
            self._why_not = "EPOCHCAST_CUDNN is off"
        elif self._gpu is not None:
            try:
                self._plans = CudnnPlans(open_cudnn(), CupyMemory())
            except BackendUnavailableError as error:
                self._why_not = str(error)
        if self._plans is not None:
            self._plans.set_max_workspace_size(self._workspace_bytes)
            enable(CudnnFunctions(self._plans))

    def switch(self, mode: Mode) -> None:
        """Set the global switches: TF32 and the workspace; forget choices of earlier configurations."""
        if self._gpu is None:
            return
        tf32 = mode.precision == "tf32"
        multiply_as_tf32(tf32)
        if self._plans is not None:
            self._plans.forget()
            self._plans.allow_tf32 = tf32
            self._plans.set_max_workspace_size(self._workspace_bytes)

    @contextmanager
    def running(self, configuration: Configuration) -> Iterator[None]:
        """Configure Chainer, and turn its errors into ours; its static graph prints that it is being built."""
        silent = redirect_stdout(io.StringIO())
        with refusing(configuration.words), configured(configuration.mode), silent:
            yield

    def _libraries(self) -> dict[str, object]:
        import numpy

        about: dict[str, object] = {"framework_version": self._version, "numpy": numpy.__version__}
        if self._plans is None:
            maps = "numpy" if self._gpu is None else "cupy"
            about |= {"convolutions": "im2col", "batch_norm_and_pooling": maps}
            return about if self._gpu is None else about | {"without_cudnn": self._why_not}
        cudnn, run_by = self._plans.cudnn, f"cudnn {self._plans.cudnn.release}"
        about |= {"convolutions": run_by, "batch_norm_and_pooling": run_by, "cudnn": str(cudnn.version)}
        return about | {"cudnn_path": cudnn.path, "workspace_mib": self._workspace_bytes / 2**20}

    def _program(self, configuration: Configuration) -> Program:
        if configuration.subject.operator is not None and configuration.mode.capture != "eager":
            raise SchemaError("a single operator has no static graph: measure operators with capture eager.")
        return super()._program(configuration)


def _workspace_bytes() -> int:
    text = os.environ.get("EPOCHCAST_WORKSPACE_MIB", "8")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 2**20:
        raise SchemaError(
            f"EPOCHCAST_WORKSPACE_MIB is {text!r}: give a number of MiB from 0, such as 8 or 512."
        )
    return int(value * 2**20)
