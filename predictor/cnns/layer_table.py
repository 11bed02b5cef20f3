"""The layer table, the form of every CNN here: its rows, and the checks that hold them together."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from math import ceil, prod
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast

from predictor.errors import DataError
from predictor.operator_types import OPERATOR_TYPES, VOLUME_TYPES

IMAGE = -1
"""Index that stands for the CNN's own input in `Layer.inputs`."""

ON_PARAMETERS = "on parameters"
"""Name of the row of a recorded step for what runs only on parameters and gradients, beside the optimizer."""

ONE_BY_ONE = 0.29
"""Host time of a tensor that an optimizer updates without foreach calls, over that of a mean layer's passes."""

SUPPRESSION = "suppression of boxes"
"""Name of its row for boxes that are compared one after the other, in kernels that the host enqueues at once."""

SECOND_DERIVATIVES = "second derivatives"
"""Begins the names of its rows for what only the gradient of a gradient runs, such as a gradient penalty's."""

OWN_FILTERS = "filters of each image"
"""Name of its row for what convolutions take longer whose filters each image has for itself, such as a StyleGAN's."""

BY_LAW = (SECOND_DERIVATIVES, OWN_FILTERS)
"""Begins the names of rows that stand for times of few measured steps."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator of a CNN at one image size. Shapes are per image; None means unknown.

    `parameters` counts trainable numbers. A dense layer on a flat vector has height and width 1. An adaptive or
    global pooling is written as the pooling with kernel ceil(in / out) and stride floor(in / out) that it does.
    `repeats` counts the maps of this shape that one image gives, such as the tiles that it is cut into: the layer
    runs as at a batch size `repeats` times as large. A product of two maps (``matmul``) reads, as its input, the first
    with `groups` products side by side; ``attention`` its queries, each position with a window of `kernel_height` keys.
    A convolution over volumes (``conv3d``, ``conv_transpose3d``) holds depth x height as height, but of its padding;
    `in_depth`, `out_depth`, `kernel_depth`, `stride_depth` and `padding_depth` say the depth (`side`).

    `forwards`, `input_gradients` and `weight_gradients` are how often a training step runs the passes of the layer;
    unknown as a rule: as in a CNN that is trained whole (`trained_whole`). A frozen layer has no gradient of its
    weights; `parameters` counts these all the same. `recomputed` is the number, from 1, of the part of the CNN that
    gradient checkpointing runs again in the backward pass. `backward_after` is the index of the last layer that runs
    before the backward pass of this one begins; unknown where that is the last of all.

    `overwrites` is 0 where an activation that usually overwrites what it reads does not, 2 where that is a view, whose
    gradient copies it; unknown: the usual. `derived` are the numbers that it keeps of those computed from only
    parameters, such as normalised weights, whatever the mini-batch. `old_gradient` is the index of the last layer that
    runs before the gradient of its weights from the step before is freed; unknown where none does. `widens` is 1 where
    it reads a map with float32 numbers that no layer wrote and that are not trained, such as a frozen norm's scale, 2
    where autocast computes it in float32: its result is float32 under autocast. `keeps` is 1 where its backward pass
    needs what it reads, 2 what it writes, 3 both, 0 neither; unknown: as of its type.
    """

    index: int
    name: str
    type: str
    kind: str | None = None
    inputs: tuple[int, ...] | None = None
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
    repeats: int = 1
    forwards: int | None = None
    input_gradients: int | None = None
    weight_gradients: int | None = None
    recomputed: int | None = None
    backward_after: int | None = None
    in_depth: int | None = None
    out_depth: int | None = None
    kernel_depth: int | None = None
    stride_depth: int | None = None
    padding_depth: int | None = None
    overwrites: int | None = None
    derived: int | None = None
    old_gradient: int | None = None
    widens: int | None = None
    keeps: int | None = None

    @property
    def is_frozen(self) -> bool:
        """Whether the layer has parameters that the step does not train."""
        return self.weight_gradients == 0 and self.parameters > 0


