"""The answers of `predict` for many GPUs and batch sizes at once, as columns: what a service gives.

Called by the service; calls forecast_memo and the same epoch times, offers and memory as `predictor.predict`, whose
answers these are, number by number (a test compares them). There is no object per row on this path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.cpus import is_cpu
from predictor.forecast_memo import Grid
from predictor.gpus import Gpu
from predictor.layers import LayerTable
from predictor.memory import MEMORY_ESTIMATE_VALIDATED
from predictor.modes import Mode
from predictor.offers import Offer, cheapest_offer
from predictor.predict import epoch_times_s
from predictor.prediction_rows import NEAR_BEST

if TYPE_CHECKING:
    from predictor.model import Model

__all__ = ["GridAnswer", "OfferFinder", "grid_answer"]

Array = NDArray[np.float64]


class OfferFinder:
    """The cheapest offer of each GPU, looked up once."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._offers = offers
        self._found: dict[tuple[str, bool], Offer | None] = {}

    def find(self, gpu: Gpu, spot: bool) -> Offer | None:
        """As `cheapest_offer`; nobody rents out a CPU by its model."""
        if is_cpu(gpu.name):
            return None
        key = (gpu.name, spot)
        if key not in self._found:
            self._found[key] = cheapest_offer(self._offers, gpu.name, 1, spot)
        return self._found[key]


@dataclass(frozen=True, slots=True, eq=False)
class GridAnswer:
    """Answers for one CNN in one mode; cells run over GPUs and, within each, ascending batch sizes.

    `shared` holds the fields of `PredictionRow` that all rows have alike, `by_gpu` those of each GPU, `by_size` those
    of each batch size, `by_cell` those of each row as flat lists. `why[i]` is the place in `reasons` of row i's
    `extrapolates`.
    """

    n_gpus: int
    n_sizes: int
    shared: dict[str, Any]
    by_gpu: dict[str, list[Any]]
    by_size: dict[str, list[Any]]
    by_cell: dict[str, list[Any]]
    why: list[int]
    reasons: Sequence[tuple[str, ...]]


def grid_answer(
    grid: Grid,
    table: LayerTable,
    gpus: Sequence[Gpu],
    sizes: Sequence[int],
    mode: Mode,
    model: Model,
    offers: OfferFinder,
    samples: int | None = None,
    validation_samples: int = 0,
    spot: bool = False,
) -> GridAnswer:
    """Turn forecasts into answers.

    Parameters
    ----------
    grid : Grid
        Of this table, these GPUs and ascending batch sizes in this mode, by this model.
    offers : OfferFinder
    samples, validation_samples, spot
        As for `predictor.predict.predict`, already checked.
    """
    rented = [offers.find(gpu, spot) for gpu in gpus]
    time, low, high, busy, host = grid.times
    batches = np.asarray(sizes)
    epochs = _epochs(grid, batches, mode, model, samples, validation_samples)
    throughput = 1000.0 * batches / time
    memory = np.array([-np.inf if gpu.memory_gib is None else gpu.memory_gib for gpu in gpus])
    fits = grid.memory_gib <= memory[:, None]
    per_sample = epochs[0] if samples is not None else 1.0 / throughput
    iterations = (-(-samples // batches)).tolist() if samples is not None else [None] * len(sizes)
    told_host, method, trained_on = (list(each) for each in zip(*grid.told, strict=True))
    return GridAnswer(
        n_gpus=len(gpus),
        n_sizes=len(sizes),
        shared={
            "cnn": table.cnn,
            "image_size": table.image_size,
            "precision": mode.precision,
            "memory_format": mode.memory_format,
            "framework": mode.framework,
            "gpus_used": 1,
            "memory_estimate_validated": MEMORY_ESTIMATE_VALIDATED,
        },
        by_gpu={
            "gpu": [gpu.name for gpu in gpus],
            "offer": [f"{each.provider} {each.instance}" if each else "no offer" for each in rented],
            "offer_gpu_count": [each.gpu_count if each else None for each in rented],
            "priced_on": [str(each.retrieved_on) if each and each.retrieved_on else None for each in rented],
            "host": told_host,
            "method": method,
            "trained_on": trained_on,
        },
        by_size={
            "batch_size": list(sizes),
            "iterations_per_epoch": iterations,
            "peak_memory_gib": grid.memory_gib.tolist(),
        },
        by_cell={
            "iteration_time_ms": time.ravel().tolist(),
            "low_ms": low.ravel().tolist(),
            "high_ms": high.ravel().tolist(),
            "gpu_time_ms": busy.ravel().tolist(),
            "host_time_ms": host.ravel().tolist(),
            "epoch_time_s": _flat(epochs[0], samples is not None),
            "epoch_low_s": _flat(epochs[1], samples is not None),
            "epoch_high_s": _flat(epochs[2], samples is not None),
            "throughput_samples_per_s": throughput.ravel().tolist(),
            "cost_usd": _costs(epochs[0], rented, spot, samples is not None),
            "fits_in_memory": fits.ravel().tolist(),
            "best_batch": _best(per_sample, fits).ravel().tolist(),
        },
        why=grid.why.ravel().tolist(),
        reasons=grid.reasons,
    )


def _epochs(
    grid: Grid,
    batches: NDArray[np.int64],
    mode: Mode,
    model: Model,
    samples: int | None,
    validation_samples: int,
) -> Array:
    """Epoch times with the ends of their intervals, shape (3, n_gpus, n_batches)."""
    return epoch_times_s(grid.times[:3], batches, samples or 0, validation_samples, model, mode)


def _flat(values: Array, known: bool) -> list[Any]:
    return values.ravel().tolist() if known else [None] * values.size


def _costs(epoch_s: Array, rented: Sequence[Offer | None], spot: bool, known: bool) -> list[Any]:
    found: list[Any] = []
    for seconds, offer in zip(epoch_s, rented, strict=True):
        per_hour = None if offer is None else offer.spot_usd_per_hour if spot else offer.usd_per_hour
        priced = known and per_hour is not None
        found += (seconds * per_hour / 3600.0).tolist() if priced else [None] * seconds.size
    return found


def _best(per_sample: Array, fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The smallest batch size of each GPU that fits and lies within 5 % of the best that fits."""
    seconds = np.where(fits, per_sample, np.inf)
    near: NDArray[np.bool_] = fits & (seconds <= NEAR_BEST * seconds.min(axis=1, keepdims=True))
    best: NDArray[np.bool_] = np.zeros_like(near)
    best[np.arange(len(near)), near.argmax(axis=1)] = near.any(axis=1)
    return best
