"""From operators to iterations with numpy alone: totals by class, weights, host time, half widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.cnns.layer_table import LayerTable
from predictor.models.forecast import Reason
from predictor.models.layer_times.library import BEYOND, FARAWAY, NEAR, UNKNOWN, OperatorLibrary
from predictor.operator_types import OPERATOR_CLASSES
from predictor.operators.operators import Operator, operators_of
from predictor.operators.work import (
    device_cache_bytes,
    device_rates,
    moved_bytes,
    operator_class,
)

__all__ = ["CLASSES", "SIZED", "SIZES", "LayerLaw", "LayerSums", "counted_operators", "layer_sums"]

Array = NDArray[np.float64]

CLASSES = ("depthwise", *dict.fromkeys(OPERATOR_CLASSES.values()))
"""Classes of operators, each with a weight."""

SIZES = (-8.0, -6.0, -4.0, -2.0, 0.0, 2.0, 4.0)
"""Sizes of operators: log2 of the bytes moved over the L2 cache. All but the last have a weight, added to the class's.

An operator of a few kilobytes takes longer between others than alone, again and again; one whose input the L2 cache
still holds takes less; a large one takes the same."""

SIZED = np.array([name not in ("optimizer", "loss") for name in CLASSES], dtype=float)
"""Classes to which these weights apply: nothing that ran just before wrote what an optimizer step reads."""

_BORROWED = 0.05
"""Of ln time, how unsure weights of another mode are beside one's own: a few times what they differed by on an H200."""

_UNSURE = {FARAWAY: "shape", UNKNOWN: "operator", BEYOND: "batch"}


@dataclass(frozen=True, slots=True, eq=False)
class LayerSums:
    """Times of one CNN's operators, added up; arrays over batch sizes.

    `sized_ms` has shape (len(CLASSES), len(SIZES), n_batches): an operator between two sizes counts to both, by how
    near it is to each. `host_ms` is the host's time for all operators (NaN if the library
    has none), `n_operators` how many run. `shares` maps `NEAR`, `BEYOND`, `FARAWAY` and `UNKNOWN` to the share of the
    time, (n_batches,), that is known only so well; `named` gives the operators behind all but `NEAR`. Of `host_ms` and
    `n_operators`, `gradient_host_ms` and `n_gradients` are sums of gradients, which the backward pass alone runs.
    """

    sized_ms: Array
    host_ms: float
    n_operators: float
    shares: dict[int, Array]
    named: dict[int, tuple[str, ...]]
    gradient_host_ms: float = 0.0
    n_gradients: float = 0.0

    @property
    def class_ms(self) -> Array:
        """Times by class alone, (len(CLASSES), n_batches)."""
        added: Array = self.sized_ms.sum(axis=1)
        return added

    @property
    def size_ms(self) -> Array:
        """Times by size alone of the classes and sizes that have such weights, (len(SIZES) - 1, n_batches)."""
        added: Array = np.tensordot(SIZED, self.sized_ms[:, :-1], axes=1)
        return added

    def unmeasured(self) -> Array:
        """Share of the time, (n_batches,), of operators that were not measured themselves."""
        return sum(self.shares.values(), np.zeros(self.sized_ms.shape[2]))

    def strange(self) -> Array:
        """Share of the time of operators like which nothing was measured; half of what lies beyond batch sizes."""
        found: Array = self.shares[FARAWAY] + self.shares[BEYOND] / 2
        return found

    def host_parts(self, *, apart: bool) -> tuple[float, float, float]:
        """Host time of operators, that of sums of gradients if they count `apart`, and how many operators are left."""
        if not apart or not math.isfinite(self.gradient_host_ms):
            return self.host_ms, 0.0, self.n_operators
        return (
            self.host_ms - self.gradient_host_ms,
            self.gradient_host_ms,
            self.n_operators - self.n_gradients,
        )

    def reasons(self) -> tuple[tuple[Reason, ...], ...]:
        """Reasons for caution at each batch size."""
        n = self.sized_ms.shape[2]
        return tuple(
            tuple(_reason(kind, self.named[kind]) for kind in _UNSURE if self.shares[kind][i] > 0)
            for i in range(n)
        )


