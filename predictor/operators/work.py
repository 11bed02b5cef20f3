"""FLOPs, bytes and roofline times of layers and operators."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import ELEMENT_BYTES, LAUNCH_MS, Rates, all_gpus, find_gpu, is_cpu, rates_of
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import OutOfRangeError, SchemaError, nearest
from predictor.operator_types import OPERATOR_CLASSES, OPERATOR_TYPES, Loops, Traffic, Work
from predictor.operators.columns import OperatorColumns, kept
from predictor.operators.operators import (
    Operator,
    counted_operators,
    is_depthwise,
    is_on_chip,
    launches_per_position,
)

PASSES = ("forward", "backward_input", "backward_weight")
"""The three passes of training: outputs, gradients of the inputs, gradients of the weights."""


class _Elements(NamedTuple):
    """Numbers per image in a layer's input and output, and its trainable numbers."""

    input: float
    output: float
    weights: float


def multiply_adds(layer: Layer | Operator) -> float:
    """Multiply-adds of a layer's matrix products, forward, per image; 0 for every type that has none.

    SchemaError if a column that it needs is unknown.

    Convolution: c_out h_out w_out k_h k_w c_in / groups (direct; FFT and Winograd do fewer); transposed: with h_in w_in
    instead of h_out w_out. Dense: c_in c_out at each position. Product of two maps: c_in c_out / groups at each
    position, with c = groups times the width of one factor. Attention: (c_in + c_out) at each position for each of its
    keys. Recurrent: gates (c_in + c_out / groups) c_out at each position; the groups are its directions.
    """
    entry, positions = OPERATOR_TYPES[layer.type], ("out_height", "out_width")
    if entry.product is None:
        return 0.0
    if entry.is_convolution:
        positions = ("in_height", "in_width") if entry.product == "transposed" else positions
        filters = ("in_channels", "out_channels", "kernel_height", "kernel_width")
        products = _product(layer, *positions, *filters) / _product(layer, "groups")
    elif entry.product == "attention":
        widths = _product(layer, "in_channels") + _product(layer, "out_channels")
        products = widths * _product(layer, "kernel_height", "kernel_width", *positions)
    elif entry.product == "recurrent":
        states = _product(layer, "out_channels") / _product(layer, "groups")
        gates = entry.gates * _product(layer, *positions, "out_channels")
        products = gates * (_product(layer, "in_channels") + states)
    else:
        products = _product(layer, "in_channels", "out_channels", *positions)
        products /= 1.0 if entry.product == "linear" else _product(layer, "groups")
    return layer.repeats * products


def layer_flops(layer: Layer | Operator, pass_: str, batch_size: int) -> float:
    """Floating-point operations of one pass of a layer, a multiply-add counted as 2.

    `pass_`: one of `PASSES`, counted as often as it runs. The first layer of a CNN has no ``backward_input``: its count
    is 0. `batch_size`: images per mini-batch, >= 1. SchemaError if a column that it needs is unknown, or there is no
    such pass; OutOfRangeError if the batch size is below 1.

    Each pass of a convolution or dense layer takes as many as forward (Goodfellow, Bengio, Courville: Deep Learning,
    2016, section 6.5); attention's backward pass five products for forward's two (Dao et al., arXiv:2205.14135: one of
    them is computed again). Other layers take a few per number.
    """
    _check(pass_, batch_size)
    return batch_size * _flops(layer, [pass_])


def _flops(layer: Layer | Operator, passes: Sequence[str]) -> float:
    """`layer_flops` of these passes together for one image."""
    per_number, product = _work(layer).flops, OPERATOR_TYPES[layer.type].product
    numbers = multiply_adds(layer) if per_number is None else _elements(layer).output * _window(layer)
    per_number = per_number or ((2.0, 5.0, 0.0) if product == "attention" else (2.0, 2.0, 2.0))
    return numbers * sum(_runs(layer, pass_) * per_number[PASSES.index(pass_)] for pass_ in passes)


def layer_bytes_read(layer: Layer, pass_: str, batch_size: int, element_bytes: float = 4) -> float:
    """Bytes that one pass of a layer reads from memory; arguments and errors are those of `layer_bytes`."""
    return element_bytes * _read(_elements(layer), _traffic(layer, pass_, batch_size), batch_size)


