"""Corrects a prediction by residuals of measured iterations: a Gaussian process over GPU, CNN and batch size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu, find_gpu, generations, is_cpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.forecast import Anchor, Reason
from predictor.operators.memory import peak_memories_gib, usable_gib
from predictor.stopping import check_stop

PARTS = ("gpu", "cnn", "cnn_image", "cnn_near_gpu", "cnn_image_near_gpu", "series", "noise")
"""Components of a residual; their variances are fitted by `predictor.models.intervals`."""

RUN_NOISE = 1e-4
"""Variance of ln time between runs of one training: careful measurements repeat within 1 %."""

_WIDE_BATCH, _NARROW_BATCH = 3.0, 1.5  # length scales, in doublings of the batch size
_OTHER_MODE = 0.5  # correlation of a CNN's residuals between two modes (precision, XLA, memory format)
_OUTLIER = 3.0  # standard deviations beyond which an anchor gets a warning
_ABSURD = 1000.0  # factor between an anchor and the model beyond which its unit must be wrong
_BAD_CELL = 6.0  # standard deviations at which residuals of tables are clipped; their tails are heavy
_SPEC_DECAY, _GENERATION_STEP = 4.0, 0.125


@dataclass(frozen=True, slots=True, eq=False)
class Locations:
    """GPU, CNN, image size, batch size and mode of n residuals. `modes` are any texts that differ between modes."""

    gpus: Sequence[Gpu]
    cnns: Sequence[str]
    image_sizes: Sequence[int]
    batch_sizes: Sequence[float]
    modes: Sequence[str]

    def __len__(self) -> int:
        return len(self.gpus)

    def take(self, positions: NDArray[np.intp]) -> Locations:
        """The locations at these positions."""
        columns = (getattr(self, entry.name) for entry in fields(self))
        return Locations(*([column[i] for i in positions] for column in columns))


def covariances(a: Locations, b: Locations) -> dict[str, Array]:
    """Correlation of each part (but noise) between two sets of locations, each of shape (len(a), len(b))."""
    same_gpu = _equal([g.name for g in a.gpus], [g.name for g in b.gpus])
    mode = np.where(_equal(a.modes, b.modes) > 0, 1.0, _OTHER_MODE)
    cnn = _equal(a.cnns, b.cnns) * mode
    image = cnn * _equal(a.image_sizes, b.image_sizes)
    sizes = [np.log2(np.asarray(batch_sizes, float)) for batch_sizes in (a.batch_sizes, b.batch_sizes)]
    steps = sizes[0][:, None] - sizes[1][None, :]
    near_gpu = _gpu_similarity(a.gpus, b.gpus)
    wide, narrow = np.exp(-0.5 * (steps / _WIDE_BATCH) ** 2), np.exp(-0.5 * (steps / _NARROW_BATCH) ** 2)
    return {
        "gpu": same_gpu,
        "cnn": cnn,
        "cnn_image": image * wide,
        "cnn_near_gpu": cnn * near_gpu,
        "cnn_image_near_gpu": image * near_gpu * wide,
        "series": image * same_gpu * narrow,
    }


def gp_posterior(
    measured: Locations, residual: Array, new_sites: Locations, variances: Mapping[str, float]
) -> tuple[Array, Array]:
    """Posterior mean and variance of a Gaussian process at new locations, given known residuals of tables.

    `residual`, shape (n,): ln(measured / model) at the known locations; clipped at 6 standard deviations. `variances`:
    parts left out count as zero; `noise` is part of the known and of the predicted measurements. `mean, variance`: an
    array of shape (m,).
    """
    total = prior_variance(variances)
    noise = max(variances.get("noise", 0.0), 1e-6)
    if not len(measured):
        return np.zeros(len(new_sites)), np.full(len(new_sites), total)
    among = _combined(measured, measured, variances) + np.eye(len(measured)) * noise
    across = _combined(new_sites, measured, variances)
    weights = np.linalg.solve(among, across.T).T
    outermost = _BAD_CELL * np.sqrt(total)
    mean: Array = np.asarray(weights @ np.clip(residual, -outermost, outermost), dtype=float)
    left = total - np.einsum("ij,ij->i", weights, across)
    return mean, np.maximum(left, variances.get("noise", 0.0))


def prior_variance(variances: Mapping[str, float]) -> float:
    """Variance of a residual without measurements to correct it: the sum over its parts."""
    return float(sum(variances.values()))


def _combined(a: Locations, b: Locations, variances: Mapping[str, float]) -> Array:
    parts = (variances.get(name, 0.0) * correlation for name, correlation in covariances(a, b).items())
    return sum(parts, np.zeros((len(a), len(b))))


def _equal(a: Sequence[object], b: Sequence[object]) -> Array:
    _, codes = np.unique(np.array([*a, *b], dtype=np.str_), return_inverse=True)
    equal: Array = (codes[: len(a), None] == codes[None, len(a) :]).astype(float)
    return equal


def _gpu_similarity(a: Sequence[Gpu], b: Sequence[Gpu]) -> Array:
    """exp(-4 d), d being the rms distance of ln(peak, bandwidth) and a step per generation between two GPUs."""
    gpus_by_name = {gpu.name: gpu for gpu in (*a, *b)}
    index_of, different = {name: index for index, name in enumerate(gpus_by_name)}, gpus_by_name.values()
    specs = np.log([[gpu.peak_fp32_tflop_per_s, gpu.memory_bandwidth_gb_per_s] for gpu in different])
    ages = np.array([generations().index(gpu.generation) for gpu in different], dtype=float)
    apart = np.sqrt(((specs[:, None] - specs[None]) ** 2).mean(axis=2))
    steps = np.abs(ages[:, None] - ages[None])
    similarity: Array = np.exp(-_SPEC_DECAY * (apart + _GENERATION_STEP * steps))
    return similarity[np.ix_(*([index_of[gpu.name] for gpu in gpus] for gpus in (a, b)))]


_ITSELF = "the CNN of the question"

_SHORT_OF_MEMORY = 0.1
"""Variance of ln time that belongs only to the batch size where memory is short (docs/decisions/008)."""


def is_of(anchor: Anchor, gpu: Gpu) -> bool:
    """Whether an anchor was measured on this device."""
    return anchor.gpu == gpu.name or (not is_cpu(anchor.gpu) and find_gpu(anchor.gpu).name == gpu.name)


class Runs:
    """Measured runs of the CNN in question, which correct a model's times of it.

    They are trusted: at a measured (GPU, batch size) the correction is the measurement's, up to run-to-run noise
    (`RUN_NOISE`), however far it lies. Runs at one batch size on one GPU count as one, by their mean: that they differ
    is no error of the model. `residual`, shape (n_anchors,): ln(measured / model) at the anchors. `gpu`: where all
    anchors were measured, such as a CPU, which is in no catalogue.

    The covariance of n runs has a low rank, since it is smooth in the batch size: it is factored once, and each batch
    size is answered in n x rank^2 and not n^3 steps, whatever its variance (Woodbury's identity).
    """

    def __init__(
        self, table: LayerTable, anchors: Sequence[Anchor], residual: Array, gpu: Gpu | None = None
    ) -> None:
        gpus = [gpu or find_gpu(anchor.gpu) for anchor in anchors]
        positions: dict[tuple[str, int], list[int]] = {}
        for position, (site, anchor) in enumerate(zip(gpus, anchors, strict=True)):
            positions.setdefault((site.name, anchor.batch_size), []).append(position)
        first = [own[0] for own in positions.values()]
        self._image_size = table.image_size
        self._residual = np.array([residual[own].mean() for own in positions.values()])
        self._known = self._sites([gpus[i] for i in first], [anchors[i].batch_size for i in first])
        short = _short_of_memory(table, self._known.gpus, [anchors[i] for i in first])
        self._local = _SHORT_OF_MEMORY * short
        self._factor = lru_cache(maxsize=4)(lambda key: _factor(self._known, dict(key)))
        self._inverse = lru_cache(maxsize=4)(self._inverse_of)

    def correction(
        self, gpu: Gpu, batch_sizes: Array, parts: Mapping[str, float], total: Array, noise: Array
    ) -> tuple[Array, Array]:
        """Mean and variance of ln(truth / model) on a GPU.

        `batch_sizes`: shape (m,). `parts`: without `noise`, for a `total` of 1. `total`, `noise`, shape (m,): what each
        batch size multiplies `parts` by, and the variance of its noise. `mean, variance`: if residuals are larger than
        the variances predict, the variance is scaled up by the same factor, shape (m,).
        """
        new_sites = self._sites([gpu] * batch_sizes.size, batch_sizes.tolist())
        key = tuple(sorted(parts.items()))
        across = _combined(new_sites, self._known, parts)
        is_at = _equal([gpu.name], [site.name for site in self._known.gpus])
        is_at = is_at * (batch_sizes[:, None] == np.asarray(self._known.batch_sizes, float))  # of a run
        mean_and_variance = np.empty((2, batch_sizes.size))
        for scale, own_noise in dict.fromkeys(zip(total.tolist(), noise.tolist(), strict=True)):
            check_stop()
            chosen = (total == scale) & (noise == own_noise)
            inverse = self._inverse(key, scale, own_noise)
            at_site = max(own_noise - RUN_NOISE, 0.0) + self._local  # belongs to a run's GPU and batch size
            shared = scale * across[chosen] + is_at[chosen] * at_site
            prior = scale * sum(parts.values()) + own_noise + (is_at[chosen] * self._local).max(axis=1)
            left = (prior - inverse.squares(shared)) * max(1.0, inverse.surprise)
            mean_and_variance[:, chosen] = shared @ inverse.weights, np.maximum(left, own_noise)
        return mean_and_variance[0], mean_and_variance[1]

    def _inverse_of(self, key: tuple[tuple[str, float], ...], scale: float, noise: float) -> _Inverse:
        own = max(noise, RUN_NOISE) + self._local
        return _Inverse(np.sqrt(scale) * self._factor(key), own, self._residual)

    def _sites(self, gpus: Sequence[Gpu], batch_sizes: Sequence[float]) -> Locations:
        n = len(gpus)
        return Locations(gpus, [_ITSELF] * n, [self._image_size] * n, batch_sizes, [""] * n)


class _Inverse:
    """The inverse of ``factor @ factor.T + diag(own)``, applied to residuals and to what others share with them.

    `weights`, shape (n,): the inverse times the residuals. `surprise`: mean square of the residuals, in the variances
    that the matrix predicts.
    """

    def __init__(self, factor: Array, own: Array, residual: Array) -> None:
        self._rooted = np.sqrt(own)
        self._scaled = factor / self._rooted[:, None]
        self._inner = np.linalg.cholesky(np.eye(factor.shape[1]) + self._scaled.T @ self._scaled)
        outer = residual / self._rooted
        half = np.linalg.solve(self._inner, self._scaled.T @ outer)
        self.weights = (outer - self._scaled @ np.linalg.solve(self._inner.T, half)) / self._rooted
        self.surprise = float(residual @ self.weights) / residual.size

    def squares(self, shared: Array) -> Array:
        """Products (m,) of each row of `shared` (m, n) with the inverse and itself."""
        outer = shared / self._rooted
        products: Array = (outer**2).sum(axis=1)
        products -= (np.linalg.solve(self._inner, self._scaled.T @ outer.T) ** 2).sum(axis=0)
        return products


def _factor(sites: Locations, parts: Mapping[str, float]) -> Array:
    """A matrix F of shape (n, rank): F @ F.T is the covariance of n sites, to 1e-12 of a variance.

    Cholesky's factor with pivots, which needs rank columns of the covariance: the site that those before explain least
    comes next.
    """
    total = sum(parts.values())
    left, columns = np.full(len(sites), total), np.empty((len(sites), 0))
    while (largest := float(left.max())) > 1e-12 * total:
        pivot = left.argmax()
        covariance = _combined(sites.take(np.array([pivot])), sites, parts)[0]
        column = (covariance - columns @ columns[pivot]) / math.sqrt(largest)
        columns = np.column_stack([columns, column])
        left = np.maximum(left - column**2, 0.0)
        left[pivot] = 0.0
        check_stop()
    return columns


def _short_of_memory(table: LayerTable, gpus: Sequence[Gpu], anchors: Sequence[Anchor]) -> Array:
    """1 where an anchor's peak memory leaves less than a tenth of its GPU's free, else 0; shape (n_anchors,)."""
    is_short = np.zeros(len(anchors))
    for precision in {anchor.precision for anchor in anchors}:
        own = [i for i, anchor in enumerate(anchors) if anchor.precision == precision]
        mode = Mode(precision=precision or Mode().precision)
        peaks = peak_memories_gib(table, [anchors[i].batch_size for i in own], mode)
        for i, peak_gib in zip(own, peaks, strict=True):
            is_short[i] = peak_gib > usable_gib(gpus[i])
    return is_short


def check_not_absurd(anchors: Sequence[Anchor], residual: Array) -> None:
    """Raise OutOfRangeError for a typed anchor more than a factor of 1,000 from the model: its unit must be wrong."""
    for anchor, residual_of_run in zip(anchors, residual.tolist(), strict=True):
        if anchor.of_table or abs(residual_of_run) <= math.log(_ABSURD):
            continue
        ratio = math.exp(residual_of_run)
        raise OutOfRangeError(
            f"the anchor's iteration of {anchor.iteration_time_ms:.6g} ms on {anchor.gpu} at batch {anchor.batch_size} "
            f"is {ratio:.2g} times the model's own time, {anchor.iteration_time_ms / ratio:.3g} ms. Check its unit: "
            "iteration_time_ms is in milliseconds, epoch_time_s in seconds; an anchor may differ by a factor of "
            f"{_ABSURD:,.0f}."
        )


def far_anchors(anchors: Sequence[Anchor], residual: Array, variance: float) -> list[Reason]:
    """A reason for caution where anchors lie more than 3 standard deviations from the model: it names the farthest."""
    far = np.flatnonzero(np.abs(residual) > _OUTLIER * math.sqrt(variance)).tolist()
    if not far:
        return []
    farthest = max(far, key=lambda i: abs(float(residual[i])))
    anchor, more_text = anchors[farthest], f" (and {len(far) - 1:,} more)" if len(far) > 1 else ""
    text = f"{math.exp(residual[farthest]):.2g} times the model's own time on {anchor.gpu} at batch "
    text += f"{anchor.batch_size}{more_text}, more than its errors explain: check its unit and mode"
    return [Reason("anchor", text)]
