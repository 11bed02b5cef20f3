"""What reading and decoding images takes on a machine: measured by `epochcast profile input`, kept as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from predictor.catalogue.data_sets import STORED
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.machine_file import MachineFile

INPUT_FORMAT_VERSION = 1
"""Version of the JSON file of `epochcast profile input`."""


@dataclass(frozen=True, slots=True)
class WorkerRate:
    """Samples per second of `workers` processes together; 0 workers are the training process itself."""

    workers: int
    samples_per_s: float

    def __post_init__(self) -> None:
        if type(self.workers) is not int or self.workers < 0:
            raise SchemaError(f"workers {self.workers!r} is not a whole number from 0.")
        _check_positive("samples_per_s", self.samples_per_s)


@dataclass(frozen=True, slots=True)
class InputMeasurement:
    """One machine's input pipeline.

    `loader` decoded and augmented `images` images of `folder` (None: generated) to `image_size` pixels; they were
    `stored` as ``jpeg`` (files) or lay in memory as ``array``, and hold
    `mean_mb` 10^6 bytes and `mean_megapixels` 10^6 pixels each. `read_us`, `decode_us` and `augment_us` are CPU
    microseconds of one image on one core, None where the loader has no such parts. `rates` are in ascending order of
    workers, with 1 worker at least. `vcpus` are the hardware threads of the machine that may be used. `copy_gb_per_s`
    is the rate of copies from pinned memory to the GPU, in 10^9 bytes/s; None without a GPU.
    """

    host: str
    vcpus: int
    loader: str
    image_size: int
    images: int
    mean_mb: float
    mean_megapixels: float
    rates: tuple[WorkerRate, ...]
    folder: str | None = None
    read_us: float | None = None
    decode_us: float | None = None
    augment_us: float | None = None
    copy_gb_per_s: float | None = None
    measured_at: str | None = None
    stored: str = "jpeg"

    def __post_init__(self) -> None:
        for name in ("vcpus", "image_size", "images", "mean_mb", "mean_megapixels"):
            _check_positive(name, getattr(self, name))
        if self.stored not in STORED:
            raise SchemaError(f"stored {self.stored!r} is not known; known: {', '.join(STORED)}.")
        workers = [rate.workers for rate in self.rates]
        if any(more <= fewer for fewer, more in pairwise(workers)) or 1 not in workers:
            raise SchemaError(f"rates are of {workers} workers. They must ascend and include 1.")

    @property
    def samples_per_worker_second(self) -> float:
        """Samples per second of a single worker."""
        return next(rate.samples_per_s for rate in self.rates if rate.workers == 1)

    @property
    def most_workers(self) -> int:
        """The most workers that were measured together."""
        return self.rates[-1].workers

    def rates_of_each(self, n_gpus: int) -> tuple[tuple[float, float], ...]:
        """Pairs of workers per GPU and samples per second, where `n_gpus` GPUs of this machine share the workers.

        Empty if no workers were measured together. The first pair has 0 workers, where each GPU's training process
        loads by itself: as fast as 1 worker, if that was not measured.
        """
        if self.most_workers == 1:
            return ()
        alone = self.rates[0].samples_per_s / self.samples_per_worker_second
        together = [(n / n_gpus, n * self.rate_of_each(n) / n_gpus) for n in range(1, self.most_workers + 1)]
        return (0.0, alone * self.rate_of_each(min(n_gpus, self.most_workers))), *together

    def rate_of_each(self, workers: float) -> float:
        """Samples per second of each of `workers` workers, linear between measured numbers, else that of the nearest.

        On seven series of 1 to 16 workers beside an H100, 26 left-out rates are 14 % off; 24 % where the rate of all
        workers together is interpolated instead.
        """
        import numpy as np  # a command that asks nothing starts without it

        measured = [(rate.workers, rate.samples_per_s / rate.workers) for rate in self.rates if rate.workers]
        numbers, rates = zip(*measured, strict=True)
        return float(np.interp(workers, numbers, rates))

    @property
    def samples_per_vcpu_second(self) -> float:
        """Samples per second of each vCPU while all are busy: those of the most workers measured, divided by vCPUs.

        OutOfRangeError if these workers are fewer than the vCPUs.
        """
        most = self.rates[-1]
        if most.workers < self.vcpus:
            raise OutOfRangeError(
                f"at most {most.workers} workers were measured on the {self.vcpus} vCPUs of {self.host}. Measure as "
                f"many workers as it has: epochcast profile input --workers 1,{self.vcpus} --out input.json"
            )
        return most.samples_per_s / self.vcpus


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SchemaError(f"{name} {value!r} is not a finite number above 0.")


_FILE = MachineFile(
    InputMeasurement, "rates", WorkerRate, "epochcast profile input", "input.json", INPUT_FORMAT_VERSION
)
read_input, write_input = _FILE.read, _FILE.write
"""Read and write the JSON file of `epochcast profile input`; SchemaError as of `MachineFile.read`."""
