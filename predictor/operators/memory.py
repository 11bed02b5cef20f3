"""Peak GPU memory of one training iteration, from the layer table.

The peak is the largest sum of live tensors over the layers of the backward pass. Counted are, by PyTorch's rules
(``tools/autograd/derivatives.yaml`` of PyTorch 2 lists the tensors that each operator saves for its backward pass, the
documentation of `torch.amp` the operators that stay in fp32):

- weights, the optimizer's state (1 x the weights for momentum, 2 x for Adam), and the weight gradients computed so far;
- gradients from the step before, until they are freed;
- AMP's 16-bit copies of the weights of layers still to come, and numbers derived from only parameters that they keep;
- the images, which the loop holds, and activations kept by layers still to come; a tensor kept by several operators
  counts once, and AMP's copies of it in another precision apart;
- gradients of activations from their last reader to the layer that wrote them;
- a workspace as large as a convolution's input and output, while it runs; two maps for a formula's gradient;
- cuBLAS's own workspace, and the CUDA context with cuDNN's and cuBLAS's kernels.

`benchmarks/figures.py --figure memory` compares the estimate with measured peaks; cuBLAS's 64 MiB is the only constant
fitted to them. The workspace of the algorithm that cuDNN selects is not predicted: some take gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import ELEMENT_BYTES, Gpu
from predictor.catalogue.modes import Mode
from predictor.checks import MAX_BATCH_SIZE
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES, VIEW_TYPES
from predictor.operators.operators import amp_output, layer_inputs, wide_outputs
from predictor.operators.optimizers import Update, update_of

MEASURED_FRAMEWORK = "pytorch"
"""The framework for which the estimate was compared with measured peaks."""

CONTEXT_GIB = 0.5
"""CUDA context with the libraries' kernels: 0.3 to 0.6 GiB in practice, by driver and GPU."""

_MORE_CONTEXT_GIB = {9.0: 0.25}
"""What each process took beyond that where several trained on a GPU, by compute capability: 0.75 GiB with cuDNN's and
cuBLAS's kernels on an H100 and an H200, 0.61 before its first iteration (PyTorch 2.11 for CUDA 13, 2026-11-29)."""

USABLE_SHARE = 0.9
"""Share of the memory that the driver shows which the estimate may fill, with the context: the driver keeps 1 to 4 % of
it, and cuDNN's workspaces may exceed the estimate. Of 394 batch sizes found so, for memories of 4 to 141 GiB, 98 % fit
by the peaks measured on an H200; those that do not are strict fp32 (`benchmarks/figures.py --figure memory`)."""

_GIB = 2**30
_FP32_BYTES = 4.0
_CUBLAS_BYTES = 64 * 2**20
"""Scratch memory of cuBLAS in PyTorch's memory pool on an H200, from the measured peak of LeNet-5."""

_MAPS_OF_COPIES = 2.0
"""Maps that some gradients hold beside their layer's: of a function of each number, such as grad * (2 * x), and of an
activation that overwrites a view, such as an instance norm's output."""

_STEPS_OF_DERIVED = 3.0
"""Tensors of a parameter's size that exist while the gradient of derived weights goes back to the parameters."""

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


def usable_gib(gpu: Gpu, per_gpu: int = 1) -> float:
    """Memory of a GPU that the estimate of one of `per_gpu` equal trainings may fill, in GiB: what it says fits."""
    return USABLE_SHARE * gpu.driver_memory_gib / per_gpu - more_context_gib(gpu) * (per_gpu > 1)


def more_context_gib(gpu: Gpu) -> float:
    """Memory that a process takes beyond its estimate where several share the GPU; 0 where none was measured."""
    return _MORE_CONTEXT_GIB.get(gpu.compute_capability, 0.0)


