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

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array, distinct_values, weighted_sums
from predictor.catalogue.devices import Rates, all_gpus, design_of, find_gpu, is_cpu
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
from predictor.operators.columns import OperatorColumns
from predictor.operators.operators import Operator, Operators, filters_of, has_bias, is_view

_USUAL = 0.15  # least share of operators measured at a usual batch size, relative to the commonest one
_CLIFF = 0.3  # residuals of ln time are clipped here: larger ones mean that the neighbour ran another kernel
_NO_FOREST, _HIDDEN = -1, -2  # instead of a forest's number: none, or its predictions are those of `hidden`
_BATCH_FREE = ("optimizer",)
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
        carried = self._columns.places_of([*self.carried])
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
        lesser.__dict__["_log_least"] = tuple(own[kept] for own in self._log_least)
        return lesser

    def times(self, operators: Sequence[Operator], batch_sizes: Array) -> OperatorTimes:
        """Time of each operator at each batch size.

        SchemaError if an operator lacks the shape from which its work is computed.

        ln(time / base) is linear in ln(batch size) between measured ones; beyond them the trees' trend over batch sizes
        is added. A view takes no time.
        """
        batches = np.asarray(batch_sizes, dtype=float)
        distinct = operators if isinstance(operators, Operators) else Operators(operators)
        return _times(self, distinct, tuple(batches.tolist()))

    def _times(self, operators: Operators, batches: Array) -> OperatorTimes:
        if any(operator.repeats != 1 for operator in operators):
            return self._times_of_repeated(operators, batches)
        twins = _twins_of(self, operators)
        if any(twins):
            return self._times_of_twins(operators, twins, batches)
        lookup = _lookup_of(self, operators)
        measured, host = lookup.measured, lookup.host_ms.copy()
        log_ratio = self._between(lookup.curves, batches)
        shape = np.repeat(lookup.shape[:, None], batches.size, axis=1)
        beyond = np.zeros(log_ratio.shape, dtype=np.int8)
        beyond[measured] = self._beyond(lookup.rows, batches)
        log_ratio[measured] += self._drift(lookup, batches, beyond[measured])
        if lookup.new.size:
            new = lookup.new
            log_ratio[new], host[new], shape[new], beyond[new] = self._interpolated(
                lookup, batches, log_ratio[new]
            )
        if self.base is None:
            of_base = work.base_ms(operators, batches, self._rates(), self.mode.kernel_layout)
        else:
            base = self.base.times(operators, batches)
            of_base = base.gpu_ms
            if self.mode.autotune:  # which algorithm runs takes no host time
                host = base.host_ms.copy()
            surer = base.surer_than(OperatorTimes(of_base, host, shape, beyond))
            shape, beyond = np.where(surer, base.shape, shape), np.where(surer, base.beyond, beyond)
        gpu_ms = of_base * np.exp(log_ratio)
        gpu_ms[lookup.views], host[lookup.views] = 0.0, 0.0
        shape[lookup.views], beyond[lookup.views] = MEASURED, 0
        return OperatorTimes(gpu_ms, host, shape, beyond)

    def _base_ms(self, operators: Sequence[Operator], batch_sizes: Array) -> Array:
        """Times that measurements are compared with, of shape (n_operators, n_batches)."""
        if self.base is None:
            return work.base_ms(operators, batch_sizes, self._rates(), self.mode.kernel_layout)
        return self.base.times(operators, batch_sizes).gpu_ms

    def _times_of_repeated(self, operators: Sequence[Operator], batches: Array) -> OperatorTimes:
        """Times of operators that run `repeats` times per image, computed at `repeats` x the batch size."""
        gpu_ms = np.empty((len(operators), batches.size))
        host_ms = np.empty(len(operators))
        shape, beyond = np.empty((2, *gpu_ms.shape), dtype=np.int8)
        for repeats in {operator.repeats for operator in operators}:
            rows = [i for i, operator in enumerate(operators) if operator.repeats == repeats]
            single = [replace(operators[i], repeats=1) for i in rows]
            single_times = self.times(single, repeats * batches)
            gpu_ms[rows], host_ms[rows] = single_times.gpu_ms, single_times.host_ms
            shape[rows], beyond[rows] = single_times.shape, single_times.beyond
        return OperatorTimes(gpu_ms, host_ms, shape, beyond)

    def _times_of_twins(
        self, operators: Operators, twins: Sequence[Operator | None], batches: Array
    ) -> OperatorTimes:
        """Times of operators of which some have twins (`_twins_of`), by what a bias takes."""
        times = self.times(
            [twin or operator for operator, twin in zip(operators, twins, strict=True)], batches
        )
        rows = [i for i, twin in enumerate(twins) if twin is not None]
        bias_ms = work.bias_ms([operators[i] for i in rows], batches, self._rates(), self.mode.memory_format)
        signs = np.array([1.0 if has_bias(operators[i]) else -1.0 for i in rows])[:, None]
        gpu_ms, shape = times.gpu_ms.copy(), times.shape.copy()
        gpu_ms[rows] = np.maximum(gpu_ms[rows] + signs * bias_ms, gpu_ms[rows] / 2)
        shape[rows] = np.maximum(shape[rows], NEAR)
        return replace(times, gpu_ms=gpu_ms, shape=shape)

    def _rates(self) -> Rates:
        return work.device_rates(self.mode.gpu, self.mode.precision)

    @cached_property
    def _columns(self) -> OperatorColumns:
        return OperatorColumns.of(self.operators)

    @cached_property
    def _shapes(self) -> interpolation.KnownShapes:
        return interpolation.KnownShapes.of(self._columns)

    @cached_property
    def _batch_free(self) -> NDArray[np.bool_]:
        return np.isin(self._columns.text("type").astype(np.str_), _BATCH_FREE)

    @cached_property
    def _classes(self) -> NDArray[np.str_]:
        return np.array([work.operator_class(operator) for operator in self.operators], dtype=np.str_)

    @cached_property
    def _curves(self) -> interpolation.Curves:
        return interpolation.Curves.of(self.batch_sizes, np.isfinite(self.log_ms))

    @cached_property
    def _out_of_fold_known(self) -> interpolation.Curves:
        """Batch sizes with both a measured time and an out-of-fold prediction."""
        expected = np.isfinite(self.log_ms if self.expected is None else self.expected)
        return interpolation.Curves.of(self.batch_sizes, np.isfinite(self.log_ms) & expected)

    @cached_property
    def _log_least(self) -> tuple[Array, NDArray[np.bool_]]:
        """Logarithms of base times, computed per operator when first needed, and a mask of the computed ones."""
        return np.empty(self.log_ms.shape), np.zeros(len(self), dtype=bool)

    def _log_ratio(self, rows: NDArray[np.intp]) -> Array:
        """ln(time / base) of some operators at the library's batch sizes."""
        least, is_computed = self._log_least
        new = rows[~is_computed[rows]]
        if new.size:
            chosen = [self.operators[int(i)] for i in new]
            least[new] = np.log(self._base_ms(chosen, self.batch_sizes))
            is_computed[new] = True  # set last, since another thread may be reading
        return self.log_ms[rows] - least[rows]

    @cached_property
    def _usual_host_ms(self) -> float:
        """Median of the host times; NaN without one."""
        return float(_medians(self.host_ms, np.zeros(len(self), dtype=np.intp), 1)[0])

    @cached_property
    def usual_sizes(self) -> Array:
        """Batch sizes at which many operators were measured; trees are fitted only at these."""
        rows = ~self._batch_free
        share = np.isfinite(self.log_ms[rows]).mean(axis=0) if rows.any() else np.ones(self.batch_sizes.size)
        sizes: Array = self.batch_sizes[share >= _USUAL * share.max()]
        return sizes

    def _between(self, curves: Array, batches: Array) -> Array:
        """Curves (n, n_batches) over the library's batch sizes, at others."""
        return interpolation.between(self._curves.at, np.log(batches), curves)

    def _beyond(self, rows: NDArray[np.intp], batches: Array) -> NDArray[np.int8]:
        """-1 and 1 where a batch size is below and above those at which operators were measured."""
        return self._curves.beyond(rows, batches) * ~self._batch_free[rows, None]

    def _drift(self, lookup: _Lookup, batches: Array, beyond: NDArray[np.int8]) -> Array:
        """Change of ln(time / base) beyond an operator's measured batch sizes, by the trees; 0 within them."""
        drift = np.zeros(beyond.shape)
        out = np.flatnonzero(beyond.any(axis=1))
        if not out.size:
            return drift
        ends = self._ends[lookup.rows[out]]
        sizes = distinct_values(np.concatenate([batches, ends.ravel()]))
        grown, predicted = self._by_trees(lookup, lookup.measured[out], sizes)
        own = np.clip(batches, ends[grown, :1], ends[grown, 1:])
        usual = np.take_along_axis(predicted, np.searchsorted(sizes, own), axis=1)
        drift[out[grown]] = predicted[:, np.searchsorted(sizes, batches)] - usual
        return np.where(beyond, drift, 0.0)

    @cached_property
    def _ends(self) -> Array:
        """Least and greatest measured batch size of each operator, (n_operators, 2)."""
        is_measured = np.isfinite(self.log_ms)
        last = is_measured.shape[1] - 1 - is_measured[:, ::-1].argmax(axis=1)
        return np.stack([self.batch_sizes[is_measured.argmax(axis=1)], self.batch_sizes[last]], axis=1)

    def _interpolated(
        self, lookup: _Lookup, batches: Array, log_ratio: Array
    ) -> tuple[Array, Array, NDArray[np.int8], NDArray[np.int8]]:
        """ln(time / base), host time and support of new operators; `log_ratio` is the mean of their neighbours."""
        near, new = lookup.near, lookup.new
        grown, general = self._by_trees(lookup, new, batches)
        if self.base is None and lookup.wide:
            log_ratio[lookup.wide] += self._of_operations(lookup, batches)
        if lookup.missed is not None:
            missed = np.clip(self._between(lookup.missed, batches), -_CLIFF, _CLIFF)
            general = general + near.shrunk(grown, missed)
        log_ratio[grown] = general
        host, shape = lookup.host_ms[new], np.repeat(lookup.shape[new, None], batches.size, axis=1)
        share = near.mean(self._beyond(lookup.used, batches).astype(float))
        beyond = np.where(np.abs(share) > 0.5, np.sign(share), 0).astype(np.int8)
        for i in np.flatnonzero(near.distance == np.inf):
            # A base knows the type; what corrects other types says nothing of this one.
            operator = lookup.operators[int(lookup.new[i])]
            if operator.fp32_product:  # none was measured: as far from its roofline as in TF32
                plain = [replace(operator, fp32_product=False)]
                in_tf32 = self.times(plain, batches)
                host[i], shape[i] = in_tf32.host_ms[0], np.maximum(in_tf32.shape[0], FARAWAY)
                log_ratio[i] = np.log(in_tf32.gpu_ms[0] / self._base_ms(plain, batches)[0])
            else:
                log_ratio[i] = self._typical(operator, batches) if self.base is None else 0.0
        for i in np.flatnonzero((near.distance > interpolation.FAR) & (near.distance < np.inf)):
            operator = lookup.operators[int(lookup.new[i])]
            wider = _wider(operator)
            if wider is not None:
                at_most = self.times([wider], batches).gpu_ms[0] / self._base_ms([operator], batches)[0]
                log_ratio[i] = np.minimum(log_ratio[i], np.log(at_most))
        return log_ratio, host, shape, beyond

    def _of_operations(self, lookup: _Lookup, batches: Array) -> Array:
        """Correction of ln(time / base) of wide windows, whose times follow operations."""
        used = sorted(set(lookup.near.rows[lookup.wide].ravel().tolist()))
        neighbours = [self.operators[int(lookup.used[i])] for i in used]
        own = [lookup.operators[int(lookup.new[i])] for i in lookup.wide]
        ratios = [
            np.log([work.operator_work(operator)[0] * batches for operator in operators])
            - np.log(self._base_ms(operators, batches))
            for operators in (neighbours, own)
        ]
        rows = np.searchsorted(used, lookup.near.rows[lookup.wide])
        return ratios[1] - weighted_sums(lookup.near.weights[lookup.wide], ratios[0][rows])

    def _by_trees(
        self, lookup: _Lookup, positions: NDArray[np.intp], batches: Array
    ) -> tuple[NDArray[np.intp], Array]:
        """Indices of those with a forest among `positions`, and the trees' ln(time / base), (n_grown, n_batches).

        A tree is read at the library's usual batch sizes, and once for each of these: between them its answers are
        interpolated.
        """
        at, forest = np.log(self.usual_sizes), lookup.forest[positions]
        if not self.forests or not positions.size:
            return np.empty(0, dtype=np.intp), np.empty((0, batches.size))
        columns = interpolation.needed(at, np.log(batches))
        for number, trees in enumerate(self.forests.values()):
            lacking = np.isnan(lookup.trees[np.ix_(positions[forest == number], columns)])
            new, at_sizes = positions[forest == number][lacking.any(axis=1)], columns[lacking.any(axis=0)]
            if new.size:
                operators = [lookup.operators[int(i)] for i in new]
                sizes, sm_count = self.usual_sizes[at_sizes], work.device_sm_count(self.mode.gpu)
                features = interpolation.forest_features(operators, sizes, self._rates(), sm_count)
                answers = trees.predict(features.reshape(-1, features.shape[2]))
                lookup.trees[np.ix_(new, at_sizes)] = answers.reshape(new.size, at_sizes.size)
        grown = np.flatnonzero(forest != _NO_FOREST)
        curves = interpolation.between(
            at[columns], np.log(batches), lookup.trees[np.ix_(positions[grown], columns)]
        )
        for i in np.flatnonzero(forest[grown] == _HIDDEN):
            expected = self.hidden[lookup.operators[int(positions[grown[i]])]]
            at_sizes = np.isfinite(expected)
            curves[i] = interpolation.between(
                np.log(self.batch_sizes[at_sizes]), np.log(batches), expected[None, at_sizes]
            )[0]
        return grown, curves

    def _typical(self, operator: Operator, batches: Array) -> Array:
        """Median of ln(time / base) over operators of its class; where few are, over those bound like it.

        Arithmetic or memory bounds them.
        """
        kind = work.operator_class(operator)
        alike = np.flatnonzero(self._classes == kind)
        if alike.size < _FEW:
            alike = np.flatnonzero(np.isin(self._classes, _COMPUTE_CLASSES) == (kind in _COMPUTE_CLASSES))
        rows = alike if alike.size else np.arange(len(self))
        curves = self._curves.filled(rows, self._log_ratio(rows))
        return np.median(self._between(curves, batches), axis=0)


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
        distinct = operators if isinstance(operators, Operators) else Operators(operators)
        in_mode = self.mode._replace(gpu=self.source.mode.gpu)
        times, by_memory = _carried(self.source, in_mode, distinct, tuple(np.asarray(batch_sizes).tolist()))
        if self.mode.gpu == self.source.mode.gpu:
            return times
        card, source = find_gpu(self.mode.gpu), find_gpu(self.source.mode.gpu)
        memory = source.memory_bandwidth_gb_per_s / card.memory_bandwidth_gb_per_s
        arithmetic = (source.sm_count * source.boost_clock_ghz) / (card.sm_count * card.boost_clock_ghz)
        ratio = by_memory * memory + (1.0 - by_memory) * arithmetic
        return replace(times, gpu_ms=times.gpu_ms * ratio)


