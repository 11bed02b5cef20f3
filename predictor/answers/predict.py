"""How long an epoch of a CNN takes on a GPU, what it costs, and whether it fits in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.answers.question import anchors_of, data_image_size, gpus_of, load_model, samples_of
from predictor.catalogue.devices import Gpu, is_cpu
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import Offer, cheapest_offer, load_offers
from predictor.checks import MAX_IMAGE_SIZE, batch_sizes_of, texts_of, whole_number
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.errors import OutOfRangeError, SchemaError
from predictor.operators.memory import memory_estimate_validated, peak_memories_gib

if TYPE_CHECKING:
    import pandas as pd

    from predictor.answers.question import OwnMeasurements
    from predictor.models.served import Anchor, IterationForecast, Model

__all__ = [
    "FORWARD_SHARE",
    "NEAR_BEST",
    "PredictionRow",
    "epoch_times_s",
    "fitted_measurements",
    "layer_table_of",
    "mark_best",
    "offers_of",
    "predict",
    "validation_of",
]

NEAR_BEST = 1.05
"""Batch sizes within this factor of the best epoch time are equally good; the smallest is recommended."""


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """The answer for one CNN, GPU and batch size. None where nothing was asked or is known.

    Intervals (`low`, `high`) are meant to hold the truth nine times out of ten. `cost_usd` is one epoch on
    the whole instance of `offer`, at its price of `priced_on`; `gpus_used` of its `offer_gpu_count` GPUs
    work.
    """

    cnn: str
    image_size: int
    gpu: str
    batch_size: int
    precision: str
    memory_format: str
    framework: str
    iterations_per_epoch: int | None
    iteration_time_ms: float
    low_ms: float
    high_ms: float
    gpu_time_ms: float
    host_time_ms: float
    epoch_time_s: float | None
    epoch_low_s: float | None
    epoch_high_s: float | None
    throughput_samples_per_s: float
    cost_usd: float | None
    offer: str
    offer_gpu_count: float | None
    gpus_used: int
    priced_on: str | None
    peak_memory_gib: float
    fits_in_memory: bool
    memory_estimate_validated: bool
    best_batch: bool
    host: str
    method: str
    trained_on: str
    extrapolates: tuple[str, ...]


def mark_best(rows: list[PredictionRow]) -> list[PredictionRow]:
    """Mark the smallest batch size that fits and lies within 5 % of the best epoch time of those that fit."""

    def seconds_per_sample(row: PredictionRow) -> float:
        return row.epoch_time_s or 1.0 / row.throughput_samples_per_s

    fitting = [row for row in rows if row.fits_in_memory]
    best = min((seconds_per_sample(row) for row in fitting), default=math.inf)
    for i, row in enumerate(rows):
        if row.fits_in_memory and seconds_per_sample(row) <= NEAR_BEST * best:
            return [*rows[:i], replace(row, best_batch=True), *rows[i + 1 :]]
    return rows


FORWARD_SHARE = 1.0 / 3.0
"""Share of a training iteration that a validation pass takes: a forward pass does a third of the FLOPs."""

_Floats = NDArray[np.float64]


def predict(
    cnn: object,
    gpus: object,
    batch_sizes: int | str | Iterable[object],
    *,
    image_size: int | None = None,
    samples: int | None = None,
    data_set: str | None = None,
    validation_samples: int = 0,
    precision: str = "fp32",
    memory_format: str = "nchw",
    framework: str = "pytorch",
    autotune: bool = False,
    capture: str = "eager",
    optimizer: str = "momentum",
    anchors: Iterable[Anchor | Mapping[str, Any]] = (),
    measurements: pd.DataFrame | OwnMeasurements | str | PathLike[str] | None = None,
    method: str = "auto",
    host: str | None = None,
    offers: str | PathLike[str] | Sequence[Offer] | None = None,
    spot: bool = False,
    model: Model | str | PathLike[str] | None = None,
) -> list[PredictionRow]:
    """Time of an iteration and an epoch, with cost and memory, for every CNN, GPU and batch size.

    Parameters
    ----------
    cnn : str, path, LayerTable, PyTorch module, Chainer chain, or a list of them
        What is trained: a zoo name, a layer-table CSV, an ONNX file, or the object itself.
    gpus : str, Gpu, or a list of them
        Names as drivers and people write them; ``"all"`` for the whole catalogue.
    batch_sizes : int, str, or a list of them
    image_size : int, optional
        Side of the square images in pixels; the data set's, else the CNN's usual one.
    samples, data_set : int, str, optional
        Training samples per epoch, or a known data set. Without either there are no epoch times.
    validation_samples : int
        Samples of a forward-only pass after each epoch, counted at `FORWARD_SHARE` of a training iteration.
    precision, memory_format, framework, autotune, capture, optimizer
        How it is trained; see `predictor.catalogue.modes.Mode`.
    anchors : list of Anchor or dict
        Measurements of this CNN in this mode; see `predictor.answers.question.anchors_of`.
    measurements : path, DataFrame or OwnMeasurements, optional
        A measurement table of one's own: its operators are a library to answer from, its CNNs anchors. What was
        fitted on one already (`OwnMeasurements.of`) brings the model that it was fitted on.
    method : str
        ``"auto"``, or the name of a predictor.
    host : str, optional
        The machine around the GPU; a reference host by default.
    offers : path or list of Offer, optional
        Prices; the shipped ones by default.
    spot : bool
        Use spot prices.
    model : Model or path, optional

    Returns
    -------
    list of PredictionRow
        In the order of `cnn`, then `gpus`, then ascending batch sizes.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense; nothing is answered then.
    """
    mode = Mode(framework, precision, memory_format, autotune, capture, optimizer)
    sizes, chosen = batch_sizes_of(batch_sizes), gpus_of(gpus, precision)
    n_samples = samples_of(samples, data_set)
    n_validation = validation_of(validation_samples, n_samples)
    served, prices = load_model(model), offers_of(offers)
    known = anchors_of(anchors, served, mode)
    own = fitted_measurements(measurements, served)
    served = own.model if own else served
    rows: list[PredictionRow] = []
    for each in texts_of(cnn):
        table = layer_table_of(each, image_size, data_set)
        also = own.anchors(table, mode) if own else ()
        memory = peak_memories_gib(table, sizes, mode)
        for gpu in chosen:
            forecast = served.forecast(table, gpu, mode, sizes, (*known, *also), method, host)
            epochs = _epochs(forecast, n_samples, n_validation, sizes, served, mode)
            offer = None if is_cpu(gpu.name) else cheapest_offer(prices, gpu.name, 1, spot)
            rows += mark_best(_rows(table, gpu, mode, sizes, forecast, epochs, memory, offer, spot))
    return rows


def offers_of(offers: str | PathLike[str] | Sequence[Offer] | None) -> tuple[Offer, ...]:
    """Return the offers themselves, those of a price file, or the shipped ones."""
    if offers is None or isinstance(offers, str | PathLike):
        return load_offers(offers)
    return tuple(offers)


def epoch_times_s(
    iteration_time_ms: _Floats,
    batch_sizes: Sequence[int] | NDArray[np.int64],
    samples: int | NDArray[np.int64],
    validation_samples: int,
    model: Model,
    mode: Mode,
) -> _Floats:
    """Seconds per epoch: training iterations, the model's overhead per epoch, and a validation pass if asked.

    Notes
    -----
    model.epoch_time_s(ceil(samples / batch), t) + ceil(validation_samples / batch) t / 3; the last term is an
    approximation, see `FORWARD_SHARE`.
    """
    sizes = np.asarray(batch_sizes)
    iterations = -(-samples // sizes)
    training = model.epoch_time_s(iterations, iteration_time_ms, mode)
    if not validation_samples:
        return training
    validation = -(-validation_samples // sizes) * iteration_time_ms * (FORWARD_SHARE / 1000.0)
    return np.asarray(training + validation, dtype=np.float64)


def fitted_measurements(
    measurements: pd.DataFrame | OwnMeasurements | str | PathLike[str] | None, model: Model
) -> OwnMeasurements | None:
    """Return someone's measurements as fitted already, or fit a table of them on top of `model`."""
    if measurements is None:
        return None
    from predictor.answers.question import OwnMeasurements

    return (
        measurements if isinstance(measurements, OwnMeasurements) else OwnMeasurements.of(measurements, model)
    )


