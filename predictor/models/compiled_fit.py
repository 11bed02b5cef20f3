"""Fits the law of compiling on tables that hold CNNs under torch.compile beside the same CNNs run eagerly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalogue.devices import Gpu, find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.models.compiled import UNCHANGED, CompileLaw, compiled, eager_mode, is_mixed
from predictor.models.forecast import COVERAGE, IterationForecast
from predictor.models.intervals import interval_factor

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from predictor.models.served import Model

    Array = NDArray[np.float64]

__all__ = ["Pair", "fit_law", "held_out_laws", "measured_pairs", "own_tables", "shipped_law"]

_SAME = ("gpu", "host", "cnn", "image_size", "precision", "memory_format", "batch_size")


@dataclass(frozen=True, eq=False)
class Pair:
    """A compiled iteration as measured, and the eager one that the model predicts for it, in ms.

    `eager` is in the memory format that the compiler chooses; `eager_gpu_ms` and `eager_host_ms` were measured beside
    the compiled iteration, in the memory format of the model; NaN if not. `host_share` is as of `compiled`.
    """

    table: LayerTable
    gpu: Gpu
    mode: Mode
    batch_size: int
    gpu_ms: float
    iteration_ms: float
    host_ms: float
    compile_s: float
    eager_gpu_ms: float
    eager_host_ms: float
    eager: IterationForecast
    host_share: float

    @property
    def cnn(self) -> str:
        """Name of the CNN with its image size."""
        return f"{self.table.cnn}@{self.table.image_size}"

    @property
    def parts_ms(self) -> tuple[float, float]:
        """Predicted eager GPU time: of what is compiled, and of loss and optimizer."""
        stays = sum(float(self.eager.class_ms[name][0]) for name in UNCHANGED if name in self.eager.class_ms)
        return float(self.eager.gpu_time_ms[0]) - stays, stays

    def forecast(self, law: CompileLaw) -> IterationForecast:
        """The answer for it by this law."""
        return compiled(self.eager, self.gpu, self.mode, [self.batch_size], self.host_share, law)


def own_tables(folder: Path | None = None) -> pd.DataFrame:
    """The project's own tables of compiled CNNs; DataError if there are none."""
    from predictor.measurements.table import read_own_tables

    return read_own_tables("compiled", "epochcast profile --preset targets --capture eager,compile", folder)


def measured_pairs(measurements: pd.DataFrame, model: Model) -> list[Pair]:
    """Compiled CNNs of the zoo of a checked measurement table that have a GPU time, with what `model` says of them."""
    targets = measurements[measurements["kind"] == "target"]
    eager = targets[targets["capture"] == "eager"].drop_duplicates(list(_SAME)).set_index(list(_SAME))
    rows = targets[(targets["capture"] == "compile") & targets["gpu_time_ms"].notna()]
    return [_pair(row, eager, model) for row in rows.to_dict("records")]


def _pair(row: Mapping[Any, Any], eager: pd.DataFrame, model: Model) -> Pair:
    key = tuple(row[name] for name in _SAME)
    beside = eager.loc[key] if key in eager.index else None
    table, gpu = zoo_cnn(str(row["cnn"]), int(row["image_size"])), find_gpu(str(row["gpu"]))
    mode = Mode("pytorch", str(row["precision"]), str(row["memory_format"]), capture="compile")
    batch_size = int(row["batch_size"])
    one = model.forecast(table, gpu, eager_mode(table, mode), [batch_size])
    own = model.forecast(table, gpu, replace(mode, capture="eager"), [batch_size])
    return Pair(
        table,
        gpu,
        mode,
        batch_size,
        float(row["gpu_time_ms"]),
        float(row["iteration_time_ms"]),
        float(row["host_time_ms"]),
        float(row["compile_s"]),
        math.nan if beside is None else float(beside["gpu_time_ms"]),
        math.nan if beside is None else float(beside["host_time_ms"]),
        one,
        float(own.host_time_ms[0] / one.host_time_ms[0]),
    )


def fit_law(pairs: Sequence[Pair]) -> CompileLaw:
    """The law that fits these pairs best, without its spreads.

    Notes
    -----
    Each ratio minimises the squares of relative errors of the GPU time; that of the host is the median of those
    measured. Time of compiling by non-negative least squares.
    """
    from scipy.optimize import nnls

    ratios = {
        name: _ratio([pair for pair in pairs if is_mixed(pair.mode.precision) == mixed])
        for name, mixed in (("full", False), ("mixed", True))
    }
    layers = np.array([[1.0, len(pair.table)] for pair in pairs])
    first_s, layer_s = nnls(layers, np.array([pair.compile_s for pair in pairs]))[0]
    host = float(np.exp(np.median(_log_host_ratios(pairs))))
    return CompileLaw(
        **{name: round(ratio, 3) for name, ratio in ratios.items()},
        host=round(host, 3),
        compile_s=round(float(first_s), 1),
        compile_layer_s=round(float(layer_s), 3),
    )


def _ratio(pairs: Sequence[Pair]) -> float:
    if not pairs:
        raise DataError("no CNN was compiled in one of full and mixed precision: measure both.")
    parts, measured = np.array([pair.parts_ms for pair in pairs]), np.array([pair.gpu_ms for pair in pairs])
    share, left = parts[:, 0] / measured, 1.0 - parts[:, 1] / measured
    return float(share @ left / (share @ share))


def _log_host_ratios(pairs: Sequence[Pair]) -> Array:
    """Ln of compiled / eager host time, of pairs that were measured beside each other."""
    ratios = np.array([pair.host_ms / pair.eager_host_ms for pair in pairs])
    found: Array = np.log(ratios[np.isfinite(ratios)])
    return found


def held_out_laws(
    pairs: Sequence[Pair], group_of: Callable[[Pair], str] = lambda pair: pair.cnn
) -> dict[str, CompileLaw]:
    """Laws by group, each fitted without the pairs of that group; by default of each CNN."""
    return {
        group: fit_law([pair for pair in pairs if group_of(pair) != group])
        for group in dict.fromkeys(map(group_of, pairs))
    }


def shipped_law(pairs: Sequence[Pair]) -> CompileLaw:
    """The law of all pairs, with the spreads of CNNs held out.

    Notes
    -----
    `spread` is what the interval needs beside that of the eager iteration: the conformal quantile of
    sqrt(max(0, ln(predicted / measured)^2 - eager half width^2)), rank ceil(0.9 (n + 1)) of n, the largest at most.
    """
    laws = held_out_laws(pairs)
    beyond = []
    for pair in pairs:
        wrong = math.log(float(pair.forecast(laws[pair.cnn]).gpu_time_ms[0]) / pair.gpu_ms)
        known = math.log(float(pair.eager.gpu_high_ms[0] / pair.eager.gpu_time_ms[0]))
        beyond.append(math.sqrt(max(0.0, wrong**2 - known**2)))
    hosts = _log_host_ratios(pairs)
    return replace(
        fit_law(pairs),
        spread=round(interval_factor(beyond, 1.0, COVERAGE), 3),
        host_spread=round(interval_factor(hosts - np.median(hosts), 1.0, COVERAGE), 3),
    )
