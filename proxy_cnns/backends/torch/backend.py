"""The PyTorch backend: builds configurations on one device, and describes the device."""

import platform
from collections.abc import Callable
from typing import Any

from predictor.errors import BackendUnavailableError, DeviceOutOfMemoryError
from proxy_cnns.backends.common import CPU_CACHE_BYTES, check_empty, gpu_index
from proxy_cnns.backends.protocol import Launches
from proxy_cnns.backends.torch.device import CudaDevice, refusing
from proxy_cnns.backends.torch.modes import check_mode, switch_precision
from proxy_cnns.backends.torch.operators import operator_program
from proxy_cnns.backends.torch.prepared import TorchPrepared
from proxy_cnns.backends.torch.training import Program, training_program
from proxy_cnns.configuration import Configuration
from proxy_cnns.device import cpu_model

__all__ = ["TorchBackend"]


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

    def environment(self) -> dict[str, object]:
        """Versions of the libraries, and the device's name."""
        torch = _torch()
        about: dict[str, object] = {
            "framework_version": str(torch.__version__),
            "torch_threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "cpu": cpu_model(),
        }
        if self._gpu is None:
            return about | {"gpu": f"cpu:{cpu_model()}"}
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
            pass  # cached memory was lacking, or fragmented: try again without it
        gpu.tidy()
        return self._prepare_operator(configuration)

    def launches(self) -> Launches:
        """Cost of kernels without work; unknown on a CPU, which has no queue."""
        return Launches() if self._gpu is None else self._gpu.launches()

    def _prepare_operator(self, configuration: Configuration) -> TorchPrepared:
        operator = configuration.subject.operator
        assert operator is not None  # noqa: S101 - for the type checker: the only caller has checked it
        cache = CPU_CACHE_BYTES if self._gpu is None else self._gpu.cache_bytes
        program = self._started(
            configuration,
            lambda: operator_program(
                operator, configuration.mode, configuration.batch_size, self._device, cache
            ),
        )
        return TorchPrepared(program, self._gpu, configuration.words, whole=False, peak_memory_mib=None)

    def _prepare_cnn(self, configuration: Configuration) -> TorchPrepared:
        """Build a whole CNN in empty memory: the peak is then its own."""
        gpu = self._gpu
        if gpu is not None:
            gpu.tidy()
            check_empty(gpu.allocated_mib(), configuration)
        program = self._started(configuration, lambda: self._training(configuration))
        peak = None
        if gpu is not None:
            with refusing(configuration.words), gpu.on_stream():
                peak = gpu.peak_mib(program.iterate)
        return TorchPrepared(program, gpu, configuration.words, whole=True, peak_memory_mib=peak)

    def _training(self, configuration: Configuration) -> Program:
        return training_program(configuration, self._device)

    def _started(self, configuration: Configuration, make: Callable[[], Program]) -> Program:
        """Make a program and run it once, on the device's stream."""
        try:
            with refusing(configuration.words):
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


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise BackendUnavailableError("PyTorch is not installed: pip install 'epochcast[torch]'") from error
    return torch
