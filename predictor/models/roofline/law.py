"""The fitted law: times of iterations on any GPU, in any mode, with their intervals; only numpy, read from JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import itemgetter
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import Rates, all_gpus
from predictor.cnns.layer_table import LayerTable
from predictor.models.base import finite
from predictor.models.intervals import Calibration, Shares
from predictor.models.join import join_host, sharpness_of
from predictor.models.roofline.arrays import NUMPY, Arrays
from predictor.models.roofline.features import (
    DEPTHWISE,
    FAMILY_OF,
    is_gaining,
    kernel_base_ms,
    kernel_features,
    kernel_gain,
    kernel_least_ms,
    like,
)
from predictor.models.roofline.terms import (
    BY_GPU,
    EVERY_FEATURE,
    GAIN,
    GAIN_BY_GPU,
    LAW,
    KernelContext,
    Term,
    conditions_of,
    gained,
    known_as,
    mapped_rates,
    rates_of_contexts,
    terms_under,
)
from predictor.operators.kernels import KERNEL_CLASSES, Kernels, kernels_of
from predictor.operators.work import looping_ms


@dataclass(frozen=True, slots=True, eq=False)
class IterationTimes:
    """Times of one CNN's iterations, in ms; arrays of shape (n_contexts, n_batches).

    `class_ms` splits the GPU's time by class of kernels, `unmeasured_ms` is that of classes that no training row has;
    `n_kernels` counts the CNN's distinct kernels.
    """

    iteration_ms: Array
    device_ms: Array
    host_ms: Array
    class_ms: dict[str, Array]
    unmeasured_ms: Array
    n_kernels: int

    def shares(self, *, of_host: bool, is_new_host: bool = False) -> Shares:
        """Shares, (n_contexts, n_batches), that the interval of the host's or the GPU's time depends on."""
        nothing = np.zeros(self.device_ms.shape)
        host, device = (nothing + 1.0, nothing) if of_host else (nothing, nothing + 1.0)
        own = (self.class_ms[name] for name in DEPTHWISE if name in self.class_ms)
        depthwise, unmeasured = (
            device * ms / self.device_ms for ms in (sum(own, nothing), self.unmeasured_ms)
        )
        kernel = np.full(host.shape, 1.0 / self.n_kernels)
        return Shares(host, host * is_new_host, depthwise, unmeasured, kernel)


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
    ) -> IterationTimes:
        """Times of a CNN's iterations on a grid of GPUs and modes x batch sizes.

        `batch_sizes`: shape (n_batches,). `machine`: a key of `host_offset`; None or an unknown one is the middle of
        the known machines. `copies`: whether an iteration copies its images from the host. `waits`: whether it waits
        for a loader, which copies them. `captured`: whether the iteration was captured as a graph, which the host
        launches at once. `host_ms`, shape (n_contexts,): host time of each context in place of that of `machine`.
        """
        batches = np.asarray(batch_sizes, dtype=float) / kernels.parts
        class_ms = self._class_ms(kernels, contexts, batches)
        device = sum(class_ms.values(), np.zeros((len(contexts), batches.size)))
        if host_ms is None:
            slowness = math.exp(self.host_offset.get(machine or "", 0.0))
            pairs = np.exp([self._host_of(context.framework) for context in contexts])
            host_ms = slowness * (pairs[:, 0] + pairs[:, 1] * float(kernels.count.sum()))
        host = np.broadcast_to(host_ms[:, None] * (not captured), device.shape)
        busy = join_host(device, host, np.array([[sharpness_of(context.framework)] for context in contexts]))
        total = busy
        if copies or waits:
            first_ms, ms_per_mb = np.exp(self.feed[2:] if waits else self.feed[:2])
            total = busy + (first_ms + ms_per_mb * 4e-6 * kernels.image_elements * batches)
        unmeasured = (ms for name, ms in class_ms.items() if name not in self._measured)
        unmeasured_ms = sum(unmeasured, np.zeros(device.shape))
        return IterationTimes(total, device, host, class_ms, unmeasured_ms, kernels.count.size)

    def knows(self, context: KernelContext) -> bool:
        """Whether the law has deviations of the context's GPU in its mode."""
        return ":".join(known_as(context) or ()) in self._known

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

    def _class_ms(
        self, kernels: Kernels, contexts: Sequence[KernelContext], batches: Array
    ) -> dict[str, Array]:
        """GPU time of each class in ms, (n_contexts, n_batches); nearly all of an answer's time is spent here."""
        xp = self.arrays.xp
        weights, number = self._weights(contexts)
        rates = mapped_rates(rates_of_contexts(contexts, xp), itemgetter((slice(None), None, None)))
        sizes = xp.asarray(batches)
        # What one class takes too little of, where a GPU was measured, another takes too much of.
        unmeasured = xp.asarray([[[float(not self.knows(context))]] for context in contexts])
        class_ms: dict[str, Any] = {}
        for group in _groups(kernels, xp):
            values = kernel_features(group.name, group.columns, sizes, rates, xp)
            features = [values[feature] for feature in EVERY_FEATURE[group.name]]
            times = _weighted(group.weights_of_each(weights[:, 0]), number, features, xp)
            shape = FAMILY_OF[group.name], group.columns, sizes, rates, xp
            faster = is_gaining(FAMILY_OF[group.name], rates)
            if xp.any(faster):
                gain = _weighted(group.weights_of_each(weights[:, 1]), number, features, xp)
                gained_by, _ = gained(gain + kernel_gain(*shape), xp)
                times -= xp.where(faster, gained_by, 0.0)
            times = xp.exp(times)
            times *= kernel_base_ms(*shape)
            times = xp.maximum(times, unmeasured * kernel_least_ms(*shape))
            if group.loops:
                times += _looping_ms(group.columns, contexts, sizes, rates, xp)
            times *= group.count
            for name, rows in group.classes.items():
                class_ms[name] = xp.sum(times[:, rows, :], axis=1)
        return {name: self.arrays.to_numpy(class_ms[name]) for name in KERNEL_CLASSES if name in class_ms}

    def _weights(self, contexts: Sequence[KernelContext]) -> tuple[Array, NDArray[np.intp]]:
        """Distinct weights of the features of all kernel classes, in the order of `_PLACES`, and each context's row."""
        rows = []
        for context in contexts:
            weights = self._known_weights.get(context)
            if weights is None:  # contexts of equal weights share them
                conditions = conditions_of(context)
                weights = np.concatenate(
                    [self._weights_of(name, conditions) for name in KERNEL_CLASSES], axis=1
                )
                weights = self._shared_weights.setdefault(weights.tobytes(), weights)
                self._known_weights[context] = weights
            rows.append(weights)
        distinct = {id(row): row for row in rows}
        row_of = {key: i for i, key in enumerate(distinct)}
        return np.array(list(distinct.values())), np.array([row_of[id(row)] for row in rows])

    def _weights_of(self, name: str, conditions: Sequence[tuple[str, str]]) -> Array:
        """Weights of each feature of a kernel class where these conditions hold, in fp32 and of its mode's gain."""
        features = EVERY_FEATURE[name]
        total = np.zeros((2, len(features)))
        for kind, label in conditions:
            for row, table in ((0, LAW), (0, BY_GPU), (1, GAIN), (1, GAIN_BY_GPU)):
                for kernels, feature in terms_under(table, name, kind):
                    term = (kernels, feature, f"{kind}:{label}" if kind else "")
                    total[row, features.index(feature)] += self.terms.get(term, 0.0)
        return total

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
    def _known(self) -> frozenset[str]:
        conditions = {condition for *_, condition in self.terms}
        return frozenset(name for name in conditions if name.startswith(("gpu:", "gpu_mode:")))

    @cached_property
    def _known_weights(self) -> dict[KernelContext, Array]:
        return {}

    @cached_property
    def _shared_weights(self) -> dict[bytes, Array]:
        return {}

    def _host_of(self, framework: str) -> tuple[float, float]:
        """Coefficients of a framework; the mean of all for one that was never measured."""
        if framework in self.host:
            return self.host[framework]
        mean = np.mean(list(self.host.values()), axis=0)
        return float(mean[0]), float(mean[1])


