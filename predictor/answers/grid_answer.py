"""The answers of `predict` for many GPUs and batch sizes at once, as columns: what a service gives.

There is no object per row on this path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.answers.forecast_memo import TIMES, Grid
from predictor.answers.predict import NEAR_BEST, epoch_times_s
from predictor.catalogue.devices import Gpu, is_cpu
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import Offer, cheapest_offer
from predictor.cnns.layer_table import LayerTable
from predictor.operators.memory import memory_estimate_validated

if TYPE_CHECKING:
    from predictor.models.served import Model

__all__ = ["EPOCH_FIELDS", "GridAnswer", "OfferFinder", "grid_answer"]

EPOCH_FIELDS = (
    "iterations_per_epoch",
    "epoch_time_s",
    "epoch_low_s",
    "epoch_high_s",
    "cost_usd",
    "best_batch",
)
"""Fields of a row that depend on the samples of an epoch."""

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

    What does not depend on the samples of an epoch: `shared` holds the fields of `PredictionRow` that all rows have
    alike, `by_gpu` those of each GPU, `by_size` those of each batch size, `by_cell` those of each row as flat lists.
    `why[i]` is the place in `reasons` of row i's `extrapolates`. `epochs` gives the rest.
    """

    model: Model
    mode: Mode
    times: Array
    sizes: NDArray[np.int64]
    fits: NDArray[np.bool_]
    usd_per_hour: Array
    shared: dict[str, Any]
    by_gpu: dict[str, list[Any]]
    by_size: dict[str, list[Any]]
    by_cell: dict[str, list[Any]]
    why: list[int]
    reasons: Sequence[tuple[str, ...]]

    def epochs(self, samples: int | None = None, validation_samples: int = 0) -> dict[str, list[Any]]:
        """Fields that depend on an epoch's samples, `EPOCH_FIELDS`, of each row; None where nobody gave samples."""
        if samples is None:
            nothing = [None] * self.fits.size
            best = _best(1.0 / (1000.0 * self.sizes / self.times[0]), self.fits)
            return {**dict.fromkeys(EPOCH_FIELDS, nothing), "best_batch": best.ravel().tolist()}
        seconds = epoch_times_s(
            self.times[:3], self.sizes, samples, validation_samples, self.model, self.mode
        )
        middle, low, high = seconds.reshape(3, -1).tolist()
        cost = (seconds[0] * self.usd_per_hour / 3600.0).ravel().tolist()
        return {
            "iterations_per_epoch": (-(-samples // self.sizes)).tolist() * len(self.fits),
            "epoch_time_s": middle,
            "epoch_low_s": low,
            "epoch_high_s": high,
            "cost_usd": [None if usd != usd else usd for usd in cost],
            "best_batch": _best(seconds[0], self.fits).ravel().tolist(),
        }


def grid_answer(
    grid: Grid,
    table: LayerTable,
    gpus: Sequence[Gpu],
    sizes: Sequence[int],
    mode: Mode,
    model: Model,
    offers: OfferFinder,
    spot: bool = False,
) -> GridAnswer:
    """Turn forecasts into answers.

    Parameters
    ----------
    grid : Grid
        Of this table, these GPUs and ascending batch sizes in this mode, by this model.
    offers : OfferFinder
    spot : bool
        Use spot prices.
    """
    rented = [offers.find(gpu, spot) for gpu in gpus]
    batches = np.asarray(sizes)
    memory = np.array([-np.inf if gpu.memory_gib is None else gpu.memory_gib for gpu in gpus])
    fits = grid.memory_gib <= memory[:, None]
    told_host, method, trained_on = (list(each) for each in zip(*grid.told, strict=True))
    return GridAnswer(
        model=model,
        mode=mode,
        times=grid.times,
        sizes=batches,
        fits=fits,
        usd_per_hour=np.array([[_usd_per_hour(each, spot)] for each in rented]),
        shared={
            "cnn": table.cnn,
            "image_size": table.image_size,
            "precision": mode.precision,
            "memory_format": mode.memory_format,
            "framework": mode.framework,
            "gpus_used": 1,
            "memory_estimate_validated": memory_estimate_validated(mode.framework),
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
        by_size={"batch_size": list(sizes), "peak_memory_gib": grid.memory_gib.tolist()},
        by_cell={
            **{name: times.ravel().tolist() for name, times in zip(TIMES, grid.times, strict=True)},
            "throughput_samples_per_s": (1000.0 * batches / grid.times[0]).ravel().tolist(),
            "fits_in_memory": fits.ravel().tolist(),
        },
        why=grid.why.ravel().tolist(),
        reasons=grid.reasons,
    )


def _usd_per_hour(offer: Offer | None, spot: bool) -> float:
    """The price, NaN where there is none."""
    price = None if offer is None else offer.spot_usd_per_hour if spot else offer.usd_per_hour
    return np.nan if price is None else price


def _best(per_sample: Array, fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The smallest batch size of each GPU that fits and lies within 5 % of the best that fits."""
    seconds = np.where(fits, per_sample, np.inf)
    near: NDArray[np.bool_] = fits & (seconds <= NEAR_BEST * seconds.min(axis=1, keepdims=True))
    first: NDArray[np.bool_] = np.arange(near.shape[1]) == near.argmax(axis=1)[:, None]
    return near & first
