"""Fits the law: a robust loss of ln(predicted / measured) with ridge, minimised by Gauss-Newton steps from nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from predictor.arrays import Array
from predictor.models.intervals import Calibration, Predicted, Shares
from predictor.models.join import join_host, join_shares
from predictor.models.roofline.deviations import Iterations, fit_deviations
from predictor.models.roofline.features import DEPTHWISE
from predictor.models.roofline.law import RooflineLaw
from predictor.models.roofline.rows import FlatKernels, Rows
from predictor.models.roofline.terms import (
    BY_GPU,
    GAIN,
    GAIN_BY_GPU,
    LAW,
    Term,
    expected_of,
    gained,
    gained_slope,
    known_as,
    ridge_of,
)
from predictor.operators.kernels import KERNEL_CLASSES

_HUBER, _PASS_HUBER = 0.1, 0.3
_START_HOST_MS = (1.0, 0.02)
_START_FEED_MS = (0.05, 0.2, 5.0, 0.2)
"""First guess of a copy's ms and ms per megabyte, then of a loader's."""
_LEVEL_RIDGE = 5.0
"""Ridge of the level of a source, and of a GPU while the law is fitted."""
_MACHINE_RIDGE, _PASS_SOURCE_RIDGE = 0.2, 0.1
"""Ridge of a machine's host, and of the level of a source of single passes."""
_GUESS_RIDGE = 0.1
"""Ridge of hosts and copies, towards the first guess."""
_MOST_STEPS, _CONVERGED = 100, 1e-6
_LEAST_DAMPING, _MOST_DAMPING = 1e-9, 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Times of rows, in ms: of whole iterations, and of the GPU's part (NaN where it was not timed apart).

    `cnns` name the CNN of each row alike in all sources; single passes need none.
    """

    rows: Rows
    time_ms: Array
    gpu_time_ms: Array
    weight: Array
    cnns: Sequence[str]


_Residuals = tuple[Array, Array, Array, float]
"""ln(predicted / measured), gradients, weights, bend of the loss."""
_DEPTHWISE = [KERNEL_CLASSES.index(name) for name in DEPTHWISE]


class Objective:
    """Weighted robust loss of measured times under the law, with a ridge on every coefficient.

    `iterations`: whole iterations. `passes`: single passes, of single layers or whole CNNs; each of their sources has a
    level of its own in each precision.
    """

    def __init__(self, iterations: Measured, passes: Measured | None = None) -> None:
        self.iterations, self.passes = iterations, passes
        self.kernels = FlatKernels(iterations.rows)
        terms = [term for table in (LAW, GAIN) for term in self.kernels.matrix(table)[0]]
        if passes is not None:  # they may have terms of their own: a generation, or a pass forward
            self.pass_kernels = FlatKernels(passes.rows)
            of_passes = [term for table in (LAW, GAIN) for term in self.pass_kernels.matrix(table)[0]]
            terms = list(dict.fromkeys([*terms, *of_passes]))
            self.pass_law = _Kernels.of(self.pass_kernels, terms)
        self.law = _Kernels.of(self.kernels, terms)
        self.terms = terms
        rows = iterations.rows
        self.frameworks, self.framework = _numbered(context.framework for context in rows.contexts)
        self.machines, self.machine = _numbered(rows.machines)
        sources, self.source = _numbered(rows.levels)
        gpus, self.gpu = _numbered(context.gpu.name for context in rows.contexts)
        self.sharpness = rows.contexts.sharpness
        # Kernels that the host enqueues in each iteration, and 10^6 bytes of its images in fp32.
        self.counts = np.array([float(kernels.count.sum()) for kernels in rows.kernels])
        elements = np.array([kernels.image_elements for kernels in rows.kernels])
        self.megabytes = 4e-6 * elements * np.array(rows.batch_sizes, dtype=float)
        pass_sources: list[str] = []
        if passes is not None:
            pass_sources, self.pass_source = _numbered(passes.rows.levels)
        self.blocks = _Blocks()
        self.blocks.add("law", [expected_of(t) for t in terms], [ridge_of(t) for t in terms])
        self.blocks.add("source", [0.0] * len(sources), _LEVEL_RIDGE)
        self.blocks.add("gpu", [0.0] * len(gpus), _LEVEL_RIDGE)
        self.blocks.add("host", [*np.log(_START_HOST_MS)] * len(self.frameworks), _GUESS_RIDGE)
        self.blocks.add("machine", [0.0] * len(self.machines), _MACHINE_RIDGE)
        self.blocks.add("feed", [*np.log(_START_FEED_MS)], _GUESS_RIDGE)
        self.blocks.add("pass_source", [0.0] * len(pass_sources), _PASS_SOURCE_RIDGE)

    def solve(
        self, gone: NDArray[np.bool_] | None = None, passes_gone: NDArray[np.bool_] | None = None
    ) -> Array:
        """The law's coefficients fitted from nothing, without the rows that are gone."""
        weight = self.iterations.weight if gone is None else np.where(gone, 0.0, self.iterations.weight)
        of_passes = np.empty(0) if self.passes is None else self.passes.weight
        if passes_gone is not None:
            of_passes = np.where(passes_gone, 0.0, of_passes)
        return _minimised(lambda y: self._of_law(y, weight, of_passes), self.blocks.expected, self.blocks)

    def deviations(self, x: Array, gone: NDArray[np.bool_] | None = None) -> dict[Term, float]:
        """Deviations of known GPUs from the law of these coefficients, fitted without the rows that are gone."""
        law = x[self.blocks["law"]]
        parts = self._parts(x, self.kernels.sums @ self.law.at(law))
        of_law = self.law.fp32_ms(law), self.law.gain(law), parts.host, parts.feeds.sum(axis=1)
        iterations = Iterations(self.kernels, *of_law, self.iterations.time_ms)
        kept = np.ones(parts.host.size, dtype=bool) if gone is None else ~gone
        return fit_deviations(iterations, self.iterations.cnns, kept)

    def times(self, x: Array) -> Array:
        """Times of the whole iterations in ms by the law, as for a source and a GPU that were never measured."""
        return self._parts(x, self.kernels.sums @ self.law.at(x[self.blocks["law"]])).total

    def predicted(
        self, x: Array, gone: NDArray[np.bool_] | None = None, passes_gone: NDArray[np.bool_] | None = None
    ) -> Predicted:
        """Times and shares of the iterations, by a fit without the rows that are gone."""
        deviations = self.deviations(x, gone)
        values = np.array(list(deviations.values()))
        in_fp32, in_gain = (
            self.kernels.matrix(table, list(deviations))[1] @ values for table in (BY_GPU, GAIN_BY_GPU)
        )
        law = x[self.blocks["law"]]
        gain = gained(self.law.gain(law) + in_gain)
        conditions, contexts = {condition for _, _, condition in deviations}, self.iterations.rows.contexts
        is_known = np.array([":".join(known_as(context) or ()) in conditions for context in contexts])
        ms = self.law.fp32_ms(law) * np.exp(in_fp32 - self.law.faster * gain)
        ms = np.maximum(ms, ~is_known[self.kernels.row] * self.kernels.least_ms)
        device = self.kernels.sums @ ms
        parts, kept = self._parts(x, device), np.ones(device.size) if gone is None else 1.0 * ~gone
        measured = self.kernels.class_of[(kept @ self.kernels.sums) > 0]
        if self.passes is not None:
            kept = np.ones(self.passes.time_ms.size) if passes_gone is None else 1.0 * ~passes_gone
            measured = np.union1d(measured, self.pass_kernels.class_of[(kept @ self.pass_kernels.sums) > 0])
        classes = self.kernels.class_of
        depthwise, unmeasured = (
            parts.by_device * (self.kernels.sums @ np.where(chosen, ms, 0.0))
            for chosen in (np.isin(classes, _DEPTHWISE), ~np.isin(classes, measured))
        )
        host = parts.by_host * parts.host
        kernel = np.array([1.0 / cnn.count.size for cnn in self.iterations.rows.kernels])
        shares = Shares(host, np.zeros(host.size), depthwise, unmeasured, kernel)
        return Predicted(parts.total, shares, is_known)

    def fitted_law(
        self, x: Array, fed: tuple[str, ...] = (), calibration: Calibration | None = None
    ) -> RooflineLaw:
        """The law of these coefficients, with the terms of measured GPUs."""
        pairs = x[self.blocks["host"]].reshape(-1, 2)
        law = dict(zip(self.terms, map(float, x[self.blocks["law"]]), strict=True))
        return RooflineLaw(
            law | self.deviations(x),
            {name: (float(a), float(b)) for name, (a, b) in zip(self.frameworks, pairs, strict=True)},
            dict(zip(self.machines, map(float, x[self.blocks["machine"]]), strict=True)),
            tuple(map(float, x[self.blocks["feed"]])),
            fed,
            calibration or Calibration(),
        )

    def _of_law(self, x: Array, weight: Array, of_passes: Array) -> list[_Residuals]:
        """Residuals under the law, without what differs by GPU."""
        residuals = self._iterations(x, *self.law.summed(x[self.blocks["law"]]), weight)
        if self.passes is not None and of_passes.any():
            residuals.append(self._single_passes(x, of_passes))
        return residuals

    def _iterations(self, x: Array, device: Array, slopes: Array, weight: Array) -> list[_Residuals]:
        of_terms = slopes / device[:, None]
        device = device * np.exp(x[self.blocks["source"]][self.source] + x[self.blocks["gpu"]][self.gpu])
        parts = self._parts(x, device)
        row = np.arange(device.size)
        gradient = np.zeros((device.size, x.size))
        gradient[:, self.blocks["law"]] = of_terms
        gradient[row, self.blocks["source"].start + self.source] = 1.0
        gradient[row, self.blocks["gpu"].start + self.gpu] = 1.0
        of_device = gradient[:, : self.blocks["host"].start]
        timed = np.flatnonzero(np.isfinite(self.iterations.gpu_time_ms))
        of_gpu = gradient[timed]
        of_device *= parts.by_device[:, None] * device[:, None]
        host = self.blocks["host"].start + 2 * self.framework
        gradient[row, host] = parts.by_host * parts.fixed
        gradient[row, host + 1] = parts.by_host * (parts.host - parts.fixed)
        gradient[row, self.blocks["machine"].start + self.machine] = parts.by_host * parts.host
        gradient[:, self.blocks["feed"]] = parts.feeds / parts.total[:, None]
        half = np.where(np.isfinite(self.iterations.gpu_time_ms), 0.5, 1.0) * weight
        residuals = [(np.log(parts.total / self.iterations.time_ms), gradient, half, _HUBER)]
        if timed.size:  # an iteration whose GPU time was measured counts half by each of its two times
            residual = np.log(device[timed] / self.iterations.gpu_time_ms[timed])
            residuals.append((residual, of_gpu, 0.5 * weight[timed], _HUBER))
        return residuals

    def _parts(self, x: Array, device: Array) -> _IterationParts:
        fixed, per_kernel = np.exp(x[self.blocks["host"]].reshape(-1, 2))[self.framework].T
        factor = np.exp(x[self.blocks["machine"]])[self.machine]
        host = factor * (fixed + per_kernel * self.counts)
        feed, rows = np.exp(x[self.blocks["feed"]]), self.iterations.rows
        copies, waits = rows.copies & ~rows.waits, rows.waits
        used = np.stack([copies, copies * self.megabytes, waits, waits * self.megabytes], axis=1)
        busy = join_host(device, host, self.sharpness)
        feeds = used * feed
        total = busy + feeds.sum(axis=1)
        shares = join_shares(device, host, self.sharpness)
        of_device, of_host = (share * busy / total for share in shares)
        return _IterationParts(total, host, factor * fixed, feeds, of_device / device, of_host / host)

    def _single_passes(self, x: Array, weight: Array) -> _Residuals:
        assert self.passes is not None  # noqa: S101 - the caller has looked
        total, slopes = self.pass_law.summed(x[self.blocks["law"]])
        gradient = np.zeros((total.size, x.size))
        gradient[:, self.blocks["law"]] = slopes / total[:, None]
        gradient[np.arange(total.size), self.blocks["pass_source"].start + self.pass_source] = 1.0
        level = x[self.blocks["pass_source"]][self.pass_source]
        return np.log(total / self.passes.time_ms) + level, gradient, weight, _PASS_HUBER