@dataclass(frozen=True, slots=True)
class LayerLaw:
    """Weights of one mode: GPU time = sum of weight x time + `operator_ms` x operators + `iteration_ms`.

    An operator's weight is that of its class, in `weights`, plus that of its size, in `size_weights` at `SIZES`.

    Host time = `host_weight` x the operators' own + `host_operator_ms` x operators + `host_iteration_ms`; where
    `gradients_apart`, sums of gradients, which no layer's code launches, take their own time and no more. `spread` and
    `spread_near` are half widths of ln(measured / predicted) that hold 90 % of unseen CNNs: where all its operators
    were measured, and where none was; `spread_strange` is what operators add like which nothing was measured;
    `host_spread` is the half width of the host's time. `roughness` is the standard deviation of that logarithm from
    one batch size to the next, which measurements of the CNN at others do not take away.
    """

    weights: dict[str, float] = field(default_factory=dict)
    operator_ms: float = 0.0
    iteration_ms: float = 0.0
    host_weight: float = 1.0
    host_operator_ms: float = 0.0
    host_iteration_ms: float = 0.0
    spread: float = 0.10
    spread_near: float = 0.20
    spread_strange: float = 1.0
    roughness: float = 0.01
    host_spread: float = 0.40
    trained_on: str = "no CNN: weights of 1"
    gradients_apart: bool = False
    size_weights: tuple[float, ...] = (0.0,) * (len(SIZES) - 1)

    def gpu_ms(self, sums: LayerSums) -> Array:
        """Time that the GPU is busy in one iteration."""
        weighted = sum(self._weighted(sums), np.zeros(sums.sized_ms.shape[2]))
        busy: Array = weighted + self.operator_ms * sums.n_operators + self.iteration_ms
        return busy

    def class_ms(self, sums: LayerSums) -> dict[str, Array]:
        """The same, split by class."""
        split = zip(CLASSES, self._weighted(sums), strict=True)
        return {name: ms for name, ms in split if ms.any()}

    def host_ms(self, sums: LayerSums) -> float:
        """Time that the host needs to enqueue one iteration; NaN if the library has no host times."""
        own_ms, apart_ms, n = sums.host_parts(apart=self.gradients_apart)
        own = self.host_weight * own_ms if self.host_weight else 0.0
        return own + apart_ms + self.host_operator_ms * n + self.host_iteration_ms

    def _weighted(self, sums: LayerSums) -> Array:
        """Times of the classes in an iteration, (len(CLASSES), n_batches)."""
        weights = np.array([self.weights.get(name, 1.0) for name in CLASSES])
        factors = weights[:, None] + SIZED[:, None] * np.array([*self.size_weights, 0.0])
        weighted: Array = np.einsum("cs,csb->cb", factors, sums.sized_ms)
        return weighted

    def half_width(self, sums: LayerSums, host_share: Array | float = 0.0) -> Array:
        """Half width of the interval of ln time, wider by the share of GPU time that was not measured.

        `host_share` is how much of a change of the host's time changes the iteration: 0 where the GPU is busy.
        """
        near = (self.spread_near - self.spread) * np.sqrt(sums.unmeasured())
        busy = self.spread + near + self.spread_strange * sums.strange() + sums.shares[UNKNOWN]
        width: Array = np.hypot((1.0 - host_share) * busy, host_share * self.host_spread)
        return width

    def borrowed(self, lender: str) -> LayerLaw:
        """These weights for another mode or GPU, where they are less sure; `lender` says whose they are."""
        near, far = (math.hypot(spread, _BORROWED) for spread in (self.spread, self.spread_near))
        return replace(
            self, spread=near, spread_near=far, trained_on=f"weights of {lender} ({self.trained_on})"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain numbers and text."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> LayerLaw:
        """Back from plain numbers and text; ValueError or TypeError where something else is among them."""
        law = cls(**{**found, "size_weights": tuple(found.get("size_weights", cls().size_weights))})
        numbers = [*law.weights.values(), *law.size_weights]
        numbers += [value for value in found.values() if not isinstance(value, str | Mapping | list | tuple)]
        if len(law.size_weights) != len(SIZES) - 1:
            raise ValueError(f"{len(law.size_weights)} weights of sizes")
        if not np.isfinite(np.array(numbers, dtype=float)).all():
            raise ValueError("a weight is not a finite number")
        return law


def layer_sums(library: OperatorLibrary, table: LayerTable, batch_sizes: Array) -> LayerSums:
    """Add up a CNN's operators by class.

    Raises
    ------
    SchemaError
        If an operator's time cannot even be estimated; the message names it.
    """
    operators, counts = counted_operators(table)
    times = library.times(operators, batch_sizes)
    weighted = counts[:, None] * times.gpu_ms
    class_of = np.array([CLASSES.index(operator_class(operator)) for operator in operators])
    sized = np.zeros((len(CLASSES), weighted.shape[1], len(SIZES)))
    np.add.at(sized, class_of, weighted[:, :, None] * _size_shares(library, operators, batch_sizes))
    total = weighted.sum(axis=0)
    gradients = np.array([operator.passes == "forward" for operator in operators], dtype=bool)
    return LayerSums(
        sized.transpose(0, 2, 1),
        float(counts @ times.host_ms),
        float(counts.sum()),
        {
            kind: np.where(times.sureness == kind, weighted, 0.0).sum(axis=0) / total
            for kind in (NEAR, *_UNSURE)
        },
        {
            kind: _named(
                kind, [operators[int(i)] for i in np.flatnonzero((times.sureness == kind).any(axis=1))]
            )
            for kind in _UNSURE
        },
        float(counts[gradients] @ times.host_ms[gradients]),
        float(counts[gradients].sum()),
    )


def _size_shares(library: OperatorLibrary, operators: Sequence[Operator], batch_sizes: Array) -> Array:
    """How much each operator counts to each size, (n_operators, n_batches, len(SIZES)); they sum to 1."""
    cache, rates = (
        device_cache_bytes(library.mode.gpu),
        device_rates(library.mode.gpu, library.mode.precision),
    )
    moved = moved_bytes(operators, batch_sizes, rates)
    doublings = np.log2(np.maximum(moved, 1.0) / cache) if cache else np.full(moved.shape, SIZES[-1])
    step = SIZES[1] - SIZES[0]
    near: Array = 1.0 - np.abs(np.clip(doublings, SIZES[0], SIZES[-1])[:, :, None] - np.array(SIZES)) / step
    return np.maximum(near, 0.0)


@lru_cache(maxsize=256)
def counted_operators(table: LayerTable) -> tuple[tuple[Operator, ...], Array]:
    """Operators of a CNN, each once, and how often each runs; remembered."""
    counted = operators_of(table)
    return tuple(counted), np.array(list(counted.values()), dtype=float)


def _reason(kind: int, names: Sequence[str]) -> Reason:
    word = _UNSURE[kind]
    if word == "operator":
        return Reason(word, f"{', '.join(names)} never measured on this GPU in this mode")
    some = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
    if word == "shape":
        return Reason(word, f"nothing like {some} was measured")
    return Reason(word, f"{some} beyond the batch sizes measured")


def _named(kind: int, operators: Sequence[Operator]) -> tuple[str, ...]:
    """Operators of an unknown type by that type, others by name."""
    if kind == UNKNOWN:
        return tuple(
            sorted({each.type if each.kind is None else f"{each.type}-{each.kind}" for each in operators})
        )
    return tuple(each.name for each in operators)
