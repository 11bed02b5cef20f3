"""Layers whose form costs much beside the best form of the same arithmetic: layouts, channels, concatenations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from predictor.answers.resolved import Device
from predictor.arrays import Array
from predictor.catalogue.devices import ELEMENT_BYTES, is_cpu
from predictor.catalogue.modes import MEMORY_FORMATS
from predictor.cnns.layer_table import LayerTable
from predictor.models.layer_times.files import LayerModels, library_mode
from predictor.models.layer_times.law import operators_in
from predictor.operator_types import OPERATOR_TYPES, RESIZING_TYPES
from predictor.operators.operators import (
    Operator,
    Operators,
    filters_of,
    has_bias,
    in_fp32,
    is_depthwise,
    layer_operators,
    operators_of,
)
from predictor.operators.work import base_ms, copies_between, device_rates, in_cnn_ms, loops_of

_MOST_FORMS = 3
_LEAST_SAVED = 0.01  # share of the GPU's time that a form must save to be named
_LEAST_FACTOR = 1.2  # times that the best form takes, above which a form is named
_EIGHT = 8  # channels that tensor cores of 16 bits take at once
_IN_WORDS = {"nchw": "in NCHW", "channels_last": "in channels-last"}
_NEAREST = "upsample_nearest"
_AFTER = "normalised after the concatenation"


@dataclass(frozen=True, slots=True)
class FormCost:
    """What `count` layers of one form take in an iteration, `ms`, and `best_ms` in a better form, `best`.

    `layer` is the one that costs most; `form` says it in words.
    """

    layer: str
    form: str
    count: int
    ms: float
    best: str
    best_ms: float

    def __str__(self) -> str:
        alike = f" and {self.count - 1} more" * (self.count > 1)
        return f"{self.layer}{alike}, {self.form}: {self.ms:.3g} ms; {self.best} {self.best_ms:.3g}."


def resizing_ms(
    models: LayerModels, table: LayerTable, device: Device, batch_size: float, type_: str = ""
) -> float:
    """Time of a CNN's resizing, in ms; all by `type_` if it is given; 0 in frameworks other than PyTorch, on a CPU."""
    gpu, mode = device
    counted = {op: count for op, count in operators_of(table).items() if op.type in RESIZING_TYPES}
    if not counted or mode.framework != "pytorch" or is_cpu(gpu.name):
        return 0.0
    operators = [replace(operator, type=type_ or operator.type) for operator in counted]
    times = _times_ms(models, operators, device, np.array([batch_size / table.parts]))
    return table.parts * float(times @ list(counted.values()))


