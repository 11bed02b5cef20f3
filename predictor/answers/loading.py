"""What feeds the GPUs of a question: rates as asked, as measured, or of the tables; the vCPUs of an offer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.answers.question import named
from predictor.catalogue.data_sets import TrainingSet
from predictor.catalogue.loading_rates import USUAL_LOADER, find_loader, find_source
from predictor.errors import SchemaError
from predictor.models.epoch_start import first_calls_s, first_image_s, has_known_start, start_factor
from predictor.models.input_pipeline import Feed, beside_workers, host_beside_workers
from predictor.models.ratios import ratios_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from predictor.answers.question import Question
    from predictor.catalogue.devices import Gpu
    from predictor.catalogue.modes import Mode
    from predictor.catalogue.offers import Offer
    from predictor.cnns.layer_table import LayerTable
    from predictor.measurements.inputs import InputMeasurement

    Array = NDArray[np.float64]

LOADING_OPTIONS = (
    "workers",
    "machine_workers",
    "loader",
    "samples_per_worker_second",
    "images_per_second",
    "data_source",
    "input",
)
"""Options of a question, any of which has its answer count loading; ``loader="none"`` leaves it out."""

ENDS = ("iteration_time_ms", "low_ms", "high_ms")
"""Time of an iteration and the ends of its interval, and below those of loading."""

LOADING_TIMES = ("loading_time_ms", "loading_low_ms", "loading_high_ms")

WAITS = ("first_wait_s", "first_wait_low_s", "first_wait_high_s")
"""What a pass over a data set waits for its workers and their first mini-batch, and the ends of its interval."""

STARTS = ("start_s", "start_low_s", "start_high_s")
"""What the first epoch takes longer than later ones, and the ends of its interval."""

_OF_RATES = ("loader", "samples_per_worker_second", "input", "images_per_second")
_OF_NUMBERS = ("workers", "machine_workers", "images_per_second")
_MEASURED_SPREAD = 1.15
"""Factor within which a rate holds that was measured: judged by repeats on a busy machine."""
_GB_PER_GIB = 2**30 / 1e9


@dataclass(frozen=True, slots=True)
class _Rates:
    """Samples per second of a worker, and of each vCPU while all are busy; factor of the error."""

    per_worker: float
    per_vcpu: float
    spread: float


def loading_asked(question: Question) -> bool:
    """Whether an option of the question has loading counted.

    Raises
    ------
    SchemaError
        If loading is both asked for and left out.
    """
    given = [name for name in LOADING_OPTIONS if getattr(question, name) is not None]
    if question.loader == "none" and len(given) > 1:
        other = next(name for name in given if name != "loader")
        raise SchemaError(
            f"loader 'none' leaves loading out, and {other} is given, too. Pass one of them."
        ).about("loader")
    rates = [name for name in _OF_RATES if name in given]
    if len(rates) > 1:
        raise SchemaError(
            f"{' and '.join(rates)} say each how fast images are loaded. Pass one of them."
        ).about(rates[0])
    numbers = [name for name in _OF_NUMBERS if name in given]
    if len(numbers) > 1:
        raise SchemaError(
            f"{' and '.join(numbers)} are given: workers are those of each GPU, machine_workers those of a machine, "
            "images_per_second the rate of all. Pass one of them, or "
            f"{named('samples_per_worker_second')} with either number of workers."
        ).about(numbers[-1])
    return bool(given) and question.loader != "none"


def is_bound_by_default(question: Question) -> bool:
    """Whether a comparison counts loading without being asked: the data set is stored as JPEGs."""
    data_set = question.training_set()
    return question.loader != "none" and data_set is not None and data_set.stored == "jpeg"


def feed_of_rentals(question: Question, image_size: int, offers: Sequence[Offer | None]) -> Feed | None:
    """What feeds the GPUs of a prediction on these offers; None where loading is not asked for.

    The workers asked for are as fast as the same number measured together, else taken to have a vCPU each; without a
    number of them, they are as many as the vCPUs of the offer keep busy.

    Raises
    ------
    SchemaError
        If no rate is known, or neither workers nor the vCPUs of an offer are.
    """
    if not loading_asked(question):
        return None
    if question.images_per_second is not None:
        return _feed(question, image_size, math.inf)
    if question.workers is not None or question.machine_workers is not None:
        return _feed_of_workers(question, image_size)
    vcpus = []
    for offer in offers:
        if offer is None or offer.vcpus is None:
            what = (
                "there is no offer"
                if offer is None
                else f"the vCPUs of {offer.provider} {offer.instance} are not known"
            )
            raise SchemaError(
                f"workers is missing, and {what} to take them from. Pass workers, those of each GPU."
            ).about("workers")
        vcpus.append(offer.vcpus)
    return _feed(question, image_size, np.array(vcpus))


def feed_of_offers(question: Question, image_size: int, offers: Sequence[Offer | None]) -> Feed | None:
    """What feeds the GPUs of offers in a comparison; None where loading is counted on none.

    Loading is counted where it is asked for, and by default where the data set is stored as JPEGs; the offer's vCPUs
    bound it. Without known vCPUs it is counted only for a given number of workers.
    """
    if not (loading_asked(question) or is_bound_by_default(question)):
        return None
    unknown = math.nan if all(getattr(question, name) is None for name in _OF_NUMBERS) else math.inf
    vcpus = np.array([unknown if offer is None or offer.vcpus is None else offer.vcpus for offer in offers])
    return None if np.isnan(vcpus).all() else _feed(question, image_size, vcpus)


def loading_left_out(
    question: Question, image_size: int, offer: Offer | None, local_batch_size: int, training_ms: float
) -> float:
    """How many times as long as training the loading would take that a prediction does not count.

    0 where it counts loading, the data set is not stored as JPEGs, or the vCPUs of the offer are not known.
    """
    if loading_asked(question) or not is_bound_by_default(question):
        return 0.0
    feed = feed_of_offers(question, image_size, [offer])
    if feed is None:
        return 0.0
    loading = feed.loading(np.array([local_batch_size]), question.gpus_per_node)
    return float(loading.time_ms[0]) / training_ms


def loading_in_words(question: Question, image_size: int, by_offer: bool) -> str:
    """Whether an answer counts loading, by which rate, and where the start of a training is."""
    start = (
        "the first epoch takes start_s longer"
        if any(has_known_start(gpu, mode) for gpu, mode in question.devices())
        else "the start of a training is not counted"
    )
    counted = loading_asked(question) or (by_offer and is_bound_by_default(question))
    rate = _rate_in_words(question, image_size, by_offer) if counted else "data loading is excluded"
    return f"{rate}; {start}"


def _rate_in_words(question: Question, image_size: int, by_offer: bool) -> str:
    measured = None if by_offer else _measured_together(question)
    if measured is not None:
        return _measured_in_words(question, image_size, measured)
    if question.images_per_second is not None:
        rate = f"{question.images_per_second:,.0f} images/s on each machine as given"
        return f"data loading is included ({rate}, within a factor of {_MEASURED_SPREAD:g})"
    feed = _feed(question, image_size, 1.0)
    workers = _workers_in_words(question)
    bound = " where the vCPUs of the offer are known, which bound it" if by_offer else ""
    return (
        f"data loading is included{bound} ({workers}, {feed.per_worker:,.0f} images/s each, {feed.per_vcpu:,.0f} on a "
        f"vCPU of a busy machine, within a factor of {feed.spread:g})"
    )


def data_exceeded(data_set: TrainingSet | None, offer: Offer | None) -> tuple[str, ...]:
    """Which of an offer's memory and local disk the stored training set exceeds, as far as both are known."""
    if data_set is None or offer is None:
        return ()
    memory_gb = math.inf if offer.memory_gib is None else offer.memory_gib * _GB_PER_GIB
    disk_gb = math.inf if offer.disk_gb is None else offer.disk_gb
    sizes = {"memory": memory_gb, "disk": disk_gb}
    return tuple(name for name, size_gb in sizes.items() if data_set.disk_gb > size_gb)


