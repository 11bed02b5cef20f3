"""The steps that run a CNN from only its layer table, in any framework.

What a table does not say follows from neighbouring layers: which layers run channels-last (between permutes, where a
layer norm or linear layer reads maps), which layers read a part of another's output, which permute is a channel
shuffle.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add, mul
from typing import Any

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import SchemaError
from predictor.operator_types import VOLUME_TYPES
from predictor.operators.operators import is_channel_shuffle, layer_inputs, layer_operators
from proxy_cnns.configuration import MEASURE_WHOLE

MAP, MAP_LAST, VECTOR = "map", "map with channels last", "vector"
"""Forms of an array: (N, C, H, W), (N, H, W, C) and (N, C)."""

_POSITIONWISE = ("layer_norm", "linear")
_WHOLE = ("concat", "flatten", "linear", "multiply")  # in_channels below a source's channels mean no part
_ANY_FORM = ("activation", "dropout", "stochastic_depth")

_COMBINATIONS = {"add": add, "multiply": mul}

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of a framework that the steps of a CNN call.

    `layer` makes the function of a layer with one input, from the layer, the form of that input, and whether the
    output overwrites it. `split` takes an array and the channels of each part, `shuffle` an array whose two halves
    of channels it interleaves.
    """

    layer: Callable[[Layer, str, bool], Function]
    concat: Function
    split: Function
    flatten: Function
    to_map: Function
    to_map_last: Function
    shuffle: Function


@dataclass(frozen=True, slots=True)
class Step:
    """One call: the slots that it reads and writes, and those that no later step reads.

    `layer` is the position of the layer that it runs; None for a change of form and a split.
    """

    function: Function
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    layer: int | None = None
    frees: tuple[int, ...] = ()


def image_shape(table: LayerTable) -> tuple[int, int, int]:
    """Channels, height and width of one image that the CNN reads; SchemaError where the table does not say them."""
    position = next(i for i, sources in enumerate(layer_inputs(table)) if IMAGE in sources)
    layer = table.layers[position]
    if layer.in_channels is None or layer.in_height is None or layer.in_width is None:
        raise SchemaError(f"layer {layer.name!r} reads the image, whose size the layer table does not say.")
    return layer.in_channels, layer.in_height, layer.in_width


