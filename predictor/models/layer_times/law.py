"""From operators to iterations with only numpy: totals by class, weights, host time, half widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array, sums_in_order
from predictor.catalogue.devices import ELEMENT_BYTES, is_cpu
from predictor.cnns.layer_table import LayerTable
from predictor.models.forecast import Kind, Reason
from predictor.models.layer_times.library import OperatorSource
from predictor.models.layer_times.times import BEYOND, CARRIED, FARAWAY, NEAR, RUNG_OF, UNKNOWN, DeviceMode
from predictor.operator_types import OPERATOR_CLASSES
from predictor.operators import work
from predictor.operators.operators import Operator, Operators, as_run, counted_operators, operators_of
from predictor.operators.optimizers import Update, loop_ms, passes_over_measured

CLASSES = ("depthwise", *dict.fromkeys(OPERATOR_CLASSES.values()))
"""Operator classes; an answer splits its time among them."""

SIZES = (-8.0, -6.0, -4.0, -2.0, 0.0, 2.0, 4.0)
"""Operator sizes: log2(bytes moved / L2 cache). All but the last have a weight, which is added to the common one.

Inside a CNN, an operator of a few kilobytes takes longer than measured on its own, one whose input is still in the L2
cache takes less, and a large one takes the same."""

SIZED = np.array([name not in ("optimizer", "loss") for name in CLASSES], dtype=float)
"""Operator classes whose time depends on size. The optimizer and the loss are excluded: their inputs are never still in
the L2 cache."""

_BORROWED = 0.05
"""Standard uncertainty of ln time added for weights of another mode: a few times their difference on an H200."""

_BY_SPECIFICATIONS = {UNKNOWN: tuple(name for name in CLASSES if name != "linear"), FARAWAY: ("depthwise",)}
"""Classes whose operators of types never measured, and of shapes far from all measured, take the specifications' time.

With one type or kind of convolution left out of an H200's operators, the specifications' time of these classes had the
smaller error (root mean square of ln), over three modes and over any two of them (docs/decisions/009)."""

_SPECIFIED_PLACES = np.zeros((len(RUNG_OF), len(CLASSES), 1), dtype=bool)
for _kind, _names in _BY_SPECIFICATIONS.items():
    _SPECIFIED_PLACES[_kind, [CLASSES.index(name) for name in _names]] = True

_STRANGE, _SPECIFIED = 1.0, 0.8
"""90 % half widths of ln time of operators far from all measured, and of those that take the specifications' time. Each
counts by its share of the CNN's time: the sum held nine of ten CNNs with a type or kind of convolution left out."""

_NO_CNN = "no CNN: weights of 1"

_UNSURE: dict[int, Kind] = {FARAWAY: "shape", UNKNOWN: "operator", BEYOND: "batch"}


