"""The fitted law: times of iterations on any GPU, in any mode, with their intervals; only numpy, read from JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import all_gpus
from predictor.cnns.layer_table import LayerTable
from predictor.models.base import finite
from predictor.models.forecast import Reason
from predictor.models.intervals import Calibration, Shares
from predictor.models.join import join_host
from predictor.models.roofline.arrays import NUMPY, Arrays
from predictor.models.roofline.features import (
    BOUND_BY_TRAFFIC,
    DEPTHWISE,
    FAMILIES,
    FAMILY_OF,
    FEATURES_OF_FAMILY,
    RATE_FEATURES,
    FamilyKernels,
    batch_features,
    shape_features,
)
from predictor.models.roofline.terms import (
    BY_GPU,
    EVERY_FEATURE,
    GAIN,
    GAIN_BY_GPU,
    LAW,
    Contexts,
    KernelContext,
    Term,
    conditions_of,
    contexts_together,
    gained,
    known_as,
    mapped_rates,
    terms_under,
)
from predictor.operators.kernels import KERNEL_CLASSES, Kernels, kernels_of
from predictor.operators.work import looping_ms


@dataclass(frozen=True, slots=True, eq=False)
class IterationTimes:
    """Times of one CNN's iterations, in ms; arrays of shape (n_contexts, n_batches).

    `feed_ms` is the part of the iteration that copies or waits for its images. `classes` are those of the CNN's kernels
    and `by_class_ms` splits the GPU's time by them, (n_contexts, n_classes, n_batches); `unmeasured_ms` is that of
    classes that no training row has; `n_kernels` counts the CNN's distinct kernels.
    """

    iteration_ms: Array
    device_ms: Array
    host_ms: Array
    feed_ms: Array | float
    classes: Sequence[str]
    by_class_ms: Array
    unmeasured_ms: Array
    n_kernels: int

    @property
    def class_ms(self) -> dict[str, Array]:
        """The GPU's time by class of kernels."""
        return {name: self.by_class_ms[:, i] for i, name in enumerate(self.classes)}

    def shares(self, *, is_new_host: bool = False) -> Shares:
        """Shares, (n_contexts, 2, n_batches), that intervals depend on: of the host's time, then of the GPU's."""
        own = [i for i, name in enumerate(self.classes) if name in DEPTHWISE]
        parts_ms = np.array([self.by_class_ms[:, own].sum(axis=1), self.unmeasured_ms])
        host = np.array([[[1.0], [0.0]]])
        depthwise, unmeasured = (1.0 - host) * (parts_ms / self.device_ms)[:, :, None]
        return Shares(host, host * is_new_host, depthwise, unmeasured, np.array([[[1.0 / self.n_kernels]]]))


class CarriedTypes(NamedTuple):
    """Operator types whose times were carried over from another GPU, and their kernels, which the law would time.

    `gpu_ms`, (n_contexts, n_batches): their time; `squares`, alike: of its 90 % half width in ms, to which types add
    independently. `reason`: that they were carried, for caution.
    """

    types: tuple[str, ...]
    kernels: Kernels
    gpu_ms: Array
    squares: Array
    reason: Reason


