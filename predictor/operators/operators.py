"""The operators of a CNN: its layers as a training iteration runs them; equal layers are one operator.

`proxy_cnns` measures single operators and `layer-times` sums their times, so both use this definition. Computed from a
layer table. An operator holds every input of its time besides batch size and mode: its shape, whether it runs in
place, whether its input needs a gradient, and whether its input is float32 under automatic mixed precision. What a
layer behind a group norm is as an operator depends on the mode (`as_run`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.devices import ELEMENT_BYTES
from predictor.cnns.layer_table import DIMENSIONS, IMAGE, Layer, LayerTable, side
from predictor.errors import SchemaError
from predictor.operator_types import (
    ACTIVATIONS,
    FUNCTION_TYPES,
    OPERATOR_TYPES,
    RUNNING,
    VIEW_TYPES,
    VOLUME_TYPES,
)

_COPIES_OF_A_VIEW = 4
"""Copies of a gradient that goes back through an activation that overwrites a view: 3-D U-Nets with instance norms and
LeakyReLU take 3.3 ms more in place in TF32 and 1.8 in AMP on an H100, eight passes over each map."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A single layer; shapes per image, None where the type has no such column.

    `type` is a layer type, ``optimizer`` (the update of `n_tensors` tensors, `parameters` numbers in all) or
    ``loss`` (cross-entropy over `in_channels` classes). `n_tensors` counts the inputs of a concat. `passes` is
    ``forward_backward``, or ``forward`` for an operator that runs only in the backward pass: an ``add`` that sums the
    gradients of a tensor read twice, a ``concat`` that joins those of a split one. A ``permute`` with `groups` shuffles
    channels, one without changes the layout in memory. `wide_input`: under automatic
    mixed precision the input arrives in float32; unless it is the image, it lies channels-last in memory, as a layer
    norm leaves it. `wide_in_nchw`: it lies in NCHW, as a group norm leaves it; `narrow_last`: the input of a
    depthwise convolution or a resizing is narrow and lies channels-last, as a dense layer on a map leaves it;
    `wide_product`: a matrix product that autocast leaves in float32 (all: `as_run`). `relaid`: how often a CNN in NCHW
    copies what it reads from one memory format to the other; `sliced`: the gradient of its output is a slice of a
    concatenation's (both: `predictor.operators.work.copies_between`). `fp32_product`: its matrix product is computed in
    fp32 in a mode of TF32 (`in_fp32`) or of AMP. `repeats` is as of `Layer`.
    """

    type: str
    kind: str | None = None
    in_channels: int | None = None
    in_height: int | None = None
    in_width: int | None = None
    out_channels: int | None = None
    out_height: int | None = None
    out_width: int | None = None
    kernel_height: int | None = None
    kernel_width: int | None = None
    stride_height: int | None = None
    stride_width: int | None = None
    padding_height: int | None = None
    padding_width: int | None = None
    dilation: int | None = None
    groups: int | None = None
    parameters: int = 0
    n_tensors: int = 1
    passes: str = "forward_backward"
    input_gradient: bool = True
    in_place: bool = False
    wide_input: bool = False
    fp32_product: bool = False
    in_depth: int | None = None
    out_depth: int | None = None
    kernel_depth: int | None = None
    stride_depth: int | None = None
    padding_depth: int | None = None
    repeats: int = 1
    wide_in_nchw: bool = False
    narrow_last: bool = False
    wide_product: bool = False
    relaid: int = 0
    sliced: bool = False

    @property
    def name(self) -> str:
        """Short and unique, such as ``conv2d_64x56x56_128x28x28_k3x3_s2x2_p1x1``."""
        return _name(self)

    def _parts_of_name(self) -> list[str]:
        parts = [self.type if self.kind is None else f"{self.type}-{self.kind}"]
        parts += [
            f"{getattr(self, f'{what}_channels')}x{self._sides(what)}"
            for what in ("in", "out")
            if getattr(self, f"{what}_channels") is not None
        ]
        parts += [
            f"{letter}{self._sides(what)}"
            for letter, what in (("k", "kernel"), ("s", "stride"), ("p", "padding"))
            if getattr(self, f"{what}_height") is not None
        ]
        parts += [f"{letter}{value}" for letter, value in (("d", self.dilation), ("g", self.groups)) if value]
        parts += [f"n{self.n_tensors}"] * (self.n_tensors != 1)
        parts += [f"w{self.parameters}"] * bool(self.parameters)
        parts += [f"x{self.repeats}"] * (self.repeats != 1)
        marks = {
            "forward": self.passes == "forward",
            "first": not self.input_gradient,
            "inplace": self.in_place,
            "wide": self.wide_input,
            "nchw": self.wide_in_nchw,
            "last": self.narrow_last,
            "relaid": self.relaid > 0,
            "sliced": self.sliced,
            "fp32": self.fp32_product or self.wide_product,
        }
        return parts + [word for word, true in marks.items() if true]

    def _sides(self, what: str) -> str:
        dimensions = ("height", "width") if getattr(self, f"{what}_depth") is None else DIMENSIONS
        return "x".join(str(side(self, what, dimension)) for dimension in dimensions)


OF_LAYERS = tuple(entry.name for entry in fields(Operator) if entry.name in Layer.__dataclass_fields__)
"""Fields of an operator that are those of its layer."""
_OF_LAYER = attrgetter(*OF_LAYERS)

_NUMBERS = tuple(entry.name for entry in fields(Operator) if str(entry.type).startswith("int"))
"""Fields that are sizes or counts."""

RECOMPUTING = 1.5
"""Host time of a recomputed forward pass over that of all passes of the same layers.