@dataclass(frozen=True, eq=False)
class OperatorTotals:
    """Summed times of one CNN's operators, in ms; arrays over batch sizes.

    `sized_ms` has shape (len(CLASSES), len(SIZES), n_batches): an operator between two sizes is split between them by
    linear interpolation. `beyond_ms`, of shape (3, supports, len(CLASSES), n_batches), splits the time of each class by
    `OperatorTimes.beyond` (first axis: 0, 1, -1) and `shape`. `host_ms` is the host time of all operators (NaN if the
    library has none), `n_operators` their number; `named` names, for each batch size, two operators with `BEYOND` or
    `FARAWAY`, and types with `UNKNOWN`. `gradient_host_ms` and `n_gradients` are the parts of `host_ms` and
    `n_operators` that sum gradients in the backward pass. `specified`, (n_batches,), is the share of the time that
    specifications tell, `specified_width` the 90 % half width of ln time by them.
    """

    sized_ms: Array
    beyond_ms: Array
    host_ms: float
    n_operators: float
    named: dict[int, tuple[tuple[str, ...], ...]]
    gradient_host_ms: float = 0.0
    n_gradients: float = 0.0
    specified: Array | float = 0.0
    specified_width: Array | float = np.inf

    @cached_property
    def support_ms(self) -> Array:
        """Times by support, `BEYOND` where the batch size is, and class, (supports, len(CLASSES), n_batches)."""
        by_support: Array = self.beyond_ms.sum(axis=0)
        by_support[:BEYOND] = self.beyond_ms[0, :BEYOND]
        by_support[BEYOND] = self.beyond_ms[1:, :BEYOND].sum(axis=(0, 1))
        return by_support

    @cached_property
    def shares(self) -> dict[int, Array]:
        """Share of the time, (n_batches,), of operators with each support but `MEASURED`."""
        of_support = sums_in_order(self.support_ms, axis=1)
        total = sums_in_order(of_support)
        return {kind: of_support[kind] / total for kind in (CARRIED, NEAR, *_UNSURE)}

    @property
    def want_specifications(self) -> bool:
        """Whether any operator belongs to the classes `_BY_SPECIFICATIONS`."""
        return bool((self.support_ms * _SPECIFIED_PLACES).any())

    def with_specified(self, class_ms: Mapping[str, Array], half_width: Array) -> OperatorTotals:
        """The totals with operators of `_BY_SPECIFICATIONS` at the time that specifications give their class.

        `class_ms`: times by specifications, (n_batches,) by class; a class that it lacks keeps its own. `half_width`,
        (n_batches,): 90 % half width of ln time by specifications.
        """
        own = np.where(self.class_ms > 0, self.class_ms, 1.0)
        specified_ms = np.stack([class_ms.get(name, ms) for name, ms in zip(CLASSES, own, strict=True)])
        ratio = np.where(_SPECIFIED_PLACES, specified_ms / own, 1.0)
        added = sums_in_order(self.support_ms * (ratio - 1.0)) / own
        sized_ms, beyond_ms = self.sized_ms * (1.0 + added)[:, None], self.beyond_ms * ratio
        after = replace(self, sized_ms=sized_ms, beyond_ms=beyond_ms, specified_width=half_width)
        specified, total = (
            sums_in_order(sums_in_order(ms))
            for ms in (after.support_ms * _SPECIFIED_PLACES, after.support_ms)
        )
        return replace(after, specified=specified / total)

    @property
    def class_ms(self) -> Array:
        """Times by class, (len(CLASSES), n_batches)."""
        added: Array = self.sized_ms.sum(axis=1)
        return added

    @property
    def size_ms(self) -> Array:
        """Times by size, summed over the classes that have size weights, (len(SIZES) - 1, n_batches)."""
        return np.tensordot(SIZED, self.sized_ms[:, :-1], axes=1)

    def unmeasured(self) -> Array:
        """Share of the time, (n_batches,), in interpolated or extrapolated operators."""
        shares = (share for kind, share in self.shares.items() if kind != CARRIED)
        return sum(shares, np.zeros(self.sized_ms.shape[2]))

    def strange(self) -> Array:
        """Share of the time, (n_batches,), in shapes far from all measured; operators beyond batch sizes count half."""
        shares = self.shares
        return shares[FARAWAY] + shares[BEYOND] / 2

    def host_parts(self, *, apart: bool) -> tuple[float, float, float]:
        """Host time in ms of operators, that of gradient sums, and the number of the operators.

        Operators include gradient sums unless `apart`; then, or without host times of sums, the second is 0.
        """
        if not apart or not math.isfinite(self.gradient_host_ms):
            return self.host_ms, 0.0, self.n_operators
        sums_ms = self.gradient_host_ms
        return self.host_ms - sums_ms, sums_ms, self.n_operators - self.n_gradients

    def reasons(self) -> tuple[tuple[Reason, ...], ...]:
        """Reasons for caution at each batch size."""
        kinds, sizes = [kind for kind in _UNSURE if kind in self.named], range(self.sized_ms.shape[2])
        some = {kind: (self.shares[kind] > 0).tolist() for kind in kinds}
        every = [tuple((kind, self.named[kind][i]) for kind in kinds if some[kind][i]) for i in sizes]
        by_names = {key: tuple(_reason(kind, names) for kind, names in key) for key in set(every)}
        return tuple(by_names[key] for key in every)  # batch sizes alike share their tuple


