"""The operator library: operators measured on one GPU in one mode, and times of others interpolated from them.

A measured operator's time is used unchanged; for others time / base is interpolated, which varies a hundred times
less than time. The base is the roofline, or times carried over from another card or mode, which vary less again.
What carries them over is not fitted: part of a time follows the memory bandwidth, the rest multiprocessors x clock.
Values that follow only from a library's operators are computed once and cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array, distinct_values, weighted_sums
from predictor.catalogue.devices import Rates, design_of, find_gpu
from predictor.errors import SchemaError
from predictor.models.forecast import Reason
from predictor.models.layer_times import interpolation
from predictor.models.layer_times.times import (
    CARRIED,
    FARAWAY,
    MEASURED,
    NEAR,
    UNKNOWN,
    DeviceMode,
    OperatorTimes,
)
from predictor.operators import work
from predictor.operators.columns import FIELDS, OperatorColumns
from predictor.operators.operators import Operator, has_bias, is_view

_USUAL = 0.15  # least share of operators measured at a usual batch size, relative to the commonest one
_ROUNDING = 1e-10  # of ln of a batch size
_REACH = 1.5  # distance at which a neighbour's residual is shrunk by half
_CLIFF = 0.3  # residuals of ln time are clipped here: larger ones mean that the neighbour ran another kernel
_NO_FOREST, _HIDDEN = -1, -2  # instead of a forest's number: none, or its predictions are those of `hidden`
_COMPUTE_CLASSES = ("convolution", "linear")
_NARROW = 96  # channels below which a dense layer takes no less time than with as many
_FEW = 12  # operators of a class below which its median says little
_SUSTAINED = 0.92
"""Share of the data sheet's bandwidth that large element-wise kernels reach on an H200."""

_CACHE_BYTES = 40e6
"""Bytes moved below which most of an operator's data stay in the L2 cache of 50 to 60 MB; from 15 to 120 MB the whole
CNNs' error on an H100 stays within 0.2 points."""


_ALIKE, _OTHER = 1.5, 3.0
"""Factors on the half width of the GPU's time: the H200's operators miss CNNs on an H100 by 1.3 (TF32) and 1.8 times
(AMP channels-last) what the H100's own do; cards that differ in more were not judged."""

OPERATOR_KEYS = (
    "cnn", "type", "activation_kind", "pass", "input_gradient", "in_place", "wide_input", "parameters", "n_tensors",
)  # fmt: skip
"""Columns that distinguish operators; `cnn` holds the operator's name, which has its shape."""


