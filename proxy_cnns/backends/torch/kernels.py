"""Which kernels PyTorch's convolutions ran, from one profiled iteration, for the column `conv_algorithms`.

Only where `EPOCHCAST_PROFILER=on` is in the environment: it needs CUPTI, which machines may deny, and a process that
has profiled enqueues 1.3 to 1.5 times as slowly from then on (four CNNs on an H100).
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

_FORWARD, _BACKWARD = "aten::convolution", "aten::convolution_backward"
_LONGEST_NAME = 100


def convolution_kernels(enqueue: Callable[[], None]) -> str | None:
    """Profile one iteration on a GPU.

    Gives JSON: ``<input>_<weight>_s<stride>`` (sizes, joined by x) -> pass -> its longest kernel; the passes are
    forward, backward_data and backward_filter, or ``backward`` where the kernels' names do not tell data from filter.
    None if the profiler saw nothing, or is not asked for.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    if os.environ.get("EPOCHCAST_PROFILER", "").casefold() not in ("on", "1", "yes"):
        return None
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as record:
            enqueue()
            torch.cuda.synchronize()
        events = record.events() or ()
    except (AttributeError, RuntimeError):  # no right to profile, or another profiler is attached
        return None
    passes_by_shape: dict[str, dict[str, str]] = {}
    for event in events:
        if event.name in (_FORWARD, _BACKWARD):
            kernels = list(_kernels(event))
            passes = _forward(kernels) if event.name == _FORWARD else _backward(kernels)
            passes_by_shape.setdefault(_shape(event), {}).update(passes)
    passes_by_shape = {shape: passes for shape, passes in passes_by_shape.items() if passes}
    return json.dumps(passes_by_shape, sort_keys=True) if passes_by_shape else None


def _kernels(event: Any) -> Iterator[Any]:
    yield from event.kernels
    for child in event.cpu_children:
        yield from _kernels(child)


def _forward(kernels: list[Any]) -> dict[str, str]:
    return {"forward": _longest(kernels)} if kernels else {}


def _backward(kernels: list[Any]) -> dict[str, str]:
    """By cuDNN's and CUTLASS's names: wgrad gives the filter's gradient, dgrad the data's."""
    filters = [kernel for kernel in kernels if "wgrad" in kernel.name.casefold()]
    data = [kernel for kernel in kernels if "dgrad" in kernel.name.casefold()]
    if not filters and not data:
        return {"backward": _longest(kernels)} if kernels else {}
    named = {"backward_data": data, "backward_filter": filters}
    return {name: _longest(of_pass) for name, of_pass in named.items() if of_pass}


def _longest(kernels: list[Any]) -> str:
    return str(max(kernels, key=lambda kernel: kernel.duration).name)[:_LONGEST_NAME]


def _shape(event: Any) -> str:
    first = 0 if event.name == _FORWARD else 1  # a backward's first argument is the incoming gradient
    sizes = ["x".join(map(str, input_shape)) for input_shape in event.input_shapes[first : first + 2]]
    concrete = getattr(event, "concrete_inputs", None) or ()
    stride = concrete[3 if event.name == _FORWARD else 4] if len(concrete) > 4 else None
    return "_".join([*sizes, *([f"s{'x'.join(map(str, stride))}"] if stride else [])])
