"""Turns what a step of PyTorch ran into the rows of a layer table: every pass of every layer as often as it ran."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import ceil, prod
from typing import Any

from predictor.catalogue.modes import OPTIMIZERS
from predictor.cnns.layer_table import (
    IMAGE,
    ON_PARAMETERS,
    ONE_BY_ONE,
    OWN_FILTERS,
    PASS_COLUMNS,
    SECOND_DERIVATIVES,
    SUPPRESSION,
    Layer,
    LayerTable,
    Step,
    TableWarning,
    side,
    trained_whole,
)
from predictor.cnns.recorder import CREATIONS, PRODUCTS, Recorder, tensors_of
from predictor.cnns.torch_batch import Samples, is_folded, nothing_runs
from predictor.cnns.torch_trace import CONVOLUTIONS, Event, Trace, import_torch, storage_of
from predictor.cnns.torch_updates import Update
from predictor.errors import EpochcastError, SchemaError
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES, UNLIKE_KEEPERS

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
_OPTIMIZERS = {name: name for name in OPTIMIZERS} | {"radam": "adam"}
_UPDATE, _GROUP, _CLIPPED, _OTHER = 13.7, 0.54, 0.09, 0.12
"""Host time over that of a mean layer's passes (measured at the tag `campaigns`): of a further update, a further group
of parameters, a tensor whose gradient is clipped, and one that is copied or averaged beside the layers. A further group
is 1.86 tensors that are updated one by one, as of 160 groups of SGD on a processor."""

PER_TENSOR = {"adam": 0.094, "adamw": 0.094, "nadam": 0.185, "rmsprop": 0.061}
"""Host time of a tensor in foreach calls of these optimizers over that in SGD's, as the models' own ratios: of a step
with several optimizers, the largest one's word is asked with, and what the others' tensors differ by is beside."""

_PASSES_OF_A_SUM = 3
"""Reads and writes of a sum of two lists, over the length of one."""

_NUMBERS_OF_A_POSITION, _LEAST_IMAGES, _NUMBERS_OF_A_SUM = {4: 4500, 2: 5800}, 32, 4_194_304
"""Numbers, by their bytes, in sums of lists that take as long as one position of one image in the gradient of filters
behind a second derivative, where fewer than 32 images take as long as 32; and numbers of one sum.

PyTorch convolves maps with maps, whose few results leave most multiprocessors idle: on an H100 18 ns a position in
TF32, 12 in bfloat16 (shapes left out in turn: 23 and 19 % off). Counted so, 29 convolutions of 0.2 to 11 ms are 24 and
20 % off on average, 77 and 51 at most."""

_US_OF_OWN_FILTERS, _NUMBERS_OF_A_US = {4: (7.2, 7.0), 2: (10.0, 7.3)}, 900_000
"""Time in us, by the bytes of a number, that a pass of a convolution takes longer for each image that has filters of
its own, and for each million numbers in these; and bytes in sums of lists that take an H100 a us.

