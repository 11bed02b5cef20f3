"""Reads what a training step of PyTorch runs into a layer table: every pass of every layer as often as it runs.

What does not run is not counted, so that frozen, checkpointed and accumulated parts, several networks, inputs and
losses need not be said. A module without its step is read the same way (`predictor.cnns.torch_module`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from predictor.cnns.layer_table import LayerTable, Step, TableWarning
from predictor.cnns.recorder import Recorder
from predictor.cnns.step_reader import StepReader
from predictor.cnns.torch_batch import samples_of
from predictor.cnns.torch_kept import BOXES_PER_IMAGE
from predictor.cnns.torch_refusals import refusal
from predictor.cnns.torch_trace import Trace, import_torch, traced
from predictor.cnns.untouched import Note, random_states, seed_all, untouched
from predictor.errors import SchemaError

_DRAWS, _FEW_DRAWS = 5, 2
"""Draws of a step's random numbers, and those of them after which numbers that decide nothing are known as such."""

_TIMES_AS_MANY = 4
"""Objects in an image in the bounds, over those stated."""


def record(
    step: Callable[..., object],
    *inputs: Any,
    name: str | None = None,
    batch_size: int | None = None,
    boxes_per_image: int = BOXES_PER_IMAGE,
    loader: Any = None,
) -> LayerTable:
    """What a training step runs, as a CNN to ask about.

    Parameters
    ----------
    step : callable
        Does one iteration: forward, loss, backward, optimizer. Whatever it changes (parameters, gradients, buffers,
        attributes, variables, optimizers, schedulers, random generators) is put back; generators' places are not.
        A module is run forward and backward from all that it returns.
    *inputs
        What the step or module takes: images of any shape, several of them, labels, tuples. A dict of a module's
        arguments is given by their names.
    name : str, optional
        Name of the CNN; by default the class of the module that runs first.
    batch_size : int, optional
        Samples of a forward pass; by default the images that the first convolution reads or, where views or frames
        are folded into them, the rows of the tensors that the step is given, and answers say so.
    boxes_per_image : int
        Objects in an image, >= 1: what masks, ``nonzero`` and the suppression of boxes keep follows from it, since
        tensors have no numbers. Answers say what a quarter and four times as many would compute.
    loader : torch.utils.data.DataLoader, optional
        What the training runs through in an epoch, of which nothing is read: answers count the samples that its
        sampler draws, in the images of this step, and leave out a rest that it drops.

    Returns
    -------
    LayerTable
        Its columns `forwards`, `input_gradients`, `weight_gradients` and `recomputed` are set where a layer does not
        run as in a CNN that is trained whole; its `step` holds batch size, precision, memory format and optimizer.

    Raises
    ------
    BackendUnavailableError
        If PyTorch is not installed.
    SchemaError
        If the step fails without numbers, writes files, runs no layer, or several iterations, or `boxes_per_image` is
        below 1, or `loader` has no length.

    Examples
    --------
    >>> import torch
    >>> model, images = torch.nn.Conv2d(3, 8, 3), torch.zeros(4, 3, 32, 32)
    >>> optimizer = torch.optim.SGD(model.parameters(), 0.1)
    >>> def step():
    ...     optimizer.zero_grad()
    ...     model(images).mean().backward()
    ...     optimizer.step()
    >>> record(step).step.batch_size
    4
    """
    if not callable(step):
        raise SchemaError(
            f"record takes a function that does one training step, not a {type(step).__name__}: "
            "epochcast.record(lambda: train_step(model, optimizer, images, labels))."
        )
    if isinstance(step, import_torch().nn.Module) and not inputs:
        raise SchemaError(
            "record takes a module with its inputs, such as record(module, images), or a function that does one "
            "training step. Give the module itself to predict, compare or explain, with an image_size."
        )
    if isinstance(boxes_per_image, bool) or not isinstance(boxes_per_image, int) or boxes_per_image < 1:
        raise SchemaError(
            f"boxes_per_image {boxes_per_image!r} is no number of objects in an image: give 1 or more, such as "
            f"{BOXES_PER_IMAGE}."
        )
    again = partial(_table_of, step, inputs, name, batch_size)
    with _no_chainer(step):
        run = again(boxes_per_image)
    table = _middle_of_draws(run.table, partial(again, boxes_per_image)) if run.drew else run.table
    table = _between_boxes(table, boxes_per_image, again) if run.has_stand_ins else table
    if loader is None or table.step is None:
        return table
    return replace(table, step=_with_loader(table.step, loader))