def trained_whole(layers: Sequence[Layer], frozen: Collection[int] = ()) -> list[tuple[int, int, int]]:
    """Forward passes, gradients of inputs and of weights by layer, in one step that trains all but `frozen` rows."""
    learns: dict[int, bool] = {IMAGE: False}
    passes = []
    for position, layer in enumerate(layers):
        before = layers[position - 1].index if position else IMAGE
        sources = (before,) if layer.inputs is None else layer.inputs
        of_input, entry = any(learns[source] for source in sources), OPERATOR_TYPES[layer.type]
        of_weights = layer.index not in frozen and (layer.parameters > 0 or entry.weights == "filters")
        if entry.product == "matmul":  # its second factor is a map, too
            of_weights = of_input
        learns[layer.index] = of_input or of_weights
        passes.append((1, int(of_input), int(of_weights)))
    return passes


def with_frozen(layers: Sequence[Layer], frozen: Collection[int]) -> tuple[Layer, ...]:
    """The layers where those of these indices are not trained: their passes, where they differ from the usual."""
    passes = zip(layers, trained_whole(layers), trained_whole(layers, frozen), strict=True)
    return tuple(layer if usual == own else _with_passes(layer, *own) for layer, usual, own in passes)


def _with_passes(layer: Layer, forwards: int, input_gradients: int, weight_gradients: int) -> Layer:
    return replace(
        layer, forwards=forwards, input_gradients=input_gradients, weight_gradients=weight_gradients
    )


@dataclass(frozen=True, slots=True)
class Step:
    """The training step that a table was recorded from.

    `batch_size` are the images of the whole step, which runs `parts` of them one after the other and adds up their
    gradients. Unknown are a `precision` that is the framework's default, and an `optimizer` that the step lacks;
    `capture` is "compile" where most of it is compiled. `waits` is how often the forward pass waits for numbers of the
    GPU: from the layer of index `first_wait` to that before `last_wait`, the GPU has nothing to do until the host
    enqueues the next one. `update_waits` is how often it waits after the first backward pass has begun, so
    that the GPU waits for the update, or for the next iteration. `beside` is what the host does beside the passes of
    layers, in those of a mean layer.

    `optimizer` is the word of answers for the class of the optimizer that updates most numbers, unknown where it has
    none. What the optimizers do by what they run, whatever their class, is unknown where none of PyTorch's updates:
    `optimizer_states` are the numbers that they keep for each number that they update, in its type (0 by SGD, 1 with
    momentum, 2 by Adam, 3 by AMSGrad, 0.5 by an Adam of 8 bits); `optimizer_passes` are those that all updates of a
    step read and write for it, once the states exist (3 by SGD, 8 with momentum, 18 by Adam, 7 by a fused Adam);
    `optimizer_copies` are those held beside for a moment, at most (1 by Adam in lists, 0 fused, 2 by Adadelta);
    `optimizer_form` is "foreach", "fused", or "loop" over tensors, of the most numbers. `parallel` is "dp" where
    `torch.nn.DataParallel` spreads the mini-batch over GPUs. `deterministic` and `detect_anomaly` are True where it
    ran with these switches of PyTorch on. `samples` are those that the loader of the step draws for an epoch, and
    `drop_last` is True where it drops a last mini-batch of fewer; None without a loader.
    """

    batch_size: int
    parts: int = 1
    precision: str | None = None
    memory_format: str = "nchw"
    optimizer: str | None = None
    capture: str | None = None
    waits: int | None = None
    first_wait: int | None = None
    last_wait: int | None = None
    beside: int | None = None
    update_waits: int | None = None
    optimizer_states: float | None = None
    optimizer_passes: float | None = None
    optimizer_copies: float | None = None
    optimizer_form: Literal["foreach", "fused", "loop"] | None = None
    parallel: Literal["dp"] | None = None
    deterministic: bool | None = None
    detect_anomaly: bool | None = None
    samples: int | None = None
    drop_last: bool | None = None


@dataclass(frozen=True, slots=True)
class TableWarning:
    """What a reader could not follow of a CNN.

    `about` is the number of frozen parameters, the names of operators of unknown cost, or else a sentence.
    """

    kind: Literal["cnn", "frozen", "operator"]
    about: str

    def __str__(self) -> str:
        return _WARNINGS[self.kind].format(self.about)


