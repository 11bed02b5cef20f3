"""Deviations of known GPUs from the law, by kernel class and feature in one mode, shrunk towards 0.

With the law frozen, ln(kernel time) = law + features . (a + b), a ~ N(0, (0.1 s)^2) common to the mode's GPUs and
b ~ N(0, (0.05 s)^2) of each GPU; s is larger for levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from predictor.arrays import Array
from predictor.models.join import join_host, join_shares
from predictor.models.roofline.features import FAMILY_OF
from predictor.models.roofline.rows import FlatKernels, Rows
from predictor.models.roofline.terms import BY_GPU, Term, gained, gained_slope, known_as

_LEAST_CNNS = 8
"""CNNs measured on a GPU in a mode from which deviations are fitted; six of Lambda's left the law better."""
_OF_MODE, _OF_GPU = 0.1, 0.05
_OF_CLASS, _OF_FAMILY = 10.0, 2.0
"""Standard deviations of levels of classes and families, relative to those of other features."""
_SIGMA, _BEND = 0.3, 3.0  # of a row's residual; where the loss turns linear, in standard deviations
_STEPS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """Iterations under the frozen law, in ms: kernels in fp32, host, copies of images; and the gains of kernels."""

    kernels: FlatKernels
    fp32_ms: Array
    gain: Array
    host_ms: Array
    feed_ms: Array
    time_ms: Array


def fit_deviations(iterations: Iterations, cnns: Sequence[str], kept: NDArray[np.bool_]) -> dict[Term, float]:
    """Deviations of known GPUs, by term of `BY_GPU` and `GAIN_BY_GPU`; none where few CNNs were measured.

    Those in fp32 come first: the other modes of a GPU gain over them. `cnns`: of each row; the same CNN bears one name
    in all sources. `kept`: rows that may be read.
    """
    deviations: dict[Term, float] = {}
    names = np.array(cnns, dtype=np.str_)
    for kind in ("gpu", "gpu_mode"):
        for rows in _modes(iterations.kernels.rows, names, kept, kind):
            stage = _Stage(iterations, rows, kind)
            deviations |= stage.terms(stage.solved())
        if kind == "gpu" and deviations:
            matrix = iterations.kernels.matrix(BY_GPU, list(deviations))[1]
            more = matrix @ np.array(list(deviations.values()))
            iterations = replace(iterations, fp32_ms=iterations.fp32_ms * np.exp(more))
    return deviations


def _modes(
    rows: Rows, cnns: NDArray[np.str_], kept: NDArray[np.bool_], kind: str
) -> Iterator[NDArray[np.intp]]:
    """Rows of each mode on GPUs on which enough CNNs were measured in it."""
    labels = [known_as(context) for context in rows.contexts]
    label = np.array([name[1] if name and name[0] == kind else "" for name in labels], dtype=np.str_)
    mode = np.array([name.rpartition(", ")[2] for name in label], dtype=np.str_)
    for of_mode in sorted(set(mode) - {""}):
        is_of_mode = kept & (mode == of_mode)
        n_cnns = {
            name: len(set(cnns[is_of_mode & (label == name)])) for name in sorted(set(label[is_of_mode]))
        }
        enough = [name for name in n_cnns if n_cnns[name] >= _LEAST_CNNS]
        if enough:
            yield np.flatnonzero(is_of_mode & np.isin(label, enough))