def peak_memory(table: LayerTable, batch_size: int, mode: Mode | None = None) -> MemoryEstimate:
    """Estimated peak memory of a training iteration, part by part.

    `batch_size`: images per mini-batch, >= 1. `mode`: only its precision and optimizer are used; the default is fp32
    with momentum. Gives bytes per part.

    peak = P w (1 + s) + max over layers l of (g_l + c_l + b (A_l + G_l + W_l)) + 64 MiB + context, with P parameters, w
    bytes per weight, s optimizer states, b the batch size; while the backward pass is at layer l, g_l are bytes of
    weight gradients (of l and the layers behind it, and old ones), c_l of AMP's copies of weights and of numbers
    derived from weights (of l and the layers before it), A_l bytes per image of kept activations, G_l of their
    gradients, W_l of the workspace. The weight update, P w (2 + s + m) with m copies of each
    parameter for a moment, is the last of these steps.
    """
    law = _law(table, mode or Mode())
    at = int(np.argmax(law.fixed + batch_size * law.per_image))
    kept, gradients, workspace = (batch_size * float(bytes_per_image[at]) for bytes_per_image in law.images)
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


@lru_cache(maxsize=256)
def largest_batches_within(
    table: LayerTable, limits_gib: tuple[float, ...], mode: Mode | None = None
) -> list[int]:
    """Largest batch size, at most 65,536, whose estimated peak is at most each limit; 0 where one image exceeds it."""
    law = _law(table, mode or Mode())
    always = law.weights + law.optimizer_state + _CUBLAS_BYTES + CONTEXT_GIB * _GIB
    left, per_image = np.array(limits_gib)[:, None] * _GIB - always - law.fixed, law.per_image
    grows = per_image > 0
    most = np.minimum(MAX_BATCH_SIZE, np.min(left[:, grows] / per_image[grows], axis=1))
    batch_sizes: list[int] = np.where((left < 0).any(axis=1), 0, most).astype(int).tolist()
    return batch_sizes


def bytes_of_parts(table: LayerTable, precision: str) -> dict[int, float]:
    """Bytes per image that recomputing saves until a part's backward pass runs, by number of the part.

    A part saves the activations that only its layers keep, less the inputs that only recomputing needs.
    """
    tensors, entries = _Tensors.of(table, precision), _kept_by_part(table, precision)
    kept, before = (_kept_tensors(own, tensors) for own in (table, table.without_recomputing()))
    saved = {number: sum(own.bytes for own in of_part) for number, of_part in entries.items() if number}
    for number, tensor, copied_by in kept:
        if number and copied_by is None and (0, tensor, None) in kept:
            saved[number] -= tensors.bytes[tensor]
    stored, layers = _Flow.of(table).stored, table.layers
    reads = {
        (layer.recomputed, stored[source])
        for layer, sources in zip(layers, layer_inputs(table), strict=True)
        for source in sources
        if layer.recomputed and (source == IMAGE or layers[source].recomputed != layer.recomputed)
    }
    for number, tensor in reads:
        if number and (0, tensor, None) not in before:
            saved[number] = saved.get(number, 0.0) - tensors.bytes[tensor]
    return saved


def peak_memory_gib(table: LayerTable, batch_size: int, mode: Mode | None = None) -> float:
    """Estimated peak memory of a training iteration in GiB (2^30 bytes); see `peak_memory`."""
    return peak_memory(table, batch_size, mode).peak_gib


