"""Epoch time from iteration time, with the overhead that an epoch has beyond its training iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array
from predictor.catalogue.modes import DROPPING, FIXED_EPOCHS, Mode
from predictor.errors import DataError, SchemaError

_FILLING = ("transformers", "accelerate")

FORWARD_SHARE = 1.0 / 3.0
"""Share of a training iteration that a validation pass takes: a forward pass does a third of the FLOPs."""

_BYTES_PER_PIXEL = 12.0  # three channels in fp32
_MS_PER_S = 1000.0
_BYTES_PER_MB = 1e6


def iterations_per_epoch(samples: ArrayLike, batch_size: ArrayLike) -> Array:
    """Iterations of one pass over `samples` images: ceil(samples / batch_size)."""
    iterations: Array = np.ceil(np.asarray(samples, dtype=float) / np.asarray(batch_size, dtype=float))
    return iterations


def run_samples(
    samples: ArrayLike,
    validation_samples: ArrayLike,
    batch_size: NDArray[np.int64],
    n_gpus: ArrayLike = 1,
    loop: str | None = None,
    drop_last: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Samples of an epoch's training and validation pass that its loop runs, of the shape of `batch_size`.

    `loop` is one of `predictor.catalogue.modes.LOOPS`. timm's and fastai's drop the rest of the training pass, as
    `drop_last` does; processes of accelerate, which Hugging Face's Trainer runs on, fill their last mini-batch;
    nnU-Net's epochs have 250 iterations and 50 of validation, whatever the data. The others run the rest, as PyTorch's
    loaders do. SchemaError where all samples are dropped.

    >>> run_samples(50_001, 0, np.array([128]), loop="timm")[0] // 128
    array([390])
    """
    zeros: NDArray[np.int64] = 0 * (np.asarray(samples, dtype=np.int64) + batch_size)
    training, validation = (zeros + np.asarray(n, dtype=np.int64) for n in (samples, validation_samples))
    if loop in FIXED_EPOCHS:
        return tuple(zeros + n * batch_size for n in FIXED_EPOCHS[loop])  # type: ignore[return-value]
    if loop in _FILLING and not drop_last:
        is_filled = np.asarray(n_gpus) > 1
        training, validation = (
            np.where(is_filled, -(-n // batch_size) * batch_size, n) for n in (training, validation)
        )
    if drop_last or loop in DROPPING:
        training -= training % batch_size
        if (dropped := (training == 0) & (np.asarray(samples) > 0)).any():
            n, size = (
                int((zeros + np.asarray(numbers, dtype=np.int64))[dropped].flat[0])
                for numbers in (samples, batch_size)
            )
            raise SchemaError(
                f"{n:,} samples are no mini-batch of {size:,}, and the loop drops what is less. Pass a batch size up "
                f"to {n:,}, or another loop."
            )
    return training, validation


def last_mini_batch(
    samples: ArrayLike, local_batch_size: NDArray[np.int64], n_gpus: ArrayLike = 1, parts: int = 1
) -> NDArray[np.int64]:
    """Images of one GPU in the last mini-batch of a pass: what is left, or all where nothing is.

    GPUs share the samples evenly, the last of them repeated, as PyTorch's DistributedSampler does; a mini-batch that
    runs in parts is rounded up to a multiple of them.

    >>> last_mini_batch([257, 256, 2570], np.array([256, 256, 64]), [1, 1, 4]).tolist()
    [1, 256, 3]
    """
    left = -(-np.asarray(samples, dtype=np.int64) // np.asarray(n_gpus)) % local_batch_size
    return np.where(left == 0, local_batch_size, -(-left // parts) * parts)


@dataclass(eq=False)
class Epochs:
    """Epoch times from iteration times; `epoch_ms_per_iteration`: ms between two iterations, by framework."""

    epoch_ms_per_iteration: dict[str, float]

    def epoch_time_s(self, iterations: ArrayLike, iteration_time_ms: ArrayLike, mode: Mode) -> Array:
        """Seconds of one epoch: iterations x (iteration time + overhead between iterations, where measured)."""
        between = self.epoch_ms_per_iteration.get(mode.framework, 0.0)
        each_ms = np.asarray(iteration_time_ms, dtype=float) + between
        return np.asarray(iterations, dtype=float) * each_ms / _MS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class Iteration:
    """Time of an iteration, loading included where `loading_ms` is not NaN; arrays of shape (..., n_rows)."""

    time_ms: Array
    loading_ms: Array | float = np.nan

    def forward_ms(self, between: bool) -> Array:
        """The same mini-batch in a validation pass, where an image takes as long to load as in training."""
        loaded = np.where(np.isnan(self.loading_ms), 0.0, self.loading_ms)
        forward: Array = FORWARD_SHARE * (self.time_ms - between * loaded)
        return forward + loaded if between else np.maximum(forward, loaded)


def epoch_times_s(
    iterations: Sequence[Iteration],
    batch_sizes: NDArray[np.int64],
    samples: int | NDArray[np.int64],
    validation_samples: int | NDArray[np.int64],
    model: Epochs,
    mode: Mode,
    between: bool = False,
    first_wait_s: Array | float = 0.0,
) -> Array:
    """Seconds per epoch, (..., n_rows): training iterations, the model's overhead per epoch, and a validation pass.

    `iterations`: a full one, the last one of the training pass and the last one of the validation pass, whose
    mini-batches have the size of `last_mini_batch`; that of a pass without samples is a full one. `between` says that
    loading adds to the rest of an iteration. Training and validation begin with `first_wait_s`: workers start again,
    and the first mini-batch is waited for.

    model.epoch_time_s(n, t + (t_last - t) / n) + ((n_v - 1) t + t_v,last) / 3 + w per pass, with n = ceil(samples /
    batch) and n_v = ceil(validation_samples / batch); the second term is an approximation, see `FORWARD_SHARE`.
    """
    full, last, last_validated = iterations
    n = iterations_per_epoch(samples, batch_sizes)
    mean_ms = full.time_ms + (last.time_ms - full.time_ms) / np.maximum(1, n)
    training = model.epoch_time_s(n, mean_ms, mode)
    if not np.any(validation_samples):
        return np.asarray(training + first_wait_s, dtype=np.float64)
    forward_ms = (iterations_per_epoch(validation_samples, batch_sizes) - 1) * full.forward_ms(between)
    validation = (forward_ms + last_validated.forward_ms(between)) / _MS_PER_S
    passes = 1 + (np.asarray(validation_samples) > 0)
    return np.asarray(training + validation + passes * first_wait_s, dtype=np.float64)


def fit_epoch_overhead(
    epoch_time_s: ArrayLike,
    iteration_time_ms: ArrayLike,
    samples: ArrayLike,
    batch_size: ArrayLike,
    image_size: ArrayLike,
    validation_samples: ArrayLike = 0,
) -> tuple[float, float, float]:
    """Overhead of measured epochs beyond iterations x iteration time, by least squares on prediction / measured = 1.

    A validation image's time over that of a training image (only its forward pass), ms between two iterations, and ms
    on feeding each MB (10^6 bytes) of fp32 RGB images, training and validation alike; none is below 0. `Epochs` carries
    over only the second.

    All arguments have shape (n_epochs,) or broadcast to it; `image_size` is the side of the square images in pixels,
    `validation_samples` the images of the validation pass that it ends with; the rest of either pass takes its share of
    a mini-batch's time. Without any validation pass in the data `validation_share` is 0. DataError if fewer than three
    epochs were measured.
    """
    from scipy.optimize import nnls

    epoch_ms = np.asarray(epoch_time_s, dtype=float) * _MS_PER_S
    time_ms, validation = (
        np.asarray(values, dtype=float) for values in (iteration_time_ms, validation_samples)
    )
    iterations = iterations_per_epoch(samples, batch_size) + iterations_per_epoch(validation, batch_size)
    image_mb = np.asarray(image_size, dtype=float) ** 2 * _BYTES_PER_PIXEL / _BYTES_PER_MB
    image_ms = time_ms / np.asarray(batch_size, dtype=float)
    fed_mb = (np.asarray(samples, dtype=float) + validation) * image_mb
    # Milliseconds of the training iterations, and the column of each coefficient.
    spent, *columns = np.broadcast_arrays(samples * image_ms, validation * image_ms, iterations, fed_mb)
    beyond = np.stack(columns, axis=-1)
    usable = np.isfinite(beyond).all(axis=1) & np.isfinite(spent) & (epoch_ms > 0)
    if usable.sum() < beyond.shape[1]:
        raise DataError(
            f"{usable.sum()} measured epochs are too few to fit the overhead of an epoch: "
            f"it needs {beyond.shape[1]} with epoch_time_s, iteration_time_ms and samples_per_epoch."
        )
    left = 1.0 - spent[usable] / epoch_ms[usable]
    weights, _ = nnls(beyond[usable] / epoch_ms[usable, None], left)
    validation_share, ms_per_iteration, ms_per_mb = map(float, weights)
    return validation_share, ms_per_iteration, ms_per_mb
