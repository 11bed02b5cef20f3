"""How many samples a recorded step takes: images of its first layer, or what they are views or frames of.

An epoch is its data set's samples over those of a step, so views that are folded into the mini-batch would make it too
short: a sample is a row of the tensors that the step is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, prod
from typing import Any, NamedTuple

from predictor.cnns.layer_table import Step, TableWarning
from predictor.cnns.recorder import tensors_of
from predictor.cnns.torch_trace import CONVOLUTIONS, Event, import_torch
from predictor.errors import SchemaError

_SMALL = 0.01
"""Share of the largest tensor below which another one holds no images: a mean, a mask."""


class _Read(NamedTuple):
    """Images that a convolution reads, made of given tensors that none before had read."""

    images: int
    sizes: list[int]  # of one
    stretch: int  # between two backward passes, from 0


class Samples(NamedTuple):
    """Samples of a forward pass, what is to be said of them, and those that the step is given, if known.

    `reads`: mini-batches that its networks read, if the user has not said what counts.
    """

    number: int
    warnings: tuple[TableWarning, ...] = ()
    loaded: int | None = None
    reads: tuple[_Read, ...] = ()

    def warnings_of(self, step: Step) -> tuple[TableWarning, ...]:
        """The warnings; one more if the step has more samples than its first layer reads, or other images."""
        counted = step.batch_size
        if self.loaded is not None and self.loaded > counted:
            text = f"the first layer reads {counted} of the {self.loaded} samples that the step is given"
            return *self.warnings, TableWarning("cnn", f"{text}; {counted} count as its mini-batch")
        numbers = sorted({read.images for read in self.reads})
        images = sum(read.images for read in self.reads)
        together = sum(read.images for read in self.reads if read.stretch == self.reads[0].stretch)
        if len(numbers) > 1:
            times = images / counted
        elif numbers and images * self.number > together * counted:  # more than gradients are accumulated of
            times = images / together
        else:
            return self.warnings
        text = (
            f"the step's networks read {images} images, in mini-batches of {_and(numbers)}, and {counted} count as its "
            f"samples; where all are of one data set and new in each iteration, as in the rounds of a critic, divide "
            f"its samples by {times:.3g}"
        )
        return *self.warnings, TableWarning("cnn", text)


def samples_of(events: Sequence[Event], inputs: Sequence[Any], batch_size: int | None) -> Samples:
    """Samples that a step takes.

    `inputs`: what the step or module was given. `batch_size`: the user's word, which has to divide the images of the
    first layer. SchemaError if nothing with weights runs, or the first layer joins tensors of several batch sizes.
    """
    made_by = {id(made): event for event in events if event.node is None for made in _made(event)}
    images, source = _first_images(events, inputs, made_by)
    if images < 1:
        raise SchemaError("the step's mini-batch holds no image. Give it as many as it trains on.")
    reads = _reads(events, made_by)
    numbers = sorted({images, *(read.images for read in reads)})
    if batch_size is not None:
        most, is_whole = gcd(*numbers), isinstance(batch_size, int) and not isinstance(batch_size, bool)
        if not is_whole or batch_size < 1 or most % batch_size:
            raise SchemaError(
                f"batch_size {batch_size!r}: the first layer reads {_and(numbers)} images, so a forward pass takes "
                f"{_divisors(most)} samples."
            )
        return Samples(batch_size)
    samples = _samples_of_first(events, made_by, images, source)
    if any(number % samples.number for number in numbers):
        if gcd(*numbers) not in numbers:
            raise SchemaError(
                f"the step's networks read mini-batches of {_and(numbers)} images: say how many samples of your data "
                f"set a step takes, {_divisors(gcd(*numbers))}, as epochcast.record(step, batch_size=N)."
            )
        samples = Samples(gcd(*numbers))
    return samples._replace(reads=tuple(reads))


def _samples_of_first(
    events: Sequence[Event], made_by: dict[int, Event], images: int, source: Any
) -> Samples:
    """Samples of the first layer: rows of the tensors that its images were made of."""
    outside = [] if source is None else _sources_outside(source, made_by)
    sources = [tensor for tensor in outside if not _is_parameter(tensor)]
    lengths = [len(tensor) for tensor in sources if tensor.ndim >= source.ndim > 1]
    sizes = sorted(set(lengths))
    if not sizes or images in sizes:
        return Samples(images, _fewer_labels(events, made_by, images))
    if len(sizes) == 1 and images % sizes[0] == 0:
        return Samples(sizes[0], (_folded(images, sizes[0], len(lengths)),))
    if len(sizes) == 1:
        return Samples(images, loaded=sizes[0])
    raise SchemaError(
        f"the first layer reads {images} images, which the step joins from tensors of {_and(sizes)}: "
        f"say how many samples of your data set that is, {_divisors(images)}, as "
        "epochcast.record(step, batch_size=N)."
    )


def _made(event: Event) -> list[Any]:
    """Results of an event, without tensors that it writes in place."""
    read = set(map(id, tensors_of(event.arguments.values())))
    return [tensor for tensor in tensors_of(event.result) if id(tensor) not in read]


def _first_images(
    events: Sequence[Event], inputs: Sequence[Any], made_by: dict[int, Event]
) -> tuple[int, Any]:
    """Images that the first convolution with parameters reads, else the first dense layer, and their tensor.

    A convolution with groups of a single map has a mini-batch folded into its channels, as where each sample has
    kernels of its own: another tells how many they are, else the maps before they were folded.
    """
    convolutions = [event for event in events if event.operator in CONVOLUTIONS and event.node is None]
    convolutions = [event for event in convolutions if not is_folded(event)] or convolutions
    for event in convolutions:
        if any(map(_is_parameter, _sources_outside(event.arguments["weight"], made_by))):
            return _images(event, made_by), event.arguments["input"]
    for event in convolutions:
        return _images(event, made_by), None
    for tensor in tensors_of(inputs):
        if tensor.ndim > 1:
            return int(tensor.shape[0]), None
    for event in events:
        if event.operator in ("mm", "addmm", "linear", "matmul") and event.part_of is None:
            tensors = tensors_of(event.arguments.values())
            first = tensors[0] if event.operator == "linear" else tensors[-2]
            return event.shapes[id(first)][0], first
    raise nothing_runs()


def _images(event: Event, made_by: dict[int, Event]) -> int:
    """Images that a convolution reads; where a mini-batch is folded into its groups, those of the maps before."""
    images, channels, *sizes = event.shapes[id(event.arguments["input"])]
    if is_folded(event):
        for tensor, _ in _sources(event.arguments["input"], made_by):
            if list(tensor.shape[2:]) == sizes and tensor.shape[:2].numel() == channels:
                images = max(images, int(tensor.shape[0]))
    return images


def _reads(events: Sequence[Event], made_by: dict[int, Event]) -> list[_Read]:
    """What first convolutions read of what the step is given, those of the largest images: others are noise, or parts.

    Each tensor is read once, as the same images by a generator and by its critic.
    """
    images_read, went_back, stretch, reads = set[int](), False, 0, list[_Read]()
    for event in events:
        went_back |= event.node is not None
        if event.operator not in CONVOLUTIONS or event.node is not None or is_folded(event):
            continue
        images, *sizes = event.shapes[id(event.arguments["input"])]
        sources = {id(tensor) for tensor in _sources_of_first(event.arguments["input"], made_by)}
        if sources - images_read:
            stretch, went_back = stretch + went_back, False
            reads.append(_Read(images, sizes, stretch))
            images_read |= sources
    largest = max(reads, key=lambda read: prod(read.sizes)).sizes if reads else None
    return [read for read in reads if read.sizes == largest]


def _sources_of_first(tensor: Any, made_by: dict[int, Event]) -> list[Any]:
    """Images or samples that a first layer's input was made of; empty for another layer's input."""
    sources = []
    for source, event in _sources(tensor, made_by):
        if event is None:
            sources.append(source)
        elif event.operator in CONVOLUTIONS:
            return []
    return [source for source in sources if source.ndim >= tensor.ndim - 1 and not _is_parameter(source)]


def _is_parameter(tensor: Any) -> bool:
    return isinstance(tensor, import_torch().nn.Parameter)


def is_folded(event: Event) -> bool:
    """Whether a convolution has groups of a single map."""
    return event.shapes[id(event.arguments["input"])][0] == 1 and event.arguments["groups"] != 1


def _sources_outside(tensor: Any, made_by: dict[int, Event]) -> list[Any]:
    """Tensors given from outside that a tensor was made of, without small ones, such as a mean."""
    sources = [source for source, event in _sources(tensor, made_by) if event is None]
    largest = max((source.numel() for source in sources), default=0)
    return [source for source in sources if source.ndim and source.numel() >= _SMALL * largest]


def _sources(tensor: Any, made_by: dict[int, Event]) -> Iterator[tuple[Any, Event | None]]:
    """A tensor and all tensors that it was made of, each with the event that made it."""
    left, visited = [tensor], set[int]()
    while left:
        current = left.pop()
        if id(current) not in visited:
            visited.add(id(current))
            event = made_by.get(id(current))
            yield current, event
            left += tensors_of(event.arguments.values()) if event else ()


def _and(numbers: Sequence[int]) -> str:
    return " and ".join(map(str, numbers))


def _divisors(images: int) -> str:
    numbers = [number for number in range(1, images + 1) if images % number == 0]
    return f"{', '.join(map(str, numbers[:-1]))} or {images}" if len(numbers) > 1 else str(images)


def _folded(images: int, samples: int, tensors: int) -> TableWarning:
    parts = images // samples
    text = (
        f"the step joins {parts} tensors of {samples} images, such as views, frames or domains, and {samples} count as "
        "samples of an epoch"
        if parts == tensors
        else f"the step is given {samples} samples, of which its first layer reads {images} images: {parts} views or "
        "frames count as one sample of an epoch"
    )
    return TableWarning("cnn", f"{text}; epochcast.record(step, batch_size={images}) counts each")


def _fewer_labels(
    events: Sequence[Event], made_by: dict[int, Event], images: int
) -> tuple[TableWarning, ...]:
    """What to say where each label belongs to several images, such as the views of one."""
    labels = [
        labels
        for event in events
        if event.operator in ("eq", "nll_loss_forward") and event.node is None
        for tensor in tensors_of(event.arguments.values())
        if not tensor.is_floating_point()
        for labels in _sources_outside(tensor, made_by)
    ]
    numbers = {len(tensor) for tensor in labels if tensor.ndim == 1 and not tensor.is_floating_point()}
    fewer = [number for number in numbers if 1 < number < images and images % number == 0]
    if not fewer or images in numbers:
        return ()
    text = f"{images} images with {max(fewer)} labels count as {images} samples of an epoch"
    remedy = f"if they are views, record the step with epochcast.record(step, batch_size={max(fewer)})"
    return (TableWarning("cnn", f"{text}; {remedy}"),)


def nothing_runs() -> SchemaError:
    """Error about a step without layers that have weights."""
    return SchemaError(
        "the step runs no convolution and no linear layer. Give a function that trains when it is called, such as "
        "lambda: train_step(model, optimizer, images, labels)."
    )