@dataclass(frozen=True, slots=True)
class SummingLaw:
    """How operators of one mode add up: GPU time = sum of weight x time + `operator_ms` x operators + `iteration_ms`.

    An operator's weight is `weight` plus that of its size, in `size_weights` at `SIZES`; weights by class gain nothing.

    Host time = `host_weight` x the operators' own + `host_operator_ms` x operators + `host_iteration_ms`; with
    `gradients_apart`, sums of gradients, which no layer's code launches, enter with their measured time, unweighted.

    `spread` and `spread_near` are 90 % half widths of ln(measured / predicted) for unseen CNNs: with all operators
    measured, and with all interpolated. `spread_strange` is added in proportion to the time in shapes far from all
    measured; `host_spread` is the half width of the host time. `roughness` is the standard deviation of
    ln(measured / predicted) from one batch size to the next, which anchors at other batch sizes cannot reduce.
    """

    weight: float = 1.0
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
    trained_on: str = _NO_CNN
    gradients_apart: bool = False
    size_weights: tuple[float, ...] = (0.0,) * (len(SIZES) - 1)

    @property
    def is_fitted(self) -> bool:
        """Whether the weights come from measured CNNs."""
        return _NO_CNN not in self.trained_on

    def gpu_ms(self, sums: OperatorTotals) -> Array:
        """GPU time of one iteration, in ms, (n_batches,)."""
        weighted = sums_in_order(self._weighted(sums))
        busy: Array = weighted + self.operator_ms * sums.n_operators + self.iteration_ms
        return busy

    def class_ms(self, sums: OperatorTotals) -> dict[str, Array]:
        """GPU time by operator class; classes without operators are left out."""
        split = zip(CLASSES, self._weighted(sums), strict=True)
        return {name: ms for name, ms in split if ms.any()}

    def rung_ms(self, sums: OperatorTotals) -> dict[str, dict[str, Array]]:
        """GPU time by rung and operator class; rungs and classes without time are left out."""
        weighted = self._weighted(sums)
        total = np.maximum(sums_in_order(sums.support_ms), np.finfo(float).tiny)
        shares = {rung: np.zeros(total.shape) for rung in dict.fromkeys(RUNG_OF.values())}
        for kind, rung in RUNG_OF.items():
            shares[rung] += sums.support_ms[kind] / total
        return {
            rung: {name: ms for name, ms in zip(CLASSES, weighted * share, strict=True) if ms.any()}
            for rung, share in shares.items()
            if share.any()
        }

    def host_ms(self, sums: OperatorTotals) -> float:
        """Host time to enqueue one iteration, in ms; NaN if the library has no host times."""
        own_ms, apart_ms, n = sums.host_parts(apart=self.gradients_apart)
        own = self.host_weight * own_ms if self.host_weight else 0.0
        return own + apart_ms + self.host_operator_ms * n + self.host_iteration_ms

    def _weighted(self, sums: OperatorTotals) -> Array:
        """Times of the classes in an iteration, (len(CLASSES), n_batches)."""
        factors = self.weight + SIZED[:, None] * np.array([*self.size_weights, 0.0])
        weighted: Array = (factors[..., None] * sums.sized_ms).sum(axis=1)
        return weighted

    def half_widths(self, sums: OperatorTotals) -> tuple[Array, Array]:
        """90 % half widths of the ln of GPU time, below and above; they grow with the share of time not measured.

        A mini-batch smaller than all measured ones takes no longer than these: it widens only the lower side.
        """
        below = self._half_width(sums)
        if not sums.beyond_ms[-1].any():
            return below, below
        moved = sums.beyond_ms.copy()
        moved[0] += moved[-1]
        moved[-1] = 0.0
        return below, self._half_width(replace(sums, beyond_ms=moved))

    def _half_width(self, sums: OperatorTotals) -> Array:
        near = self.spread + (self.spread_near - self.spread) * np.sqrt(sums.unmeasured())
        far, shares = max(self.spread_strange, _STRANGE), sums.shares
        by_operators = far * (shares[FARAWAY] + shares[UNKNOWN] - sums.specified)
        by_specifications = np.minimum(_SPECIFIED * sums.specified, sums.specified_width)
        return near + by_operators + by_specifications + self.spread_strange * shares[BEYOND] / 2

    def borrowed(self, lender: str) -> SummingLaw:
        """These weights for another mode or GPU, with wider intervals; `lender` names their origin."""
        near, far = (math.hypot(spread, _BORROWED) for spread in (self.spread, self.spread_near))
        trained_on = f"weights of {lender} ({self.trained_on})"
        return replace(self, spread=near, spread_near=far, trained_on=trained_on)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SummingLaw:
        """Read the fields as plain numbers and text; ValueError or TypeError for a value of another kind."""
        law = cls(**{**stored, "size_weights": tuple(stored.get("size_weights", cls().size_weights))})
        numbers = [*law.size_weights]
        numbers += [value for value in stored.values() if not isinstance(value, str | list | tuple)]
        if len(law.size_weights) != len(SIZES) - 1:
            raise ValueError(f"{len(law.size_weights)} weights of sizes")
        if not np.isfinite(np.array(numbers, dtype=float)).all():
            raise ValueError("a weight is not a finite number")
        return law


