"""Translates a framework's recorded operators to rows of a layer table.

PyTorch, ONNX and Chainer are translated to one set of operators; `RULES` maps each of them to its row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, gcd, prod
from typing import Any

from predictor.cnns.layer_table import IMAGE, Layer, TableWarning
from predictor.errors import SchemaError
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES, RESIZING_TYPES, RUNNING

Columns = dict[str, Any]
"""Columns of a layer table row; empty where an operator costs nothing (a dropout with p = 0)."""

RANDOM = {
    *("bernoulli", "exponential", "normal", "poisson", "rand", "rand_like"),
    *("randint", "randint_like", "randn", "randn_like", "random", "uniform"),
}
"""Operators whose result is random; they identify dropout and stochastic depth."""

CREATIONS = {
    *("empty_like", "full_like", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"),
    *("ones_like", "rand_like", "randint_like", "randn_like", "zeros_like"),
}
"""Operators that read only the shape and type of a tensor."""


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of an operator: its arguments by name, its sizes and its inputs."""

    operator: str
    arguments: dict[str, Any]
    in_shape: tuple[int, int, int]
    out_shape: tuple[int, int, int]
    channel_dim: int  # of the first feature map that it reads: 1, or -1 for channels last
    batch_size: int
    out_sizes: tuple[int, ...]  # all dimensions of the result
    batch_dim: int  # the one of them that grows with the mini-batch
    noise_shape: tuple[int, ...] | None = None  # of the random factor, if one is read


