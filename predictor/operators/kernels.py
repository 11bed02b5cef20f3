"""The GPU kernels of one training iteration, as arrays over distinct kernels.

Computed from a layer table, independent of GPU and batch size; `predictor.models.roofline` predicts their times. Equal
kernels are stored once with a count: a CNN has tens of rows instead of hundreds.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import SchemaError
from predictor.operator_types import OPERATOR_TYPES, VIEW_TYPES
from predictor.operators.operators import (
    RECOMPUTING,
    functions_of_lists,
    has_bias,
    is_depthwise,
    is_on_chip,
    launches_per_position,
    layer_inputs,
    layers_with_weights,
    list_length,
    share_of_passes,
    trained_tensors,
    wide_outputs,
)
from predictor.operators.work import loops_of, multiply_adds

KERNEL_CLASSES = (
    "conv_forward", "conv_backward_input", "conv_backward_weight", "depthwise_forward", "depthwise_backward_input",
    "depthwise_backward_weight", "matmul", "bias", "batch_norm", "layer_norm", "activation", "activation_after_bias",
    "max_pool", "avg_pool", "add", "fan_out", "multiply", "concat", "dropout", "permute", "pad", "other", "optimizer",
)  # fmt: skip


OPERATOR_CLASS_OF_KERNELS = {
    **{entry.kernel_class: entry.operator_class for entry in OPERATOR_TYPES.values() if entry.operator_class},
    **{name: "convolution" for name in KERNEL_CLASSES if name.startswith("conv_")},
    **{name: "depthwise" for name in KERNEL_CLASSES if name.startswith("depthwise_")},
    "activation_after_bias": "activation",
    "fan_out": "add",
}
"""Class of kernels -> class of the operators that run them; biases belong to operators of several classes."""


def operator_classes_of(class_ms: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Times by operator class, longest first, summed from times by kernel class."""
    ms_by_class: dict[str, NDArray[np.float64]] = {}
    for name, ms in class_ms.items():
        operator_class = OPERATOR_CLASS_OF_KERNELS.get(name, name)
        ms_by_class[operator_class] = (
            ms_by_class[operator_class] + ms if operator_class in ms_by_class else np.asarray(ms, dtype=float)
        )
    return dict(sorted(ms_by_class.items(), key=lambda class_and_ms: -float(class_and_ms[1].sum())))


class _Kernel(NamedTuple):
    """One kernel; every number is per image, except those named fixed (the same for any batch size)."""

    kernel_class: str
    flops: float = 0.0
    elements: float = 0.0
    elements_fixed: float = 0.0
    gemm_m: float = 0.0
    gemm_n: float = 1.0
    gemm_k: float = 1.0
    sums_over_batch: float = 0.0
    positions: float = 1.0
    in_channels: float = 1.0
    out_channels: float = 1.0
    kernel_height: float = 1.0
    kernel_width: float = 1.0
    stride: float = 1.0
    groups: float = 1.0
    loop_us_nchw: float = 0.0
    loop_us_last: float = 0.0
    loop_threads: float = 1.0
    added: float = 0.0
    in_float32: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """Distinct kernels of one CNN; arrays of shape (n_kernels,).

    `flops`, `elements` (tensor elements read and written) and loops (`Loops`) grow with the batch size,
    `elements_fixed` (weights) does not. `gemm_m`, `gemm_n`, `gemm_k` are the sizes of the matrix product of a
    convolution pass over one image; where `sums_over_batch` is 1, k grows with the batch, and not m. `first_elements`
    is the number of input elements of one image, `parameters` and `parameter_tensors` the numbers and tensors that the
    optimizer updates, `operators` the number of layers that the host enqueues. An iteration runs `parts` of its
    mini-batch one after the other, and a kernel of each counts.
    """

    kernel_class: NDArray[np.int64]
    count: NDArray[np.float64]
    columns: dict[str, NDArray[np.float64]]
    image_elements: float
    parameters: float
    parameter_tensors: float
    operators: float
    parts: int = 1

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        return self.columns[column]


