"""What feeds the GPUs of a question: rates as asked, as measured, or of the tables; the vCPUs of an offer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.answers.grid import ENDS
from predictor.answers.question import named
from predictor.catalogue.data_sets import TrainingSet
from predictor.catalogue.hosts import slowness_of_cpu
from predictor.catalogue.loading_rates import USUAL_LOADER, Loader, find_loader, find_source
from predictor.errors import SchemaError
from predictor.models.epoch_start import first_image_s, has_known_start, start_factor
from predictor.models.input_pipeline import Feed, beside_workers, host_beside_workers
from predictor.models.ratios import ratios_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from predictor.answers.grid import Devices
    from predictor.answers.resolved import ResolvedQuestion
    from predictor.catalogue.offers import Offer
    from predictor.measurements.inputs import InputMeasurement

    Array = NDArray[np.float64]

LOADING_TIMES = ("loading_time_ms", "loading_low_ms", "loading_high_ms")

WAITS = ("first_wait_s", "first_wait_low_s", "first_wait_high_s")
"""What a pass over a data set waits for its workers and their first mini-batch, and the ends of its interval."""

STARTS = ("start_s", "start_low_s", "start_high_s")
"""What the first epoch takes longer than later ones, and the ends of its interval."""

_MEASURED_SPREAD = 1.15
"""Factor within which a rate holds that was measured: judged by repeats on a busy machine."""
_GB_PER_GIB = 2**30 / 1e9


@dataclass(frozen=True, slots=True)
class _Rates:
    """Samples per second of a worker, and of each vCPU while all are busy; factors of the error and of `Feed.alone`."""

    per_worker: float
    per_vcpu: float
    spread: float
    alone: float = 1.0


def feed_of_rentals(
    resolved: ResolvedQuestion, image_size: int, offers: Sequence[Offer | None]
) -> Feed | None:
    """What feeds the GPUs of a prediction on these offers; None where loading is not asked for.

    The workers asked for are as fast as the same number measured together, else taken to have a vCPU each; without a
    number of them, they are as many as the vCPUs of the offer keep busy. SchemaError if no rate is known, or neither
    workers nor the vCPUs of an offer are.
    """
    if not resolved.loading.is_asked:
        return None
    if resolved.loading.images_per_second is not None:
        return _feed(resolved, image_size, math.inf)
    if resolved.loading.workers is not None or resolved.loading.machine_workers is not None:
        return _feed_of_workers(resolved, image_size)
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
    return _feed(resolved, image_size, np.array(vcpus))


def feed_of_offers(
    resolved: ResolvedQuestion, image_size: int, offers: Sequence[Offer | None]
) -> Feed | None:
    """What feeds the GPUs of offers in a comparison; None where loading is counted on none.

    Loading is counted where it is asked for, and by default where the data set is stored as JPEGs; the offer's vCPUs
    bound it. Without known vCPUs it is counted only for a given number of workers.
    """
    if not (resolved.loading.is_asked or resolved.is_bound_by_default):
        return None
    unknown = math.inf if resolved.loading.has_number else math.nan
    vcpus = np.array([unknown if offer is None or offer.vcpus is None else offer.vcpus for offer in offers])
    return None if np.isnan(vcpus).all() else _feed(resolved, image_size, vcpus)


def loading_left_out(
    resolved: ResolvedQuestion,
    image_size: int,
    offer: Offer | None,
    local_batch_size: int,
    training_ms: float,
) -> float:
    """How many times as long as training the loading would take that a prediction does not count.

    0 where it counts loading, the data set is not stored as JPEGs, or the vCPUs of the offer are not known.
    """
    if resolved.loading.is_asked or not resolved.is_bound_by_default:
        return 0.0
    feed = feed_of_offers(resolved, image_size, [offer])
    if feed is None:
        return 0.0
    loading = feed.loading(np.array([local_batch_size]), resolved.question.team.per_node)
    return float(loading.time_ms[0]) / training_ms


def loading_in_words(resolved: ResolvedQuestion, image_size: int, by_offer: bool) -> str:
    """Whether an answer counts loading, by which rate, and where the start of a training is."""
    start = (
        "the first epoch takes start_s longer"
        if any(has_known_start(gpu, mode) for gpu, mode in resolved.devices)
        else "the start of a training is not counted"
    )
    counted = resolved.loading.is_asked or (by_offer and resolved.is_bound_by_default)
    rate = _rate_in_words(resolved, image_size, by_offer) if counted else "data loading is excluded"
    return f"{rate}; {start}"


def _rate_in_words(resolved: ResolvedQuestion, image_size: int, by_offer: bool) -> str:
    measured = None if by_offer else _measured_together(resolved)
    if measured is not None:
        return _measured_in_words(resolved, image_size, measured)
    if resolved.loading.images_per_second is not None:
        rate = f"{resolved.loading.images_per_second:,.0f} images/s on each machine as given"
        return f"data loading is included ({rate}, within a factor of {_MEASURED_SPREAD:g})"
    feed = _feed(resolved, image_size, 1.0)
    workers = _workers_in_words(resolved)
    bound = " where the vCPUs of the offer are known, which bound it" if by_offer else ""
    return (
        f"data loading is included{bound} ({workers}, {feed.per_worker:,.0f} images/s each, {feed.per_vcpu:,.0f} on a "
        f"vCPU of a busy machine, within a factor of {feed.spread:g})"
    )


def data_exceeded(data_set: TrainingSet | None, offers: Sequence[Offer | None]) -> list[tuple[str, ...]]:
    """Which of each offer's memory and local disk the stored training set exceeds, as far as both are known."""
    if data_set is None:
        return [()] * len(offers)
    found: list[tuple[str, ...]] = []
    for offer in offers:
        memory_gib, disk_gb = (None, None) if offer is None else (offer.memory_gib, offer.disk_gb)
        memory_gb = math.inf if memory_gib is None else memory_gib * _GB_PER_GIB
        sizes = {"memory": memory_gb, "disk": math.inf if disk_gb is None else disk_gb}
        found.append(tuple(name for name, size_gb in sizes.items() if data_set.disk_gb > size_gb))
    return found