def layer_bytes(layer: Layer, pass_: str, batch_size: int, element_bytes: float = 4) -> float:
    """Bytes that one pass of a layer reads and writes.

    `pass_`: one of `PASSES`; a first layer's ``backward_input`` moves nothing. `batch_size`: images per mini-batch, >=
    1. `element_bytes`: bytes per number: 4 in fp32, 2 in half precision. SchemaError if a column that it needs is
    unknown, or there is no such pass; OutOfRangeError if the batch size is below 1.

    Negligible and left out: dropout masks, max pooling indices, separate reads for bias gradients, and the per-channel
    factors of a squeeze-and-excitation.
    """
    read = layer_bytes_read(layer, pass_, batch_size, element_bytes)
    return read + element_bytes * _written(_elements(layer), _traffic(layer, pass_, batch_size), batch_size)


def arithmetic_intensity(layer: Layer, pass_: str, batch_size: int) -> float:
    """FLOPs per byte read in one pass of a layer in fp32; 0 where nothing is read; arguments of `layer_bytes`.

    The founding study counts only the bytes read; over all traffic it is `layer_flops` / `layer_bytes`.
    """
    read = layer_bytes_read(layer, pass_, batch_size)
    return layer_flops(layer, pass_, batch_size) / read if read else 0.0


def cnn_flops(table: LayerTable, batch_size: int, passes: Iterable[str] = PASSES) -> float:
    """Floating-point operations of all layers of a CNN for one mini-batch, a multiply-add counted as 2.

    `batch_size`: images per mini-batch, >= 1. `passes`: of `PASSES`, by default all three: a training iteration.
    SchemaError if a pass is unknown, or a layer lacks its shape; OutOfRangeError if `batch_size` is below 1.
    """
    return sum(layer_flops(layer, pass_, batch_size) for pass_ in passes for layer in table)


def _check(pass_: str, batch_size: int) -> None:
    if pass_ not in PASSES:
        raise SchemaError(f"no pass is called {pass_!r}. Nearest: {nearest(pass_, PASSES)}.")
    if not batch_size >= 1:
        raise OutOfRangeError(f"batch_size {batch_size!r} is below 1.")


def _work(layer: Layer | Operator) -> Work:
    return OPERATOR_TYPES[layer.type].work_of(layer.parameters)


def _runs(layer: Layer | Operator, pass_: str) -> int:
    """How often a pass runs; unless it is known, once, and the gradient of the image not at all."""
    number = PASSES.index(pass_)
    if isinstance(layer, Operator):
        return int(layer.input_gradient or number != 1)
    if layer.forwards is not None:
        return (layer.forwards, layer.input_gradients or 0, layer.weight_gradients or 0)[number]
    is_first = layer.inputs == (IMAGE,) or layer.index == 0
    return int(not (is_first and number == 1))


def _traffic(layer: Layer | Operator, pass_: str, batch_size: int) -> Traffic:
    _check(pass_, batch_size)
    runs, traffic = _runs(layer, pass_), _work(layer)[1 + PASSES.index(pass_)]
    return traffic if runs == 1 else Traffic(*(runs * factor for factor in traffic))  # type: ignore[return-value,union-attr]


def _elements(layer: Layer | Operator) -> _Elements:
    inputs = layer.repeats * (_product(layer, "in_channels", "in_height", "in_width") + _second_input(layer))
    outputs = layer.repeats * _product(layer, "out_channels", "out_height", "out_width")
    return _Elements(inputs, outputs, layer.parameters)


def _read(elements: _Elements, traffic: Traffic, batch_size: int) -> float:
    maps = traffic.read_input * elements.input + traffic.read_output * elements.output
    return batch_size * maps + traffic.read_weights * elements.weights


def _written(elements: _Elements, traffic: Traffic, batch_size: int) -> float:
    maps = traffic.written_input * elements.input + traffic.written_output * elements.output
    return batch_size * maps + traffic.written_weights * elements.weights


