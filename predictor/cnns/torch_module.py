"""Reads a PyTorch module into a layer table, by forward passes at two batch sizes whose operators are recorded.

The module is copied to PyTorch's *meta* device, which computes shapes alone: a CNN of any size takes milliseconds and
no memory. Operators are intercepted at dispatch, which includes functional ones. Dimensions that differ between the
two runs grow with the mini-batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from predictor.cnns.layer_table import LayerTable, TableWarning
from predictor.cnns.recorder import RECURRENT, RULES, Recorder, recurrent_refusal, tensors_of
from predictor.errors import BackendUnavailableError, EpochcastError, OutOfRangeError, SchemaError

if TYPE_CHECKING:
    import torch

__all__ = ["from_torch", "record_runs", "refuse_lazy"]

_CHANNELS = 3
"""Channels of the images that a module is first run on."""

_TOO_SMALL = (
    "too small",
    "can't be greater than actual input size",
    "expected more than 1 value per channel",
)


def from_torch(
    module: torch.nn.Module,
    image_size: int,
    cnn: str | None = None,
    in_channels: int | None = None,
    batch: int = 2,
) -> LayerTable:
    """Layer table of a training forward pass of `module`.

    Parameters
    ----------
    module : torch.nn.Module
        Built on any device; neither changed nor moved. If it is in evaluation mode, its copy trains.
    image_size : int
        Height and width of the images, in pixels.
    cnn : str, optional
        Name of the CNN; the class's by default.
    in_channels : int, optional
        Channels of the images; by default 3, or what the layer that does not run on 3 channels reads.
    batch : int
        Images of the trial run, >= 2, and one more in the second; the table does not depend on it.

    Returns
    -------
    LayerTable
        Its warnings name operators of no known type, results that do not grow with the mini-batch, frozen parameters,
        and parameters that nothing reads.

    Raises
    ------
    BackendUnavailableError
        If PyTorch is not installed.
    OutOfRangeError
        If the image is too small for the module.
    SchemaError
        If it is no module, does not run on a batch of such images, runs other operators on a larger one, has recurrent
        layers, or computes parts of its forward pass again in the backward pass (gradient checkpointing).
    """
    torch = _torch()
    module = _unwrapped(module)
    if not isinstance(module, torch.nn.Module):
        raise SchemaError(f"{type(module).__name__} is not a torch.nn.Module.")
    if isinstance(module, torch.jit.ScriptModule):
        raise SchemaError("a scripted module cannot be read: give the torch.nn.Module that it was made of.")
    if isinstance(image_size, bool) or not isinstance(image_size, int) or image_size < 1:
        raise OutOfRangeError(f"image_size {image_size!r} is not a whole number of pixels of at least 1.")
    name = cnn or type(module).__name__
    refuse_lazy(module, name, in_channels or _CHANNELS, image_size)
    _refuse_checkpointing(module, name)
    copy = _on_meta(module, name)
    if not module.training:
        copy.train()
    path: list[tuple[str, bool]] = []
    started = _follow_modules(copy, path)
    recorder = Recorder(batch, batch + 1, path=path)
    for parameter in copy.parameters():
        recorder.parameter(parameter)
    shape = (in_channels or _CHANNELS, image_size, image_size)
    try:
        record_runs(recorder, copy, shape, name)
    except SchemaError:
        channels = None if in_channels else _channels_read(copy, path, started, image_size)
        if channels is None:
            raise
        record_runs(recorder, copy, (channels, image_size, image_size), name)
    return LayerTable(name, image_size, tuple(recorder.rows), "torch", _warnings(module, recorder))


def _channels_read(
    module: Any, path: list[tuple[str, bool]], started: list[Any], image_size: int
) -> int | None:
    """Channels that the first layer with weights reads; None unless a run on images of 3 channels stopped there."""
    layer = next((child for child in started if getattr(child, "weight", None) is not None), None)
    if layer is None or not path or module.get_submodule(path[-1][0]) is not layer:
        return None
    if layer.weight.ndim == 2:  # a linear layer reads flattened images
        channels, rest = divmod(layer.weight.shape[1], image_size**2)
        return None if rest or channels in (0, _CHANNELS) else int(channels)
    channels = getattr(layer, "in_channels", getattr(layer, "num_features", _CHANNELS))
    return None if channels == _CHANNELS else int(channels)


def record_runs(
    recorder: Recorder, run: Callable[[Any], object], shape: Sequence[int], name: str, channel_dim: int = 1
) -> None:
    """Run on meta images at the recorder's two batch sizes, and record the operators that run.

    Parameters
    ----------
    recorder : Recorder
        Knows the parameters; whoever runs keeps its `path`.
    run : callable
        Takes a batch of images.
    shape : tuple of int
        Of an image.
    name : str
        Of the CNN, for messages.
    channel_dim : int
        1 for channels first, -1 for last.

    Raises
    ------
    OutOfRangeError, SchemaError
        As `from_torch`.
    """
    torch, path = _torch(), recorder.path
    image = torch.empty(recorder.batch_size, *shape, device="meta")
    ran = _run(run, image, path, name)
    again = _run(run, torch.empty(recorder.other_batch_size, *shape, device="meta"), path, name)
    recorder.image(image, channel_dim)
    _record(recorder, ran, again, name)
    if not recorder.rows:
        raise SchemaError(f"{name} runs no operator on its image.")


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise BackendUnavailableError("PyTorch is not installed: pip install 'epochcast[torch]'") from error
    return torch


def _unwrapped(module: Any) -> Any:
    """Unwrap a DataParallel or OptimizedModule."""
    if type(module).__name__ in ("DataParallel", "DistributedDataParallel"):
        return module.module
    return getattr(module, "_orig_mod", module)


def refuse_lazy(module: torch.nn.Module, name: str, in_channels: int, image_size: int) -> None:
    """SchemaError for lazy modules that have not run yet, whose shapes are unknown."""
    is_lazy = _torch().nn.parameter.is_lazy
    layers = [
        path
        for path, child in module.named_modules()
        if any(is_lazy(each) for each in (*child.parameters(recurse=False), *child.buffers(recurse=False)))
    ]
    if layers:
        raise SchemaError(
            f"{name} has lazy layers that have not run yet, so their shapes are unknown: {', '.join(layers[:3])}"
            f"{', ...' if len(layers) > 3 else ''}. Run it once before giving it: "
            f"model(torch.zeros(2, {in_channels}, {image_size}, {image_size}))."
        )


def _on_meta(module: Any, name: str) -> Any:
    """Copy a module with meta tensors for its parameters and buffers: its numbers are never copied."""
    torch = _torch()
    memo: dict[int, Any] = {}
    try:
        for parameter in module.parameters():
            empty = torch.empty(parameter.shape, dtype=_dtype(parameter), device="meta")
            memo[id(parameter)] = torch.nn.Parameter(empty, requires_grad=parameter.requires_grad)
        for buffer in module.buffers():
            memo[id(buffer)] = torch.empty(buffer.shape, dtype=_dtype(buffer), device="meta")
        return deepcopy(module, memo)
    except (RuntimeError, TypeError, ValueError) as error:
        raise SchemaError(f"{name} cannot be copied: {_first_line(error)}.") from error


def _dtype(tensor: Any) -> Any:
    torch = _torch()
    return torch.float32 if tensor.is_floating_point() else tensor.dtype


@dataclass(frozen=True, slots=True)
class _Ran:
    """One operator that ran, in which module; holds its tensors, which on meta have no memory."""

    operator: str
    arguments: dict[str, Any]
    result: Any
    is_view: bool
    path: tuple[tuple[str, bool], ...]


def _follow_modules(module: Any, running: list[tuple[str, bool]]) -> list[Any]:
    """Track the running module, whose name the rows get; the list of all that have started to run."""
    started: list[Any] = []
    for path, child in module.named_modules():
        here = (path, not any(True for _ in child.children()))
        child.register_forward_pre_hook(lambda *_, here=here: running.append(here))
        child.register_forward_pre_hook(lambda child, *_: started.append(child))
        child.register_forward_hook(lambda *_: (running.pop(), None)[1])
    return started


def _record(recorder: Recorder, ran: list[_Ran], again: list[_Ran], name: str) -> None:
    """Hand the operators of the first run to the recorder, with the shapes of the second."""
    if [each.operator for each in ran] != [each.operator for each in again]:
        sizes = f"batch sizes {recorder.batch_size} and {recorder.other_batch_size}"
        raise SchemaError(
            f"{name} runs different operators at {sizes}, so its work for one image is not known. "
            "Write it without loops over the mini-batch and without random branches, or as a layer table CSV."
        )
    for each, other in zip(ran, again, strict=True):
        recorder.path[:] = each.path
        operator = each.operator
        if _is_product_with_weights(operator, each.arguments, recorder):
            operator = "linear"
        shapes = [tuple(tensor.shape) for tensor in tensors_of(other.result)]
        try:
            recorder.record(operator, each.arguments, each.result, each.is_view, shapes)
        except EpochcastError as error:
            where = recorder.path[-1][0] if recorder.path else ""
            raise type(error)(f"{name}, module {where!r}: {error}") from error


def _run(module: Any, image: Any, path: list[tuple[str, bool]], name: str) -> list[_Ran]:
    torch = _torch()
    ran: list[_Ran] = []
    path.clear()
    try:
        with torch.inference_mode(), _intercepting(ran, path):
            module(image)
    except EpochcastError as error:
        raise type(error)(f"{name}, module {path[-1][0] if path else ''!r}: {error}") from error
    except Exception as error:  # the user's own code may raise anything
        size = "x".join(map(str, image.shape))
        text = f"{name} does not run on a batch of {size}: {_first_line(error)}"
        if any(words in str(error).casefold() for words in _TOO_SMALL):
            raise OutOfRangeError(f"{text}. Give a larger image_size.") from error
        raise SchemaError(f"{text}. {_next_step(module)}") from error
    return ran


_DETECTORS = {"rpn": "self.detector.rpn.head(maps)", "head": "self.detector.head(maps)"}
"""What a detector computes on all positions of its maps, by the attribute that it has."""


def _next_step(module: Any) -> str:
    """What to give instead of a module that does not run on images alone."""
    dense = next((code for name, code in _DETECTORS.items() if hasattr(module, name)), None)
    if dense is None or not hasattr(module, "backbone"):
        return (
            "Check image_size, and that it fixes no batch size; a module whose control flow depends on data can be "
            "exported to ONNX or written as a layer table CSV."
        )
    return (
        "A detector trains on images with targets, and what follows its proposals depends on them. Give what runs on "
        "every image, a module that holds it as self.detector and whose forward(self, images) is "
        f"`maps = list(self.detector.backbone(images).values()); return {dense}`; proposals, box heads and losses "
        "are not counted then."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _intercepting(ran: list[_Ran], path: list[tuple[str, bool]]) -> Any:
    """Build the dispatch mode that notes every operator in `ran`.

    In inference mode PyTorch dispatches composite operators (linear, dropout) whole; those without a rule of
    ours are decomposed here, until an operator has a rule or no parts.
    """
    torch = _torch()
    from torch.utils._python_dispatch import TorchDispatchMode

    checkpoint_file = torch.utils.checkpoint.__file__

    class Intercept(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            operator = func._schema.name.split("::")[-1]
            operator = operator[:-1] if operator.endswith("_") else operator
            if operator in RECURRENT:  # before it runs position by position
                raise recurrent_refusal(operator.partition("_")[0].upper())
            if checkpoint_file in _files_running():
                raise _checkpoint_refusal()
            if operator not in RULES:
                with self:
                    parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            args = _all_on_meta(args, torch)
            result = func(*args, **kwargs)
            arguments = _by_name(func._schema, args, kwargs)
            ran.append(_Ran(operator, arguments, result, func.is_view, tuple(path)))
            return result

    return Intercept()


def _files_running() -> Iterator[str]:
    """Files of the functions that are running, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


