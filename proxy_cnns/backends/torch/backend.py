"""The PyTorch backend: builds configurations on one device, and describes the device."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from predictor.cnns.torch_trace import import_torch
from predictor.errors import BackendUnavailableError
from proxy_cnns.backends.base import FrameworkBackend, gpu_index
from proxy_cnns.backends.torch.device import CudaDevice, refusing
from proxy_cnns.backends.torch.modes import check_mode, switch_precision
from proxy_cnns.backends.torch.operators import operator_program
from proxy_cnns.backends.torch.prepared import TorchPrepared
from proxy_cnns.backends.torch.training import training_program
from proxy_cnns.configuration import Configuration


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
