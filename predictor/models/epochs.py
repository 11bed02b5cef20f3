"""Epoch time from iteration time, with the overhead that an epoch has beyond its training iterations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.errors import DataError

__all__ = ["EpochOverhead", "fit_epoch_overhead", "iterations_per_epoch"]

_Floats = NDArray[np.float64]

_BYTES_PER_PIXEL = 12.0  # three channels in fp32
_MS_PER_S = 1000.0
_BYTES_PER_MB = 1e6


def iterations_per_epoch(samples: ArrayLike, batch_size: ArrayLike) -> _Floats:
    """Count the iterations of one pass over `samples` images: ceil(samples / batch_size)."""
    iterations: _Floats = np.ceil(np.asarray(samples, dtype=float) / np.asarray(batch_size, dtype=float))
    return iterations


@dataclass(frozen=True, slots=True)
class EpochOverhead:
    """Time of an epoch beyond iterations x iteration time; all zero is the plain product.

    A validation image takes `validation_share` of a training image's time (its forward pass alone),
    `ms_per_iteration` is spent between iterations, and `ms_per_mb` on feeding each MB (10^6 bytes) of fp32
    RGB images, training and validation alike.
    """

    validation_share: float = 0.0
    ms_per_iteration: float = 0.0
    ms_per_mb: float = 0.0

    def epoch_time_s(
        self,
        iteration_time_ms: ArrayLike,
        samples: ArrayLike,
        batch_size: ArrayLike,
        image_size: ArrayLike,
        validation_samples: ArrayLike = 0,
    ) -> _Floats:
        """Give the seconds of one epoch; arguments broadcast.

        `image_size` is the side of the square images in pixels, `validation_samples` the images of the
        validation pass that the epoch ends with.
        """
        coefficients = np.array([self.validation_share, self.ms_per_iteration, self.ms_per_mb])
        spent, beyond = _terms(iteration_time_ms, samples, batch_size, image_size, validation_samples)
        return np.asarray((spent + beyond @ coefficients) / _MS_PER_S)


def fit_epoch_overhead(
    epoch_time_s: ArrayLike,
    iteration_time_ms: ArrayLike,
    samples: ArrayLike,
    batch_size: ArrayLike,
    image_size: ArrayLike,
    validation_samples: ArrayLike = 0,
) -> EpochOverhead:
    """Fit the three coefficients by non-negative least squares on prediction / measured = 1.

    All arguments have shape (n_epochs,) or broadcast to it, in the units of `EpochOverhead.epoch_time_s`.
    Without any validation pass in the data `validation_share` is 0.

    Raises
    ------
    DataError
        If fewer than three epochs were measured.
    """
    from scipy.optimize import nnls

    epoch_ms = np.asarray(epoch_time_s, dtype=float) * _MS_PER_S
    spent, beyond = _terms(iteration_time_ms, samples, batch_size, image_size, validation_samples)
    usable = np.isfinite(beyond).all(axis=1) & np.isfinite(spent) & (epoch_ms > 0)
    if usable.sum() < beyond.shape[1]:
        raise DataError(
            f"{usable.sum()} measured epochs are too few to fit the overhead of an epoch: "
            f"it needs {beyond.shape[1]} with epoch_time_s, iteration_time_ms and samples_per_epoch."
        )
    left = 1.0 - spent[usable] / epoch_ms[usable]
    weights, _ = nnls(beyond[usable] / epoch_ms[usable, None], left)
    return EpochOverhead(*(float(weight) for weight in weights))


def _terms(
    iteration_time_ms: ArrayLike,
    samples: ArrayLike,
    batch_size: ArrayLike,
    image_size: ArrayLike,
    validation_samples: ArrayLike,
) -> tuple[_Floats, _Floats]:
    """Milliseconds of the training iterations, and the column of each coefficient."""
    time_ms, validation = (
        np.asarray(iteration_time_ms, dtype=float),
        np.asarray(validation_samples, dtype=float),
    )
    training = iterations_per_epoch(samples, batch_size)
    iterations = training + iterations_per_epoch(validation, batch_size)
    image_mb = np.asarray(image_size, dtype=float) ** 2 * _BYTES_PER_PIXEL / _BYTES_PER_MB
    validated_ms = validation / np.asarray(batch_size, dtype=float) * time_ms
    fed_mb = (np.asarray(samples, dtype=float) + validation) * image_mb
    spent, *beyond = np.broadcast_arrays(training * time_ms, validated_ms, iterations, fed_mb)
    return spent, np.stack(beyond, axis=-1)
