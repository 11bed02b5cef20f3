"""What measurements of the very CNN asked about tell about the model's error: kriging between its own batch sizes.

Called by `predictor.model` and layer_forecast; calls kriging and the GPU catalogue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from predictor.cpus import is_cpu
from predictor.forecasts import Anchor
from predictor.gpus import Gpu, find_gpu
from predictor.kriging import Sites, is_outlier, krige
from predictor.layers import LayerTable

__all__ = ["far_anchors", "is_of", "kriged", "layer_variances"]

Array = NDArray[np.float64]

_LAYER_PARTS = {"cnn_image": 0.55, "series": 0.35, "noise": 0.10}
"""Shares of the variance of what measured layers leave unexplained in one series, by part of `predictor.kriging`."""

_ITSELF = "the CNN asked about"


def is_of(anchor: Anchor, gpu: Gpu) -> bool:
    """Whether an anchor was measured on this device."""
    return anchor.gpu == gpu.name or (not is_cpu(anchor.gpu) and find_gpu(anchor.gpu).name == gpu.name)


def layer_variances(total: float, roughness: float) -> dict[str, float]:
    """Variances of the parts of what measured layers leave unexplained, `total` together.

    `roughness` is the standard deviation from one batch size to the next, which no neighbour tells.
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

    `residual` is ln(measured / model) at the anchors; at an anchor the answer is the anchor.
    """

    def sites(gpus: Sequence[Gpu], sizes: Sequence[float]) -> Sites:
        n = len(gpus)
        return Sites(gpus, [_ITSELF] * n, [table.image_size] * n, sizes, [""] * n)

    gpus = [gpu if each.gpu == gpu.name else find_gpu(each.gpu) for each in anchors]
    known = sites(gpus, [float(each.batch_size) for each in anchors])
    asked = sites([gpu] * batches.size, [float(size) for size in batches])
    return krige(known, residual, asked, variances, trusted=True)


def far_anchors(anchors: Sequence[Anchor], residual: Array, variances: Mapping[str, float]) -> list[str]:
    """Say which anchors lie further from the model than its errors explain."""
    return [
        f"anchor: {math.exp(r):.2g} times the model's own time on {each.gpu} at batch {each.batch_size}, "
        "more than its errors explain: check its unit and mode"
        for each, r in zip(anchors, residual, strict=True)
        if is_outlier(float(r), variances)
    ]
