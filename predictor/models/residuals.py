"""Corrects a prediction by residuals of measured iterations: a Gaussian process over GPU, CNN and batch size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, find_gpu, generations, is_cpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.forecast import Anchor, Reason
from predictor.operators.memory import USABLE_SHARE, peak_memories_gib

Array = NDArray[np.float64]

PARTS = ("gpu", "cnn", "cnn_image", "cnn_near_gpu", "cnn_image_near_gpu", "series", "noise")
"""Components of a residual; each has a variance, fitted by `predictor.models.intervals`."""

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
        return Locations(
            [self.gpus[i] for i in positions],
            [self.cnns[i] for i in positions],
            [self.image_sizes[i] for i in positions],
            [self.batch_sizes[i] for i in positions],
            [self.modes[i] for i in positions],
        )


def covariances(a: Locations, b: Locations) -> dict[str, Array]:
    """Correlation of each part (but noise) between two sets of locations, each of shape (len(a), len(b))."""
    same_gpu = _equal([g.name for g in a.gpus], [g.name for g in b.gpus])
    mode = np.where(_equal(a.modes, b.modes) > 0, 1.0, _OTHER_MODE)
    cnn = _equal(a.cnns, b.cnns) * mode
    image = cnn * _equal(a.image_sizes, b.image_sizes)
    steps = (
        np.log2(np.asarray(a.batch_sizes, float))[:, None]
        - np.log2(np.asarray(b.batch_sizes, float))[None, :]
    )
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
    known: Locations,
    residual: Array,
    asked: Locations,
    variances: Mapping[str, float],
    *,
    trusted: bool = False,
    local: Array | None = None,
) -> tuple[Array, Array]:
    """Posterior mean and variance of a Gaussian process at new locations, given known residuals.

    Parameters
    ----------
    known : Locations of length n
    residual : ndarray, shape (n,)
        ln(measured / model) at the known locations.
    asked : Locations of length m
    variances : mapping of part to variance
        Parts left out count as zero; `noise` is part of the known and of the predicted measurements.
    trusted : bool
        True for the user's own measurements of this CNN. They are not clipped, and at a measured (GPU, batch size)
        the prediction equals the measurement up to run-to-run noise (`RUN_NOISE`). False for residuals of tables,
        which are clipped at 6 standard deviations.
    local : ndarray, shape (n,), optional
        Further variance of each trusted residual that belongs to its GPU and batch size alone.

    Returns
    -------
    mean, variance : ndarray, shape (m,)
        If trusted residuals are larger than `variances` predict, the variance is scaled up by the same factor.
    """
    total = prior_variance(variances)
    noise = max(variances.get("noise", 0.0), 1e-6)
    if not len(known):
        return np.zeros(len(asked)), np.full(len(asked), total)
    at_site = max(noise - RUN_NOISE, 0.0) if trusted else 0.0
    among = _combined(known, known, variances) + np.eye(len(known)) * (noise - at_site)
    across = _combined(asked, known, variances)
    prior = np.full(len(asked), total)
    if trusted:
        own = at_site + (np.zeros(len(known)) if local is None else local)
        here = _same_site(asked, known)
        among += np.sqrt(own[:, None] * own[None]) * _same_site(known, known)
        across += here * own
        prior += (here * (own - at_site)).max(axis=1)
    weights = np.linalg.solve(among, across.T).T
    outermost = np.inf if trusted else _BAD_CELL * np.sqrt(total)
    mean: Array = np.asarray(weights @ np.clip(residual, -outermost, outermost), dtype=float)
    left = prior - np.einsum("ij,ij->i", weights, across)
    if trusted:
        left *= max(1.0, float(residual @ np.linalg.solve(among, residual)) / len(known))
    return mean, np.maximum(left, variances.get("noise", 0.0))


def prior_variance(variances: Mapping[str, float]) -> float:
    """Variance of a residual without measurements to correct it: the sum over its parts."""
    return float(sum(variances.values()))


def is_outlier(residual: float, variances: Mapping[str, float]) -> bool:
    """Whether a residual exceeds 3 standard deviations."""
    return abs(residual) > _OUTLIER * float(np.sqrt(prior_variance(variances)))


def _combined(a: Locations, b: Locations, variances: Mapping[str, float]) -> Array:
    parts = covariances(a, b)
    total: Array = sum(
        (variances.get(name, 0.0) * part for name, part in parts.items()), np.zeros((len(a), len(b)))
    )
    return total


def _same_site(a: Locations, b: Locations) -> Array:
    """1 where GPU, CNN, image size, batch size and mode are equal, else 0."""
    same: Array = (
        _equal([g.name for g in a.gpus], [g.name for g in b.gpus])
        * _equal(a.cnns, b.cnns)
        * _equal(a.image_sizes, b.image_sizes)
        * _equal([float(n) for n in a.batch_sizes], [float(n) for n in b.batch_sizes])
        * _equal(a.modes, b.modes)
    )
    return same


def _equal(a: Sequence[object], b: Sequence[object]) -> Array:
    _, codes = np.unique(np.array([*a, *b], dtype=np.str_), return_inverse=True)
    equal: Array = (codes[: len(a), None] == codes[None, len(a) :]).astype(float)
    return equal


def _gpu_similarity(a: Sequence[Gpu], b: Sequence[Gpu]) -> Array:
    """exp(-4 d), d being the rms distance of ln(peak, bandwidth) and a step per generation between two GPUs."""

    def specs(gpus: Sequence[Gpu]) -> Array:
        return np.array(
            [[np.log(g.peak_fp32_tflop_per_s), np.log(g.memory_bandwidth_gb_per_s)] for g in gpus]
        )

    def ages(gpus: Sequence[Gpu]) -> Array:
        return np.array([generations().index(g.generation) for g in gpus], dtype=float)

    apart = np.sqrt(((specs(a)[:, None] - specs(b)[None]) ** 2).mean(axis=2))
    steps = np.abs(ages(a)[:, None] - ages(b)[None])
    similarity: Array = np.exp(-_SPEC_DECAY * (apart + _GENERATION_STEP * steps))
    return similarity


_LAYER_PARTS = {"cnn_image": 0.55, "series": 0.35, "noise": 0.10}
"""Share of each part in the residual variance of layer-times within one series."""

_ITSELF = "the CNN of the question"

_SHORT_OF_MEMORY = 0.1
"""Variance of ln time that belongs to the batch size alone where memory is short (docs/decisions/008)."""


def is_of(anchor: Anchor, gpu: Gpu) -> bool:
    """Whether an anchor was measured on this device."""
    return anchor.gpu == gpu.name or (not is_cpu(anchor.gpu) and find_gpu(anchor.gpu).name == gpu.name)


def layer_variances(total: float, roughness: float) -> dict[str, float]:
    """Split the residual variance `total` of layer-times into parts.

    `roughness`, the standard deviation from one batch size to the next, sets the least noise variance.
    """
    variances = {part: share * total for part, share in _LAYER_PARTS.items()}
    return variances | {"noise": max(variances["noise"], roughness**2)}


def kriged(
    table: LayerTable,
    gpu: Gpu,
    batches: Array,
    anchors: Sequence[Anchor],
    residual: Array,
    variances: Mapping[str, float],
) -> tuple[Array, Array]:
    """Mean and variance of ln(truth / model) at the batch sizes, each of shape (n_batches,).

    `residual` is ln(measured / model) at the anchors; at an anchor's batch size the mean equals its residual, up to
    run-to-run noise. Runs at one batch size on one GPU count as one, by their mean: that they differ is no error of the
    model.
    """

    def sites(gpus: Sequence[Gpu], sizes: Sequence[float]) -> Locations:
        n = len(gpus)
        return Locations(gpus, [_ITSELF] * n, [table.image_size] * n, sizes, [""] * n)

    gpus = [gpu if each.gpu == gpu.name else find_gpu(each.gpu) for each in anchors]
    runs: dict[tuple[str, int], list[int]] = {}
    for place, (one, each) in enumerate(zip(gpus, anchors, strict=True)):
        runs.setdefault((one.name, each.batch_size), []).append(place)
    residual = np.array([residual[places].mean() for places in runs.values()])
    first = [places[0] for places in runs.values()]
    gpus, anchors = [gpus[place] for place in first], [anchors[place] for place in first]
    known = sites(gpus, [float(each.batch_size) for each in anchors])
    asked = sites([gpu] * batches.size, [float(size) for size in batches])
    local = _SHORT_OF_MEMORY * _short_of_memory(table, gpus, anchors)
    return gp_posterior(known, residual, asked, variances, trusted=True, local=local)


def _short_of_memory(table: LayerTable, gpus: Sequence[Gpu], anchors: Sequence[Anchor]) -> Array:
    """1 where an anchor's peak memory leaves less than a tenth of its GPU's free, else 0; shape (n_anchors,)."""
    return np.array(
        [
            gpu.memory_gib is not None and _peak_gib(table, each) > USABLE_SHARE * gpu.memory_gib
            for gpu, each in zip(gpus, anchors, strict=True)
        ],
        dtype=float,
    )


def _peak_gib(table: LayerTable, anchor: Anchor) -> float:
    mode = Mode(precision=anchor.precision or Mode().precision)
    return float(peak_memories_gib(table, [anchor.batch_size], mode)[0])


def far_anchors(anchors: Sequence[Anchor], residual: Array, variances: Mapping[str, float]) -> list[Reason]:
    """Reasons for caution: anchors more than 3 standard deviations from the model.

    Raises
    ------
    OutOfRangeError
        If an anchor that was typed is more than a factor of 1,000 from the model: its unit must be wrong.
    """
    for each, r in zip(anchors, residual, strict=True):
        _check_not_absurd(each, float(r))
    return [
        Reason(
            "anchor",
            f"{math.exp(r):.2g} times the model's own time on {each.gpu} at batch {each.batch_size}, "
            "more than its errors explain: check its unit and mode",
        )
        for each, r in zip(anchors, residual, strict=True)
        if is_outlier(float(r), variances)
    ]


def _check_not_absurd(anchor: Anchor, residual: float) -> None:
    if anchor.of_table or abs(residual) <= math.log(_ABSURD):
        return
    own_ms = anchor.iteration_time_ms / math.exp(residual)
    raise OutOfRangeError(
        f"the anchor's iteration of {anchor.iteration_time_ms:.6g} ms on {anchor.gpu} at batch {anchor.batch_size} is "
        f"{math.exp(residual):.2g} times the model's own time, {own_ms:.3g} ms. Check its unit: iteration_time_ms is "
        f"in milliseconds, epoch_time_s in seconds; an anchor may differ by a factor of {_ABSURD:,.0f}."
    )
