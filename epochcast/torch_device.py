"""What a PyTorch module shows while it trains: its device, whether that is idle, and its first batch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from predictor.cnns.layer_table import LayerTable


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """What the first batch shows of a training.

    `precision` and `float32_matmul_precision` are None where they are the framework's default, `capture` where it is
    unknown; ``partly`` says that parts of the module are compiled.
    """

    batch_size: int
    channels: int
    height: int
    width: int
    precision: str | None = None
    memory_format: str = "nchw"
    autotune: bool | None = None
    capture: str | None = None
    float32_matmul_precision: str | None = None

    @classmethod
    def of(cls, images: Any, **mode: Any) -> FirstBatch:
        """Of a tensor or array of shape (batch_size, channels, height, width)."""
        batch_size, channels, height, width = (int(size) for size in images.shape)
        return cls(batch_size, channels, height, width, **mode)


@dataclass(frozen=True, slots=True)
class Team:
    """GPUs and processes that train one module together; `nodes`, their machines, is None where it is unknown.

    `rank` is this process's number, from 0.
    """

    n_gpus: int
    n_processes: int = 1
    nodes: int | None = 1
    rank: int = 0


def team_of(model: object) -> Team | None:
    """The team of this process, as PyTorch knows it; None where PyTorch does not train."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        n, on_each = torch.distributed.get_world_size(), os.environ.get("LOCAL_WORLD_SIZE")
        nodes = n // int(on_each) if on_each else 1 if n <= torch.cuda.device_count() else None
        return Team(n, n, nodes, torch.distributed.get_rank())
    if not is_module(model):
        return None
    device_ids = getattr(model, "device_ids", ()) if isinstance(model, torch.nn.DataParallel) else ()
    return Team(max(1, len(device_ids)))


def is_module(model: object) -> bool:
    """Whether `model` is a torch.nn.Module; does not import torch."""
    bases = (base for base in type(model).__mro__ if base.__name__ == "Module")
    return any(base.__module__.startswith("torch.nn") for base in bases)


def images_in(batch: object) -> Any:
    """The first array with four dimensions in a batch; None if there is none."""
    if len(getattr(batch, "shape", ())) == 4:
        return batch
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((images for array in parts if (images := images_in(array)) is not None), None)


def layers_of(module: torch.nn.Module, first_batch: FirstBatch) -> LayerTable:
    """The layer table of a module on images like those seen.

    A LightningModule is read without its trainer, which cannot be copied.
    """
    from predictor.cnns.torch_module import from_torch

    module = _unwrapped(module)
    trainer = module.__dict__.get("_trainer")
    try:
        if trainer is not None:
            module.__dict__["_trainer"] = None
        return from_torch(module, first_batch.height, in_channels=first_batch.channels)
    finally:
        if trainer is not None:
            module.__dict__["_trainer"] = trainer


def _unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The CNN inside `torch.compile`, DataParallel and DistributedDataParallel."""
    import torch

    parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    while hasattr(module, "_orig_mod") or isinstance(module, parallel):
        module = getattr(module, "_orig_mod", None) or module.module
    return module


def _capture(module: torch.nn.Module) -> str:
    """``compile`` where the module is compiled as a whole, ``partly`` where parts of it are, else ``eager``."""
    import torch

    def is_compiled(module: Any) -> bool:
        return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None

    wrapped, cnn = module, _unwrapped(module)
    while wrapped is not cnn and not is_compiled(wrapped):
        wrapped = wrapped.module
    if torch.compiler.is_compiling() or is_compiled(wrapped):
        return "compile"
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return "graph"
    return "partly" if any(map(is_compiled, cnn.modules())) else "eager"


_FIRST_TF32 = (8, 0)
"""Least compute capability with TF32."""


class TorchDevice:
    """The device of a module."""

    def __init__(self, module: torch.nn.Module) -> None:
        import torch

        first = next(module.parameters(), None)
        self._device = torch.device("cpu") if first is None else first.device
        self._end: Any = None

    @property
    def _is_cuda(self) -> bool:
        return str(self._device.type) == "cuda"

    def name(self) -> str:
        """The GPU as its driver calls it, or ``cpu:<model>``."""
        import torch

        from proxy_cnns.device import cpu_model

        return torch.cuda.get_device_name(self._device) if self._is_cuda else f"cpu:{cpu_model()}"

    def marks_end(self) -> None:
        """Mark the end of an iteration in the device's queue."""
        import torch

        if self._is_cuda:
            self._end = torch.cuda.Event()
            self._end.record(torch.cuda.current_stream(self._device))

    def is_idle(self) -> bool:
        """Whether the device has finished the iteration that was marked last; a CPU always has."""
        return self._end is None or bool(self._end.query())

    def slowed_by(self) -> tuple[str, ...]:
        """Reasons why the GPU's clock is held down now; empty if there are none, or none can be read."""
        from proxy_cnns.device import HARMFUL, gpu_reader

        if not self._is_cuda:
            return ()
        reasons = gpu_reader(f"cuda:{self._device.index or 0}")().get("throttle_reasons", ())
        return tuple(name for name in reasons if name in HARMFUL)

    def on_first_batch(self, module: torch.nn.Module, call: Callable[[FirstBatch], None]) -> None:
        """Call once with what the module's next forward pass on images shows."""

        def hook(_module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            images = images_in([*args, *kwargs.values()])
            if images is not None:
                handle.remove()
                call(self._seen(images, _capture(module)))

        handle = module.register_forward_pre_hook(hook, with_kwargs=True)

    def _seen(self, images: Any, capture: str) -> FirstBatch:
        import torch

        last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
        precision = self._precision(images)
        switched = self._is_cuda and precision is None and torch.get_float32_matmul_precision() != "highest"
        has_tf32 = switched and torch.cuda.get_device_capability(self._device) >= _FIRST_TF32
        mode = {
            "precision": precision,
            "memory_format": "channels_last" if last else "nchw",
            "capture": capture,
        }
        mode |= {"float32_matmul_precision": "high" if has_tf32 else None}
        return FirstBatch.of(images, **mode, autotune=bool(torch.backends.cudnn.benchmark))

    def _precision(self, images: Any) -> str | None:
        """The word for the arithmetic of this moment; None for the framework's default."""
        import torch

        if torch.is_autocast_enabled(self._device.type):
            half = torch.get_autocast_dtype(self._device.type) == torch.float16
            return "amp_fp16" if half else "amp_bf16"
        if images.dtype == torch.float16:
            return "fp16"
        return None if torch.backends.cudnn.allow_tf32 or not self._is_cuda else "fp32"