_SHAPE = attrgetter(*(entry.name for entry in fields(Layer) if entry.name not in ("index", "name", "inputs")))


class _Place(NamedTuple):
    """What the kernels of a layer depend on beside itself: what it reads, and what it is called in messages."""

    cnn: str
    first: bool = False
    after_bias: bool = False
    in_nchw: bool = True
    of_lists: bool = False


@lru_cache(maxsize=512)
def kernels_of(
    table: LayerTable, *, update: float = 1.0, launches: float = 0.0, types: tuple[str, ...] = ()
) -> Kernels:
    """Kernels of a CNN's training iteration; of its layers of some `types`, if given.

    `update`: passes of its update over those that times were measured with; 0 for forward and backward passes only.
    `launches`: kernels that the update takes as long as, at least. Group norms, and what reads their maps up to the
    next matrix product, run in float32 under autocast.

    SchemaError if a layer lacks the shape that its work is computed from; the message names layer and column.
    """
    if types and all(layer.type in types for layer in table):
        return kernels_of(table, update=update, launches=launches)
    index_of: dict[_Kernel, int] = {}
    counts: list[float] = []
    counts_of_layers: dict[tuple[Any, ...], list[tuple[int, float]]] = {}  # equal layers have the same
    inputs, wide = layer_inputs(table), {IMAGE: False}
    (_, in_nchw), of_lists = wide_outputs(table), functions_of_lists(table)
    for position, layer in enumerate(layers_with_weights(table)):
        in_float32, sources = 0.0, inputs[position]
        if OPERATOR_TYPES[layer.type].product is None:
            reads_wide = any(map(wide.__getitem__, sources))
            in_float32 = 1.0 if reads_wide else _CAST_NORM if layer.type == "group_norm" else 0.0
        wide[position] = in_float32 > 0.0
        if types and layer.type not in types:
            continue
        at = _Place(
            table.cnn,
            layer.inputs == (IMAGE,) or (layer.inputs is None and position == 0),
            layer.type == "activation" and position > 0 and has_bias(table.layers[position - 1]),
            all(map(in_nchw.__getitem__, sources)),
            position in of_lists,
        )
        key = (*_SHAPE(layer), layer.inputs == (IMAGE,), at, in_float32)
        if key not in counts_of_layers:
            own = _counted_kernels(layer, at)
            if in_float32:
                own = ((kernel._replace(in_float32=in_float32), n) for kernel, n in own)
            counts_of_layers[key] = [(index_of.setdefault(kernel, len(index_of)), n) for kernel, n in own]
            counts += [0.0] * (len(index_of) - len(counts))
        for index, count in counts_of_layers[key]:
            counts[index] += count
    counted = dict(zip(index_of, counts, strict=True))
    parameters = float(table.parameters)
    if update and parameters:
        n = max(1.0, launches)
        counted[_Kernel("optimizer", elements_fixed=3.0 * parameters * update / n)] = n
    return Kernels(
        *_as_arrays(counted),
        image_elements=_elements(table.cnn, table.layers[0], "in"),
        parameters=parameters,
        parameter_tensors=float(trained_tensors(table)),
        operators=float(sum(_launched(layer, table.recomputations(layer)) for layer in table.layers)),
        parts=table.parts,
    )


_CAST_NORM = 1.24
"""Time of a group norm under autocast, which casts its map to float32 and the gradient back, over that in fp32.

Median of 21 on an H200, 1.03 to 1.32; of a map in float32 1.00. What layer norms take there is in the law of their
class, which was fitted to CNNs that have them."""

_NO_FORWARD = ("fan_out", "optimizer", *(name for name in KERNEL_CLASSES if "_backward_" in name))
_FORWARD_SHARE = 0.4
"""Share of the tensor passes of element-wise kernels that are forward: a read and a write of the textbook's five."""


