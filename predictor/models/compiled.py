"""What torch.compile changes in an iteration: it fuses what lies between matrix products, and copies and casts less.

Inductor, PyTorch's compiler, leaves convolutions to cuDNN, whose kernels take as long as before, and makes one kernel
of the batch norms, activations and additions between two of them, which then read and write the feature maps once.
Casts of autocast become part of these. Its kernels of other norms and of pools
take what their bytes take, however slow the eager ones are. It also runs most CNNs channels-last, whatever the memory
format of the model, which is more than half of what it gains in TF32. Loss and optimizer stay.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.devices import COMPILES_FROM, ELEMENT_BYTES, Gpu, compiles, is_cpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.chainer import CONVOLUTIONS, PRODUCTS
from predictor.models.forecast import IterationForecast, Reason
from predictor.models.hosts import autocast_host, enqueued
from predictor.models.ratios import Change, DerivedMode, Ratios, ratios_of
from predictor.operators.operators import Operator, operators_of, trained_tensors
from predictor.operators.work import moved_bytes, operator_class

UNCHANGED = ("loss", "optimizer")
"""Classes of operators that are not compiled."""

_SMALL = 64  # channels
_NORMS_AND_POOLS = ("layer_norm", "pooling")


def check_compiles(gpu: Gpu, mode: Mode) -> None:
    """Raise OutOfRangeError where torch.compile does not run: other frameworks, CPUs and GPUs before Volta."""
    if mode.framework != "pytorch":
        raise OutOfRangeError(
            f"capture {mode.capture} is PyTorch's torch.compile, which {mode.framework} does not have. Leave capture "
            "out, or pass framework pytorch."
        )
    if is_cpu(gpu.name):
        raise OutOfRangeError(
            f"capture {mode.capture} is predicted on GPUs, not on {gpu.name}. Pass capture eager."
        )
    if not compiles(gpu):
        raise OutOfRangeError(
            f"{gpu.name} has compute capability {gpu.compute_capability:g}, and torch.compile makes kernels from "
            f"{COMPILES_FROM} on. Pass capture eager or graph, or a GPU from Volta on."
        )


def eager_mode(table: LayerTable, mode: Mode) -> Mode:
    """The eager mode whose convolutions are those of the compiled iteration.

    PyTorch's compiler makes a training CNN channels-last unless a convolution has groups of several channels, one with
    a window halves its channels or more, or all are small (`torch._inductor.graph.GraphLowering.decide_layout_opt`).
    """
    kinds = [_layout_of(layer) for layer in table if layer.type == "conv2d"]
    keeps = not kinds or "keeps" in kinds or set(kinds) == {"small"}
    return replace(mode, capture="eager", memory_format=mode.memory_format if keeps else "channels_last")


def _layout_of(layer: Layer) -> str:
    """Effect of a convolution on the layout: it ``keeps`` the model's, is too ``small`` to turn it, or ``turns`` it."""
    own = (layer.in_channels or 1) // (layer.groups or 1)
    halves = 2 * (layer.out_channels or 1) <= own and (layer.kernel_height or 1) > 1
    if halves or ((layer.groups or 1) > 1 and own > 1):
        return "keeps"
    return "small" if max(layer.out_channels or 1, own) <= _SMALL else "turns"


def _known_mode(table: LayerTable, gpu: Gpu, mode: Mode) -> Mode:
    check_compiles(gpu, mode)
    return eager_mode(table, mode)


def eager_parts_ms(
    eager: IterationForecast, table: LayerTable, gpu: Gpu, precision: str, batch_sizes: Array
) -> tuple[Array, Array, Array, Array]:
    """GPU times in ms, each (n_batches,), of the four parts that compiling changes differently.

    Eager convolutions and matrix products; eager elementwise work and batch norms; the bytes of other norms and of
    pools at the GPU's bandwidth; loss and optimizer.
    """
    class_ms = eager.class_ms

    def of(names: tuple[str, ...]) -> Array:
        own = (class_ms[name] for name in names if name in class_ms)
        return sum(own, np.zeros_like(eager.gpu_time_ms))

    products, unchanged = of((*CONVOLUTIONS, *PRODUCTS)), of(UNCHANGED)
    elementwise = eager.gpu_time_ms - products - unchanged - of(_NORMS_AND_POOLS)
    return products, elementwise, _bytes_ms(table, gpu, precision, batch_sizes), unchanged


@lru_cache(maxsize=256)
def _norms_and_pools(table: LayerTable) -> dict[Operator, float]:
    counts = operators_of(table)
    return {operator: counts[operator] for operator in counts if operator_class(operator) in _NORMS_AND_POOLS}