@dataclass(frozen=True, slots=True, eq=False)
class _Kernels:
    """Times of kernels by the law: base x exp(fp32 . x) over what their mode gains, which `mode` . x adds to."""

    kernels: FlatKernels
    fp32: sp.csr_matrix
    mode: sp.csr_matrix
    faster: Array

    @classmethod
    def of(cls, kernels: FlatKernels, terms: Sequence[Term]) -> _Kernels:
        return cls(kernels, kernels.matrix(LAW, terms)[1], kernels.matrix(GAIN, terms)[1], kernels.faster)

    def fp32_ms(self, x: Array) -> Array:
        """Times in fp32."""
        return np.asarray(self.kernels.base_ms * np.exp(self.fp32 @ x))

    def gain(self, x: Array) -> Array:
        """Ln of the gain of each kernel's mode over fp32, before `gained` keeps it above 0."""
        return np.asarray(self.kernels.gain + self.mode @ x)

    def at(self, x: Array) -> Array:
        """Times in ms."""
        return np.asarray(self.fp32_ms(x) * np.exp(-self.faster * gained(self.gain(x))))

    def summed(self, x: Array) -> tuple[Array, Array]:
        """Sums of the times of the rows' kernels in ms, and their slopes, of shape (n_rows, n_terms)."""
        gain = self.gain(x)
        ms, slope = self.fp32_ms(x) * np.exp(-self.faster * gained(gain)), gained_slope(gain)
        of_mode = self.kernels.weighted(ms * self.faster * slope, self.mode)
        return self.kernels.sums @ ms, self.kernels.weighted(ms, self.fp32) - of_mode