OperatorSource = OperatorLibrary | CarriedOver


def cards_of_the_chip(mode: DeviceMode) -> list[DeviceMode]:
    """The same mode on the other cards of the chip."""
    if is_cpu(mode.gpu):
        return []
    return [mode._replace(gpu=name) for name in _cards(find_gpu(mode.gpu).name)]


@lru_cache(maxsize=256)
def _cards(name: str) -> tuple[str, ...]:
    chip = find_gpu(name).chip
    return tuple(gpu.name for gpu in all_gpus() if gpu.chip == chip and gpu.name != name)


@dataclass(frozen=True, slots=True, eq=False)
class _Lookup:
    """Rows and neighbours of a CNN's operators in a library, the same at all batch sizes.

    `measured` and `new` are the positions of operators that the library has, in its `rows`, and of those that it lacks;
    `near` finds neighbours of the latter in its rows `used`. `curves` (n_operators, n_batches) are ln(time / base) at
    the library's batch sizes, of new operators the mean of their neighbours, and `missed` (n_used, n_batches) what
    trees grown without a neighbour miss of it; None without such trees. `host_ms` and `shape` (n_operators,) are as of
    `OperatorTimes`. `wide` are the places in `new` of wide windows. `forest` (n_operators,) is the number of an
    operator's forest; `trees` (n_operators, n_usual_sizes) holds what it predicts, NaN until it is asked.
    """

    operators: Operators
    measured: NDArray[np.intp]
    new: NDArray[np.intp]
    rows: NDArray[np.intp]
    near: interpolation.Neighbourhood
    used: NDArray[np.intp]
    curves: Array
    missed: Array | None
    host_ms: Array
    shape: NDArray[np.int8]
    views: list[int]
    wide: list[int]
    forest: NDArray[np.intp]
    trees: Array