def with_loading(
    feed: Feed | None,
    local_batch_sizes: NDArray[np.int64],
    n_gpus: NDArray[np.int64],
    times: Mapping[str, Array],
    measured_so: NDArray[np.bool_],
    waited_ms: Array,
    parts: int = 1,
) -> dict[str, NDArray[Any]]:
    """What loading is and what it makes of iterations, while `n_gpus` of a machine work.

    `feed`: of each row's machine, or of all; None where loading is not counted. `local_batch_sizes`, `n_gpus`: shape
    (n_rows,). `times`, shape (n_rows,): `ENDS`, `gpu_time_ms` and `host_time_ms` of iterations without loading.
    `measured_so`, shape (n_rows,): whether the times follow a training that was measured, whose host worked beside its
    loader. `waited_ms`, shape (n_rows,): iterations as they were measured in this loader, with their waits; NaN where
    none was. `parts`: mini-batches of the loader in an iteration.

    Gives `ENDS` with loading, `LOADING_TIMES`, `WAITS`, `bottleneck`, and `workers_needed`: workers of each GPU that
    would make loading no bottleneck. NaN (waits: 0) where loading is not counted, or no number of workers helps; each
    of shape (n_rows,).
    """
    gpu_ms, host_ms, ends = times["gpu_time_ms"], times["host_time_ms"], tuple(times[name] for name in ENDS)
    unknown = np.full(gpu_ms.shape, math.nan)
    loading = None if feed is None else feed.loading(local_batch_sizes, n_gpus)
    if loading is not None and not loading.between and not measured_so.all():
        counted = ~np.isnan(loading.time_ms) & ~measured_so
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
    as_measured = {
        end: waited_ms * _MEASURED_SPREAD**power for end, power in zip(ENDS, (0, -1, 1), strict=True)
    }
    joined = dict(zip(ENDS, loading.joined_ms(*ends), strict=True))
    needed = feed.workers_needed(local_batch_sizes, ends[0]) if helps.any() else unknown
    wait_s = np.nan_to_num(feed.first_mini_batch_s(local_batch_sizes / parts, n_gpus))
    return {
        **{end: np.where(np.isnan(waited_ms), joined[end], as_measured[end]) for end in ENDS},
        **dict(zip(WAITS, (wait_s, wait_s / feed.spread, wait_s * feed.spread), strict=True)),
        **{
            name: np.fmin(ms, as_measured[end])
            for name, ms, end in zip(LOADING_TIMES, loading.ends_ms, ENDS, strict=True)
        },
        "bottleneck": np.where(waits, np.where(loading.is_reading, "reading", "loading"), bounds),
        "workers_needed": np.where(helps, needed, math.nan),
    }


