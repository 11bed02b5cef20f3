"""What feeds the GPUs of a question: rates as asked, as measured, or of the tables; the vCPUs of an offer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.answers.question import named
from predictor.catalogue.data_sets import TrainingSet
from predictor.catalogue.hosts import slowness_of_cpu
from predictor.catalogue.loading_rates import LOADERS, USUAL_LOADER, Loader, find_loader, find_source
from predictor.errors import SchemaError
from predictor.models.epoch_start import first_image_s, start_factor
from predictor.models.forecast import ENDS
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

VCPUS_OF_A_GPU = 16.0
VCPUS_SPREAD = 4.0
"""vCPUs for each GPU of offers that do not say them, and the factor of their 90 % interval: of 233 that do, 90 % have
them, whatever their GPU (`tests/integrity_tests/test_offers.py`)."""

MEASURED_SPREAD = 1.15
"""Factor of the 90 % interval of a measured rate: judged by repeats on a busy machine."""
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
    """Feed of the GPUs of a prediction on these offers; None where loading is not asked for.

    The workers asked for are as fast as the same number measured together, else taken to have a vCPU each; without a
    number of them, they are as many as the vCPUs of the offer keep busy. SchemaError if no rate is known, or there are
    neither workers nor an offer.
    """
    if not resolved.loading.is_asked:
        return None
    images = _Images(resolved, image_size)
    if resolved.loading.has_number:
        return images.feed_of_workers()
    if None in offers:
        text = "workers is missing, and there is no offer to take them from. Pass workers, those of each GPU."
        raise SchemaError(text).about("workers")
    return images.feed(*vcpus_of(offers, math.nan))


def vcpus_of(offers: Sequence[Offer | None], without: float = VCPUS_OF_A_GPU) -> tuple[Array, Array]:
    """Number of vCPUs of each offer, `without` one where there is none, and the factors of their intervals."""
    vcpus = [
        without if offer is None else offer.vcpus or VCPUS_OF_A_GPU * offer.gpu_count for offer in offers
    ]
    is_known = [offer is None or offer.vcpus is not None for offer in offers]
    return np.array(vcpus), np.where(is_known, 1.0, VCPUS_SPREAD)


def feed_of_offers(
    resolved: ResolvedQuestion, image_size: int, offers: Sequence[Offer | None], for_words: bool = False
) -> Feed | None:
    """Feed of the GPUs of offers in a comparison; None where loading is not counted.

    Loading is counted where it is asked for, and by default where the data set is stored as JPEGs; the offer's vCPUs
    bound it. Without an offer (NaN) it is counted only for a given number of workers. `for_words`: the feed, whose
    words say so, also where there is no offer. SchemaError if a feed needs a rate that is not known.
    """
    if not (resolved.loading.is_asked or resolved.is_bound_by_default):
        return None
    vcpus, spread = vcpus_of(offers, math.inf if resolved.loading.has_number else math.nan)
    if np.isnan(vcpus).all() and not for_words:
        return None
    unknown = f"; {VCPUS_OF_A_GPU:g} for each GPU, within a factor of {VCPUS_SPREAD:g}, where it does not say"
    bound = f", bound by the vCPUs of the offer{unknown * bool((spread > 1).any())}"
    return _Images(resolved, image_size).feed(vcpus, spread, bound)


def loading_left_out(
    resolved: ResolvedQuestion, image_size: int, offer: Offer, local_batch_size: int, training_ms: float
) -> float:
    """How many times as long as training the loading would take that a prediction does not count.

    0 where it counts loading, or the data set is not stored as JPEGs.
    """
    feed = None if resolved.loading.is_asked else feed_of_offers(resolved, image_size, [offer])
    if feed is None:
        return 0.0
    loading = feed.loading(np.array([local_batch_size]), resolved.team.per_node)
    return float(loading.time_ms[0]) / training_ms


def data_exceeded(data_set: TrainingSet | None, offers: Sequence[Offer | None]) -> list[tuple[str, ...]]:
    """Which of each offer's memory and local disk the stored training set exceeds, as far as both are known."""
    if data_set is None:
        return [()] * len(offers)
    exceeded: list[tuple[str, ...]] = []
    for offer in offers:
        memory_gib, disk_gb = (None, None) if offer is None else (offer.memory_gib, offer.disk_gb)
        memory_gb = math.inf if memory_gib is None else memory_gib * _GB_PER_GIB
        sizes = {"memory": memory_gb, "disk": math.inf if disk_gb is None else disk_gb}
        exceeded.append(tuple(name for name, size_gb in sizes.items() if data_set.disk_gb > size_gb))
    return exceeded


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
        columns |= zip(ENDS, ends, strict=True)
        return {**columns, "bottleneck": bounds, "workers_needed": unknown}
    waits = loading.time_ms > ends[0]
    helps = (waits | loading.between) & ~loading.is_reading
    # a training that loads between its iterations leaves the GPU to others that share it
    own_ends = [times.get(f"beside_{name}", end) for name, end in zip(ENDS, ends, strict=True)]
    joined_ms = map(np.fmax, ends, loading.joined_ms(*own_ends))
    as_measured = [waited_ms * MEASURED_SPREAD**power for power in (0, -1, 1)]
    joined = zip(joined_ms, as_measured, strict=True)
    iteration_ms = (np.where(np.isnan(waited_ms), ms, measured_ms) for ms, measured_ms in joined)
    loading_ms = map(np.fmin, loading.ends_ms, as_measured)
    needed = feed.workers_needed(local_batch_sizes, ends[0]) if helps.any() else unknown
    first_s = feed.first_mini_batch_s(local_batch_sizes / parts, n_gpus)
    wait_s = np.where(np.isnan(first_s), 0.0, first_s)
    return {
        **dict(zip(ENDS, iteration_ms, strict=True)),
        **dict(zip(WAITS, (wait_s, wait_s / feed.spread, wait_s * feed.spread), strict=True)),
        **dict(zip(LOADING_TIMES, loading_ms, strict=True)),
        "bottleneck": np.where(waits, np.where(loading.is_reading, "reading", "loading"), bounds),
        "workers_needed": np.where(helps, needed, math.nan),
    }


