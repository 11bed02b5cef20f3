"""What measurements of a CNN, or of a GPU, tell about the model's error elsewhere: kriging of log residuals.

Called by the `anchored` estimator and by serving, with numpy alone; calls the GPU catalogue. A model's residual
ln(measured / model) is seen as a sum of independent parts, each shared by the measurements that are alike in one
way: on the same GPU, of the same CNN, at the same image size, on a similar GPU, at a near batch size. Known residuals
then predict unknown ones, with a variance (simple kriging; Matheron 1963, Rasmussen and Williams 2006, eq. 2.25).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.gpus import GENERATIONS, Gpu

__all__ = ["PARTS", "Sites", "covariances", "krige", "prior_variance"]

Array = NDArray[np.float64]

PARTS = ("gpu", "cnn", "cnn_image", "cnn_near_gpu", "cnn_image_near_gpu", "series", "noise")
"""Parts of a residual; each has a variance, fitted by `predictor.predictors.variances`."""

_WIDE_BATCH, _NARROW_BATCH = 3.0, 1.5  # length scales, in doublings of the batch size
_OTHER_MODE = 0.5  # correlation of a CNN's residuals between two modes (precision, XLA, memory format)
_OUTLIER = 3.0  # standard deviations beyond which a known residual counts no more
_SPEC_DECAY, _GENERATION_STEP = 4.0, 0.125


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """Where residuals are known or asked for; all of length n. `mode` is any text that differs between modes."""

    gpus: Sequence[Gpu]
    cnns: Sequence[str]
    image_sizes: Sequence[int]
    batch_sizes: Sequence[float]
    modes: Sequence[str]

    def __len__(self) -> int:
        return len(self.gpus)

    def take(self, positions: NDArray[np.intp]) -> Sites:
        """The sites at some positions."""
        columns = (self.gpus, self.cnns, self.image_sizes, self.batch_sizes, self.modes)
        return Sites(*([column[i] for i in positions] for column in columns))


def covariances(a: Sites, b: Sites) -> dict[str, Array]:
    """Correlation of each part (but noise) between two sets of sites, each of shape (len(a), len(b))."""
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


def krige(known: Sites, residual: Array, asked: Sites, variances: Mapping[str, float]) -> tuple[Array, Array]:
    """Mean and variance of the residuals asked for, given known ones.

    Parameters
    ----------
    known : Sites of length n
    residual : ndarray, shape (n,)
        ln(measured / model) at the known sites.
    asked : Sites of length m
    variances : mapping of part to variance
        Parts left out count as zero; `noise` belongs to known and asked measurements alike.

    Returns
    -------
    mean, variance : ndarray, shape (m,)
    """
    prior = np.full(len(asked), prior_variance(variances))
    if not len(known):
        return np.zeros(len(asked)), prior
    among = _combined(known, known, variances) + np.eye(len(known)) * max(variances.get("noise", 0.0), 1e-6)
    across = _combined(asked, known, variances)
    weights = np.linalg.solve(among, across.T).T
    outermost = _OUTLIER * np.sqrt(prior_variance(variances))
    mean: Array = np.asarray(weights @ np.clip(residual, -outermost, outermost), dtype=float)
    return mean, np.maximum(prior - np.einsum("ij,ij->i", weights, across), variances.get("noise", 0.0))


def prior_variance(variances: Mapping[str, float]) -> float:
    """Variance of a residual about which nothing is known."""
    return float(sum(variances.values()))


def _combined(a: Sites, b: Sites, variances: Mapping[str, float]) -> Array:
    parts = covariances(a, b)
    total: Array = sum(
        (variances.get(name, 0.0) * part for name, part in parts.items()), np.zeros((len(a), len(b)))
    )
    return total


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

    def generations(gpus: Sequence[Gpu]) -> Array:
        return np.array([GENERATIONS.index(g.generation) for g in gpus], dtype=float)

    apart = np.sqrt(((specs(a)[:, None] - specs(b)[None]) ** 2).mean(axis=2))
    steps = np.abs(generations(a)[:, None] - generations(b)[None])
    similarity: Array = np.exp(-_SPEC_DECAY * (apart + _GENERATION_STEP * steps))
    return similarity