def _with_loader(step: Step, loader: Any) -> Step:
    """The step with what an epoch of its loader holds: samples of the step's kind, and whether a rest is dropped.

    A step of several draws, or of patches, has as many images of each that the loader draws.
    """
    try:
        n_drawn, n_batches, batch_size = len(loader.sampler), len(loader), loader.batch_size
    except (AttributeError, TypeError):
        raise SchemaError(
            f"loader, a {type(loader).__name__}, does not say how many samples an epoch has. Leave it out, and pass "
            "samples to the question."
        ) from None
    if batch_size is None:  # a sampler of whole mini-batches
        return replace(step, samples=n_batches * step.batch_size // step.parts)
    n_drawn *= getattr(loader.sampler, "num_replicas", 1)
    samples = -(-n_drawn * step.batch_size // (step.parts * batch_size))
    return replace(step, samples=samples, drop_last=loader.drop_last or None)


class _Recorded(NamedTuple):
    """The table of one run of a step, whether it drew random numbers, and whether numbers decide what it keeps."""

    table: LayerTable
    drew: bool
    has_stand_ins: bool


def _no_chainer(step: Callable[..., object]) -> Any:
    """Context that refuses the first function of Chainer that a step runs, before it changes anything."""
    chainer: Any = sys.modules.get("chainer")
    if not hasattr(chainer, "FunctionHook"):  # not imported
        return nullcontext()
    refusal = SchemaError(
        "record reads steps of PyTorch, and this one runs Chainer. Give the chain itself: "
        "epochcast.predict(chain, gpu, batch_size, image_size=224, framework='chainer')."
    )
    if isinstance(step, chainer.Link):
        raise refusal

    class Refuse(chainer.FunctionHook):
        name = "epochcast.record"

        def forward_preprocess(self, _function: Any, _arrays: Any) -> None:
            raise refusal

    return Refuse()


def _table_of(
    step: Callable[..., object],
    inputs: tuple[Any, ...],
    name: str | None,
    batch_size: int | None,
    boxes_per_image: int = BOXES_PER_IMAGE,
    seed: int | None = None,
) -> _Recorded:
    """The table of a step as recorded once."""
    is_module = isinstance(step, import_torch().nn.Module)
    with untouched(step, inputs) as note:
        if seed is not None:
            seed_all(seed)
        states = random_states()
        trace = _trace(step, inputs, note, boxes_per_image)
        drew = random_states() != states
        of_one_optimizer = len({update.by for update in trace.updates}) == 1  # a GAN's optimizers differ
        several = of_one_optimizer and len(trace.updates) if trace.updates else trace.own_updates
        if several > 1:
            raise SchemaError(
                f"the step updates its parameters {several} times: it is {several} iterations. Record one: the body of "
                "the loop over mini-batches, or a trainer's loop that ends after one, such as by `max_steps=1`."
            )
        samples = samples_of(trace.events, inputs, batch_size)
        if not is_module and all(event.node is None for event in trace.events):
            raise SchemaError(
                "the step computes no gradients, and answers are about training. Call loss.backward() in it, or give "
                "the module with its inputs, record(module, images), which is run backward from all that it returns."
            )
        reader = StepReader(Recorder(samples.number, each_tensor=trace.has_stand_ins))
        reader.read(trace)
        table = reader.step_table(trace, name, samples)
    if not (trace.updates or is_module):
        doubt = (
            "the step updates its parameters by no optimizer of PyTorch: what it runs for that is counted, and "
            "momentum's update for what it keeps"
            if trace.own_updates
            else "the step updates no parameters by an optimizer; momentum's update is counted"
        )
        table = _with_warning(table, doubt)
    if trace.assumed:
        names = ", ".join(sorted(trace.assumed))
        doubt = (
            f"what the step decides by numbers ({names}) is as while losses, norms and gradients are finite"
        )
        table = _with_warning(table, doubt)
    for assumption in trace.assumptions:
        table = _with_warning(table, assumption)
    return _Recorded(table, drew, trace.has_stand_ins)


def _with_warning(table: LayerTable, text: str) -> LayerTable:
    return replace(table, warnings=(*table.warnings, TableWarning("cnn", text)))


def _between_boxes(table: LayerTable, boxes: int, again: Callable[..., _Recorded]) -> LayerTable:
    """The table of a step that keeps what numbers decide, which says what fewer and more objects would compute."""
    counts = (max(1, boxes // _TIMES_AS_MANY), boxes * _TIMES_AS_MANY)
    numbers = [_elements(again(count, seed).table) / _elements(table) for seed, count in enumerate(counts)]
    waits = table.step.waits if table.step is not None else None
    text = (
        f"what numbers decide, such as the boxes that are kept, is that of {boxes} objects in each image "
        f"(boxes_per_image): with {counts[0]} to {counts[1]} the layers compute {min(numbers):.2f} to "
        f"{max(numbers):.2f} times as many numbers"
    )
    text += f"; the host waits for the GPU {waits} times" if waits else ""
    return _with_warning(table, text)


def _middle_of_draws(table: LayerTable, again: Callable[..., _Recorded]) -> LayerTable:
    """The table of a step that draws random numbers: where they decide what runs, that of the middle one of draws."""
    tables = [again(seed=seed).table for seed in range(_FEW_DRAWS)]
    if len({_elements(drawn) for drawn in (table, *tables)}) == 1:
        return table
    tables += [again(seed=seed).table for seed in range(_FEW_DRAWS, _DRAWS)]
    low, *_, high = sizes = sorted(map(_elements, tables))
    middle = next(table for table in tables if _elements(table) == sizes[_DRAWS // 2])
    if low == high:
        return middle
    doubt = (
        f"what runs is drawn at random: of {_DRAWS} draws the middle one is answered, of which the others compute "
        f"{low / sizes[_DRAWS // 2]:.2f} to {high / sizes[_DRAWS // 2]:.2f} times as many numbers"
    )
    return _with_warning(middle, doubt)


def _elements(table: LayerTable) -> int:
    """Numbers that the forward passes of a table's layers compute for one image."""
    return sum(
        (1 if row.forwards is None else row.forwards)
        * (row.out_channels or 1) * (row.out_height or 1) * (row.out_width or 1) * row.repeats
        for row in table
    )  # fmt: skip


def _trace(step: Any, inputs: tuple[Any, ...], note: Note, boxes_per_image: int) -> Trace:
    """What a step runs, or the forward pass of a module in training mode and the backward pass from its outputs."""
    path: list[tuple[str, bool]] = []
    is_module = isinstance(step, import_torch().nn.Module)
    run = partial(step, *inputs)
    is_dict = is_module and len(inputs) == 1 and isinstance(inputs[0], Mapping)
    if is_dict and set(inputs[0]) <= set(inspect.signature(step.forward).parameters):
        run = partial(step, **inputs[0])  # all keys are names of arguments
    then = run_backward if is_module else None
    if is_module and not step.training:
        step.train()
    try:
        return traced(run, then, path, note=note, boxes_per_image=boxes_per_image)
    except Exception as error:  # the user's own code may raise anything
        raise refusal(error, path) from error


def run_backward(result: object) -> None:
    """Run the backward pass of every output of a module, in any structure; of its loss only, if it has one."""
    torch = import_torch()
    loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    outputs = [tensor for tensor in _outputs(result if loss is None else loss) if tensor.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.empty_like(tensor) for tensor in outputs])


def _outputs(result: object) -> list[Any]:
    if hasattr(result, "is_contiguous"):
        return [result]
    parts = result.values() if isinstance(result, Mapping) else getattr(result, "__dict__", {}).values()
    if isinstance(result, list | tuple):
        parts = result
    return [tensor for value in parts for tensor in _outputs(value)]