Images take turns, small ones on streams beside each other. 17 shapes on an H200, of 4 to 32 images, 64 to 512 channels
and 4 to 128 pixels: each left out in turn, whole convolutions are 34 % off on average in TF32 and 21 in bfloat16; by
one time for all 46 and 35."""

_BOXES_OF_A_KERNEL = 4
"""Boxes of a suppression, which one thread block goes through one after the other, that take as long as a kernel of one
number: 0.32 us each of 6,000 boxes and 0.43 of 8,660 on an H100."""

_TENSORS_OF_A_KERNEL = 8
"""Tensors of a function on lists (`torch._foreach_lerp_`) for which the host takes as long as for one kernel."""

_AUTOCAST = {"float16": "amp_fp16", "bfloat16": "amp_bf16"}


@dataclass(slots=True)
class _Row:
    """A row, how often its passes ran, and the stretch between two backward passes that ran it first."""

    layer: Layer
    stretch: int
    sources: tuple[int, ...]
    made: bool  # autograd made a node for it
    trains: bool
    key: tuple[Any, ...]
    filters: tuple[int, ...] | None = None  # shape of a convolution's
    has_own_filters: bool = False  # each image
    in_float32: bool = False  # a product of float32 numbers, which autocast leaves so
    forwards: int = 1
    input_gradients: int = 0
    weight_gradients: int = 0
    checkpoint: int = 0  # of those that gradient checkpointing runs again
    recomputes: bool = False  # it is such a run
    backward_after: int | None = None  # the last row that ran before its backward pass began
    freed: int | None = None  # how many events ran before the gradient from the step before was
    old_gradient: int | None = None  # the last row that ran before that, if its backward pass came after

    def add(self, row: _Row) -> None:
        """Add the passes of another run of the same layer."""
        self.forwards += row.forwards
        self.input_gradients += row.input_gradients
        self.weight_gradients += row.weight_gradients
        if row.backward_after is not None:
            self.backward_after = max(self.backward_after or 0, row.backward_after)


@dataclass(slots=True)
class _Beside:
    """What ran beside the passes of layers and the optimizer.

    On tensors of no image, such as averages of weights and norms of gradients, or for second derivatives.
    """

    kernels: float = 0.0
    normed: int = 0  # tensors whose norms one function on lists computes
    bytes: int = 0  # that they read and write
    nodes: set[int] = field(default_factory=set)  # autograd's, whose backward operators are such, too

    def add(self, event: Event, tensors: list[Any]) -> None:
        """Add an operator; one on lists of tensors runs a kernel for some eight of them, and writes the first list."""
        tensors_by_argument = [tensors_of([argument]) for argument in event.arguments.values()]
        lists = max(map(len, tensors_by_argument), default=0) if event.operator.startswith("_foreach") else 0
        written = tensors_of(event.result) or next(filter(None, tensors_by_argument), [])
        self.kernels += max(1.0, lists / _TENSORS_OF_A_KERNEL)
        self.normed += lists if event.operator == "_foreach_norm" else 0
        self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in (*tensors, *written))
        self.nodes.update(event.made)

    def sums(self, images: int, element_bytes: int) -> tuple[int, int]:
        """How many sums of lists take as long, and an image's numbers in one."""
        calls = max(1, round(self.kernels)) if self.kernels else 0
        return calls, ceil(self.bytes / (_PASSES_OF_A_SUM * element_bytes * max(1, calls) * images))


