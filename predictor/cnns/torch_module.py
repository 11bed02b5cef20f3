"""Reads a PyTorch module into a layer table: what its training step runs, on images of one size.

The module is copied to PyTorch's *meta* device, which computes only shapes: a CNN of any size takes a second and no
memory. A second forward pass at another batch size tells which dimensions grow with the mini-batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from predictor.cnns.layer_table import LayerTable, TableWarning
from predictor.cnns.recorder import Recorder, tensors_of
from predictor.cnns.step_reader import StepReader
from predictor.cnns.torch_refusals import first_line, way_round_detector
from predictor.cnns.torch_step import run_backward
from predictor.cnns.torch_trace import Trace, import_torch, traced
from predictor.cnns.untouched import random_states, seed_all, untouched
from predictor.errors import EpochcastError, OutOfRangeError, SchemaError

if TYPE_CHECKING:
    import torch

_CHANNELS = 3
"""Channels of the images that a module is first run on."""

_DRAWS = 4
_RANDOM = "Of random branches epochcast.record(module, images) answers the middle one of several draws."

_TOO_SMALL = "too small", "can't be greater than actual input size", "expected more than 1 value per channel"


def from_torch(
    module: torch.nn.Module,
    image_size: int,
    cnn: str | None = None,
    in_channels: int | None = None,
    batch: int = 2,
) -> LayerTable:
    """Layer table of a training forward pass of `module`.

    `module`: built on any device; neither changed nor moved. If it is in evaluation mode, its copy trains.
    `image_size`: height and width of the images, in pixels. `cnn`: name of the CNN; the class's by default.
    `in_channels`: channels of the images; by default 3, or what the layer that does not run on 3 channels reads.
    `batch`: images of the trial run, >= 2, and one more in the second; the table does not depend on it.

    Layers that are frozen or computed again in the backward pass say which passes run. Its warnings name operators of
    no known type, results that do not grow with the mini-batch, and parameters that nothing reads.
    BackendUnavailableError if PyTorch is not installed; OutOfRangeError if the image is too small for the module;
    SchemaError if it is no module, does not run on a batch of such images, runs other operators on a larger one, or has
    recurrent layers.
    """
    torch = import_torch()
    spreads = type(module).__name__ in ("DataParallel", "DistributedDataParallel")
    module = module.module if spreads else getattr(module, "_orig_mod", module)  # of an OptimizedModule
    if not isinstance(module, torch.nn.Module):
        raise SchemaError(f"{type(module).__name__} is not a torch.nn.Module.")
    for child_name, child in module.named_modules():
        if isinstance(child, torch.jit.ScriptModule):
            subject = f"module {child_name!r}" if child_name else "the module"
            raise SchemaError(
                f"{subject} is scripted and cannot be read: give the torch.nn.Module that it was made of."
            )
    if isinstance(image_size, bool) or not isinstance(image_size, int) or image_size < 1:
        raise OutOfRangeError(f"image_size {image_size!r} is not a whole number of pixels of at least 1.")
    name = cnn or type(module).__name__
    refuse_lazy(module, name, in_channels or _CHANNELS, image_size)
    copy = _on_meta(module, name)
    if not module.training:
        copy.train()
    path: list[tuple[str, bool]] = []
    started = _follow_modules(copy, path)
    recorder = Recorder(batch, batch + 1, path=path)
    for parameter in copy.parameters():
        recorder.parameter(parameter)
    refuse_several_inputs(copy, name)
    shape = (in_channels or _CHANNELS, image_size, image_size)
    volume = None
    with untouched():
        try:
            reader = read_runs(recorder, copy, shape, name)
        except SchemaError:
            channels = None if in_channels else _channels_read(copy, path, started, image_size)
            volume = _volume(copy, in_channels, image_size)
            if volume is None and channels is None:
                raise
            of_channels = (channels or _CHANNELS, image_size, image_size)
            reader = read_runs(recorder, copy, volume or of_channels, name)
    layers, _ = reader.layers()
    halves = {str(parameter.dtype) for parameter in module.parameters()} & {"torch.float16", "torch.bfloat16"}
    cautions = [
        TableWarning("cnn", f"its parameters are {half}, taken as in the precision of the question")
        for half in halves
    ]
    if volume is not None:
        sides = "a network over volumes is read on cubes; epochcast.record(module, volumes) takes any sides"
        cautions.append(TableWarning("cnn", sides))
    if recorder.uncounted_parameters():
        text = f"{recorder.uncounted_parameters():,} parameters that no operator reads"
        cautions.insert(0, TableWarning("cnn", text))
    return LayerTable(name, image_size, layers, "torch", (*recorder.warnings(), *cautions))


def _volume(module: Any, in_channels: int | None, image_size: int) -> tuple[int, ...] | None:
    """Channels and sides of the cubes that a network over volumes reads; None if its first convolution is none."""
    weights = ((child, getattr(child, "weight", None)) for child in module.modules())
    first = next((child for child, weight in weights if weight is not None and weight.ndim > 2), None)
    if first is None or first.weight.ndim != 5:
        return None
    channels: int = in_channels or first.in_channels
    return channels, image_size, image_size, image_size


def refuse_several_inputs(module: torch.nn.Module, name: str) -> None:
    """SchemaError for a module that needs more than images."""
    parameters = [*inspect.signature(module.forward).parameters.values()]
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 1:
        raise SchemaError(
            f"{name} takes {' and '.join(needed)}, and is read on one batch of images. In Python "
            f"epochcast.record(module, {', '.join(needed)}) reads it on all of them: "
            'epochcast.predict(epochcast.record(...), gpu=...), or its to_csv("cnn.csv") for the commands.'
        )


def _channels_read(
    module: Any, path: list[tuple[str, bool]], started: list[Any], image_size: int
) -> int | None:
    """Channels that the first layer with weights reads; None unless a run on images of 3 channels stopped there."""
    layer = next((child for child in started if getattr(child, "weight", None) is not None), None)
    if layer is None or not path or module.get_submodule(path[-1][0]) is not layer:
        return None
    if layer.weight.ndim == 2:  # a linear layer reads flattened images
        channels, remainder = divmod(layer.weight.shape[1], image_size**2)
        return None if remainder or channels in (0, _CHANNELS) else int(channels)
    channels = getattr(layer, "in_channels", getattr(layer, "num_features", _CHANNELS))
    return None if channels == _CHANNELS else int(channels)


def read_runs(
    recorder: Recorder, run: Callable[[Any], object], shape: Sequence[int], name: str, channel_dim: int = 1
) -> StepReader:
    """Run forward and backward on meta images, and forward at the recorder's other batch size, and read what runs.

    `recorder`: knows the parameters; whoever runs keeps its `path`. `run`: takes a batch of images. `shape`: of an
    image. `name`: of the CNN, for messages. `channel_dim`: 1 for channels first, -1 for last. OutOfRangeError or
    SchemaError as `from_torch`.
    """
    torch = import_torch()
    image = torch.empty(recorder.batch_size, *shape, device="meta")
    larger = torch.empty(recorder.other_batch_size, *shape, device="meta")
    states = random_states()
    trace = _run(run, image, recorder.path, name, run_backward)
    drew = random_states() != states
    again = _run(run, larger, recorder.path, name).events
    recorder.image(image, channel_dim)
    operators = [event.operator for event in trace.events[: trace.n_forward]]
    if operators != [event.operator for event in again]:
        sizes = f"batch sizes {recorder.batch_size} and {recorder.other_batch_size}"
        raise SchemaError(
            f"{name} runs different operators at {sizes}, so its work for one image is not known. "
            "Write it without loops over the mini-batch, or as a layer table CSV. " + _RANDOM
        )
    for seed in range(_DRAWS if drew else 0):
        seed_all(seed)
        if operators != [event.operator for event in _run(run, larger, recorder.path, name).events]:
            raise SchemaError(f"{name} draws at random what it runs. {_RANDOM}")
    shapes = [[event.shapes[id(tensor)] for tensor in tensors_of(event.result)] for event in again]
    reader = StepReader(recorder)
    try:
        reader.read(trace, shapes)
    except EpochcastError as error:
        raise type(error)(f"{name}, {error}") from error
    if not recorder.rows:
        raise SchemaError(f"{name} runs no operator on its image.")
    return reader


def refuse_lazy(module: torch.nn.Module, name: str, in_channels: int, image_size: int) -> None:
    """SchemaError for lazy modules that have not run yet, whose shapes are unknown."""
    is_lazy = import_torch().nn.parameter.is_lazy
    parts = module.named_modules()
    own = [(path, (*m.parameters(recurse=False), *m.buffers(recurse=False))) for path, m in parts]
    layers = [path for path, tensors in own if any(map(is_lazy, tensors))]
    if layers:
        raise SchemaError(
            f"{name} has lazy layers that have not run yet, so their shapes are unknown: {', '.join(layers[:3])}"
            f"{', ...' if len(layers) > 3 else ''}. Run it once before giving it: "
            f"model(torch.zeros(2, {in_channels}, {image_size}, {image_size}))."
        )


def _on_meta(module: Any, name: str) -> Any:
    """Copy a module with meta tensors for its parameters and buffers: its numbers are never copied."""
    torch = import_torch()
    memo: dict[int, Any] = {}
    if any(parameter.dtype == torch.float64 for parameter in module.parameters()):
        raise SchemaError(f"{name} computes in float64, which is not counted. Give it as module.float().")
    try:
        for parameter in module.parameters():
            empty = torch.empty(parameter.shape, dtype=_dtype(parameter), device="meta")
            memo[id(parameter)] = torch.nn.Parameter(empty, requires_grad=parameter.requires_grad)
        for buffer in module.buffers():
            memo[id(buffer)] = torch.empty(buffer.shape, dtype=_dtype(buffer), device="meta")
        return deepcopy(module, memo)
    except (RuntimeError, TypeError, ValueError) as error:
        raise SchemaError(
            f"{name} cannot be copied: {first_line(error)}. Give epochcast.record(module, images), which copies "
            "nothing."
        ) from error


def _dtype(tensor: Any) -> Any:
    torch = import_torch()
    return torch.float32 if tensor.is_floating_point() else tensor.dtype


def _follow_modules(module: Any, running: list[tuple[str, bool]]) -> list[Any]:
    """Track the running module, whose name the rows get; the list of all that have started to run."""
    started: list[Any] = []
    for path, child in module.named_modules():
        layer = (path, not any(True for _ in child.children()))
        child.register_forward_pre_hook(lambda *_, layer=layer: running.append(layer))
        child.register_forward_pre_hook(lambda child, *_: started.append(child))
        child.register_forward_hook(lambda *_: (running.pop(), None)[1])
    return started


def _run(
    module: Any,
    image: Any,
    path: list[tuple[str, bool]],
    name: str,
    then: Callable[[object], None] | None = None,
) -> Trace:
    path.clear()
    try:
        return traced(lambda: module(image), then, path, on_meta=True)
    except EpochcastError as error:
        raise type(error)(f"{name}, module {path[-1][0] if path else ''!r}: {error}") from error
    except Exception as error:  # the user's own code may raise anything
        size = "x".join(map(str, image.shape))
        where = f" in module {path[-1][0]!r}" if path and path[-1][0] else ""
        text = f"{name} does not run on a batch of {size}{where}: {first_line(error)}"
        if any(words in str(error).casefold() for words in _TOO_SMALL):
            raise OutOfRangeError(f"{text}. Give a larger image_size.") from error
        raise SchemaError(f"{text}. {way_round_detector(module) or _NEXT_STEP}") from error


_NEXT_STEP = (
    "Check image_size, and that it fixes no batch size; a module whose control flow depends on data can be exported to "
    "ONNX or written as a layer table CSV."
)
