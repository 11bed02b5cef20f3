"""Applies fitted coefficients with numpy alone: all that serving needs of the roofline model.

Called by `predictor.model` and the `roofline` estimator; calls features, rates and kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.kernels import KERNEL_CLASSES, Kernels
from predictor.roofline.features import FAMILY_OF, kernel_base_ms, kernel_features
from predictor.roofline.rates import rates_of
from predictor.roofline.situations import Situation, Term, tags_of, terms_of

__all__ = ["IterationParts", "iteration_parts", "join_host"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class IterationParts:
    """Times of one CNN in one situation, in ms, over batch sizes.

    `device_ms` has shape (n_batches,); `class_ms` gives the same by kernel class; `kernels` is how many kernels the
    host enqueues per iteration.
    """

    device_ms: Array
    class_ms: dict[str, Array]
    kernels: float


def iteration_parts(
    terms: Mapping[Term, float], kernels: Kernels, situation: Situation, batch_sizes: Array
) -> IterationParts:
    """Time the device is busy in one iteration.

    Parameters
    ----------
    terms : mapping of term to coefficient
    kernels : Kernels
    situation : Situation
    batch_sizes : ndarray, shape (n_batches,)
    """
    rates = rates_of(situation.gpu, situation.precision)
    tags = tags_of(situation)
    batches = np.asarray(batch_sizes, dtype=float)[None, :]
    class_ms: dict[str, Array] = {}
    for number in np.unique(kernels.kernel_class):
        name = KERNEL_CLASSES[number]
        of_class = kernels.kernel_class == number
        columns = {key: values[of_class][:, None] for key, values in kernels.columns.items()}
        exponent = np.zeros((1, batches.size))
        for feature, value in kernel_features(name, columns, batches, rates).items():
            weight = sum(terms.get(term, 0.0) for term in terms_of(name, feature, tags))
            if weight:
                exponent = exponent + weight * value
        times = kernel_base_ms(FAMILY_OF[name], columns, batches, rates) * np.exp(exponent)
        class_ms[name] = kernels.count[of_class] @ times
    return IterationParts(
        sum(class_ms.values(), np.zeros(batches.size)), class_ms, float(kernels.count.sum())
    )


def join_host(device_ms: Array, host_ms: Array) -> Array:
    """Smooth maximum of device and host time: the third root of their cubes' sum."""
    joined: Array = np.cbrt(device_ms**3 + host_ms**3)
    return joined