def with_loading(
    feed: Feed | None,
    local_batch_sizes: NDArray[np.int64],
    n_gpus: NDArray[np.int64],
    times: Mapping[str, Array],
    *,
    measured_so: bool = False,
) -> dict[str, NDArray[Any]]:
    """What loading is and what it makes of iterations, while `n_gpus` of a machine work.

    Parameters
    ----------
    feed : Feed or None
        Of each row's machine, or of all; None where loading is not counted.
    local_batch_sizes, n_gpus : ndarray of int, shape (n_rows,)
    times : mapping of str to ndarray, shape (n_rows,)
        `ENDS`, `gpu_time_ms` and `host_time_ms` of iterations without loading.
    measured_so : bool
        Whether the times follow a training that was measured, whose host worked beside its loader.

    Returns
    -------
    dict of str to ndarray, shape (n_rows,)
        `ENDS` with loading, `LOADING_TIMES`, `WAITS`, `bottleneck`, and `workers_needed`: workers of each GPU that
        would make loading no bottleneck. NaN (waits: 0) where loading is not counted, or no number of workers helps.
    """
    gpu_ms, host_ms, ends = times["gpu_time_ms"], times["host_time_ms"], tuple(times[name] for name in ENDS)
    unknown = np.full(gpu_ms.shape, math.nan)
    loading = None if feed is None else feed.loading(local_batch_sizes, n_gpus)
    if loading is not None and not loading.between and not measured_so:
        counted = ~np.isnan(loading.time_ms)
        slowed = beside_workers(host_ms, *ends)
        ends = tuple(np.where(counted, *both) for both in zip(slowed, ends, strict=True))
        host_ms = np.where(counted, host_beside_workers() * host_ms, host_ms)
    # a method may predict whole iterations alone
    bounds = np.where(np.isnan(gpu_ms), "unknown", np.where(host_ms >= gpu_ms, "host", "gpu"))
    if feed is None or loading is None:
        columns = dict.fromkeys(LOADING_TIMES, unknown) | dict.fromkeys(WAITS, np.zeros(gpu_ms.shape))
        return {
            **dict(zip(ENDS, ends, strict=True)),
            **columns,
            "bottleneck": bounds,
            "workers_needed": unknown,
        }
    waits = loading.time_ms > ends[0]
    helps = (waits | loading.between) & ~loading.is_reading
    needed = feed.workers_needed(local_batch_sizes, ends[0]) if helps.any() else unknown
    wait_s = np.nan_to_num(feed.first_mini_batch_s(local_batch_sizes, n_gpus))
    return {
        **dict(zip(ENDS, loading.joined_ms(*ends), strict=True)),
        **dict(zip(WAITS, (wait_s, wait_s / feed.spread, wait_s * feed.spread), strict=True)),
        **dict(zip(LOADING_TIMES, loading.ends_ms, strict=True)),
        "bottleneck": np.where(waits, np.where(loading.is_reading, "reading", "loading"), bounds),
        "workers_needed": np.where(helps, needed, math.nan),
    }