@lru_cache(maxsize=64)
def _lookup_of(library: OperatorLibrary, operators: Operators) -> _Lookup:
    """Cached: a CNN is asked for at one batch size after another."""
    exact, columns = library._columns.places_of(operators), OperatorColumns.of(operators)
    measured, new = np.flatnonzero(exact >= 0), np.flatnonzero(exact < 0)
    rows, unmeasured = exact[measured], columns.rows(new)
    near = interpolation.neighbourhoods(unmeasured, library._shapes)
    used, at = np.unique(near.rows, return_inverse=True)
    near = replace(near, rows=at.reshape(near.rows.shape))
    is_unknown = near.distance == np.inf
    curves = np.empty((len(operators), library.batch_sizes.size))
    curves[measured] = library._curves.filled(rows, library._log_ratio(rows))
    of_used = library._log_ratio(used)
    curves[new] = near.mean(library._curves.filled(used, of_used))
    missed = None
    if library.expected is not None:  # of the neighbours, measured minus out-of-fold ln(time / base)
        missed = library._out_of_fold_known.filled(used, of_used - library.expected[used])
    usual, own_ms = library._usual_host_ms, library.host_ms[used]
    host_ms = np.empty(len(operators))
    host_ms[measured] = library.host_ms[rows]
    host_ms[new] = np.where(is_unknown, usual, near.mean(np.where(np.isfinite(own_ms), own_ms, usual)))
    shape = np.full(len(operators), MEASURED, dtype=np.int8)
    shape[new] = np.where(is_unknown, UNKNOWN, np.where(near.distance > interpolation.FAR, FARAWAY, NEAR))
    carried = np.array([operator in library.carried for operator in operators], dtype=bool)
    shape[carried], host_ms[carried] = CARRIED, usual  # host times of the other card are of another machine
    is_wide = [family == interpolation.WIDE_WINDOWS for family in interpolation.families_of(unmeasured)]
    forests = {name: number for number, name in enumerate(library.forests)}
    forest = [
        _NO_FOREST if (number := forests.get(name)) is None else _HIDDEN if operator in library.hidden else number
        for operator, name in zip(operators, interpolation.forests_of(columns), strict=True)
    ]  # fmt: skip
    return _Lookup(
        operators, measured, new, rows, near, used, curves, missed, host_ms, shape,
        [i for i, operator in enumerate(operators) if is_view(operator, library.mode.framework)],
        np.flatnonzero(~is_unknown & np.array(is_wide, dtype=bool)).tolist(),
        np.array(forest, dtype=np.intp), np.full((len(operators), library.usual_sizes.size), np.nan),
    )  # fmt: skip