@dataclass(frozen=True, slots=True)
class _Law:
    """Bytes while the backward pass is at each layer, in the update, and where forward passes end with old gradients.

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


_AS_LARGE = {"tf32": "fp32", "amp_bf16": "amp_fp16"}
"""Precisions in which every tensor is as large as in another."""


def _law(table: LayerTable, mode: Mode) -> _Law:
    return _law_of(table, _AS_LARGE.get(mode.precision, mode.precision), update_of(table, mode))


@lru_cache(maxsize=256)
def _law_of(table: LayerTable, precision: str, update: Update) -> _Law:
    """Cached: one CNN is predicted on many GPUs and at many batch sizes."""
    weight = 2.0 if precision == "fp16" else _FP32_BYTES
    parameters = np.array([0.0 if layer.is_frozen else float(layer.parameters) for layer in table])
    n_trained = float(parameters.sum())
    gone_through = np.cumsum(parameters[::-1])[::-1]
    if table.parts > 1:  # gradients of the parts before stay, and a layer's new one is added to its own
        gone_through = n_trained + parameters
    copied = 2.0 * np.array([_learns(layer) * layer.parameters for layer in table])
    copies = np.cumsum(copied) if precision.startswith("amp") else np.zeros(len(table))
    buffers = sum(8.0 * (layer.out_channels or 0) for layer in table if layer.type == "batch_norm")
    derived = np.cumsum([float(layer.derived or 0) for layer in table])
    derived += _STEPS_OF_DERIVED * np.array([layer.parameters if layer.derived else 0 for layer in table])
    in_update = n_trained * weight * update.copies
    waiting, old = _old_gradients(table, parameters)
    images = _kept(table, precision), _gradients(table, precision), _workspace(table, precision)
    kept, gradients, workspace = (
        np.concatenate([bytes_per_image, [0.0], share * bytes_per_image[list(waiting)]]) / table.parts
        for bytes_per_image, share in zip(images, (1.0, 0.0, 0.0), strict=True)
    )
    return _Law(
        weights=sum(layer.parameters for layer in table) * weight + buffers,
        optimizer_state=n_trained * weight * update.states,
        gradients=weight * np.concatenate([gone_through + old, [n_trained], list(waiting.values())]),
        copies=np.concatenate([copies + weight * derived, [in_update], copies[list(waiting)]]),
        images=(kept, gradients, workspace),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Flow:
    """What the laws of all precisions share, by a layer's position; the last entry of lists is that of `IMAGE`.

    `ends` are positions of the last layer that runs before each layer's backward pass begins, `learns` says whether
    that comes to it; both (n_layers,). `stored` is the layer that owns the memory of an output, for a view owns none,
    and `elements` are its numbers per image. `keepers` are what is kept for the backward pass, as of `_keepers`.
    """

    ends: NDArray[np.int64]
    learns: NDArray[np.bool_]
    stored: list[int]
    elements: list[float]
    keepers: list[tuple[int, int, int, str]]

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, table: LayerTable) -> _Flow:
        """Cached: a comparison asks for two precisions."""
        layers, inputs, last = table.layers, layer_inputs(table), len(table) - 1
        stored = [*range(len(table)), IMAGE]
        for position, layer in enumerate(layers):
            if layer.type in VIEW_TYPES:
                stored[position] = stored[inputs[position][0] if inputs[position] else position - 1]
        elements = [*map(output_elements, layers), input_elements(layers[0]) if layers else 0.0]
        ends = [last if layer.backward_after is None else layer.backward_after for layer in layers]
        learns = np.array([*map(_learns, layers)], dtype=bool)
        return cls(np.array(ends, dtype=int), learns, stored, elements, list(_keepers(table, stored)))


def _old_gradients(table: LayerTable, parameters: Bytes) -> tuple[dict[int, float], Bytes]:
    """Parameters whose gradients from the step before are still held, at two kinds of moments.

    First at the end of forward passes, by their last layer, where any are held; then while each layer runs its last
    pass, (n_layers,).
    """
    ends = _Flow.of(table).ends
    until = np.array([-1 if layer.old_gradient is None else layer.old_gradient for layer in table], dtype=int)
    if (until < 0).all():
        return {}, np.zeros(len(table))
    at_end = {end: float(parameters[until >= end].sum()) for end in sorted(set(ends.tolist()))}
    outlives = (until[None, :] >= ends[:, None]) & (ends[None, :] != ends[:, None])
    return {end: held for end, held in at_end.items() if held}, outlives @ parameters


def _kept(table: LayerTable, precision: str) -> Bytes:
    """Bytes per image of activations that are kept while a layer runs its last pass, (n_layers,).

    Of a part that is computed again, only what it reads is kept, until the backward pass has come to it.
    """
    flow, entries = _Flow.of(table), _kept_by_part(table, precision)
    held = _held(entries.pop(0), flow.ends, flow.learns)
    parts = np.array([layer.recomputed or 0 for layer in table], dtype=int)
    for number, activations in entries.items():
        first, _, size = _columns(activations)
        held += np.where(parts == number, np.cumsum(np.bincount(first, size, len(table))), 0.0)
    return held


def _kept_by_part(table: LayerTable, precision: str) -> dict[int, list[_Kept]]:
    """What is kept for the backward pass, by recomputed part; part 0 are layers of none."""
    flow, tensors = _Flow.of(table), _Tensors.of(table, precision)
    entries: dict[int, list[_Kept]] = {0: []}
    for position, (layer, end) in enumerate(zip(table, flow.ends.tolist(), strict=True)):
        if _learns(layer):
            more = OPERATOR_TYPES[layer.type].kept_bytes_per_output * flow.elements[position]
            entries.setdefault(layer.recomputed or 0, []).append(_Kept(position, end, more))
    for (number, tensor, copied_by), (first, end) in _kept_tensors(table, tensors).items():
        sizes = tensors.bytes if copied_by is None else tensors.copy_bytes
        entries.setdefault(number, []).append(_Kept(first, end, sizes[tensor]))
    return entries


class _Kept(NamedTuple):
    """Bytes per image, kept from the layer at `first` until the backward pass that begins after `end` comes to it."""

    first: int
    end: int
    bytes: float


def _columns(kept: Sequence[_Kept]) -> tuple[NDArray[np.int64], NDArray[np.int64], Bytes]:
    first, end, size = np.array(kept, dtype=float).reshape(-1, 3).T
    return first.astype(int), end.astype(int), size


def _held(kept: Sequence[_Kept], ends: NDArray[np.int64], learns: NDArray[np.bool_]) -> Bytes:
    """Bytes held while each layer runs its last pass, (n_layers,).

    In its backward pass, what is kept by layers that ran before this began and that it has not gone through yet; in
    the forward pass of a layer that has no other, what layers before keep for a backward pass to come.
    """
    n, (first, until, size) = len(ends), _columns(kept)
    held = _in_spans(kept, n)
    for end in sorted(set(ends[learns].tolist())):
        later = sum(size[(first <= end) & (end < until)].tolist())
        own = np.cumsum(np.bincount(first[until == end], size[until == end], n))
        runs_last = learns & (ends == end)
        held[runs_last] = later + own[runs_last]
    return held


def _in_spans(kept: Sequence[_Kept], n: int) -> Bytes:
    """Bytes held at each of n layers, of what is held from the first to the last layer of its span."""
    first, last, size = _columns(kept)
    changes = np.bincount(first, size, n + 1)
    np.subtract.at(changes, last + 1, size)
    return np.asarray(np.cumsum(changes)[:n], dtype=float)


def _gradients(table: LayerTable, precision: str) -> Bytes:
    """Bytes per image of activations' gradients by layer, (n_layers,): from a tensor's last reader to its writer.

    Of layers without a backward pass, their own maps from the layer that writes one to the last that reads it.
    """
    n, sizes, flow = len(table), _Tensors.of(table, precision).bytes, _Flow.of(table)
    learns, ends, stored = flow.learns, flow.ends.tolist(), flow.stored
    last_reader: dict[int, int] = {}
    last_gradient = {n - 1: n - 1} if n else {}
    for i, (layer, sources) in enumerate(zip(table, layer_inputs(table), strict=True)):
        for source in sources:
            last_reader[stored[source]] = i
            if layer.input_gradients != 0:
                last_gradient[stored[source]] = i
    spans: dict[int, list[_Kept]] = {}  # by the end after which the backward pass of the reader begins
    for tensor, last in last_gradient.items():
        if tensor != IMAGE:
            spans.setdefault(ends[last], []).append(_Kept(tensor, last, sizes[tensor]))
    alive = np.zeros(n)
    for end, of_end in spans.items():
        alive += np.where(learns & (flow.ends == end), _in_spans(of_end, n), 0.0)
    unlearned = []
    for i in np.flatnonzero(~learns).tolist():
        tensor = stored[i]
        if tensor != IMAGE and not learns[tensor]:
            unlearned.append(_Kept(i, max(i, last_reader.get(tensor, i)), sizes[tensor]))
    return alive + np.where(learns, 0.0, _in_spans(unlearned, n))


def _workspace(table: LayerTable, precision: str) -> Bytes:
    """Bytes per image that a layer needs while it runs: of a convolution's transposed maps, of other layers' copies."""
    needed, tensors, elements = np.zeros(len(table)), _Tensors.of(table, precision), _Flow.of(table).elements
    for position, layer in enumerate(table):
        if OPERATOR_TYPES[layer.type].is_convolution:
            needed[position] = ELEMENT_BYTES[precision] * (input_elements(layer) + elements[position])
        elif layer.overwrites == 2 or (layer.type == "clamp" and _learns(layer)):
            needed[position] = _MAPS_OF_COPIES * tensors.bytes[position]
    return needed


def _kept_tensors(table: LayerTable, tensors: _Tensors) -> dict[tuple[int, int, int | None], tuple[int, int]]:
    """Outputs that are kept for the backward pass: the first layer that keeps each, and the end until which it is.

    By recomputed part, the layer that wrote it (IMAGE: the CNN's input), and the layer that keeps a copy of it in
    another precision, if one does. Part 0 are layers of none, and what each part reads at its beginning.
    """
    flow, wide = _Flow.of(table), tensors.wide
    kept: dict[tuple[int, int, int | None], tuple[int, int]] = {}
    if len(table):  # the loop holds its images until the step is over
        kept[0, IMAGE, None] = 0, len(table) - 1
    ends = flow.ends.tolist()
    for number, tensor, keeper, output in flow.keepers:
        is_copied = bool(wide) and output == ("narrow" if wide[tensor] else "wide")
        key = number, tensor, keeper if is_copied else None
        first, end = kept.get(key, (keeper, 0))
        kept[key] = first, max(end, ends[keeper])
    return kept


def _keepers(table: LayerTable, stored: Sequence[int]) -> Iterator[tuple[int, int, int, str]]:
    """Part that is recomputed (0: none), tensor, layer that keeps it, and `amp_output` of one that may keep a copy."""
    layers, learns = table.layers, [*map(_learns, table), False]  # the last is of IMAGE
    for position, (layer, sources) in enumerate(zip(layers, layer_inputs(table), strict=True)):
        (keeps_input, keeps_output), number = _keeps(layer), layer.recomputed or 0
        if keeps_output:
            yield number, position, position, ""
        # else a factor is kept for another map's gradient
        is_alone = layer.type != "multiply" or layer.parameters > 0
        for reader, source in enumerate(sources):
            others = (*sources[:reader], *sources[reader + 1 :])
            if number and (source == IMAGE or layers[source].recomputed != number):
                yield 0, stored[source], position, ""
            elif keeps_input and (is_alone or any(learns[other] for other in others)):
                yield number, stored[source], position, amp_output(layer)


def _learns(layer: Layer) -> bool:
    """Whether the backward pass comes to a layer."""
    return layer.forwards is None or bool(layer.input_gradients or layer.weight_gradients)


def _keeps(layer: Layer) -> tuple[bool, bool]:
    """Whether the backward pass needs a layer's input, and its output; an activation needs one of the two."""
    entry = OPERATOR_TYPES[layer.type]
    # PyTorch's convolutions keep their input even where only its gradient is computed.
    is_product = entry.product == "linear" or (layer.type == "multiply" and layer.parameters > 0)
    if not _learns(layer) or (is_product and layer.weight_gradients == 0):
        return False, False
    if layer.keeps is not None:
        return layer.keeps % 2 == 1, layer.keeps > 1
    if layer.type != "activation":
        return entry.keeps_input, entry.keeps_output
    kind = ACTIVATIONS.get(layer.kind or "")
    keeps_output = kind is not None and (
        kind.keeps_output or (kind.keeps_output_in_place and layer.overwrites != 0)
    )
    return not keeps_output, keeps_output


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Bytes per image of each layer's output, and last of the CNN's input.

    Under automatic mixed precision some are `wide`, of 32 bits; `copy_bytes` are those of copies in the other
    precision, which a layer of it keeps instead.
    """

    bytes: list[float]
    copy_bytes: list[float]
    wide: Mapping[int, bool]

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, table: LayerTable, precision: str) -> _Tensors:
        elements, narrow = _Flow.of(table).elements, ELEMENT_BYTES[precision]
        if not precision.startswith("amp"):
            return cls([narrow * n for n in elements], [], {})
        wide, size_of = wide_outputs(table)[0], {True: _FP32_BYTES, False: narrow}
        pairs = [(n, wide[at]) for n, at in zip(elements, (*range(len(table)), IMAGE), strict=True)]
        return cls([size_of[own] * n for n, own in pairs], [size_of[not own] * n for n, own in pairs], wide)


def input_elements(layer: Layer) -> float:
    """Numbers that a layer reads of one image."""
    return float(layer.repeats * (layer.in_channels or 0) * (layer.in_height or 1) * (layer.in_width or 1))


def output_elements(layer: Layer) -> float:
    """Numbers that a layer writes of one image."""
    if layer.out_channels is None:
        return input_elements(layer)
    return float(layer.repeats * layer.out_channels * (layer.out_height or 1) * (layer.out_width or 1))
