"""FLOPs, bytes and parameters of CNN layers: the arithmetic that every predictor starts from.

Called by features, predictors and the layer table's printer; calls `work_table` for what a type of layer
does. Everything is computed from the layer table, nothing is stored. A multiply-add counts as 2 FLOPs; bytes
count every tensor once for each time that the textbook algorithm reads or writes it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from predictor.errors import OutOfRangeError, SchemaError, nearest
from predictor.layers import IMAGE, Layer, LayerTable
from predictor.work_table import LEARNED_SCALE, WORK, Traffic, Work

__all__ = [
    "PASSES",
    "activation_bytes",
    "arithmetic_intensity",
    "cnn_activation_bytes",
    "cnn_arithmetic_intensity",
    "cnn_bytes",
    "cnn_flops",
    "cnn_multiply_adds",
    "layer_bytes",
    "layer_bytes_read",
    "layer_bytes_written",
    "layer_flops",
    "multiply_adds",
]

PASSES = ("forward", "backward_input", "backward_weight")
"""The three passes of training: outputs, gradients of the inputs, gradients of the weights."""


class _Elements(NamedTuple):
    """Numbers per image in a layer's input and output, and its trainable numbers."""

    input: float
    output: float
    weights: float


def multiply_adds(layer: Layer) -> float:
    """Multiply-adds of a convolution or dense layer, forward, per image; 0 for every other type.

    Raises
    ------
    SchemaError
        If a column that it needs is unknown.

    Notes
    -----
    Convolution: c_out h_out w_out k_h k_w c_in / groups (direct; FFT and Winograd do fewer); transposed: with
    h_in w_in instead of h_out w_out. Dense: c_in c_out at each position.
    """
    if layer.type == "linear":
        return _product(layer, "in_channels", "out_channels", "out_height", "out_width")
    if layer.type not in ("conv2d", "conv_transpose2d"):
        return 0.0
    side = "out" if layer.type == "conv2d" else "in"
    positions = _product(layer, f"{side}_height", f"{side}_width")
    filters = _product(layer, "in_channels", "out_channels", "kernel_height", "kernel_width")
    return positions * filters / _product(layer, "groups")


def layer_flops(layer: Layer, pass_: str, batch_size: int) -> float:
    """Floating-point operations of one pass of a layer, a multiply-add counted as 2.

    Parameters
    ----------
    layer : Layer
    pass_ : str
        One of `PASSES`. The first layer of a CNN has no ``backward_input``: its count is 0.
    batch_size : int
        Images per mini-batch, >= 1.

    Raises
    ------
    SchemaError
        If a column that it needs is unknown, or there is no such pass.
    OutOfRangeError
        If the batch size is below 1.

    Notes
    -----
    Each pass of a convolution or dense layer takes as many as forward (Goodfellow, Bengio, Courville: Deep
    Learning, 2016, section 6.5). Other layers take a few per number: small, but not nothing.
    """
    _check(pass_, batch_size)
    if not _has_pass(layer, pass_):
        return 0.0
    per_number = _work(layer).flops
    if per_number is None:
        return 2.0 * batch_size * multiply_adds(layer)
    return batch_size * per_number[PASSES.index(pass_)] * _elements(layer).output * _window(layer)


def layer_bytes_read(layer: Layer, pass_: str, batch_size: int, element_bytes: float = 4) -> float:
    """Bytes that one pass of a layer reads from memory; arguments and errors as of `layer_bytes`."""
    elements, traffic = _elements(layer), _traffic(layer, pass_, batch_size)
    maps = traffic.read_input * elements.input + traffic.read_output * elements.output
    return element_bytes * (batch_size * maps + traffic.read_weights * elements.weights)


def layer_bytes_written(layer: Layer, pass_: str, batch_size: int, element_bytes: float = 4) -> float:
    """Bytes that one pass of a layer writes to memory; arguments and errors as of `layer_bytes`."""
    elements, traffic = _elements(layer), _traffic(layer, pass_, batch_size)
    maps = traffic.written_input * elements.input + traffic.written_output * elements.output
    return element_bytes * (batch_size * maps + traffic.written_weights * elements.weights)


def layer_bytes(layer: Layer, pass_: str, batch_size: int, element_bytes: float = 4) -> float:
    """Bytes that one pass of a layer reads and writes.

    Parameters
    ----------
    layer : Layer
    pass_ : str
        One of `PASSES`; a first layer's ``backward_input`` moves nothing.
    batch_size : int
        Images per mini-batch, >= 1.
    element_bytes : float
        Bytes per number: 4 in fp32, 2 in half precision.

    Raises
    ------
    SchemaError
        If a column that it needs is unknown, or there is no such pass.
    OutOfRangeError
        If the batch size is below 1.

    Notes
    -----
    Left out as small: the masks of dropout, the indices of max pooling, biases' gradients read apart, and the
    per-channel factors of a squeeze-and-excitation.
    """
    read = layer_bytes_read(layer, pass_, batch_size, element_bytes)
    return read + layer_bytes_written(layer, pass_, batch_size, element_bytes)