@dataclass(frozen=True, eq=False)
class OperatorLibrary:
    """Measured operators of one mode.

    `log_ms` has shape (n_operators, n_batches): ln of milliseconds at each of `batch_sizes` (ascending), NaN where
    not measured, never a whole row; `host_ms` (n_operators,) is the host time to launch it, NaN if unknown.
    `forests` predict ln(time / base) from an operator's features; `expected`, shaped like `log_ms`, holds the
    predictions of trees grown without the operator (out of fold), `hidden` those of operators taken out of the library.
    `host` is the machine of all measurements; None if unknown or several. `base` gives the times that measurements are
    compared with; None: the roofline. Host times of an autotuned library are its base's: of only a few convolutions,
    they would be those of another machine. `carried` are operators that another card of the chip measured.
    """

    mode: DeviceMode
    operators: Sequence[Operator]
    batch_sizes: Array
    log_ms: Array
    host_ms: Array
    host: str | None = None
    forests: Mapping[str, interpolation.Forest] = field(default_factory=dict)
    expected: Array | None = None
    hidden: Mapping[Operator, Array] = field(default_factory=dict)
    base: CarriedOver | None = None
    carried: frozenset[Operator] = frozenset()

    @classmethod
    def of_times(
        cls, mode: DeviceMode, measured: Sequence[Operator], times: Array, machines: Iterable[object]
    ) -> OperatorLibrary:
        """Library of measurements, one or more per operator; `times` (n, 3): batch size, GPU ms, host ms.

        SchemaError if there are no operators.
        """
        kept = np.array([not is_view(operator, mode.framework) for operator in measured], dtype=bool)
        measured, times = [measured[int(i)] for i in np.flatnonzero(kept)], times[kept]
        if not measured:
            raise SchemaError(
                f"there are no operators of {', '.join(map(str, mode))}. Measure some with `epochcast profile`."
            )
        operators = tuple(sorted(set(measured), key=_name_and_kind))
        row_of = {operator: i for i, operator in enumerate(operators)}
        row = np.array([row_of[operator] for operator in measured])
        sizes, column = np.unique(times[:, 0], return_inverse=True)
        cell = row * sizes.size + column
        total, count = (
            np.bincount(cell, weights, len(operators) * sizes.size)
            for weights in (np.log(times[:, 1]), np.ones(len(times)))
        )
        log_ms = np.where(count > 0, total / np.maximum(count, 1.0), np.nan).reshape(-1, sizes.size)
        hosts, host_ms = set(machines), _medians(times[:, 2], row, len(operators))
        host = hosts.pop() if len(hosts) == 1 else None
        return cls(mode, operators, sizes, log_ms, host_ms, host if isinstance(host, str) else None)

    def __len__(self) -> int:
        return len(self.operators)

    def with_carried(self, more: OperatorLibrary) -> OperatorLibrary:
        """The library with operators of `more`, carried over to its mode; without trees, which do not know them."""
        operators = tuple(sorted((*self.operators, *more.operators), key=_name_and_kind))
        sizes = np.union1d(self.batch_sizes, more.batch_sizes)
        log_ms, host_ms = np.full((len(operators), sizes.size), np.nan), np.full(len(operators), np.nan)
        row_of = {operator: i for i, operator in enumerate(operators)}
        for library in (self, more):
            rows = np.array([row_of[operator] for operator in library.operators], dtype=np.intp)
            log_ms[np.ix_(rows, np.searchsorted(sizes, library.batch_sizes))] = library.log_ms
            host_ms[rows] = library.host_ms
        return OperatorLibrary(
            self.mode, operators, sizes, log_ms, host_ms, self.host,
            carried=self.carried | frozenset(more.operators),
        )  # fmt: skip

    def on_base(self, base: CarriedOver) -> OperatorLibrary:
        """The library with a base; an autotuned one has the host times of its base, so their machine, too."""
        return replace(self, base=base, host=base.host if self.mode.autotune else self.host)

    @property
    def host_mode(self) -> DeviceMode:
        """GPU and mode in which the host times were measured."""
        return self.base.source.mode if self.base is not None and self.mode.autotune else self.mode

    @cached_property
    def n_measured(self) -> int:
        """Number of measured times: operators x batch sizes."""
        carried = self._columns.places_of(self._carried)
        return int(np.isfinite(self.log_ms).sum() - np.isfinite(self.log_ms[carried]).sum())

    @property
    def origin(self) -> str:
        """Source of the times in words, for answers."""
        carried_text = "" if self.base is None else f", the others carried over from {self.base.source.mode}"
        return f"{len(self) - len(self.carried)} operators measured on it{carried_text}"

    def without(self, operators: Sequence[Operator]) -> OperatorLibrary:
        """The library, and its base, without the measurements of these operators."""
        kept = np.ones(len(self), dtype=bool)
        places = self._columns.places_of(operators)
        kept[places[places >= 0]] = False
        hidden = dict(self.hidden)
        if self.expected is not None:
            predicted = np.isfinite(self.expected).any(axis=1)
            hidden |= {self.operators[int(i)]: self.expected[i] for i in np.flatnonzero(~kept & predicted)}
        lesser = replace(
            self,
            operators=self._columns.rows(np.flatnonzero(kept)),
            log_ms=self.log_ms[kept],
            host_ms=self.host_ms[kept],
            expected=None if self.expected is None else self.expected[kept],
            hidden=hidden,
            base=None if self.base is None else self.base.without(list(operators)),
        )
        # base times of single operators stay valid
        lesser.__dict__["_known_curves"] = tuple(own[..., kept, :] for own in self._known_curves)
        return lesser

    def times(self, operators: Sequence[Operator], batch_sizes: Array) -> OperatorTimes:
        """Time of each operator at each batch size.

        SchemaError if an operator lacks the shape from which its work is computed.

        ln(time / base) is linear in ln(batch size) between measured ones; beyond them the trees' trend over batch sizes
        is added. A view takes no time.
        """
        return _times(self, OperatorColumns.of(operators), _key_of(batch_sizes))

    def _times(self, asked: OperatorColumns, batches: Array) -> OperatorTimes:
        """As of `times`; `batches` (1 or n_operators, n_batches)."""
        repeats, n_sizes, log_sizes = asked.numbers("repeats"), batches.shape[1], np.log(batches)
        if (repeats > 1).any():
            return self._times_of_repeated(asked, repeats, np.broadcast_to(batches, (len(asked), n_sizes)))
        lookup = _lookup_of(self, asked)
        operators, measured, new, host = lookup.operators, lookup.measured, lookup.new, lookup.host_ms.copy()
        log_ratio = interpolation.between(self._log_sizes, log_sizes, lookup.curves)
        shape = np.repeat(lookup.shape[:, None], n_sizes, axis=1)
        beyond = np.zeros(shape.shape, dtype=np.int8)
        beyond[measured] = self._beyond(lookup.exact[measured], _rows_of(log_sizes, measured))
        out = np.flatnonzero(beyond.any(axis=1))
        by_trees = self._by_trees(lookup, out, new, log_sizes)
        # beyond an operator's measured batch sizes, the trees' change from the nearest one
        drift = by_trees[: out.size] - by_trees[out.size : 2 * out.size]
        log_ratio[out] += np.where(beyond[out] != 0, drift, 0.0)
        if new.size:
            log_ratio[new], host[new], shape[new], beyond[new] = self._interpolated(
                lookup, _rows_of(batches, new), log_ratio[new], by_trees[2 * out.size :]
            )
        if self.base is None:
            of_base = work.base_ms(operators, batches, self._rates(), self.mode.kernel_layout)
        else:
            base = self.base.times(asked, batches)  # which other cards ask for, too
            if lookup.twins.size:
                of_twins = self.base.times(operators.rows(lookup.twins), _rows_of(batches, lookup.twins))
                base = base.changed(lookup.twins, of_twins)
            of_base = base.gpu_ms
            if self.mode.autotune:  # which algorithm runs takes no host time
                host = base.host_ms.copy()
            surer = base.surer_than(OperatorTimes(of_base, host, shape, beyond))
            shape, beyond = np.where(surer, base.shape, shape), np.where(surer, base.beyond, beyond)
        gpu_ms = of_base * np.exp(log_ratio)
        gpu_ms[lookup.views], host[lookup.views] = 0.0, 0.0
        shape[lookup.views], beyond[lookup.views] = MEASURED, 0
        if (twins := lookup.twins).size:
            convolutions = [*asked.rows(twins)]
            rates, sizes = self._rates(), _rows_of(batches, twins)
            bias_ms = work.bias_ms(convolutions, sizes, rates, self.mode.memory_format)
            signs = np.array([1.0 if has_bias(operator) else -1.0 for operator in convolutions])[:, None]
            gpu_ms[twins] = np.maximum(gpu_ms[twins] + signs * bias_ms, gpu_ms[twins] / 2)
            shape[twins] = np.maximum(shape[twins], NEAR)
        return OperatorTimes(gpu_ms, host, shape, beyond)

    def _times_of_repeated(
        self, asked: OperatorColumns, repeats: NDArray[np.int64], batches: Array
    ) -> OperatorTimes:
        """Times of operators that run `repeats` times per image, computed at `repeats` x the batch size."""
        shape, beyond = np.empty((2, *batches.shape), dtype=np.int8)
        times = OperatorTimes(np.empty(batches.shape), np.empty(len(asked)), shape, beyond)
        for number in distinct_values(repeats):
            rows = np.flatnonzero(repeats == number)
            key = f"that run {number} times"
            if key not in asked.kept:  # lookups are kept by object
                asked.kept[key] = asked.rows(rows).changed(np.arange(rows.size), repeats=1)
            times = times.changed(rows, self.times(asked.kept[key], number * batches[rows]))
        return times

    def _base_ms(self, operators: Sequence[Operator], batch_sizes: Array) -> Array:
        """Times that measurements are compared with, of shape (n_operators, n_batches)."""
        if self.base is None:
            return work.base_ms(operators, batch_sizes, self._rates(), self.mode.kernel_layout)
        return self.base.times(operators, batch_sizes).gpu_ms

    def _rates(self) -> Rates:
        return work.device_rates(self.mode.gpu, self.mode.precision)

    @cached_property
    def _columns(self) -> OperatorColumns:
        return OperatorColumns.of(self.operators)

    @cached_property
    def _carried(self) -> OperatorColumns:
        return OperatorColumns.of([*self.carried])

    @cached_property
    def _classes(self) -> NDArray[np.str_]:
        return np.array([work.operator_class(operator) for operator in self.operators], dtype=np.str_)

    @cached_property
    def _log_sizes(self) -> Array:
        return np.log(self.batch_sizes)

    @cached_property
    def _ends(self) -> Array:
        """Ln of the least and greatest measured batch size of each operator, (n_operators, 2); infinite without one."""
        is_measured = np.isfinite(self.log_ms)
        last = is_measured.shape[1] - 1 - is_measured[:, ::-1].argmax(axis=1)
        ends = self._log_sizes[np.stack([is_measured.argmax(axis=1), last], axis=1)]
        return np.where((self._columns.text("type") == "optimizer")[:, None], [-np.inf, np.inf], ends)

    @cached_property
    def _known_curves(self) -> tuple[Array, NDArray[np.bool_]]:
        """`_curves` of all operators, computed when first needed, and a mask (n_operators, 1) of the computed ones."""
        n_kinds = 1 if self.expected is None else 2
        return np.zeros((n_kinds, *self.log_ms.shape)), np.zeros((len(self), 1), dtype=bool)

    def _curves(self, rows: NDArray[np.intp]) -> Array:
        """ln(time / base) of some operators at all of the library's batch sizes, (1 or 2, n_rows, n_batches).

        The second, with trees, is what those grown without the operator miss of it.
        """
        curves, is_computed = self._known_curves
        new = distinct_values(rows[~is_computed[rows, 0]])
        if new.size:
            is_measured = np.isfinite(self.log_ms[new])
            sizes = np.argsort(~is_measured, axis=1, kind="stable")[:, : is_measured.sum(axis=1).max()]
            sizes = np.where(np.take_along_axis(is_measured, sizes, axis=1), sizes, sizes[:, :1])
            log_ratio = self.log_ms[new]
            base_ms = self._base_ms(self._columns.rows(new), self.batch_sizes[sizes])
            at = np.arange(new.size)[:, None], sizes
            log_ratio[at] = self.log_ms[new[:, None], sizes] - np.log(base_ms)
            curves[0, new] = interpolation.filled(self._log_sizes, log_ratio)
            if self.expected is not None:
                curves[1, new] = interpolation.filled(self._log_sizes, log_ratio - self.expected[new])
            is_computed[new] = True  # set last, since another thread may be reading
        return curves[:, rows]

    @cached_property
    def _usual_host_ms(self) -> float:
        """Median of the host times; NaN without one."""
        return float(_medians(self.host_ms, np.zeros(len(self), dtype=np.intp), 1)[0])

    @cached_property
    def usual_sizes(self) -> Array:
        """Batch sizes at which many operators were measured; trees are fitted only at these."""
        rows = self._columns.text("type") != "optimizer"
        share = np.isfinite(self.log_ms[rows]).mean(axis=0) if rows.any() else np.ones(self.batch_sizes.size)
        sizes: Array = self.batch_sizes[share >= _USUAL * share.max()]
        return sizes

    def _beyond(self, rows: NDArray[np.intp], log_sizes: Array) -> NDArray[np.int8]:
        """-1 and 1 where a batch size is below and above those at which operators were measured."""
        ends = self._ends[rows]
        above, below = log_sizes > ends[..., 1:] + _ROUNDING, log_sizes < ends[..., :1] - _ROUNDING
        beyond: NDArray[np.int8] = above.astype(np.int8) - below.astype(np.int8)
        return beyond

    def _interpolated(
        self, lookup: _Lookup, batches: Array, log_ratio: Array, by_trees: Array
    ) -> tuple[Array, Array, NDArray[np.int8], NDArray[np.int8]]:
        """ln(time / base), host time and support of new operators at their batch sizes (1 or n_new, n_batches).

        `log_ratio` is the mean of their neighbours, `by_trees` the trees' ln(time / base).
        """
        near, new, log_sizes = lookup.near, lookup.new, np.log(batches)
        if self.base is None and lookup.wide:
            log_ratio[lookup.wide] += self._of_operations(lookup, np.broadcast_to(batches, log_ratio.shape))
        if lookup.missed is not None:
            at_neighbours = _rows_of(log_sizes, np.repeat(np.arange(new.size), near.rows.shape[1]))
            missed = interpolation.between(self._log_sizes, at_neighbours, lookup.missed)
            closeness = 1.0 / (1.0 + (near.distance[:, None] / _REACH) ** 2)
            by_trees = by_trees + closeness * near.mean(np.clip(missed, -_CLIFF, _CLIFF))
        log_ratio = np.where(lookup.forest[new, None] == _NO_FOREST, log_ratio, by_trees)
        host, shape = lookup.host_ms[new], np.repeat(lookup.shape[new, None], batches.shape[1], axis=1)
        of_neighbours, beyond = self._beyond(near.rows, log_sizes[:, None]), np.zeros_like(shape)
        ends = np.flatnonzero(of_neighbours.any(axis=(0, 1)))
        share = weighted_sums(near.weights, of_neighbours[..., ends].astype(float))
        beyond[:, ends] = np.where(np.abs(share) > 0.5, np.sign(share), 0)
        batches, log_sizes = (np.broadcast_to(sizes, shape.shape) for sizes in (batches, log_sizes))
        for i in np.flatnonzero(near.distance == np.inf):
            # A base knows the type; what corrects other types says nothing of this one.
            operator = lookup.operators[int(lookup.new[i])]
            if operator.fp32_product:  # none was measured: as far from its roofline as in TF32
                plain = [replace(operator, fp32_product=False)]
                in_tf32 = self.times(plain, batches[i])
                host[i], shape[i] = in_tf32.host_ms[0], np.maximum(in_tf32.shape[0], FARAWAY)
                log_ratio[i] = np.log(in_tf32.gpu_ms[0] / self._base_ms(plain, batches[i])[0])
            else:
                log_ratio[i] = self._typical(operator, log_sizes[i]) if self.base is None else 0.0
        for i in np.flatnonzero((near.distance > interpolation.FAR) & (near.distance < np.inf)):
            operator = lookup.operators[int(lookup.new[i])]
            if (wider := _wider(operator)) is not None:
                at_most = self.times([wider], batches[i]).gpu_ms[0] / self._base_ms([operator], batches[i])[0]
                log_ratio[i] = np.minimum(log_ratio[i], np.log(at_most))
        return log_ratio, host, shape, beyond

    def _of_operations(self, lookup: _Lookup, batches: Array) -> Array:
        """Correction of ln(time / base) of wide windows, whose times follow operations."""
        near = lookup.near
        rows, batches = near.rows[lookup.wide], batches[lookup.wide]
        of_neighbours, own = (
            np.log(work.work_of_each(operators)[:, :1] * sizes) - np.log(self._base_ms(operators, sizes))
            for operators, sizes in (
                (self._columns.rows(rows.ravel()), np.repeat(batches, rows.shape[1], axis=0)),
                (lookup.operators.rows(lookup.new[lookup.wide]), batches),
            )
        )
        of_neighbours = of_neighbours.reshape(*rows.shape, -1)
        return own - weighted_sums(near.weights[lookup.wide], of_neighbours)

    def _by_trees(
        self, lookup: _Lookup, out: NDArray[np.intp], new: NDArray[np.intp], log_sizes: Array
    ) -> Array:
        """The trees' ln(time / base) of operators, 0 without trees: of `out`, of these at their ends, and of `new`.

        A tree is read at the library's usual batch sizes, and once for each of these: between them its answers are
        interpolated.
        """
        positions, asked = np.concatenate([out, out, new]), log_sizes
        if not self.forests or not positions.size:
            return np.zeros((positions.size, log_sizes.shape[1]))
        if out.size or len(log_sizes) > 1:
            ends = self._ends[lookup.exact[out]]
            asked = log_sizes[positions if len(log_sizes) > 1 else np.zeros_like(positions)]
            at_least = np.maximum(asked[: out.size], ends[:, :1])
            asked[out.size : 2 * out.size] = np.minimum(at_least, ends[:, 1:])
        at = np.log(self.usual_sizes)
        answers = interpolation.between(at, asked, lookup.trees[positions])
        if np.isnan(answers).any():
            wanted = np.zeros(lookup.trees.shape, dtype=bool)
            for side in interpolation.sides(at, asked):
                wanted[positions[:, None], side] = True
            self._read_trees(lookup, wanted & np.isnan(lookup.trees))
            answers = interpolation.between(at, asked, lookup.trees[positions])
        for i in np.flatnonzero(lookup.forest[positions] == _HIDDEN):
            expected = self.hidden[lookup.operators[int(positions[i])]]
            known = np.isfinite(expected)
            at_known = np.log(self.batch_sizes[known])
            answers[i] = interpolation.between(at_known, asked[i % len(asked)], expected[None, known])[0]
        return answers

    def _read_trees(self, lookup: _Lookup, wanted: NDArray[np.bool_]) -> None:
        """Let the trees predict operators at usual batch sizes, where wanted, (n_operators, n_usual_sizes)."""
        for number, trees in enumerate(self.forests.values()):
            lacking = wanted & (lookup.forest == number)[:, None]
            rows, sizes = np.flatnonzero(lacking.any(axis=1)), np.flatnonzero(lacking.any(axis=0))
            if rows.size:
                at, device = self.usual_sizes[sizes], (self._rates(), work.device_sm_count(self.mode.gpu))
                features = interpolation.forest_features(lookup.operators, at, *device, rows)
                lookup.trees[lacking] = trees.predict(features[lacking[np.ix_(rows, sizes)]])

    def _typical(self, operator: Operator, log_sizes: Array) -> Array:
        """Median of ln(time / base) over operators of its class; where few are, over those bound like it.

        Arithmetic or memory bounds them.
        """
        kind = work.operator_class(operator)
        alike = np.flatnonzero(self._classes == kind)
        if alike.size < _FEW:
            alike = np.flatnonzero(np.isin(self._classes, _COMPUTE_CLASSES) == (kind in _COMPUTE_CLASSES))
        rows = alike if alike.size else np.arange(len(self))
        return np.median(interpolation.between(self._log_sizes, log_sizes, self._curves(rows)[0]), axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class CarriedOver:
    """Operator times of `mode`, from those of another card of its chip, another mode, or both.

    Another card: t = t_r (s B_r / B + (1 - s) C_r / C), with B the memory bandwidth, C multiprocessors x boost clock
    and s = min(1, bytes / (0.92 B_r t_r)) / (1 + (40 MB / bytes)^2) the share of the time that the memory decides.
    Another mode: t = t_r x (roofline there / roofline here).
    """

    source: OperatorLibrary | CarriedOver
    mode: DeviceMode

    @property
    def host(self) -> str | None:
        """The machine on which the source's host times were measured."""
        return self.source.host

    @property
    def host_mode(self) -> DeviceMode:
        """GPU and mode whose host times count."""
        return self.mode

    @property
    def origin(self) -> str:
        """Source of the times in words, for answers."""
        card = self.source.mode.gpu
        return f"{len(self)} operators measured on {card}, a card of the same chip, carried over"

    @property
    def reason(self) -> Reason:
        """Why the times extrapolate; wider where the cards differ in more than their memory."""
        card, source = find_gpu(self.mode.gpu), find_gpu(self.source.mode.gpu)
        alike = design_of(card) == design_of(source)
        text = f"operators carried over from {source.name}, a card of the same chip"
        unlike = "" if alike else " with other multiprocessors or clocks"
        return Reason("gpu", text + unlike, _ALIKE if alike else _OTHER)

    @property
    def n_measured(self) -> int:
        """Number of measured times: operators x batch sizes of the source."""
        return self.source.n_measured

    def __len__(self) -> int:
        return len(self.source)

    def without(self, operators: Sequence[Operator]) -> CarriedOver:
        """Times carried over from the source without its measurements of these operators."""
        return replace(self, source=self.source.without(operators))

    def times(self, operators: Sequence[Operator], batch_sizes: Array) -> OperatorTimes:
        """Time of each operator at each batch size; errors are those of `OperatorLibrary.times`."""
        in_mode, columns = self.mode._replace(gpu=self.source.mode.gpu), OperatorColumns.of(operators)
        times, by_memory = _carried(self.source, in_mode, columns, _key_of(batch_sizes))
        if self.mode.gpu == self.source.mode.gpu:
            return times
        card, source = find_gpu(self.mode.gpu), find_gpu(self.source.mode.gpu)
        memory = source.memory_bandwidth_gb_per_s / card.memory_bandwidth_gb_per_s
        arithmetic = (source.sm_count * source.boost_clock_ghz) / (card.sm_count * card.boost_clock_ghz)
        ratio = by_memory * memory + (1.0 - by_memory) * arithmetic
        return replace(times, gpu_ms=times.gpu_ms * ratio)


OperatorSource = OperatorLibrary | CarriedOver


@dataclass(frozen=True, slots=True, eq=False)
class _Lookup:
    """Rows and neighbours of a CNN's operators in a library, the same at all batch sizes.

    `operators` have twins (`_with_twins`) at the positions `twins`. `exact` (n_operators,) is an operator's row in the
    library, -1 for one that it lacks; `measured` and `new` are the positions of both; `near` finds neighbours of the
    latter. `curves` (n_operators, n_batches) are ln(time / base) at the library's batch sizes, of new operators the
    mean of their neighbours, and `missed` (n_new x k, n_batches) what trees grown without a neighbour miss of it; None
    without such trees. `host_ms` and `shape` (n_operators,) are as of `OperatorTimes`. `wide` are the places in `new`
    of wide windows. `forest` (n_operators,) is the number of an operator's forest; `trees` (n_operators,
    n_usual_sizes) holds what it predicts, NaN until it is asked, 0 without one.
    """

    operators: OperatorColumns
    twins: NDArray[np.intp]
    exact: NDArray[np.intp]
    measured: NDArray[np.intp]
    new: NDArray[np.intp]
    near: interpolation.Neighbourhood
    curves: Array
    missed: Array | None
    host_ms: Array
    shape: NDArray[np.int8]
    views: list[int]
    wide: list[int]
    forest: NDArray[np.intp]
    trees: Array


@lru_cache(maxsize=64)
def _lookup_of(library: OperatorLibrary, asked: OperatorColumns) -> _Lookup:
    """Cached: a CNN is asked for at one batch size after another."""
    (operators, twins, exact), n = _with_twins(library, asked), len(asked)
    measured, new = np.flatnonzero(exact >= 0), np.flatnonzero(exact < 0)
    rows, near = exact[measured], interpolation.neighbourhoods(operators, new, library._columns)
    used, is_unknown = near.rows.ravel(), near.distance == np.inf
    curves, (of_used, *missed) = np.empty((n, library.batch_sizes.size)), library._curves(used)
    curves[measured], curves[new] = library._curves(rows)[0], near.mean(of_used)
    usual, own_ms = library._usual_host_ms, library.host_ms[used]
    host_ms, shape = np.empty(n), np.full(n, MEASURED, dtype=np.int8)
    host_ms[measured] = library.host_ms[rows]
    host_ms[new] = np.where(is_unknown, usual, near.mean(np.where(np.isfinite(own_ms), own_ms, usual)))
    shape[new] = np.where(is_unknown, UNKNOWN, np.where(near.distance > interpolation.FAR, FARAWAY, NEAR))
    carried = library._carried.places_of(operators) >= 0
    shape[carried], host_ms[carried] = CARRIED, usual  # host times of the other card are of another machine
    is_wide = np.array(interpolation.families_of(operators), dtype=object)[new] == interpolation.WIDE_WINDOWS
    names, forest = interpolation.forests_of(operators), np.full(n, _NO_FOREST)
    may_be_views = np.flatnonzero(operators.of_types(lambda entry: entry.operator_class in (None, "permute")))
    for number, name in enumerate(library.forests):
        forest[names == name] = number
    if library.hidden:
        forest[(forest != _NO_FOREST) & [operator in library.hidden for operator in operators]] = _HIDDEN
    return _Lookup(
        operators, twins, exact, measured, new, near, curves, missed[0] if missed else None, host_ms, shape,
        [i for i in may_be_views.tolist() if is_view(operators[i], library.mode.framework)],
        np.flatnonzero(~is_unknown & is_wide).tolist(),
        forest, np.repeat(np.where(forest < 0, 0.0, np.nan)[:, None], library.usual_sizes.size, axis=1),
    )  # fmt: skip


def _is_measured(library: OperatorSource, operators: OperatorColumns) -> NDArray[np.bool_]:
    """Whether the library, or one that it rests on, holds each operator itself."""
    if isinstance(library, CarriedOver):
        return _is_measured(library.source, operators)
    measured = library._columns.places_of(operators) >= 0
    return measured if library.base is None else measured | _is_measured(library.base, operators)


def _with_twins(
    library: OperatorLibrary, operators: OperatorColumns
) -> tuple[OperatorColumns, NDArray[np.intp], NDArray[np.intp]]:
    """The operators, where twins stand in them, and the place of each in the library, -1 for one that it lacks.

    Twins tell the time of convolutions that no library measured: without the bias, or measured with a bias.
    """
    exact, base = library._columns.places_of(operators), library.base
    numbers, bias = operators.numbers, operators.numbers("out_channels", 0)
    area, parameters = numbers("kernel_height") * numbers("kernel_width"), numbers("parameters", 0)
    filters = numbers("in_channels", 0) * bias * area // numbers("groups")
    lacks_bias, may_have = parameters == filters, (operators.text("type") == "conv2d") & (bias > 0)
    may_have &= (lacks_bias | (parameters == filters + bias)) & (library.mode.framework == "pytorch")
    is_measured = exact >= 0 if base is None else (exact >= 0) | _is_measured(base, operators)
    at = np.flatnonzero(may_have & ~is_measured)
    twins = operators.rows(at).changed(np.arange(at.size), parameters=(filters + bias * lacks_bias)[at])
    of_twins = library._columns.places_of(twins)
    is_used = ~lacks_bias[at] | (of_twins >= 0)
    exact[at[is_used]] = of_twins[is_used]
    parameters = twins.cells[FIELDS.index("parameters"), is_used]
    return operators.changed(at[is_used], parameters=parameters), at[is_used], exact


def _rows_of(sizes: Array, rows: NDArray[np.intp]) -> Array:
    """Batch sizes of these operators; as they are, (1, n_batches), if all operators share them."""
    return sizes if len(sizes) == 1 else sizes[rows]


_Key = tuple[tuple[float, ...], ...]


def _key_of(batch_sizes: Array) -> _Key:
    """Batch sizes (n_batches,), or of each operator, (n_operators, n_batches), as a key of a cache."""
    return tuple(map(tuple, np.atleast_2d(np.asarray(batch_sizes, dtype=float)).tolist()))


@lru_cache(maxsize=32)
def _times(library: OperatorLibrary, operators: OperatorColumns, batch_sizes: _Key) -> OperatorTimes:
    """The library's answer, cached: each card of its chip, and each library based on it, asks for the same times."""
    answer = library._times(operators, np.array(batch_sizes))
    for array in (answer.gpu_ms, answer.host_ms, answer.shape, answer.beyond):
        array.flags.writeable = False
    return answer


@lru_cache(maxsize=32)
def _carried(
    source: OperatorSource, mode: DeviceMode, operators: OperatorColumns, batch_sizes: _Key
) -> tuple[OperatorTimes, Array]:
    """The source's times in another mode on its GPU, and the share that its memory decides; cached as `_times`."""
    batches, precisions = np.array(batch_sizes), (mode.precision, source.mode.precision)
    times = source.times(operators, batches)
    gpu_ms = times.gpu_ms
    if precisions[0] != precisions[1]:
        rates = [work.device_rates(mode.gpu, precision) for precision in precisions]
        gpu_ms = gpu_ms * np.divide(
            *(work.base_ms(operators, batches, rate, mode.kernel_layout) for rate in rates)
        )
    shape = np.where(times.shape == MEASURED, CARRIED, times.shape).astype(np.int8)
    moved = work.moved_bytes(operators, batches, work.device_rates(mode.gpu, mode.precision).element_bytes)
    reached = find_gpu(mode.gpu).memory_bandwidth_gb_per_s * 1e6 * _SUSTAINED  # bytes per ms
    with np.errstate(divide="ignore"):
        in_cache = 1.0 + (_CACHE_BYTES / moved) ** 2
    by_memory = np.minimum(1.0, moved / (reached * np.maximum(gpu_ms, 1e-12))) / in_cache
    return replace(times, gpu_ms=gpu_ms, shape=shape), by_memory


def _wider(operator: Operator) -> Operator | None:
    """A dense layer of few channels with 96 instead, which takes no less time; None for others, and uneven channels.

    Low-rank adapters have 4 to 32 channels on maps; trees that know few below 96 answered three times as long for 8.
    """
    sizes = operator.in_channels or 0, operator.out_channels or 0
    ins, outs = (max(_NARROW, n) if n % 8 == 0 else n for n in sizes)
    if operator.type != "linear" or (ins, outs) == sizes:
        return None
    parameters = ins * outs + outs * has_bias(operator)
    return replace(operator, in_channels=ins, out_channels=outs, parameters=parameters)


@lru_cache(maxsize=65536)
def _name_and_kind(operator: Operator) -> tuple[str, str]:
    return operator.name, operator.kind or ""


def _medians(values: Array, group: NDArray[np.intp], n_groups: int) -> Array:
    """Median of the known values of each group, NaN where none is known."""
    known = np.isfinite(values)
    of_each: list[list[float]] = [[] for _ in range(n_groups)]
    for value, number in zip(values[known].tolist(), group[known].tolist(), strict=True):
        of_each[number].append(value)
    return np.array([median(of_group) if of_group else np.nan for of_group in of_each])
