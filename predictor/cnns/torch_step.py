"""Reads what a training step of PyTorch runs into a layer table: every pass of every layer as often as it runs.

What does not run is not counted, so that frozen, checkpointed and accumulated parts, several networks, inputs and
losses need not be said. A module without its step is read the same way (`predictor.cnns.torch_module`).
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable, Step, TableWarning, trained_whole
from predictor.cnns.recorder import Recorder, tensors_of
from predictor.cnns.torch_trace import CONVOLUTIONS, Event, Trace, Update, first_line, import_torch, traced
from predictor.errors import EpochcastError, SchemaError
from predictor.operator_types import OPERATOR_TYPES

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear")
_ATTENTIONS = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
_MASKED = {"convolution_backward", "native_batch_norm_backward", "cudnn_batch_norm_backward"}
_MASKED |= {"native_layer_norm_backward", "native_group_norm_backward"}
_ALIASES = ("t", "view", "_unsafe_view", "transpose", "permute", "expand", "detach", "alias", "squeeze")
_LOSSES = ("nll_loss_forward", "nll_loss2d_forward")
_OPTIMIZERS = {"SGD": "sgd", "Adam": "adam", "AdamW": "adam", "NAdam": "adam", "RAdam": "adam"}
_AUTOCAST = {"float16": "amp_fp16", "bfloat16": "amp_bf16"}


def record(
    step: Callable[..., object], *inputs: Any, name: str | None = None, batch_size: int | None = None
) -> LayerTable:
    """What a training step runs, as a CNN to ask about.

    Parameters
    ----------
    step : callable
        Does one iteration: forward, loss, backward, optimizer. Parameters, buffers and the state of optimizers are
        left as they were, gradients as after `zero_grad`; what it assigns otherwise has no numbers afterwards.
        A module is run forward and backward from all that it returns.
    *inputs
        What the step or module takes: images of any shape, several of them, labels, tuples. A dict of a module's
        arguments is given by their names.
    name : str, optional
        Name of the CNN; by default the class of the module that runs first.
    batch_size : int, optional
        Images of a forward pass; by default the first dimension of what the first convolution reads.

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
        If the step fails without numbers, such as where shapes depend on them, or runs no layer.

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
    torch, path = import_torch(), list[tuple[str, bool]]()
    is_module = isinstance(step, torch.nn.Module)
    if is_module and not inputs:
        raise SchemaError(
            "record takes a module with its inputs, such as record(module, images), or a function that does one "
            "training step. Give the module itself to predict, compare or explain, with an image_size."
        )
    run, then = (_forward_of(step, inputs), run_backward) if is_module else (partial(step, *inputs), None)
    try:
        with _training(step) if is_module else nullcontext():
            trace = traced(run, then, path, follow=True)
    except EpochcastError as error:
        raise type(error)(f"module {path[-1][0]!r}: {error}" if path else str(error)) from error
    except Exception as error:  # the user's own code may raise anything
        where = f" in module {path[-1][0]!r}" if path else ""
        raise SchemaError(
            f"the step fails{where}: {type(error).__name__}: {first_line(error)}. Check that it runs by itself. Its "
            "tensors have no numbers here: leave out what needs them, and give a measured iteration as an anchor, "
            "which corrects the answer."
        ) from error
    _refuse_several_iterations(trace.updates)
    reader = StepReader(Recorder(batch_size or _first_batch(trace.events, inputs)))
    reader.read(trace.events)
    table = reader.step_table(trace, name)
    return table if trace.updates or is_module else _without_update(table)


def _refuse_several_iterations(updates: Sequence[Update]) -> None:
    """SchemaError where one optimizer updates several times, as in an epoch; a GAN's optimizers differ."""
    if len(updates) > 1 and len({update.by for update in updates}) == 1:
        raise SchemaError(
            f"the step updates its parameters {len(updates)} times: it is {len(updates)} iterations. Record one, such "
            "as the body of the loop over mini-batches."
        )


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
    return [tensor for part in parts for tensor in _outputs(part)]


