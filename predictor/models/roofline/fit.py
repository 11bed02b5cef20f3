"""Fits the roofline's coefficients: measured rows as sparse matrices, a robust loss with ridge, its gradient."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize

from predictor.catalogue.devices import find_gpu, rates_of
from predictor.cnns.layer_table import Layer
from predictor.errors import OutOfRangeError
from predictor.measurements.features import KERNEL_TIME_PREFIX
from predictor.measurements.schema import is_set
from predictor.models.roofline.features import FAMILY_OF, kernel_base_ms, kernel_features
from predictor.models.roofline.terms import KernelContext, Term, expected_of, join_host, tags_of, terms_of
from predictor.operators.kernels import KERNEL_CLASSES, Kernels, kernels_of, kernels_of_operator

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Design",
    "Fitted",
    "HostLayout",
    "KernelTimes",
    "Ridge",
    "RooflineObjective",
    "Rows",
    "device_times",
    "iteration_times",
    "operator_times",
    "profile_times",
    "rows_of",
    "single_passes",
]

Array = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Design:
    """Items (kernels of rows) and their terms. `row_of`, `class_of`, `log_base`, `count`: shape (n_items,).

    `entries` holds, per term, the items and values of its column; rows are numbered as they were added.
    """

    n_rows: int
    row_of: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    class_of: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    log_base: Array = field(default_factory=lambda: np.empty(0))
    count: Array = field(default_factory=lambda: np.empty(0))
    entries: dict[Term, list[tuple[NDArray[np.int64], Array]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, kernels: Sequence[Kernels], situations: Sequence[KernelContext], batch_sizes: Sequence[int]
    ) -> Design:
        """Lay out rows; the three sequences have one entry per row."""
        design = cls(n_rows=len(kernels))
        alike: dict[KernelContext, list[int]] = defaultdict(list)
        for row, situation in enumerate(situations):
            alike[situation].append(row)
        blocks: list[_Block] = []
        offset = 0
        for situation, rows in alike.items():
            for block in _blocks(
                design, [kernels[r] for r in rows], situation, rows, [batch_sizes[r] for r in rows], offset
            ):
                blocks.append(block)
                offset += block[0].size
        parts = list(zip(*blocks, strict=True))
        design.row_of, design.class_of = np.concatenate(parts[0]), np.concatenate(parts[1])
        design.log_base, design.count = np.concatenate(parts[2]), np.concatenate(parts[3])
        return design

    def matrix(self, terms: Sequence[Term]) -> sp.csr_matrix:
        """Values of the terms, shape (n_items, n_terms)."""
        rows, columns, values = [np.empty(0, int)], [np.empty(0, int)], [np.empty(0)]
        for number, term in enumerate(terms):
            for items, value in self.entries.get(term, ()):
                rows.append(items)
                columns.append(np.full(items.size, number))
                values.append(value)
        shape = (self.row_of.size, len(terms))
        return sp.csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape)

    def sums(self) -> sp.csr_matrix:
        """Matrix of shape (n_rows, n_items) that adds up each row's kernels."""
        items = np.arange(self.row_of.size)
        return sp.csr_matrix((self.count, (self.row_of, items)), (self.n_rows, self.row_of.size))


_Block = tuple[NDArray[np.int64], NDArray[np.int64], Array, Array]


def _blocks(
    design: Design,
    kernels: Sequence[Kernels],
    situation: KernelContext,
    rows: Sequence[int],
    batch_sizes: Sequence[int],
    offset: int,
) -> Iterator[_Block]:
    """Items of rows in one situation, a block per kernel class; their terms are added to `design.entries`."""
    rates, tags = rates_of(situation.gpu, situation.precision), tags_of(situation)
    sizes = [each.count.size for each in kernels]
    row_of, class_of = np.repeat(rows, sizes), np.concatenate([each.kernel_class for each in kernels])
    count = np.concatenate([each.count for each in kernels])
    batches = np.repeat(np.asarray(batch_sizes, dtype=float), sizes)[:, None]
    columns = {name: np.concatenate([k[name] for k in kernels])[:, None] for name in kernels[0].columns}
    for number in np.unique(class_of):
        name, chosen = KERNEL_CLASSES[number], class_of == number
        of_class = {key: values[chosen] for key, values in columns.items()}
        base = kernel_base_ms(FAMILY_OF[name], of_class, batches[chosen], rates)
        items = np.arange(offset, offset + base.size)
        for feature, value in kernel_features(name, of_class, batches[chosen], rates).items():
            flat = np.broadcast_to(value, base.shape).ravel()
            used = np.flatnonzero(flat)
            for term in terms_of(name, feature, tags):
                design.entries.setdefault(term, []).append((items[used], flat[used]))
        yield row_of[chosen], np.full(base.size, number), np.log(base).ravel(), count[chosen]
        offset += base.size