def _second_input(layer: Layer | Operator) -> float:
    """Numbers per repeat in the second factor of a product of maps."""
    product = OPERATOR_TYPES[layer.type].product
    if product == "matmul":
        return _product(layer, "in_channels", "out_channels") / _product(layer, "groups")
    if product == "attention":
        keys = _product(layer, "kernel_height", "kernel_width")
        return keys * (_product(layer, "in_channels") + _product(layer, "out_channels"))
    return 0.0


def _window(layer: Layer | Operator) -> float:
    """Numbers under a pooling's window (input per output where the kernel is unknown); 1 for other layers."""
    if not OPERATOR_TYPES[layer.type].has_window:
        return 1.0
    if layer.kernel_height and layer.kernel_width:
        return float(layer.kernel_height * layer.kernel_width)
    return _elements(layer).input / _elements(layer).output


def _product(layer: Layer | Operator, *columns: str) -> float:
    value = 1.0
    for column in columns:
        size = getattr(layer, column)
        if size is None:
            index = 1 if isinstance(layer, Operator) else layer.index
            raise SchemaError(f"layer {index} {layer.name!r} ({layer.type}): {column} is unknown.")
        value *= size
    return value


SHAPE_COLUMNS = (
    "in_channels", "out_channels", "groups", "positions", "map_ratio", "kernel", "elongation", "stride", "dilation",
    "uneven_in", "uneven_out", "uneven_map", "input_gradient", "in_place", "wide_input", "bias", "n_tensors",
    "forward", "broadcast",
)  # fmt: skip
"""Columns of `shape_columns`."""

_CPU_RATES = Rates(1e8, 1e8, 1e8, 2e7, 4, False, 1)
"""0.1 TFLOP/s and 20 GB/s: an arbitrary scale, which cancels out."""
_MOMENTUM_TRAFFIC = 5.0  # reads weight, gradient and momentum, writes weight and momentum
_FP32_BYTES = 4.0
_LOSS_PASSES = 8.0


_LAYOUT_COPY = 0.31
"""Share of the sustained bandwidth that copies between NCHW and channels-last reach.

0.34 on an H100, 0.28 on an H200: what group norms of more than ten million numbers, which copy a float32 map, take
longer in channels-last than in NCHW."""

_COPY_PS, _SLICE_PS, _SLICED_NORM_PS, _BLOCKS = 6.0, 2.7, 10.0, 100.0
"""Picoseconds a number of a copy to the other memory format (4.6 to 7.1), of one of a slice (2.5 to 3.1), and of
PyTorch's kernel for NCHW over a slice in channels-last, which takes longer with fewer blocks, one for each channel: as
many instructions in 16 bits as in 32. Operators of eleven shapes in six modes (H200, 2026-11-29, PyTorch 2.11)."""

_BIAS_MS, _BIAS_PS, _BIAS_LAST_PS, _DEPTHWISE_BIAS_PS = 0.012, 5.2, 6.5, 3.0
"""Of a convolution's bias, by its output: PyTorch adds it, but for depthwise ones in NCHW, and sums its gradient (92
pairs of convolutions in four modes, as above)."""

_FORWARD_SHARE, _BACK_PS = 0.53, 5.7
"""Forward share of bilinear resizing in channels-last; and its gradient in NCHW by atomics, by its output and the
factor of its side (35 shapes on an H100, factors 2 to 8: 11 to 15, 17 to 25 and 44 to 49 ps)."""

_NEW, _LESS_NEW = 0.45, 0.28
"""Time of bilinear resizing in NCHW of a map that still lies in the L2 cache, as a CNN's do, over that of a measured
one, and what it grows by with each cache read and written (H100, H200: under autocast measured maps are new, too)."""


class Copies(NamedTuple):
    """What PyTorch copies around operators, of one image: bytes, and picoseconds on an H200's multiprocessors.

    Both (n_operators, 1). Of bilinear resizing in NCHW, by position: `new`, bytes moved; `back`, picoseconds of the
    gradient where only that does.
    """

    moved: Array
    ps: Array
    new: dict[int, float]
    back: dict[int, float]

    def ms(self, batch_sizes: Array, rates: Rates) -> Array:
        """Time of the copies, in ms; shape (n_operators, n_batches)."""
        ms: Array = (self.moved / rates.bytes_per_ms + self.ps * _ms_of_ps(rates)) * batch_sizes
        return ms