def _forward_of(module: Any, inputs: tuple[Any, ...]) -> Callable[[], object]:
    """The forward pass; the one dict of `inputs` holds arguments by name where all its keys are such names."""
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        names = inspect.signature(module.forward).parameters
        if set(inputs[0]) <= set(names):
            return partial(module, **inputs[0])
    return partial(module, *inputs)


@contextmanager
def _training(module: Any) -> Iterator[None]:
    """Put a module that is in evaluation mode into training mode meanwhile."""
    modes = {part: part.training for part in module.modules()}
    if not module.training:
        module.train()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def _without_update(table: LayerTable) -> LayerTable:
    doubt = "the step updates no parameters by an optimizer; momentum's update is counted"
    return replace(table, warnings=(*table.warnings, TableWarning("cnn", doubt)))


@dataclass(slots=True)
class _Row:
    """A row, how often its passes ran, and in which stretch between two backward passes it ran first."""

    layer: Layer
    stretch: int
    sources: tuple[int, ...]
    made: bool  # autograd made a node for it
    trains: bool
    key: tuple[Any, ...]
    forwards: int = 1
    input_gradients: int = 0
    weight_gradients: int = 0
    part: int = 0  # of those that gradient checkpointing runs again
    recomputes: bool = False  # it is such a run
    backward_after: int | None = None  # the last row that ran before its backward pass began

    def add(self, other: _Row) -> None:
        """Add the passes of another run of the same layer."""
        self.forwards += other.forwards
        self.input_gradients += other.input_gradients
        self.weight_gradients += other.weight_gradients
        if other.backward_after is not None:
            self.backward_after = max(self.backward_after or 0, other.backward_after)