def _bytes_ms(table: LayerTable, gpu: Gpu, precision: str, batch_sizes: Array) -> Array:
    """Time of the bytes that norms other than batch norms, and pools, move at the GPU's bandwidth."""
    counts = _norms_and_pools(table)
    moved = moved_bytes(list(counts), batch_sizes / table.parts, ELEMENT_BYTES[precision])
    total: Array = np.array(list(counts.values()), dtype=float) @ moved.reshape(len(counts), -1)
    return total / (1e6 * gpu.memory_bandwidth_gb_per_s)


def _change(
    eager: IterationForecast, table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Array, ratios: Ratios
) -> Change:
    own = [name for name in _NORMS_AND_POOLS if name in eager.class_ms]
    products = ratios["products"] if changes_products(mode) else 1.0
    classes: dict[str, float | Array] = dict.fromkeys((*CONVOLUTIONS, *PRODUCTS), products)
    classes |= dict.fromkeys(UNCHANGED, 1.0)
    if own:
        bytes_ms = _bytes_ms(table, gpu, mode.precision, batch_sizes)
        eager_ms = sum((eager.class_ms[name] for name in own), np.zeros_like(bytes_ms))
        classes |= dict.fromkeys(own, ratios["bytes"] * bytes_ms / eager_ms)
    host = ratios["host"]
    if mode.capture != "compile":  # of a replayed graph little but the optimizer's is left
        left = ratios["graph_layers"] + ratios["graph_tensor"] * trained_tensors(table)
        host = left / enqueued(table, mode.optimizer)
    reasons = _reasons(ratios, table, gpu, mode, batch_sizes)
    elementwise, spreads = ratios[elementwise_of(table, mode)], (ratios.spread_on(gpu), ratios.host_spread)
    return Change(elementwise, classes, host / autocast_host(mode), *spreads, reasons)


def changes_products(mode: Mode) -> bool:
    """Whether convolutions and products take another time than in eager iterations: those that autocast casts."""
    return mode.precision.startswith("amp")


def elementwise_of(table: LayerTable, mode: Mode) -> str:
    """Name of the ratio of elementwise work and batch norms; Inductor sums a channel faster where it is one row."""
    is_last = eager_mode(table, mode).memory_format == "channels_last"
    return "elementwise" if is_last else "elementwise_nchw"


COMPILED = DerivedMode("compile", _known_mode, lambda mode: replace(mode, capture="eager"), _change)
"""Compiled iterations from eager ones in `eager_mode`.

GPU time = `products` x eager convolutions and matrix products under autocast, their casts with them, else all of it
+ `elementwise`, or `elementwise_nchw`, x what lies between them, batch norms too + `bytes` x the time of the bytes of
other norms and of pools at the GPU's bandwidth + loss and optimizer; host time = `host` x that of the eager one in the
model's own memory format and without autocast, whose casts are compiled: a compiled iteration costs the host 0.033 ms
for each of its kernels, whatever the precision. With ``mode="reduce-overhead"`` (``compile_graph``) it costs
`graph_layers` + `graph_tensor` x parameter tensors, in passes of a mean layer (16 iterations of six CNNs on an H100's
machine beside the reference iteration). Compiling takes `compile_s` + `compile_layer_s` x layers, in seconds, within
e^`compile_spread`. Elsewhere than on measured GPUs the
ratio varies as that of forward passes of 1,625 CNNs and transformers does from a GeForce RTX 4090 to a 5090 (timm).
"""


def _reasons(
    ratios: Ratios, table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Array
) -> tuple[tuple[Reason, ...], ...]:
    """Reasons for caution at each batch size, where torch.compile was not measured alike."""
    common = []
    if not ratios.measured_on(gpu):  # the width of another GPU is in the interval
        common.append(Reason("capture", "compile was measured only on an H100 and an H200", 1.0))
    if mode.precision not in ratios.precisions:
        common.append(Reason("capture", f"compile was measured only in {' and '.join(ratios.precisions)}"))
    unlike = sorted({layer.type for layer in table} - {*ratios.types})
    if unlike:
        common.append(Reason("capture", f"compile was measured on no CNN with {', '.join(unlike)}"))
    least, most = ratios.batch_sizes
    beyond = (*common, Reason("capture", f"compile was measured only at batch sizes {least} to {most}"))
    sizes = (batch_sizes / table.parts).tolist()
    return tuple(tuple(common) if least <= size <= most else beyond for size in sizes)


def measured_where() -> str:
    """Where compiled iterations were measured, in words."""
    least, most = ratios_of("compile").batch_sizes
    return f"at batch {least} to {most} on an H100 and an H200"


def compile_seconds(table: LayerTable) -> float:
    """Seconds of the first iteration, which compiles the CNN, on the measured hosts."""
    ratios = ratios_of("compile")
    return ratios["compile_s"] + ratios["compile_layer_s"] * len(table)


def compile_spread() -> float:
    """Factor f of the 90 % interval of these seconds: seconds / f to seconds x f."""
    return float(np.exp(ratios_of("compile")["compile_spread"]))
