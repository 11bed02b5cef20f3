"""PyTorch as the instrument's framework: builds configurations on one device, and describes it."""

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from predictor.errors import BackendUnavailableError, DeviceOutOfMemoryError, ProfilingError
from proxy_cnns.backends.torch.device import CudaDevice, refusing_lack_of_memory
from proxy_cnns.backends.torch.modes import check_mode, switch_precision
from proxy_cnns.backends.torch.operators import operator_program
from proxy_cnns.backends.torch.prepared import TorchPrepared
from proxy_cnns.backends.torch.training import Program, training_program
from proxy_cnns.configuration import Configuration

__all__ = ["TorchBackend"]

_CPU_CACHE_BYTES = 2**24
_LEFT_MIB = 8.0


class TorchBackend:
    """PyTorch on the CPU or on one GPU.

    On a GPU one configuration is prepared at a time: close one before the next.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda`` or ``cuda:N``.

    Raises
    ------
    BackendUnavailableError
        If PyTorch is not installed, or there is no such device.
    """

    framework = "pytorch"

    def __init__(self, device: str) -> None:
        torch = _torch()
        kind, _, index = device.partition(":")
        if kind not in ("cpu", "cuda") or not (index or "0").isdecimal():
            raise BackendUnavailableError(f"device {device!r} is not known to PyTorch: give cpu or cuda:0.")
        self._gpu: CudaDevice | None = None
        if kind == "cuda":
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            if int(index or 0) >= count:
                raise BackendUnavailableError(
                    f"there is no {device}: PyTorch {torch.__version__} sees {count} GPUs. Give cpu, or install a "
                    "PyTorch built for your CUDA driver (https://pytorch.org/get-started)."
                )
            self._gpu = CudaDevice(int(index or 0))
        self._device = "cpu" if self._gpu is None else f"cuda:{self._gpu.index}"

    def environment(self) -> dict[str, object]:
        """Versions of what computes, and the device's name."""
        torch = _torch()
        about: dict[str, object] = {
            "framework_version": str(torch.__version__),
            "torch_threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "cpu": _cpu_model(),
        }
        if self._gpu is None:
            return about | {"gpu": f"cpu:{_cpu_model()}"}
        properties = self._gpu.properties
        return about | {
            "gpu": properties.name,
            "cuda": torch.version.cuda,
            "cudnn": str(torch.backends.cudnn.version()),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "sm_count": properties.multi_processor_count,
            "memory_mib": properties.total_memory / 2**20,
            "l2_mib": self._gpu.cache_bytes / 2**20,
        }

    def prepare(self, configuration: Configuration) -> TorchPrepared:
        """Build a configuration and run it once.

        Raises
        ------
        DeviceOutOfMemoryError
            If it does not fit, even after all unused memory is given back.
        SchemaError
            If PyTorch cannot build it, or the device lacks the mode.
        ProfilingError
            If PyTorch fails to run it, or an earlier configuration still holds memory.
        """
        gpu = self._gpu
        check_mode(configuration.mode, None if gpu is None else (gpu.properties.major, gpu.properties.minor))
        switch_precision(configuration.mode)
        if configuration.subject.operator is None:
            return self._prepare_cnn(configuration)
        if gpu is None:
            return self._prepare_operator(configuration)
        gpu.tidy_if_needed()
        try:
            return self._prepare_operator(configuration)
        except DeviceOutOfMemoryError:
            pass  # memory kept for later, or in pieces: once more without
        gpu.tidy()
        return self._prepare_operator(configuration)

    def _prepare_operator(self, configuration: Configuration) -> TorchPrepared:
        operator, cache = configuration.subject.operator, _CPU_CACHE_BYTES
        assert operator is not None  # noqa: S101 - for the type checker: asked by the only caller
        if self._gpu is not None:
            cache = self._gpu.cache_bytes
        program = self._started(
            configuration,
            lambda: operator_program(
                operator, configuration.mode, configuration.batch_size, self._device, cache
            ),
        )
        return TorchPrepared(program, self._gpu, _name(configuration), whole=False, peak_memory_mib=None)

    def _prepare_cnn(self, configuration: Configuration) -> TorchPrepared:
        """Build a whole CNN in empty memory, so that the peak is its own."""
        gpu = self._gpu
        if gpu is not None:
            gpu.tidy()
            if gpu.allocated_mib() > _LEFT_MIB:
                raise ProfilingError(
                    f"{gpu.allocated_mib():.0f} MiB are still occupied by an earlier configuration, so that the "
                    f"peak memory of {_name(configuration)} cannot be read. Close every configuration before the next."
                )
        program, peak = (
            self._started(configuration, lambda: training_program(configuration, self._device)),
            None,
        )
        if gpu is not None:
            with refusing_lack_of_memory(_name(configuration)), gpu.on_stream():
                peak = gpu.peak_mib(program.iterate)
        return TorchPrepared(program, gpu, _name(configuration), whole=True, peak_memory_mib=peak)

    def _started(self, configuration: Configuration, make: Callable[[], Program]) -> Program:
        """Make a program and run it once, on the device's stream."""
        try:
            with refusing_lack_of_memory(_name(configuration)):
                if self._gpu is None:
                    program = make()
                    program.warm_up()
                else:
                    with self._gpu.on_stream():
                        program = make()
                        program.warm_up()
                        self._gpu.stream.synchronize()
        except DeviceOutOfMemoryError:
            if self._gpu is not None:
                self._gpu.tidy()
            raise
        return program


def _name(configuration: Configuration) -> str:
    return f"{configuration.subject.name} at batch size {configuration.batch_size} in {configuration.mode.precision}"


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise BackendUnavailableError("PyTorch is not installed: pip install 'epochcast[torch]'") from error
    return torch


def _cpu_model() -> str:
    """Return the CPU's name as the operating system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