class StepReader:
    """Turns what ran into rows, by the rules of `Recorder`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._rows: list[_Row] = []
        self._row_of_node: dict[int, int] = {}
        self._weights: dict[int, Any] = {}
        self._made: set[int] = set()  # tensors that an operator of the step made
        self._stretch, self._went_back, self._last_forward = 0, False, 0
        self._images: dict[int, set[int]] = {}  # by stretch: tensors that the first layers read
        self._precisions: Counter[str | None] = Counter()
        self._memory_formats: Counter[str] = Counter()

    def read(
        self, events: Sequence[Event], others: Sequence[Sequence[tuple[int, ...] | None] | None] = ()
    ) -> None:
        """Read events in their order; `others` are the shapes of the first results at another batch size."""
        self._made = {id(tensor) for event in events for tensor in tensors_of(event.result)}
        shapes, skip = [*others], False
        shapes += [None] * (len(events) - len(shapes))
        for place, event in enumerate(events):
            self._declare(event)
            following = events[place + 1] if place + 1 < len(events) else None
            if skip:
                skip = False
            elif following is not None and _saves_for_backward(event, following):
                made = range(event.made.start, following.made.stop)
                self._forward(replace(following, made=made), shapes[place + 1])
                skip = True
            elif event.node is None:
                self._forward(event, shapes[place])
            else:
                self._backward(event)

    # Forward

    def _declare(self, event: Event) -> None:
        """Tell parameters and images, which no operator of the step has made, from one another."""
        torch, recorder = import_torch(), self.recorder
        tensors = tensors_of(event.arguments.values())
        for tensor in tensors:
            if isinstance(tensor, torch.nn.Parameter) and id(tensor) not in self._weights:
                self._weights[id(tensor)] = tensor
                recorder.parameter(tensor)
        source = self._source(event, tensors)
        if source is not None and not recorder.is_map(source):
            recorder.image(source)
        for tensor in tensors:
            if id(tensor) in self._made or id(tensor) in self._weights or recorder.is_map(tensor):
                continue
            shape = event.shapes[id(tensor)]
            if len(shape) >= 3 and tensor.is_floating_point() and shape[0] % recorder.batch_size == 0:
                recorder.image(tensor)

    def _source(self, event: Event, tensors: list[Any]) -> Any:
        """What a layer with weights reads, which is a map even if it is noise or trained itself."""
        if event.operator in CONVOLUTIONS:
            return event.arguments["input"]
        if event.operator in ("mm", "addmm", "linear") and event.part_of is None:
            first, second = _factors(event.operator, tensors)
            if self.recorder.is_weights(second) and not self.recorder.is_weights(first):
                return first
        return None

    def _forward(self, event: Event, other: Sequence[tuple[int, ...] | None] | None) -> None:
        recorder, operator = self.recorder, event.operator
        recorder.path[:] = event.path
        tensors = tensors_of(event.arguments.values())
        if event.part_of is not None:
            if not any(map(recorder.is_map, tensors)):
                recorder.record(operator, event.arguments, event.result, event.is_view, other)
            return
        if operator in _PRODUCTS:
            first, second = _factors(operator, tensors)
            if recorder.is_map(first) and recorder.is_weights(second):
                operator = "linear"
        if operator in _ATTENTIONS:
            operator = "scaled_dot_product_attention"
        if operator in CONVOLUTIONS:
            operator = "convolution"
            self._note_mode(event.arguments)
        if operator in _LOSSES:
            self._drop_softmax()
            return
        before = len(recorder.rows)
        is_cast = operator == "_to_copy"  # of autocast: a part of the operators that read it
        try:
            recorder.record(operator, event.arguments, event.result, event.is_view or is_cast, other)
        except EpochcastError as error:
            where = f"module {event.path[-1][0]!r}: " if event.path else ""
            raise type(error)(f"{where}{error}") from error
        for layer in recorder.rows[before:]:
            self._add(layer, event, tensors)

    def _add(self, layer: Layer, event: Event, tensors: list[Any]) -> None:
        if self._went_back and not event.recomputed:
            self._stretch, self._went_back = self._stretch + 1, False
        weights = [tensor for tensor in tensors if id(tensor) in self._weights]
        trains = any(tensor.requires_grad for tensor in weights)
        sources = layer.inputs or ()
        if IMAGE in sources:
            images = self._images.setdefault(self._stretch, set())
            images.update(id(tensor) for tensor in tensors if id(tensor) not in self._weights)
        shape = replace(layer, index=0, name="", inputs=None, parameters=0)
        key = (shape, event.path[-1:], tuple(map(id, weights)))
        row = _Row(layer, self._stretch, sources, len(event.made) > 0, trains, key)
        row.part, row.recomputes = event.checkpoint, event.recomputed
        self._rows.append(row)
        if not event.recomputed:
            self._last_forward = len(self._rows) - 1
        self._row_of_node.update(dict.fromkeys(event.made, len(self._rows) - 1))

    def _note_mode(self, arguments: dict[str, Any]) -> None:
        torch, source, weight = import_torch(), arguments["input"], arguments["weight"]
        dtype, is_cast = str(source.dtype).removeprefix("torch."), id(weight) not in self._weights
        if dtype == "float64":
            raise SchemaError("the step computes in float64, which is not counted. Record it in float32.")
        if dtype != "float32":
            self._precisions["fp16" if dtype == "float16" and not is_cast else _AUTOCAST[dtype]] += 1
        else:
            self._precisions[None] += 1  # the framework's default
        last = source.is_contiguous(memory_format=torch.channels_last) and not source.is_contiguous()
        self._memory_formats["channels_last" if last else "nchw"] += 1

    def _drop_softmax(self) -> None:
        """The softmax of a loss over classes is a part of the loss, which every answer counts."""
        if self._rows and self._rows[-1].layer.kind == "softmax" and self._rows[-1].layer.out_width == 1:
            self._rows[-1].forwards = 0

    # Backward

    def _backward(self, event: Event) -> None:
        operator, recorder = event.operator, self.recorder
        self._went_back = True
        tensors = tensors_of(event.arguments.values())
        if operator in _ALIASES and tensors:
            recorder.alias(tensors[0], tensors_of(event.result))
        number = self._row_of_node.get(event.node if event.node is not None else -1)
        if number is None:
            return
        self._row_of_node.update(dict.fromkeys(event.made, number))  # the gradient of a gradient
        row = self._rows[number]
        row.backward_after = self._last_forward
        if operator in _MASKED:
            mask = event.arguments["output_mask"]
            row.input_gradients += bool(mask[0])
            row.weight_gradients += bool(mask[1])
        elif operator in CONVOLUTIONS:
            row.forwards += 1
        elif operator in _PRODUCTS:
            if any(recorder.is_weights(tensor) for tensor in tensors[-2:]):
                row.input_gradients += 1
            else:
                row.weight_gradients += 1
        elif not event.is_view and operator not in _ALIASES and not _has_own_passes(row.layer):
            row.input_gradients = 1

    # Tables

    def step_table(self, trace: Trace, name: str | None) -> LayerTable:
        """The table of a whole step."""
        layers, parts = self.layers()
        if not any(layer.type in OPERATOR_TYPES and OPERATOR_TYPES[layer.type].product for layer in layers):
            raise _nothing_runs()
        optimizer, doubts = _optimizer(trace.updates)
        step = Step(
            self.recorder.batch_size * parts, parts, self._precision(), self._memory_format(), optimizer
        )
        root = next((event.path[0][0] for event in trace.events if event.path), "step")
        warnings = (*self.recorder.warnings(), *(TableWarning("cnn", doubt) for doubt in doubts))
        return LayerTable(name or root.partition(".")[0], _side(layers), layers, "torch", warnings, step)

    def layers(self) -> tuple[tuple[Layer, ...], int]:
        """The rows, and how many parts of a mini-batch one step runs one after the other.

        Columns of passes are set where a layer does not run as in a CNN that is trained whole.
        """
        self._count_passes()
        numbers = self._merge_recomputed()
        parts = self._merge_parts(numbers)
        kept = [i for i, row in enumerate(self._rows) if numbers[i] == i and row.forwards]
        new = {IMAGE: IMAGE} | {old: index for index, old in enumerate(kept)}
        rows = []
        for index, old in enumerate(kept):
            row = self._rows[old]
            n_before = len(kept) if row.backward_after is None else bisect_right(kept, row.backward_after)
            row.backward_after = n_before - 1 if n_before < len(kept) else None
            read = tuple(
                new[numbers.get(each, each)] for source in row.sources for each in self._read(source)
            )
            rows.append(replace(row, layer=replace(row.layer, index=index, inputs=read)))
        usual = trained_whole([row.layer for row in rows])
        return tuple(map(_with_columns, rows, usual)), parts

    def _read(self, source: int) -> tuple[int, ...]:
        """The row that is read; of one left out, those that it reads."""
        if source == IMAGE or self._rows[source].forwards:
            return (source,)
        return tuple(each for before in self._rows[source].sources for each in self._read(before))

    def _count_passes(self) -> None:
        """Passes of layers whose backward operators do not say which gradients they compute."""
        for row in self._rows:
            if not _has_own_passes(row.layer):
                learns = any(self._rows[source].made for source in row.sources if source != IMAGE)
                row.input_gradients = int(row.made and learns)
                row.weight_gradients = int(row.made and row.trains)
            elif row.layer.type == "matmul":  # of two maps, whose gradients are alike
                gradients = row.input_gradients + row.weight_gradients
                row.input_gradients, row.weight_gradients = gradients - gradients // 2, gradients // 2
            elif row.layer.type == "attention":
                row.input_gradients, row.weight_gradients = int(row.made), 0

    def _merge_recomputed(self) -> dict[int, int]:
        """Add recomputed rows to those that they repeat; the row that each row became part of."""
        numbers = {i: i for i in range(len(self._rows))}
        first: dict[tuple[Any, ...], list[int]] = {}
        for i, row in reversed(list(enumerate(self._rows))):
            if not row.recomputes:
                first.setdefault(row.key, []).append(i)
        for i, row in enumerate(self._rows):
            if row.recomputes and first.get(row.key):
                numbers[i] = first[row.key].pop()
                kept = self._rows[numbers[i]]
                if not _has_own_passes(row.layer):  # both runs note the one backward pass
                    kept.input_gradients = max(kept.input_gradients, row.input_gradients)
                    kept.weight_gradients = max(kept.weight_gradients, row.weight_gradients)
                    row.input_gradients = row.weight_gradients = 0
                kept.add(row)
        return numbers

    def _merge_parts(self, numbers: dict[int, int]) -> int:
        """Add the rows of later parts of an accumulated mini-batch to the first part's; the number of parts."""
        own = [i for i in numbers if numbers[i] == i]
        stretches = [list(group) for _, group in groupby(own, key=lambda i: self._rows[i].stretch)]
        keys = [[self._rows[i].key for i in stretch] for stretch in stretches]
        if len(keys) < 2 or any(each != keys[0] for each in keys):
            return 1
        for stretch in stretches[1:]:
            for first, later in zip(stretches[0], stretch, strict=True):
                self._rows[first].add(self._rows[later])
                numbers[later] = first
        for i, number in numbers.items():
            numbers[i] = numbers[number]
        images = list(self._images.values())
        repeats = any(first & later for first, *rest in (images,) for later in rest)
        return 1 if repeats else len(stretches)

    def _precision(self) -> str | None:
        (precision, _), *_ = self._precisions.most_common() or [(None, 0)]
        return precision

    def _memory_format(self) -> str:
        (memory_format, _), *_ = self._memory_formats.most_common() or [("nchw", 0)]
        return memory_format


