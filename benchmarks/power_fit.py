"""Fits the law of power on readings made while CNNs trained, and judges it on CNNs and GPUs that it never saw."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from ratios_fit import RatioFit, nine_in_ten

from predictor.catalogue.devices import Gpu, find_gpu
from predictor.catalogue.links import usual_link
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import load_offers
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.files import data_root
from predictor.models.data_parallel import Team, add_data_parallelism
from predictor.models.forecast import IterationForecast
from predictor.models.power import PowerOfGpus, power_w
from predictor.models.ratios import Ratios
from predictor.models.served import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """Power of one GPU in W, read while a CNN trained on it and on the others of its team."""

    cnn: str
    image_size: int
    gpu: Gpu
    limit_w: float
    mode: Mode
    n_gpus: int
    local_batch_size: int
    iteration_ms: float
    power_w: float

    @cached_property
    def predicted_ms(self) -> tuple[float, float]:
        """Iteration time and GPU time in ms that the shipped model predicts."""
        forecast = _forecast(self.cnn, self.image_size, self.gpu.name, self.mode, self.local_batch_size)
        if self.n_gpus > 1:
            team = Team(self.n_gpus, 1, usual_link(self.gpu, load_offers()))
            table = zoo_cnn(self.cnn, self.image_size)
            forecast = add_data_parallelism(forecast, table, self.gpu, self.mode, team)
        return float(forecast.iteration_time_ms[0]), float(forecast.gpu_time_ms[0])

    @cached_property
    def product_ms(self) -> float:
        """Least time in ms of the iteration's convolutions and matrix products."""
        power = PowerOfGpus.of(zoo_cnn(self.cnn, self.image_size), [self.gpu], [self.mode.precision])
        return self.local_batch_size * float(power.product_ms[0])

    def terms(self) -> tuple[float, float, float]:
        """Factors of the law's coefficients at the measured iteration time."""
        busy = min(1.0, self.predicted_ms[1] / self.iteration_ms)
        return 1.0, busy, math.sqrt(busy * self.product_ms / self.iteration_ms)


def own_readings(folder: Path | None = None) -> list[Reading]:
    """Power readings beside the project's tables of GPUs that trained together.

    DataError if a table has no readings, or fewer than CNNs.

    The device is read after each CNN, whose last second the reading averages: by then wall and host time are measured,
    so that the GPU trained throughout. Other tables end in replays and profiles of single iterations, whose power is
    not that of training. All-reduces come first and share readings; the last ones belong to CNNs, one each.
    """
    root = folder or data_root() / "measurements"
    readings = [reading for path in sorted(root.glob("*_ddp.csv.gz")) for reading in _readings_of(path)]
    if not readings:
        raise DataError(f"{root} has no *_ddp.csv.gz. Measure one with `epochcast profile --preset ddp`.")
    return readings


def _power_numbers(readings: Sequence[Reading]) -> dict[str, float]:
    """Shares of the limit that fit best, by non-negative least squares of relative errors."""
    from scipy.optimize import nnls

    terms = np.array([reading.terms() for reading in readings])
    share = np.array([reading.power_w / reading.limit_w for reading in readings])
    numbers, _ = nnls(terms / share[:, None], np.ones(share.size))
    return {name: round(float(n), 4) for name, n in zip(("idle", "busy", "products"), numbers, strict=True)}


def _log_error(reading: Reading, ratios: Ratios) -> float:
    """|ln(predicted / read)|."""
    return abs(math.log(predicted_w(ratios, reading) / reading.power_w))


POWER = RatioFit[Reading]("power", lambda reading: reading.cnn, _power_numbers, nine_in_ten(_log_error))
"""What other GPUs add to its spread stays as shipped: from published traces, by this module at commit 679833eb."""


def predicted_w(ratios: Ratios, reading: Reading, *, served: bool = False) -> float:
    """Power in W that the law with these `ratios` gives at the measured iteration time; `served`: at the predicted."""
    time_ms, gpu_ms = reading.predicted_ms
    times = (time_ms if served else reading.iteration_ms, gpu_ms, reading.product_ms)
    iteration, gpu, product = (np.array([ms]) for ms in times)
    return float(power_w(reading.limit_w, iteration, gpu, product, ratios)[0])


def held_out_w(
    readings: Sequence[Reading], group: Callable[[Reading], str], *, served: bool = False
) -> Array:
    """Power in W of each reading (`predicted_w`), by a law fitted without the readings of its group; (n_readings,)."""
    without = POWER.held_out(readings, group)
    return np.array([predicted_w(without[group(reading)], reading, served=served) for reading in readings])


@lru_cache(maxsize=1024)
def _forecast(cnn: str, image_size: int, gpu_name: str, mode: Mode, batch_size: int) -> IterationForecast:
    return Model.load().forecast(zoo_cnn(cnn, image_size), find_gpu(gpu_name), mode, [batch_size])


def _readings_of(path: Path) -> Iterator[Reading]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "target"]
    rows.sort(key=lambda row: row["measured_at"])
    with gzip.open(path.with_name(path.name.replace(".csv", ".json")), "rt", encoding="utf-8") as file:
        events = json.load(file)["events"]
    devices = [event["device"] for event in events if event["when"] == "during"][-len(rows) :]
    if len(devices) < len(rows) or len({row["measured_at"] for row in rows}) < len(rows):
        raise DataError(f"{path.name}: its sidecar does not have a reading of the device for each CNN.")
    words = ("framework", "precision", "memory_format", "capture", "optimizer")
    for row, device in zip(rows, devices, strict=True):
        setting = row.get("float32_matmul_precision", "high")  # as version 1 was measured
        mode = Mode(**{name: row[name] for name in words}, float32_matmul_precision=setting)  # type: ignore[arg-type]
        gpu, n_gpus, size = find_gpu(row["gpu"]), int(row["n_gpus"]), int(row["batch_size"])
        training = (
            row["cnn"],
            int(row["image_size"]),
            gpu,
            device["power_limit_w"],
            mode,
            n_gpus,
            size // n_gpus,
        )
        yield Reading(*training, float(row["iteration_time_ms"]), device["power_draw_w"])
