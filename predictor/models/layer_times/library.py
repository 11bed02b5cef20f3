"""The operator library: operators measured on one GPU in one mode, and times of others interpolated from them.

A measured operator's time is used unchanged; for others time / base is interpolated, which varies a hundred times
less than time. The base is the roofline, or times carried over from another card or mode, which vary less again.
Values that follow only from a library's operators are computed once and cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Rates
from predictor.errors import SchemaError
from predictor.models.layer_times.interpolation import (
    FAR,
    WIDE_WINDOWS,
    Curves,
    Forest,
    KnownShapes,
    Neighbourhood,
    between,
    family_of,
    forest_features,
    forest_of,
    needed,
    neighbourhoods,
)
from predictor.models.layer_times.times import (
    CARRIED,
    FARAWAY,
    MEASURED,
    NEAR,
    UNKNOWN,
    DeviceMode,
    OperatorTimes,
)
from predictor.models.layer_times.transfer import CarriedOver
from predictor.operators.operators import Operator, Operators, has_bias, is_view, operator_from_row
from predictor.operators.work import (
    device_rates,
    device_sm_count,
    operator_class,
    operator_work,
    roofline_ms,
)

Array = NDArray[np.float64]

_USUAL = 0.15  # least share of operators measured at a usual batch size, relative to the commonest one
_CLIFF = 0.3  # residuals of ln time are clipped here: larger ones mean that the neighbour ran another kernel
_NO_FOREST, _HIDDEN = -1, -2  # instead of a forest's number: none, or its predictions are those of `hidden`
_BATCH_FREE = ("optimizer",)
_COMPUTE_CLASSES = ("convolution", "linear")
_NARROW = 96  # channels below which a dense layer takes no less time than with as many
_FEW = 12  # operators of a class below which its median says little
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
    operators: tuple[Operator, ...]
    batch_sizes: Array
    log_ms: Array
    host_ms: Array
    host: str | None = None
    forests: Mapping[str, Forest] = field(default_factory=dict)
    expected: Array | None = None
    hidden: Mapping[Operator, Array] = field(default_factory=dict)
    base: CarriedOver | None = None
    carried: frozenset[Operator] = frozenset()

    @classmethod
    def of_rows(cls, mode: DeviceMode, rows: Iterable[Mapping[Any, Any]]) -> OperatorLibrary:
        """Library of rows of a measurement table, all of this mode; repeated operators are averaged.

        SchemaError if a row is not an operator's, or there are no rows.
        """
        names: dict[tuple[object, ...], Operator] = {}
        measured: list[Operator] = []
        times: list[tuple[float, float, float]] = []
        machines: set[object] = set()
        for row in rows:
            machines.add(row.get("host"))
            key = tuple(str(row.get(name)) for name in OPERATOR_KEYS)
            if key not in names:
                names[key] = operator_from_row(row)
            measured.append(names[key])
            time_ms = row["gpu_time_ms"] if _known(row.get("gpu_time_ms")) else row["iteration_time_ms"]
            host_ms = row["host_time_ms"] if _known(row.get("host_time_ms")) else np.nan
            times.append((float(row["batch_size"]), float(time_ms), float(host_ms)))
        return cls.of_times(mode, measured, np.array(times).reshape(-1, 3), machines)

    @classmethod
    def of_times(
        cls, mode: DeviceMode, measured: Sequence[Operator], times: Array, machines: Iterable[object]
    ) -> OperatorLibrary:
        """Library of measurements, one or more per operator; `times` (n, 3): batch size, GPU ms, host ms.

        SchemaError if there are no operators.
        """
        kept = np.array([not is_view(each, mode.framework) for each in measured], dtype=bool)
        measured, times = [measured[int(i)] for i in np.flatnonzero(kept)], times[kept]
        if not measured:
            raise SchemaError(
                f"there are no operators of {', '.join(map(str, mode))}. Measure some with `epochcast profile`."
            )
        operators = tuple(sorted(set(measured), key=_name_and_kind))
        place = {operator: i for i, operator in enumerate(operators)}
        row = np.array([place[operator] for operator in measured])
        sizes, column = np.unique(times[:, 0], return_inverse=True)
        cell = row * sizes.size + column
        total, count = (
            np.bincount(cell, weights, len(operators) * sizes.size)
            for weights in (np.log(times[:, 1]), np.ones(len(times)))
        )
        log_ms = np.where(count > 0, total / np.maximum(count, 1.0), np.nan).reshape(-1, sizes.size)
        return cls(
            mode, operators, sizes, log_ms, _medians(times[:, 2], row, len(operators)), _only(set(machines))
        )

    def __len__(self) -> int:
        return len(self.operators)

    def with_carried(self, more: OperatorLibrary) -> OperatorLibrary:
        """The library with operators of `more`, carried over to its mode; without trees, which do not know them."""
        operators = tuple(sorted((*self.operators, *more.operators), key=_name_and_kind))
        sizes = np.union1d(self.batch_sizes, more.batch_sizes)
        log_ms, host_ms = np.full((len(operators), sizes.size), np.nan), np.full(len(operators), np.nan)
        place = {operator: i for i, operator in enumerate(operators)}
        for library in (self, more):
            rows = np.array([place[operator] for operator in library.operators], dtype=np.intp)
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
        own = [operator not in self.carried for operator in self.operators]
        return int(np.isfinite(self.log_ms[own]).sum())

    @property
    def origin(self) -> str:
        """What the times rest on, for answers."""
        others = "" if self.base is None else f", the others carried over from {self.base.source.mode}"
        return f"{len(self) - len(self.carried)} operators measured on it{others}"

    def without(self, operators: Sequence[Operator]) -> OperatorLibrary:
        """The library, and its base, without the measurements of these operators."""
        kept = np.ones(len(self), dtype=bool)
        kept[[self._place[each] for each in operators if each in self._place]] = False
        hidden = dict(self.hidden)
        if self.expected is not None:
            predicted = np.isfinite(self.expected).any(axis=1)
            hidden |= {self.operators[int(i)]: self.expected[i] for i in np.flatnonzero(~kept & predicted)}
        lesser = replace(
            self,
            operators=tuple(each for each, keep in zip(self.operators, kept, strict=True) if keep),
            log_ms=self.log_ms[kept],
            host_ms=self.host_ms[kept],
            expected=None if self.expected is None else self.expected[kept],
            hidden=hidden,
            base=None if self.base is None else self.base.without(list(operators)),
        )
        least, there = self._log_least
        lesser.__dict__.update(  # cached values of single operators stay valid
            _curves=self._curves.of_rows(kept),
            _out_of_fold_known=self._out_of_fold_known.of_rows(kept),
            _shapes=self._shapes.of_rows(kept),
            _batch_free=self._batch_free[kept],
            _log_least=(least[kept], there[kept]),
        )
        return lesser

    def times(self, operators: Sequence[Operator], batch_sizes: Array) -> OperatorTimes:
        """Time of each operator at each batch size.

        SchemaError if an operator lacks the shape from which its work is computed.

        ln(time / base) is linear in ln(batch size) between measured ones; beyond them the trees' trend over batch sizes
        is added. A view takes no time.
        """
        batches = np.asarray(batch_sizes, dtype=float)
        asked = operators if isinstance(operators, Operators) else Operators(operators)
        return _times(self, asked, tuple(batches.tolist()))

    def _times(self, operators: Operators, batches: Array) -> OperatorTimes:
        if any(operator.repeats != 1 for operator in operators):
            return self._times_of_repeated(operators, batches)
        asked = _asked(self, operators)
        known, rows = asked.known, asked.rows
        log_ratio = np.empty((len(operators), batches.size))
        shape = np.full(log_ratio.shape, MEASURED, dtype=np.int8)
        shape[[operator in self.carried for operator in operators]] = CARRIED
        beyond = np.zeros(log_ratio.shape, dtype=np.int8)
        host = np.full(len(operators), np.nan)
        log_ratio[known], beyond[known] = self._measured(rows, batches)
        log_ratio[known] += self._drift(asked, batches, beyond[known])
        host[known] = self.host_ms[rows]
        if asked.new.size:
            new = asked.new
            log_ratio[new], host[new], shape[new], beyond[new] = self._interpolated(asked, batches)
        if self.base is None:
            base_ms = roofline_ms(operators, batches, self._rates())
        else:
            base = self.base.times(operators, batches)
            base_ms = base.gpu_ms
            if self.mode.autotune:  # which algorithm runs takes no host time
                host = base.host_ms.copy()
            surer = base.surer_than(OperatorTimes(base_ms, host, shape, beyond))
            shape, beyond = np.where(surer, base.shape, shape), np.where(surer, base.beyond, beyond)
        gpu_ms = base_ms * np.exp(log_ratio)
        gpu_ms[asked.views], host[asked.views] = 0.0, 0.0
        shape[asked.views], beyond[asked.views] = MEASURED, 0
        return OperatorTimes(gpu_ms, host, shape, beyond)

    def _base_ms(self, operators: Sequence[Operator], batch_sizes: Array) -> Array:
        """Times that measurements are compared with, of shape (n_operators, n_batches)."""
        if self.base is None:
            return roofline_ms(operators, batch_sizes, self._rates())
        return self.base.times(operators, batch_sizes).gpu_ms

    def _times_of_repeated(self, operators: Sequence[Operator], batches: Array) -> OperatorTimes:
        """Times of operators that run `repeats` times per image, computed at `repeats` x the batch size."""
        gpu_ms = np.empty((len(operators), batches.size))
        host_ms = np.empty(len(operators))
        shape, beyond = np.empty((2, *gpu_ms.shape), dtype=np.int8)
        for repeats in {operator.repeats for operator in operators}:
            rows = [i for i, operator in enumerate(operators) if operator.repeats == repeats]
            single = [replace(operators[i], repeats=1) for i in rows]
            found = self.times(single, repeats * batches)
            gpu_ms[rows], host_ms[rows] = found.gpu_ms, found.host_ms
            shape[rows], beyond[rows] = found.shape, found.beyond
        return OperatorTimes(gpu_ms, host_ms, shape, beyond)

    def _rates(self) -> Rates:
        return device_rates(self.mode.gpu, self.mode.precision)

    @cached_property
    def _place(self) -> dict[Operator, int]:
        return {operator: i for i, operator in enumerate(self.operators)}

    @cached_property
    def _shapes(self) -> KnownShapes:
        return KnownShapes.of(self.operators)

    @cached_property
    def _batch_free(self) -> NDArray[np.bool_]:
        return np.array([operator.type in _BATCH_FREE for operator in self.operators], dtype=bool)

    @cached_property
    def _classes(self) -> NDArray[np.str_]:
        return np.array([operator_class(each) for each in self.operators], dtype=np.str_)

    @cached_property
    def _curves(self) -> Curves:
        return Curves.of(self.batch_sizes, np.isfinite(self.log_ms))

    @cached_property
    def _out_of_fold_known(self) -> Curves:
        """Batch sizes with both a measured time and an out-of-fold prediction."""
        expected = np.isfinite(self.log_ms if self.expected is None else self.expected)
        return Curves.of(self.batch_sizes, np.isfinite(self.log_ms) & expected)

    @cached_property
    def _log_least(self) -> tuple[Array, NDArray[np.bool_]]:
        """Logarithms of base times, computed per operator when first needed, and a mask of the computed ones."""
        return np.empty(self.log_ms.shape), np.zeros(len(self), dtype=bool)

    def _log_ratio(self, rows: NDArray[np.intp]) -> Array:
        """ln(time / base) of some operators at the library's batch sizes."""
        least, there = self._log_least
        new = rows[~there[rows]]
        if new.size:
            chosen = [self.operators[int(i)] for i in new]
            least[new] = np.log(self._base_ms(chosen, self.batch_sizes))
            there[new] = True  # set last, since another thread may be reading
        found: Array = self.log_ms[rows] - least[rows]
        return found

    @cached_property
    def usual_sizes(self) -> Array:
        """Batch sizes at which many operators were measured; trees are fitted only at these."""
        rows = ~self._batch_free
        share = np.isfinite(self.log_ms[rows]).mean(axis=0) if rows.any() else np.ones(self.batch_sizes.size)
        sizes: Array = self.batch_sizes[share >= _USUAL * share.max()]
        return sizes

    def _measured(self, rows: NDArray[np.intp], batches: Array) -> tuple[Array, NDArray[np.int8]]:
        """ln(time / base) of measured operators; -1 and 1 where a batch size is below and above their measured ones."""
        curves, beyond = self._curves.along(rows, self._log_ratio(rows), batches)
        return curves, beyond * ~self._batch_free[rows, None]

    def _drift(self, asked: _Asked, batches: Array, beyond: NDArray[np.int8]) -> Array:
        """Change of ln(time / base) beyond an operator's measured batch sizes, by the trees; 0 within them."""
        drift = np.zeros(beyond.shape)
        out = np.flatnonzero(beyond.any(axis=1))
        if not out.size:
            return drift
        ends = self._ends[asked.rows[out]]
        sizes = np.unique(np.concatenate([batches, ends.ravel()]))
        grown, predicted = self._by_trees(asked, asked.known[out], sizes)
        own = np.clip(batches, ends[grown, :1], ends[grown, 1:])
        usual = np.take_along_axis(predicted, np.searchsorted(sizes, own), axis=1)
        drift[out[grown]] = predicted[:, np.searchsorted(sizes, batches)] - usual
        return np.where(beyond, drift, 0.0)

    @cached_property
    def _ends(self) -> Array:
        """Least and greatest measured batch size of each operator, (n_operators, 2)."""
        known = np.isfinite(self.log_ms)
        last = known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
        return np.stack([self.batch_sizes[known.argmax(axis=1)], self.batch_sizes[last]], axis=1)

    def _interpolated(
        self, asked: _Asked, batches: Array
    ) -> tuple[Array, Array, NDArray[np.int8], NDArray[np.int8]]:
        near, used = asked.near, asked.used
        efficiency, beyond = self._measured(used, batches)
        usual = _median(self.host_ms)
        log_ratio = near.mean(efficiency)
        grown, general = self._by_trees(asked, asked.new, batches)
        if self.base is None:
            log_ratio += self._of_operations(asked, batches)
        log_ratio[grown] = general + near.shrunk(grown, self._out_of_fold_residual(used, batches))
        host = near.mean(np.where(np.isfinite(self.host_ms[used]), self.host_ms[used], usual))
        share = near.mean(beyond.astype(float))
        beyond = np.where(np.abs(share) > 0.5, np.sign(share), 0).astype(np.int8)
        shape = np.full(beyond.shape, NEAR, dtype=np.int8)
        shape[near.distance > FAR] = FARAWAY
        for i in np.flatnonzero(near.distance == np.inf):
            # A base knows the type; what corrects other types says nothing of this one.
            operator = asked.operators[int(asked.new[i])]
            host[i], shape[i] = usual, UNKNOWN
            if operator.fp32_product:  # none was measured: as far from its roofline as in TF32
                plain = [replace(operator, fp32_product=False)]
                known = self.times(plain, batches)
                host[i], shape[i] = known.host_ms[0], np.maximum(known.shape[0], FARAWAY)
                log_ratio[i] = np.log(known.gpu_ms[0] / self._base_ms(plain, batches)[0])
            else:
                log_ratio[i] = self._typical(operator, batches) if self.base is None else 0.0
        for i in np.flatnonzero((near.distance > FAR) & (near.distance < np.inf)):
            operator = asked.operators[int(asked.new[i])]
            wider = _wider(operator)
            if wider is not None:
                at_most = self.times([wider], batches).gpu_ms[0] / self._base_ms([operator], batches)[0]
                log_ratio[i] = np.minimum(log_ratio[i], np.log(at_most))
        return log_ratio, host, shape, beyond

    def _of_operations(self, asked: _Asked, batches: Array) -> Array:
        """What turns ln(time / roofline) of the neighbours of wide windows into that of their time / operations."""
        found = np.zeros((asked.new.size, batches.size))
        wide = [
            place for place, i in enumerate(asked.new) if family_of(asked.operators[int(i)]) == WIDE_WINDOWS
        ]
        wide = [place for place in wide if asked.near.distance[place] < np.inf]
        if wide:
            used = sorted(set(asked.near.rows[wide].ravel().tolist()))
            known = [self.operators[int(asked.used[i])] for i in used]
            own = [asked.operators[int(asked.new[place])] for place in wide]
            ratios = [
                np.log([operator_work(each)[0] * batches for each in some])
                - np.log(self._base_ms(some, batches))
                for some in (known, own)
            ]
            rows = np.searchsorted(used, asked.near.rows[wide])
            found[wide] = ratios[1] - np.einsum("ak,ak...->a...", asked.near.weights[wide], ratios[0][rows])
        return found

    def _by_trees(
        self, asked: _Asked, places: NDArray[np.intp], batches: Array
    ) -> tuple[NDArray[np.intp], Array]:
        """Which of these operators have a forest, and the trees' ln(time / base) of each of them.

        A tree is read at the library's usual batch sizes, and once for each of these: between them its answers are
        interpolated.
        """
        at, forest = np.log(self.usual_sizes), asked.forest[places]
        if not self.forests or not places.size:
            return np.empty(0, dtype=np.intp), np.empty((0, batches.size))
        columns = needed(at, np.log(batches))
        for number, name in enumerate(self.forests):
            self._grow(name, asked, places[forest == number], columns)
        grown = np.flatnonzero(forest != _NO_FOREST)
        found = between(at[columns], np.log(batches), asked.trees[np.ix_(places[grown], columns)])
        for i in np.flatnonzero(forest[grown] == _HIDDEN):
            found[i] = self._held_out(asked.operators[int(places[grown[i]])], batches)
        return grown, found

    def _grow(self, name: str, asked: _Asked, places: NDArray[np.intp], columns: NDArray[np.intp]) -> None:
        """Read a forest for these operators at those usual batch sizes at which it was not read yet."""
        lacking = np.isnan(asked.trees[np.ix_(places, columns)])
        places, columns = places[lacking.any(axis=1)], columns[lacking.any(axis=0)]
        if not places.size:
            return
        operators, sizes = [asked.operators[int(i)] for i in places], self.usual_sizes[columns]
        features = forest_features(operators, sizes, self._rates(), device_sm_count(self.mode.gpu))
        answers = self.forests[name].predict(features.reshape(-1, features.shape[2]))
        asked.trees[np.ix_(places, columns)] = answers.reshape(places.size, columns.size)

    def _held_out(self, operator: Operator, batches: Array) -> Array:
        known = self.hidden[operator]
        at = np.isfinite(known)
        curve: Array = between(np.log(self.batch_sizes[at]), np.log(batches), known[None, at])[0]
        return curve

    def _out_of_fold_residual(self, rows: NDArray[np.intp], batches: Array) -> Array:
        """Measured minus out-of-fold ln(time / base), clipped; 0 without trees."""
        if self.expected is None:
            return np.zeros((rows.size, batches.size))
        missed = self._log_ratio(rows) - self.expected[rows]
        clipped: Array = np.clip(self._out_of_fold_known.along(rows, missed, batches)[0], -_CLIFF, _CLIFF)
        return clipped

    def _typical(self, operator: Operator, batches: Array) -> Array:
        """Median of ln(time / base) over operators of its class; where few are, over those bound like it.

        Arithmetic or memory bounds them.
        """
        kind = operator_class(operator)
        alike = np.flatnonzero(self._classes == kind)
        if alike.size < _FEW:
            alike = np.flatnonzero(np.isin(self._classes, _COMPUTE_CLASSES) == (kind in _COMPUTE_CLASSES))
        efficiency, _ = self._measured(alike if alike.size else np.arange(len(self)), batches)
        chosen: Array = np.median(efficiency, axis=0)
        return chosen


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What a library knows of a CNN's operators, whatever the batch sizes.

    `known` and `new` are the positions of operators that the library has, in its `rows`, and of those that it lacks;
    `near` finds neighbours of the latter in its rows `used`. `forest` (n_operators,) is the number of an operator's
    forest; `trees` (n_operators, n_usual_sizes) holds what it predicts, NaN until it is asked.
    """

    operators: Operators
    known: NDArray[np.intp]
    new: NDArray[np.intp]
    rows: NDArray[np.intp]
    near: Neighbourhood
    used: NDArray[np.intp]
    views: list[int]
    forest: NDArray[np.intp]
    trees: Array


@lru_cache(maxsize=64)
def _asked(library: OperatorLibrary, operators: Operators) -> _Asked:
    """Cached: a CNN is asked for at one batch size after another."""
    exact = np.array([library._place.get(operator, -1) for operator in operators], dtype=np.intp)
    known, new = np.flatnonzero(exact >= 0), np.flatnonzero(exact < 0)
    near = neighbourhoods([operators[int(i)] for i in new], library._shapes)
    used, at = np.unique(near.rows, return_inverse=True)
    forests = {name: number for number, name in enumerate(library.forests)}
    forest = [
        _NO_FOREST if (number := forests.get(forest_of(each))) is None
        else _HIDDEN if each in library.hidden else number
        for each in operators
    ]  # fmt: skip
    return _Asked(
        operators, known, new, exact[known], replace(near, rows=at.reshape(near.rows.shape)), used,
        [i for i, each in enumerate(operators) if is_view(each, library.mode.framework)],
        np.array(forest, dtype=np.intp), np.full((len(operators), library.usual_sizes.size), np.nan),
    )  # fmt: skip


@lru_cache(maxsize=32)
def _times(library: OperatorLibrary, operators: Operators, batch_sizes: tuple[float, ...]) -> OperatorTimes:
    """The library's answer, cached: each card of its chip, and each library based on it, asks for the same times."""
    found = library._times(operators, np.array(batch_sizes))
    for each in (found.gpu_ms, found.host_ms, found.shape, found.beyond):
        each.flags.writeable = False
    return found


