"""Operators of unknown cost: counted as memory traffic, with the share of the time that this is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, is_cpu, rates_of
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.models.extrapolation import of_warning
from predictor.models.forecast import Reason
from predictor.models.layer_times.law import counted_operators
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.work import roofline_ms, unmeasured_share

TRAFFIC = "memory traffic"
"""Class of the operators of unknown cost in an explanation."""

_OTHER = "other"
_CLASS_OF_OTHER = OPERATOR_TYPES[_OTHER].operator_class
_KNOWN = frozenset(OPERATOR_TYPES) - {_OTHER}

Array = NDArray[np.float64]
Reasons = tuple[Reason, ...]


def with_shares(
    reasons: Sequence[Reasons], table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Sequence[int]
) -> list[Reasons]:
    """Reasons at each batch size, where operators of unknown cost are named with their share of the time.

    Parameters
    ----------
    reasons : sequence of n tuples of Reason
        Those of a forecast, one tuple per batch size.

    Notes
    -----
    The share is that of their roofline times: an operator of type ``other`` reads and writes its maps once.
    """
    if is_cpu(gpu.name) or not has_others(table):
        return list(reasons)
    shares = unmeasured_share(
        table, np.array(batch_sizes, dtype=float), rates_of(gpu, mode.precision), _KNOWN
    )
    return [_with_share(each, table, float(share)) for each, share in zip(reasons, shares, strict=True)]


@lru_cache(maxsize=256)
def has_others(table: LayerTable) -> bool:
    """Whether a CNN has operators of unknown cost."""
    return any(layer.type == _OTHER for layer in table)


def _with_share(reasons: Reasons, table: LayerTable, share: float) -> Reasons:
    warnings = [warning for warning in table.warnings if warning.kind == "operator"]
    names = warnings[0].about if warnings else "layers of type other"
    replaced = [of_warning(warning) for warning in warnings]
    percent = f"{100 * share:.0f} %" if share >= 0.005 else "under 1 %"
    reason = Reason("operator", f"{names} counted as memory traffic: {percent} of this time")
    return (*(known for known in reasons if known not in replaced), reason)


def split_traffic(
    class_ms: dict[str, Array], table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Sequence[int] | Array
) -> dict[str, Array]:
    """GPU time by class, with the time of unknown operators as a class of its own, `TRAFFIC`.

    The class that they are counted in is split in proportion to its operators' roofline times.
    """
    operators, counts = counted_operators(table)
    at = [
        i for i, each in enumerate(operators) if OPERATOR_TYPES[each.type].operator_class == _CLASS_OF_OTHER
    ]
    in_class = [operators[i] for i in at]
    unknown = np.array([each.type == _OTHER for each in in_class], dtype=bool)
    if is_cpu(gpu.name) or not unknown.any() or _CLASS_OF_OTHER not in class_ms:
        return class_ms
    rates = rates_of(gpu, mode.precision)
    least = counts[at, None] * roofline_ms(in_class, np.asarray(batch_sizes, dtype=float), rates)
    share = least[unknown].sum(axis=0) / least.sum(axis=0)
    left = class_ms[_CLASS_OF_OTHER] * (1.0 - share)
    rest = {name: ms for name, ms in class_ms.items() if name != _CLASS_OF_OTHER}
    rest |= {_CLASS_OF_OTHER: left} if not unknown.all() else {}
    return rest | {TRAFFIC: class_ms[_CLASS_OF_OTHER] * share}
