"""The Chainer backend: builds configurations on one device, and describes the device.

On a CPU NumPy computes, on a GPU CuPy, with cuDNN where it is installed (not with `EPOCHCAST_CUDNN=off`; then a
convolution is im2col and a matrix product, batch norm and pooling are CuPy's kernels).
`EPOCHCAST_WORKSPACE_MIB` limits the workspace of an algorithm, 8 MiB unless given, as in Chainer.
"""

import io
import os
import platform
from collections.abc import Callable
from contextlib import redirect_stdout

from predictor.catalogue.modes import Mode
from predictor.cnns.chainer_compat import install
from predictor.errors import BackendUnavailableError, DeviceOutOfMemoryError, SchemaError
from proxy_cnns.backends.chainer.cudnn.functions import CudnnConvolutions, enable
from proxy_cnns.backends.chainer.cudnn.library import open_cudnn
from proxy_cnns.backends.chainer.cudnn.plans import CudnnPlans, CupyMemory
from proxy_cnns.backends.chainer.device import CupyDevice, refusing
from proxy_cnns.backends.chainer.modes import check_mode, configured, multiply_as_tf32
from proxy_cnns.backends.chainer.operators import operator_program
from proxy_cnns.backends.chainer.prepared import ChainerPrepared
from proxy_cnns.backends.chainer.training import Program, training_program
from proxy_cnns.backends.common import CPU_CACHE_BYTES, check_empty, gpu_index
from proxy_cnns.backends.protocol import Launches
from proxy_cnns.configuration import Configuration
from proxy_cnns.device import cpu_model

__all__ = ["ChainerBackend"]


class ChainerBackend:
    """Chainer on the CPU (NumPy) or on one GPU (CuPy).

    On a GPU one configuration is prepared at a time: close one before the next.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda`` or ``cuda:N``.

    Raises
    ------
    BackendUnavailableError
        If Chainer or CuPy is not installed, or there is no such device.
    SchemaError
        If `EPOCHCAST_WORKSPACE_MIB` is no number.
    """

    framework = "chainer"

    def __init__(self, device: str) -> None:
        chainer = install()
        index = gpu_index(device, "Chainer")
        self._version = str(chainer.__version__)
        self._gpu = None if index is None else CupyDevice(index)
        self._device = "@numpy" if self._gpu is None else f"@cupy:{self._gpu.index}"
        self._workspace_bytes = _workspace_bytes()
        self._plans, self._why_not = (None, "") if self._gpu is None else _cudnn_plans(self._workspace_bytes)
        if self._plans is not None:
            enable(CudnnConvolutions(self._plans))

    def environment(self) -> dict[str, object]:
        """Versions of the libraries, how convolutions, batch norm and pooling run, and the device's name."""
        import numpy

        about: dict[str, object] = {
            "framework_version": self._version,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
            "cpu": cpu_model(),
            "convolutions": "im2col",
            "batch_norm_and_pooling": "numpy" if self._gpu is None else "cupy",
        }
        if self._gpu is None:
            return about | {"gpu": f"cpu:{cpu_model()}"}
        about |= _gpu_versions(self._gpu)
        if self._plans is None:
            return about | {"without_cudnn": self._why_not}
        cudnn = self._plans.cudnn
        return about | {
            "convolutions": f"cudnn {cudnn.release}",
            "batch_norm_and_pooling": f"cudnn {cudnn.release}",
            "cudnn": str(cudnn.version),
            "cudnn_path": cudnn.path,
            "workspace_mib": self._workspace_bytes / 2**20,
        }

    def prepare(self, configuration: Configuration) -> ChainerPrepared:
        """Build a configuration and run it once.

        Raises
        ------
        DeviceOutOfMemoryError
            If it does not fit.
        SchemaError
            If Chainer cannot build or run it, or the device lacks the mode.
        ProfilingError
            If an earlier configuration still holds memory.
        """
        check_mode(configuration.mode, None if self._gpu is None else self._gpu.capability)
        self.switch(configuration.mode)
        whole, peak = configuration.subject.operator is None, None
        if self._gpu is not None and whole:
            self._gpu.tidy()
            check_empty(self._gpu.used_mib(), configuration)
        program = self._started(configuration)
        if self._gpu is not None and whole:
            with refusing(configuration.words), configured(configuration.mode):
                peak = self._gpu.peak_mib(program.iterate)
        return ChainerPrepared(
            program, configuration.mode, self._gpu, self._plans, configuration.words, whole, peak
        )

    def launches(self) -> Launches:
        """Cost of enqueuing kernels without work; Chainer has no graphs, a CPU no queue."""
        return Launches() if self._gpu is None else Launches(host_us=self._gpu.enqueue_us())

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

    def _started(self, configuration: Configuration) -> Program:
        """Build a program and run it once; again in empty memory, if memory was lacking."""
        if self._gpu is None:
            return self._run_once(configuration)
        try:
            return self._run_once(configuration)
        except DeviceOutOfMemoryError:
            self._gpu.tidy()
        try:
            return self._run_once(configuration)
        except DeviceOutOfMemoryError:
            self._gpu.tidy()
            raise

    def _run_once(self, configuration: Configuration) -> Program:
        silent = redirect_stdout(io.StringIO())  # Chainer's static graph prints that it is being built
        with refusing(configuration.words), configured(configuration.mode), silent:
            program = self._maker(configuration)()
            program.iterate()
            if self._gpu is not None:
                self._gpu.synchronise()
        return program

    def _maker(self, configuration: Configuration) -> Callable[[], Program]:
        operator = configuration.subject.operator
        if operator is None:
            return lambda: training_program(configuration, self._device)
        if configuration.mode.capture != "eager":
            raise SchemaError("an operator alone has no static graph: measure operators with capture eager.")
        cache = CPU_CACHE_BYTES if self._gpu is None else self._gpu.cache_bytes
        return lambda: operator_program(
            operator, configuration.mode, configuration.batch_size, self._device, cache
        )


def _cudnn_plans(workspace_bytes: int) -> tuple[CudnnPlans | None, str]:
    """The cuDNN plans; None and the reason where cuDNN is missing or switched off."""
    if os.environ.get("EPOCHCAST_CUDNN", "").casefold() in ("off", "0", "no"):
        return None, "EPOCHCAST_CUDNN is off"
    try:
        plans = CudnnPlans(open_cudnn(), CupyMemory())
    except BackendUnavailableError as error:
        return None, str(error)
    plans.set_max_workspace_size(workspace_bytes)
    return plans, ""


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


def _gpu_versions(gpu: CupyDevice) -> dict[str, object]:
    import cupy

    runtime = cupy.cuda.runtime
    return {
        "gpu": gpu.name,
        "cupy": cupy.__version__,
        "cuda": str(runtime.runtimeGetVersion()),
        "cuda_of_driver": str(runtime.driverGetVersion()),
        "compute_capability": "{}.{}".format(*gpu.capability),
        "sm_count": int(gpu.properties["multiProcessorCount"]),
        "memory_mib": gpu.properties["totalGlobalMem"] / 2**20,
        "l2_mib": gpu.cache_bytes / 2**20,
    }