def _ms_of_ps(rates: Rates) -> float:
    """Milliseconds of a GPU for a picosecond of the 132 multiprocessors of an H200."""
    return 132e-9 / rates.multiprocessors


def copies_between(operators: Sequence[Operator], precision: str, memory_format: str) -> Copies:
    """Copies of maps between operators of a CNN, but for those that a group norm makes itself.

    A group norm works in NCHW, and in float32 under mixed precision. In channels-last, the convolution before it copies
    the gradient that it gives, the one behind it copies its output in the forward pass and again in the backward pass,
    and the group norm copies the float32 gradient of that. In NCHW and half precision, matrix products behind it read
    and write their input and its gradient once in each precision. The gradient of a concatenation's input is a slice: a
    convolution copies it for both of its gradients, others once (one copy is measured with the concatenation), a batch
    norm in bf16 reads it as it is, and a sum of gradients strides.
    """
    size, last = ELEMENT_BYTES[precision], memory_format == "channels_last"
    half = size < _FP32_BYTES
    copies = Copies(np.zeros((len(operators), 1)), np.zeros((len(operators), 1)), {}, {})
    for i, operator in enumerate(operators):
        is_bilinear, is_group_norm = operator.type == "upsample", operator.type == "group_norm"
        if not (is_bilinear or is_group_norm or operator.sliced or operator.relaid or operator.wide_in_nchw):
            continue
        entry = OPERATOR_TYPES[operator.type]
        read, written = (operator.repeats * _numbers(operator, side) for side in ("in", "out"))
        if is_group_norm and last:
            copies.moved[i] = (6 * size + 2 * _FP32_BYTES) * read / _LAYOUT_COPY
        elif operator.wide_in_nchw and half and not last and entry.product and not operator.wide_product:
            copies.moved[i] = 3 * (_FP32_BYTES + size) * read  # to float32 at half the bandwidth
        if operator.sliced and entry.operator_class == "batch_norm" and precision == "amp_bf16":
            copies.ps[i] = last * _SLICED_NORM_PS * max(1.0, _BLOCKS / (operator.out_channels or 1)) * written
        elif operator.sliced and (entry.is_convolution or operator.type == "add"):
            copies.ps[i] = _SLICE_PS * written
        if operator.relaid and is_bilinear and not last:
            copies.back[i] = _BACK_PS * math.sqrt(written / read) * written
        elif operator.relaid and not last:
            copies.ps[i] += operator.relaid * _COPY_PS * read
        lies_last = last or operator.narrow_last or (operator.wide_input and not operator.wide_in_nchw)
        if is_bilinear and not half and not lies_last:
            copies.new[i] = _FP32_BYTES * (read + written)
    return copies


def in_cnn_ms(own_ms: Array, copies: Copies, batch_sizes: Array, gpu: str, precision: str) -> Array:
    """Times of operators within a CNN in PyTorch on a GPU, from those by themselves, both (n_operators, n_batches)."""
    rates, cache = device_rates(gpu, precision), device_cache_bytes(gpu)
    ms: Array = own_ms + copies.ms(batch_sizes, rates)
    for i, moved in copies.new.items():
        ms[i] *= np.minimum(1.0, _NEW + _LESS_NEW * moved * batch_sizes / cache) if cache else 1.0
    for i, ps in copies.back.items():
        ms[i] = _FORWARD_SHARE * own_ms[i] + ps * _ms_of_ps(rates) * batch_sizes
    return ms


def bias_ms(operators: Sequence[Operator], batch_sizes: Array, rates: Rates, memory_format: str) -> Array:
    """Time of convolutions' biases, forward and backward, in ms; shape (n_operators, n_batches)."""
    last = memory_format == "channels_last"
    of_each = (
        _BIAS_LAST_PS if last else _DEPTHWISE_BIAS_PS if is_depthwise(op) else _BIAS_PS for op in operators
    )
    ps = np.array([[ps * _numbers(op, "out")] for ps, op in zip(of_each, operators, strict=True)])
    return np.asarray(_BIAS_MS + ps * _ms_of_ps(rates) * batch_sizes)