class StepReader:
    """Turns what ran into rows, by the rules of `Recorder`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._rows: list[_Row] = []
        self._rows_before: list[int] = []  # of each event
        self._kept: list[int] = []  # rows of the table
        self._row_of_node: dict[int, int] = {}
        self._weights: dict[int, Any] = {}
        self._made: set[int] = set()  # tensors that an operator of the step made
        self._stretch, self._went_back, self._last_forward = 0, False, 0
        self._images: dict[int, set[int]] = {}  # by stretch: tensors that the first layers read
        self._on_parameters = _Beside()
        self._second = _Beside()  # derivatives; its nodes are those of gradients of gradients
        self._second_filters = 0  # sums that take as long as the gradients of filters among them
        self._boxes = 0  # that were suppressed or kept
        self._own_filters = 0.0  # us that convolutions take longer for each image that has its own
        self._cast: dict[int, int] = {}  # tensors that autocast made -> those that they are copies of
        self._derived: dict[int, int] = {}  # numbers of each storage that they made
        self._kept_derived = 0  # of them, those that autograd keeps and no row counts yet
        self._freed: dict[int, int] = {}  # as of `Trace`
        self._saved: dict[int, set[int]] = {}  # storages that each node keeps
        self._compiled: Counter[bool] = Counter()  # rows, whether `torch.compile` runs them
        self._precisions: Counter[str | None] = Counter()
        self._memory_formats: Counter[tuple[str, str]] = Counter()

    def read(
        self, trace: Trace, other_shapes: Sequence[Sequence[tuple[int, ...] | None] | None] = ()
    ) -> None:
        """Read what ran, in its order; `others` are the shapes of the first results at another batch size."""
        events, self._freed = trace.events, trace.freed
        saved = deque(trace.saved)
        for _, storage, node in saved:
            self._saved.setdefault(node, set()).add(storage)
        self._made = {id(tensor) for event in events for tensor in tensors_of(event.result)}
        shapes, skip = [*other_shapes], False
        shapes += [None] * (len(events) - len(shapes))
        for position, event in enumerate(events):
            self._rows_before.append(len(self._rows))
            while saved and saved[0][0] <= position:
                _, storage, _ = saved.popleft()
                if storage in self._derived:
                    self._kept_derived += self._derived.pop(storage)
            self._declare(event)
            following = events[position + 1] if position + 1 < len(events) else None
            if skip:
                skip = False
            elif (
                # What autograd keeps of a tensor that the next operator overwrites is a part of that operator.
                following is not None
                and (event.operator, following.node) == ("clone", None)
                and following.result is event.arguments["self"]
            ):
                made = range(event.made.start, following.made.stop)
                self._forward(replace(following, made=made), shapes[position + 1])
                skip = True
            elif event.node is None:
                self._forward(event, shapes[position])
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
            self._image(source)
        for tensor in tensors:
            if id(tensor) in self._made or id(tensor) in self._weights or recorder.is_map(tensor):
                continue
            shape = event.shapes[id(tensor)]
            if len(shape) >= 3 and tensor.is_floating_point() and shape[0] % recorder.batch_size == 0:
                self._image(tensor)

    def _image(self, tensor: Any) -> None:
        self.recorder.image(tensor)
        self._note_memory_format("images", tensor)

    def _source(self, event: Event, tensors: list[Any]) -> Any:
        """What a layer with weights reads, which is a map even if it is noise or trained itself."""
        if event.operator in CONVOLUTIONS:
            return event.arguments["input"]
        if event.operator in ("mm", "addmm", "linear") and event.part_of is None:
            first, second = _factors(event.operator, tensors)
            if self.recorder.is_weights(second) and not self.recorder.is_weights(first):
                return first
        return None

    def _forward(self, event: Event, other_shapes: Sequence[tuple[int, ...] | None] | None) -> None:
        recorder, operator = self.recorder, event.operator
        recorder.path[:] = event.path
        tensors = tensors_of(event.arguments.values())
        self._boxes += len(tensors[0]) if operator == "nms" else 0
        if event.part_of is not None:
            if not any(map(recorder.is_map, tensors)):  # its whole has the row
                recorder.record(operator, event.arguments, event.result, True, other_shapes)
            return
        if operator in PRODUCTS:
            first, second = _factors(operator, tensors)
            if recorder.is_map(first) and recorder.is_weights(second):
                operator = "linear"
        if operator in _ATTENTIONS:
            operator = "scaled_dot_product_attention"
        if operator in CONVOLUTIONS:
            operator = "convolution"
            self._note_mode(event.arguments)
        if event.of_optimizer:
            return
        if operator in _LOSSES:
            last = self._rows[-1] if self._rows else None
            if last is not None and last.layer.kind == "softmax" and last.layer.out_width == 1:
                last.forwards = 0  # part of a loss over classes, which every answer counts
            return
        before = len(recorder.rows)
        is_cast = operator == "_to_copy"  # of autocast: a part of the operators that read it
        if is_cast:
            self._cast[id(event.result)] = id(tensors[0])
        try:
            recorder.record(operator, event.arguments, event.result, event.is_view or is_cast, other_shapes)
        except EpochcastError as error:
            where = f"module {event.path[-1][0]!r}: " if event.path else ""
            raise type(error)(f"{where}{error}") from error
        for layer in recorder.rows[before:]:
            self._add(layer, event, tensors)
        is_free = event.is_view or is_cast or operator in _ALIASES or operator in CREATIONS
        of_numbers = any(tensor.is_floating_point() for tensor in tensors)
        if of_numbers and not is_free and not any(map(recorder.is_map, tensors)):
            if len(recorder.rows) == before:
                self._on_parameters.add(event, tensors)
            results = [tensor for tensor in tensors_of(event.result) if recorder.is_weights(tensor)]
            self._derived |= {storage_of(tensor): tensor.numel() for tensor in results}

    def _add(self, layer: Layer, event: Event, tensors: list[Any]) -> None:
        if self._went_back and not event.recomputed:
            self._stretch, self._went_back = self._stretch + 1, False
        weights = [tensor for tensor in tensors if id(tensor) in self._weights]
        trains = any(tensor.requires_grad for tensor in tensors if self.recorder.is_weights(tensor))
        sources = layer.inputs or ()
        if IMAGE in sources:
            images = self._images.setdefault(self._stretch, set())
            read = {self._cast.get(id(tensor), id(tensor)) for tensor in tensors}
            images.update(read - self._weights.keys())
        shape = replace(layer, index=0, name="", inputs=None, parameters=0)
        key = (shape, event.path[-1:], tuple(map(id, weights)))
        row = _Row(layer, self._stretch, sources, len(event.made) > 0, trains, key)
        row.checkpoint, row.recomputes = event.checkpoint, event.recomputed
        if event.operator in CONVOLUTIONS:
            row.filters = event.shapes[id(event.arguments["weight"])]
            row.has_own_filters = is_folded(event) and layer.groups == 1 < self.recorder.batch_size
        is_product = OPERATOR_TYPES[layer.type].product in ("linear", "matmul")
        row.in_float32 = is_product and str(event.result.dtype) == "torch.float32"
        if is_product and event.in_float32:
            layer = replace(layer, widens=2)
        freed = [self._freed[id(tensor)] for tensor in weights if id(tensor) in self._freed]
        row.freed = max(freed, default=None)
        row.layer = replace(layer, **self._in_memory(layer, event, tensors))
        self._rows.append(row)
        self._compiled[event.compiled] += 1
        if not event.recomputed:
            self._last_forward = len(self._rows) - 1
        self._row_of_node.update(dict.fromkeys(event.made, len(self._rows) - 1))

    def _in_memory(self, layer: Layer, event: Event, tensors: list[Any]) -> dict[str, Any]:
        """Columns of what a layer keeps otherwise than is usual."""
        kind = ACTIVATIONS.get(layer.kind or "")
        columns: dict[str, Any] = {}
        is_in_place = event.result is tensors[0]
        if kind is not None and is_in_place and tensors[0]._is_view():
            columns["overwrites"] = 2
        elif kind is not None and kind.keeps_output_in_place and not is_in_place:
            columns["overwrites"] = 0
        if self._kept_derived and layer.parameters:
            columns["derived"], self._kept_derived = self._kept_derived, 0
        entry = OPERATOR_TYPES[layer.type]
        is_unlike = layer.type in UNLIKE_KEEPERS or event.in_float32
        if is_unlike and event.made and not (event.checkpoint or event.recomputed):
            kept = set().union(*(self._saved.get(node, ()) for node in event.made))
            written = {storage_of(tensor) for tensor in tensors_of(event.result)[:1]}
            maps = (tensor for tensor in tensors if self.recorder.is_map(tensor))
            read = {storage_of(tensor) for tensor in maps if tensor.is_floating_point()} - written
            keeps = not kept.isdisjoint(read), not kept.isdisjoint(written)
            if kind is not None or keeps != (entry.keeps_input, entry.keeps_output):
                columns["keeps"] = keeps[0] + 2 * keeps[1]
        return columns

    def _note_mode(self, arguments: dict[str, Any]) -> None:
        source, weight = arguments["input"], arguments["weight"]
        dtype, is_cast = str(source.dtype).removeprefix("torch."), id(weight) not in self._weights
        if dtype == "float64":
            raise SchemaError("the step computes in float64, which is not counted. Record it in float32.")
        if dtype != "float32":
            self._precisions["fp16" if dtype == "float16" and not is_cast else _AUTOCAST[dtype]] += 1
        else:
            self._precisions[None] += 1  # the framework's default
        self._note_memory_format("weights", weight)

    def _note_memory_format(self, what: str, tensor: Any) -> None:
        """Note the memory format of an image or of weights as they are given; of one channel both formats are one."""
        if tensor.ndim == 4:
            last = tensor.is_contiguous(memory_format=import_torch().channels_last)
            if last != tensor.is_contiguous():
                self._memory_formats[what, "channels_last" if last else "nchw"] += 1

    # Backward

    def _backward(self, event: Event) -> None:
        operator, recorder = event.operator, self.recorder
        self._went_back = True
        tensors = tensors_of(event.arguments.values())
        if operator in _ALIASES and tensors:
            recorder.alias(tensors[0], tensors_of(event.result))
        number = self._row_of_node.get(event.node if event.node is not None else -1)
        if number is None:
            if event.node in self._on_parameters.nodes and not event.is_view and operator not in _ALIASES:
                self._on_parameters.add(event, tensors)
            return
        self._row_of_node.update(dict.fromkeys(event.made, number))  # the gradient of a gradient
        self._second.nodes.update(event.made)
        row = self._rows[number]
        if row.backward_after is None and row.freed is not None and row.freed < len(self._rows_before):
            row.old_gradient = self._rows_before[row.freed] - 1
        row.backward_after = self._last_forward
        if operator in _MASKED:
            mask = event.arguments["output_mask"]
            row.input_gradients += bool(mask[0])
            row.weight_gradients += bool(mask[1])
        elif operator in CONVOLUTIONS and event.shapes[id(event.arguments["weight"])] == row.filters:
            row.forwards += 1
        elif operator in CONVOLUTIONS:
            # Images and channels change places.
            _, images, *sides = event.shapes[id(event.arguments["weight"])]
            of_position = _NUMBERS_OF_A_POSITION[event.result.element_size()]
            numbers = of_position * prod(sides) * max(_LEAST_IMAGES, images)
            self._second_filters += ceil(numbers / _NUMBERS_OF_A_SUM)
        elif operator in PRODUCTS:
            if any(recorder.is_weights(tensor) for tensor in tensors[-2:]):
                row.input_gradients += 1
            else:
                row.weight_gradients += 1
        elif event.is_view or operator in _ALIASES:
            return
        elif event.node in self._second.nodes:
            self._second.add(event, tensors)
        elif not _has_own_passes(row.layer):
            row.input_gradients = 1

    # Tables

    def step_table(self, trace: Trace, name: str | None, samples: Samples) -> LayerTable:
        """The table of a whole step."""
        layers, parts = self.layers()
        if not any(layer.type in OPERATOR_TYPES and OPERATOR_TYPES[layer.type].product for layer in layers):
            raise nothing_runs()
        images = self.recorder.batch_size * parts
        layers = self._with_sums(layers, images)
        optimizer, doubts = _optimizer(trace.updates)
        formats = self._memory_formats  # as given: what layers permute in between, they permute in either
        is_last = any(formats[of, "channels_last"] > formats[of, "nchw"] for of in ("images", "weights"))
        # Waits after a backward pass has begun, such as a GradScaler's for each optimizer, or for the loss.
        backward = (i for i, event in enumerate(trace.events) if event.node is not None)
        begins = next(backward, len(trace.events))
        update_waits = sum(begins < wait for wait in trace.waits) or None
        step = Step(
            images, parts, self._precision(), "channels_last" if is_last else "nchw", optimizer,
            "compile" if self._compiled[True] > self._compiled[False] else None,
            *self._waits([wait for wait in trace.waits if wait < begins]),
            self._beside(trace),
            None if trace.habits.detect_anomaly else update_waits,
            **_of_updates(trace.updates),
            parallel="dp" if trace.has_data_parallel else None,
            deterministic=trace.habits.deterministic or None,
            detect_anomaly=trace.habits.detect_anomaly or None,
        )  # fmt: skip
        root = next((event.path[0][0] for event in trace.events if event.path), "step")
        cautions = (*self.recorder.warnings(), *self._warnings(), *samples.warnings_of(step))
        warnings = (*cautions, *(TableWarning("cnn", doubt) for doubt in doubts))
        return LayerTable(name or root.partition(".")[0], _side(layers), layers, "torch", warnings, step)

    def _waits(self, waits: Sequence[int]) -> tuple[int | None, int | None, int | None]:
        """Waits of the forward pass, and the rows from the first of them to before the last."""
        if not waits:
            return None, None, None
        first, last = (bisect_left(self._kept, self._rows_before[wait]) for wait in (waits[0], waits[-1]))
        return len(waits), first, last

    def _beside(self, trace: Trace) -> int | None:
        """What the host does beside the passes of layers, in those of a mean layer; None for nothing."""
        kept = Counter(
            event.operator
            for event in trace.events
            if event.node is None and not (event.made or event.is_view or event.of_optimizer)
        )
        norms = max(0, kept["linalg_vector_norm"] - 1 + self._on_parameters.normed)
        kernels = max(0.0, self._on_parameters.kernels - norms) + self._second.kernels
        once = {update.by: update.tensors for update in trace.updates}  # asked with the largest optimizer
        layers_passes = (
            _UPDATE * max(0, len(trace.updates) - 1)
            + sum(
                ONE_BY_ONE * update.tensors if update.form == "loop" else _GROUP * (update.groups - 1)
                for update in trace.updates
            )
            + sum(PER_TENSOR.get(_optimizer([u])[0] or "", 0.0) * u.tensors for u in trace.updates)
            - PER_TENSOR.get(_optimizer(trace.updates)[0] or "", 0.0) * sum(once.values())
            + _CLIPPED * norms
            + _OTHER * kernels
        )
        return max(0, round(layers_passes)) or None

    def _warnings(self) -> list[TableWarning]:
        warnings = []
        compiled, eager = self._compiled[True], self._compiled[False]
        if 0 < compiled <= eager:
            text = f"{compiled} of its {compiled + eager} layers are compiled, and answered eager"
            warnings.append(TableWarning("cnn", text))
        if self._own_filters:
            text = "filters of each image's own take as long as 17 shapes did on an H200"
            warnings.append(TableWarning("cnn", text))
        return warnings

    def layers(self) -> tuple[tuple[Layer, ...], int]:
        """The rows, and how many parts of a mini-batch one step runs one after the other.

        Columns of passes are set where a layer does not run as in a CNN that is trained whole.
        """
        self._count_passes()
        numbers = self._merge_recomputed()
        parts = self._merge_parts(numbers)
        kept = self._kept = [i for i, row in enumerate(self._rows) if numbers[i] == i and row.forwards]
        new = {IMAGE: IMAGE} | {old: index for index, old in enumerate(kept)}
        rows, by_autocast = [], (self._precision() or "").startswith("amp")
        for index, old in enumerate(kept):
            row = self._rows[old]
            n_before = len(kept) if row.backward_after is None else bisect_right(kept, row.backward_after)
            row.backward_after = n_before - 1 if n_before < len(kept) else None
            if row.old_gradient is not None:
                n_before = bisect_right(kept, row.old_gradient)
                row.layer = replace(row.layer, old_gradient=n_before - 1) if n_before else row.layer
            read = tuple(
                new[numbers.get(before, before)] for source in row.sources for before in self._read(source)
            )
            widens = 2 if by_autocast and row.in_float32 else row.layer.widens
            rows.append(replace(row, layer=replace(row.layer, index=index, inputs=read, widens=widens)))
        first_us, us_of_a_million = _US_OF_OWN_FILTERS[self._element_bytes()]
        self._own_filters = sum(
            (row.forwards + row.input_gradients + row.weight_gradients)
            * (first_us + us_of_a_million * prod(row.filters) / self.recorder.batch_size / 1e6)
            for row in rows
            if row.has_own_filters and row.filters
        )
        usual = trained_whole([row.layer for row in rows])
        return tuple(map(_with_columns, rows, usual)), parts

    def _with_sums(self, layers: tuple[Layer, ...], images: int) -> tuple[Layer, ...]:
        """The rows with those of sums of lists that take as long as what runs beside layers."""
        element_bytes = self._element_bytes()
        numbers = ceil(_NUMBERS_OF_A_SUM / images)
        own_numbers = self._own_filters * images * _NUMBERS_OF_A_US / element_bytes
        sums = (
            (SUPPRESSION, ceil(self._boxes / _BOXES_OF_A_KERNEL), 1),
            (ON_PARAMETERS, *self._on_parameters.sums(images, element_bytes)),
            (SECOND_DERIVATIVES, *self._second.sums(images, element_bytes)),
            (f"{SECOND_DERIVATIVES} of filters", self._second_filters, numbers),
            (OWN_FILTERS, ceil(own_numbers / _NUMBERS_OF_A_SUM), numbers),
        )
        for name, calls, numbers_of_image in sums:
            if calls:
                derived = self.recorder.uncounted_parameters() or None if name == ON_PARAMETERS else None
                layers = _with_sum(layers, name, calls, numbers_of_image, derived)
        return layers

    def _read(self, source: int) -> tuple[int, ...]:
        """The row that is read; in place of a row left out, the rows that it reads."""
        if source == IMAGE or self._rows[source].forwards:
            return (source,)
        return tuple(index for before in self._rows[source].sources for index in self._read(before))

    def _count_passes(self) -> None:
        """Passes of layers whose backward operators do not say which gradients they compute."""
        gone_through = self._gone_through()
        for i, row in enumerate(self._rows):
            is_gone_through = row.made and i in gone_through
            if not _has_own_passes(row.layer):
                learns = any(self._rows[source].made for source in row.sources if source != IMAGE)
                row.input_gradients = int(is_gone_through and learns)
                row.weight_gradients = int(is_gone_through and row.trains)
            elif row.layer.type == "matmul":  # of two maps, whose gradients are alike
                gradients = row.input_gradients + row.weight_gradients
                row.input_gradients, row.weight_gradients = gradients - gradients // 2, gradients // 2
            elif row.layer.type == "attention":
                row.input_gradients, row.weight_gradients = int(is_gone_through), 0

    def _gone_through(self) -> set[int]:
        """Rows that a backward pass reaches: none of a generator whose images are detached for its critic.

        Some, such as a sum, run no operator in it: they are those between rows that do.
        """
        reached = {i for i, row in enumerate(self._rows) if row.backward_after is not None}
        for i, row in reversed(list(enumerate(self._rows))):
            if i in reached and row.made and (row.input_gradients or not _has_own_passes(row.layer)):
                reached.update(source for source in row.sources if source != IMAGE)
        for i, row in enumerate(self._rows):
            if not reached.isdisjoint(row.sources):
                reached.add(i)
        return reached

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
        if len(keys) < 2 or any(key != keys[0] for key in keys):
            return 1
        for stretch in stretches[1:]:
            for first, later in zip(stretches[0], stretch, strict=True):
                self._rows[first].add(self._rows[later])
                numbers[later] = first
        for i, number in numbers.items():
            numbers[i] = numbers[number]
        images = list(self._images.values())
        repeats = any(first & later for first, *later_images in (images,) for later in later_images)
        return 1 if repeats else len(stretches)

    def _element_bytes(self) -> int:
        return 2 if (self._precision() or "").startswith(("amp", "fp16")) else 4

    def _precision(self) -> str | None:
        (precision, _), *_ = self._precisions.most_common() or [(None, 0)]
        return precision


def _with_sum(
    layers: tuple[Layer, ...], name: str, calls: int, numbers: int, derived: int | None
) -> tuple[Layer, ...]:
    """The rows with one, before the last, of as many sums of lists of an image's `numbers`."""
    position = max(0, len(layers) - 1)
    row = Layer(
        position, name, "add", inputs=(IMAGE,),
        in_channels=numbers, in_height=1, in_width=1, out_channels=numbers, out_height=1, out_width=1,
        forwards=calls, input_gradients=0, weight_gradients=0, derived=derived,
    )  # fmt: skip
    return *layers[:position], row, *(replace(layer, index=position + 1) for layer in layers[position:])