def starts(
    feed: Feed | None,
    devices: Devices,
    device: NDArray[np.int64],
    local_batch_sizes: NDArray[np.int64],
) -> dict[str, Array]:
    """Columns `STARTS`; NaN where no start was measured.

    `feed`: as of `with_loading`. `device`, shape (n_rows,): the place of each row's GPU in `devices`.
    `local_batch_sizes`: shape (n_rows,).

    `first_calls_s` + `first_image_s` x mini-batch of `predictor.models.epoch_start`, and `jpeg_s` where workers decode
    JPEGs on the same vCPUs.
    """
    first_images = local_batch_sizes / devices.table.parts
    start_s = devices.first_calls_s[device] + first_image_s(devices.table) * first_images
    if feed is not None and feed.decodes and not feed.between:
        start_s = start_s + np.where(np.isnan(feed.vcpus), 0.0, ratios_of("start")["jpeg_s"])
    factor = start_factor()
    return dict(zip(STARTS, (start_s, start_s / factor, start_s * factor), strict=True))


def _measured_together(resolved: ResolvedQuestion) -> InputMeasurement | None:
    """What several workers were measured to load together, where the question asks for workers."""
    given = resolved.loading.workers is not None or resolved.loading.machine_workers is not None
    measured = resolved.input if given else None
    return measured if measured is not None and measured.most_workers > 1 else None


def _measured_in_words(resolved: ResolvedQuestion, image_size: int, measured: InputMeasurement) -> str:
    feed = _feed_of_workers(resolved, image_size)
    rate = float(feed.decoding_of_one(resolved.question.team.per_node))
    beyond = f", {feed.headroom:.3g} times more at most where vCPUs were idle" if feed.headroom > 1 else ""
    return (
        f"data loading is included ({_workers_in_words(resolved)}, {rate:,.0f} images/s for each GPU as "
        f"measured on {measured.host} with up to {measured.most_workers} workers together, within a factor of "
        f"{feed.spread:g}{beyond})"
    )


def _workers_in_words(resolved: ResolvedQuestion) -> str:
    if resolved.loading.machine_workers is not None:
        return f"{resolved.loading.machine_workers} workers on each machine"
    return (
        "workers" if resolved.loading.workers is None else f"{resolved.loading.workers} workers for each GPU"
    )


def _feed_of_workers(resolved: ResolvedQuestion, image_size: int) -> Feed:
    """Of the workers asked for: where several were measured together, their rates on that machine."""
    feed, measured = _feed(resolved, image_size, math.inf), _measured_together(resolved)
    if measured is None:
        return feed
    n_gpus = resolved.question.team.per_node
    busy = min(
        resolved.loading.machine_workers or max(1, resolved.loading.workers or 0) * n_gpus, measured.vcpus
    )
    headroom = max(1.0, busy / measured.most_workers)
    alike = _alike(resolved, image_size, measured)
    rates = tuple((workers, alike * rate) for workers, rate in measured.rates_of_each(n_gpus))
    return replace(feed, measured=rates, headroom=headroom)


def _feed(resolved: ResolvedQuestion, image_size: int, vcpus: float | Array) -> Feed:
    measured = resolved.input
    rates, reading = _rates(resolved, image_size, measured), _reading(resolved, measured)
    return Feed(
        rates.per_worker,
        rates.per_vcpu,
        resolved.loading.workers,
        vcpus,
        reading,
        rates.spread,
        decodes=_stored(resolved, measured) == "jpeg",
        in_all=resolved.loading.images_per_second or math.inf,
        machine_workers=resolved.loading.machine_workers,
        alone=rates.alone,
    )


def _rates(resolved: ResolvedQuestion, image_size: int, measured: InputMeasurement | None) -> _Rates:
    """Rates as given, else as measured, else those of the tables; infinite where that of all workers is given."""
    if resolved.loading.images_per_second is not None:
        return _Rates(math.inf, math.inf, _MEASURED_SPREAD)
    data_set = resolved.data_set
    if measured is not None and data_set is not None and data_set.stored != measured.stored:
        arrays = "" if measured.stored == "array" else "--arrays "
        raise SchemaError(
            f"{named('input')} {str(resolved.question.input)!r} measured images that are stored as {measured.stored}, "
            f"and {data_set.name} is stored as {data_set.stored}. Measure those: epochcast profile input {arrays}"
            f"--image-size {image_size}; or pass {named('samples_per_worker_second')}, the rate of one worker."
        ).about("input")
    share = _loader(resolved, _stored(resolved, measured)).vcpu_share
    if resolved.loading.samples_per_worker_second is not None:
        rate = resolved.loading.samples_per_worker_second
        return _Rates(rate, share * rate, _MEASURED_SPREAD)
    if measured is not None:
        alike = _alike(resolved, image_size, measured)
        one = alike * measured.samples_per_worker_second
        few = resolved.loading.has_number and measured.most_workers < measured.vcpus
        spread = _MEASURED_SPREAD * _doubt(resolved, image_size, measured)
        busy = share * one if few else alike * measured.samples_per_vcpu_second
        return _Rates(alike * _rate_of_each(resolved, measured), busy, spread)
    if data_set is None:
        raise SchemaError(
            "how fast a worker loads these images is not known. Pass "
            f"{named('samples_per_worker_second')}, {named('images_per_second')}, {named('input')} (the file of "
            "`epochcast profile input`), or a data set."
        ).about("samples_per_worker_second")
    return _of_tables(resolved, image_size, data_set)