def layer_table_of(cnn: object, image_size: int | None, data_set: str | None) -> LayerTable:
    """Layer table of a CNN at the image size asked for, else the data set's, else its own."""
    if image_size is not None:
        return resolve_cnn(cnn, whole_number("image_size", image_size, high=MAX_IMAGE_SIZE))
    return resolve_cnn(cnn, data_image_size(data_set, cnn))


def validation_of(validation_samples: object, samples: int | None) -> int:
    """Samples of the validation pass; SchemaError where there is no epoch that it could follow."""
    count = whole_number("validation_samples", validation_samples, low=0)
    if count and samples is None:
        raise SchemaError(
            f"validation_samples {count} needs an epoch to follow. Pass samples or a data set, too."
        )
    return count


@dataclass(frozen=True, slots=True)
class _Epochs:
    """Per batch size: iterations per epoch, and seconds per epoch with their interval."""

    iterations: list[int]
    times_s: list[float]
    low_s: list[float]
    high_s: list[float]


def _epochs(
    forecast: IterationForecast,
    samples: int | None,
    validation_samples: int,
    sizes: list[int],
    model: Model,
    mode: Mode,
) -> _Epochs | None:
    if samples is None:
        return None

    def seconds(time_ms: _Floats) -> list[float]:
        epochs = epoch_times_s(time_ms, sizes, samples, validation_samples, model, mode)
        return [float(epoch) for epoch in epochs]

    iterations = [math.ceil(samples / size) for size in sizes]
    times, low, high = forecast.iteration_time_ms, forecast.low_ms, forecast.high_ms
    return _Epochs(iterations, seconds(times), seconds(low), seconds(high))


