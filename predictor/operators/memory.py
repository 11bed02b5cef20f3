"""Peak GPU memory of one training iteration, from the layer table.

The peak is the largest sum of live tensors over the layers of the backward pass. Counted are, by PyTorch's rules
(``tools/autograd/derivatives.yaml`` of PyTorch 2 lists the tensors that each operator saves for its backward pass, the
documentation of `torch.amp` the operators that stay in fp32):

- weights, the optimizer's state (momentum 1 x, Adam 2 x the weights), and the weight gradients computed so far;
- AMP's 16-bit copies of the weights of layers still to come;
- activations kept by layers still to come; a tensor kept by several operators counts once;
- gradients of activations from their last reader to the layer that wrote them;
- a workspace as large as a convolution's input and output, while it runs;
- cuBLAS's own workspace, and the CUDA context with cuDNN's and cuBLAS's kernels.

`benchmarks/figures.py --figure memory` compares the estimate with measured peaks; cuBLAS's 64 MiB is the only constant
fitted to them. The workspace of the algorithm that cuDNN selects is not predicted: some take gigabytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.modes import Mode
from predictor.checks import MAX_BATCH_SIZE
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES, VIEW_TYPES

MEASURED_FRAMEWORKS = ("pytorch",)
"""Frameworks for which the estimate was compared with measured peaks."""

CONTEXT_GIB = 0.5
"""CUDA context with the libraries' kernels: 0.3 to 0.6 GiB in practice, by driver and GPU."""

USABLE_SHARE = 0.9
"""Share of a GPU's memory that the estimate may fill. The driver and error correction keep 1 to 9 %, and cuDNN's
workspaces may exceed the estimate: of 394 batch sizes found so, for memories of 4 to 141 GiB, 98 % fit by the peaks
measured on an H200; those that do not are strict fp32 (`benchmarks/figures.py --figure memory`)."""

_GIB = 2**30
_FP32_BYTES = 4.0
_CUBLAS_BYTES = 64 * 2**20
"""Scratch memory of cuBLAS in PyTorch's memory pool on an H200, from the measured peak of LeNet-5."""

_OPTIMIZER_STATES = {"sgd": 0, "momentum": 1, "adam": 2}