_HUBER = 0.1
_START_HOST_MS = (1.0, 0.02)
_START_FEED_MS = (0.05, 0.2)


@dataclass(frozen=True, slots=True)
class Ridge:
    """Ridge strength per hundred rows, by kind of term: a level, a slope, or a deviation under a tag."""

    level: float = 0.001
    law: float = 0.1
    gpu: float = 1.0
    kepler: float = 0.001
    generation: float = 2.0
    framework: float = 0.1
    tensor: float = 1.0
    xla: float = 0.01
    channels_last: float = 0.01
    origin: float = 0.05
    host: float = 0.3

    def of(self, term: Term) -> float:
        """Strength for one term."""
        if term[2]:
            strength: float = getattr(self, term[2].split(":")[0])
            return strength
        return self.level if term[1] in ("one", "tensor_gain") else self.law


@dataclass(frozen=True, slots=True, eq=False)
class HostLayout:
    """Host side of each row; arrays of shape (n_rows,). `framework` and `host` index the lists of names."""

    frameworks: list[str]
    hosts: list[str]
    framework: NDArray[np.int64]
    host: NDArray[np.int64]
    kernels: Array
    feed_megabytes: Array
    is_fed: Array


@dataclass(frozen=True, slots=True, eq=False)
class KernelTimes:
    """Times of groups of kernels: `groups` (n_times, n_items of the design) adds up each group, `log_ms` its ln ms.

    `row` numbers the row of the design that each group belongs to.
    """

    design: Design
    groups: sp.csr_matrix
    log_ms: Array
    weight: Array
    row: NDArray[np.int64]


@dataclass(slots=True)
class Fitted:
    """Coefficients by term, ln of the host's ms per framework, ln of the input copy's ms, offsets of named hosts."""

    terms: dict[Term, float]
    host: dict[str, tuple[float, float]]
    host_offset: dict[str, float] = field(default_factory=dict)
    feed: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True, eq=False)