class Graph:
    """The steps of a CNN, made in one pass over its layers.

    SchemaError if the table holds a layer that cannot be run, or its layers do not fit together.
    """

    def __init__(self, table: LayerTable, functions: Functions) -> None:
        self.steps: list[Step] = []
        self._slots = 1
        self._table, self._layers, self._functions = table, table.layers, functions
        self._operators, self._inputs = layer_operators(table), layer_inputs(table)
        self._readers: dict[int, list[int]] = defaultdict(list)
        for position, sources in enumerate(self._inputs):
            for source in sources:
                self._readers[source].append(position)
        self._form = {IMAGE: MAP}
        self._slot = {IMAGE: 0}
        self._part: dict[tuple[int, int], int] = {}  # (source, reader) -> slot, where only a part is read
        for position, sources in enumerate(self._inputs):
            function, form, input_form = self._function(position, self._form[sources[0]])
            reads = tuple(self._read(source, position, input_form) for source in sources)
            self._slot[position], self._form[position] = self._step(function, reads, layer=position), form
            self._split(position)
        # a value is freed after its last reader, as local variables of a written CNN are
        last = {slot: i for i, step in enumerate(self.steps) for slot in step.reads}
        for i, step in enumerate(self.steps):
            last_reads = (slot for slot in dict.fromkeys(step.reads) if last[slot] == i)
            self.steps[i] = replace(step, frees=tuple(last_reads))

    def run(self, image: Any) -> Any:
        """Output of the last layer for these images."""
        values: list[Any] = [None] * self._slots
        values[0] = result = image
        for step in self.steps:
            result = step.function(*[values[slot] for slot in step.reads])
            parts = (result,) if len(step.writes) == 1 else result
            for slot, value in zip(step.writes, parts, strict=True):
                values[slot] = value
            for slot in step.frees:
                values[slot] = None
        return result

    def _function(self, position: int, form: str) -> tuple[Function, str, str]:
        """Function of a layer, the form of its output, and the form of its inputs; `form` is that of the first."""
        layer, flatter = self._layers[position], MAP if form == MAP_LAST else form
        if layer.repeats != 1:
            raise SchemaError(
                f"layer {layer.name!r} runs on {layer.repeats} maps of each image; a layer table does not say how they "
                f"are cut. {MEASURE_WHOLE}"
            )
        if layer.type == "permute":
            return self._permute(position, form)
        if layer.type == "flatten":
            return self._functions.flatten, VECTOR, flatter
        if layer.type == "concat":
            return self._functions.concat, flatter, flatter
        if layer.type in VOLUME_TYPES:
            raise SchemaError(f"layer {layer.name!r} reads volumes, not images. {MEASURE_WHOLE}")
        if len(self._inputs[position]) > 1:
            if layer.type not in _COMBINATIONS:
                raise SchemaError(
                    f"layer {layer.name!r} of type {layer.type!r} has several inputs, which cannot be run. "
                    f"{MEASURE_WHOLE}"
                )
            return lambda *values: reduce(_COMBINATIONS[layer.type], values), form, form
        if layer.type in _POSITIONWISE:  # channels lie last, or are all elements of a map
            source = self._inputs[position][0]
            above = None if source == IMAGE else self._layers[source]
            if form == MAP:
                flat = above is None or (above.out_height, above.out_width) == (1, 1)
                flat = flat or above is None or layer.in_channels != above.out_channels
                form = VECTOR if layer.type == "linear" and flat else MAP_LAST
        elif layer.type not in _ANY_FORM and (form, layer.type) != (VECTOR, "batch_norm"):
            form = MAP
        return self._functions.layer(layer, form, self._operators[position].in_place), form, form

    def _permute(self, position: int, form: str) -> tuple[Function, str, str]:
        layer = self._layers[position]
        if form == MAP_LAST:
            return self._functions.to_map, MAP, MAP_LAST
        if not is_channel_shuffle(self._table, position):
            return self._functions.to_map_last, MAP_LAST, MAP
        if (layer.in_channels or 1) % 2:
            raise SchemaError(
                f"layer {layer.name!r} permutes {layer.in_channels} channels: it is no shuffle of two halves, "
                f"and no layer norm or linear layer reads it. {MEASURE_WHOLE}"
            )
        return self._functions.shuffle, MAP, MAP

    def _read(self, source: int, reader: int, input_form: str) -> int:
        """Slot to read, behind a change of form where one is needed."""
        slot, form = self._part.get((source, reader), self._slot[source]), self._form[source]
        changes = {
            (MAP, VECTOR): self._functions.flatten,
            (MAP, MAP_LAST): self._functions.to_map_last,
            (MAP_LAST, MAP): self._functions.to_map,
        }
        if form == input_form:
            return slot
        if (form, input_form) not in changes:
            raise SchemaError(
                f"layer {self._layers[reader].name!r} reads a {form} where it needs a {input_form}: "
                "the layer table does not fit together."
            )
        return self._step(changes[form, input_form], (slot,))

    def _step(
        self, function: Function, reads: tuple[int, ...], writes: int = 1, layer: int | None = None
    ) -> int:
        first = self._slots
        self._slots += writes
        self.steps.append(Step(function, reads, tuple(range(first, self._slots)), layer))
        return first

    def _split(self, source: int) -> None:
        """Split a layer's output once, if any layer reads a part of it; concats take the first parts."""
        channels = self._layers[source].out_channels or 0
        parts = {reader: self._part_read(reader, channels) for reader in self._readers[source]}
        if all(self._layers[reader].type in _WHOLE or parts[reader] == channels for reader in parts):
            return
        order = sorted(parts, key=lambda reader: (self._layers[reader].type != "concat", reader))
        sizes = [parts[reader] for reader in order]
        if sum(sizes) != channels:
            names = ", ".join(repr(self._layers[reader].name) for reader in order)
            raise SchemaError(
                f"layers {names} read {', '.join(map(str, sizes))} of the {channels} channels of "
                f"{self._layers[source].name!r}: the table does not say which ones. {MEASURE_WHOLE}"
            )
        split = partial(self._functions.split, sizes=sizes)
        slot = self._step(split, (self._slot[source],), len(sizes))
        self._part |= {(source, reader): slot + i for i, reader in enumerate(order)}

    def _part_read(self, reader: int, channels: int) -> int:
        """Channels of a source that a layer reads; a concat leaves out its inputs' surplus."""
        layer = self._layers[reader]
        if layer.in_channels is None or (layer.type in _WHOLE and layer.type != "concat"):
            return channels
        if layer.type != "concat":
            return min(channels, layer.in_channels)
        sources = [self._layers[position] for position in self._inputs[reader] if position != IMAGE]
        offered = sum(source.out_channels or 0 for source in sources)
        return channels - max(0, offered - layer.in_channels)