Bytes = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of each part at the peak; `peak_gib` is their sum in GiB (2^30 bytes)."""

    weights: float
    gradients: float
    optimizer_state: float
    activations: float
    activation_gradients: float
    workspace: float
    context: float

    @property
    def peak_gib(self) -> float:
        """Sum of all parts, in GiB."""
        parts = (self.weights, self.gradients, self.optimizer_state, self.activations)
        return (sum(parts) + self.activation_gradients + self.workspace + self.context) / _GIB


def memory_estimate_validated(framework: str) -> bool:
    """Whether the estimate was compared with measured peaks of this framework."""
    return framework in MEASURED_FRAMEWORKS


def peak_memory(table: LayerTable, batch_size: int, mode: Mode | None = None) -> MemoryEstimate:
    """Estimated peak memory of a training iteration, part by part.

    Parameters
    ----------
    table : LayerTable
    batch_size : int
        Images per mini-batch, >= 1.
    mode : Mode, optional
        Only its precision and optimizer are used; the default is fp32 with momentum.

    Returns
    -------
    MemoryEstimate
        Bytes per part.

    Notes
    -----
    peak = P w (1 + s) + max over layers l of (g_l + c_l + b (A_l + G_l + W_l)) + 64 MiB + context, with P parameters, w
    bytes per weight, s optimizer states, b the batch size; while the backward pass is at layer l, g_l are bytes of
    weight gradients (of l and the layers behind it), c_l of AMP's copies of weights (of l and the layers before it),
    A_l bytes per image of kept activations, G_l of their gradients, W_l of the workspace. The weight update,
    P w (2 + s), is the last of these steps.
    """
    law = _law(table, mode or Mode())
    at = int(np.argmax(law.fixed + batch_size * law.per_image))
    kept, gradients, workspace = (batch_size * float(each[at]) for each in law.images)
    return MemoryEstimate(
        weights=law.weights + float(law.copies[at]),
        gradients=float(law.gradients[at]),
        optimizer_state=law.optimizer_state,
        activations=kept,
        activation_gradients=gradients,
        workspace=workspace + _CUBLAS_BYTES,
        context=CONTEXT_GIB * _GIB,
    )


def peak_memories_gib(table: LayerTable, batch_sizes: Sequence[int], mode: Mode | None = None) -> list[float]:
    """`peak_memory_gib` at each of many batch sizes, in one pass over the layers."""
    law = _law(table, mode or Mode())
    steps = law.fixed + np.asarray(batch_sizes, dtype=float)[:, None] * law.per_image
    always = law.weights + law.optimizer_state + _CUBLAS_BYTES
    peaks: list[float] = ((steps.max(axis=1) + always) / _GIB + CONTEXT_GIB).tolist()
    return peaks


def largest_batches_within(
    table: LayerTable, limits_gib: Sequence[float], mode: Mode | None = None
) -> list[int]:
    """Largest batch size, at most 65,536, whose estimated peak is at most each limit; 0 where one image exceeds it."""
    law = _law(table, mode or Mode())
    always = law.weights + law.optimizer_state + _CUBLAS_BYTES + CONTEXT_GIB * _GIB
    left, per_image = np.array(limits_gib)[:, None] * _GIB - always - law.fixed, law.per_image
    grows = per_image > 0
    most = np.minimum(MAX_BATCH_SIZE, np.min(left[:, grows] / per_image[grows], axis=1))
    found: list[int] = np.where((left < 0).any(axis=1), 0, most).astype(int).tolist()
    return found


def peak_memory_gib(table: LayerTable, batch_size: int, mode: Mode | None = None) -> float:
    """Estimated peak memory of a training iteration in GiB (2^30 bytes); see `peak_memory`."""
    return peak_memory(table, batch_size, mode).peak_gib


@dataclass(frozen=True, slots=True)
class _Law:
    """Bytes while the backward pass is at each layer, and during the update, which is the last step.

    `gradients` and `copies` (n_steps,) do not depend on the batch size; `images` holds bytes per image of kept
    activations, their gradients and the workspace, each (n_steps,).
    """

    weights: float
    optimizer_state: float
    gradients: Bytes
    copies: Bytes
    images: tuple[Bytes, Bytes, Bytes]

    @property
    def fixed(self) -> Bytes:
        return self.gradients + self.copies

    @property
    def per_image(self) -> Bytes:
        kept, gradients, workspace = self.images
        return kept + gradients + workspace


@lru_cache(maxsize=256)
def _law(table: LayerTable, mode: Mode) -> _Law:
    """Cached: one CNN is predicted on many GPUs and at many batch sizes."""
    weight = _weight_bytes(mode.precision)
    parameters = np.array([0.0 if layer.is_frozen else float(layer.parameters) for layer in table])
    gone_through = np.cumsum(parameters[::-1])[::-1]
    if table.parts > 1:  # gradients of the parts before stay
        gone_through = np.full(len(table), parameters.sum())
    copies = 2.0 * np.cumsum(parameters) if mode.precision.startswith("amp") else np.zeros(len(table))
    buffers = sum(8.0 * (layer.out_channels or 0) for layer in table if layer.type == "batch_norm")
    images = (
        _kept(table, mode.precision),
        _gradients(table, mode.precision),
        _workspace(table, mode.precision),
    )
    kept, gradients, workspace = (np.append(each, 0.0) / table.parts for each in images)
    return _Law(
        weights=sum(layer.parameters for layer in table) * weight + buffers,
        optimizer_state=table.parameters * weight * _OPTIMIZER_STATES[mode.optimizer],
        gradients=weight * np.append(gone_through, table.parameters),
        copies=np.append(copies, 0.0),
        images=(kept, gradients, workspace),
    )


def _kept(table: LayerTable, precision: str) -> Bytes:
    """Bytes per image of activations that are kept while a layer runs its last pass, (n_layers,).

    Of a part that is computed again, only what it reads is kept, until the backward pass has come to it.
    """
    sizes, element = _tensor_elements(table), _element_bytes(precision)
    ends, learns = _ends(table), np.array(list(map(_learns, table)), dtype=bool)
    entries: dict[int, list[_Kept]] = {0: []}
    for position, layer in enumerate(table):
        if learns[position]:
            kept = _Kept(position, int(ends[position]), _extra_bytes(layer, precision))
            entries.setdefault(layer.recomputed or 0, []).append(kept)
    for (part, tensor), (first, end) in _kept_tensors(table, ends).items():
        entries.setdefault(part, []).append(_Kept(first, end, element * sizes[tensor]))
    held = _held(entries.pop(0), ends, learns)
    parts = np.array([layer.recomputed or 0 for layer in table], dtype=int)
    for part, some in entries.items():
        held += np.where(parts == part, np.cumsum(_placed(some, len(table))), 0.0)
    return held


class _Kept(NamedTuple):
    """Bytes per image, kept from the layer at `first` until the backward pass that begins after `end` comes to it."""

    first: int
    end: int
    bytes: float


def _ends(table: LayerTable) -> NDArray[np.int64]:
    """Position of the last layer that runs before each layer's backward pass begins, (n_layers,)."""
    last = len(table) - 1
    return np.array([last if layer.backward_after is None else layer.backward_after for layer in table], int)