def _with_columns(row: _Row, usual: tuple[int, int, int]) -> Layer:
    passes = row.forwards, row.input_gradients, row.weight_gradients
    is_first = row.layer.index == 0 or row.layer.inputs == (IMAGE,)
    if (passes, row.part) == (usual, 0) and usual[1] != is_first:
        return replace(row.layer, backward_after=row.backward_after) if row.backward_after else row.layer
    return replace(
        row.layer,
        forwards=row.forwards,
        input_gradients=row.input_gradients,
        weight_gradients=row.weight_gradients,
        recomputed=row.part or None,
        backward_after=row.backward_after,
    )


def _has_own_passes(layer: Layer) -> bool:
    """Whether the operators of its backward pass say which gradients they compute."""
    entry = OPERATOR_TYPES[layer.type]
    return entry.product is not None or entry.weights is not None


def _factors(operator: str, tensors: list[Any]) -> tuple[Any, Any]:
    """The factors of a product; a dense layer has a bias behind them, other products before."""
    first, second = tensors[:2] if operator == "linear" else tensors[-2:]
    return first, second


def _saves_for_backward(event: Event, following: Event) -> bool:
    """Whether a copy is what autograd keeps of a tensor that the next operator overwrites: a part of that operator."""
    if event.operator != "clone" or following.node is not None:
        return False
    return following.result is event.arguments["self"]