def activation_bytes(layer: Layer, batch_size: int, element_bytes: float = 4) -> float:
    """Bytes of a layer's output, which backward may need; 0 for a view.

    `predictor.memory` knows which of them are really kept.
    """
    _check("forward", batch_size)
    return 0.0 if layer.type == "flatten" else element_bytes * batch_size * _elements(layer).output


def arithmetic_intensity(
    layer: Layer, pass_: str, batch_size: int, element_bytes: float = 4, cached: bool = True
) -> float:
    """FLOPs per byte read in one pass of a layer; 0 where nothing is read.

    Parameters
    ----------
    layer, pass_, batch_size, element_bytes
        As of `layer_bytes`.
    cached : bool
        True: every tensor is read once. False: every multiply-add reads both its factors from memory (layers
        without multiply-adds read the same either way).

    Notes
    -----
    The founding study counts the bytes read alone; over all traffic it is `layer_flops` / `layer_bytes`.
    """
    flops = layer_flops(layer, pass_, batch_size)
    read = layer_bytes_read(layer, pass_, batch_size, element_bytes)
    if not cached and _work(layer).flops is None:
        read = element_bytes * flops  # two factors per multiply-add, which counts as two
    return flops / read if read else 0.0


def cnn_multiply_adds(table: LayerTable) -> float:
    """Multiply-adds of a CNN's convolutions and dense layers, forward, per image ("GMACs" x 10^9)."""
    return sum(map(multiply_adds, table))


def cnn_flops(table: LayerTable, batch_size: int, passes: Iterable[str] = PASSES) -> float:
    """Floating-point operations of all layers over `passes` (training by default) for one mini-batch."""
    return sum(layer_flops(layer, pass_, batch_size) for pass_ in passes for layer in table)


def cnn_bytes(
    table: LayerTable, batch_size: int, passes: Iterable[str] = PASSES, element_bytes: float = 4
) -> float:
    """Bytes that all layers read and write over `passes` (training by default) for one mini-batch."""
    return sum(layer_bytes(layer, pass_, batch_size, element_bytes) for pass_ in passes for layer in table)


def cnn_activation_bytes(table: LayerTable, batch_size: int, element_bytes: float = 4) -> float:
    """Bytes of all layers' outputs for one mini-batch: an upper bound of what backward keeps."""
    return sum(activation_bytes(layer, batch_size, element_bytes) for layer in table)


def cnn_arithmetic_intensity(
    table: LayerTable, batch_size: int, passes: Iterable[str] = PASSES, element_bytes: float = 4
) -> float:
    """FLOPs per byte read over all layers and `passes` (training by default)."""
    passes = tuple(passes)
    read = sum(layer_bytes_read(layer, p, batch_size, element_bytes) for p in passes for layer in table)
    return cnn_flops(table, batch_size, passes) / read if read else 0.0


def _check(pass_: str, batch_size: int) -> None:
    if pass_ not in PASSES:
        raise SchemaError(f"no pass is called {pass_!r}. Nearest: {nearest(pass_, PASSES)}.")
    if not batch_size >= 1:
        raise OutOfRangeError(f"batch_size {batch_size!r} is below 1.")


def _work(layer: Layer) -> Work:
    return LEARNED_SCALE if layer.type == "multiply" and layer.parameters else WORK[layer.type]


def _has_pass(layer: Layer, pass_: str) -> bool:
    """Whether a pass runs: nothing asks for the gradient of the image."""
    is_first = layer.inputs == (IMAGE,) or layer.index == 0
    return not (is_first and PASSES.index(pass_) == 1)


def _traffic(layer: Layer, pass_: str, batch_size: int) -> Traffic:
    _check(pass_, batch_size)
    return _work(layer)[1 + PASSES.index(pass_)] if _has_pass(layer, pass_) else Traffic()  # type: ignore[return-value]


def _elements(layer: Layer) -> _Elements:
    inputs = _product(layer, "in_channels", "in_height", "in_width")
    outputs = _product(layer, "out_channels", "out_height", "out_width")
    return _Elements(inputs, outputs, layer.parameters)


def _window(layer: Layer) -> float:
    """Numbers under a pooling's window (input per output where the kernel is unknown); 1 for other layers."""
    if layer.type not in ("max_pool", "avg_pool"):
        return 1.0
    if layer.kernel_height and layer.kernel_width:
        return float(layer.kernel_height * layer.kernel_width)
    return _elements(layer).input / _elements(layer).output


def _product(layer: Layer, *columns: str) -> float:
    value = 1.0
    for column in columns:
        size = getattr(layer, column)
        if size is None:
            raise SchemaError(f"layer {layer.index} {layer.name!r} ({layer.type}): {column} is unknown.")
        value *= size
    return value