def _placed(kept: Sequence[_Kept], n: int) -> Bytes:
    placed = np.zeros(n)
    np.add.at(placed, [each.first for each in kept], [each.bytes for each in kept])
    return placed


def _held(kept: Sequence[_Kept], ends: NDArray[np.int64], learns: NDArray[np.bool_]) -> Bytes:
    """Bytes held while each layer runs its last pass, (n_layers,).

    In its backward pass, what is kept by layers that ran before this began and that it has not gone through yet; in
    the forward pass of a layer that has no other, what layers before keep for a backward pass to come.
    """
    n = len(ends)
    changes = _placed(kept, n + 1)
    np.subtract.at(changes, [each.end + 1 for each in kept], [each.bytes for each in kept])
    held = np.cumsum(changes)[:n]
    until = np.array([each.end for each in kept], dtype=int)
    for end in np.unique(ends[learns]):
        later = sum(each.bytes for each in kept if each.end > end and each.first <= end)
        own = np.cumsum(_placed([kept[place] for place in np.flatnonzero(until == end).tolist()], n))
        here = learns & (ends == end)
        held[here] = later + own[here]
    return held


def _gradients(table: LayerTable, precision: str) -> Bytes:
    """Bytes per image of activations' gradients by layer, (n_layers,): from a tensor's last reader to its writer.

    Of layers without a backward pass, their own maps from the layer that writes one to the last that reads it.
    """
    by_index = {layer.index: layer for layer in table}
    position = {layer.index: i for i, layer in enumerate(table)}
    learns, ends = np.array(list(map(_learns, table)), dtype=bool), _ends(table)
    last_reader: dict[int, int] = {}
    last_gradient = {table.layers[-1].index: len(table) - 1} if len(table) else {}
    for i, layer in enumerate(table):
        for source in _inputs(table, i):
            tensor = _stored_as(by_index, source)
            last_reader[tensor] = i
            if layer.input_gradients != 0:
                last_gradient[tensor] = i
    alive = np.zeros(len(table))
    sizes, element = _tensor_elements(table), _element_bytes(precision)
    for tensor, last in last_gradient.items():
        if tensor != IMAGE:
            here = slice(position[tensor], last + 1)
            alive[here] += np.where(learns[here] & (ends[here] == ends[last]), element * sizes[tensor], 0.0)
    for i in np.flatnonzero(~learns).tolist():
        tensor = _stored_as(by_index, table.layers[i].index)
        if tensor != IMAGE and not learns[position[tensor]]:
            here = slice(i, max(i, last_reader.get(tensor, i)) + 1)
            alive[here] += np.where(learns[here], 0.0, element * sizes[tensor])
    if IMAGE not in {tensor for _, tensor in _kept_tensors(table, ends)}:
        alive += np.where(learns, 0.0, element * sizes[IMAGE])
    return alive


