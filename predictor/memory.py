"""Peak GPU memory of one training iteration, estimated from the layer table.

Called by predict and compare; calls layers and modes. The kept activations agree with what PyTorch itself
saves (a test holds them to 2 %), but no whole peak has been compared with a measurement yet, so every answer
that carries one says ``memory_estimate_validated: False``.

What is counted, after PyTorch's own rules (``tools/autograd/derivatives.yaml`` of PyTorch 2 says what each
operator saves for its backward pass, the documentation of `torch.amp` what stays fp32):

- weights, one gradient per weight, and the optimizer's state (momentum 1 x, Adam 2 x the weights);
- AMP's 16-bit copies of the weights;
- activations kept from forward to backward: a tensor that several operators keep is counted once;
- the gradients of activations that are alive at once, the largest over all operators;
- a workspace as large as the largest convolution's input and output;
- the CUDA context with cuDNN's and cuBLAS's kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from predictor.layers import IMAGE, Layer, LayerTable
from predictor.modes import Mode

__all__ = [
    "CONTEXT_GIB",
    "MEMORY_ESTIMATE_VALIDATED",
    "MemoryEstimate",
    "peak_memories_gib",
    "peak_memory",
    "peak_memory_gib",
]

MEMORY_ESTIMATE_VALIDATED = False
"""Turns True when estimates have been compared with measured peaks."""

CONTEXT_GIB = 0.5
"""CUDA context with the libraries' kernels: 0.3 to 0.6 GiB in practice, by driver and GPU."""