def _with_columns(row: _Row, usual: tuple[int, int, int]) -> Layer:
    passes = row.forwards, row.input_gradients, row.weight_gradients
    is_first = row.layer.index == 0 or row.layer.inputs == (IMAGE,)
    if (passes, row.checkpoint) == (usual, 0) and usual[1] != is_first:
        return replace(row.layer, backward_after=row.backward_after) if row.backward_after else row.layer
    columns: dict[str, Any] = dict(
        zip(PASS_COLUMNS, (*passes, row.checkpoint or None, row.backward_after), strict=True)
    )
    return replace(row.layer, **columns)


def _has_own_passes(layer: Layer) -> bool:
    """Whether the operators of its backward pass say which gradients they compute."""
    entry = OPERATOR_TYPES[layer.type]
    return (entry.product is not None and not entry.is_recurrent) or entry.weights is not None


def _factors(operator: str, tensors: list[Any]) -> tuple[Any, Any]:
    """The factors of a product; a dense layer has a bias behind them, other products before."""
    first, second = tensors[:2] if operator == "linear" else tensors[-2:]
    return first, second


def _side(layers: Sequence[Layer]) -> int:
    """Height of the largest image; of what is made of vectors, that of the last map."""
    heights = [side(layer, "in", "height") or 1 for layer in layers if layer.inputs and IMAGE in layer.inputs]
    largest = max(heights, default=1)
    return largest if largest > 1 else layers[-1].out_height or 1


def _optimizer(updates: Sequence[Update]) -> tuple[str | None, list[str]]:
    """The optimizer that updates most numbers, in the words of answers, and what is to be said of it."""
    if not updates:
        return None, []
    largest = max(updates, key=lambda update: update.parameters)
    word = _OPTIMIZERS.get(largest.optimizer.lower())
    if largest.has_momentum and word in ("sgd", "rmsprop"):
        word = "momentum" if word == "sgd" else None
    doubt = f"the host's time of an update by {largest.optimizer} is counted as momentum's"
    return word, [] if word else [doubt]


def _of_updates(updates: Sequence[Update]) -> dict[str, Any]:
    """Columns of a step about what its optimizers keep and pass for a number that they train."""
    trained = {update.by: update for update in updates}.values()
    size = sum(update.bytes for update in trained)
    if not size:
        return {}
    largest = max(trained, key=lambda update: update.bytes)
    return {
        "optimizer_states": round(sum(update.kept for update in trained) / size, 3),
        "optimizer_passes": round(sum(update.passed for update in updates) / size, 2),
        "optimizer_copies": round(max(update.copied for update in updates) / size, 3),
        "optimizer_form": largest.form,
    }