@dataclass(frozen=True, slots=True, eq=False)
class _IterationParts:
    """Times of each row in ms: the iteration, its host, the host's fixed part, and copies or loading.

    `by_device` and `by_host` are the relative change of the iteration per ms of GPU and of host time.
    """

    total: Array
    host: Array
    fixed: Array
    feeds: Array
    by_device: Array
    by_host: Array


@dataclass(slots=True, eq=False)
class _Blocks:
    """Slice of each kind of coefficient in one vector, and each coefficient's prior mean and ridge strength."""

    slices: dict[str, slice] = field(default_factory=dict)
    expected: Array = field(default_factory=lambda: np.empty(0))
    strength: Array = field(default_factory=lambda: np.empty(0))

    def add(self, name: str, expected: Sequence[float], strength: float | Sequence[float]) -> None:
        self.slices[name] = slice(self.expected.size, self.expected.size + len(expected))
        self.expected = np.concatenate([self.expected, np.asarray(expected, dtype=float)])
        self.strength = np.concatenate([self.strength, np.broadcast_to(strength, len(expected))])

    def __getitem__(self, name: str) -> slice:
        return self.slices[name]


def _numbered(names: object) -> tuple[list[str], NDArray[np.intp]]:
    distinct, number = np.unique(list(names), return_inverse=True)  # type: ignore[call-overload]
    return [str(name) for name in distinct], number


