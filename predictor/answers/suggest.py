"""Which operators to measure on a GPU: those whose time a question's answer is least sure of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.answers.knowledge import OwnMeasurements, load_model
from predictor.catalogue.devices import Gpu, precisions_of
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.layer_times.files import library_mode
from predictor.models.layer_times.law import counted_operators
from predictor.models.layer_times.times import BEYOND, CARRIED, FARAWAY, MEASURED, NEAR, RUNG_OF, UNKNOWN
from predictor.operators.operators import Operator, is_view
from predictor.operators.work import device_rates, roofline_ms

if TYPE_CHECKING:
    from os import PathLike

    from predictor.models.served import Model

_SPREAD = {MEASURED: 0.01, CARRIED: 0.05, NEAR: 0.12, BEYOND: 0.25, FARAWAY: 0.35, UNKNOWN: 0.7}
"""Standard deviation of ln time by what it rests on, in round numbers: it orders measurements and enters no answer."""

_BY_SPECIFICATIONS = "specifications"

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One operator to measure in one mode at one batch size.

    Parameters
    ----------
    operator : Operator
    mode : Mode
    batch_size : int
        Images per mini-batch.
    count : int
        How often it runs in an iteration, in all CNNs asked about.
    share : float
        Of the CNNs' GPU time, the mean over CNNs, 0 to 1.
    rests_on : str
        The rung that its time comes from now, a word of `RUNGS`.
    narrows : float
        Share of the variance of the CNNs' times that it accounts for, over everything suggested; all add up to 1.
    """

    operator: Operator
    mode: Mode
    batch_size: int
    count: int
    share: float
    rests_on: str
    narrows: float


def suggest(
    tables: Sequence[LayerTable],
    gpu: Gpu,
    modes: Sequence[Mode],
    batch_sizes: Sequence[int],
    measurements: str | PathLike[str] | None = None,
    model: Model | str | PathLike[str] | None = None,
) -> list[Suggestion]:
    """Operators that are not measured yet, those first whose measurement narrows the answers most.

    Parameters
    ----------
    tables : sequence of LayerTable
        The CNNs that are asked about.
    gpu : Gpu
    modes : sequence of Mode
    batch_sizes : sequence of int
    measurements : path, optional
        Your own measurement table, whose operators are known, too.
    model : optional
        The default without one.

    Raises
    ------
    OutOfRangeError
        If the GPU lacks a precision.

    Notes
    -----
    Errors of operators are taken as independent: with c of an operator in an iteration of time T and a standard
    deviation s of ln of its time t, it accounts for (c t s / T)^2 of the variance of ln T.
    """
    for mode in modes:
        if mode.precision not in precisions_of(gpu):
            known = ", ".join(precisions_of(gpu))
            raise OutOfRangeError(f"{gpu.name} has no {mode.precision}. It has: {known}.")
    served = load_model(model)
    if measurements is not None:
        served = OwnMeasurements.of(measurements, served).model
    found: dict[tuple[Operator, Mode, int], _Value] = {}
    for mode in modes:
        for table in tables:
            _add_up(found, table, served, gpu, mode, batch_sizes, len(tables))
    total = sum(each.variance for each in found.values())
    ordered = sorted(found.items(), key=lambda each: -each[1].variance)
    return [
        Suggestion(*key, value.count, value.share, value.rests_on, value.variance / total)
        for key, value in ordered
    ]


@dataclass(slots=True)
class _Value:
    """What measuring one operator is worth, added up over CNNs."""

    count: int
    share: float
    variance: float
    rests_on: str


def _add_up(
    found: dict[tuple[Operator, Mode, int], _Value],
    table: LayerTable,
    model: Model,
    gpu: Gpu,
    mode: Mode,
    batch_sizes: Sequence[int],
    n_tables: int,
) -> None:
    operators, counts = counted_operators(table, mode.fp32_products)
    sizes = np.array(batch_sizes, dtype=float)
    times, sureness = _times(operators, model, gpu, mode, sizes)
    shares = counts[:, None] * times
    shares /= shares.sum(axis=0)
    for row, operator in enumerate(operators):
        if is_view(operator, mode.framework):
            continue
        for column, batch_size in enumerate(batch_sizes):
            kind = int(sureness[row, column])
            if kind == MEASURED or (operator.type == "optimizer" and column):
                continue
            rests_on = RUNG_OF[kind] if model.layers.find(library_mode(gpu, mode)) else _BY_SPECIFICATIONS
            value = found.setdefault((operator, mode, batch_size), _Value(0, 0.0, 0.0, rests_on))
            share = float(shares[row, column])
            value.count += int(counts[row])
            value.share += share / n_tables
            value.variance += (share * _SPREAD[kind]) ** 2


def _times(
    operators: Sequence[Operator], model: Model, gpu: Gpu, mode: Mode, sizes: Array
) -> tuple[Array, NDArray[np.int8]]:
    """Time of each operator at each batch size and what it rests on; the roofline's where nothing was measured."""
    known = model.layers.find(library_mode(gpu, mode))
    if known is not None:
        times = known.library.times(operators, sizes)
        return times.gpu_ms, times.sureness
    least = roofline_ms(operators, sizes, device_rates(gpu.name, mode.precision))
    return least, np.full(least.shape, UNKNOWN, dtype=np.int8)
