"""Fits the roofline model's coefficients: relative errors of iterations and of groups of kernels, at once.

Called by the `roofline` estimator; calls design. The model of one row is

    iteration = (device^3 + host^3)^(1/3) + feed,     device = sum over kernels of count * base * exp(terms . b),
    host = exp(host offset) * (h0 + h1 * kernels),    feed = a0 + a1 * megabytes of input (where data is fed),

and the loss is Huber's on ln(model / measured), so that times of all magnitudes count alike and an outlier counts
little, plus a ridge on every coefficient: weak on general laws, stronger on what differs under a tag. It draws to
`situations.expected_of`, zero but for one law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize

from predictor.roofline.coefficients import join_host
from predictor.roofline.design import Design
from predictor.roofline.situations import Term, expected_of

__all__ = ["Fitted", "HostLayout", "KernelTimes", "Problem", "Ridge", "iteration_times"]

Array = NDArray[np.float64]
_HUBER = 0.1
_START_HOST_MS = (1.0, 0.02)
_START_FEED_MS = (0.05, 0.2)


@dataclass(frozen=True, slots=True)
class Ridge:
    """Strength of the pull to zero, per hundred rows: by whether a term is a level, a law, or differs by tag."""

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
    """What the host does in each row; arrays of shape (n_rows,). `framework` and `host` number names in the lists."""

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
    """Coefficients by term, ln of the host's milliseconds per framework and of the feed's, offsets of known hosts."""

    terms: dict[Term, float]
    host: dict[str, tuple[float, float]]
    host_offset: dict[str, float] = field(default_factory=dict)
    feed: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True, eq=False)
class Problem:
    """Measured rows and kernel times, laid out to be fitted, more than once with other weights.

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
    ) -> Problem:
        """Lay out a fit; `kernel_times` may share the design or bring their own."""
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

    def without(self, rows: NDArray[np.bool_], kernel_times: Sequence[NDArray[np.bool_]]) -> Problem:
        """The same with some rows, and some of each of the kernel times, at weight zero."""
        lighter = [
            replace(times, weight=np.where(gone, 0.0, times.weight))
            for times, gone in zip(self.kernel_times, kernel_times, strict=True)
        ]
        return replace(self, weight=np.where(rows, 0.0, self.weight), kernel_times=lighter)

    def solve(self, start: Fitted | None = None, max_iterations: int = 300) -> Fitted:
        """Find the coefficients; `start` continues from an earlier fit, forgetting what only weightless rows tell."""
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
        told = self._is_told()
        heard = np.bincount(layout.host, self.weight, len(layout.hosts)) > 0
        return np.concatenate(
            [
                np.where(told, [start.terms[term] for term in self.terms], self.expected),
                np.ravel([start.host[name] for name in layout.frameworks]),
                [start.host_offset[name] * heard[number] for number, name in enumerate(layout.hosts)],
                start.feed,
            ]
        )

    def _is_told(self) -> NDArray[np.bool_]:
        """Whether any row or kernel time of weight has the term."""
        told = np.asarray(abs(self.transposed[0]) @ (self.sums.T @ self.weight)) > 0
        for number, times in enumerate(self.kernel_times):
            told |= np.asarray(abs(self.transposed[number + 1]) @ (times.groups.T @ times.weight)) > 0
        return told

    def unpack(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Views of the terms, the host (n_frameworks, 2), the hosts' offsets and the feed in one vector."""
        n, f, h = len(self.terms), len(self.layout.frameworks), len(self.layout.hosts)
        return x[:n], x[n : n + 2 * f].reshape(f, 2), x[n + 2 * f : n + 2 * f + h], x[n + 2 * f + h :]

    def loss(self, x: Array) -> tuple[float, Array]:
        """Value and gradient of what the fit makes least."""
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
    """Iteration times in ms from the time the device is busy; hosts and frameworks unknown to the fit are average."""
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