def starts(
    feed: Feed | None,
    table: LayerTable,
    devices: Sequence[tuple[Gpu, Mode]],
    device: NDArray[np.int64],
    local_batch_sizes: NDArray[np.int64],
) -> dict[str, Array]:
    """Columns `STARTS`; NaN where no start was measured.

    Parameters
    ----------
    feed
        As of `with_loading`.
    table : LayerTable
    devices : sequence of (Gpu, Mode)
        Of a question.
    device : ndarray of int, shape (n_rows,)
        The place of each row's GPU in `devices`.
    local_batch_sizes : ndarray of int, shape (n_rows,)

    Notes
    -----
    `first_calls_s` + `first_image_s` x mini-batch of `predictor.models.epoch_start`, and `jpeg_s` where workers decode
    JPEGs on the same vCPUs.
    """
    first_s = [
        first_calls_s(table, mode) if has_known_start(gpu, mode) else math.nan for gpu, mode in devices
    ]
    start_s = np.array(first_s)[device] + first_image_s(table) * local_batch_sizes
    if feed is not None and feed.decodes and not feed.between:
        start_s = start_s + np.where(np.isnan(feed.vcpus), 0.0, ratios_of("start")["jpeg_s"])
    return dict(zip(STARTS, (start_s, start_s / start_factor(), start_s * start_factor()), strict=True))


def _measured_together(question: Question) -> InputMeasurement | None:
    """What several workers were measured to load together, where the question asks for workers."""
    given = question.workers is not None or question.machine_workers is not None
    measured = question.input_measurement() if given else None
    return measured if measured is not None and measured.most_workers > 1 else None