An H100's machine took 31 ms for a ResNet-50 of which three of four segments are recomputed, 39 with reentrant
checkpoints, and 16 without: hooks keep and find each tensor of both forward passes."""


_RECURRENT_LAUNCHES, ON_CHIP_STATE = 4.0, 128
"""Kernels of one position of a recurrent layer with a large state, forward and backward together: in both a product,
then the gates. Up to the state on chip cuDNN runs all positions in one kernel, with the weights in registers (the same
bound as in PyTorch's RNN.cpp for backward passes, on GPUs since Pascal)."""


def is_on_chip(layer: Layer | Operator) -> bool:
    """Whether one kernel runs all positions of a recurrent layer."""
    is_recurrent = OPERATOR_TYPES[layer.type].is_recurrent
    return is_recurrent and (layer.out_channels or 0) <= ON_CHIP_STATE * (layer.groups or 1)


def launches_per_position(layer: Layer | Operator) -> float:
    """Launches that take as long as one position of a recurrent layer, forward and backward together.

    With weights on chip 1 us, and 1 us for each 32 numbers of the state, in each direction: LSTMs of 32 to 128 took an
    H200 0.7 to 12 us a position. Those of 256 to 1,024, whose directions run side by side, took 10 to 80.
    """
    if not is_on_chip(layer):
        return _RECURRENT_LAUNCHES
    return (layer.groups or 1) / 4 + (layer.out_channels or 0) / 128


@lru_cache(maxsize=4096)
def _name(operator: Operator) -> str:
    return "_".join(operator._parts_of_name())


class Operators(tuple[Operator, ...]):
    """Operators of a CNN; a tuple that computes its hash once, as a key of caches."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()


def operators_of(
    table: LayerTable, *, by_host: bool = False, channels_last: bool = False, half: bool = False
) -> Mapping[Operator, float]:
    """Operators of one training iteration of a CNN, with how often each runs; cached.

    Besides the layers: sums of gradients where a tensor is read more than once, the loss and the optimizer step.
    A layer with unknown inputs is assumed to read the layer before it. An operator whose passes run partly or
    several times counts as the share of its time in this memory format and precision; `by_host` as that of the host's.
    """
    has_passes = any(layer.forwards is not None for layer in table.layers)
    return _counted(table, *(has_passes and mode for mode in (by_host, channels_last, half)))


@lru_cache(maxsize=256)
def _counted(table: LayerTable, by_host: bool, channels_last: bool, half: bool) -> Mapping[Operator, float]:
    """`operators_of`, in its own mode of a CNN whose layers say their passes."""
    counted: dict[Operator, float] = {}
    shares: dict[int, tuple[Operator, float]] = {}  # by identity: equal layers share an operator
    for position, operator in layer_operators(table).items():
        layer = table.layers[position]
        again = table.recomputations(layer) if by_host else 0
        if layer.forwards is not None:
            layer = replace(layer, forwards=layer.forwards - again)
        last = channels_last or (operator.wide_input and operator.input_gradient)  # as a layer norm leaves it
        share = share_of_passes(layer, operator.input_gradient, channels_last=last, half=half)
        share += again * RECOMPUTING
        if position in functions_of_lists(table):
            length, share = list_length(layer), 1 if layer.forwards is None else layer.forwards
            operator = Operator("add", **_map(length), passes="forward")
        shares[id(operator)] = operator, shares.get(id(operator), (operator, 0))[1] + share
    for operator, count in (*shares.values(), *_gradient_operators(table).items()):
        counted[operator] = counted.get(operator, 0) + count
    tensors, parameters = trained_tensors(table), table.parameters
    classes = table.layers[-1].out_channels
    counted[Operator("loss", in_channels=classes, in_height=1, in_width=1)] = 1
    if parameters:
        counted[Operator("optimizer", parameters=parameters, n_tensors=max(1, tensors))] = 1
    return MappingProxyType(counted)


@lru_cache(maxsize=256)
def functions_of_lists(table: LayerTable) -> frozenset[int]:
    """Positions of functions of lists, such as boxes and scores, through which no gradient goes back; cached.

    Any of them runs one kernel of a few microseconds: as long as the sum of two lists.
    """
    of_lists = {
        position: layer
        for position, layer in enumerate(table.layers)
        if layer.type in FUNCTION_TYPES
        and {layer.in_height, layer.in_width, layer.out_height, layer.out_width} == {1}
        and not layer.parameters
    }
    operators = layer_operators(table) if of_lists else {}
    return frozenset(
        position
        for position, layer in of_lists.items()
        if not (operators[position].input_gradient if layer.forwards is None else layer.input_gradients)
    )


def list_length(layer: Layer) -> int:
    """Length per image of the longer list among those that a function reads and writes."""
    return max(layer.in_channels or 1, layer.out_channels or 1)


def is_product(operator: Layer | Operator) -> bool:
    """Whether an operator is a matrix product, whose arithmetic PyTorch's `float32_matmul_precision` decides.

    Fused attention is no such product: on an H200 it takes as long in either precision.
    """
    return OPERATOR_TYPES[operator.type].product in ("linear", "matmul")


def in_fp32(operator: Operator) -> Operator:
    """The operator as it runs in TF32 with matrix products in fp32: unchanged unless `is_product`."""
    return replace(operator, fp32_product=True) if is_product(operator) else operator


def alone(operator: Operator) -> Operator:
    """The operator by itself, whatever copies its place in a CNN costs."""
    return replace(operator, relaid=0, sliced=False) if operator.relaid or operator.sliced else operator


def as_run(operator: Operator, framework: str, memory_format: str, precision: str) -> Operator:
    """The operator without marks of its place in a CNN, as it runs, and is measured, in a mode.

    PyTorch's group norm gives a map in NCHW, and in float32 under automatic mixed precision; so does what reads a state
    in float32, or the image. In full precision the next layer is that of any other map. In half precision it works in
    float32, in which the memory format hardly matters; a convolution narrows its input first and runs in the memory
    format of the mode, in channels-last as behind a layer norm. `predictor.operators.work.copies_between` has what
    converting the maps takes. A depthwise convolution runs other kernels in channels-last, cast or not. A sum of
    gradients in float32 is one of maps, whose backward pass is free.
    """
    narrow = ELEMENT_BYTES[precision] < ELEMENT_BYTES["fp32"]
    operator = alone(operator)
    if operator.passes == "forward" and operator.wide_input:
        return replace(operator, passes="forward_backward") if narrow else replace(operator, wide_input=False)
    if operator.wide_product:
        more: dict[str, Any] = (
            {"fp32_product": True, "wide_input": False, "wide_in_nchw": False} if narrow else {}
        )
        operator = replace(operator, wide_product=False, **more)
    if operator.narrow_last:
        wide = memory_format == "nchw" and framework == "pytorch"
        return replace(operator, narrow_last=False, wide_input=wide)
    if not operator.wide_in_nchw:
        return operator
    narrows = OPERATOR_TYPES[operator.type].product is not None or OPERATOR_TYPES[operator.type].loops
    wide = narrow and (not narrows or memory_format == "channels_last" or framework != "pytorch")
    return replace(operator, wide_in_nchw=False, wide_input=wide)


_Weights = tuple[float, float, float]

_DEPTHWISE: dict[str, tuple[_Weights, ...]] = {
    "nchw": ((0.21, 0.36, 0.43), (0.21, 0.23, 0.56), (0.22, 0.27, 0.51), (0.22, 0.26, 0.52)),
    "channels_last": ((0.27, 0.29, 0.44), (0.28, 0.28, 0.44), (0.07, 0.07, 0.86), (0.36, 0.13, 0.51)),
    "half channels_last": ((0.27, 0.34, 0.39), (0.27, 0.38, 0.35), (0.26, 0.49, 0.25), (0.55, 0.18, 0.27)),
}
"""Passes of depthwise convolutions of windows up to 3, 5, 7 and more; medians of 16 shapes on an H100."""
_STRIDED_DEPTHWISE = {"nchw": (0.13, 0.65, 0.22), "channels_last": (0.17, 0.54, 0.29)}

_RUNNING_NORM: dict[str, _Weights] = {
    "nchw": (0.20, 0.26, 0.82), "half nchw": (0.15, 0.14, 0.53),
    "channels_last": (0.32, 1.37, 1.71), "half channels_last": (0.19, 1.14, 1.46),
}  # fmt: skip
"""Times of a batch norm of running statistics over one that takes a mini-batch's: forward, backward where its scale is
frozen, and where it learns. Seven shapes on an H100 (`benchmarks/passes_h100.csv`). In channels-last its gradient comes
back in NCHW, and the convolution before it copies that, for as long as the norm's own pass took."""


def pass_weights(layer: Layer, *, channels_last: bool = False, half: bool = False) -> _Weights:
    """Relative times of a layer's passes: forward, gradient of the input, gradient of the weights.

    The passes of a convolution as 14 shapes in two modes took them on an H200 (`benchmarks/passes_h200.csv`), those of
    depthwise ones as on an H100 (`benchmarks/passes_h100.csv`): their layout decides whether the weights' gradient
    takes a quarter of the time or nine tenths. Those of other products have equal work, attention's backward pass 2.5 x
    that of its forward pass; all others take the time in which they read and write memory. In 16 bits, ConvNeXt's dense
    layers, layer norms and layer scales take them as on an H100 (the same file): gradients of weights are cast. One
    kernel computes both gradients of a batch norm (`share_of_passes`).
    """
    entry = OPERATOR_TYPES[layer.type]
    if is_depthwise(layer):
        form = "channels_last" if channels_last else "nchw"
        if (layer.stride_height or 1) > 1:
            return _STRIDED_DEPTHWISE[form]
        window = max(layer.kernel_height or 1, layer.kernel_width or 1)
        return _DEPTHWISE[f"{'half ' * (half and channels_last)}{form}"][bisect_left((3, 5, 7), window)]
    if entry.is_convolution:
        return (0.30, 0.31, 0.39)
    if entry.operator_class == "batch_norm":
        return (3.0, 5.0, 0.0)
    if half and layer.parameters:
        if entry.product == "linear":
            return (0.26, 0.23, 0.51)
        if layer.type == "layer_norm":
            return (0.45, 0.27, 0.28)
        if layer.type == "multiply":
            return (0.23, 0.27, 0.50)
    if entry.product is not None:
        return (1.0, 2.5, 0.0) if entry.product == "attention" else (1.0, 1.0, 1.0)
    work = entry.work_of(layer.parameters)
    inputs = float((layer.in_channels or 1) * (layer.in_height or 1) * (layer.in_width or 1))
    outputs = float((layer.out_channels or 1) * (layer.out_height or 1) * (layer.out_width or 1))
    forward, of_input, of_weights = (
        (traffic.read_input + traffic.written_input) * inputs
        + (traffic.read_output + traffic.written_output) * outputs
        for traffic in (work.forward, work.backward_input, work.backward_weight)
    )
    return forward, of_input, of_weights if layer.parameters else 0.0


def share_of_passes(
    layer: Layer, input_gradient: bool, *, channels_last: bool = False, half: bool = False
) -> float:
    """Time of a layer's passes in a step over that of one run of all; 1 where the CNN is trained whole.

    Without `input_gradient` the gradient of the input does not count in one run of all.
    """
    if layer.forwards is None:
        return 1
    runs = (layer.forwards, layer.input_gradients or 0, layer.weight_gradients or 0)
    weights = pass_weights(layer, channels_last=channels_last, half=half)
    if layer.kind == RUNNING:
        form = f"{'half ' * half}{'channels_last' if channels_last else 'nchw'}"
        forward, frozen, trained = _RUNNING_NORM[form]
        return runs[0] * forward + max(runs[1:]) * (trained if runs[2] else frozen)
    if OPERATOR_TYPES[layer.type].operator_class == "batch_norm":
        runs, input_gradient = (runs[0], max(runs[1:]), 0), True
    once = sum(weights) if input_gradient else weights[0] + weights[2]
    return sum(count * weight for count, weight in zip(runs, weights, strict=True)) / once


_WINDOW = "kernel_height", "kernel_width", "kernel_depth"
_WEIGHTS = attrgetter("type", "in_channels", "out_channels", *_WINDOW, "groups")


@lru_cache(maxsize=64)
def layers_with_weights(table: LayerTable) -> Sequence[Layer]:
    """Layers of a table, each with the parameters that it reads: a table counts shared ones where they are first read.

    Filters that no layer has are a map's.
    """
    parameters_by_shape: dict[tuple[Any, ...], int] = {}
    layers = []
    for layer in table.layers:
        if layer.parameters:
            parameters_by_shape.setdefault(_WEIGHTS(layer), layer.parameters)
        elif OPERATOR_TYPES[layer.type].weights:
            layer = replace(layer, parameters=parameters_by_shape.get(_WEIGHTS(layer), filters_of(layer)))
        layers.append(layer)
    return layers


@lru_cache(maxsize=64)
def layer_operators(table: LayerTable) -> Mapping[int, Operator]:
    """Operator of each layer that costs time, by the layer's position; cached."""
    inputs, readers = layer_inputs(table), _readers(table)
    wide, in_nchw = wide_outputs(table)
    learns: dict[int, bool] = {IMAGE: False}
    operators: dict[int, Operator] = {}
    made: dict[tuple[Any, ...], Operator] = {}
    for position, (layer, run) in enumerate(zip(table.layers, layers_with_weights(table), strict=True)):
        sources, own_readers = inputs[position], readers.get(position, ())
        input_gradient = any(map(learns.__getitem__, sources))
        if layer.forwards is not None:  # where neither gradient is computed, as in a CNN that is trained
            input_gradient = bool(layer.input_gradients) or not layer.weight_gradients
        learns[position] = input_gradient or layer.parameters > 0
        if layer.type in VIEW_TYPES:
            continue
        lie_in_nchw = [in_nchw[source] for source in sources]
        float32 = [source for source in sources if wide[source]]
        activation = ACTIVATIONS.get(layer.kind or "")
        in_place = activation is not None and activation.in_place and layer.overwrites != 0
        in_place = in_place and sources != (IMAGE,) and all(len(readers[source]) == 1 for source in sources)
        is_sliced = len(own_readers) == 1 and own_readers[0].type == "concat"
        marks = {
            "kind": None if activation is None else layer.kind,  # measured as any batch norm, or permute
            "groups": 2 if layer.type == "permute" and is_channel_shuffle(table, position) else layer.groups,
            "n_tensors": len(sources) if layer.type == "concat" else 1,
            "input_gradient": input_gradient,
            "in_place": in_place,
            "wide_input": bool(float32),
            "wide_in_nchw": input_gradient
            and IMAGE not in float32
            and bool(float32)
            and all(in_nchw[source] for source in float32),
            "narrow_last": not (float32 or all(lie_in_nchw))
            and bool(OPERATOR_TYPES[layer.type].loops or (input_gradient and has_small_windows(layer))),
            "wide_product": layer.widens == 2 and is_product(layer),
            "relaid": _relaid(layer, lie_in_nchw, own_readers),
            "sliced": is_sliced and (layer.input_gradients, layer.weight_gradients) != (0, 0),
        }
        columns = _OF_LAYER(run)
        key = (*columns, *marks.values())
        if key not in made:
            made[key] = Operator(**dict(zip(OF_LAYERS, columns, strict=True)) | marks)
        operators[position] = made[key]
    return operators


_READS_LAST = {"layer_norm": 3, "linear": 4}


def _relaid(layer: Layer, in_nchw: Sequence[bool], readers: Sequence[Layer]) -> int:
    """Copies between memory formats of a map that a layer of a CNN in NCHW reads, forward and backward together.

    A layer norm copies one in NCHW in both passes, a dense layer twice in one of them, whose reads stride; the layer
    before copies the gradient. A sum whose first operand lies in NCHW and another channels-last strides, and the
    gradient of the latter is copied. A map resized in channels-last and copied back has its gradient in NCHW. Kernels
    on an H200; a layer scale before the sum makes no difference.
    """
    if all(in_nchw):
        is_map = (layer.out_height, layer.out_width) != (1, 1)
        return _READS_LAST.get(layer.type, 0) * is_map
    goes_back = layer.type == "upsample" and [reader.kind for reader in readers] == ["nchw"]
    return 2 * (layer.type == "add" and in_nchw[0]) or int(goes_back)


def is_channel_shuffle(table: LayerTable, position: int) -> bool:
    """Whether a permute mixes channels: no layer norm and no dense layer on a map is next to it (else: new layout)."""
    inputs = layer_inputs(table)
    near = [table.layers[source].type for source in inputs[position] if source != IMAGE]
    near += [layer.type for layer, read in zip(table.layers, inputs, strict=True) if position in read]
    return not any(OPERATOR_TYPES[type_].positionwise for type_ in near)


def is_view(operator: Operator, framework: str) -> bool:
    """Whether an operator runs no kernel in this framework, since its result is a view of its input.

    PyTorch keeps maps between layer norms channels-last in memory, where a change of layout is a view; Chainer copies.
    """
    changes_layout = operator.type == "permute" and not operator.groups
    return operator.type in VIEW_TYPES or (changes_layout and framework == "pytorch")


def operator_row(operator: Operator) -> dict[str, Any]:
    """Columns of the measurement table that identify the operator; unset fields are left out."""
    row = {key: value for key, value in asdict(operator).items() if value is not None}
    # of the row's mode, or a place in a CNN
    for name in ("fp32_product", "wide_in_nchw", "narrow_last", "wide_product", "relaid", "sliced"):
        del row[name]
    if operator.repeats == 1:
        del row["repeats"]
    kind = row.pop("kind", None)
    row["pass"] = row.pop("passes")
    return {"kind": "operator", "cnn": operator.name} | row | ({"activation_kind": kind} if kind else {})


def operator_from_row(row: Mapping[str, Any]) -> Operator:
    """Operator of a row of a measurement table.

    SchemaError if the row is not an operator's.
    """
    if row.get("kind") != "operator" or not row.get("type"):
        raise SchemaError(
            f"the row of {row.get('cnn')!r} is of kind {row.get('kind')!r} and type {row.get('type')!r}: "
            "no operator. Give rows that `epochcast profile` wrote with kind operator and a layer type."
        )
    cells = {key: row.get(key) for key in _NUMBERS}
    columns: dict[str, Any] = {
        key: int(cell) for key, cell in cells.items() if cell is not None and cell == cell
    }
    if row["type"] in VOLUME_TYPES and "in_depth" not in columns:
        # a table without depths measured only images and windows of equal height and width
        for name in ("in", "out", "kernel", "stride"):
            columns[f"{name}_depth"] = columns[f"{name}_height"] // columns[f"{name}_width"]
    for key, default in (("input_gradient", True), ("in_place", False), ("wide_input", False)):
        columns[key] = _flag(row, key, default=default)
    kind, passes = row.get("activation_kind"), row.get("pass")
    return Operator(
        str(row["type"]),
        kind if isinstance(kind, str) and kind else None,
        passes=passes if isinstance(passes, str) and passes else "forward_backward",
        **columns,
    )


def amp_output(layer: Layer) -> str:
    """Type of a layer's output under autocast, as of `OperatorType`; that of some kinds of activations is wide."""
    is_wide = layer.widens == 2 or (layer.kind in ACTIVATIONS and ACTIVATIONS[layer.kind].wide)
    return "wide" if is_wide else OPERATOR_TYPES[layer.type].amp_output


def _wide_output(layer: Layer, wide_input: bool) -> bool:
    """Whether the output is float32 under PyTorch's autocast: products narrow it, softmax and most norms widen it."""
    output, weights = amp_output(layer), OPERATOR_TYPES[layer.type].weights
    if output != "input":
        return output == "wide"
    # A float32 parameter or other number widens the result.
    return wide_input or bool(layer.widens) or (layer.parameters > 0 and weights is None)


@lru_cache(maxsize=64)
def wide_outputs(table: LayerTable) -> tuple[Mapping[int, bool], Mapping[int, bool]]:
    """Whether each layer's output, by its position, is float32 under autocast, and whether it lies in NCHW; cached.

    A layer that reads position by position writes channels-last, unless 1 x 1; later layers keep that but a group norm,
    and but a sum whose first map lies in NCHW: PyTorch lays a sum out as its first operand.
    """
    wide, in_nchw = {IMAGE: True}, {IMAGE: True}
    for position, (layer, sources) in enumerate(zip(table.layers, layer_inputs(table), strict=True)):
        wide[position] = _wide_output(layer, any(wide[source] for source in sources))
        is_vector = (layer.out_height, layer.out_width) == (1, 1)
        leaves_last = OPERATOR_TYPES[layer.type].positionwise and not is_vector
        deciding = sources[:1] if layer.type == "add" else sources
        follows = not leaves_last and all(in_nchw[source] for source in deciding)
        given = layer.type == "permute" and layer.kind
        in_nchw[position] = given == "nchw" if given else layer.type == "group_norm" or follows
    return wide, in_nchw


def _gradient_operators(table: LayerTable) -> Counter[Operator]:
    """Operators of only the backward pass: sums of gradients of tensors read twice, joins of those of split ones.

    Gradients of float32 maps are float32. That of an overwritten view is copied four times.
    """
    counted: Counter[Operator] = Counter()
    wide, _ = wide_outputs(table)
    for source, readers in _readers(table).items():
        layers = [layer for layer in readers if layer.input_gradients != 0]
        if source == IMAGE or len(layers) < 2:
            continue
        of = table.layers[source]
        readers_of_parts = [layer for layer in layers if (layer.in_channels or 0) < (of.out_channels or 0)]
        if any(layer.type != "concat" for layer in readers_of_parts):
            counted[_join(of)] += 1
        else:
            sliced = any(layer.type == "concat" for layer in layers)
            sides = _map(of.out_channels, of.out_height, of.out_width)
            sums = Operator("add", **sides, passes="forward", wide_input=wide[source], sliced=sliced)
            counted[sums] += len(layers) - 1
    for layer in table.layers:
        if layer.overwrites == 2 and layer.input_gradients != 0:
            counted[_join(layer)] += _COPIES_OF_A_VIEW
    return counted


def _join(layer: Layer) -> Operator:
    """One kernel that reads and writes maps as many as a layer's outputs."""
    sides = _map(layer.out_channels, layer.out_height, layer.out_width)
    return Operator("concat", **sides, n_tensors=2, passes="forward")


def _map(*sizes: int | None) -> dict[str, Any]:
    """Columns of an operator that reads and writes maps of these channels, height and width (a list: 1 and 1)."""
    parts = zip(("channels", "height", "width"), (*sizes, 1, 1), strict=False)
    return {f"{side}_{dimension}": size for dimension, size in parts for side in ("in", "out")}


@lru_cache(maxsize=64)
def layer_inputs(table: LayerTable) -> Sequence[tuple[int, ...]]:
    """Positions of the layers that each layer reads (IMAGE: the CNN's input), if unknown the layer before; cached."""
    position_of = {layer.index: position for position, layer in enumerate(table.layers)} | {IMAGE: IMAGE}
    return [
        (position - 1,) if layer.inputs is None else tuple(position_of[index] for index in layer.inputs)
        for position, layer in enumerate(table.layers)
    ]


@lru_cache(maxsize=64)
def _readers(table: LayerTable) -> Mapping[int, Sequence[Layer]]:
    """Layers that read each output, by the position of the layer that writes it, or `IMAGE`."""
    readers: dict[int, list[Layer]] = {}
    for layer, sources in zip(table.layers, layer_inputs(table), strict=True):
        for source in sources:
            readers.setdefault(source, []).append(layer)
    return readers


def has_bias(layer: Layer | Operator) -> bool:
    """Whether a convolution or dense layer trains more numbers than its weights; False for other types."""
    return OPERATOR_TYPES[layer.type].weights == "filters" and layer.parameters > filters_of(layer)


def filters_of(layer: Layer | Operator) -> int:
    """Weights of a convolution or dense layer, without its bias; 0 for other types."""
    if OPERATOR_TYPES[layer.type].weights != "filters":
        return 0
    area = (layer.kernel_height or 1) * (layer.kernel_width or 1)
    return (layer.in_channels or 0) * (layer.out_channels or 0) * area // (layer.groups or 1)


def is_depthwise(layer: Layer | Operator) -> bool:
    """Whether a convolution has a group for each of several input channels; False for transposed and other types."""
    groups = layer.groups or 1
    is_convolution = OPERATOR_TYPES[layer.type].product == "convolution"
    return is_convolution and groups > 1 and groups == layer.in_channels


_SMALL_WINDOW = 5
"""Depthwise windows that the instrument measures in NCHW only in NCHW; larger ones also as a layer norm leaves maps."""


def has_small_windows(layer: Layer | Operator) -> bool:
    """Whether a layer is a depthwise convolution of windows up to 5 x 5."""
    return is_depthwise(layer) and max(layer.kernel_height or 1, layer.kernel_width or 1) <= _SMALL_WINDOW


def parameter_tensors(layer: Layer | Operator) -> int:
    """Number of trained tensors: weight and any bias; scale and shift; 4 per direction of a recurrent layer."""
    if not layer.parameters or (isinstance(layer, Layer) and layer.is_frozen):
        return 0
    entry = OPERATOR_TYPES[layer.type]
    if entry.is_recurrent:  # weights of inputs and states, and two biases, of each direction
        return 4 * (layer.groups or 1)
    return 1 + (entry.weights == "scale_and_shift" or has_bias(layer))


@lru_cache(maxsize=256)
def trained_tensors(table: LayerTable) -> int:
    """Number of trained tensors of a CNN."""
    return sum(map(parameter_tensors, table))


def _flag(row: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = row.get(key)
    if value is None or str(value) in ("", "<NA>", "nan"):
        return default
    return str(value).casefold() in ("true", "1", "1.0")


@lru_cache(maxsize=256)
def counted_operators(table: LayerTable, fp32_products: bool = False) -> tuple[Operators, Array]:
    """Distinct operators of a CNN and how often each runs; cached. `fp32_products` is as of `Mode`."""
    counted = operators_of(table)
    operators = map(in_fp32, counted) if fp32_products else counted
    return Operators(operators), np.array(list(counted.values()), dtype=float)