def _first_batch(events: Sequence[Event], inputs: Sequence[Any]) -> int:
    """Images of what the first convolution reads; without one of the first input, else of the first dense layer's."""
    for event in events:
        if event.operator in CONVOLUTIONS:
            return event.shapes[id(event.arguments["input"])][0]
    for tensor in tensors_of(inputs):
        if tensor.ndim > 1:
            return int(tensor.shape[0])
    for event in events:
        if event.operator in ("mm", "addmm", "linear", "matmul") and event.part_of is None:
            first, _ = _factors(event.operator, tensors_of(event.arguments.values()))
            return event.shapes[id(first)][0]
    raise _nothing_runs()


def _nothing_runs() -> SchemaError:
    return SchemaError(
        "the step runs no convolution and no linear layer. Give a function that trains when it is called, such as "
        "lambda: train_step(model, optimizer, images, labels)."
    )


def _side(layers: Sequence[Layer]) -> int:
    """Height of the largest image; of what is made of vectors, that of the last map."""
    heights = [layer.in_height or 1 for layer in layers if layer.inputs and IMAGE in layer.inputs]
    largest = max(heights, default=1)
    return largest if largest > 1 else layers[-1].out_height or 1


def _optimizer(updates: Sequence[Update]) -> tuple[str | None, list[str]]:
    """The optimizer that updates most numbers, in the words of answers, and what is to be said of it."""
    if not updates:
        return None, []
    largest = max(updates, key=lambda update: update.parameters)
    word = _OPTIMIZERS.get(largest.optimizer)
    if word == "sgd" and largest.has_momentum:
        word = "momentum"
    doubt = f"the update by {largest.optimizer} is counted as momentum's"
    return word, [] if word else [doubt]