def layer_sums(
    library: OperatorSource,
    table: LayerTable,
    batch_sizes: Array,
    fp32_products: bool = False,
    update: Update | None = None,
) -> OperatorTotals:
    """Add up a CNN's operators by class; `fp32_products` is as of `Mode`, `update` that measured unless given.

    SchemaError if an operator lacks the shape from which its work is computed; the message names it.
    """
    return sums_of_each([library], table, batch_sizes, fp32_products, update)[0]


def sums_of_each(
    libraries: Sequence[OperatorSource],
    table: LayerTable,
    batch_sizes: Array,
    fp32_products: bool = False,
    update: Update | None = None,
) -> list[OperatorTotals]:
    """`layer_sums` of libraries that differ only in their device and in autotuning; none of none."""
    if not libraries:
        return []
    mode = libraries[0].mode._replace(gpu="", autotune=False)
    own, batches = _in_mode(table, fp32_products, mode), batch_sizes / table.parts
    times = [library.times(own.running, batches) for library in libraries]
    gpu_ms, beyond, shape = (
        np.array([getattr(of_library, name) for of_library in times])
        for name in ("gpu_ms", "beyond", "shape")
    )
    for i, library in enumerate(libraries):
        if own.copies is not None and not is_cpu(library.mode.gpu):
            gpu_ms[i] = work.in_cnn_ms(gpu_ms[i], own.copies, batches, library.mode.gpu, mode.precision)
    weighted = own.counts[:, None] * gpu_ms
    for i in own.updates:
        if update:
            passes = passes_over_measured(update, mode.framework)
            weighted[:, i] = np.maximum(passes * weighted[:, i], loop_ms(update, own.operators[i].n_tensors))
    n, n_sizes, sizes = len(times), batches.size, tuple(batches.tolist())
    gpus = [library.mode.gpu for library in libraries]
    element_bytes = (work.device_rates(gpu, mode.precision).element_bytes for gpu in gpus)
    units = zip(element_bytes, map(work.device_cache_bytes, gpus), strict=True)
    near = [_shares_by_size(own.operators, sizes, *of_gpu) for of_gpu in units]
    size, share = (np.array(sides) for sides in zip(*near, strict=True))
    own_class = np.arange(n)[:, None] * len(CLASSES) + own.class_of
    place = (own_class[..., None, None] * len(SIZES) + size) * n_sizes + np.arange(n_sizes)
    shares, cells = weighted[:, :, None] * share, (n, len(CLASSES), len(SIZES), n_sizes)
    sized = np.bincount(place.ravel(), shares.ravel(), math.prod(cells)).reshape(cells)
    support = (beyond.astype(np.intp) % 3 + 3 * np.arange(n)[:, None, None]) * len(RUNG_OF) + shape
    cell = (support * len(CLASSES) + own.class_of[:, None]) * n_sizes + np.arange(n_sizes)
    groups = (n, 3, len(RUNG_OF), len(CLASSES), n_sizes)
    by_support = np.bincount(cell.ravel(), weighted.ravel(), math.prod(groups)).reshape(groups)
    totals: list[OperatorTotals] = []
    names: dict[bytes, tuple[tuple[str, ...], ...]] = {}  # cards of a chip share them
    for i, of_library in enumerate(times):
        sureness, named = of_library.sureness, {}
        for kind in _UNSURE:
            is_kind = sureness == kind
            if weighted[i][is_kind].any():
                key = bytes([kind]) + is_kind.tobytes()
                if key not in names:
                    names[key] = _named_each(kind, own.running, is_kind)
                named[kind] = names[key]
        host_ms, of_sums = of_library.host_ms, own.counts[own.gradients]
        of_all = float(own.enqueued @ host_ms), float(own.enqueued.sum())
        of_gradients = float(of_sums @ host_ms[own.gradients]), float(of_sums.sum())
        totals.append(OperatorTotals(sized[i], by_support[i], *of_all, named, *of_gradients))
    return totals


