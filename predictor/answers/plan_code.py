"""A plan of training as the lines of PyTorch that do it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from predictor.cnns.blocks import Block

_AUTOCAST = {"amp_fp16": "torch.float16", "amp_bf16": "torch.bfloat16"}
_CHILD = re.compile(r"(?:(?P<parent>.+)\.)?(?P<place>\d+)(?:\..*)?")


def code_of(precision: str, memory_format: str, parts: int, blocks: Sequence[Block], n_gpus: int = 1) -> str:
    """Lines that change a `model`, and a function `train_step(images, labels)` with your `optimizer` and `criterion`.

    A GPU runs its images in `parts`, one after the other. `blocks` are recomputed, named as the model's modules; others
    are named in a comment. `n_gpus` share the images, each with a process. Images and labels come from the host's
    memory: the GPU holds those of one part at a time. PyTorch's allocator extends its segments, without which up to a
    fifth of what it reserves is idle (`benchmarks/fit_memory_h100.csv`).
    """
    return "\n".join(
        [
            *_model_lines(precision, memory_format, blocks, n_gpus),
            *_step_lines(precision, memory_format, parts, n_gpus),
        ]
    )


def _model_lines(precision: str, memory_format: str, blocks: Sequence[Block], n_gpus: int) -> Iterator[str]:
    yield "import os"
    yield 'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before the first tensor on the GPU'
    yield "import torch"
    if blocks:
        yield "from torch.utils.checkpoint import checkpoint"
    yield ""
    if precision == "fp16":
        yield "model = model.half()"
    if memory_format == "channels_last":
        yield "model = model.to(memory_format=torch.channels_last)"
    modules = [block.name for block in blocks if block.is_module]
    if modules:
        yield f"for name in {modules}:"
        yield "    block = model.get_submodule(name)"
        given = "*x"
        if any(block.joins for block in blocks):
            given = "*(list(each) if isinstance(each, list) else each for each in x)"
            yield "    # lists are copied: the model adds to them before the block runs again"
        yield f"    block.forward = lambda *x, run=block.forward: checkpoint(run, {given}, use_reentrant=False)"
    runs: dict[str, list[tuple[int, int]]] = {}
    for block in blocks:
        place = None if block.is_module else _run_of(block.name)
        if place is not None:
            runs.setdefault(place[0], []).append(place[1:])
        elif not block.is_module:
            yield f"# recompute the layers {block.name}: checkpoint(..., use_reentrant=False)"
    for parent, places in runs.items():
        yield from _run_lines(parent, places)
    if n_gpus > 1:
        yield f"model = torch.nn.parallel.DistributedDataParallel(model)  # torchrun --nproc-per-node {n_gpus}"


def _run_of(name: str) -> tuple[str, int, int] | None:
    """Parent and children of a stage that runs from one child of a `Sequential` to another; None if it does not."""
    ends = [_CHILD.fullmatch(end) for end in name.split(" to ")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[0]["parent"] != ends[1]["parent"]:
        return None
    return ends[0]["parent"] or "", int(ends[0]["place"]), int(ends[1]["place"])


def _run_lines(parent: str, places: Sequence[tuple[int, int]]) -> Iterator[str]:
    of = f"model.get_submodule({parent!r})"
    yield f"def recomputed(x, layers={of}):"
    yield "    done = 0"
    yield f"    for first, last in {list(places)}:"
    yield "        x = checkpoint(layers[first : last + 1], layers[done:first](x), use_reentrant=False)"
    yield "        done = last + 1"
    yield "    return layers[done:](x)"
    yield f"{of}.forward = recomputed"


def _step_lines(precision: str, memory_format: str, parts: int, n_gpus: int) -> Iterator[str]:
    scaled = precision == "amp_fp16"
    if scaled:
        yield 'scaler = torch.amp.GradScaler("cuda")'
    yield from ("", "", "def train_step(images, labels):")
    yield "    optimizer.zero_grad()"
    margin, share = "    ", ""
    if parts > 1:
        yield f"    for images, labels in zip(images.chunk({parts}), labels.chunk({parts})):"
        margin, share = "        ", f" / {parts}"
    if parts > 1 and n_gpus > 1:
        yield "        # all but the last part under model.no_sync()"
    to = '"cuda", torch.half' if precision == "fp16" else '"cuda"'
    to += ", memory_format=torch.channels_last" if memory_format == "channels_last" else ""
    yield f'{margin}images, labels = images.to({to}), labels.to("cuda")'
    if precision in _AUTOCAST:
        yield f'{margin}with torch.autocast("cuda", {_AUTOCAST[precision]}):'
        yield f"{margin}    loss = criterion(model(images), labels){share}"
    else:
        yield f"{margin}loss = criterion(model(images), labels){share}"
    yield f"{margin}{'scaler.scale(loss)' if scaled else 'loss'}.backward()"
    yield from ("    scaler.step(optimizer)", "    scaler.update()") if scaled else ("    optimizer.step()",)