_WARNINGS = {
    "cnn": "{}",
    "frozen": "frozen parameters, taken as trained: {}",
    "operator": "operators of unknown cost: {}",
}


@dataclass(frozen=True)
class LayerTable:
    """The layers of one CNN at one image size, in the order in which they run.

    `source` names where it came from (zoo, python, csv, onnx, torch, keras, chainer, or a published data set);
    `warnings` are why an answer about it extrapolates.
    Its hash, of all columns, is computed once (0.3 ms for 515 layers), so that tables are cheap keys of caches.
    """

    cnn: str
    image_size: int
    layers: tuple[Layer, ...]
    source: str = "zoo"
    warnings: tuple[TableWarning, ...] = ()
    step: Step | None = None

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.cnn, self.image_size, self.layers, self.source, self.warnings, self.step))

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the hash, since words hash differently in each process."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @property
    def image_in_words(self) -> str:
        """Sides of what the first layer reads: ``224 x 224 px``, of volumes depth first."""
        first = self.layers[0]
        if first.in_channels is None or 1 in (first.in_height, first.in_width):  # made from a vector
            return f"{self.image_size} x {self.image_size} px"
        sides = DIMENSIONS if first.in_depth is not None else DIMENSIONS[1:]
        return f"{' x '.join(str(side(first, 'in', dimension)) for dimension in sides)} px"

    @property
    def parameters(self) -> int:
        """Trained parameters of the whole CNN."""
        return sum(layer.parameters for layer in self.layers if not layer.is_frozen)

    def trained_whole(self) -> LayerTable:
        """The CNN where all is trained and every layer runs once; the table itself, if it is so already."""
        if not any(any(_PASSES(layer)) for layer in self.layers):
            return self
        usual = tuple(
            replace(layer, **cast(dict[str, Any], dict.fromkeys(PASS_COLUMNS))) for layer in self.layers
        )
        return replace(self, layers=usual, step=None)

    def accumulated(self, parts: int) -> LayerTable:
        """The step that runs a mini-batch in this number of parts, and adds up their gradients before the update."""
        layers = []
        for layer, usual in zip(self.layers, trained_whole(self.layers), strict=True):
            own = layer.forwards or 0, layer.input_gradients or 0, layer.weight_gradients or 0
            runs = [parts * n for n in (usual if layer.forwards is None else own)]
            layers.append(_with_passes(layer, *runs))
        return replace(self, layers=tuple(layers), step=Step(parts, parts))

    def recomputing(self, blocks: Sequence[Collection[int]]) -> LayerTable:
        """The step that runs the forward pass of each block, positions of layers, again in the backward pass."""
        number_of_block = {position: number for number, block in enumerate(blocks, 1) for position in block}
        layers = list(self.layers)
        for position, (runs, of_input, of_weights) in enumerate(trained_whole(layers)):
            layer = layers[position]
            if position in number_of_block:
                has_passes = layer.forwards is not None
                layers[position] = replace(
                    layer,
                    forwards=(layer.forwards or 0 if has_passes else runs) + self.parts,
                    input_gradients=layer.input_gradients if has_passes else of_input,
                    weight_gradients=layer.weight_gradients if has_passes else of_weights,
                    recomputed=number_of_block[position],
                )
        return replace(self, layers=tuple(layers))

    def recomputations(self, layer: Layer) -> int:
        """How many of a layer's forward passes gradient checkpointing runs in the backward pass."""
        if layer.recomputed is None or layer.forwards is None:
            return 0
        backward = max(layer.input_gradients or 0, layer.weight_gradients or 0)
        return max(0, layer.forwards - (backward or self.parts))

    def without_recomputing(self) -> LayerTable:
        """The same step without gradient checkpointing; the table itself, if it has none."""
        if all(layer.recomputed is None for layer in self.layers):
            return self
        layers = list(self.layers)
        for i, layer in enumerate(layers):
            if layer.recomputed is not None and layer.forwards is not None:
                runs = layer.forwards - self.recomputations(layer)
                layers[i] = replace(layer, forwards=runs, recomputed=None)
        return replace(self, layers=tuple(layers))

    def without_freezing(self) -> LayerTable:
        """The same step where all parameters are trained; the table itself, if they are."""
        if not any(layer.is_frozen for layer in self.layers):
            return self
        trained = []
        for layer, (_, of_input, of_weights) in zip(self.layers, trained_whole(self.layers), strict=True):
            if layer.forwards is not None:
                runs = layer.forwards - self.recomputations(layer)
                of_input = max(layer.input_gradients or 0, runs * of_input)
                of_weights = max(layer.weight_gradients or 0, runs * of_weights)
                layer = _with_passes(layer, layer.forwards, of_input, of_weights)
            trained.append(layer)
        return replace(self, layers=tuple(trained))

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the table to a CSV file that stands wherever a CNN is asked for, with the same answer.

        A recorded step's batch size, precision, memory format and optimizer are columns, too. DataError if the file
        cannot be written.
        """
        rows = self.csv_rows()
        try:
            with Path(path).open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            raise DataError(f"cannot write the layer table {path}: {error.strerror or error}.") from error

    def csv_rows(self) -> list[dict[str, Any]]:
        """The rows as written to CSV; columns that say nothing of this CNN are left out."""
        about: dict[str, Any] = {name: getattr(self.step, name, None) for name in STEP_COLUMNS}
        about["image_size"] = None if image_side(self.layers) == self.image_size else self.image_size
        about["warnings"] = (
            BETWEEN_WARNINGS.join(f"{warning.kind}: {warning.about}" for warning in self.warnings) or None
        )
        rows = [{name: getattr(layer, name) for name in LAYER_TABLE_COLUMNS} | about for layer in self]
        columns = [
            name
            for name in (*LAYER_TABLE_COLUMNS, *TABLE_COLUMNS)
            if name not in USUAL_CELLS or any(row[name] != USUAL_CELLS[name] for row in rows)
        ]
        return [{name: _cell(row[name]) for name in columns} for row in rows]

    def document(self) -> dict[str, Any]:
        """The table as services read and send it: layers numbered from 0; what is unknown is left out."""
        position_of = {layer.index: position for position, layer in enumerate(self)} | {IMAGE: IMAGE}
        layers = []
        for position, layer in enumerate(self):
            row = {name: value for name, value in asdict(layer).items() if value is not None}
            row["index"] = position
            if layer.inputs is not None:
                row["inputs"] = [position_of[index] for index in layer.inputs]
            layers.append(row)
        sent: dict[str, Any] = {"name": self.cnn, "image_size": self.image_size, "layers": layers}
        sent |= {"step": asdict(self.step)} if self.step is not None else {}
        return sent | ({"warnings": [asdict(warning) for warning in self.warnings]} if self.warnings else {})

    @property
    def parts(self) -> int:
        """Parts of a mini-batch that an iteration runs one after the other."""
        return 1 if self.step is None else self.step.parts

    @cached_property
    def has_gradients(self) -> bool:
        """Whether a training step computes a gradient in any layer."""
        return any(
            of_input or of_weights
            if layer.forwards is None
            else layer.input_gradients or layer.weight_gradients
            for layer, (_, of_input, of_weights) in zip(self, trained_whole(self.layers), strict=True)
        )

    @cached_property
    def has_unknown_edges(self) -> bool:
        """Whether no row says what it reads, and some cannot read the row before: there are branches."""
        return _is_flat(self) and any(_edge_complaints(self))

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with any number or word of the rows."""
        rows = "\n".join(map(str, map(_VALUES, self.layers)))
        passes = [_PASSES(layer) for layer in self.layers]
        if any(any(cells) for cells in passes) or self.step is not None:
            rows += f"\n{passes}\n{self.step}"
        for rare in (_DEPTHS, _IN_MEMORY):
            cells = [rare(layer) for layer in self.layers]
            rows += f"\n{cells}" if any(cell is not None for row in cells for cell in row) else ""
        return hashlib.sha256(rows.encode()).hexdigest()[:16]