def _rate_of_each(resolved: ResolvedQuestion, measured: InputMeasurement) -> float:
    """Rate of each of the workers asked for, where several were measured together; of one where none were."""
    n_gpus, each = resolved.question.team.per_node, resolved.loading.workers or 0
    workers = min(resolved.loading.machine_workers or each * n_gpus, measured.most_workers)
    return measured.rate_of_each(workers)


def _loader(resolved: ResolvedQuestion, stored: str) -> Loader:
    """The loader asked for, or the usual one, of images that are stored so."""
    return find_loader(resolved.loading.loader or USUAL_LOADER, stored)


def _stored(resolved: ResolvedQuestion, measured: InputMeasurement | None) -> str:
    """How the images are stored."""
    if resolved.data_set is not None:
        return resolved.data_set.stored
    return "jpeg" if measured is None else measured.stored


def _alike(resolved: ResolvedQuestion, image_size: int, measured: InputMeasurement) -> float:
    """Rate of the question's images over that of the measured ones, by what both sizes take.

    Those of a folder are taken to be the question's own.
    """
    loader = _loader(resolved, measured.stored)
    own = measured.folder is not None or resolved.data_set is None
    megapixels = (
        measured.mean_megapixels if own or resolved.data_set is None else resolved.data_set.megapixels
    )
    return loader.sample_us(measured.mean_megapixels, measured.image_size) / loader.sample_us(
        megapixels, image_size
    )


def _doubt(resolved: ResolvedQuestion, image_size: int, measured: InputMeasurement) -> float:
    """Times as long as the other that an image of the folder or of the data set takes, where their sizes differ."""
    if measured.folder is None or resolved.data_set is None:
        return 1.0
    loader = _loader(resolved, measured.stored)
    sizes = measured.mean_megapixels, resolved.data_set.megapixels
    own_us, other_us = (loader.sample_us(megapixels, image_size) for megapixels in sizes)
    return max(own_us / other_us, other_us / own_us)


def _of_tables(resolved: ResolvedQuestion, image_size: int, data_set: TrainingSet) -> _Rates:
    """Rates of the tables; `alone` is a core's rate over that of a vCPU of a busy machine.

    1 to 16 workers on 16 vCPUs beside an H100 fall so in the logarithm: by 0.68 from 1 to 16 where JPEGs are decoded.
    """
    loader = _loader(resolved, data_set.stored)
    source = find_source(resolved.loading.data_source or "memory")
    slowness = slowness_of_cpu(resolved.question.host)
    core_us = (
        loader.sample_us(data_set.megapixels, image_size, data_set.channels) + source.cpu_us
    ) * slowness
    busy_us = core_us / loader.vcpu_share
    own_us = core_us if resolved.loading.between else busy_us  # the training process has a core to itself
    alone = 1.0 if resolved.loading.between else busy_us / core_us
    return _Rates(1e6 / (own_us + source.wait_us), 1e6 / busy_us, loader.spread, alone)


def _reading(resolved: ResolvedQuestion, measured: InputMeasurement | None) -> float:
    """Samples per second that the source gives a machine; infinite where none is named."""
    if resolved.loading.data_source is None:
        return math.inf
    source, data_set = find_source(resolved.loading.data_source), resolved.data_set
    if math.isinf(source.read_mb_per_s):
        return math.inf
    if data_set is not None:
        return source.read_mb_per_s / data_set.sample_mb
    if measured is not None:
        return source.read_mb_per_s / measured.mean_mb
    raise SchemaError(
        f"{named('data_source')} {resolved.loading.data_source!r}: how large an image is stored is not known. Pass a "
        f"data set, or {named('input')} (the file of `epochcast profile input`)."
    ).about("data_source")
