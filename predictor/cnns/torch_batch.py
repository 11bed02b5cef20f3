"""How many samples a recorded step takes: images of its first layer, or what they are views or frames of.

An epoch is its data set's samples over those of a step, so views that are folded into the mini-batch would make it too
short: a sample is a row of the tensors that the step is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from predictor.cnns.layer_table import Step, TableWarning
from predictor.cnns.recorder import tensors_of
from predictor.cnns.torch_trace import CONVOLUTIONS, Event, import_torch
from predictor.errors import SchemaError

_SMALL = 0.01
"""Share of the largest tensor below which another one holds no images: a mean, a mask."""


class Samples(NamedTuple):
    """Samples of a forward pass, what is to be said of them, and those that the step is given, if known."""

    number: int
    warnings: tuple[TableWarning, ...] = ()
    given: int | None = None

    def warnings_of(self, step: Step) -> tuple[TableWarning, ...]:
        """Those, and one where the step leaves a part of what it is given for forward passes that follow."""
        if self.given is None or self.given <= step.batch_size:
            return self.warnings
        text = f"the first layer reads {step.batch_size} of the {self.given} samples that the step is given"
        return *self.warnings, TableWarning("cnn", f"{text}; {step.batch_size} count as its mini-batch")


def samples_of(events: Sequence[Event], inputs: Sequence[Any], batch_size: int | None) -> Samples:
    """Samples that a step takes.

    `inputs`: what the step or module was given. `batch_size`: the user's word, which has to divide the images of the
    first layer. SchemaError if nothing with weights runs, or the first layer joins tensors of several batch sizes.
    """
    made_by = {id(made): event for event in events if event.node is None for made in _made(event)}
    images, source = _first_images(events, inputs, made_by)
    if images < 1:
        raise SchemaError("the step's mini-batch holds no image. Give it as many as it trains on.")
    if batch_size is not None:
        return Samples(_checked(batch_size, images))
    parameter = import_torch().nn.Parameter
    given = (
        []
        if source is None
        else [each for each in _given(source, made_by) if not isinstance(each, parameter)]
    )
    sizes = sorted({len(tensor) for tensor in given if tensor.ndim >= source.ndim and source.ndim > 1})
    if not sizes or images in sizes:
        return Samples(images, _fewer_labels(events, made_by, images))
    if len(sizes) == 1 and images % sizes[0] == 0:
        return Samples(sizes[0], (_folded(images, sizes[0]),))
    if len(sizes) == 1:
        return Samples(images, given=sizes[0])
    raise SchemaError(
        f"the first layer reads {images} images, which the step joins from tensors of {' and '.join(map(str, sizes))}: "
        f"say how many samples of your data set that is, {_divisors(images)}, as "
        "epochcast.record(step, batch_size=N)."
    )


def _made(event: Event) -> list[Any]:
    """The results, but for tensors that it writes in place."""
    read = set(map(id, tensors_of(event.arguments.values())))
    return [tensor for tensor in tensors_of(event.result) if id(tensor) not in read]


def _first_images(
    events: Sequence[Event], inputs: Sequence[Any], made_by: dict[int, Event]
) -> tuple[int, Any]:
    """Images that the first convolution with parameters reads, else the first dense layer, and their tensor.

    A convolution with groups of a single map has a mini-batch folded into its channels, as where each sample has
    kernels of its own: another tells how many they are.
    """
    parameter = import_torch().nn.Parameter
    convolutions = [event for event in events if event.operator in CONVOLUTIONS and event.node is None]
    convolutions = [event for event in convolutions if not _is_folded(event)] or convolutions
    for event in convolutions:
        if any(isinstance(each, parameter) for each in _given(event.arguments["weight"], made_by)):
            return event.shapes[id(event.arguments["input"])][0], event.arguments["input"]
    for event in convolutions:
        return event.shapes[id(event.arguments["input"])][0], None
    for tensor in tensors_of(inputs):
        if tensor.ndim > 1:
            return int(tensor.shape[0]), None
    for event in events:
        if event.operator in ("mm", "addmm", "linear", "matmul") and event.part_of is None:
            tensors = tensors_of(event.arguments.values())
            first = tensors[0] if event.operator == "linear" else tensors[-2]
            return event.shapes[id(first)][0], first
    raise nothing_runs()


def _is_folded(event: Event) -> bool:
    return event.shapes[id(event.arguments["input"])][0] == 1 and event.arguments["groups"] != 1


def _given(tensor: Any, made_by: dict[int, Event]) -> list[Any]:
    """The tensors, made by no operator, of which one was made; without small ones, such as a mean."""
    left, seen, given = [tensor], set[int](), []
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if id(each) in made_by:
            left += tensors_of(made_by[id(each)].arguments.values())
        else:
            given.append(each)
    largest = max((each.numel() for each in given), default=0)
    return [each for each in given if each.ndim and each.numel() >= _SMALL * largest]


def _checked(batch_size: int, images: int) -> int:
    if (
        isinstance(batch_size, bool)
        or not isinstance(batch_size, int)
        or batch_size < 1
        or images % batch_size
    ):
        raise SchemaError(
            f"batch_size {batch_size!r}: the first layer reads {images} images, so a forward pass takes "
            f"{_divisors(images)} samples."
        )
    return batch_size


def _divisors(images: int) -> str:
    numbers = [number for number in range(1, images + 1) if images % number == 0]
    return f"{', '.join(map(str, numbers[:-1]))} or {images}" if len(numbers) > 1 else str(images)


def _folded(images: int, samples: int) -> TableWarning:
    return TableWarning(
        "cnn",
        f"the step is given {samples} samples, of which its first layer reads {images} images: {images // samples} "
        f"views or frames count as one sample of an epoch; epochcast.record(step, batch_size={images}) counts each",
    )


def _fewer_labels(
    events: Sequence[Event], made_by: dict[int, Event], images: int
) -> tuple[TableWarning, ...]:
    """What to say where each label belongs to several images, such as the views of one."""
    numbers = {len(labels) for event in events for labels in _labels(event, made_by)}
    fewer = [number for number in numbers if 1 < number < images and images % number == 0]
    if not fewer or images in numbers:
        return ()
    text = f"{images} images with {max(fewer)} labels count as {images} samples of an epoch"
    way = f"if they are views, record the step with epochcast.record(step, batch_size={max(fewer)})"
    return (TableWarning("cnn", f"{text}; {way}"),)


def _labels(event: Event, made_by: dict[int, Event]) -> Iterator[Any]:
    if event.operator in ("eq", "nll_loss_forward") and event.node is None:
        for tensor in tensors_of(event.arguments.values()):
            if not tensor.is_floating_point():
                yield from (
                    each
                    for each in _given(tensor, made_by)
                    if each.ndim == 1 and not each.is_floating_point()
                )


def nothing_runs() -> SchemaError:
    """Error about a step without layers that have weights."""
    return SchemaError(
        "the step runs no convolution and no linear layer. Give a function that trains when it is called, such as "
        "lambda: train_step(model, optimizer, images, labels)."
    )
