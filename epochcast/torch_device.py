"""What a PyTorch module shows while it trains: its device, whether that is idle, and its first batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from predictor.cnns.layer_table import LayerTable

__all__ = ["Seen", "TorchDevice", "images_in", "is_module", "layers_of"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the first batch shows of a training; `precision` is None where it is the framework's default."""

    batch_size: int
    channels: int
    height: int
    width: int
    precision: str | None = None
    memory_format: str = "nchw"
    autotune: bool = False

    @classmethod
    def of(cls, images: Any, **mode: Any) -> Seen:
        """Of a tensor or array of shape (batch_size, channels, height, width)."""
        batch_size, channels, height, width = (int(size) for size in images.shape)
        return cls(batch_size, channels, height, width, **mode)


def is_module(model: object) -> bool:
    """Whether it is a torch.nn.Module, found without importing torch."""
    return any(
        each.__name__ == "Module" and each.__module__.startswith("torch.nn") for each in type(model).__mro__
    )


def images_in(batch: object) -> Any:
    """The first array with four dimensions in a batch; None if there is none."""
    if len(getattr(batch, "shape", ())) == 4:
        return batch
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((found for part in parts if (found := images_in(part)) is not None), None)


def layers_of(module: torch.nn.Module, seen: Seen) -> LayerTable:
    """The layer table of a module on images like those seen.

    A LightningModule is read without its trainer, which cannot be copied.
    """
    from predictor.cnns.torch_module import from_torch

    trainer = module.__dict__.get("_trainer")
    try:
        if trainer is not None:
            module.__dict__["_trainer"] = None
        return from_torch(module, seen.height, in_channels=seen.channels)
    finally:
        if trainer is not None:
            module.__dict__["_trainer"] = trainer


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
        found = gpu_reader(f"cuda:{self._device.index or 0}")().get("throttle_reasons", ())
        return tuple(name for name in found if name in HARMFUL)

    def on_first_batch(self, module: torch.nn.Module, call: Callable[[Seen], None]) -> None:
        """Call once with what the module's next forward pass on images shows."""

        def hook(_module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            images = images_in([*args, *kwargs.values()])
            if images is not None:
                handle.remove()
                call(self._seen(images))

        handle = module.register_forward_pre_hook(hook, with_kwargs=True)

    def _seen(self, images: Any) -> Seen:
        import torch

        last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
        return Seen.of(
            images,
            precision=self._precision(images),
            memory_format="channels_last" if last else "nchw",
            autotune=bool(torch.backends.cudnn.benchmark),
        )

    def _precision(self, images: Any) -> str | None:
        """The word for the arithmetic of this moment; None for the framework's default."""
        import torch

        if torch.is_autocast_enabled(self._device.type):
            half = torch.get_autocast_dtype(self._device.type) == torch.float16
            return "amp_fp16" if half else "amp_bf16"
        if images.dtype == torch.float16:
            return "fp16"
        return None if torch.backends.cudnn.allow_tf32 or not self._is_cuda else "fp32"
