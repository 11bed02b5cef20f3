"""Where algorithms switch: batch sizes between which measurements jump, or name another kernel.

Called by explain and explain_tables; calls operator_library. Nothing is predicted here: a switch is between two
neighbouring measured batch sizes, and the measurement says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from predictor.layers import LayerTable
from predictor.operator_library import OperatorLibrary
from predictor.operators import operators_of

__all__ = ["Switch", "switches_of_algorithms", "switches_of_library", "switches_of_times"]

Array = NDArray[np.float64]

_RISE = 1.05  # of time per image: a larger batch should not need more
_FALL = 0.95  # of time: a larger batch should not need less
_LEAST_SHARE = 0.005  # of the iteration's GPU time


@dataclass(frozen=True, slots=True)
class Switch:
    """Something that changed between two neighbouring measured batch sizes.

    `layer` is an operator's name, a convolution's shape, or the CNN's name for all its GPU time; `part` the pass whose
    kernel changed, if that was recorded. `before` and `after` name the kernels, None where a jump of the time alone
    tells. `factor` is the time per image after over before; None where the kernels' names alone tell.
    """

    layer: str
    part: str | None
    from_batch_size: int
    to_batch_size: int
    before: str | None
    after: str | None
    factor: float | None


def switches_of_library(
    library: OperatorLibrary, table: LayerTable, gpu_time_ms: Mapping[float, float]
) -> tuple[Switch, ...]:
    """Jumps of the measured times of a CNN's own operators, those that change the iteration most first.

    Parameters
    ----------
    library : OperatorLibrary
    table : LayerTable
        Operators that the library lacks tell nothing.
    gpu_time_ms : mapping
        The iteration's GPU time at the library's batch sizes: what changes less than 0.5 % of it is left out.

    Notes
    -----
    A jump: time per image rises by more than 5 %, or the time itself falls by more than 5 %, as the batch grows; with
    one algorithm the former falls and the latter rises.
    """
    place = {operator: i for i, operator in enumerate(library.operators)}
    found: list[tuple[float, Switch]] = []
    for operator, count in operators_of(table).items():
        if operator not in place or operator.type == "optimizer":
            continue
        times = np.exp(library.log_ms[place[operator]])
        known = np.flatnonzero(np.isfinite(times))
        for one, two in pairwise(known):
            small, large = float(library.batch_sizes[one]), float(library.batch_sizes[two])
            factor = float(times[two] / times[one]) * small / large
            effect = count * _excess_ms(float(times[one]), float(times[two]), large / small)
            if effect > _LEAST_SHARE * gpu_time_ms.get(large, np.inf):
                found.append(
                    (effect, Switch(operator.name, None, int(small), int(large), None, None, factor))
                )
    return tuple(switch for _, switch in sorted(found, key=lambda each: -each[0]))


def switches_of_times(
    name: str, batch_sizes: Sequence[int], gpu_time_ms: Sequence[float]
) -> tuple[Switch, ...]:
    """Jumps of a whole CNN's GPU time between neighbouring measured batch sizes, as of `switches_of_library`."""
    known = [(size, ms) for size, ms in zip(batch_sizes, gpu_time_ms, strict=True) if ms > 0]
    return tuple(
        Switch(name, None, small, large, None, None, two / one * small / large)
        for (small, one), (large, two) in pairwise(known)
        if _excess_ms(one, two, large / small) > 0
    )


def switches_of_algorithms(
    batch_sizes: Sequence[int], algorithms: Sequence[str | None]
) -> tuple[Switch, ...]:
    """Convolutions that another kernel computes at the next measured batch size, from the column conv_algorithms.

    Parameters
    ----------
    batch_sizes : list of int
        Ascending.
    algorithms : list of str
        JSON: layer -> {forward, backward_data, backward_filter}; None or damaged where not recorded.
    """
    known = [
        (size, chosen)
        for size, text in zip(batch_sizes, algorithms, strict=True)
        if (chosen := _chosen(text, size))
    ]
    return tuple(
        Switch(*place, small, large, before[place], name, None)
        for (small, before), (large, after) in pairwise(known)
        for place, name in after.items()
        if place in before and before[place] != name
    )


def _excess_ms(one: float, two: float, ratio: float) -> float:
    """How far a time lies beyond what one algorithm allows when the batch grows by `ratio`; 0 where it does not."""
    if two > _RISE * ratio * one:
        return two - ratio * one
    return one - two if two < _FALL * one else 0.0


def _chosen(text: str | None, batch_size: int) -> dict[tuple[str, str], str]:
    """Kernel of each layer and pass; a layer's name loses the batch size that it begins with."""
    try:
        found = json.loads(text) if isinstance(text, str) else {}
        return {
            (str(layer).removeprefix(f"{batch_size}x"), str(part)): str(name)
            for layer, parts in found.items()
            for part, name in parts.items()
        }
    except (ValueError, AttributeError):
        return {}