_GIB = 2**30
_OPTIMIZER_STATES = {"sgd": 0, "momentum": 1, "adam": 2}
_KEEPS_INPUT = frozenset(
    {
        "conv2d",
        "conv_transpose2d",
        "linear",
        "batch_norm",
        "layer_norm",
        "max_pool",
        "avg_pool",
        "multiply",
        "other",
    }
)
# In place or not, these keep their result; the others keep what they read (in place, a copy of it).
_KEEPS_OUTPUT = frozenset({"relu", "leaky_relu", "sigmoid", "tanh", "softmax"})
_VIEWS = frozenset({"flatten"})


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Parts of the peak in bytes; `peak_gib` is their sum in GiB (2^30 bytes)."""

    weights: float
    gradients: float
    optimizer_state: float
    activations: float
    activation_gradients: float
    workspace: float
    context: float

    @property
    def peak_gib(self) -> float:
        """Everything together, in GiB."""
        parts = (self.weights, self.gradients, self.optimizer_state, self.activations)
        return (sum(parts) + self.activation_gradients + self.workspace + self.context) / _GIB


def peak_memory(table: LayerTable, batch_size: int, mode: Mode | None = None) -> MemoryEstimate:
    """Estimated peak memory of a training iteration, part by part.

    Parameters
    ----------
    table : LayerTable
    batch_size : int
        Images per mini-batch, >= 1.
    mode : Mode, optional
        Its precision and optimizer count; the default is fp32 with momentum.

    Returns
    -------
    MemoryEstimate
        Bytes per part; not validated by measurements (`MEMORY_ESTIMATE_VALIDATED`).

    Notes
    -----
    peak = P w (1 + 1 + s) + P c + b (A + G + W) + context, with P parameters, w bytes per weight, s optimizer
    states, c bytes of AMP's copies, b the batch size, and A, G, W bytes per image of kept activations, of the
    largest pair of activation gradients, and of the workspace. The sum is an upper estimate: weight gradients
    appear while activations go.
    """
    return _law(table, mode or Mode()).at(batch_size)


def peak_memories_gib(table: LayerTable, batch_sizes: Sequence[int], mode: Mode | None = None) -> list[float]:
    """`peak_memory_gib` at each of many batch sizes; the layers are gone through once."""
    law = _law(table, mode or Mode())
    return [law.at(batch_size).peak_gib for batch_size in batch_sizes]


def peak_memory_gib(table: LayerTable, batch_size: int, mode: Mode | None = None) -> float:
    """Estimated peak memory of a training iteration in GiB (2^30 bytes); see `peak_memory`."""
    return peak_memory(table, batch_size, mode).peak_gib


@dataclass(frozen=True, slots=True)
class _Law:
    """Bytes that any batch size needs, and bytes for each image of a batch."""

    weights: float
    gradients: float
    optimizer_state: float
    activations_per_image: float
    activation_gradients_per_image: float
    workspace_per_image: float

    def at(self, batch_size: int) -> MemoryEstimate:
        return MemoryEstimate(
            weights=self.weights,
            gradients=self.gradients,
            optimizer_state=self.optimizer_state,
            activations=batch_size * self.activations_per_image,
            activation_gradients=batch_size * self.activation_gradients_per_image,
            workspace=batch_size * self.workspace_per_image,
            context=CONTEXT_GIB * _GIB,
        )


def _law(table: LayerTable, mode: Mode) -> _Law:
    element, weight = _element_bytes(mode.precision), _weight_bytes(mode.precision)
    elements = [_input_elements(layer) + _output_elements(layer) for layer in table]
    convolutions = [
        _input_elements(layer) + _output_elements(layer) for layer in table if layer.type.startswith("conv")
    ]
    buffers = sum(8.0 * (layer.out_channels or 0) for layer in table if layer.type == "batch_norm")
    parameters = table.parameters
    copies = 2.0 * parameters if mode.precision.startswith("amp") else 0.0
    return _Law(
        weights=parameters * weight + buffers + copies,
        gradients=parameters * weight,
        optimizer_state=parameters * weight * _OPTIMIZER_STATES[mode.optimizer],
        activations_per_image=activation_bytes_per_image(table, mode.precision),
        activation_gradients_per_image=element * max(elements, default=0.0),
        workspace_per_image=element * max(convolutions, default=0.0),
    )


def activation_bytes_per_image(table: LayerTable, precision: str = "fp32") -> float:
    """Bytes per image that the forward pass keeps for the backward pass.

    Each kept tensor counts once, under the layer that wrote it: ReLU and the convolution that reads it keep
    the same tensor. Max pooling adds an 8-byte index per output, dropout a 1-byte mask, AMP's fp32 layer norm
    a 4-byte copy of its input.
    """
    sizes = _tensor_elements(table)
    extra = sum(_extra_bytes(layer, precision) for layer in table)
    return extra + _element_bytes(precision) * sum(sizes[tensor] for tensor in _kept_tensors(table))


def _kept_tensors(table: LayerTable) -> set[int]:
    """Find the layers whose outputs are kept for the backward pass (IMAGE: the CNN's input)."""
    by_index = {layer.index: layer for layer in table}
    kept: set[int] = set()
    for position, layer in enumerate(table):
        keeps_output = layer.type == "activation" and layer.kind in _KEEPS_OUTPUT
        if keeps_output or layer.type == "other":
            kept.add(layer.index)
        if layer.type in _KEEPS_INPUT or (layer.type == "activation" and not keeps_output):
            kept |= {_stored_as(by_index, source) for source in _inputs(table, position)}
    return kept


def _inputs(table: LayerTable, position: int) -> tuple[int, ...]:
    """Say what the layer reads; where the table does not, the layer before it."""
    known = table.layers[position].inputs
    if known is not None:
        return known
    return (table.layers[position - 1].index,) if position else (IMAGE,)


def _stored_as(by_index: dict[int, Layer], index: int) -> int:
    """Find the layer that owns the memory of `index`'s output: a view owns none."""
    while index in by_index and by_index[index].type in _VIEWS:
        sources = by_index[index].inputs
        index = sources[0] if sources else index - 1
    return index if index in by_index else IMAGE


def _tensor_elements(table: LayerTable) -> dict[int, float]:
    """Elements per image of each layer's output, and of the CNN's input."""
    sizes = {layer.index: _output_elements(layer) for layer in table}
    sizes[IMAGE] = _input_elements(table.layers[0]) if table.layers else 0.0
    return sizes


def _extra_bytes(layer: Layer, precision: str) -> float:
    if layer.type == "max_pool":
        return 8.0 * _output_elements(layer)
    if layer.type == "dropout":
        return 1.0 * _output_elements(layer)
    if layer.type == "layer_norm" and precision.startswith("amp"):
        return 4.0 * _input_elements(layer)
    return 0.0


def _input_elements(layer: Layer) -> float:
    return float((layer.in_channels or 0) * (layer.in_height or 1) * (layer.in_width or 1))


def _output_elements(layer: Layer) -> float:
    if layer.out_channels is None:
        return _input_elements(layer)
    return float(layer.out_channels * (layer.out_height or 1) * (layer.out_width or 1))


def _element_bytes(precision: str) -> float:
    return 4.0 if precision in ("fp32", "tf32") else 2.0


def _weight_bytes(precision: str) -> float:
    return 2.0 if precision == "fp16" else 4.0
