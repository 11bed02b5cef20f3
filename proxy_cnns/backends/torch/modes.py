"""A mode in PyTorch's terms: precisions of a device, global switches, the context of a forward pass."""

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from predictor.catalogue.devices import COMPILES_FROM
from predictor.catalogue.modes import Mode
from predictor.errors import SchemaError
from proxy_cnns.backends.base import check_mode_of, device_words, precisions_on

_CPU_PRECISIONS = ("fp32", "amp_bf16")
_GPU_PRECISIONS = ("fp32", "tf32", "amp_fp16", "amp_bf16")


def check_mode(mode: Mode, capability: tuple[int, int] | None) -> None:
    """Refuse a mode that cannot be measured on a GPU of this compute capability; None: on a CPU.

    SchemaError with what can be measured instead.
    """
    has = precisions_on(_GPU_PRECISIONS, _CPU_PRECISIONS, capability)
    if mode.precision == "fp16":
        raise SchemaError(
            "precision 'fp16', the whole CNN in half precision, is not measured with PyTorch. "
            f"Choose amp_fp16 or another of {', '.join(has)}."
        )
    check_mode_of("PyTorch", mode, has, capability)
    if mode.framework != "pytorch" or mode.xla or mode.capture in ("static_graph", "compile_graph"):
        raise SchemaError(
            f"framework {mode.framework!r}, xla {mode.xla}, capture {mode.capture!r}: PyTorch is measured as "
            "framework pytorch, without XLA, captured eager, graph or compile."
        )
    if mode.capture == "compile" and capability is not None and capability[0] < COMPILES_FROM:
        raise SchemaError(
            f"capture 'compile' needs a GPU of compute capability {COMPILES_FROM}, and this is "
            f"{device_words(capability)}: choose eager or graph."
        )


def switch_precision(mode: Mode) -> None:
    """Set PyTorch's global switches: TF32 of convolutions and of matrix products, and cuDNN's autotuning."""
    import torch

    with warnings.catch_warnings():  # newer names for the same switches exist; these set all of them at once
        warnings.simplefilter("ignore")
        torch.backends.cuda.matmul.allow_tf32 = mode.precision == "tf32" and not mode.fp32_products
        torch.backends.cudnn.allow_tf32 = mode.precision != "fp32"
    torch.backends.cudnn.benchmark = mode.autotune


def narrow_dtype(mode: Mode) -> Any:
    """Type of the maps that convolutions read and write: torch.float32 without mixed precision."""
    import torch

    return {"amp_fp16": torch.float16, "amp_bf16": torch.bfloat16}.get(mode.precision, torch.float32)


def autocast(mode: Mode, device_type: str) -> AbstractContextManager[Any]:
    """Context of a forward pass, which may be entered repeatedly.

    Casts of weights are not cached: each weight is read once in an iteration, and a cache must not outlive a
    captured graph.
    """
    import torch

    context: AbstractContextManager[Any] = nullcontext()
    if mode.precision.startswith("amp"):
        context = torch.autocast(device_type, dtype=narrow_dtype(mode), cache_enabled=False)
    return context


def gradient_scaler(mode: Mode, device: str) -> Any:
    """Make the loss scaler that training in fp16 needs, ready for use; None in other precisions."""
    import torch

    if mode.precision != "amp_fp16":
        return None
    scaler = torch.amp.GradScaler(device.partition(":")[0])
    scaler.scale(torch.ones(1, device=device))  # makes its tensors, which no graph may do
    return scaler


def tensor_layout(mode: Mode) -> Any:
    """Memory format of feature maps and convolution weights."""
    import torch

    return torch.channels_last if mode.memory_format == "channels_last" else torch.contiguous_format
