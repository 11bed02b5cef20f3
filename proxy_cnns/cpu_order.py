"""The order in which a CPU measures, which has time for few configurations: those first that teach most in a second.

A measured operator serves shapes like its own, the less the further they lie. Every next operator is the one that adds
most, for its cost, to the share of the zoo's time, at usual image sizes and at 32 pixels, that is close to something
measured. So shapes that resemble those before come late.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import minimum_image_size, zoo_cnn, zoo_names
from predictor.models.layer_times.interpolation import closeness
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.backends.operators import CPU_CACHE_BYTES, n_copies
from proxy_cnns.configuration import Configuration, Subject
from proxy_cnns.estimates import estimated_ms

_SMALL_SIZE, _BATCH_SIZE = 32, 32
_LEAST_COST_MS = 20.0  # building an operator costs time, too
_BEYOND = 0.5  # a time at another batch size counts half, as in the intervals of sums
_LEAST_GAIN = 1e-9  # of operators in no CNN of the zoo, and of shapes covered already: the cheapest first

Array = NDArray[np.float64]


def most_telling_first(configurations: Sequence[Configuration]) -> list[Configuration]:
    """The same configurations in another order, by gain and cost.

    The order decides what `--limit` takes; while they are measured, the CPU's own speed decides what is short.
    """
    coverage = _Coverage(dict.fromkeys(each.subject for each in configurations))
    costs_ms = [_cost_ms(each) for each in configurations]

    def by_cost(place: int) -> float:
        return -coverage.gain(configurations[place]) / costs_ms[place]

    # A gain only shrinks while others are taken: who is still ahead of the next one's old gain is the best.
    waiting = [(by_cost(place), place) for place in range(len(configurations))]
    heapq.heapify(waiting)
    ordered = []
    while waiting:
        _, place = heapq.heappop(waiting)
        now = by_cost(place)
        if waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, place))
            continue
        coverage.take(configurations[place])
        ordered.append(configurations[place])
    return ordered


class _Coverage:
    """How close each shape of the zoo is to an operator measured at most, and at least, at its batch size."""

    def __init__(self, subjects: Iterable[Subject]) -> None:
        shares = _shares()
        wanted: defaultdict[str, list[Operator]] = defaultdict(list)
        for operator in shares:
            wanted[operator.type].append(operator)
        self._shares = {name: np.array([shares[each] for each in some]) for name, some in wanted.items()}
        self._covered = {name: np.zeros((2, len(some))) for name, some in wanted.items()}
        offered: defaultdict[str, list[Operator]] = defaultdict(list)
        for subject in subjects:
            if subject.operator is not None and subject.operator.type in wanted:
                offered[subject.operator.type].append(subject.operator)
        self._close: dict[Operator, Array] = {}
        for name, some in offered.items():
            self._close.update(zip(some, closeness(some, wanted[name]), strict=True))

    def gain(self, configuration: Configuration) -> float:
        """Share of the zoo's time that a measurement brings close; never 0, so that costs order the rest."""
        operator = configuration.subject.operator
        if operator is None or operator not in self._close:
            return _LEAST_GAIN
        added = self._with(operator, configuration.batch_size) - self._covered[operator.type]
        return _LEAST_GAIN + float(added.mean(axis=0) @ self._shares[operator.type])

    def take(self, configuration: Configuration) -> None:
        """Count a configuration as measured."""
        operator = configuration.subject.operator
        if operator is not None and operator in self._close:
            self._covered[operator.type] = self._with(operator, configuration.batch_size)

    def _with(self, operator: Operator, batch_size: int) -> Array:
        at_most, at_least = batch_size <= _BATCH_SIZE, batch_size >= _BATCH_SIZE
        sides = np.array([1.0 if at_most else _BEYOND, 1.0 if at_least else _BEYOND])
        covered: Array = np.maximum(self._covered[operator.type], np.outer(sides, self._close[operator]))
        return covered


def _cost_ms(configuration: Configuration) -> float:
    """Time of one iteration on a CPU, of an operator of all its copies."""
    subject, batch_size = configuration.subject, configuration.batch_size
    one_ms, operator = estimated_ms(subject, batch_size, configuration.mode, on_cpu=True), subject.operator
    if operator is not None and operator.in_channels is not None:
        one_ms *= n_copies(operator, batch_size, 4, CPU_CACHE_BYTES)
    return max(_LEAST_COST_MS, one_ms)


def _shares() -> dict[Operator, float]:
    """Share of each operator in the time of an iteration on a CPU, a mean over the zoo's CNNs."""
    mode, tables = Mode(), [*_tables()]
    shares: defaultdict[Operator, float] = defaultdict(float)
    for table in tables:
        times_ms: dict[Operator, float] = {}
        for operator, count in operators_of(table).items():
            subject = Subject("operator", operator.name, 1, operator=operator)
            times_ms[operator] = count * estimated_ms(subject, _BATCH_SIZE, mode, on_cpu=True)
        for operator, time_ms in times_ms.items():
            shares[operator] += time_ms / sum(times_ms.values()) / len(tables)
    return shares


def _tables() -> Iterator[LayerTable]:
    for name in zoo_names():
        yield zoo_cnn(name)
        if minimum_image_size(name) <= _SMALL_SIZE:
            yield zoo_cnn(name, _SMALL_SIZE)