def _workspace(table: LayerTable, precision: str) -> Bytes:
    convolutions = [
        input_elements(layer) + _output_elements(layer) if OPERATOR_TYPES[layer.type].is_convolution else 0.0
        for layer in table
    ]
    return _element_bytes(precision) * np.array(convolutions)


def _kept_tensors(table: LayerTable, ends: NDArray[np.int64]) -> dict[tuple[int, int], tuple[int, int]]:
    """Outputs that are kept for the backward pass: the first layer that keeps each, and the end until which it is.

    By recomputed part and index of the layer that wrote it (IMAGE: the CNN's input). Part 0 are layers of none, and
    what each part reads at its beginning.
    """
    by_index = {layer.index: layer for layer in table}
    kept: dict[tuple[int, int], tuple[int, int]] = {}

    def keep(part: int, tensor: int, place: int) -> None:
        first, end = kept.get((part, tensor), (place, 0))
        kept[part, tensor] = first, max(end, int(ends[place]))

    for position, layer in enumerate(table):
        keeps_input, keeps_output = _keeps(layer)
        part = layer.recomputed or 0
        if keeps_output:
            keep(part, layer.index, position)
        for source in _inputs(table, position):
            before = by_index.get(source)
            if part and (before is None or before.recomputed != part):
                keep(0, _stored_as(by_index, source), position)
            elif keeps_input:
                keep(part, _stored_as(by_index, source), position)
    return kept


def _learns(layer: Layer) -> bool:
    """Whether the backward pass comes to a layer."""
    return layer.forwards is None or bool(layer.input_gradients or layer.weight_gradients)


def _keeps(layer: Layer) -> tuple[bool, bool]:
    """Whether the backward pass needs a layer's input, and its output; an activation needs one of the two."""
    entry = OPERATOR_TYPES[layer.type]
    if not _learns(layer) or (entry.weights == "filters" and layer.weight_gradients == 0):
        return False, False
    if layer.type != "activation":
        return entry.keeps_input, entry.keeps_output
    keeps_output = layer.kind in ACTIVATIONS and ACTIVATIONS[layer.kind].keeps_output
    return not keeps_output, keeps_output


def _inputs(table: LayerTable, position: int) -> tuple[int, ...]:
    """Indices of the layers that a layer reads; the layer before it if unknown."""
    known = table.layers[position].inputs
    if known is not None:
        return known
    return (table.layers[position - 1].index,) if position else (IMAGE,)


def _stored_as(by_index: dict[int, Layer], index: int) -> int:
    """Find the layer that owns the memory of `index`'s output: a view owns none."""
    while index in by_index and by_index[index].type in VIEW_TYPES:
        sources = by_index[index].inputs
        index = sources[0] if sources else index - 1
    return index if index in by_index else IMAGE


def _tensor_elements(table: LayerTable) -> dict[int, float]:
    """Elements per image of each layer's output, and of the CNN's input."""
    sizes = {layer.index: _output_elements(layer) for layer in table}
    sizes[IMAGE] = input_elements(table.layers[0]) if table.layers else 0.0
    return sizes


def _extra_bytes(layer: Layer, precision: str) -> float:
    entry = OPERATOR_TYPES[layer.type]
    extra = entry.kept_bytes_per_output * _output_elements(layer)
    if entry.amp_output == "wide" and precision.startswith("amp"):
        extra += _FP32_BYTES * input_elements(layer)
    return extra


def input_elements(layer: Layer) -> float:
    """Numbers that a layer reads of one image."""
    return float(layer.repeats * (layer.in_channels or 0) * (layer.in_height or 1) * (layer.in_width or 1))


def _output_elements(layer: Layer) -> float:
    if layer.out_channels is None:
        return input_elements(layer)
    return float(layer.repeats * layer.out_channels * (layer.out_height or 1) * (layer.out_width or 1))


def _element_bytes(precision: str) -> float:
    return 4.0 if precision in ("fp32", "tf32") else 2.0


def _weight_bytes(precision: str) -> float:
    return 2.0 if precision == "fp16" else 4.0