@lru_cache(maxsize=512)
def forward_kernels_of(table: LayerTable) -> Kernels:
    """Kernels of a CNN's forward pass: a third of a training iteration's matmuls, 2/5 of its element-wise traffic.

    SchemaError if a layer lacks the shape that its work is computed from.
    """
    kernels = kernels_of(table.trained_whole(), update=0.0)
    names = np.array([KERNEL_CLASSES[number] for number in kernels.kernel_class])
    kept = ~np.isin(names, _NO_FORWARD)
    names = names[kept]
    columns = {name: values[kept] for name, values in kernels.columns.items()}
    products = (names == "conv_forward") | (names == "depthwise_forward") | (names == "matmul")
    columns["elements"] = columns["elements"] * np.where(products, 1.0, _FORWARD_SHARE)
    columns["added"] = np.zeros(names.size)
    count = kernels.count[kept] / np.where(names == "matmul", 3.0, 1.0)
    return replace(kernels, kernel_class=kernels.kernel_class[kept], count=count, columns=columns)


@lru_cache(maxsize=65536)
def kernels_of_operator(layer: Layer, pass_: str) -> Kernels:
    """Kernels of a single layer; `pass_` is a pass of the measurement tables, such as ``backward_weight``.

    SchemaError if the layer lacks a shape, or its type has no such pass.
    """
    kernels = _layer_kernels(layer, _Place(layer.name))
    wanted = {"forward_backward": ("",), "training": ("",)}.get(pass_, (f"_{pass_}",))
    chosen = [k for k in kernels if k.kernel_class.endswith(wanted)]
    if pass_ == "forward":  # noqa: S105
        chosen += [k._replace(elements=k.elements * 2 / 3) for k in kernels if k.kernel_class == "bias"]
    if not chosen:
        raise SchemaError(
            f"a {layer.type} has no pass {pass_!r}. Known: forward, backward_input, backward_weight."
        )
    return Kernels(*_as_arrays(Counter(chosen)), _elements(layer.name, layer, "in"), 0.0, 0.0, 1.0)


def _launched(layer: Layer, again: int) -> float:
    """How often the host enqueues a layer, forward and backward together; `again` are forward passes recomputed."""
    if layer.type in VIEW_TYPES:
        return 0.0
    if layer.forwards is None:
        return 1.0
    once = layer.forwards - again + max(layer.input_gradients or 0, layer.weight_gradients or 0)
    return once / 2.0 + again * RECOMPUTING


def _counted_kernels(layer: Layer, at: _Place) -> Iterator[tuple[_Kernel, float]]:
    """Kernels of a layer, each as often as its passes run, or the share of the layer's time that they take.

    All passes of a product have the same count: the law was fitted to whole iterations, which show their sum, not its
    split.
    """
    if at.of_lists:
        yield _Kernel("add", elements=3.0 * list_length(layer)), float(layer.forwards or 1)
        return
    if layer.forwards is None:
        yield from ((kernel, 1.0) for kernel in _layer_kernels(layer, at))
        return
    has_input_gradient = layer.inputs != (IMAGE,) or bool(layer.input_gradients)
    share = share_of_passes(layer, has_input_gradient) if layer.type not in VIEW_TYPES else 0.0
    for kernel in _layer_kernels(layer, at._replace(first=not has_input_gradient)):
        name = kernel.kernel_class
        if name == "bias":  # an addition reads and writes, its gradient reads
            count = (2.0 * layer.forwards + (layer.weight_gradients or 0)) / 3.0
        else:
            count = float(layer.input_gradients or 0) if name == "fan_out" else share
        if count:
            yield kernel, count