def _is_measured(library: OperatorLibrary | CarriedOver, operators: Operators) -> NDArray[np.bool_]:
    """Whether the library, or one that it rests on, holds each operator itself."""
    if isinstance(library, CarriedOver):
        return _is_measured(library.source, operators)
    measured = library._columns.places_of(operators) >= 0
    return measured if library.base is None else measured | _is_measured(library.base, operators)


@lru_cache(maxsize=64)
def _twins_of(library: OperatorLibrary, operators: Operators) -> tuple[Operator | None, ...]:
    """Convolutions without their bias, or measured with one, that tell the time of those that no library measured."""
    twins: list[Operator | None] = [None] * len(operators)
    columns, is_pytorch = library._columns, library.mode.framework == "pytorch"
    for i in np.flatnonzero(~_is_measured(library, operators)).tolist() if is_pytorch else ():
        operator, bias = operators[i], operators[i].out_channels or 0
        if operator.type == "conv2d" and bias:
            filters = filters_of(operator)
            if operator.parameters == filters + bias:
                twins[i] = replace(operator, parameters=filters)
            elif operator.parameters == filters:
                twin = replace(operator, parameters=filters + bias)
                twins[i] = twin if columns.places_of([twin])[0] >= 0 else None
    return tuple(twins)


@lru_cache(maxsize=32)
def _times(library: OperatorLibrary, operators: Operators, batch_sizes: tuple[float, ...]) -> OperatorTimes:
    """The library's answer, cached: each card of its chip, and each library based on it, asks for the same times."""
    answer = library._times(operators, np.array(batch_sizes))
    for array in (answer.gpu_ms, answer.host_ms, answer.shape, answer.beyond):
        array.flags.writeable = False
    return answer


@lru_cache(maxsize=32)
def _carried(
    source: OperatorSource, mode: DeviceMode, operators: Operators, batch_sizes: tuple[float, ...]
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
    finite = np.flatnonzero(np.isfinite(values))
    order = finite[np.lexsort((values[finite], group[finite]))]
    count = np.bincount(group[finite], minlength=n_groups)
    first = np.cumsum(count) - count
    non_empty = np.flatnonzero(count)
    medians = np.full(n_groups, np.nan)
    lower, upper = (order[first[non_empty] + (count[non_empty] - odd) // 2] for odd in (1, 0))
    medians[non_empty] = (values[lower] + values[upper]) / 2.0
    return medians
