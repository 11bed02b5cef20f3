"""The energy of training: mean power of the GPUs x time, measured where their power was, else estimated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, device_of
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.models.power import power_limit_w, power_w, product_times_ms
from predictor.models.ratios import ratios_of

__all__ = ["ENERGIES", "EnergyBasis", "energy_basis", "energy_columns", "energy_while_waiting", "watt_hours"]

ENERGIES = ("watt_hours", "watt_hours_low", "watt_hours_high")
"""Columns of an epoch's energy: the estimate and the ends of its 90 % interval."""

_EPOCH = ("epoch_time_s", "epoch_low_s", "epoch_high_s")
_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EnergyBasis:
    """What a GPU's energy rests on, or why it is unknown."""

    kind: Literal["measured", "estimated", "unknown"]
    text: str

    def __str__(self) -> str:
        return self.text


def energy_basis(gpu: Gpu) -> EnergyBasis:
    """What a GPU's energy rests on, or why it is unknown."""
    if gpu.is_cpu:
        return EnergyBasis("unknown", "unknown: the power of CPUs was not measured")
    limit_w = power_limit_w(gpu)
    if limit_w is None:
        return EnergyBasis("unknown", f"unknown: gpus.csv has no power limit of {gpu.name}")
    if ratios_of("power").measured_on(gpu):
        return EnergyBasis("measured", "power measured on this GPU")
    return EnergyBasis("estimated", f"estimated from the power limit of {limit_w:g} W")


def energy_columns(
    table: LayerTable,
    devices: Sequence[tuple[Gpu, Mode]],
    local_batch_sizes: Sequence[int],
    times: Mapping[str, _Floats],
    epochs: Mapping[str, Sequence[float | None]],
    n_gpus: int,
) -> dict[str, list[Any]]:
    """Mean power of one GPU, and watt-hours of an epoch on all of them, with their 90 % interval.

    Parameters
    ----------
    table : LayerTable
    devices : sequence of (Gpu, Mode)
    local_batch_sizes : sequence of int
        Batch sizes of one GPU.
    times : mapping
        `iteration_time_ms` and `gpu_time_ms`, shape (n_devices, n_batches).
    epochs : mapping
        `epoch_time_s`, `epoch_low_s` and `epoch_high_s` of the answer; None without samples.
    n_gpus : int

    Returns
    -------
    dict
        `power_w`, the columns `ENERGIES` and `energy_basis`; None where the power is unknown, or the epoch.
    """
    sizes, gpus = np.asarray(local_batch_sizes, dtype=float), [gpu for gpu, _ in devices]
    products = product_times_ms(table, gpus, [mode.precision for _, mode in devices], sizes)
    limit_w = np.array([_limit_w(gpu) for gpu in gpus])[:, None]
    mean_w = power_w(limit_w, times["iteration_time_ms"], times["gpu_time_ms"], products)
    time_s, low_s, high_s = (np.array(epochs[name], dtype=float).reshape(mean_w.shape) for name in _EPOCH)
    energy = watt_hours(gpus, mean_w, time_s, low_s, high_s, n_gpus)
    return {
        "power_w": _plain(mean_w),
        **{name: _plain(values) for name, values in energy.items()},
        "energy_basis": [basis for gpu in gpus for basis in [energy_basis(gpu)] * sizes.size],
    }


def watt_hours(
    gpus: Sequence[Gpu], power_w: _Floats, time_s: _Floats, low_s: _Floats, high_s: _Floats, n_gpus: int
) -> dict[str, _Floats]:
    """Energy of epochs on `n_gpus` of each GPU with its 90 % interval, NaN where unknown.

    Parameters
    ----------
    gpus : sequence of Gpu
    power_w, time_s, low_s, high_s : ndarray of shape (n_devices, n_epochs)
        Power of one GPU, and the epoch with its interval.
    n_gpus : int

    Returns
    -------
    dict
        The columns `ENERGIES`, of the same shape.

    Notes
    -----
    The interval joins those of time and power in quadrature; no GPU exceeds its limit for the longest epoch.
    """
    law = ratios_of("power")
    spread = np.array([law.spread_on(gpu) for gpu in gpus])[:, None]
    joules = n_gpus * power_w * time_s
    low = joules * np.exp(-np.hypot(np.log(time_s / low_s), spread))
    high = joules * np.exp(np.hypot(np.log(high_s / time_s), spread))
    most = n_gpus * np.array([_limit_w(gpu) for gpu in gpus])[:, None] * high_s
    return dict(zip(ENERGIES, (joules / 3600.0, low / 3600.0, np.minimum(high, most) / 3600.0), strict=True))


def energy_while_waiting(row: Mapping[str, Any], waiting: Mapping[str, Any]) -> dict[str, float]:
    """Power and energy of an answer whose iterations and epochs take longer, because the GPUs wait for images.

    Parameters
    ----------
    row, waiting : mapping
        `iteration_time_ms`, `epoch_time_s`, `epoch_low_s` and `epoch_high_s` without and with waiting; `row` holds the
        GPU, its power and `gpus_used`, too.

    Returns
    -------
    dict
        `power_w` and `ENERGIES`; empty where the power is unknown.

    Notes
    -----
    A GPU that waits draws its idle power, so what an iteration takes above that stays.
    """
    if row["power_w"] is None:
        return {}
    gpu = device_of(row["gpu"])
    idle_w = ratios_of("power")["idle"] * _limit_w(gpu)
    share = row["iteration_time_ms"] / waiting["iteration_time_ms"]
    power_w = idle_w + (row["power_w"] - idle_w) * share
    time_s, low_s, high_s = (np.array([[waiting[name]]]) for name in _EPOCH)
    energy = watt_hours([gpu], np.array([[power_w]]), time_s, low_s, high_s, row["gpus_used"])
    return {"power_w": power_w, **{name: float(values[0, 0]) for name, values in energy.items()}}


def _limit_w(gpu: Gpu) -> float:
    limit_w = power_limit_w(gpu)
    return math.nan if limit_w is None else limit_w


def _plain(values: _Floats) -> list[float | None]:
    """As a list, None for what is unknown."""
    return [None if value != value else value for value in values.ravel().tolist()]