DEPTH_COLUMNS = ("in_depth", "out_depth", "kernel_depth", "stride_depth", "padding_depth")
MEMORY_COLUMNS = ("overwrites", "derived", "old_gradient", "widens", "keeps")
PASS_COLUMNS = ("forwards", "input_gradients", "weight_gradients", "recomputed", "backward_after")
_PASSES = attrgetter(*PASS_COLUMNS)
LAYER_TABLE_COLUMNS = tuple(field.name for field in fields(Layer))
"""The columns of a layer's row, in the order in which they are written; optional ones only where they are needed."""

STEP_COLUMNS = tuple(field.name for field in fields(Step))
TABLE_COLUMNS = ("image_size", *STEP_COLUMNS, "warnings")
"""Columns that say something of the whole CNN, alike in all rows: of a recorded step, and where rows do not say it."""

OPTIONAL_COLUMNS = ("repeats", *PASS_COLUMNS, *DEPTH_COLUMNS, *MEMORY_COLUMNS)
"""Columns of a layer that are written only where a row of the CNN says something there."""

USUAL_CELLS = {"repeats": 1, **dict.fromkeys((*OPTIONAL_COLUMNS[1:], *TABLE_COLUMNS))}
"""What the columns say that are written only where they say something else."""

BETWEEN_WARNINGS = " | "


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else value


