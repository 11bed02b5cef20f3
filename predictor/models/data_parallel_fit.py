"""Fits the law of data parallelism on tables that hold one GPU and several beside each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalogue.devices import Gpu, find_gpu
from predictor.catalogue.links import usual_link
from predictor.catalogue.offers import load_offers
from predictor.cnns.zoo import zoo_cnn
from predictor.models.data_parallel import DataParallelLaw, Exchange, Gradients, Team

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = [
    "DEFAULT_BUCKETS",
    "Pair",
    "fit_law",
    "held_out_ms",
    "measured_pairs",
    "own_tables",
    "predicted_ms",
    "shipped_law",
]

DEFAULT_BUCKETS = (25.0, False)
"""Bucket size in MiB, and whether gradients are views of buckets, as PyTorch has them unless told otherwise."""

_SAME = ("gpu", "host", "cnn", "image_size", "precision", "memory_format", "local_batch_size")
_GPU_BOUND = 1.25
_ITERATION_TOLERANCE, _HOST_TOLERANCE, _ADDED_TOLERANCE = 0.02, 0.15, 0.3


@dataclass(frozen=True)
class Pair:
    """An iteration of a team beside that of one GPU at the same local batch size, in ms."""

    cnn: str
    image_size: int
    gpu: Gpu
    team: Team
    local_batch_size: int
    precision: str
    memory_format: str
    one_ms: float
    host_ms: float
    team_ms: float

    @property
    def added_ms(self) -> float:
        """What the team's iteration takes longer."""
        return self.team_ms - self.one_ms

    @property
    def gpu_bound(self) -> bool:
        """Whether the host of one GPU was idle for a fifth of the time, so that it hardly counts."""
        return self.one_ms > _GPU_BOUND * self.host_ms

    @cached_property
    def gradients(self) -> Gradients:
        """Gradients of its CNN, one of the zoo."""
        return Gradients.of(zoo_cnn(self.cnn, self.image_size))


def own_tables(folder: Path | None = None) -> pd.DataFrame:
    """The project's own tables of GPUs that trained together; DataError if there are none."""
    from predictor.measurements.table import read_own_tables

    return read_own_tables("ddp", "epochcast profile --preset ddp", folder)


def measured_pairs(
    measurements: pd.DataFrame, buckets: tuple[float, bool] | None = DEFAULT_BUCKETS
) -> list[Pair]:
    """Teams of a checked measurement table whose CNN was measured on one GPU of the same run, too.

    Parameters
    ----------
    measurements : DataFrame
        CNNs of the zoo; the link is the usual one of the GPU.
    buckets : (float, bool) or None
        Only these; None for all.
    """
    rows = measurements[measurements["kind"] == "target"].copy()
    rows["local_batch_size"] = (rows["batch_size"] // rows["n_gpus"]).astype(int)
    alone = rows[rows["n_gpus"] == 1].set_index(list(_SAME))
    pairs = []
    for row in rows[rows["n_gpus"] > 1].to_dict("records"):
        key = tuple(row[name] for name in _SAME)
        if key not in alone.index or buckets not in (None, (row["bucket_mib"], bool(row["bucket_view"]))):
            continue
        one = alone.loc[key]
        pairs.append(_pair(row, float(one["iteration_time_ms"]), float(one["host_time_ms"])))
    return pairs


def _pair(row: dict[Any, Any], one_ms: float, host_ms: float) -> Pair:
    gpu, n = find_gpu(str(row["gpu"])), int(row["n_gpus"])
    return Pair(
        cnn=str(row["cnn"]),
        image_size=int(row["image_size"]),
        gpu=gpu,
        team=Team(n, 1, usual_link(gpu, load_offers())),
        local_batch_size=int(row["local_batch_size"]),
        precision=str(row["precision"]),
        memory_format=str(row["memory_format"]),
        one_ms=one_ms,
        host_ms=host_ms,
        team_ms=float(row["iteration_time_ms"]),
    )


def fit_law(pairs: list[Pair]) -> DataParallelLaw:
    """The law that fits these pairs best, without its `spread`.

    Notes
    -----
    Least squares with a soft-L1 loss. Where the GPU is the bottleneck the iteration counts at 2 % and what is added at
    30 %, where the host is, the iteration at 15 %: its time varies that much between runs.
    """
    from scipy.optimize import least_squares

    found = least_squares(
        lambda numbers: _residuals(DataParallelLaw(*numbers), pairs),
        [0.005, 0.2, 0.02, 0.3],
        bounds=(0, np.inf),
        loss="soft_l1",
        x_scale=[0.01, 1.0, 0.01, 0.1],
    )
    return DataParallelLaw(*(round(float(each), 4) for each in found.x))


def predicted_ms(law: DataParallelLaw, pair: Pair) -> float:
    """Iteration of a team by the law, from that of one GPU as measured."""
    one, host = np.array([pair.one_ms]), np.array([pair.host_ms])
    return float(law.iteration_ms(one, host, Exchange.of(pair.gradients, pair.gpu, pair.team))[0])


def held_out_ms(pairs: list[Pair]) -> tuple[Array, float]:
    """Iterations of teams, each by a law fitted without its CNN; and the `spread` that holds 90 % of them."""
    found = np.empty(len(pairs))
    for cnn in {pair.cnn for pair in pairs}:
        law = fit_law([pair for pair in pairs if pair.cnn != cnn])
        for position, pair in enumerate(pairs):
            if pair.cnn == cnn:
                found[position] = predicted_ms(law, pair)
    one, measured = (np.array([getattr(pair, name) for pair in pairs]) for name in ("one_ms", "team_ms"))
    return found, round(float(np.quantile(np.abs(measured - found) / (found - one), 0.9)), 2)


def shipped_law(pairs: list[Pair]) -> DataParallelLaw:
    """The law of all pairs, with the spread of CNNs held out."""
    return replace(fit_law(pairs), spread=held_out_ms(pairs)[1])


def _residuals(law: DataParallelLaw, pairs: list[Pair]) -> Array:
    residuals = []
    for pair in pairs:
        time_ms = predicted_ms(law, pair)
        ratio, added = np.log(time_ms / pair.team_ms), time_ms - pair.one_ms
        if pair.gpu_bound:
            size = 0.5 * (abs(pair.added_ms) + added)
            residuals += [ratio / _ITERATION_TOLERANCE, (added - pair.added_ms) / size / _ADDED_TOLERANCE]
        else:
            residuals += [ratio / _HOST_TOLERANCE, 0.0]
    return np.array(residuals)
