"""Layers whose form costs much beside the best form of the same arithmetic: layouts, channels, concatenations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from predictor.answers.resolved import Device
from predictor.arrays import Array
from predictor.catalogue.devices import ELEMENT_BYTES, is_cpu
from predictor.catalogue.modes import MEMORY_FORMATS
from predictor.cnns.layer_table import IMAGE, LayerTable
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
    layer_inputs,
    layer_operators,
)
from predictor.operators.work import base_ms, copies_between, device_rates, in_cnn_ms, loops_of

_MOST_FORMS = 3
_LEAST_SAVED = 0.05  # share of the GPU's time that a named form saves in all, a fifth of it by its own layers
_LEAST_FACTOR = 1.2  # times that the best form takes, above which a form is named
_EIGHT = 8  # channels that tensor cores of 16 bits take at once
_IN_WORDS = {"nchw": "in NCHW", "channels_last": "in channels-last"}
_EVEN = f"with channels in multiples of {_EIGHT}"
_NEAREST = "upsample_nearest"
_AFTER = "normalised after the concatenation"


@dataclass(frozen=True, slots=True)
class FormCost:
    """What `count` layers of one form take in an iteration, `ms`, and `best_ms` in a better form, `best`.

    `layer` is the one that costs most; `form` says it in words. `saves_ms` is what the whole CNN in the better form
    saves of the GPU's time, with what its other layers take more or less.
    """

    layer: str
    form: str
    count: int
    ms: float
    best: str
    best_ms: float
    saves_ms: float

    def __str__(self) -> str:
        alike = f" and {self.count - 1} more" * (self.count > 1)
        return f"{self.form} ({self.layer}{alike}) {self.best_ms:.3g} instead of {self.ms:.3g} ms"


def forms_in_words(costs: Sequence[FormCost], gpu_time_ms: float, host_time_ms: float) -> str:
    """A sentence for each better form: what it saves of the GPU's time, by which layers, and where the host bounds."""
    sentences = []
    for best in dict.fromkeys(cost.best for cost in costs):
        alike = [cost for cost in costs if cost.best == best]
        saves_ms = alike[0].saves_ms
        then = "" if host_time_ms >= gpu_time_ms else " then"
        host = f"; the host{then} bounds the iteration" * (host_time_ms >= gpu_time_ms - saves_ms)
        changes = ", ".join(map(str, alike))
        sentences.append(
            f"{best[0].upper()}{best[1:]}, the GPU takes {saves_ms:.3g} ms less: {changes}{host}."
        )
    return " ".join(sentences)


def dear_forms(
    models: LayerModels,
    table: LayerTable,
    device: Device,
    batch_size: int,
    gpu_time_ms: float,
    saved_ms: Callable[[LayerTable, Device], float],
) -> tuple[FormCost, ...]:
    """Layers whose form costs much beside its best form at a batch size, three at most, that of most ms first.

    From operators measured on the GPU's chip in both forms, resizing elsewhere by specifications; empty in frameworks
    other than PyTorch, compiled, and on a CPU. `saved_ms` forecasts what another table or mode saves of the GPU's time,
    `gpu_time_ms`: a form counts where the whole CNN gains by it.
    """
    gpu, mode = device
    if mode.framework != "pytorch" or mode.is_compiled or is_cpu(gpu.name):
        return ()
    [layout] = {*MEMORY_FORMATS} - {mode.memory_format}
    size, operators = np.array([batch_size / table.parts]), layer_operators(table)
    even = evened(table) if ELEMENT_BYTES[mode.precision] < ELEMENT_BYTES["fp32"] else table
    tables = {_IN_WORDS[layout]: (table, (gpu, replace(mode, memory_format=layout))), _EVEN: (even, device)}
    if mode.memory_format == "channels_last":
        loops = [layer.type in RESIZING_TYPES and loops_of(layer).us_last > 0 for layer in table]
        nearest = (replace(layer, type=_NEAREST) if loops[i] else layer for i, layer in enumerate(table))
        tables["by mode='nearest'"] = replace(table, layers=tuple(nearest)), device
    times_ms = partial(_times_ms, models, size)
    forms = {form: (saved_ms(*on), times_ms(layer_operators(on[0]), on[1])) for form, on in tables.items()}
    own_ms, joined = times_ms(operators, device), _joined_norms(table)
    after_ms = times_ms({position: replace(operators[position], sliced=False) for position in joined}, device)
    for position in joined:  # the convolution before copies the slice of the gradient then
        convolution = replace(operators[position], type="conv2d")
        copied = copies_between([convolution], mode.precision, mode.memory_format)
        after_ms[position] += copied.ms(size, device_rates(gpu.name, mode.precision)).item()
    forms[_AFTER] = table.parts * sum(own_ms[position] - ms for position, ms in after_ms.items()), after_ms
    forms = {form: times for form, times in forms.items() if times[0] > _LEAST_SAVED * gpu_time_ms}
    alike_by_form: dict[tuple[str, str], list[int]] = {}
    for position, operator in operators.items():
        ms_by_form = {form: ms[position] for form, (_, ms) in forms.items() if ms.get(position, 0.0) > 0}
        best = min(ms_by_form, key=lambda form: ms_by_form[form], default="")
        if best and operator.type != _NEAREST and own_ms[position] > _LEAST_FACTOR * ms_by_form[best]:
            words = _words(operator, is_uneven=layer_operators(even).get(position) != operator)
            words = f"{words}{' before a concatenation' * (best == _AFTER)} {_IN_WORDS[mode.memory_format]}"
            alike_by_form.setdefault((words, best), []).append(position)
    costs: list[FormCost] = []
    for (words, best), alike in alike_by_form.items():
        saves_ms, best_ms = forms[best]
        dearest = max(alike, key=lambda position: own_ms[position] - best_ms[position])
        before, after = (table.parts * sum(ms[position] for position in alike) for ms in (own_ms, best_ms))
        costs.append(FormCost(table.layers[dearest].name, words, len(alike), before, best, after, saves_ms))
    dear = sorted(costs, key=lambda cost: cost.best_ms - cost.ms)[:_MOST_FORMS]
    return tuple(cost for cost in dear if cost.ms - cost.best_ms > _LEAST_SAVED / 5 * gpu_time_ms)