def _numbers(operator: Operator, side: str) -> int:
    """Numbers of an operator's input or output, ``in`` or ``out``, of one image."""
    sizes = (getattr(operator, f"{side}_{name}") or 1 for name in ("channels", "height", "width"))
    return math.prod(sizes)


def operator_class(operator: Operator) -> str:
    """Name of an operator's class; a prediction sums times of one class with one weight."""
    if is_depthwise(operator):
        return "depthwise"
    return OPERATOR_CLASSES[operator.type]


def device_rates(gpu: str, precision: str) -> Rates:
    """Peak rates of a GPU of the catalogue; for a CPU (``cpu:<model>``), those of a typical one."""
    return _CPU_RATES if is_cpu(gpu) else rates_of(find_gpu(gpu), precision)


def device_sm_count(gpu: str) -> int | None:
    """Number of multiprocessors of a GPU of the catalogue; None for a CPU."""
    return None if is_cpu(gpu) else find_gpu(gpu).sm_count


@lru_cache(maxsize=256)
def device_cache_bytes(gpu: str) -> float | None:
    """L2 cache of the chip, in bytes: the largest of its cards; None for a CPU, or if unknown.

    Cards of one chip share the weights of operator sizes, so that they share the unit of these sizes, too.
    """
    if is_cpu(gpu):
        return None
    chip = find_gpu(gpu).chip
    sizes = [card.l2_mib for card in all_gpus() if card.chip == chip and card.l2_mib is not None]
    return max(sizes) * 2**20 if sizes else None


def moved_bytes(operators: Sequence[Operator], batch_sizes: Array, element_bytes: int) -> Array:
    """Least bytes that operators read and write, forward and backward; shape (n_operators, n_batches)."""
    return _moved(work_of_each(operators), batch_sizes, element_bytes)


@kept
def work_of_each(operators: OperatorColumns) -> Array:
    """`operator_work`, one row an operator; each card of a chip asks for it."""
    work = np.array([operator_work(operator) for operator in operators], dtype=float).reshape(-1, 6)
    work.flags.writeable = False
    return work


def _moved(work: Array, batch_sizes: Array, element_bytes: int) -> Array:
    elements, fixed, fixed_bytes, wide = (column[:, None] for column in work.T[1:5])
    batches = np.atleast_2d(np.asarray(batch_sizes, dtype=float))
    widening = np.where(element_bytes < _FP32_BYTES, wide, 0.0) * (_FP32_BYTES - element_bytes)
    moved: Array = (elements * batches + fixed) * element_bytes + fixed_bytes + widening * batches
    return moved


def loops_of(layer: Layer | Operator) -> Loops:
    """Loops of a layer's kernels for one image; of a type whose kernels have none, no time."""
    loops = OPERATOR_TYPES[layer.type].loops
    if loops is None:
        return Loops()
    inputs, outputs = (
        float((getattr(layer, f"{of}_height") or 1) * (getattr(layer, f"{of}_width") or 1))
        for of in ("in", "out")
    )
    us_nchw, us_last, threads, added = loops(float(layer.out_channels or 1), inputs, outputs)
    return Loops(us_nchw * layer.repeats, us_last * layer.repeats, threads, added * layer.repeats)


def looping_ms(us: Any, threads: Any, added: Any, batch_size: Any, rates: Rates, xp: ModuleType = np) -> Any:
    """Time of loops, and of atomic additions, in ms; arguments as of `Loops`, which broadcast.

    A multiprocessor runs a block of 1,024 threads; of more, they take turns.
    """
    turns = xp.maximum(threads / _BLOCK / rates.multiprocessors, 1.0)
    return batch_size * (us * turns / 1e3 + _FP32_BYTES * added / rates.bytes_per_ms)


_BLOCK = 1024