class RooflineObjective:
    """Objective of the roofline's fit: measured rows and kernel times as matrices, refitted with other weights.

    `time_ms` and `weight` have one entry per row. `matrices` holds the design's terms, then each kernel times'.
    """

    design: Design
    layout: HostLayout
    time_ms: Array
    weight: Array
    kernel_times: Sequence[KernelTimes]
    terms: list[Term]
    strength: Array
    expected: Array
    host_strength: float
    matrices: list[sp.csr_matrix]
    transposed: list[sp.csr_matrix]
    sums: sp.csr_matrix

    @classmethod
    def of(
        cls,
        design: Design,
        layout: HostLayout,
        time_ms: Array,
        weight: Array,
        kernel_times: Sequence[KernelTimes] = (),
        ridge: Ridge | None = None,
    ) -> RooflineObjective:
        """Build the objective's matrices; `kernel_times` may share the design or have their own."""
        ridge = ridge or Ridge()
        designs = [design, *(times.design for times in kernel_times if times.design is not design)]
        terms = sorted(set().union(*(each.entries for each in designs)))
        own = design.matrix(terms)
        matrices = [own, *(own if t.design is design else t.design.matrix(terms) for t in kernel_times)]
        scale = max(1.0, design.n_rows / 100)
        return cls(
            design,
            layout,
            time_ms,
            weight,
            kernel_times,
            terms,
            scale * np.array([ridge.of(term) for term in terms]),
            np.array([expected_of(term) for term in terms]),
            scale * ridge.host,
            matrices,
            [each.T.tocsr() for each in matrices],
            design.sums(),
        )

    def without(
        self, rows: NDArray[np.bool_], kernel_times: Sequence[NDArray[np.bool_]]
    ) -> RooflineObjective:
        """The objective with weight zero for some rows and some of each of the kernel times."""
        lighter = [
            replace(times, weight=np.where(gone, 0.0, times.weight))
            for times, gone in zip(self.kernel_times, kernel_times, strict=True)
        ]
        return replace(self, weight=np.where(rows, 0.0, self.weight), kernel_times=lighter)

    def solve(self, start: Fitted | None = None, max_iterations: int = 300) -> Fitted:
        """Minimise the objective; `start` is an earlier fit, of which terms without weighted rows are reset."""
        x = minimize(
            self.loss,
            self._start(start),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iterations, "maxfun": 2 * max_iterations},
        ).x
        b, host, offset, feed = self.unpack(x)
        layout = self.layout
        return Fitted(
            dict(zip(self.terms, map(float, b), strict=True)),
            {name: (float(h[0]), float(h[1])) for name, h in zip(layout.frameworks, host, strict=True)},
            dict(zip(layout.hosts, map(float, offset), strict=True)),
            (float(feed[0]), float(feed[1])),
        )

    def times(self, fitted: Fitted) -> Array:
        """Iteration times of the rows, in ms."""
        b = np.array([fitted.terms[term] for term in self.terms])
        return iteration_times(
            fitted, self.layout, self.sums @ np.exp(self.matrices[0] @ b + self.design.log_base)
        )

    def _start(self, start: Fitted | None) -> Array:
        layout = self.layout
        if start is None:
            host = [np.log(_START_HOST_MS)] * len(layout.frameworks)
            offset = np.zeros(len(layout.hosts))
            return np.concatenate([self.expected, np.ravel(host), offset, np.log(_START_FEED_MS)])
        weighted = self._has_weight()
        present = np.bincount(layout.host, self.weight, len(layout.hosts)) > 0
        return np.concatenate(
            [
                np.where(weighted, [start.terms[term] for term in self.terms], self.expected),
                np.ravel([start.host[name] for name in layout.frameworks]),
                [start.host_offset[name] * present[number] for number, name in enumerate(layout.hosts)],
                start.feed,
            ]
        )

    def _has_weight(self) -> NDArray[np.bool_]:
        """Whether any row or kernel time with a weight above zero has the term."""
        found = np.asarray(abs(self.transposed[0]) @ (self.sums.T @ self.weight)) > 0
        for number, times in enumerate(self.kernel_times):
            found |= np.asarray(abs(self.transposed[number + 1]) @ (times.groups.T @ times.weight)) > 0
        return found

    def unpack(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Views of the terms, the host (n_frameworks, 2), the hosts' offsets and the feed in one vector."""
        n, f, h = len(self.terms), len(self.layout.frameworks), len(self.layout.hosts)
        return x[:n], x[n : n + 2 * f].reshape(f, 2), x[n + 2 * f : n + 2 * f + h], x[n + 2 * f + h :]

    def loss(self, x: Array) -> tuple[float, Array]:
        """Value and gradient of the objective."""
        b, host, offset, feed = self.unpack(x)
        gradient = np.zeros_like(x)
        to_b, to_host, to_offset, to_feed = self.unpack(gradient)
        kernel_ms = np.exp(self.matrices[0] @ b + self.design.log_base)
        value, per_kernel = self._iterations(kernel_ms, host, offset, feed, to_host, to_offset, to_feed)
        to_b += self.transposed[0] @ (per_kernel * kernel_ms)
        for number, times in enumerate(self.kernel_times):
            own = times.design is self.design
            ms = kernel_ms if own else np.exp(self.matrices[number + 1] @ b + times.design.log_base)
            total = times.groups @ ms
            part, slope = _huber(np.log(total) - times.log_ms, times.weight)
            value += part
            to_b += self.transposed[number + 1] @ ((times.groups.T @ (slope / total)) * ms)
        off = b - self.expected
        value += 0.5 * float(self.strength @ off**2) + 0.5 * self.host_strength * float(offset @ offset)
        value += 0.05 * (
            float(((host - np.log(_START_HOST_MS)) ** 2).sum())
            + float(((feed - np.log(_START_FEED_MS)) ** 2).sum())
        )
        to_b += self.strength * off
        to_offset += self.host_strength * offset
        to_host += 0.1 * (host - np.log(_START_HOST_MS))
        to_feed += 0.1 * (feed - np.log(_START_FEED_MS))
        return value, gradient

    def _iterations(
        self,
        kernel_ms: Array,
        host: Array,
        offset: Array,
        feed: Array,
        to_host: Array,
        to_offset: Array,
        to_feed: Array,
    ) -> tuple[float, Array]:
        rows = self.layout
        device = self.sums @ kernel_ms
        per_iteration, per_kernel = np.exp(host[rows.framework]).T
        factor = np.exp(offset[rows.host])
        host_ms = factor * (per_iteration + per_kernel * rows.kernels)
        first, second = np.exp(feed[0]) * rows.is_fed, np.exp(feed[1]) * rows.feed_megabytes * rows.is_fed
        busy = np.cbrt(device**3 + host_ms**3)
        total = busy + first + second
        value, slope = _huber(np.log(total / self.time_ms), self.weight)
        by_total = slope / total
        by_host = by_total * (host_ms / busy) ** 2
        n = len(rows.frameworks)
        to_host[:, 0] += np.bincount(rows.framework, by_host * factor * per_iteration, n)
        to_host[:, 1] += np.bincount(rows.framework, by_host * factor * per_kernel * rows.kernels, n)
        to_offset += np.bincount(rows.host, by_host * host_ms, len(rows.hosts))
        to_feed += np.array([by_total @ first, by_total @ second])
        return value, self.sums.T @ (by_total * (device / busy) ** 2)


def iteration_times(fitted: Fitted, layout: HostLayout, device_ms: Array) -> Array:
    """Iteration times in ms from device times; hosts and frameworks that the fit lacks get the mean of the others."""
    average: Array = np.mean(list(fitted.host.values()), axis=0)
    host = np.exp(np.array([fitted.host.get(name, average) for name in layout.frameworks]))[layout.framework]
    offset = np.exp([fitted.host_offset.get(name, 0.0) for name in layout.hosts])[layout.host]
    host_ms = offset * (host[:, 0] + host[:, 1] * layout.kernels)
    feed = np.exp(fitted.feed)
    total: Array = join_host(device_ms, host_ms) + layout.is_fed * (feed[0] + feed[1] * layout.feed_megabytes)
    return total


def _huber(residual: Array, weight: Array) -> tuple[float, Array]:
    size = np.abs(residual)
    loss = np.where(size < _HUBER, 0.5 * residual**2, _HUBER * (size - 0.5 * _HUBER))
    return float(weight @ loss), weight * np.clip(residual, -_HUBER, _HUBER)


_KERNEL_GROUPS = {"activation": ("activation", "activation_after_bias")}
_LEAST_MS = 0.003
_NOT_SHAPE = ("index", "name", "type", "kind", "inputs", "repeats")
_SHAPE_COLUMNS = tuple(f.name for f in fields(Layer) if f.name not in _NOT_SHAPE)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Whole iterations, one entry per row of the feature table that they came from."""

    kernels: list[Kernels]
    situations: list[KernelContext]
    batch_sizes: list[int]
    hosts: list[str]
    fed: Array

    def design(self) -> Design:
        """Lay the rows out for fitting or predicting."""
        return Design.of(self.kernels, self.situations, self.batch_sizes)

    def layout(self) -> HostLayout:
        """Host side of each row."""
        frameworks, framework = np.unique([s.framework for s in self.situations], return_inverse=True)
        hosts, host = np.unique(self.hosts, return_inverse=True)
        batches = np.array(self.batch_sizes, dtype=float)
        return HostLayout(
            [str(name) for name in frameworks],
            [str(name) for name in hosts],
            framework,
            host,
            np.array([k.count.sum() for k in self.kernels]),
            4e-6 * batches * np.array([k.image_elements for k in self.kernels]),
            self.fed,
        )


def rows_of(X: pd.DataFrame) -> Rows:
    """Whole CNNs of a feature table.

    Raises
    ------
    OutOfRangeError
        If a CNN has no layer table; the message names it.
    """
    cells = [_cell(row, xla) for row, xla in zip(X.to_dict("records"), is_set(X, "xla"), strict=True)]
    kernels, situations, batches, hosts = (list(column) for column in zip(*cells, strict=True))
    return Rows(kernels, situations, batches, hosts, is_set(X, "copies_input").astype(float))


def _cell(row: dict[Any, Any], xla: bool) -> tuple[Kernels, KernelContext, int, str]:
    table = row["layer_table"]
    if table is None:
        raise OutOfRangeError(
            f"{row['cnn']} at image size {row['image_size']} has no layer table, so its kernels are unknown. "
            "Give its layers as a CSV file, or leave the row out."
        )
    gpu = find_gpu(row["gpu"])
    situation = KernelContext(
        gpu,
        str(row["precision"]),
        _word(row, "framework", "pytorch"),
        _word(row, "memory_format", "nchw"),
        bool(xla),
    )
    kernels = kernels_of(table, optimizer=_word(row, "pass", "training") == "training")
    host = f"{_word(row, 'source', '')}: {_word(row, 'host', gpu.name)}"
    return kernels, situation, int(row["batch_size"]), host


def _word(row: dict[Any, Any], column: str, default: str) -> str:
    value = row.get(column)
    return default if value is None or value != value else str(value)


def single_passes(X: pd.DataFrame) -> pd.DataFrame:
    """Rows of single layers that time one pass."""
    if "kind" not in X or "pass" not in X:
        return X.iloc[:0]
    return X[(X["kind"] == "operator") & X["pass"].isin(("forward", "backward_input", "backward_weight"))]


def operator_times(X: pd.DataFrame, weight: float) -> KernelTimes | None:
    """Times of single passes of single layers. Whole training steps are left out: they update their inputs, too."""
    chosen = single_passes(X)
    if chosen.empty:
        return None
    records = chosen.to_dict("records")
    design = Design.of(
        [kernels_of_operator(_layer(row), str(row["pass"])) for row in records],
        [
            KernelContext(find_gpu(r["gpu"]), str(r["precision"]), "", origin=str(r["source"]))
            for r in records
        ],
        [int(row["batch_size"]) for row in records],
    )
    log_ms = np.log(chosen["iteration_time_ms"].to_numpy(dtype=float))
    return KernelTimes(design, design.sums(), log_ms, np.full(len(records), weight), np.arange(len(records)))


def _layer(row: dict[Any, Any]) -> Layer:
    shape: dict[str, Any] = {
        name: None if row[name] != row[name] else int(row[name]) for name in _SHAPE_COLUMNS
    }
    return Layer(
        index=0,
        name=str(row["cnn"]),
        type=str(row["type"]),
        **{**shape, "parameters": shape["parameters"] or 0},
    )


def device_times(X: pd.DataFrame, design: Design, weight: float) -> KernelTimes | None:
    """GPU times of the rows' iterations, where they were measured apart from the wall time."""
    if "gpu_time_ms" not in X:
        return None
    measured = X["gpu_time_ms"].to_numpy(dtype=float)
    rows = np.flatnonzero(np.isfinite(measured))
    if not rows.size:
        return None
    return KernelTimes(design, design.sums()[rows], np.log(measured[rows]), np.full(rows.size, weight), rows)


def profile_times(X: pd.DataFrame, time_ms: Array, design: Design, weight: float) -> KernelTimes | None:
    """A profiler's times of groups of kernels within the rows' iterations, where the table has them.

    A group is weighted by its share of the iteration. Profiles that sum to more than the iteration (profiling slows
    some GPUs) are scaled down to it.
    """
    names = [str(c) for c in X.columns if str(c).startswith(KERNEL_TIME_PREFIX)]
    if not names:
        return None
    groups = [name.removeprefix(KERNEL_TIME_PREFIX) for name in names]
    measured = X[names].to_numpy(dtype=float)
    measured = measured * np.minimum(1.0, time_ms / np.maximum(np.nansum(measured, axis=1), 1e-9))[:, None]
    group_of_class = np.full(len(KERNEL_CLASSES), -1)
    for number, kernel_group in enumerate(groups):
        for name in _KERNEL_GROUPS.get(kernel_group, (kernel_group,)):
            group_of_class[KERNEL_CLASSES.index(name)] = number
    group = group_of_class[design.class_of]
    known = (group >= 0) & (measured[design.row_of, group] > _LEAST_MS)
    items = np.flatnonzero(known)
    labels, label = np.unique(design.row_of[items] * len(groups) + group[items], return_inverse=True)
    if not labels.size:
        return None
    ms = measured[labels // len(groups), labels % len(groups)]
    sums = sp.csr_matrix((design.count[items], (label, items)), (labels.size, design.row_of.size))
    row = labels // len(groups)
    return KernelTimes(design, sums, np.log(ms), weight * np.minimum(1.0, 5 * ms / time_ms[row]), row)