def _checkpoint_refusal() -> SchemaError:
    return SchemaError(
        "gradient checkpointing computes parts of the forward pass again, which is not counted yet. Switch it off here "
        "(model.gradient_checkpointing_disable(), or without torch.utils.checkpoint), and give a measured iteration "
        "with it as an anchor, which corrects the answer; memory is that without it."
    )


_CHECKPOINT_SWITCHES = ("gradient_checkpointing", "grad_checkpointing", "memory_efficient")
"""Attributes by which modules of Transformers, timm and torchvision switch gradient checkpointing on."""


def _refuse_checkpointing(module: Any, name: str) -> None:
    """SchemaError for modules switched to gradient checkpointing, which some do only where gradients are computed."""
    for path, child in module.named_modules():
        if any(getattr(child, switch, False) is True for switch in _CHECKPOINT_SWITCHES):
            raise SchemaError(f"{name}, module {path!r}: {_checkpoint_refusal()}")


def _is_product_with_weights(operator: str, arguments: dict[str, Any], recorder: Recorder) -> bool:
    """Whether a plain matrix product is a linear layer: a feature map times a matrix of parameters."""
    if operator not in ("matmul", "mm", "addmm", "bmm"):
        return False
    first, second = tensors_of(arguments.values())[-2:]
    return recorder.is_map(first) and recorder.is_weights(second)