@dataclass(frozen=True, eq=False)
class RooflineLaw:
    """Coefficients of the law; what the estimator `Roofline` fits and the served model holds.

    `terms`: those under ``gpu:DESIGN`` are what a measured GPU differs in. `host`: ln of the host's ms per iteration
    and per kernel, on the middle of the known machines. `host_offset`: machines are named ``source: host``. `feed`: ln
    of a copy's ms and ms per megabyte of images, then of a loader's. `fed_frameworks`: frameworks whose iterations copy
    their images, as most of their measured ones do. `calibration`: widths of intervals. `arrays`: array library of the
    kernels' times.
    """

    terms: Mapping[Term, float]
    host: Mapping[str, tuple[float, float]]
    host_offset: Mapping[str, float]
    feed: tuple[float, ...]
    fed_frameworks: tuple[str, ...] = ()
    calibration: Calibration = field(default_factory=Calibration)
    arrays: Arrays = NUMPY
    _by_condition: dict[tuple[str, str], tuple[NDArray[np.intp], Array]] = field(
        default_factory=dict, init=False
    )
    _contexts: dict[KernelContext, tuple[Array, bool]] = field(default_factory=dict, init=False)
    _shared_weights: dict[bytes, Array] = field(default_factory=dict, init=False)

    def times(
        self,
        kernels: Kernels,
        contexts: Sequence[KernelContext],
        batch_sizes: Sequence[int] | Array,
        machine: str | None = None,
        *,
        copies: bool = False,
        waits: bool = False,
        captured: bool = False,
        host_ms: Array | None = None,
        carried: CarriedTypes | None = None,
    ) -> IterationTimes:
        """Times of a CNN's iterations on a grid of GPUs and modes x batch sizes.

        `batch_sizes`: shape (n_batches,). `machine`: a key of `host_offset`; None or an unknown one is the middle of
        the known machines. `copies`: whether an iteration copies its images from the host. `waits`: whether it waits
        for a loader, which copies them. `captured`: whether the iteration was captured as a graph, which the host
        launches at once. `host_ms`, shape (n_contexts,): host time of each context in place of that of `machine`.
        `carried`: kernels with other times than the law's, which are split among their classes as by the law.
        """
        batches = np.asarray(batch_sizes, dtype=float) / kernels.parts
        contexts = contexts if isinstance(contexts, Contexts) else contexts_together(tuple(contexts))
        classes, by_class_ms = self._by_class(kernels, contexts, batches)
        by_law_ms = by_class_ms
        if carried is not None:
            names, own_ms = self._by_class(carried.kernels, contexts, batches)
            places = [classes.index(name) for name in names]
            by_law_ms, by_class_ms = by_class_ms.copy(), by_class_ms.copy()
            by_law_ms[:, places] -= own_ms
            by_class_ms[:, places] += own_ms * (carried.gpu_ms / own_ms.sum(axis=1) - 1.0)[:, None]
        device = by_class_ms.sum(axis=1)
        if host_ms is None:
            slowness = math.exp(self.host_offset.get(machine or "", 0.0))
            pairs = np.exp([self._host_of(context.framework) for context in contexts])
            host_ms = slowness * (pairs[:, 0] + pairs[:, 1] * float(kernels.count.sum()))
        host = host_ms[:, None] * (not captured) + np.zeros(device.shape)
        busy = join_host(device, host, contexts.sharpness[:, None])
        feed_ms: Array | float = 0.0
        if copies or waits:
            first_ms, ms_per_mb = np.exp(self.feed[2:] if waits else self.feed[:2])
            feed_ms = first_ms + ms_per_mb * 4e-6 * kernels.image_elements * batches
        unmeasured = [i for i, name in enumerate(classes) if name not in self._measured]
        unmeasured_ms = by_law_ms[:, unmeasured].sum(axis=1)
        of_classes = classes, by_class_ms, unmeasured_ms
        return IterationTimes(busy + feed_ms, device, host, feed_ms, *of_classes, kernels.count.size)

    def knows(self, contexts: Contexts) -> NDArray[np.bool_]:
        """Whether the law has deviations of each context's GPU in its mode."""
        return _known(self, contexts).has_deviations

    def host_ms(self, framework: str, table: LayerTable) -> float:
        """Host time of an iteration on the middle of the known machines, in ms."""
        fixed, per_kernel = np.exp(self._host_of(framework))
        return float(fixed + per_kernel * kernels_of(table).count.sum())

    def hosts(self) -> dict[str, str]:
        """Machine of each host's name; machines that bear their GPU's name, for want of a host's, are left out."""
        named = {machine.split(": ", 1)[-1]: machine for machine in self.host_offset}
        gpus = {gpu.name for gpu in all_gpus()}
        return {name: machine for name, machine in sorted(named.items()) if name not in gpus}

    def to_json(self) -> dict[str, Any]:
        """The law as plain lists and dicts."""
        return {
            "terms": {"|".join(term): value for term, value in self.terms.items()},
            "host": {name: list(pair) for name, pair in self.host.items()},
            "host_offset": dict(self.host_offset),
            "feed": list(self.feed),
            "fed_frameworks": list(self.fed_frameworks),
            "calibration": self.calibration.to_json(),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RooflineLaw:
        """Read `to_json`; a ValueError, KeyError or TypeError if a part is missing or no finite number."""
        terms: dict[Term, float] = {}
        for key, value in stored["terms"].items():
            kernels, feature, condition = key.split("|")
            terms[kernels, feature, condition] = finite(value)
        copy_ms, copy_ms_per_mb, loader_ms, loader_ms_per_mb = map(finite, stored["feed"])
        return cls(
            terms=terms,
            host={name: (finite(a), finite(b)) for name, (a, b) in stored["host"].items()},
            host_offset={name: finite(value) for name, value in stored["host_offset"].items()},
            feed=(copy_ms, copy_ms_per_mb, loader_ms, loader_ms_per_mb),
            fed_frameworks=tuple(stored["fed_frameworks"]),
            calibration=Calibration.from_json(stored["calibration"]),
        )

    def _by_class(self, kernels: Kernels, contexts: Contexts, batches: Array) -> tuple[list[str], Array]:
        """Classes of kernels, and the GPU's time in each in ms, (n_contexts, n_classes, n_batches)."""
        xp, sizes = self.arrays.xp, self.arrays.xp.asarray(batches)
        known, groups = _known(self, contexts), _groups(kernels, xp)
        classes = [name for group in groups for name in group.classes]
        weighted = _weighted(self, contexts, kernels)
        by_class = np.empty((len(contexts), batches.size, len(classes)))
        summed = [_summed(group, own, sizes, xp) for group, own in zip(groups, weighted, strict=True)]
        n_at_once = max(1, self.arrays.n_at_once // (kernels.count.size * batches.size))
        for start in range(0, len(contexts), n_at_once):
            own, end = slice(start, start + n_at_once), 0

            def column(values: NDArray[Any], own: slice = own) -> Any:
                return xp.asarray(values[own, None, None])

            row, rates = xp.asarray(known.row[own]), mapped_rates(contexts.rates, column)
            autocasts = column(contexts.autocasts) if contexts.autocasts[own].any() else False
            # What one class takes too little of, where a GPU was measured, another takes too much of.
            unmeasured = None if known.has_deviations[own].all() else column(1.0 - known.has_deviations)
            for group, (count, in_fp32, *gain) in zip(groups, summed, strict=True):
                of_gpus = FamilyKernels(group.family, group.alike, sizes, rates, xp, autocasts, group.which)
                log_times = in_fp32.of(row, of_gpus)
                if gain and xp.any(faster := of_gpus.is_gaining()):
                    of_mode = gained(of_gpus.of_each(of_gpus.gain()) + gain[0].of(row, of_gpus), xp)
                    log_times = log_times - xp.where(faster, of_mode, 0.0)
                times = xp.exp(log_times)
                times *= of_gpus.of_each(of_gpus.base_ms)
                if unmeasured is not None and group.family not in BOUND_BY_TRAFFIC:
                    times = xp.maximum(times, of_gpus.of_each(of_gpus.least_ms(unmeasured)))
                if group.loops:
                    times += _looping_ms(group.columns, contexts[own], of_gpus)
                times *= count
                first, end = end, end + len(group.classes)
                by_class[own, :, first:end] = self.arrays.sums(times, group.starts).transpose(0, 2, 1)
        return classes, by_class.transpose(0, 2, 1)

    def _of_context(self, context: KernelContext) -> tuple[Array, bool]:
        """Weights of all features in fp32 and of its mode's gain, (2, n_features); whether its GPU has deviations.

        Kept with the law; contexts of equal weights share them.
        """
        kept = self._contexts
        if context not in kept:
            places, values = zip(*map(self._terms_of, conditions_of(context)), strict=True)
            weights = np.zeros((2, len(_PLACE_OF)))
            np.add.at(weights.reshape(-1), np.concatenate(places), np.concatenate(values))
            weights = self._shared_weights.setdefault(weights.tobytes(), weights)
            kept[context] = weights, ":".join(known_as(context) or ()) in self._known
        return kept[context]

    def _terms_of(self, condition: tuple[str, str]) -> tuple[NDArray[np.intp], Array]:
        """Coefficients under one condition, and their places among weights in fp32 and of a mode's gain, raveled."""
        kept = self._by_condition
        if condition not in kept:
            kind, label = condition
            name = f"{kind}:{label}" if kind else ""
            tables = ((0, LAW), (0, BY_GPU), (1, GAIN), (1, GAIN_BY_GPU)) if name in self._conditions else ()
            terms = [
                (row * len(_PLACE_OF) + _PLACE_OF[own, feature], value)
                for (row, table), own in product(tables, KERNEL_CLASSES)
                for kernels, feature in terms_under(table, own, kind)
                if (value := self.terms.get((kernels, feature, name)))
            ]
            places, values = np.array(terms).reshape(-1, 2).T
            kept[condition] = places.astype(np.intp), values
        return kept[condition]

    @cached_property
    def _measured(self) -> frozenset[str]:
        """Classes of kernels that some training row has."""
        return frozenset(kernels for kernels, *level in self.terms if level == ["one", ""])

    @cached_property
    def of_any_gpu(self) -> RooflineLaw:
        """The law without the terms of known GPUs."""
        terms = {term: value for term, value in self.terms.items() if term[2] not in self._known}
        return replace(self, terms=terms)

    @cached_property
    def _conditions(self) -> frozenset[str]:
        return frozenset(condition for *_, condition in self.terms)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(name for name in self._conditions if name.startswith(("gpu:", "gpu_mode:")))

    def _host_of(self, framework: str) -> tuple[float, float]:
        """Coefficients of a framework; the mean of all for one that was never measured."""
        if framework in self.host:
            return self.host[framework]
        mean = np.mean(list(self.host.values()), axis=0)
        return float(mean[0]), float(mean[1])


_PLACES = np.cumsum([0, *(len(EVERY_FEATURE[name]) for name in KERNEL_CLASSES)])
"""Place of each kernel class's first feature among those of all."""

_READ = ("flops", "elements", "elements_fixed", "in_float32", "positions", "kernel_height", "kernel_width")
_FEATURES = [(name, feature) for name in KERNEL_CLASSES for feature in EVERY_FEATURE[name]]
_PLACE_OF = {term: place for place, term in enumerate(_FEATURES)}
"""Place of each feature of a kernel class among those of all."""


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Kernels of one family of a CNN, and what neither batch size nor GPU changes of them.

    `columns` and `count`, how often a kernel runs, are (n_kernels, 1) and of the library that computes. `alike`: those
    that `FamilyKernels` reads, of kernels that differ there, as passes of a layer do not; `which` of them each one is.
    `starts`: first kernel of each of `classes`. `shape` (n_kernels, n_shape_features) are its features, `places`
    (n_kernels, n_features) the places of its weights among those of all classes.
    """

    family: str
    classes: list[str]
    columns: dict[str, Any]
    alike: dict[str, Any]
    which: Any
    starts: NDArray[np.intp]
    count: Any
    shape: Array
    places: NDArray[np.intp]
    loops: bool


@lru_cache(maxsize=256)
def _groups(kernels: Kernels, xp: ModuleType) -> list[_Group]:
    """Cached: a CNN is asked for at one batch size after another."""
    groups = []
    family_of = np.array([FAMILY_OF[name] for name in KERNEL_CLASSES])[kernels.kernel_class]
    for family in FAMILIES:
        chosen = np.flatnonzero(family_of == family)
        if not chosen.size:
            continue
        chosen = chosen[np.argsort(kernels.kernel_class[chosen], kind="stable")]
        columns = {key: values[chosen] for key, values in kernels.columns.items()}
        own_class = kernels.kernel_class[chosen]
        numbers, first = np.unique(own_class, return_index=True)
        rows = list(zip(*(columns[name].tolist() for name in _READ), strict=True))
        which = {row: i for i, row in enumerate(dict.fromkeys(rows))}
        groups.append(
            _Group(
                family,
                [KERNEL_CLASSES[number] for number in numbers],
                {key: xp.asarray(values[:, None]) for key, values in columns.items()},
                dict(zip(_READ, map(xp.asarray, np.array([*which]).T[:, :, None]), strict=True)),
                xp.asarray([which[row] for row in rows]) if len(which) < len(rows) else None,
                first,
                xp.asarray(kernels.count[chosen, None]),
                np.stack([*shape_features(family, columns).values()], axis=1),
                _PLACES[own_class, None] + np.arange(len(FEATURES_OF_FAMILY[family])),
                bool(np.any(columns["loop_us_nchw"] + columns["added"])),
            )
        )
    return groups


class _Known(NamedTuple):
    """What a law knows of contexts: `weights` (2, n_distinct, n_features), and the `row` there of each context.

    `has_deviations`: whether the law has deviations of each context's GPU in its mode.
    """

    weights: Array
    row: NDArray[np.intp]
    has_deviations: NDArray[np.bool_]


@lru_cache(maxsize=256)
def _known(law: RooflineLaw, contexts: Contexts) -> _Known:
    """Cached: it depends on nothing but the law and the list of GPUs."""
    of_each, has_deviations = zip(*map(law._of_context, contexts), strict=True)
    numbers: dict[int, int] = {}
    row = np.array([numbers.setdefault(id(weights), len(numbers)) for weights in of_each])
    distinct = [of_each[int(np.argmax(row == number))] for number in range(len(numbers))]
    return _Known(np.stack(distinct, axis=1), row, np.array(has_deviations))


class _Sums(NamedTuple):
    """Sums of weight x feature of a family's kernels, (n_distinct, n_kernels, n_batches), without features of rates.

    `of_rates`: the weights of those, alike, where one is not 0.
    """

    family: str
    total: Any
    of_rates: dict[str, Any]

    def of(self, row: Any, of_gpus: FamilyKernels) -> Any:
        """Sum over all features, (n_contexts, n_kernels, n_batches), of contexts whose weights lie in place `row`."""
        is_one = self.total.shape[0] == row.size == 1
        total = self.total if is_one else of_gpus.xp.take(self.total, row, axis=0)
        for name, weight in self.of_rates.items():
            of_row = weight if weight.shape[0] == 1 else of_gpus.xp.take(weight, row, axis=0)
            feature = RATE_FEATURES[self.family][name](of_gpus, of_row)
            feature += total
            total = feature
        return total


@lru_cache(maxsize=16)
def _weighted(
    law: RooflineLaw, contexts: Contexts, kernels: Kernels
) -> list[list[tuple[Any, dict[int, Any]]]]:
    """Of each group, in fp32 and, if a context gains, of the gain: the sum over features of shape, and other weights.

    All are (n_distinct, n_kernels, 1), and not all 0. Cached: one batch size is asked for after another.
    """
    of_groups, xp = [], law.arrays.xp
    for group in _groups(kernels, xp):
        pair = []
        for weights in _known(law, contexts).weights[: 1 + contexts.is_faster.any(), :, group.places]:
            n_shape = group.shape.shape[1]
            total = (weights[..., :n_shape] * group.shape).sum(axis=2, keepdims=True)
            used = n_shape + np.flatnonzero(np.any(weights[..., n_shape:], axis=(0, 1)))
            of_others = {
                i: xp.asarray(weights[..., i, None].copy()) for i in used.tolist()
            }  # no view keeps the rest
            pair.append((xp.asarray(total), of_others))
        of_groups.append(pair)
    return of_groups


def _summed(
    group: _Group, weighted: list[tuple[Any, dict[int, Any]]], sizes: Any, xp: ModuleType
) -> list[Any]:
    """How often kernels run, and the `_Sums` of `_weighted` with features of batch sizes, as long as the result.

    What is multiplied in one run is fast, what is repeated for each kernel slow.
    """
    each, n, sums = xp.ones_like(sizes), group.shape.shape[1], []
    of_batch = dict(enumerate(batch_features(group.family, group.columns, sizes, xp).values(), n))
    names = dict(enumerate(RATE_FEATURES[group.family], n + len(of_batch)))
    for total, columns in weighted:
        for i in (i for i in columns if i in of_batch):
            total = total + columns[i] * of_batch[i]
        of_rates = {names[i]: columns[i] * each for i in columns if i in names}
        sums.append(_Sums(group.family, total * each, of_rates))
    return [group.count * each, *sums]


def _looping_ms(columns: Mapping[str, Any], contexts: Sequence[KernelContext], of_gpus: FamilyKernels) -> Any:
    """What PyTorch's kernels over positions take beside their traffic, (n_contexts, n_kernels, n_batches)."""
    of_mode = [
        (of.framework == "pytorch", of.memory_format == "channels_last", of.precision == "fp16")
        for of in contexts
    ]
    own, last, half = map(of_gpus.xp.asarray, np.array(of_mode, dtype=float).T[:, :, None, None])
    us = columns["loop_us_nchw"] * (1.0 - last) + columns["loop_us_last"] * last
    more = us, columns["loop_threads"], columns["added"] * _NARROW_ADDS**half
    return own * looping_ms(*more, of_gpus.batch_size, of_gpus.rates, of_gpus.xp)


_NARROW_ADDS = 2.0
"""Time of atomic additions in 16 bits over that in 32: 1.5 to 4.5 on an H100, the more the map widens."""