def _as_arrays(
    counted: Mapping[_Kernel, float],
) -> tuple[NDArray[np.int64], NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Classes of kernels, how often each runs, and their other columns."""
    columns = zip(*counted, strict=True)
    numbers = np.array([*columns][1:])
    return (
        np.array([KERNEL_CLASSES.index(kernel.kernel_class) for kernel in counted]),
        np.array(list(counted.values()), dtype=float),
        dict(zip(_Kernel._fields[1:], numbers, strict=True)),
    )


def _layer_kernels(layer: Layer, at: _Place) -> list[_Kernel]:
    product, cnn = OPERATOR_TYPES[layer.type].product, at.cnn
    if product in ("convolution", "transposed"):
        return _conv_kernels(cnn, layer, first=at.first)
    if product == "linear":
        return _linear_kernels(cnn, layer)
    if product == "matmul":  # one forward, one per factor's gradient; both factors grow with the batch
        ci, co = _need(cnn, layer, "in_channels"), _need(cnn, layer, "out_channels")
        return [_map_product(cnn, layer, ci * co / float(layer.groups or 1))] * 3
    if product == "attention":
        return _attention_kernels(cnn, layer)
    if product == "recurrent":
        return _recurrent_kernels(cnn, layer)
    return [] if layer.type in VIEW_TYPES else _element_kernels(layer, at)


def _conv_kernels(cnn: str, layer: Layer, *, first: bool) -> list[_Kernel]:
    ci, co = _need(cnn, layer, "in_channels"), _need(cnn, layer, "out_channels")
    kh, kw = _need(cnn, layer, "kernel_height"), _need(cnn, layer, "kernel_width")
    x, y = _elements(cnn, layer, "in"), _elements(cnn, layer, "out")
    groups = float(layer.groups or 1)
    common = {
        "flops": 2.0 * multiply_adds(layer),
        "elements": x + y,
        "elements_fixed": ci * co * kh * kw / groups,
        "positions": y / co / layer.repeats,
        "in_channels": ci,
        "out_channels": co,
        "kernel_height": kh / (layer.kernel_depth or 1),
        "kernel_width": kw,
        "stride": float((layer.stride_height or 1) // (layer.stride_depth or 1)),
        "groups": groups,
    }
    family = "depthwise" if is_depthwise(layer) else "conv"
    reduce_in, reduce_out = ci * kh * kw / groups, co * kh * kw / groups
    gemms = {
        "forward": (y / co, co / groups, reduce_in, 0.0),
        "backward_input": (x / ci, ci / groups, reduce_out, 0.0),
        "backward_weight": (reduce_in, co / groups, y / co, 1.0),
    }
    passes = [
        _Kernel(f"{family}_{pass_}", gemm_m=m, gemm_n=n, gemm_k=k, sums_over_batch=sums, **common)
        for pass_, (m, n, k, sums) in gemms.items()
        if not (first and pass_ == "backward_input")  # noqa: S105
    ]
    return passes + _bias_kernels(layer, y, co)


def _linear_kernels(cnn: str, layer: Layer) -> list[_Kernel]:
    ci, co = _need(cnn, layer, "in_channels"), _need(cnn, layer, "out_channels")
    positions = float(layer.repeats * (layer.out_height or 1) * (layer.out_width or 1))
    kernel = _Kernel(
        OPERATOR_TYPES[layer.type].kernel_class,
        flops=2.0 * positions * ci * co,
        elements=positions * (ci + co),
        elements_fixed=ci * co,
        gemm_m=positions,
        gemm_n=co,
        gemm_k=ci,
        positions=positions,
        in_channels=ci,
        out_channels=co,
    )
    return [kernel] * 3 + _bias_kernels(layer, positions * co, co)


def _attention_kernels(cnn: str, layer: Layer) -> list[_Kernel]:
    """One fused kernel forward; backward one of five products instead of two, over every tensor twice."""
    ci, co = _need(cnn, layer, "in_channels"), _need(cnn, layer, "out_channels")
    keys = _need(cnn, layer, "kernel_height") * _need(cnn, layer, "kernel_width")
    forward = _map_product(cnn, layer, keys * (ci + co))
    return [forward, forward._replace(flops=2.5 * forward.flops, elements=2.0 * forward.elements)]


def _recurrent_kernels(cnn: str, layer: Layer) -> list[_Kernel]:
    """Products with the inputs of all positions, then for each position a product with the state, and its gates.

    With weights on chip, positions take as long as some launches. The weights' gradients of all positions are products
    behind the last one.
    """
    ci, co = _need(cnn, layer, "in_channels"), _need(cnn, layer, "out_channels")
    positions = _need(cnn, layer, "out_height") * _need(cnn, layer, "out_width")
    groups, repeats = float(layer.groups or 1), layer.repeats
    gates = OPERATOR_TYPES[layer.type].gates

    def product(inputs: float, at: float) -> _Kernel:
        n = gates * co / groups
        return _Kernel(
            "matmul",
            flops=2.0 * repeats * at * gates * co * inputs,
            elements=repeats * at * (groups * inputs + gates * co),
            elements_fixed=inputs * gates * co,
            gemm_m=repeats * at,
            gemm_n=n,
            gemm_k=inputs,
            positions=at,
            in_channels=inputs,
            out_channels=n,
        )

    launches = launches_per_position(layer) * positions
    state = _Kernel("activation", elements=repeats * (gates + 2.0) * co, out_channels=co, positions=1.0)
    states = co / groups
    if is_on_chip(layer):
        return [product(ci, positions)] * 3 + [product(states, positions)] * 3 + [state] * round(launches)
    steps = round(launches / 2)
    return [product(ci, positions)] * 3 + [product(states, 1.0), state] * steps + [product(states, positions)]


def _map_product(cnn: str, layer: Layer, other_elements: float) -> _Kernel:
    """A product of feature maps; `other_elements` of those beside the input are read in each of the repeats."""
    ci, co = _need(cnn, layer, "in_channels"), _need(cnn, layer, "out_channels")
    x, y, groups = _elements(cnn, layer, "in"), _elements(cnn, layer, "out"), float(layer.groups or 1)
    positions = y / co
    return _Kernel(
        OPERATOR_TYPES[layer.type].kernel_class,
        flops=2.0 * multiply_adds(layer),
        elements=x + layer.repeats * other_elements + y,
        gemm_m=positions,
        gemm_n=co / groups,
        gemm_k=ci / groups,
        positions=positions,
        in_channels=ci / groups,
        out_channels=co / groups,
        groups=groups,
    )


def _bias_kernels(layer: Layer, out_elements: float, out_channels: float) -> list[_Kernel]:
    positions = out_elements / out_channels
    kernel = _Kernel("bias", elements=3.0 * out_elements, out_channels=out_channels, positions=positions)
    return [kernel] * has_bias(layer)


def _element_kernels(layer: Layer, at: _Place) -> list[_Kernel]:
    entry = OPERATOR_TYPES[layer.type]
    into, out = entry.element_passes
    x, y = _elements(at.cnn, layer, "in"), _elements(at.cnn, layer, "out")
    name = "activation_after_bias" if layer.type == "activation" and at.after_bias else entry.kernel_class
    channels = float(layer.out_channels or 1)
    us_nchw, us_last, threads, added = loops_of(layer)
    if us_nchw > us_last and not at.in_nchw:  # in a CNN of this memory format
        us_nchw = us_last
    kernel = _Kernel(
        name, elements=into * x + out * y, out_channels=channels, positions=y / channels / layer.repeats,
        loop_us_nchw=us_nchw, loop_us_last=us_last, loop_threads=threads, added=added,
    )  # fmt: skip
    if layer.type != "add":
        return [kernel]
    # The tensor that a residual block adds was read twice: its two gradients are summed on the way back.
    return [kernel, kernel._replace(kernel_class="fan_out", elements=3.0 * x)]


def _need(cnn: str, layer: Layer, column: str) -> float:
    value = getattr(layer, column)
    if not value:
        raise SchemaError(
            f"{cnn}: layer {layer.index} ({layer.type} {layer.name!r}) has no {column}, "
            "without which its work is unknown. Complete the layer table."
        )
    return float(value)


def _elements(cnn: str, layer: Layer, side: str) -> float:
    """Numbers of a layer's input (``in``) or output (``out``) for each image."""
    sizes = (_need(cnn, layer, f"{side}_{dimension}") for dimension in ("channels", "height", "width"))
    return layer.repeats * math.prod(sizes)