_DEPTHS, _IN_MEMORY = attrgetter(*DEPTH_COLUMNS), attrgetter(*MEMORY_COLUMNS)
_VALUES = attrgetter(
    *(field.name for field in fields(Layer) if field.name == "repeats" or field.name not in OPTIONAL_COLUMNS)
)
DIMENSIONS = ("depth", "height", "width")


def side(layer: object, what: str, dimension: str) -> int | None:
    """Size of the input, output, kernel, stride or padding of a layer or operator along one dimension, if known.

    The height of a volume is that which its column holds over its depth.
    """
    size: int | None = getattr(layer, f"{what}_{dimension}")
    depth: int | None = getattr(layer, f"{what}_depth")
    return size // depth if size and depth and dimension == "height" and what != "padding" else size


def layer_complaint(layer: Layer) -> str | None:
    """Describe the first inconsistency of a layer for an error message; None if there is none.

    Unknown (None) columns are not checked. An asymmetric padding is written rounded up, so the output size may be that
    of one padded pixel less; a pooling may round its output size up, or be adaptive.

    Convolution: out = floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1; transposed: out = (in - 1)
    stride - 2 padding + dilation (kernel - 1) + 1 + (0 .. max(stride, dilation) - 1).
    """
    checks = (_volume_complaint, _CHECKS.get(layer.type), _channel_complaint, _positive_complaint)
    return next((complaint for check in checks if check and (complaint := check(layer))), None)


def _volume_complaint(layer: Layer) -> str | None:
    if layer.type not in VOLUME_TYPES:
        column = next((column for column in DEPTH_COLUMNS if getattr(layer, column) is not None), None)
        return column and f"{column} is given, but only {' and '.join(VOLUME_TYPES)} have depths"
    for what in ("in", "out", "kernel", "stride"):
        depth, height = getattr(layer, f"{what}_depth"), getattr(layer, f"{what}_height")
        if depth and height is not None and height % depth:
            return (
                f"{what}_height {height}, which is depth x height, is not a multiple of {what}_depth {depth}"
            )
    return None


def _positive_complaint(layer: Layer) -> str | None:
    sizes = ("in_channels", "in_height", "in_width", "out_channels", "out_height", "out_width")
    for column in (*sizes, *DEPTH_COLUMNS[:-1]):
        if getattr(layer, column) == 0:
            return f"{column} is 0"
    if layer.repeats < 1:
        return f"repeats is {layer.repeats}"
    if layer.type in OPERATOR_TYPES and OPERATOR_TYPES[layer.type].is_convolution:
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


def _windows_complaint(layer: Layer, allowed: Callable[[Layer, tuple[int, ...]], set[int]]) -> str | None:
    """`allowed`: output sizes that follow from (in, out, kernel, stride, padding), checked where all are known."""
    for dimension in DIMENSIONS:
        names = ("in", "out", "kernel", "stride", "padding")
        window = tuple(size for name in names if (size := side(layer, name, dimension)) is not None)
        if len(window) < len(names):
            continue
        size, out, kernel, stride, padding = window
        right = allowed(layer, window)
        if out not in right:
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


