"""Splits an iteration's GPU time by pass, and says what frozen and recomputed parts of a training step save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Rates
from predictor.cnns.layer_table import LayerTable
from predictor.operators.operators import has_bias, layer_operators, operators_of, pass_weights
from predictor.operators.work import operator_class, roofline_ms

Array = NDArray[np.float64]

PASSES_OF_STEP = ("forward", "recomputed", "backward_input", "backward_weight", "update", "other")
"""Passes of a training step: forward, the same again by gradient checkpointing, gradients of inputs and of weights, the
optimizer, and time outside the layers."""


@dataclass(frozen=True, slots=True)
class PartEffect:
    """What the ``frozen`` or ``recomputed`` parts of a step save at each batch size; below 0 is what they cost.

    `saves_ms` is the iteration time of the same step with these parts trained, or kept in memory, less its own;
    `saves_gib` the same of peak memory.
    """

    part: str
    saves_ms: tuple[float, ...]
    saves_gib: tuple[float, ...]


def passes_ms(
    table: LayerTable, rates: Rates, batch_sizes: Array, class_ms: Mapping[str, Array]
) -> dict[str, dict[str, Array]]:
    """GPU time by pass, then operator class, each of shape (n_batches,), in ms; passes that do not run are left out.

    Raises
    ------
    SchemaError
        If a layer lacks the shape that its work follows from.

    Notes
    -----
    A class's time is split in proportion to its operators' roofline times, and each operator's among its passes by
    `predictor.operators.operators.pass_weights`, as often as they run. Half of the loss is forward.
    """
    weights = _weights(table, rates, np.asarray(batch_sizes, dtype=float))
    found: dict[str, dict[str, Array]] = {name: {} for name in PASSES_OF_STEP}
    for name, ms in class_ms.items():
        parts = weights.get(name)
        if parts is None:
            found["other"][name] = ms
            continue
        total = sum(parts.values())
        for pass_, part in parts.items():
            found[pass_][name] = ms * part / total
    return {pass_: by_class for pass_, by_class in found.items() if by_class}


def _weights(table: LayerTable, rates: Rates, sizes: Array) -> dict[str, dict[str, Array]]:
    """Relative time of each class's passes, of shape (n_batches,)."""
    found: dict[str, dict[str, Array]] = {}

    def add(of_class: str, pass_: str, ms: Array) -> None:
        by_pass = found.setdefault(of_class, {})
        by_pass[pass_] = by_pass.get(pass_, np.zeros(sizes.size)) + ms

    by_layer = layer_operators(table)
    for (position, operator), least in zip(
        by_layer.items(), roofline_ms(list(by_layer.values()), sizes, rates), strict=True
    ):
        layer = table.layers[position]
        weights, again = pass_weights(layer), table.recomputations(layer)
        gradients = (int(operator.input_gradient), 1)
        if layer.forwards is not None:
            gradients = (layer.input_gradients or 0, layer.weight_gradients or 0)
        first = (layer.forwards or 1) - again
        once = sum(weights) if operator.input_gradient else weights[0] + weights[2]
        order = (weights[0], weights[0], weights[1], weights[2])
        for pass_, runs, weight in zip(PASSES_OF_STEP, (first, again, *gradients), order, strict=False):
            if runs * weight:
                add(operator_class(operator), pass_, least * runs * weight / once)
        if has_bias(
            layer
        ):  # a kernel of its own where the law is one of kernels: it reads and writes, then reads
            for pass_, numbers in zip(PASSES_OF_STEP, (2 * first, 2 * again, 0, gradients[1]), strict=False):
                if numbers:
                    add("bias", pass_, sizes * numbers * layer.repeats * (layer.out_channels or 1)
                        * (layer.out_height or 1) * (layer.out_width or 1))  # fmt: skip
    others = {
        op: n for op, n in operators_of(table).items() if op.passes == "forward" or op.type in _PASSES_OF
    }
    for (operator, count), least in zip(others.items(), roofline_ms(list(others), sizes, rates), strict=True):
        passes = _PASSES_OF.get(operator.type, ("backward_input",))
        for pass_ in passes:
            add(operator_class(operator), pass_, count * least / len(passes))
    return found


_PASSES_OF = {"optimizer": ("update",), "loss": ("forward", "backward_input")}
"""Passes of operators that are no layers; sums and joins of gradients are gradients of inputs."""