def _minimised(residuals: Callable[[Array], list[_Residuals]], x: Array, blocks: _Blocks) -> Array:
    """Levenberg-Marquardt steps until the loss no longer falls."""
    damping = 1e-3
    value, gradient, curvature = _loss(residuals(x), x, blocks)
    for _ in range(_MOST_STEPS):
        damped = curvature + damping * np.diag(np.diag(curvature))
        step = cho_solve(cho_factor(damped, lower=True), -gradient)
        tried = _loss(residuals(x + step), x + step, blocks)
        if tried[0] >= value:
            damping *= 8
            if damping > _MOST_DAMPING:
                break
            continue
        gain, x, (value, gradient, curvature) = value - tried[0], x + step, tried
        damping = max(damping / 5, _LEAST_DAMPING)
        if gain < _CONVERGED * value:
            break
    return x


def _loss(residuals: list[_Residuals], x: Array, blocks: _Blocks) -> tuple[float, Array, Array]:
    """Huber's loss and the ridge; their gradient, and curvature by Gauss and Newton."""
    off = x - blocks.expected
    value = 0.5 * float(blocks.strength @ off**2)
    gradient, curvature = blocks.strength * off, np.diag(blocks.strength)
    for residual, jacobian, weight, bend in residuals:
        size = np.abs(residual)
        value += float(weight @ np.where(size < bend, 0.5 * residual**2, bend * (size - 0.5 * bend)))
        robust = weight * np.minimum(1.0, bend / np.maximum(size, 1e-12))
        gradient = gradient + jacobian.T @ (robust * residual)
        curvature = curvature + (jacobian * robust[:, None]).T @ jacobian
    return value, gradient, curvature