def base_ms(
    operators: Sequence[Operator], batch_sizes: Array, rates: Rates, memory_format: str | None
) -> Array:
    """Roofline time of operators, and of what kernels loop over in a memory format; (n_operators, n_batches).

    `memory_format`: of PyTorch on a GPU; None elsewhere, where no kernel is known to loop.
    """
    columns = OperatorColumns.of(operators)
    least = roofline_ms(columns, batch_sizes, rates)
    for i in np.flatnonzero(columns.of_types(lambda entry: bool(memory_format and entry.loops))).tolist():
        us_nchw, us_last, threads, added = loops_of(columns[i])
        of_layer_norm = columns[i].wide_input and columns[i].input_gradient
        us = us_last if memory_format == "channels_last" or of_layer_norm else us_nchw
        batches = np.broadcast_to(np.asarray(batch_sizes, dtype=float), least.shape)[i]
        least[i] += looping_ms(us, threads, added, batches, rates)
    return least


def roofline_ms(operators: Sequence[Operator], batch_sizes: Array, rates: Rates) -> Array:
    """Roofline time of all passes that operators run, with their launches, in ms; shape (n_operators, n_batches).

    `batch_sizes`: (n_batches,), or those of each operator. SchemaError if an operator lacks a shape.

    An instance norm reads each channel of each image by itself, four on a multiprocessor at once: of fewer channels
    some multiprocessors wait, and of more each four take as long as a launch, however small their maps.
    """
    columns = OperatorColumns.of(operators)
    work = work_of_each(columns)
    flops, launches, in_fp32 = work[:, :1], work[:, 5:], columns.flags("fp32_product")[:, None]
    flop_per_ms = np.where(in_fp32, rates.fp32_flop_per_ms, rates.flop_per_ms)
    moved = _moved(work, batch_sizes, rates.element_bytes)
    compute, memory = flops * batch_sizes / flop_per_ms, moved / rates.bytes_per_ms
    is_by_channel = columns.of_types(lambda entry: entry is OPERATOR_TYPES["instance_norm"])
    for i in np.flatnonzero(is_by_channel).tolist():
        batches = np.broadcast_to(batch_sizes, moved.shape)[i]
        channels = batches * columns[i].repeats * (columns[i].in_channels or 1)
        rounds = channels / (4.0 * rates.multiprocessors)
        memory[i] *= np.maximum(1.0, 1.0 / rounds)
        one_a_pass = np.minimum(launches[i], 2.0) * np.maximum(1.0, rounds)
        memory[i] = np.maximum(memory[i], one_a_pass * LAUNCH_MS)
    least: Array = np.maximum(compute, memory) + launches * LAUNCH_MS
    return least


def share_of_types(table: LayerTable, batch_sizes: Array, rates: Rates, types: Collection[str]) -> Array:
    """Share of a CNN's roofline time in layers of these types; shape (n_batches,).

    `batch_sizes`: shape (n_batches,). SchemaError if a layer lacks the shape that its work follows from.
    """
    operators, counts = counted_operators(table)
    least = counts[:, None] * roofline_ms(operators, batch_sizes, rates)
    is_of_types = np.array([operator.type in types for operator in operators], dtype=bool)
    return np.asarray(least[is_of_types].sum(axis=0) / least.sum(axis=0))