def dear_forms(
    models: LayerModels, table: LayerTable, device: Device, batch_size: int, gpu_time_ms: float
) -> tuple[FormCost, ...]:
    """Layers whose form costs most beside its best form at a batch size, three at most, that of most ms first.

    From operators measured on the GPU's chip in both forms, resizing elsewhere by specifications; empty in frameworks
    other than PyTorch, compiled, and on a CPU. Times are of layers by themselves, without changes of layout between.
    """
    gpu, mode = device
    if mode.framework != "pytorch" or mode.is_compiled or is_cpu(gpu.name):
        return ()
    own_format = mode.memory_format
    [other] = {*MEMORY_FORMATS} - {own_format}
    narrow = ELEMENT_BYTES[mode.precision] < ELEMENT_BYTES["fp32"]
    names: dict[Operator, list[str]] = {}
    for position, operator in layer_operators(table).items():
        names.setdefault(operator, []).append(table.layers[position].name)
    operators, size = list(names), np.array([batch_size / table.parts])

    def times_ms(changed: Sequence[Operator], memory_format: str) -> Array:
        return _times_ms(models, changed, (gpu, replace(mode, memory_format=memory_format)), size)

    own_ms, other_ms = times_ms(operators, own_format), times_ms(operators, other)
    even_ms = times_ms([_even(operator) if narrow else operator for operator in operators], own_format)
    costs: dict[tuple[str, str], list[FormCost]] = {}
    for i, (operator, layers) in enumerate(names.items()):
        count = len(layers) * table.parts
        forms: dict[str, float] = {}
        if operator.sliced and operator.type == "batch_norm":  # else the convolution copies the slice
            slice_ = copies_between([replace(operator, type="conv2d")], mode.precision, own_format)
            copied_ms = slice_.ms(size, device_rates(gpu.name, mode.precision))
            forms[_AFTER] = times_ms([replace(operator, sliced=False)], own_format)[0] + copied_ms[0, 0]
        forms |= {_IN_WORDS[other]: other_ms[i], f"with channels in multiples of {_EIGHT}": even_ms[i]}
        if operator.type in RESIZING_TYPES and own_format == "channels_last" and loops_of(operator).us_last:
            forms["by mode='nearest'"] = times_ms([replace(operator, type=_NEAREST)], own_format)[0]
        best = min(forms, key=lambda form: forms[form] if forms[form] > 0 else np.inf)
        ms, best_ms = count * own_ms[i], count * forms[best]
        if operator.type != _NEAREST and best_ms > 0 and ms > _LEAST_FACTOR * best_ms:
            words = f"{' '.join(_words(operator))}{' before a concatenation' * (best == _AFTER)}"
            form = f"{words} {_IN_WORDS[own_format]}"
            cost = FormCost(layers[0], form, len(layers), ms, best, best_ms)
            costs.setdefault((form, best), []).append(cost)
    dear = sorted(map(_together, costs.values()), key=lambda cost: cost.best_ms - cost.ms)[:_MOST_FORMS]
    return tuple(cost for cost in dear if cost.ms - cost.best_ms > _LEAST_SAVED * gpu_time_ms)


def _together(costs: Sequence[FormCost]) -> FormCost:
    """Costs of one form as one."""
    dearest = max(costs, key=lambda cost: (cost.ms - cost.best_ms) / cost.count)
    names = ("count", "ms", "best_ms")
    sums: dict[str, Any] = {name: sum(getattr(cost, name) for cost in costs) for name in names}
    return replace(dearest, **sums)


def _even(operator: Operator) -> Operator:
    """The operator with channels in multiples of eight, but for the image's and those of grouped convolutions."""
    if OPERATOR_TYPES[operator.type].product is None or (operator.groups or 1) > 1:
        return operator
    ins, outs = (-(-(n or 1) // _EIGHT) * _EIGHT for n in (operator.in_channels, operator.out_channels))
    read = ins if operator.input_gradient else operator.in_channels or 1
    wider = replace(operator, in_channels=read, out_channels=outs)
    return (
        replace(wider, parameters=filters_of(wider) + outs * has_bias(operator))
        if operator.parameters
        else wider
    )


def _words(operator: Operator) -> Iterator[str]:
    """Words for an operator's form: its window, its type, and whether its channels are no multiples of eight."""
    if operator.kernel_height and operator.kernel_width:
        yield f"{operator.kernel_height} x {operator.kernel_width}"
    yield "depthwise" if is_depthwise(operator) else operator.type.replace("_", " ")
    if _even(operator) != operator:
        yield f"with channels that {_EIGHT} does not divide,"


def _times_ms(models: LayerModels, operators: Sequence[Operator], device: Device, size: Array) -> Array:
    """Times of operators by themselves, NaN where none of their mode was measured; resizing then by specifications."""
    gpu, mode = device
    rates, model = device_rates(gpu.name, mode.precision), models.find(library_mode(gpu, mode))
    distinct = Operators(map(in_fp32, operators) if mode.fp32_products else operators)
    running = operators_in(distinct, library_mode(gpu, mode))
    if model is None:
        ms = base_ms(running, size, rates, mode.memory_format)[:, 0]
        return np.where([operator.type in RESIZING_TYPES for operator in operators], ms, np.nan)
    own_ms = model.library.times(running, size).gpu_ms
    copies = copies_between(distinct, mode.precision, mode.memory_format)
    return in_cnn_ms(own_ms, copies, size, gpu.name, mode.precision)[:, 0]