def _wider(operator: Operator) -> Operator | None:
    """A dense layer of few channels with 96 instead, which takes no less time; None for others, and uneven channels.

    Low-rank adapters have 4 to 32 channels on maps; trees that know few below 96 answered three times as long for 8.
    """
    sizes = operator.in_channels or 0, operator.out_channels or 0
    ins, outs = (max(_NARROW, n) if n % 8 == 0 else n for n in sizes)
    if operator.type != "linear" or (ins, outs) == sizes:
        return None
    return replace(
        operator, in_channels=ins, out_channels=outs, parameters=ins * outs + outs * has_bias(operator)
    )


def _only(machines: set[object]) -> str | None:
    found = machines.pop() if len(machines) == 1 else None
    return found if isinstance(found, str) else None


def _known(value: Any) -> bool:
    return value is not None and value == value


@lru_cache(maxsize=65536)
def _name_and_kind(operator: Operator) -> tuple[str, str]:
    return operator.name, operator.kind or ""


def _medians(values: Array, group: NDArray[np.intp], n_groups: int) -> Array:
    """Median of the known values of each group, NaN where none is known."""
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.lexsort((values[known], group[known]))]
    count = np.bincount(group[known], minlength=n_groups)
    first = np.cumsum(count) - count
    some = np.flatnonzero(count)
    found = np.full(n_groups, np.nan)
    lower, upper = (order[first[some] + (count[some] - odd) // 2] for odd in (1, 0))
    found[some] = (values[lower] + values[upper]) / 2.0
    return found


def _median(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")