@kept
def shape_columns(columns: OperatorColumns) -> Array:
    """Features of an operator's shape; shape (n_operators, len(SHAPE_COLUMNS)).

    Sizes are base-2 logarithms: a difference of 1 is a factor of 2; one missing or 0 counts as 1. Flags are 0 or 1.
    SchemaError if an operator other than the optimizer has no input channels.
    """
    numbers, is_optimizer = columns.numbers, columns.text("type") == "optimizer"
    lacking = np.flatnonzero(~is_optimizer & (numbers("in_channels", 0) == 0))
    if lacking.size:
        name = columns[int(lacking[0])].name
        raise SchemaError(f"{name} has no in_channels, so its time cannot be computed.")
    ins, groups, parameters = numbers("in_channels"), numbers("groups"), numbers("parameters", 0)
    outs = np.where(numbers("out_channels", 0) > 0, numbers("out_channels"), ins)
    side_out = numbers("out_height") * numbers("out_width")
    depth, width, over_depth = numbers("kernel_depth"), numbers("kernel_width"), numbers("kernel_height")
    height = np.maximum(over_depth // depth, 1)
    longest, shortest = (pick(pick(depth, height), width) for pick in (np.maximum, np.minimum))
    is_volume = numbers("kernel_depth", 0) > 0
    filters = numbers("in_channels", 0) * numbers("out_channels", 0) * over_depth * width // groups
    sizes = {
        "in_channels": np.where(is_optimizer, numbers("parameters"), ins / groups),
        "out_channels": outs / groups,
        "groups": groups,
        "positions": side_out,
        "map_ratio": numbers("in_height") * numbers("in_width") / side_out,
        "kernel": depth * height * width,
        "elongation": np.where(is_volume, longest / shortest, height / width),
        "stride": numbers("stride_height") * numbers("stride_width"),
        "dilation": numbers("dilation"),
        "n_tensors": numbers("n_tensors"),
    }
    logs = dict(zip(sizes, _log2(np.array([*sizes.values()])), strict=True))
    logs["elongation"] = np.abs(logs["elongation"])
    values = logs | {
        "uneven_in": (ins // groups) % 8 > 0,
        "uneven_out": (outs // groups) % 8 > 0,
        "uneven_map": numbers("out_width") % 4 > 0,
        **{name: columns.flags(name) for name in ("input_gradient", "in_place", "wide_input")},
        "bias": columns.of_types(lambda entry: entry.weights == "filters") & (parameters > filters),
        "forward": columns.text("passes") == "forward",
        "broadcast": columns.of_types(lambda entry: entry.work_with_weights is not None) & (parameters > 0),
    }
    shape = np.column_stack([values[name] for name in SHAPE_COLUMNS]).astype(float)
    of_optimizer = [name in ("in_channels", "n_tensors") for name in SHAPE_COLUMNS]
    shape[is_optimizer[:, None] & ~np.array(of_optimizer)] = 0.0
    shape.flags.writeable = False  # all who ask share it
    return shape


@lru_cache(maxsize=65536)
def operator_work(operator: Operator) -> tuple[float, float, float, float, float, float]:
    """FLOPs and elements per image, elements and bytes per iteration, wide elements per image, launches."""
    if operator.type == "optimizer":
        return 0.0, 0.0, 0.0, _MOMENTUM_TRAFFIC * _FP32_BYTES * operator.parameters, 0.0, 1.0
    if operator.type == "loss":
        return 0.0, _LOSS_PASSES * (operator.in_channels or 1), 0.0, 0.0, 0.0, 2.0
    passes = PASSES if operator.passes != "forward" else PASSES[:1]
    elements, traffic = _elements(operator), [_traffic(operator, pass_, 1) for pass_ in passes]
    both = [sum(factors) for factors in zip(*traffic, strict=True)]  # reads, then writes
    moved = (both[0] + both[3]) * elements.input + (both[1] + both[4]) * elements.output
    fixed, flops = (both[2] + both[5]) * elements.weights, _flops(operator, passes)
    inputs = operator.repeats * _numbers(operator, "in")
    three = operator.parameters or OPERATOR_TYPES[operator.type].product == "matmul"
    launches = 1.0 if operator.passes == "forward" else 3.0 if three else 2.0
    if OPERATOR_TYPES[operator.type].is_recurrent:
        positions = (operator.out_height or 1) * (operator.out_width or 1)
        launches += launches_per_position(operator) * positions
        if not is_on_chip(operator):  # each position reads the state's weights, forward and backward
            states = (operator.out_channels or 0) / (operator.groups or 1)
            gates = OPERATOR_TYPES[operator.type].gates * (operator.out_channels or 0)
            return flops, moved, fixed + 2 * positions * gates * states, 0.0, 0.0, launches
    # A product in fp32 reads and writes fp32 alone, as it does in TF32.
    wide = moved if operator.fp32_product else float(inputs) if operator.wide_input else 0.0
    return flops, moved, fixed, 0.0, wide, launches


def _log2(values: NDArray[Any]) -> Array:
    """Logarithms of each value, as `math.log2` has them on every processor: trees compare their last digits."""
    distinct, place = np.unique(values, return_inverse=True)
    return np.array(list(map(math.log2, distinct.tolist())), dtype=float)[place].reshape(values.shape)