def _rows(
    table: LayerTable,
    gpu: Gpu,
    mode: Mode,
    sizes: list[int],
    forecast: IterationForecast,
    epochs: _Epochs | None,
    memory: list[float],
    offer: Offer | None,
    spot: bool,
) -> list[PredictionRow]:
    per_hour = _usd_per_hour(offer, spot)
    return [
        PredictionRow(
            cnn=table.cnn,
            image_size=table.image_size,
            gpu=gpu.name,
            batch_size=size,
            precision=mode.precision,
            memory_format=mode.memory_format,
            framework=mode.framework,
            iterations_per_epoch=epochs.iterations[i] if epochs else None,
            iteration_time_ms=_checked_time(forecast.iteration_time_ms[i], table, gpu, size),
            low_ms=float(forecast.low_ms[i]),
            high_ms=float(forecast.high_ms[i]),
            gpu_time_ms=float(forecast.gpu_time_ms[i]),
            host_time_ms=float(forecast.host_time_ms[i]),
            epoch_time_s=epochs.times_s[i] if epochs else None,
            epoch_low_s=epochs.low_s[i] if epochs else None,
            epoch_high_s=epochs.high_s[i] if epochs else None,
            throughput_samples_per_s=1000.0 * size / float(forecast.iteration_time_ms[i]),
            cost_usd=epochs.times_s[i] * per_hour / 3600.0 if epochs and per_hour is not None else None,
            offer=f"{offer.provider} {offer.instance}" if offer else "no offer",
            offer_gpu_count=offer.gpu_count if offer else None,
            gpus_used=1,
            priced_on=str(offer.retrieved_on) if offer and offer.retrieved_on else None,
            peak_memory_gib=memory[i],
            fits_in_memory=gpu.memory_gib is not None and memory[i] <= gpu.memory_gib,
            memory_estimate_validated=memory_estimate_validated(mode.framework),
            best_batch=False,
            host=forecast.host,
            method=forecast.method,
            trained_on=forecast.trained_on,
            extrapolates=tuple(forecast.extrapolates[i]),
        )
        for i, size in enumerate(sizes)
    ]


def _usd_per_hour(offer: Offer | None, spot: bool) -> float | None:
    if offer is None:
        return None
    return offer.spot_usd_per_hour if spot else offer.usd_per_hour


def _checked_time(time_ms: float, table: LayerTable, gpu: Gpu, batch_size: int) -> float:
    """Rule one: a model that answers nonsense is an error, not an answer."""
    if not (math.isfinite(time_ms) and time_ms > 0):
        raise OutOfRangeError(
            f"the model gives {time_ms} ms for {table.cnn} on {gpu.name} at batch_size {batch_size}, "
            "which is no time. Try a batch size nearer to 64, or another method."
        )
    return float(time_ms)