def _convolution(call: Call) -> Columns:
    arguments = call.arguments
    kernel = tuple(arguments["weight"].shape[2:])
    if len(kernel) not in (1, 2, 3):
        raise SchemaError(
            f"a convolution over {len(kernel)} dimensions: epochcast counts convolutions over 1 to 3. "
            "Give the CNN as a layer table CSV."
        )
    dilation = _per_dimension(arguments["dilation"], len(kernel))
    if len(set(dilation)) != 1:
        raise SchemaError(
            f"a convolution dilated by {dilation}: epochcast counts the same dilation in each dimension. "
            "Give the CNN as a layer table CSV."
        )
    volume = len(kernel) == 3
    columns = {
        "type": f"conv{'_transpose' * arguments['transposed']}{3 if volume else 2}d",
        "dilation": dilation[0],
        "groups": arguments["groups"],
        **_window(kernel, arguments["stride"], arguments["padding"], len(kernel)),
    }
    images = call.batch_size
    if arguments["input"].shape[0] == 1 < images and arguments["groups"] % images == 0 and not volume:
        columns |= {"groups": arguments["groups"] // images}  # each image has its own filters
        for end, (_, channels, *sizes) in (("in", arguments["input"].shape), ("out", call.out_sizes)):
            columns |= _sides(end, channels // images, *((1,) * (2 - len(sizes))), *sizes)
    if volume:  # whose depth x height stands as height
        padding, stride = (_per_dimension(arguments[name], 3) for name in ("padding", "stride"))
        columns |= {"in_depth": arguments["input"].shape[-3], "out_depth": call.out_sizes[-3]}
        columns |= {"kernel_depth": kernel[0], "stride_depth": stride[0]}
        columns |= {"padding_depth": padding[0], "padding_height": padding[1]}
    return columns


def _per_dimension(value: int | Sequence[int], n: int) -> tuple[int, ...]:
    """One number for each of n dimensions."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * n if len(values) == 1 else values


def _window(kernel: Any, stride: Any, padding: Any, n: int) -> Columns:
    """Window over n dimensions as one over an image: a line has height 1, a depth is taken into the height.

    The height of a pooled volume is its depth x height, so its padding in that direction is unknown.
    """
    columns: Columns = {}
    for name, value, default in (("kernel", kernel, 1), ("stride", stride, 1), ("padding", padding, 0)):
        sizes = _per_dimension(value, n)
        height = (
            default if n == 1 else sizes[0] if n == 2 else None if name == "padding" else prod(sizes[:-1])
        )
        columns[f"{name}_height"], columns[f"{name}_width"] = height, sizes[-1]
    return columns


def _pool(type_: str) -> Callable[[Call], Columns]:
    def rule(call: Call) -> Columns:
        n = max(1, min(3, len(call.out_sizes) - 2))  # dimensions of positions, over which it slides
        kernel = call.arguments["kernel_size"]
        stride = call.arguments["stride"] or kernel
        columns = {"type": type_, **_window(kernel, stride, call.arguments["padding"], n)}
        dilation = _per_dimension(call.arguments.get("dilation", 1), n)[0]
        return columns if dilation == 1 else columns | {"dilation": dilation}

    return rule


def _adaptive_pool(type_: str) -> Callable[[Call], Columns]:
    def rule(call: Call) -> Columns:
        sizes = list(zip(call.in_shape[1:], call.out_shape[1:], strict=True))
        kernel = [ceil(size / out) for size, out in sizes]
        stride = [size // out for size, out in sizes]
        return {"type": type_, **_window(kernel, stride, 0, 2)}

    return rule


def _boxes(call: Call) -> Columns:
    """A pooling of 2 x 2 samples, each between 2 x 2 numbers of the map, for each number of a box.

    The boxes lie below each other.
    """
    channels, height, width = call.out_shape
    shapes = _sides("in", channels, 4 * height, 4 * width) | _sides("out", *call.out_shape)
    return {"type": "avg_pool", **_window(4, 4, 0, 2), **shapes}


def _mean(call: Call) -> Columns:
    dims = call.arguments.get("dim")
    shape = tensors_of(call.arguments.values())[0].shape
    spatial = {2, 3} if call.channel_dim == 1 else {1, 2}
    reduced = {dims} if isinstance(dims, int) else set(dims or ())
    if call.operator != "mean" or len(shape) != 4 or {d % 4 for d in reduced} != spatial:
        return {"type": "mean"}
    return _adaptive_pool("avg_pool")(call)


def _matmul(call: Call) -> Columns:
    """Products of two feature maps; the row holds all of one image's side by side, as groups."""
    first, _ = tensors_of(call.arguments.values())[-2:]
    sizes = list(call.out_sizes)
    if len(sizes) < 2 or len(first.shape) < 2:
        return {"type": "other"}
    sizes[call.batch_dim] //= call.batch_size
    inner = first.shape[-2 if call.arguments.get("transposed_first") else -1]
    groups, (rows, columns) = prod(sizes[:-2]), sizes[-2:]
    return {"type": "matmul", "groups": groups, **_positions(groups * inner, groups * columns, rows)}


def _attention(call: Call) -> Columns:
    query, key, value = tensors_of(call.arguments.values())[:3]
    heads = prod(query.shape[:-2]) // call.batch_size
    positions = query.shape[-2]
    window = {"groups": heads, "kernel_height": key.shape[-2], "kernel_width": 1}
    shapes = _positions(heads * query.shape[-1], heads * value.shape[-1], positions)
    return {"type": "attention", **window, **shapes}


def _sides(side: str, channels: int, height: int, width: int = 1) -> Columns:
    """Columns of what a row reads (``in``) or writes (``out``)."""
    return {f"{side}_channels": channels, f"{side}_height": height, f"{side}_width": width}


def _positions(in_channels: int, out_channels: int, n: int) -> Columns:
    """Shape columns of a row whose maps are `n` positions below each other."""
    return _sides("in", in_channels, n) | _sides("out", out_channels, n)


def _fixed(type_: str, kind: str | None = None) -> Callable[[Call], Columns]:
    def rule(_call: Call) -> Columns:
        return {"type": type_, "kind": kind}

    return rule


def _softmax(call: Call) -> Columns:
    """A softmax; over the last dimension, as of attention's scores, each image has several vectors."""
    columns: Columns = {"type": "activation", "kind": "softmax"}
    dim, sizes = call.arguments.get("dim"), list(call.out_sizes)
    if not isinstance(dim, int) or len(sizes) < 3 or dim % len(sizes) < len(sizes) - 1:
        return columns
    sizes[call.batch_dim] //= call.batch_size
    return columns | _positions(sizes[-1], sizes[-1], 1) | {"repeats": prod(sizes[:-1])}


def _bounded(call: Call) -> Columns:
    arguments = call.arguments
    bounds = (arguments.get("min_val", arguments.get("min")), arguments.get("max_val", arguments.get("max")))
    if tensors_of(bounds):
        return {"type": "clamp"}
    kinds: dict[Any, str] = {(0, None): "relu", (0, 6): "relu6"}
    kind = kinds.get(bounds)
    return {"type": "activation", "kind": kind} if kind else {"type": "clamp"}


def _dropout(call: Call) -> Columns:
    arguments = call.arguments
    off = not arguments.get("p", 1) or arguments.get("train") is False
    return {} if off else {"type": "dropout"}


def _times(call: Call) -> Columns:
    if call.noise_shape is None:
        return {"type": "multiply"}
    per_sample = prod(call.noise_shape[1:]) == 1
    return {"type": "stochastic_depth" if per_sample else "dropout"}


RECURRENT = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "rnn", "rnn_relu": "rnn"}
"""Type of the layer of each operator over positions."""


def recurrent_refusal(layer: str) -> SchemaError:
    """Error about a layer that runs over positions, such as an LSTM."""
    return SchemaError(
        f"{layer} layers are read only from PyTorch modules and steps. Put a linear layer of the same output in its "
        "place, and give a measured iteration of the CNN as it is as an anchor, which corrects the answer."
    )


def _recurrent(call: Call) -> Columns:
    """One layer over all its positions; its directions are groups."""
    arguments = call.arguments
    if "directions" not in arguments:  # of another framework than PyTorch
        raise recurrent_refusal(call.operator.partition("_")[0].upper())
    channels = arguments["input"].shape[-1], call.out_sizes[-1]
    positions = prod(arguments["input"].shape[:-1]) // call.batch_size
    kind = {"type": RECURRENT[call.operator], "groups": arguments["directions"]}
    return kind | _positions(*channels, positions)


RULES: dict[str, Callable[[Call], Columns]] = {
    **{operator: _fixed(name) for name, entry in OPERATOR_TYPES.items() for operator in entry.torch},
    **{
        operator: _fixed("activation", kind)
        for kind, entry in ACTIVATIONS.items()
        for operator in entry.torch
    },
    "convolution": _convolution,
    **dict.fromkeys(
        OPERATOR_TYPES["batch_norm"].torch,
        lambda call: {
            "type": "batch_norm",
            "kind": None if call.arguments.get("training", True) else RUNNING,
        },
    ),
    "hardtanh": _bounded,
    "clamp": _bounded,
    "clamp_min": _bounded,
    "clamp_max": _bounded,
    **{f"max_pool{n}d{more}": _pool("max_pool") for n in (1, 2, 3) for more in ("", "_with_indices")},
    **{f"avg_pool{n}d": _pool("avg_pool") for n in (1, 2, 3)},
    **{
        f"{private}adaptive_{kind}_pool{n}d": _adaptive_pool(f"{kind}_pool")
        for private in ("", "_")
        for kind in ("avg", "max")
        for n in (1, 2, 3)
    },
    **dict.fromkeys(
        ("mean", "sum", "amax", "amin", "max", "min", "argmax", "norm", "linalg_vector_norm"), _mean
    ),
    "mul": _times,
    **dict.fromkeys(("matmul", "mm", "addmm", "bmm", "baddbmm"), _matmul),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(
        ("dropout", "native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), _dropout
    ),
    **dict.fromkeys(ACTIVATIONS["softmax"].torch, _softmax),
    **dict.fromkeys(RECURRENT, _recurrent),
    "_ctc_loss": _fixed("other"),
    "roi_align": _boxes,
}
"""Row of each of PyTorch's operators; operators named here are not decomposed."""


_TYPES = {
    **{operator: name for name, entry in OPERATOR_TYPES.items() for operator in entry.torch},
    **dict.fromkeys(("mul", "clamp", "clamp_min", "clamp_max", "floor_divide", "isnan", *RANDOM), "clamp"),
    **dict.fromkeys(("clone", "copy", "fill", "nonzero", "arange"), "pad"),
    **dict.fromkeys(
        ("all", "amax", "amin", "any", "argmax", "max", "mean", "min", "norm", "prod", "sum"), "mean"
    ),
    **{operator: "activation" for entry in ACTIVATIONS.values() for operator in entry.torch},
    # of unknown positions
    **{name: "pad" for type_ in RESIZING_TYPES for name in OPERATOR_TYPES[type_].torch},
}
"""Type of the row of each operator on tensors without a dimension of the mini-batch."""


_PROMOTES = ("add", "multiply", "concat")
"""Types of layers whose result has the widest type that they read."""

IN_FLOAT32 = {
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "pow"),
    *("reciprocal", "rsqrt", "sinh", "softplus", "tan", "cumprod", "cumsum", "prod", "sum", "norm"),
    *("linalg_vector_norm", "logsumexp", "renorm", "dist", "binary_cross_entropy_with_logits"),
    *("huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"),
}
"""Operators that autocast computes in float32 on a GPU, beside those whose type says so."""

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear")
_CHANNELS_FIRST = (
    "convolution", *(name for norm in ("batch", "group", "instance") for name in OPERATOR_TYPES[f"{norm}_norm"].torch)
)  # fmt: skip
_VIEWS = {"_unsafe_view", "as_strided", "squeeze", "t", "transpose", "unsqueeze"}  # unmarked in PyTorch


@dataclass(frozen=True, slots=True)
class _Batch:
    """The dimension of a tensor that holds the mini-batch, and how many maps of each image lie in it."""

    dim: int = 0
    maps: int = 1


_ONE_IMAGE = _Batch(-1)
"""That of a tensor that belongs to one image, or to all, without a dimension that counts them."""


@dataclass(frozen=True, slots=True)
class _Map:
    """A feature map: the row that wrote it, where mini-batch and channels lie, whether a row permuted it."""

    row: int
    channel_dim: int = 1
    permuted: bool = False
    batch: _Batch = _Batch()


@dataclass(slots=True)
class Recorder:
    """Collects rows; `path` is the module that is running.

    With `other_batch_size`, each result comes with its shape in a second run at that batch size: dimensions
    that differ grow with the mini-batch. With `either_layout`, moving the channels of maps first or last costs nothing.
    With `each_tensor`, tensors of one image and those made of no image are counted, too, such as a detector's anchors:
    as many numbers for an image as they are in all, over the batch size.
    """

    batch_size: int
    other_batch_size: int | None = None
    either_layout: bool = False
    each_tensor: bool = False
    path: list[tuple[str, bool]] = field(default_factory=list)  # (module path, is it a leaf?)
    rows: list[Layer] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)  # operators of type `other`
    constant: set[str] = field(default_factory=set)  # operators whose result is the same for any mini-batch
    _maps: dict[int, _Map] = field(default_factory=dict)
    _owners: dict[int, dict[int, int]] = field(default_factory=dict)  # tensor -> {parameter: elements}
    _noise: set[int] = field(default_factory=set)
    _typed_as_maps: set[int] = field(default_factory=set)  # tensors beside, such as means over the mini-batch
    _frozen: set[int] = field(default_factory=set)  # parameters
    frozen_rows: set[int] = field(default_factory=set)  # rows that read such parameters alone
    _counted: set[int] = field(default_factory=set)
    _names: Counter[str] = field(default_factory=Counter)
    _alive: list[Any] = field(default_factory=list)  # keeps ids unique; tensors on meta hold no memory

    def image(self, tensor: Any, channel_dim: int = 1) -> None:
        """Declare `tensor` the CNN's input; its channels are dimension 1, or -1 for channels last."""
        self._alive.append(tensor)
        self._maps[id(tensor)] = _Map(IMAGE, channel_dim)

    def parameter(self, tensor: Any, frozen: bool = False) -> None:
        """Declare `tensor` trainable, or frozen; its numbers count in the first row that reads them."""
        if frozen:
            self._frozen.add(id(tensor))
        self._alive.append(tensor)
        self._owners[id(tensor)] = {id(tensor): prod(tensor.shape)}

    def alias(self, tensor: Any, results: Iterable[Any]) -> None:
        """Declare `results` the same parameters as `tensor`; nothing if `tensor` is no parameter."""
        owned = self._owners.get(id(tensor), {})
        for result in results if owned else ():
            self._alive.append(result)
            self._owners[id(result)] = dict(owned)

    def is_map(self, tensor: Any) -> bool:
        """Whether a tensor is a feature map: computed from the image, and growing with the mini-batch."""
        return id(tensor) in self._maps

    def is_weights(self, tensor: Any) -> bool:
        """Whether a tensor is computed from parameters only."""
        return id(tensor) in self._owners and id(tensor) not in self._maps

    def uncounted_parameters(self) -> int:
        """Trainable numbers that no row has read."""
        every = {key: size for owned in self._owners.values() for key, size in owned.items()}
        return sum(size for key, size in every.items() if key not in self._counted)

    def warnings(self) -> list[TableWarning]:
        """Warnings about the rows, for an answer's reasons for caution."""
        warnings = []
        if self.unknown:
            warnings.append(TableWarning("operator", ", ".join(sorted(self.unknown))))
        if self.constant:
            names = ", ".join(sorted(self.constant))
            text = f"results that do not grow with the batch size, not counted further: {names}"
            warnings.append(TableWarning("cnn", text))
        return warnings

    def record(
        self,
        operator: str,
        arguments: dict[str, Any],
        result: Any,
        is_view: bool,
        other_shapes: Sequence[tuple[int, ...] | None] | None = None,
    ) -> None:
        """Record one operator that has run.

        Parameters
        ----------
        operator : str
            PyTorch's name without the underscore of in-place forms, such as ``convolution``; any other name
            makes a row of type `other`.
        arguments : dict
            By the names of PyTorch's signature: those that the operator's rule reads, and all tensors.
        result : tensor or tensors
        is_view : bool
            Whether the result shares its memory with an argument.
        other_shapes : sequence of tuples, optional
            Shapes of the result's tensors at the other batch size, None where unknown.

        Raises
        ------
        SchemaError
            If the result grows with the mini-batch, but not in proportion to it.
        """
        outputs, inputs = tensors_of(result), tensors_of(arguments.values())
        for tensor in (*outputs, *inputs):
            self._alive.append(tensor)
        if not outputs:
            return
        maps = [tensor for tensor in inputs if id(tensor) in self._maps]
        if not maps or operator in CREATIONS:
            self._typed_as_maps.update(map(id, outputs if maps else ()))
            self._pass_on(operator, inputs, outputs)
            if self.each_tensor and inputs and not (is_view or operator in CREATIONS or operator in _VIEWS):
                self._add_of_one_image(operator, inputs, outputs)
            return
        batches = self._batches(operator, outputs, other_shapes)
        if not batches:
            self._typed_as_maps.update(map(id, outputs))
            if _is_reduction(operator) and prod(outputs[0].shape) == 1:
                was = self._maps[id(maps[0])]
                ends = _End(maps[0], was.channel_dim, was.batch), _End(outputs[0], 1, _Batch())
                self._add(operator, {"type": "mean"}, inputs, *ends)
            elif self.each_tensor:
                self._add_of_one_image(operator, inputs, outputs)
            else:
                self.constant.add(operator.strip("_"))
            return
        outputs = [tensor for tensor in outputs if id(tensor) in batches]
        of_one = [self._maps[id(maps[0])].batch, *(batches[id(tensor)] for tensor in outputs)]
        if _ONE_IMAGE in of_one:
            free = is_view or operator in _VIEWS
            row = self._maps[id(maps[0])].row if free else self._add_of_one_image(operator, inputs, outputs)
            for tensor in outputs:
                self._maps[id(tensor)] = _Map(row, batch=batches[id(tensor)])
        elif is_view or operator in _VIEWS:
            self._view(operator, arguments, maps[0], outputs, batches)
        elif operator == "clone":
            self._clone(maps[0], outputs[0], batches[id(outputs[0])])
        else:
            self._operator(operator, arguments, inputs, outputs, batches)

    def _batches(
        self, operator: str, outputs: list[Any], other_shapes: Sequence[tuple[int, ...] | None] | None
    ) -> dict[int, _Batch]:
        """Batch dimension of each result; results that do not grow with the mini-batch are left out."""
        batches: dict[int, _Batch] = {}
        shapes = [None] * len(outputs) if other_shapes is None else other_shapes
        for tensor, other_shape in zip(outputs, shapes, strict=True):
            batch = self._batch(operator, tuple(tensor.shape), other_shape)
            if batch is not None:
                batches[id(tensor)] = batch
        if self.each_tensor:
            beside = outputs[0].ndim if id(outputs[0]) in batches else 0  # such as the means of a norm
            apart = (tensor for tensor in outputs if prod(tensor.shape) > 1 and tensor.ndim >= beside)
            batches = {id(tensor): _ONE_IMAGE for tensor in apart} | batches
        return batches

    def _batch(
        self, operator: str, shape: tuple[int, ...], other_shape: tuple[int, ...] | None
    ) -> _Batch | None:
        if other_shape is None or self.other_batch_size is None:
            return self._probable_batch(shape)
        differ = [i for i, sizes in enumerate(zip(shape, other_shape, strict=False)) if sizes[0] != sizes[1]]
        if not differ and len(shape) == len(other_shape):
            return None
        if len(differ) == 1 and len(shape) == len(other_shape):
            dim, maps = differ[0], shape[differ[0]] // self.batch_size
            if (shape[dim], other_shape[dim]) == (maps * self.batch_size, maps * self.other_batch_size):
                return _Batch(dim, maps)
        raise SchemaError(
            f"{operator} gives {_sizes(shape)} at batch size {self.batch_size} but {_sizes(other_shape)} at "
            f"{self.other_batch_size}: its work for one image depends on the batch size. "
            "Leave it out, or give the CNN as a layer table CSV."
        )

    def _probable_batch(self, shape: tuple[int, ...]) -> _Batch | None:
        """Batch dimension in a file of one fixed batch size: the first dimension divisible by it."""
        exact = [i for i, size in enumerate(shape) if size == self.batch_size]
        divided = [i for i, size in enumerate(shape) if size and size % self.batch_size == 0]
        if not divided:
            return None
        dim = 0 if divided[0] == 0 else exact[0] if exact else divided[0]
        return _Batch(dim, shape[dim] // self.batch_size)

    def _pass_on(self, operator: str, inputs: list[Any], outputs: list[Any]) -> None:
        """Track results that are not feature maps: random numbers, and tensors computed from only parameters."""
        owned = {k: v for tensor in inputs for k, v in self._owners.get(id(tensor), {}).items()}
        noisy = operator in RANDOM or any(id(tensor) in self._noise for tensor in inputs)
        for tensor in outputs:
            if owned and operator not in CREATIONS:
                self._owners.setdefault(id(tensor), {}).update(owned)
            if noisy:
                self._noise.add(id(tensor))

    def _view(
        self,
        operator: str,
        arguments: dict[str, Any],
        source: Any,
        outputs: list[Any],
        batches: dict[int, _Batch],
    ) -> None:
        """Track a view: permutations and flattenings get a row, other views cost nothing."""
        was, out = self._maps[id(source)], outputs[0]
        batch = batches[id(out)]
        channel_dim, permuted = was.channel_dim, was.permuted
        order = _order(operator, arguments, source.ndim)
        keeps = prod(source.shape) == prod(out.shape) and source.shape[:1] == out.shape[:1]
        flattens = source.ndim > 2 and out.ndim == 2 and keeps
        if order is not None and source.ndim > 2:
            moved = order.index(channel_dim % source.ndim)
            channel_dim = -1 if moved == source.ndim - 1 else 1
            n = source.ndim
            of_channels = [0, n - 1, *range(1, n - 1)], [0, *range(2, n), 1]
            if self.either_layout and order in of_channels:
                self._maps[id(out)] = _Map(was.row, channel_dim, batch=batch)
                return
            end = _End(out, channel_dim, batch)
            row = self._add(operator, {"type": "permute"}, [source], end, end)
            was, permuted = _Map(row), True
        elif flattens and was.batch == batch == _Batch(0, batch.maps):
            ends = _End(source, channel_dim, was.batch), _End(out, 1, batch)
            row = self._add("flatten", {"type": "flatten"}, [source], *ends)
            was, permuted, channel_dim = _Map(row), False, 1
        elif source.ndim <= 2 < out.ndim:
            channel_dim = -1 if out.shape[-1] == source.shape[-1] else 1
        for tensor in outputs:
            self._maps[id(tensor)] = _Map(was.row, channel_dim, permuted, batches[id(tensor)])

    def _clone(self, source: Any, out: Any, batch: _Batch) -> None:
        """Track a copy: the copy of a permuted view is the permutation already counted, any other gets a row."""
        was = self._maps[id(source)]
        was_nchw, is_nchw = source.is_contiguous(), out.is_contiguous()
        if was.permuted or self.either_layout:
            self._maps[id(out)] = _Map(was.row, was.channel_dim, batch=batch)
            return
        columns = {"type": "other" if was_nchw and is_nchw else "permute"}
        if was_nchw != is_nchw and source.ndim == out.ndim == 4:
            columns["kind"] = "nchw" if is_nchw else "channels_last"
        ends = _End(source, was.channel_dim, was.batch), _End(out, was.channel_dim, batch)
        row = self._add("clone", columns, [source], *ends)
        self._maps[id(out)] = _Map(row, was.channel_dim, batch=batch)

    def _operator(
        self,
        operator: str,
        arguments: dict[str, Any],
        inputs: list[Any],
        outputs: list[Any],
        batches: dict[int, _Batch],
    ) -> None:
        maps = [tensor for tensor in inputs if id(tensor) in self._maps]
        was = self._maps[id(maps[0])]
        exact = operator in _CHANNELS_FIRST or "pool" in operator
        dim = 1 if exact else -1 if operator == "linear" else was.channel_dim
        source, out = (
            _End(tensor, dim, batch, exact)
            for tensor, batch in ((maps[0], was.batch), (outputs[0], batches[id(outputs[0])]))
        )
        noise = [tuple(tensor.shape) for tensor in inputs if id(tensor) in self._noise]
        shapes = source.shape(), out.shape(), was.channel_dim, self.batch_size, tuple(out.tensor.shape)
        call = Call(operator, arguments, *shapes, out.batch.dim, noise[0] if noise else None)
        columns = RULES[operator](call) if operator in RULES else {"type": "other"}
        if columns.get("type") in ("add", "multiply", "concat", "clamp") or operator == "roi_align":
            source = out  # in_* is the shape of the full-size result
        if columns.get("type") in _PROMOTES and self._widens(inputs, outputs):
            columns = columns | {"widens": 1}
        row = self._add(operator, columns, inputs, source, out) if columns else was.row
        for tensor in outputs:
            self._maps[id(tensor)] = _Map(row, dim, batch=batches[id(tensor)])

    def _widens(self, inputs: list[Any], outputs: list[Any]) -> bool:
        """Whether a new result follows the type of float32 numbers that no layer wrote, beside the maps."""
        beside = (t for t in inputs if id(t) not in self._maps and id(t) not in self._owners)
        are_wide = (
            len(t.shape) and str(t.dtype) == "torch.float32" for t in beside if id(t) not in self._noise
        )
        return all(outputs[0] is not tensor for tensor in inputs) and any(are_wide)

    def _add_of_one_image(self, operator: str, inputs: list[Any], outputs: list[Any]) -> int:
        """Row of an operator on tensors that no dimension splits into images."""
        read, written = (max(prod(tensor.shape) for tensor in tensors) for tensors in (inputs, outputs))
        if not written or any(map(self.is_weights, inputs)):
            return IMAGE
        if operator in PRODUCTS:
            inner, channels = (tensor.shape[-1] for tensor in (tensors_of(inputs)[-2], outputs[0]))
            rows = max(1, ceil(prod(outputs[0].shape) / channels / self.batch_size))
            columns: Columns = {"type": "linear", **_positions(inner, channels, rows)}
        else:
            type_ = _TYPES.get(operator, "mean" if _is_reduction(operator) else "other")
            kinds = (kind for kind, entry in ACTIVATIONS.items() if operator in entry.torch)
            columns = {"type": type_, "kind": next(kinds, None)}
            if OPERATOR_TYPES[type_].same_shape:
                read = written
            for side, size in (("in", read), ("out", written)):
                columns |= _sides(side, max(1, ceil(size / self.batch_size)), 1)
        end = _End(max(outputs, key=lambda tensor: prod(tensor.shape)), 1, _Batch())
        row = self._add(operator, columns, inputs, end, end)
        if not self.rows[row].inputs:  # constants count as the image
            self.rows[row] = replace(self.rows[row], inputs=(IMAGE,))
        return row

    def _add(self, operator: str, columns: Columns, inputs: list[Any], source: _End, out: _End) -> int:
        index, type_ = len(self.rows), columns["type"]
        read = tuple(self._maps[id(tensor)].row for tensor in inputs if id(tensor) in self._maps)
        if 0 in (*source.tensor.shape, *out.tensor.shape):  # of what a mask of constants kept nothing
            return read[0] if read else IMAGE
        if type_ == "other":
            self.unknown.add(operator.strip("_"))
        name, parameters = self._name(operator, type_), self._parameters(inputs)
        shapes = columns if "in_channels" in columns else {**_shapes(type_, source, out), **columns}
        shapes = shapes | {"widens": 2} if operator in IN_FLOAT32 else shapes
        self.rows.append(Layer(index=index, name=name, inputs=read, parameters=parameters, **shapes))
        return index

    def _parameters(self, inputs: list[Any]) -> int:
        """Trainable numbers behind these tensors that no earlier row has counted."""
        owned = {k: v for tensor in inputs for k, v in self._owners.get(id(tensor), {}).items()}
        new = owned.keys() - self._counted
        self._counted |= new
        if owned and owned.keys() <= self._frozen:
            self.frozen_rows.add(len(self.rows))
        return sum(owned[key] for key in new)

    def _name(self, operator: str, type_: str) -> str:
        path, leaf = self.path[-1] if self.path else ("", False)
        operator = operator.strip("_")
        is_whole = leaf and path and type_ != "other" and (type_ != "flatten" or path.endswith(type_))
        name = path if is_whole else f"{path}.{operator}".strip(".")
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}_{self._names[name] - 1}"