_ENDS = np.cumsum([0, *(len(EVERY_FEATURE[name]) for name in KERNEL_CLASSES)]).tolist()
_PLACES = {name: slice(*ends) for name, ends in zip(KERNEL_CLASSES, pairwise(_ENDS), strict=True)}
"""Slice of each kernel class's features among those of all."""


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Kernels of a CNN whose features follow the formulas of the class `name`; `classes` has the rows of each class."""

    name: str
    columns: dict[str, Any]  # (n_kernels, 1), of the library that computes
    count: Any  # likewise
    classes: dict[str, slice]
    loops: bool

    def weights_of_each(self, weights: Array) -> Array:
        """The weights of each kernel's features, (n_weights, n_features, n_kernels)."""
        of_classes = [
            np.repeat(weights[:, _PLACES[name], None], rows.stop - rows.start, axis=2)
            for name, rows in self.classes.items()
        ]
        return np.concatenate(of_classes, axis=2)


@lru_cache(maxsize=256)
def _groups(kernels: Kernels, xp: ModuleType) -> list[_Group]:
    """Cached: a CNN is asked for at one batch size after another."""
    groups = []
    present = np.flatnonzero(np.bincount(kernels.kernel_class))
    names = {name: like(name) for name in (KERNEL_CLASSES[i] for i in present)}
    for group in dict.fromkeys(names.values()):
        members = [name for name, formulas in names.items() if formulas == group]
        rows = [np.flatnonzero(kernels.kernel_class == KERNEL_CLASSES.index(name)) for name in members]
        ends = np.cumsum([0, *map(len, rows)]).tolist()
        chosen = np.concatenate(rows)
        columns = {key: xp.asarray(values[chosen][:, None]) for key, values in kernels.columns.items()}
        classes = {name: slice(*span) for name, span in zip(members, pairwise(ends), strict=True)}
        loops = bool(np.any(kernels["loop_us_nchw"][chosen] + kernels["added"][chosen]))
        groups.append(_Group(group, columns, xp.asarray(kernels.count[chosen][:, None]), classes, loops))
    return groups