def _joined_norms(table: LayerTable) -> set[int]:
    """Positions of batch norms that only a concatenation reads, which joins no other layers."""
    operators = layer_operators(table).items()
    norms = {i for i, operator in operators if operator.type == "batch_norm" and operator.sliced}
    steps = zip(table.layers, layer_inputs(table), strict=True)
    return {i for layer, read in steps if layer.type == "concat" and norms.issuperset(read) for i in read}


def evened(table: LayerTable) -> LayerTable:
    """The CNN with channels in multiples of eight, but for the image's, classes and groups of several channels.

    The table itself where the channels of a layer do not follow from those before it, as those of a part of a map.
    """
    layers, widths = [*table.layers], {IMAGE: (1, 1)}  # channels of each output after and before
    mixing = [i for i, layer in enumerate(layers) if filters_of(layer) and not is_depthwise(layer)]
    for i, (layer, read) in enumerate(zip(table, layer_inputs(table), strict=True)):
        own = layer.in_channels or 1, layer.out_channels or 1
        grown = Fraction(*(sum(widths[source][side] for source in read or (IMAGE,)) for side in range(2)))
        ins, outs = own[0] * grown, own[1] * grown
        if i in mixing or (layer.type == "pad" and own[0] != own[1]):
            outs = Fraction(own[1] if i == mixing[-1] else -(-own[1] // _EIGHT) * _EIGHT)
        widths[i] = int(outs), own[1]
        if ins != own[0] or outs != own[1]:
            groups = int(ins) if is_depthwise(layer) else layer.groups
            wider = replace(layer, in_channels=int(ins), out_channels=int(outs), groups=groups)
            is_free = is_depthwise(layer) or (i in mixing and groups in (None, 1))
            uneven = [new for new, old in zip((ins, outs), own, strict=True) if new != old and new % _EIGHT]
            if uneven or (OPERATOR_TYPES[layer.type].product and not is_free):
                return table
            parameters = filters_of(wider) + int(outs) * has_bias(layer) or layer.parameters * outs / own[1]
            pads_nothing = layer.type == "pad" and ins == outs
            type_ = "flatten" if pads_nothing else layer.type
            layers[i] = replace(wider, type=type_, parameters=int(parameters))
    return replace(table, layers=tuple(layers))


def _words(operator: Operator, *, is_uneven: bool) -> str:
    """Words for an operator's form: its window, its type, and whether its channels are no multiples of eight."""
    window = f"{operator.kernel_height} x {operator.kernel_width} " * bool(operator.kernel_height)
    type_ = "depthwise" if is_depthwise(operator) else operator.type.replace("_", " ")
    return f"{window}{type_}{f' with channels that {_EIGHT} does not divide,' * is_uneven}"


def _times_ms(
    models: LayerModels, size: Array, operators: Mapping[int, Operator], device: Device
) -> dict[int, float]:
    """Times of operators within a CNN, NaN where none of their mode was measured; resizing then by specifications."""
    gpu, mode = device
    rates, model = device_rates(gpu.name, mode.precision), models.find(library_mode(gpu, mode))
    own = Operators(map(in_fp32, operators.values()) if mode.fp32_products else operators.values())
    running = operators_in(own, library_mode(gpu, mode))
    if model is None:
        ms = base_ms(running, size, rates, mode.memory_format)
        ms[[operator.type not in RESIZING_TYPES for operator in own]] = np.nan
    else:
        copies = copies_between(own, mode.precision, mode.memory_format)
        ms = in_cnn_ms(model.library.times(running, size).gpu_ms, copies, size, gpu.name, mode.precision)
    return dict(zip(operators, ms[:, 0].tolist(), strict=True))