class _Stage:
    """Deviations of one mode: coefficients of the mode, then of each of its GPUs."""

    def __init__(self, iterations: Iterations, rows: NDArray[np.intp], kind: str) -> None:
        self.kind, self.iterations, self.rows = kind, iterations, rows
        sums = iterations.kernels.sums[rows]
        used = np.unique(sums.indices)
        self.sums = sums[:, used].tocsr()
        self.names, self.features = iterations.kernels.every_feature(used)
        labels = [(known_as(iterations.kernels.rows.contexts[row]) or ("", ""))[1] for row in rows]
        gpus, self.gpu = np.unique(labels, return_inverse=True)
        self.gpus: list[str] = gpus.tolist()
        per_kernel = self.sums.tocsc()
        self.gpu_of_kernel = self.gpu[per_kernel.indices[per_kernel.indptr[:-1]]]
        of_levels = [
            (feature, _OF_CLASS if kernels in FAMILY_OF else _OF_FAMILY) for kernels, feature in self.names
        ]
        wide = np.array([1.0 if feature != "one" else of_level for feature, of_level in of_levels])
        self.scale = np.concatenate([_OF_MODE * wide, *[_OF_GPU * wide] * len(gpus)])
        self.fp32_ms, self.gain = iterations.fp32_ms[used], iterations.gain[used]

    def of_gpus(self, x: Array) -> Array:
        """Coefficients of each GPU, of shape (n_gpus, n_features)."""
        parts = x.reshape(-1, len(self.names))
        return np.asarray(parts[0] + parts[1:])

    def state(self, x: Array) -> tuple[Array, Array]:
        """ln(predicted / measured) of each row, and its slopes by the coefficients of the row's GPU."""
        of_gpus = self.features @ self.of_gpus(x).T
        off = of_gpus[np.arange(of_gpus.shape[0]), self.gpu_of_kernel]
        if self.kind == "gpu":
            ms, slope = self.fp32_ms * np.exp(off), np.ones(off.size)
        else:
            gain = self.gain - off
            ms, slope = self.fp32_ms * np.exp(-gained(gain)), gained_slope(gain)
        device = self.sums @ ms
        host, feed = self.iterations.host_ms[self.rows], self.iterations.feed_ms[self.rows]
        sharpness = self.iterations.kernels.rows.contexts.sharpness[self.rows]
        busy = join_host(device, host, sharpness)
        weighted = self.sums.copy()
        weighted.data = weighted.data * (ms * slope)[weighted.indices]
        per_ms = join_shares(device, host, sharpness)[0] * busy / (busy + feed) / device
        slopes = (weighted @ self.features).toarray() * per_ms[:, None]
        return np.log((busy + feed) / self.iterations.time_ms[self.rows]), slopes

    def solved(self) -> Array:
        """The coefficients of largest posterior, by steps of Gauss and Newton."""
        n, x = len(self.names), np.zeros(self.scale.size)
        for _ in range(_STEPS):
            residual, slopes = self.state(x)
            robust = 1 / _SIGMA**2 * np.minimum(1, _BEND * _SIGMA / np.maximum(np.abs(residual), 1e-9))
            curvature, gradient = np.diag(1 / self.scale**2), x / self.scale**2
            for number in range(len(self.gpus)):
                is_of_gpu = self.gpu == number
                weighted_slopes = slopes[is_of_gpu] * robust[is_of_gpu][:, None]
                square, slope = weighted_slopes.T @ slopes[is_of_gpu], weighted_slopes.T @ residual[is_of_gpu]
                own = slice(n * (number + 1), n * (number + 2))
                for a, b in ((slice(n), slice(n)), (own, own), (slice(n), own), (own, slice(n))):
                    curvature[a, b] += square
                gradient[:n] += slope
                gradient[own] += slope
            x = x + cho_solve(cho_factor(curvature), -gradient)
        return x

    def terms(self, x: Array) -> dict[Term, float]:
        """The coefficients by term: those of a family are added to each of its classes."""
        terms: dict[Term, float] = {}
        of_classes, sign = BY_GPU["gpu"], 1.0 if self.kind == "gpu" else -1.0
        for label, values in zip(self.gpus, self.of_gpus(x), strict=True):
            by_name = dict(zip(self.names, values.tolist(), strict=True))
            for kernels in sorted({kernels for kernels, _ in self.names if kernels in FAMILY_OF}):
                for feature in of_classes[kernels]:
                    own = by_name.get((kernels, feature), 0.0)
                    value = own + by_name.get((FAMILY_OF[kernels], feature), 0.0)
                    if value:
                        terms[kernels, feature, f"{self.kind}:{label}"] = round(sign * value, 5)
        return terms