def _pool_complaint(layer: Layer) -> str | None:
    if None not in (layer.in_channels, layer.out_channels) and layer.in_channels != layer.out_channels:
        return f"out_channels {layer.out_channels} differs from in_channels {layer.in_channels}"
    return _windows_complaint(layer, _pool_sizes)


def _same_shape_complaint(layer: Layer) -> str | None:
    for dimension in ("channels", *DIMENSIONS):
        size, out = getattr(layer, f"in_{dimension}"), getattr(layer, f"out_{dimension}")
        if None not in (size, out) and size != out:
            return f"out_{dimension} {out} differs from in_{dimension} {size}, which {layer.type} cannot do"
    return None


def _permute_complaint(layer: Layer) -> str | None:
    """Channels may become positions (a pixel shuffle), but no number is lost."""
    sizes = [[getattr(layer, f"{end}_{side}") for side in _SIDES] for end in ("in", "out")]
    if any(None in shape for shape in sizes) or prod(sizes[0]) == prod(sizes[1]):
        return None
    read, written = ("x".join(map(str, shape)) for shape in sizes)
    return f"it writes {written}, not as many numbers as the {read} that it reads"


def _flatten_complaint(layer: Layer) -> str | None:
    sizes = (layer.in_channels, layer.in_height, layer.in_width, layer.out_channels)
    if None in sizes or (layer.out_height, layer.out_width) != (1, 1):
        return None
    channels, height, width, out = sizes
    if channels * height * width != out:  # type: ignore[operator]  # None was excluded
        return f"out_channels {out} is not in_channels x in_height x in_width = {channels}x{height}x{width}"
    return None


_CHECKS: dict[str, Callable[[Layer], str | None]] = {
    **{f"conv{n}d": partial(_windows_complaint, allowed=_conv_sizes) for n in (2, 3)},
    **{f"conv_transpose{n}d": partial(_windows_complaint, allowed=_transposed_sizes) for n in (2, 3)},
    "max_pool": _pool_complaint,
    "avg_pool": _pool_complaint,
    **{name: _same_shape_complaint for name, entry in OPERATOR_TYPES.items() if entry.same_shape},
    "flatten": _flatten_complaint,
    "permute": _permute_complaint,
}


def image_side(layers: Sequence[Layer]) -> int | None:
    """Height that the first layer reads; where that is 1 (images made from a vector), that which the last writes."""
    first, last = (side(layer, what, "height") for layer, what in ((layers[0], "in"), (layers[-1], "out")))
    return last if first == 1 else first


_SIDES = ("channels", "height", "width")
_JOINS = ("add", "multiply", "concat", "clamp")  # they read what broadcasts or joins to their columns
_RESHAPES = ("other", "permute", "pad")  # their output shape may differ from their columns


def table_complaint(table: LayerTable) -> tuple[int, str, str] | None:
    """Find the first layer that contradicts the others: position, column and reason; None if there is none.

    First `backward_after`, `old_gradient` and `overwrites` that cannot be, then an input shape unlike what it reads.

    Without this check an edited table, or one made at another image size, would give the time of a CNN that cannot
    exist. Unknown (None) sizes are not checked, nor are layers of several inputs, which broadcast or join, a concat of
    one, which joins it to parameters, or tables where no row says its inputs (`LayerTable.has_unknown_edges`). A layer
    may read a crop; the same numbers in another shape, also as several maps per image (a view); or a part of them where
    other layers read them, too (a split). Rows are numbered by their position, as in a table that was sent or read from
    a file.
    """
    for position, layer in enumerate(table):
        if layer.backward_after is not None and not position <= layer.backward_after < len(table):
            why = f"it is {layer.backward_after}, but names this row or one that runs later, up to {len(table) - 1}."
            return position, "backward_after", why
        if layer.old_gradient is not None and layer.old_gradient >= len(table):
            why = f"it is {layer.old_gradient}, but names a row, up to {len(table) - 1}."
            return position, "old_gradient", why
        if layer.overwrites is not None and (layer.type != "activation" or layer.overwrites > 2):
            return position, "overwrites", "it is 0, 1 or 2, of an activation."
    complaints = ((position, *complaint) for position, complaint in _edge_complaints(table))
    return next((complaint for complaint in complaints if complaint[0] == 0 or not _is_flat(table)), None)