def _looping_ms(
    columns: Mapping[str, Any],
    contexts: Sequence[KernelContext],
    batch_sizes: Any,
    rates: Rates,
    xp: ModuleType,
) -> Any:
    """What PyTorch's kernels over positions take beside their traffic, (n_contexts, n_kernels, n_batches)."""

    def of_contexts(values: list[float]) -> Any:
        return xp.asarray(np.array(values)[:, None, None])

    own = of_contexts([float(context.framework == "pytorch") for context in contexts])
    last = of_contexts([float(context.memory_format == "channels_last") for context in contexts])
    slower = of_contexts([_NARROW_ADDS if context.precision == "fp16" else 1.0 for context in contexts])
    us = columns["loop_us_nchw"] * (1.0 - last) + columns["loop_us_last"] * last
    added = columns["added"] * slower
    return own * looping_ms(us, columns["loop_threads"], added, batch_sizes, rates, xp)


_NARROW_ADDS = 2.0
"""Time of atomic additions in 16 bits over that in 32: 1.5 to 4.5 on an H100, the more the map widens."""


def _weighted(weights: Array, number: NDArray[np.intp], features: Sequence[Array], xp: ModuleType) -> Array:
    """Sum of weight x feature, (n_contexts, n_kernels, n_batches) or what broadcasts to it.

    `weights` (n_weights, n_features, n_kernels) has in row `number[i]` what context i has. Features that do not depend
    on the context, that is most, are summed for contexts of equal weights together.
    """
    shape = np.broadcast_shapes(*(values.shape[-2:] for values in features))
    total, own = xp.zeros((*weights.shape[::2], shape[-1])), []
    row, of_all = xp.asarray(number), xp.asarray(weights)
    for i in np.flatnonzero(weights.any(axis=(0, 2))).tolist():
        weight, values = of_all[:, i, :, None], features[i]
        if values.ndim == total.ndim:
            own.append(xp.take(weight, row, axis=0) * values)
        else:
            total += weight * values
    summed: Array = xp.take(total, row, axis=0)
    for term in own:
        summed += term
    return summed
