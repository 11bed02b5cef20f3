"""What each operator is in the words of a layer table: one rule per operator, in one dict.

Called by `predictor.sources.recorder` for every operator that a CNN runs; calls nothing of ours but the error
tree. Operators and their arguments go by PyTorch's names, whatever the source; PyTorch is not imported here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from predictor.errors import SchemaError

__all__ = ["CREATIONS", "RANDOM", "RULES", "Call", "Columns"]

Columns = dict[str, Any]
"""Columns of a layer table row; empty where an operator costs nothing (a dropout with p = 0)."""

RANDOM = {
    *("bernoulli", "exponential", "normal", "poisson", "rand", "rand_like"),
    *("randint", "randint_like", "randn", "randn_like", "random", "uniform"),
}
"""Operators whose result is noise, by which dropout and stochastic depth are known."""

CREATIONS = {
    *("empty_like", "full_like", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"),
    *("ones_like", "rand_like", "randint_like", "randn_like", "zeros_like"),
}
"""Operators that take a tensor for its shape and type alone."""


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of an operator: its arguments by name, the sizes that matter, what it reads."""

    operator: str
    arguments: dict[str, Any]
    in_shape: tuple[int, int, int]
    out_shape: tuple[int, int, int]
    channel_dim: int  # of the first feature map that it reads: 1, or -1 for channels last
    noise_shape: tuple[int, ...] | None = None  # of the random factor, if one is read


def _convolution(call: Call) -> Columns:
    given = call.arguments
    kernel = tuple(given["weight"].shape[2:])
    if len(kernel) != 2:
        raise SchemaError(
            f"a convolution over {len(kernel)} dimensions: epochcast knows those over images (2)."
        )
    dilation = _pair(given["dilation"])
    if dilation[0] != dilation[1]:
        raise SchemaError(
            f"a convolution dilated by {dilation}: epochcast knows the same dilation both ways."
        )
    return {
        "type": "conv_transpose2d" if given["transposed"] else "conv2d",
        "dilation": dilation[0],
        "groups": given["groups"],
        **_window(kernel, given["stride"], given["padding"]),
    }


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return (value[0], value[-1])


def _window(kernel: Any, stride: Any, padding: Any) -> Columns:
    columns: Columns = {}
    for name, value in (("kernel", kernel), ("stride", stride), ("padding", padding)):
        columns[f"{name}_height"], columns[f"{name}_width"] = _pair(value)
    return columns


def _pool(type_: str) -> Callable[[Call], Columns]:
    def rule(call: Call) -> Columns:
        kernel = call.arguments["kernel_size"]
        stride = call.arguments["stride"] or kernel
        columns = {"type": type_, **_window(kernel, stride, call.arguments["padding"])}
        dilation = _pair(call.arguments.get("dilation", 1))[0]
        return columns if dilation == 1 else columns | {"dilation": dilation}

    return rule


def _adaptive_pool(type_: str) -> Callable[[Call], Columns]:
    def rule(call: Call) -> Columns:
        sizes = list(zip(call.in_shape[1:], call.out_shape[1:], strict=True))
        kernel = [ceil(size / out) for size, out in sizes]
        stride = [size // out for size, out in sizes]
        return {"type": type_, **_window(kernel, stride, 0)}

    return rule


def _mean(call: Call) -> Columns:
    dims = call.arguments.get("dim")
    shape = call.arguments["self"].shape
    spatial = {2, 3} if call.channel_dim == 1 else {1, 2}
    if len(shape) != 4 or dims is None or {d % 4 for d in dims} != spatial:
        return {"type": "other"}
    return _adaptive_pool("avg_pool")(call)


def _fixed(type_: str, kind: str | None = None) -> Callable[[Call], Columns]:
    def rule(_call: Call) -> Columns:
        return {"type": type_, "kind": kind}

    return rule


def _bounded(call: Call) -> Columns:
    given = call.arguments
    bounds = (given.get("min_val", given.get("min")), given.get("max_val", given.get("max")))
    kind = next((kind for known, kind in (((0, None), "relu"), ((0, 6), "relu6")) if bounds == known), None)
    return {"type": "activation", "kind": kind} if kind else {"type": "other"}


def _dropout(call: Call) -> Columns:
    given = call.arguments
    off = not given.get("p", 1) or given.get("train") is False
    return {} if off else {"type": "dropout"}


def _times(call: Call) -> Columns:
    if call.noise_shape is None:
        return {"type": "multiply"}
    per_sample = prod(call.noise_shape[1:]) == 1
    return {"type": "stochastic_depth" if per_sample else "dropout"}


_ACTIVATIONS = {
    "relu": "relu",
    "relu6": "relu6",
    "leaky_relu": "leaky_relu",
    "silu": "silu",
    "gelu": "gelu",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "softmax": "softmax",
    "_softmax": "softmax",
    "log_softmax": "softmax",
    "_log_softmax": "softmax",
}

RULES: dict[str, Callable[[Call], Columns]] = {
    "convolution": _convolution,
    "linear": _fixed("linear"),
    "batch_norm": _fixed("batch_norm"),
    "native_batch_norm": _fixed("batch_norm"),
    "_native_batch_norm_legit": _fixed("batch_norm"),
    "cudnn_batch_norm": _fixed("batch_norm"),
    "layer_norm": _fixed("layer_norm"),
    "native_layer_norm": _fixed("layer_norm"),
    **{operator: _fixed("activation", kind) for operator, kind in _ACTIVATIONS.items()},
    "hardtanh": _bounded,
    "clamp": _bounded,
    "clamp_min": _bounded,
    "max_pool2d": _pool("max_pool"),
    "max_pool2d_with_indices": _pool("max_pool"),
    "avg_pool2d": _pool("avg_pool"),
    "adaptive_avg_pool2d": _adaptive_pool("avg_pool"),
    "_adaptive_avg_pool2d": _adaptive_pool("avg_pool"),
    "adaptive_max_pool2d": _adaptive_pool("max_pool"),
    "mean": _mean,
    "add": _fixed("add"),
    "sub": _fixed("add"),
    "mul": _times,
    "div": _fixed("multiply"),
    "cat": _fixed("concat"),
    "dropout": _dropout,
    "native_dropout": _dropout,
    "feature_dropout": _dropout,
    "alpha_dropout": _dropout,
    "feature_alpha_dropout": _dropout,
    "constant_pad_nd": _fixed("pad"),
    "reflection_pad2d": _fixed("pad"),
    "replication_pad2d": _fixed("pad"),
    "channel_shuffle": _fixed("permute"),
    # Named whole, lest they fall apart into the operators that they are made of.
    "einsum": _fixed("other"),
    "group_norm": _fixed("other"),
    "instance_norm": _fixed("other"),
    "scaled_dot_product_attention": _fixed("other"),
    "upsample_bicubic2d": _fixed("other"),
    "upsample_bilinear2d": _fixed("other"),
    "upsample_nearest2d": _fixed("other"),
}
