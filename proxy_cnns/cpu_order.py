"""The order in which a CPU measures, which has time for few configurations: those first that tell most in a second.

An operator tells of the shapes to which it is the nearest in the list. It is worth the share of their time that the
zoo's CNNs spend in these shapes, at their usual image sizes and at 32 pixels.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import minimum_image_size, zoo_cnn, zoo_names
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.backends.operators import CPU_CACHE_BYTES, n_copies
from proxy_cnns.configuration import Configuration, Subject
from proxy_cnns.estimates import estimated_ms

__all__ = ["most_telling_first"]

_SMALL_SIZE, _BATCH_SIZE = 32, 32
_LEAST_COST_MS = 20.0  # building an operator costs time, too
_LEAST_WORTH = 1e-4
_WORTH_POWER = 0.7  # below 1, so that many kinds of operators come early
_SAME_SHAPE = 0.3  # worth of a shape at another batch size, x that at the first

Kind = tuple[object, ...]


def most_telling_first(configurations: Sequence[Configuration]) -> list[Configuration]:
    """The same configurations in another order, by worth and cost.

    The order decides what `--limit` takes; while they are measured, the CPU's own speed decides what is short.
    """
    worths = _worths(dict.fromkeys(each.subject for each in configurations))
    costs_ms = [_cost_ms(each) for each in configurations]
    n_before: Counter[tuple[Subject, Mode]] = Counter()
    keys: list[tuple[float, int]] = []
    for place in sorted(range(len(configurations)), key=costs_ms.__getitem__):
        subject, mode = configurations[place].subject, configurations[place].mode
        worth = max(_LEAST_WORTH, worths[subject]) * _SAME_SHAPE ** n_before[subject, mode]
        n_before[subject, mode] += 1
        keys.append((max(_LEAST_COST_MS, costs_ms[place]) / worth**_WORTH_POWER, place))
    return [configurations[place] for _, place in sorted(keys)]


def _cost_ms(configuration: Configuration) -> float:
    """Time of one iteration on a CPU, of an operator of all its copies."""
    subject, batch_size = configuration.subject, configuration.batch_size
    one_ms, operator = estimated_ms(subject, batch_size, configuration.mode, on_cpu=True), subject.operator
    if operator is None or operator.in_channels is None:
        return one_ms
    return one_ms * n_copies(operator, batch_size, 4, CPU_CACHE_BYTES)


def _worths(subjects: Iterable[Subject]) -> dict[Subject, float]:
    """Share of the time of the zoo's CNNs, a mean over them, in shapes to which each operator is the nearest."""
    shares, of_kind = _shares_by_kind(), defaultdict(list)
    worths: defaultdict[Subject, float] = defaultdict(float)
    for subject in subjects:
        if subject.operator is not None:
            of_kind[_kind(subject.operator)].append(subject)
    for kind, some in of_kind.items():
        places = np.array([_place(each.operator) for each in some if each.operator is not None])
        for place, share in shares.get(kind, ()):
            worths[some[int(np.argmin(((places - place) ** 2).sum(axis=1)))]] += share
    return worths


@lru_cache(maxsize=1)
def _shares_by_kind() -> dict[Kind, list[tuple[tuple[float, ...], float]]]:
    """Place of each operator of the zoo, and its share of the time of an iteration on a CPU, by kind."""
    mode, tables = Mode(), [*_tables()]
    shares: defaultdict[Operator, float] = defaultdict(float)
    for table in tables:
        times_ms: dict[Operator, float] = {}
        for operator, count in operators_of(table).items():
            subject = Subject("operator", operator.name, 1, operator=operator)
            times_ms[operator] = count * estimated_ms(subject, _BATCH_SIZE, mode, on_cpu=True)
        for operator, time_ms in times_ms.items():
            shares[operator] += time_ms / sum(times_ms.values()) / len(tables)
    by_kind = defaultdict(list)
    for operator, share in shares.items():
        by_kind[_kind(operator)].append((_place(operator), share))
    return by_kind


def _tables() -> Iterator[LayerTable]:
    for name in zoo_names():
        yield zoo_cnn(name)
        if minimum_image_size(name) <= _SMALL_SIZE:
            yield zoo_cnn(name, _SMALL_SIZE)


def _kind(operator: Operator) -> Kind:
    """What operators have in common whose times resemble each other."""
    window, grouped = (operator.kernel_height, operator.stride_height), (operator.groups or 1) > 1
    return operator.type, operator.kind, operator.passes, *window, grouped


def _place(operator: Operator) -> tuple[float, ...]:
    """Shape as a point, in logarithms; an optimizer's by its tensors and parameters."""
    if operator.type == "optimizer":
        return tuple(np.log([operator.n_tensors, operator.parameters, 1]))
    return tuple(np.log([operator.in_channels or 1, operator.out_channels or 1, operator.in_height or 1]))