@dataclass(frozen=True, slots=True)
class _End:
    """A tensor that an operator reads or writes, with its channel and batch dimensions.

    With more than two position dimensions, the first ones count as parts of the channels, as in a channel shuffle.
    `exact`: channels are one dimension by the operator's definition, such as a convolution's.
    """

    tensor: Any
    channel_dim: int
    batch: _Batch
    exact: bool = False

    def shape(self, repeats: int = 1) -> tuple[int, int, int]:
        """Channels, height, width of one image; of its maps, all but `repeats` count as height."""
        dims = [size for i, size in enumerate(self.tensor.shape) if i != self.batch.dim]
        if self.channel_dim == -1 and len(dims) > 1:
            dims = [dims[-1], *dims[:-1]]
        if self.channel_dim == 1 and len(dims) == 2:
            dims.insert(1, 1)  # a line is a map of height 1
        while len(dims) < 3:
            dims.append(1)
        if self.exact:
            channels, height, width = dims[0], prod(dims[1:-1]), dims[-1]
        elif self.channel_dim == 1:
            channels, height, width = prod(dims[:-2]), dims[-2], dims[-1]
        else:
            channels, height, width = dims[0], dims[1], prod(dims[2:])
        return channels, height * self.batch.maps // repeats, width


def _shapes(type_: str, source: _End, out: _End) -> Columns:
    """Shape columns of a row; an image's maps repeat the layer, or are positions where that is the same work."""
    vectors = max(source.tensor.ndim, out.tensor.ndim) <= 2
    together = vectors or OPERATOR_TYPES[type_].positionwise
    repeats = 1 if together else gcd(source.batch.maps, out.batch.maps)
    return _sides("in", *source.shape(repeats)) | _sides("out", *out.shape(repeats)) | {"repeats": repeats}


def _order(operator: str, arguments: dict[str, Any], ndim: int) -> list[int] | None:
    """Order of the dimensions behind a permutation; None if it changes none."""
    order = list(range(ndim))
    if operator == "permute":
        order = [d % ndim for d in arguments["dims"]]
    elif operator == "transpose":
        a, b = arguments["dim0"] % ndim, arguments["dim1"] % ndim
        order[a], order[b] = order[b], order[a]
    return order if order != list(range(ndim)) else None


def _is_reduction(operator: str) -> bool:
    """Whether an operator joins all numbers of a map, as a loss does."""
    reduces = operator in ("mean", "sum", "norm", "linalg_vector_norm")
    return reduces or "loss" in operator or "cross_entropy" in operator


def tensors_of(values: Any) -> list[Any]:
    """All tensors in arguments or results, however nested in lists and tuples."""
    if hasattr(values, "is_contiguous"):
        return [values]
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        return [tensor for value in values for tensor in tensors_of(value)]
    return []


def _sizes(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a single number"