def starts(
    feed: Feed | None, devices: Devices, device: NDArray[np.int64], local_batch_sizes: NDArray[np.int64]
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


@dataclass(frozen=True, slots=True)
class _Images:
    """Images of a question at one size, and how fast they are loaded: as asked, as measured, or as the tables say."""

    resolved: ResolvedQuestion
    image_size: int

    @property
    def stored(self) -> str:
        """How they are stored."""
        data_set, measured = self.resolved.data_set, self.resolved.input
        if data_set is not None:
            return data_set.stored
        return "jpeg" if measured is None else measured.stored

    @property
    def loader(self) -> Loader:
        """The loader asked for, or the usual one."""
        loader = self.resolved.loading.loader
        return find_loader(loader if loader in LOADERS else USUAL_LOADER, self.stored)

    def feed(self, vcpus: float | Array, vcpus_spread: float | Array = 1.0, bound: str = "") -> Feed:
        """What feeds machines of these vCPUs, within a factor; `bound` are words on the vCPUs."""
        options, rates = self.resolved.loading, self._rates()
        in_all = options.rate_of("machine")
        if in_all is not None:
            rate = f"{in_all:,.0f} images/s on each machine as given"
            words = f"data loading is included ({rate}, within a factor of {MEASURED_SPREAD:g})"
        else:
            words = (
                f"data loading is included{bound} ({self._workers_in_words()}, {rates.per_worker:,.0f} images/s each, "
                f"{rates.per_vcpu:,.0f} on a vCPU of a busy machine, within a factor of {rates.spread:g})"
            )
        return Feed(
            rates.per_worker,
            rates.per_vcpu,
            options.workers_of("gpu"),
            vcpus,
            self._reading(),
            rates.spread,
            decodes=self.stored == "jpeg",
            in_all=in_all or math.inf,
            machine_workers=options.workers_of("machine"),
            alone=rates.alone,
            vcpus_spread=vcpus_spread,
            words=words,
        )

    def feed_of_workers(self) -> Feed:
        """Of the workers asked for: where several were measured together, their rates on that machine."""
        feed, measured, options = self.feed(math.inf), self.resolved.input, self.resolved.loading
        if measured is None or measured.most_workers <= 1:
            return feed
        n_gpus = self.resolved.team.per_node
        busy = min(
            options.workers_of("machine") or max(1, options.workers_of("gpu") or 0) * n_gpus, measured.vcpus
        )
        headroom = max(1.0, busy / measured.most_workers)
        alike = self._rate_ratio(measured)
        rates = tuple((workers, alike * rate) for workers, rate in measured.rates_of_each(n_gpus))
        feed = replace(feed, measured=rates, headroom=headroom)
        rate = float(feed.decoding_of_one(n_gpus))
        beyond = f", {headroom:.3g} times more at most where vCPUs were idle" if headroom > 1 else ""
        words = (
            f"data loading is included ({self._workers_in_words()}, {rate:,.0f} images/s for each GPU as "
            f"measured on {measured.host} with up to {measured.most_workers} workers together, within a factor of "
            f"{feed.spread:g}{beyond})"
        )
        return replace(feed, words=words)

    def _workers_in_words(self) -> str:
        options = self.resolved.loading
        together = options.workers_of("machine")
        if together is not None:
            return f"{together} workers on each machine"
        return "workers" if options.workers is None else f"{options.workers} workers for each GPU"

    def _rates(self) -> _Rates:
        """Rates as asked, else as measured, else those of the tables; infinite where that of all workers is given."""
        options, data_set, measured = self.resolved.loading, self.resolved.data_set, self.resolved.input
        if options.rate_of("machine") is not None:
            return _Rates(math.inf, math.inf, MEASURED_SPREAD)
        if measured is not None and data_set is not None and data_set.stored != measured.stored:
            arrays = "" if measured.stored == "array" else "--arrays "
            raise SchemaError(
                f"{named('loader')} {options.loader!r} measured images that are stored as {measured.stored}, and "
                f"{data_set.name} is stored as {data_set.stored}. Measure those: epochcast profile input {arrays}"
                f"--image-size {self.image_size}; or pass the rate of one worker, such as "
                "300/worker."
            ).about("loader")
        share = self.loader.vcpu_share
        rate = options.rate_of("worker")
        if rate is not None:
            return _Rates(rate, share * rate, MEASURED_SPREAD)
        if measured is not None:
            return self._measured_rates(measured, share)
        if data_set is None:
            raise SchemaError(
                f"how fast a worker loads these images is not known. Pass {named('loader')} 300/worker, 2000/machine "
                "or the file of `epochcast profile input`, or a data set."
            ).about("loader")
        return self._rates_of_tables(data_set)

    def _measured_rates(self, measured: InputMeasurement, share: float) -> _Rates:
        """Rates of each of the workers asked for, where several were measured together; of one where none were."""
        options, ratio = self.resolved.loading, self._rate_ratio(measured)
        workers = (
            options.workers_of("machine") or (options.workers_of("gpu") or 0) * self.resolved.team.per_node
        )
        of_each = measured.rate_of_each(min(workers, measured.most_workers))
        few = options.has_number and measured.most_workers < measured.vcpus
        busy = ratio * (measured.samples_per_worker_second if few else measured.samples_per_vcpu_second)
        doubt = MEASURED_SPREAD * self._size_doubt(measured)
        return _Rates(ratio * of_each, share * busy if few else busy, doubt)

    def _rate_ratio(self, measured: InputMeasurement) -> float:
        """Rate of the question's images over that of the measured ones, by what both sizes take.

        Those of a folder are taken to be the question's own.
        """
        data_set = self.resolved.data_set
        is_own = measured.folder is not None or data_set is None
        megapixels = measured.mean_megapixels if is_own or data_set is None else data_set.megapixels
        measured_us = self.loader.sample_us(measured.mean_megapixels, measured.image_size)
        return measured_us / self.loader.sample_us(megapixels, self.image_size)

    def _size_doubt(self, measured: InputMeasurement) -> float:
        """Ratio, at least 1, of the times that images of the folder and of the data set take by their sizes."""
        data_set = self.resolved.data_set
        if measured.folder is None or data_set is None:
            return 1.0
        folder_us = self.loader.sample_us(measured.mean_megapixels, self.image_size)
        data_set_us = self.loader.sample_us(data_set.megapixels, self.image_size)
        return max(folder_us / data_set_us, data_set_us / folder_us)

    def _rates_of_tables(self, data_set: TrainingSet) -> _Rates:
        """Rates of the tables; `alone` is a core's rate over that of a vCPU of a busy machine.

        1 to 16 workers on 16 vCPUs beside an H100 fall so in the logarithm: by 0.68 from 1 to 16 where JPEGs are
        decoded.
        """
        loader, between = self.loader, self.resolved.loading.between
        source = find_source(self.resolved.loading.data_source or "memory")
        slowness = slowness_of_cpu(self.resolved.question.host)
        image_us = loader.sample_us(data_set.megapixels, self.image_size, data_set.channels)
        core_us = (image_us + source.cpu_us) * slowness
        busy_us = core_us / loader.vcpu_share
        own_us = core_us if between else busy_us  # the training process has a core to itself
        alone = 1.0 if between else busy_us / core_us
        return _Rates(1e6 / (own_us + source.wait_us), 1e6 / busy_us, loader.spread, alone)

    def _reading(self) -> float:
        """Samples per second that the source gives a machine; infinite where none is named."""
        if self.resolved.loading.data_source is None:
            return math.inf
        data_set, measured = self.resolved.data_set, self.resolved.input
        source = find_source(self.resolved.loading.data_source)
        if math.isinf(source.read_mb_per_s):
            return math.inf
        if data_set is not None:
            return source.read_mb_per_s / data_set.sample_mb
        if measured is not None:
            return source.read_mb_per_s / measured.mean_mb
        raise SchemaError(
            f"{named('data_source')} {self.resolved.loading.data_source!r}: how large an image is stored is not known. "
            f"Pass a data set, or the file of `epochcast profile input` as {named('loader')}."
        ).about("data_source")