def _all_on_meta(args: Any, torch: Any) -> Any:
    """Move CPU tensors, the constants that a forward pass makes, to the meta device."""
    flat, spec = torch.utils._pytree.tree_flatten(args)
    devices = {value.device.type for value in flat if isinstance(value, torch.Tensor) and value.ndim}
    if devices <= {"meta"} or "meta" not in devices:
        return args
    moved = [
        torch.empty_like(value, device="meta") if isinstance(value, torch.Tensor) and value.is_cpu else value
        for value in flat
    ]
    return torch.utils._pytree.tree_unflatten(moved, spec)


def _by_name(schema: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    named: dict[str, Any] = {argument.name: argument.default_value for argument in schema.arguments}
    given: dict[str, Any] = dict(zip(named, args, strict=False)) | kwargs
    return named | given


def _warnings(module: Any, recorder: Recorder) -> tuple[TableWarning, ...]:
    found = recorder.warnings()
    frozen = sum(p.numel() for p in module.parameters() if not p.requires_grad)
    if frozen:
        found.append(TableWarning("frozen", f"{frozen:,}"))
    if recorder.uncounted_parameters():
        text = f"{recorder.uncounted_parameters():,} parameters that no operator reads"
        found.append(TableWarning("cnn", text))
    return tuple(found)