def _is_flat(table: LayerTable) -> bool:
    return all(layer.inputs is None for layer in table)


def _edge_complaints(table: LayerTable) -> Iterator[tuple[int, tuple[str, str]]]:
    """Layers of one input that contradict it; a layer of unknown inputs is taken to read the one before."""
    inputs = [(i - 1,) if layer.inputs is None else layer.inputs for i, layer in enumerate(table)]
    readers = Counter(index for read in inputs for index in read)
    for position, (layer, read) in enumerate(zip(table, inputs, strict=True)):
        several_images = read == (IMAGE,) and table.step is not None
        joins = layer.type == "concat" or (layer.type in _JOINS and table.step is not None)
        if len(read) != 1 or several_images or joins:
            continue
        chosen = table.step is not None and table.step.waits and read[0] != IMAGE
        of_boxes = layer.type == "avg_pool" or _is_list(layer, "in")
        if chosen and (of_boxes or _is_list(table.layers[read[0]], "out")):
            continue  # a part that numbers of tensors choose, and a box's samples of a map
        if read[0] == IMAGE:
            complaint = _image_complaint(layer, table.image_size)
        else:
            complaint = _pair_complaint(table.layers[read[0]], layer, readers[read[0]])
        if complaint is not None:
            yield position, complaint


def _is_list(layer: Layer, what: str) -> bool:
    """Whether a layer reads or writes numbers without positions."""
    return (getattr(layer, f"{what}_height"), getattr(layer, f"{what}_width")) == (1, 1)


def _image_complaint(layer: Layer, image_size: int) -> tuple[str, str] | None:
    numbers = _numbers((layer.in_channels, layer.in_height, layer.in_width)) * layer.repeats
    cut = numbers in (image_size**2, 3 * image_size**2)  # into tiles, of a grey or coloured image
    height = side(layer, "in", "height")
    if height in (None, 1, image_size) or cut:  # 1: an image is made from a vector
        return None
    return (
        "in_height",
        f"it is {height}, but the layer reads the image, and image_size is {image_size}. "
        f"Give the table made at {image_size} pixels, or image_size {height}.",
    )


def _pair_complaint(before: Layer, layer: Layer, readers: int) -> tuple[str, str] | None:
    written = tuple(getattr(before, f"out_{side}") for side in _SIDES)
    read = tuple(getattr(layer, f"in_{side}") for side in _SIDES)
    wrong = [i for i in range(3) if None not in (written[i], read[i]) and written[i] != read[i]]
    cropped = 0 not in wrong and all(read[i] < written[i] for i in wrong)
    if not wrong or cropped or before.type in _RESHAPES or _shares(before, written, layer, read, readers):
        return None
    side = _SIDES[wrong[0]]
    return (
        f"in_{side}",
        f"{layer.type} {layer.name!r} reads {read[wrong[0]]}, but row {before.index}, {before.type} {before.name!r}, "
        f"gives {written[wrong[0]]} as out_{side}. Correct one of them, or say in inputs which rows it reads.",
    )


def _shares(
    before: Layer, written: tuple[int | None, ...], layer: Layer, read: tuple[int | None, ...], readers: int
) -> bool:
    """Whether a layer reads all numbers of another in some shape, or a part where others read it, too."""
    if written[1:] == read[1:] and written[0] and read[0]:  # heights and widths may be unknown
        parts = written[0] * before.repeats / (read[0] * layer.repeats)
    elif None in written or None in read:
        return False
    else:
        parts = _numbers(written) * before.repeats / max(1, _numbers(read) * layer.repeats)
    return parts == 1 or (readers > 1 and parts > 1)


def _numbers(sides: tuple[int | None, ...]) -> int:
    return prod(side or 0 for side in sides)
