"""From the stream of calls that a framework makes to the rows of a layer table.

PyTorch, ONNX and Chainer are translated to one vocabulary of calls; `RULES` says what row each of them becomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

from predictor.cnns.layer_table import IMAGE, Layer
from predictor.errors import SchemaError

__all__ = ["CREATIONS", "RANDOM", "RULES", "Call", "Columns", "Recorder"]

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


_VIEWS = frozenset(("_unsafe_view", "as_strided", "squeeze", "t", "transpose", "unsqueeze"))  # not said to be


@dataclass(frozen=True, slots=True)
class _Map:
    """A feature map: the row that wrote it, where its channels lie, whether a row permuted it."""

    row: int
    channel_dim: int = 1
    permuted: bool = False


@dataclass(slots=True)
class Recorder:
    """Collects rows; `path` is the module that runs at the moment, as the source says."""

    batch_size: int
    path: list[tuple[str, bool]] = field(default_factory=list)  # (module path, is it a leaf?)
    rows: list[Layer] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)  # operators of type `other`
    _maps: dict[int, _Map] = field(default_factory=dict)
    _owners: dict[int, dict[int, int]] = field(default_factory=dict)  # tensor -> {parameter: elements}
    _noise: set[int] = field(default_factory=set)
    _counted: set[int] = field(default_factory=set)
    _names: Counter[str] = field(default_factory=Counter)
    _alive: list[Any] = field(default_factory=list)  # keeps ids unique; tensors on meta hold no memory

    def image(self, tensor: Any, channel_dim: int = 1) -> None:
        """Take `tensor` for the CNN's input; its channels lie in dimension 1, or -1 for channels last."""
        self._keep(tensor)
        self._maps[id(tensor)] = _Map(IMAGE, channel_dim)

    def parameter(self, tensor: Any) -> None:
        """Take `tensor` for trainable numbers, counted in the first row that reads them."""
        self._keep(tensor)
        self._owners[id(tensor)] = {id(tensor): prod(tensor.shape)}

    def is_map(self, tensor: Any) -> bool:
        """Whether a tensor is a feature map: computed from the image."""
        return id(tensor) in self._maps

    def is_weights(self, tensor: Any) -> bool:
        """Whether a tensor is made of parameters alone."""
        return id(tensor) in self._owners and id(tensor) not in self._maps

    def uncounted_parameters(self) -> int:
        """Trainable numbers that no row has read."""
        every = {key: size for owned in self._owners.values() for key, size in owned.items()}
        return sum(size for key, size in every.items() if key not in self._counted)

    def record(self, operator: str, arguments: dict[str, Any], result: Any, is_view: bool) -> None:
        """Take note of one operator that has run.

        Parameters
        ----------
        operator : str
            PyTorch's name without the underscore of in-place forms, such as ``convolution``; any other name
            makes a row of type `other`.
        arguments : dict
            By the names of PyTorch's signature, those that the operator's rule asks for and all tensors.
        result : tensor or tensors
        is_view : bool
            Whether the result shares its memory with an argument.
        """
        outputs, inputs = list(_tensors(result)), list(_tensors(arguments.values()))
        for tensor in (*outputs, *inputs):
            self._keep(tensor)
        if not outputs:
            return
        maps = [tensor for tensor in inputs if id(tensor) in self._maps]
        if not maps or operator in CREATIONS:
            self._pass_on(operator, inputs, outputs)
        elif is_view or operator in _VIEWS:
            self._view(operator, arguments, maps[0], outputs)
        elif operator == "clone":
            self._clone(maps[0], outputs[0])
        else:
            self._operator(operator, arguments, inputs, outputs)

    def _keep(self, tensor: Any) -> None:
        self._alive.append(tensor)

    def _pass_on(self, operator: str, inputs: list[Any], outputs: list[Any]) -> None:
        """Follow what is no feature map: noise, and tensors made of parameters."""
        owned = {k: v for tensor in inputs for k, v in self._owners.get(id(tensor), {}).items()}
        noisy = operator in RANDOM or any(id(tensor) in self._noise for tensor in inputs)
        for tensor in outputs:
            if owned and operator not in CREATIONS:
                self._owners.setdefault(id(tensor), {}).update(owned)
            if noisy:
                self._noise.add(id(tensor))

    def _view(self, operator: str, arguments: dict[str, Any], source: Any, outputs: list[Any]) -> None:
        """Follow a view; a permutation and a flattening are rows, all else costs nothing."""
        was, out = self._maps[id(source)], outputs[0]
        channel_dim, permuted = was.channel_dim, was.permuted
        order = _order(operator, arguments, source.ndim)
        if order is not None and source.ndim > 2:
            moved = order.index(channel_dim % source.ndim)
            channel_dim = -1 if moved == source.ndim - 1 else 1
            row = self._add(operator, {"type": "permute"}, [source], out, out, channel_dim, channel_dim)
            was, permuted = _Map(row), True
        elif _flattens(source, out) and out.shape[0] == self.batch_size:
            row = self._add("flatten", {"type": "flatten"}, [source], source, out, channel_dim, 1)
            was, permuted, channel_dim = _Map(row), False, 1
        elif source.ndim <= 2 < out.ndim:
            channel_dim = 1
        for tensor in outputs:
            self._maps[id(tensor)] = _Map(was.row, channel_dim, permuted)

    def _clone(self, source: Any, out: Any) -> None:
        """Follow a copy: of a permuted view it is the permutation, already counted; else it has a row."""
        was = self._maps[id(source)]
        moves = not source.is_contiguous() or not out.is_contiguous()
        if was.permuted:
            self._maps[id(out)] = _Map(was.row, was.channel_dim)
            return
        columns = {"type": "permute" if moves else "other"}
        row = self._add("clone", columns, [source], source, out, was.channel_dim, was.channel_dim)
        self._maps[id(out)] = _Map(row, was.channel_dim)

    def _operator(
        self, operator: str, arguments: dict[str, Any], inputs: list[Any], outputs: list[Any]
    ) -> None:
        maps = [tensor for tensor in inputs if id(tensor) in self._maps]
        source, out = maps[0], outputs[0]
        channel_dim = self._maps[id(source)].channel_dim
        in_dim, out_dim = _channel_dims(operator, channel_dim)
        noise = [tuple(tensor.shape) for tensor in inputs if id(tensor) in self._noise]
        call = Call(
            operator,
            arguments,
            self._shape(source, in_dim),
            self._shape(out, out_dim),
            channel_dim,
            noise[0] if noise else None,
        )
        columns = RULES[operator](call) if operator in RULES else {"type": "other"}
        if columns.get("type") in ("add", "multiply", "concat"):
            source, in_dim = out, out_dim  # in_* is the shape of the full-size result
        row = self._maps[id(maps[0])].row
        if columns:
            row = self._add(operator, columns, inputs, source, out, in_dim, out_dim)
        for tensor in outputs:
            self._maps[id(tensor)] = _Map(row, out_dim)

    def _add(
        self,
        operator: str,
        columns: Columns,
        inputs: list[Any],
        source: Any,
        out: Any,
        in_dim: int,
        out_dim: int,
    ) -> int:
        index = len(self.rows)
        if columns["type"] == "other":
            self.unknown.add(operator.strip("_"))
        shapes = (*self._shape(source, in_dim), *self._shape(out, out_dim))
        read = tuple(self._maps[id(tensor)].row for tensor in inputs if id(tensor) in self._maps)
        name, type_, kind = self._name(operator, columns["type"]), columns["type"], columns.get("kind")
        rest = {key: value for key, value in columns.items() if key not in ("type", "kind")}
        row = Layer(index, name, type_, kind, read, *shapes, **rest, parameters=self._parameters(inputs))
        self.rows.append(row)
        return index

    def _parameters(self, inputs: list[Any]) -> int:
        """Trainable numbers that these tensors are made of and that no earlier row has counted."""
        found = {k: v for tensor in inputs for k, v in self._owners.get(id(tensor), {}).items()}
        new = found.keys() - self._counted
        self._counted |= new
        return sum(found[key] for key in new)

    def _name(self, operator: str, type_: str) -> str:
        path, leaf = self.path[-1] if self.path else ("", False)
        operator = operator.strip("_")
        is_whole = leaf and path and type_ != "other" and (type_ != "flatten" or path.endswith(type_))
        name = path if is_whole else f"{path}.{operator}".strip(".")
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}_{self._names[name] - 1}"

    def _shape(self, tensor: Any, channel_dim: int) -> tuple[int, int, int]:
        """Channels, height, width of one sample of a tensor."""
        dims = list(tensor.shape[1:])
        if tensor.ndim <= 2 and tensor.ndim > 0 and tensor.shape[0] != self.batch_size:
            dims, channel_dim = [tensor.shape[0] // self.batch_size or 1, *dims], -1
        if channel_dim == -1 and len(dims) > 1:
            dims = [dims[-1], *dims[:-1]]
        while len(dims) < 3:
            dims.append(1)
        return (
            (prod(dims[:-2]), dims[-2], dims[-1]) if channel_dim == 1 else (dims[0], dims[1], prod(dims[2:]))
        )


def _channel_dims(operator: str, channel_dim: int) -> tuple[int, int]:
    """Where an operator finds the channels and where it leaves them."""
    if operator == "linear":
        return -1, -1
    if operator in ("convolution", "batch_norm") or "pool2d" in operator:
        return 1, 1
    return channel_dim, channel_dim


def _order(operator: str, arguments: dict[str, Any], ndim: int) -> list[int] | None:
    """Return the order in which a permutation leaves the dimensions; None if as they are."""
    order = list(range(ndim))
    if operator == "permute":
        order = [d % ndim for d in arguments["dims"]]
    elif operator == "transpose":
        a, b = arguments["dim0"] % ndim, arguments["dim1"] % ndim
        order[a], order[b] = order[b], order[a]
    return order if order != list(range(ndim)) else None


def _flattens(source: Any, out: Any) -> bool:
    keeps = prod(source.shape) == prod(out.shape) and source.shape[0] == out.shape[0]
    return bool(source.ndim > 2 and out.ndim == 2 and keeps)


def _tensors(values: Any) -> Iterator[Any]:
    """All tensors in arguments or results, however nested in lists and tuples."""
    if hasattr(values, "is_contiguous"):
        yield values
    elif isinstance(values, Iterable) and not isinstance(values, str | bytes):
        for value in values:
            yield from _tensors(value)
