"""Do the columns of one layer agree with each other? Asked wherever a layer table comes from outside.

Called by `predictor.sources.csv_table` and by the tests of every source; calls nothing of ours but `layers`.
"""

from collections.abc import Callable
from math import ceil

from predictor.layers import Layer

__all__ = ["layer_complaint"]

_DIMENSIONS = ("height", "width")
_SAME_SHAPE = (
    "batch_norm",
    "layer_norm",
    "activation",
    "add",
    "multiply",
    "concat",
    "dropout",
    "stochastic_depth",
    "permute",
)


def layer_complaint(layer: Layer) -> str | None:
    """Say what is inconsistent about a layer, in words for an error message; None if nothing is.

    Unknown (None) columns are not checked. An asymmetric padding is written rounded up, so the output size
    may be that of one padded pixel less; a pooling may round its output size up, or be adaptive.

    Notes
    -----
    Convolution: out = floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1; transposed:
    out = (in - 1) stride - 2 padding + dilation (kernel - 1) + 1 + (0 .. max(stride, dilation) - 1).
    """
    for check in (_CHECKS.get(layer.type, _nothing), _channel_complaint, _positive_complaint):
        complaint = check(layer)
        if complaint:
            return complaint
    return None


def _nothing(_layer: Layer) -> str | None:
    return None


def _positive_complaint(layer: Layer) -> str | None:
    for column in ("in_channels", "in_height", "in_width", "out_channels", "out_height", "out_width"):
        if getattr(layer, column) == 0:
            return f"{column} is 0"
    if layer.type in ("conv2d", "conv_transpose2d"):
        columns = ("kernel_height", "kernel_width", "stride_height", "stride_width", "dilation", "groups")
        return next((f"{column} is 0" for column in columns if getattr(layer, column) == 0), None)
    return None


def _channel_complaint(layer: Layer) -> str | None:
    if layer.groups is None:
        return None
    for column in ("in_channels", "out_channels"):
        channels = getattr(layer, column)
        if layer.groups and channels is not None and channels % layer.groups:
            return f"{column} {channels} is not a multiple of groups {layer.groups}"
    return None


def _window(layer: Layer, dimension: str) -> tuple[int, ...] | None:
    """(in, out, kernel, stride, padding) along one dimension, or None if one of them is unknown."""
    names = ("in", "out", "kernel", "stride", "padding")
    values = [getattr(layer, f"{name}_{dimension}") for name in names]
    return None if None in values else tuple(values)


def _windows_complaint(layer: Layer, allowed: Callable[[Layer, tuple[int, ...]], set[int]]) -> str | None:
    for dimension in _DIMENSIONS:
        window = _window(layer, dimension)
        if window is None:
            continue
        right = allowed(layer, window)
        if window[1] not in right:
            size, out, kernel, stride, padding = window
            return (
                f"out_{dimension} {out} does not follow from in_{dimension} {size}, kernel {kernel}, "
                f"stride {stride}, padding {padding}, which give {' or '.join(map(str, sorted(right)))}"
            )
    return None


def _conv_sizes(layer: Layer, window: tuple[int, ...]) -> set[int]:
    size, _, kernel, stride, padding = window
    reach = (layer.dilation or 1) * (kernel - 1) + 1
    totals = {2 * padding, max(2 * padding - 1, 0)}
    return {(size + total - reach) // stride + 1 for total in totals} if stride else set()


def _transposed_sizes(layer: Layer, window: tuple[int, ...]) -> set[int]:
    size, _, kernel, stride, padding = window
    dilation = layer.dilation or 1
    least = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1
    return {least + extra for extra in range(max(stride, dilation))}


def _pool_sizes(layer: Layer, window: tuple[int, ...]) -> set[int]:
    size, out, kernel, stride, padding = window
    if out and kernel == ceil(size / out) and stride == size // out and padding == 0:
        return {out}  # adaptive
    if not stride or not kernel:
        return {out} if not kernel else set()  # kernel 0: unknown in some published tables
    totals = {2 * padding, max(2 * padding - 1, 0)}
    reach = (layer.dilation or 1) * (kernel - 1) + 1
    spare = [size + total - reach for total in totals]
    return {n // stride + 1 for n in spare} | {ceil(n / stride) + 1 for n in spare}


def _conv_complaint(layer: Layer) -> str | None:
    return _windows_complaint(layer, _conv_sizes)


def _transposed_complaint(layer: Layer) -> str | None:
    return _windows_complaint(layer, _transposed_sizes)


def _pool_complaint(layer: Layer) -> str | None:
    if None not in (layer.in_channels, layer.out_channels) and layer.in_channels != layer.out_channels:
        return f"out_channels {layer.out_channels} differs from in_channels {layer.in_channels}"
    return _windows_complaint(layer, _pool_sizes)


def _same_shape_complaint(layer: Layer) -> str | None:
    for dimension in ("channels", *_DIMENSIONS):
        size, out = getattr(layer, f"in_{dimension}"), getattr(layer, f"out_{dimension}")
        if None not in (size, out) and size != out:
            return f"out_{dimension} {out} differs from in_{dimension} {size}, which {layer.type} cannot do"
    return None


def _flatten_complaint(layer: Layer) -> str | None:
    sizes = (layer.in_channels, layer.in_height, layer.in_width, layer.out_channels)
    if None in sizes or (layer.out_height, layer.out_width) != (1, 1):
        return None
    channels, height, width, out = sizes
    if channels * height * width != out:  # type: ignore[operator]  # None was excluded
        return f"out_channels {out} is not in_channels x in_height x in_width = {channels}x{height}x{width}"
    return None


_CHECKS: dict[str, Callable[[Layer], str | None]] = {
    "conv2d": _conv_complaint,
    "conv_transpose2d": _transposed_complaint,
    "max_pool": _pool_complaint,
    "avg_pool": _pool_complaint,
    "flatten": _flatten_complaint,
    **dict.fromkeys(_SAME_SHAPE, _same_shape_complaint),
}