@dataclass(frozen=True, slots=True, eq=False)
class _InMode:
    """What neither batch size nor GPU changes of a CNN's operators in a mode.

    `running`: `operators` as of `operators_in`. `counts` and `enqueued`: how often each runs, and is enqueued.
    `class_of`: number of an operator's class. `gradients`: which sum gradients. `updates`: positions of optimizers.
    `copies`: between them, in PyTorch on a GPU; None without any.
    """

    operators: Operators
    running: Operators
    counts: Array
    enqueued: Array
    class_of: NDArray[np.intp]
    gradients: NDArray[np.bool_]
    updates: list[int]
    copies: work.Copies | None


@lru_cache(maxsize=256)
def _in_mode(table: LayerTable, fp32_products: bool, mode: DeviceMode) -> _InMode:
    """Cached: a CNN is asked for at one batch size after another."""
    operators, _ = counted_operators(table, fp32_products)
    half = ELEMENT_BYTES[mode.precision] < ELEMENT_BYTES["fp32"]
    counted = operators_of(table)
    if table.trained_whole() is not table:  # passes have other shares of the time in each mode
        counted = operators_of(table, channels_last=mode.memory_format == "channels_last", half=half)
    enqueued = counted if table is table.without_recomputing() else operators_of(table, by_host=True)
    copies = work.copies_between(operators, mode.precision, mode.memory_format)
    is_copied = copies.new or copies.back or (copies.moved + copies.ps).any()
    class_of = [CLASSES.index(work.operator_class(operator)) for operator in operators]
    return _InMode(
        operators,
        operators_in(operators, mode),
        np.array(list(counted.values()), dtype=float),
        np.array(list(enqueued.values()), dtype=float),
        np.array(class_of, dtype=np.intp),
        np.array([operator.passes == "forward" for operator in operators], dtype=bool),
        [i for i, operator in enumerate(operators) if operator.type == "optimizer"],
        copies if mode.framework == "pytorch" and is_copied else None,
    )


@lru_cache(maxsize=256)
def operators_in(operators: Operators, mode: DeviceMode) -> Operators:
    """The operators as they run, and are measured, in a mode, in their order; cached. See `as_run`."""
    words = mode.framework, mode.memory_format, mode.precision
    return Operators(as_run(operator, *words) for operator in operators)


@lru_cache(maxsize=32)
def _shares_by_size(
    operators: Operators, batch_sizes: tuple[float, ...], element_bytes: int, cache: float | None
) -> tuple[NDArray[np.intp], Array]:
    """Places in `SIZES` of both sizes of each operator, (n_operators, 2, n_batches), and its shares of them; cached."""
    moved = work.moved_bytes(operators, np.array(batch_sizes), element_bytes)
    doublings = np.log2(np.maximum(moved, 1.0) / cache) if cache else np.full(moved.shape, SIZES[-1])
    step, doublings = SIZES[1] - SIZES[0], np.minimum(np.maximum(doublings, SIZES[0]), SIZES[-1])
    lower = np.minimum(((doublings - SIZES[0]) / step).astype(np.intp), len(SIZES) - 2)
    sides = np.stack([lower, lower + 1], axis=1)
    return sides, np.maximum(1.0 - np.abs(doublings[:, None] - np.array(SIZES)[sides]) / step, 0.0)


def _reason(kind: int, names: Sequence[str]) -> Reason:
    word = _UNSURE[kind]
    if word == "operator":
        text = "never measured on this GPU in this mode; by specifications or like operators"
        return Reason(word, f"{', '.join(names)} {text}")
    named = ", ".join(names[:2]) + (f" and {names[2]}" if len(names) > 2 else "")
    if word == "shape":
        return Reason(word, f"no measured operator has a shape near that of {named}")
    return Reason(word, f"{named} beyond the measured batch sizes")


def _named_each(kind: int, operators: Operators, is_kind: NDArray[np.bool_]) -> tuple[tuple[str, ...], ...]:
    """`_named` at each batch size; most are alike, and named once."""
    keys = [column.tobytes() for column in is_kind.T]
    named = {key: _named(kind, list(compress(operators, key))) for key in dict.fromkeys(keys)}
    return tuple(map(named.__getitem__, keys))


def _named(kind: int, operators: Sequence[Operator]) -> tuple[str, ...]:
    """Words for a reason: types if the type is unknown, else the names of two operators and the number of more."""
    if kind == UNKNOWN:
        return tuple(sorted({f"{op.type}-{op.kind}".removesuffix("-None") for op in operators}))
    more = (f"{len(operators) - 2} more",) if len(operators) > 2 else ()
    return (*(operator.name for operator in operators[:2]), *more)