def _measured_in_words(question: Question, image_size: int, measured: InputMeasurement) -> str:
    feed = _feed_of_workers(question, image_size)
    rate = float(feed.decoding_of_one(question.gpus_per_node))
    beyond = f", {feed.headroom:.3g} times more at most where vCPUs were idle" if feed.headroom > 1 else ""
    return (
        f"data loading is included ({_workers_in_words(question)}, {rate:,.0f} images/s for each GPU as "
        f"measured on {measured.host} with up to {measured.most_workers} workers together, within a factor of "
        f"{feed.spread:g}{beyond})"
    )


def _workers_in_words(question: Question) -> str:
    if question.machine_workers is not None:
        return f"{question.machine_workers} workers on each machine"
    return "workers" if question.workers is None else f"{question.workers} workers for each GPU"


def _feed_of_workers(question: Question, image_size: int) -> Feed:
    """Of the workers asked for: where several were measured together, their rates on that machine."""
    feed, measured = _feed(question, image_size, math.inf), _measured_together(question)
    if measured is None:
        return feed
    n_gpus = question.gpus_per_node
    busy = min(question.machine_workers or max(1, question.workers or 0) * n_gpus, measured.vcpus)
    headroom = max(1.0, busy / measured.most_workers)
    return replace(feed, measured=measured.rates_of_each(n_gpus), headroom=headroom)


def _feed(question: Question, image_size: int, vcpus: float | Array) -> Feed:
    measured, data_set = question.input_measurement(), question.training_set()
    rates, reading = _rates(question, image_size, measured), _reading(question, measured)
    return Feed(
        rates.per_worker,
        rates.per_vcpu,
        question.workers,
        vcpus,
        reading,
        rates.spread,
        decodes=data_set is None or data_set.stored == "jpeg",
        in_all=question.images_per_second or math.inf,
        machine_workers=question.machine_workers,
    )


def _rates(question: Question, image_size: int, measured: InputMeasurement | None) -> _Rates:
    """Rates as given, else as measured, else those of the tables; infinite where that of all workers is given."""
    if question.images_per_second is not None:
        return _Rates(math.inf, math.inf, _MEASURED_SPREAD)
    data_set = question.training_set()
    name = question.loader or USUAL_LOADER
    share = find_loader(name, "jpeg" if data_set is None else data_set.stored).vcpu_share
    if question.samples_per_worker_second is not None:
        rate = question.samples_per_worker_second
        return _Rates(rate, share * rate, _MEASURED_SPREAD)
    if measured is not None:
        busy = (
            measured.samples_per_vcpu_second
            if question.workers is None and question.machine_workers is None
            else share * measured.samples_per_worker_second
        )
        return _Rates(measured.samples_per_worker_second, busy, _MEASURED_SPREAD)
    if data_set is None:
        raise SchemaError(
            "how fast a worker loads these images is not known. Pass "
            f"{named('samples_per_worker_second')}, {named('images_per_second')}, {named('input')} (the file of "
            "`epochcast profile input`), or a data set."
        ).about("samples_per_worker_second")
    return _of_tables(question, image_size, data_set, name)


def _of_tables(question: Question, image_size: int, data_set: TrainingSet, name: str) -> _Rates:
    loader = find_loader(name, data_set.stored)
    source = find_source(question.data_source or "memory")
    busy_us = (loader.sample_us(data_set, image_size) + source.cpu_us) / loader.vcpu_share
    return _Rates(1e6 / (busy_us + source.wait_us), 1e6 / busy_us, loader.spread)


def _reading(question: Question, measured: InputMeasurement | None) -> float:
    """Samples per second that the source gives a machine; infinite where none is named."""
    if question.data_source is None:
        return math.inf
    source, data_set = find_source(question.data_source), question.training_set()
    if math.isinf(source.read_mb_per_s):
        return math.inf
    if data_set is not None:
        return source.read_mb_per_s / data_set.sample_mb
    if measured is not None:
        return source.read_mb_per_s / measured.mean_mb
    raise SchemaError(
        f"{named('data_source')} {question.data_source!r}: how large an image is stored is not known. Pass a data set, "
        f"or {named('input')} (the file of `epochcast profile input`)."
    ).about("data_source")
