"""Operators of types that no CNN of the law's fit has: timed on one GPU, carried to others by the ratio of rooflines.

GPUs reach unlike shares of their sheets. How unlike, a usual CNN tells, which the law knows on every GPU and whose
operators a library knows beside those of the types (docs/decisions/069).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from predictor.arrays import Array, weighted_sums
from predictor.catalogue.devices import Gpu, all_gpus, rates_of, short_name
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.models.base import Case, table_of
from predictor.models.extrapolation import OF_TYPES, types_never_measured
from predictor.models.forecast import Reason
from predictor.models.layer_times.files import LayerModels
from predictor.models.layer_times.law import operators_in
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.times import FARAWAY, UNKNOWN, DeviceMode
from predictor.models.roofline.law import CarriedTypes, RooflineLaw
from predictor.models.roofline.terms import Contexts, contexts_of
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.kernels import kernels_of
from predictor.operators.operators import Operators, counted_operators, is_depthwise
from predictor.operators.work import base_ms, device_rates, operator_work

_SPREAD, _OF_OTHER_UNITS = 0.63, 0.83
"""90 % half widths of ln(measured / carried), beside the law's on the GPU: of products and of what streams its maps,
where both GPUs or neither of them use tensor cores, and elsewhere (`benchmarks/carried_types.py` of
commit 679833eb)."""

_STRANGE = 0.5
"""Share of a type's time in shapes unlike any measured, above which its times are not carried."""

_USUAL, _USUAL_BATCH = "resnet50", np.array([64.0])
_LIKE = {
    "fp32": ("fp32", "tf32"),
    "tf32": ("tf32", "fp32"),
    "amp_bf16": ("amp_bf16", "amp_fp16"),
    "amp_fp16": ("amp_fp16", "amp_bf16"),
    "fp16": ("amp_fp16", "amp_bf16"),
}
"""Precisions of libraries that speak for each precision of a question, the likest first."""

_Source = tuple[OperatorLibrary, Operators, Array, Array]
"""Library that knows a type best, the CNN's operators of it, how often each runs, and their times there."""


def carried_types(
    gpus: tuple[Gpu, ...], case: Case, layers: LayerModels, law: RooflineLaw, seen: tuple[str, ...]
) -> CarriedTypes | None:
    """Times on each GPU, in the mode of a case, of types that were measured and are not `seen`; None without any.

    Runs of the CNN would hold these times already.
    """
    table, mode = table_of(case), case.mode
    types, batches = types_never_measured(table, seen), case.batch_sizes / table.parts
    if not types or mode.framework != "pytorch" or case.measuring.passes != "training" or case.anchors:
        return None
    sources = _sources(layers, table, mode, types, tuple(batches.tolist()))
    contexts, rates = contexts_of(gpus, mode), [rates_of(gpu, mode.precision) for gpu in gpus]
    gpu_ms, squares = np.zeros((2, len(gpus), batches.size))
    for type_, (library, operators, counts, source_ms) in sources.items():
        entry, layout = OPERATOR_TYPES[type_], library.mode.kernel_layout
        there = device_rates(library.mode.gpu, library.mode.precision)
        per_least_ms = source_ms / base_ms(operators, batches, there, layout)
        ms = np.array([per_least_ms * base_ms(operators, batches, here, layout) for here in rates])
        ms *= _reached(law, library, contexts)[:, None, None]
        if entry.product is not None:  # no faster than its peak
            flops = np.array([operator_work(operator)[0] for operator in operators])[:, None] * batches
            ms = np.maximum(ms, [flops / here.flop_per_ms for here in rates])
        of_type = weighted_sums(counts[None], ms)
        waits = entry.is_recurrent or entry.loops is not None or any(map(is_depthwise, operators))
        spreads = [_SPREAD if here.tensor == there.tensor else _OF_OTHER_UNITS for here in rates]
        gpu_ms += of_type
        squares += (of_type * np.array([[OF_TYPES if waits else spread] for spread in spreads])) ** 2
    if not sources:
        return None
    known_on = " and ".join(sorted({short_name(library.mode.gpu) for library, *_ in sources.values()}))
    text = (
        f"{', '.join(sources)} measured on {known_on} only, carried over by what the GPUs' sheets differ in"
    )
    kernels = kernels_of(table, update=0.0, types=tuple(sources))
    return CarriedTypes(tuple(sources), kernels, gpu_ms, squares, Reason("operator", text, 1.0))


@lru_cache(maxsize=64)
def _sources(
    layers: LayerModels, table: LayerTable, mode: Mode, types: Sequence[str], batches: tuple[float, ...]
) -> dict[str, _Source]:
    """Source of each type that a library of a similar mode knows."""
    places = (
        (gpu.name, precision) for precision in _LIKE.get(mode.precision, ()) for gpu in reversed(all_gpus())
    )
    modes = (DeviceMode(gpu, mode.framework, precision, mode.memory_format) for gpu, precision in places)
    libraries = [library for library in map(layers.measured_library, modes) if library is not None]
    (operators, counts), best = counted_operators(table, mode.fp32_products), {}
    for type_ in types:
        rows = [i for i, operator in enumerate(operators) if operator.type == type_]
        strange = _STRANGE
        for library in libraries:
            running = operators_in(Operators(operators[i] for i in rows), library.mode)
            times = library.times(running, np.array(batches))
            of_each = counts[rows][:, None] * times.gpu_ms
            strange_ms = float((of_each * np.isin(times.shape, (FARAWAY, UNKNOWN))).sum())
            if strange_ms < strange * (total_ms := float(of_each.sum())):
                strange, best[type_] = strange_ms / total_ms, (library, running, counts[rows], times.gpu_ms)
    return best


@lru_cache(maxsize=256)
def _reached(law: RooflineLaw, library: OperatorLibrary, contexts: Contexts) -> Array:
    """Time of a usual CNN by the law in each context over what the ratio of rooflines makes of a library's times."""
    table, mode = zoo_cnn(_USUAL), library.mode
    operators, counts = counted_operators(table)
    running = operators_in(operators, mode)
    there, here = device_rates(mode.gpu, mode.precision), [rates_of(of.gpu, of.precision) for of in contexts]
    weights = counts[:, None] * library.times(running, _USUAL_BATCH).gpu_ms
    weights /= base_ms(running, _USUAL_BATCH, there, mode.kernel_layout)
    carried = [(weights * base_ms(running, _USUAL_BATCH, rates, mode.kernel_layout)).sum() for rates in here]
    reached: Array = law.times(kernels_of(table), contexts, _USUAL_BATCH).device_ms[:, 0] / carried
    return reached
