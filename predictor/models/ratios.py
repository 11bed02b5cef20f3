"""Iterations that are known by their ratios to measured ones: a ratio for each class of operators and one for the host.

Whatever changes how an iteration runs (a compiler, another framework, more GPUs, a loader beside it) is one entry of
``models/ratios.json``: its numbers, how far they may err, and where they were measured. ``benchmarks/ratios_fit.py``
fits them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import ArtifactError
from predictor.files import data_file
from predictor.models.forecast import GpuTimeSplit, IterationForecast, Reason, widening
from predictor.models.join import join_host, join_shares

FILE = "models/ratios.json"


@dataclass(frozen=True, slots=True)
class Ratios:
    """Fitted numbers of one entry of the file, how far they may err, and where they were measured.

    `numbers`: ratios, and coefficients of what is added, by the names that the mode's own module explains. `spread`,
    `host_spread`: half widths of the 90 % interval that they add to ln of GPU and host time. `elsewhere`: half width
    that GPUs other than `gpus` add to `spread`, in quadrature. `gpus`, `precisions`: where it was measured; empty: not
    distinguished. `batch_sizes`: smallest and largest batch size that it was measured at; empty: not distinguished.
    `types`: operator types of the CNNs that it was measured on; empty: not distinguished.
    """

    numbers: Mapping[str, float]
    spread: float = 0.0
    host_spread: float = 0.0
    elsewhere: float = 0.0
    gpus: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    types: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        return self.numbers[name]

    def measured_on(self, gpu: Gpu) -> bool:
        """Whether a GPU is one of those measured."""
        return gpu.name in self.gpus

    def spread_on(self, gpu: Gpu) -> float:
        """Half width of the 90 % interval of ln of a ratio on a GPU."""
        return self.spread if self.measured_on(gpu) else math.hypot(self.spread, self.elsewhere)

    @classmethod
    def from_json(cls, name: str, entry: Any) -> Ratios:
        """Read one entry of the file.

        ArtifactError if it has other fields, or a number that is not finite.
        """
        allowed = {field.name for field in fields(cls)}
        if not isinstance(entry, dict) or "numbers" not in entry or set(entry) - allowed:
            raise ArtifactError(
                f"{FILE}: the entry {name!r} must have numbers, and may have {sorted(allowed)}."
            )
        values: Any = {
            key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
        }
        ratios = cls(**values)
        widths = (ratios.spread, ratios.host_spread, ratios.elsewhere)
        if not all(math.isfinite(value) and value >= 0 for value in (*ratios.numbers.values(), *widths)):
            raise ArtifactError(f"{FILE}: a number of the entry {name!r} is not finite, or below zero.")
        return ratios

    def to_json(self) -> dict[str, Any]:
        """As the file has it: without empty fields."""
        return {key: value for key, value in asdict(self).items() if value not in (0.0, ())}


def read_ratios(path: Path) -> dict[str, Ratios]:
    """Read all entries of a file by name; errors as of `Ratios.from_json`."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot read the ratios in {path}: {error}. Reinstall epochcast.") from error
    return {name: Ratios.from_json(name, entry) for name, entry in entries.items()}


@lru_cache(maxsize=64)
def ratios_of(name: str) -> Ratios:
    """The shipped entry of this name; ArtifactError if the file lacks it."""
    try:
        return read_ratios(data_file(FILE))[name]
    except KeyError:
        raise ArtifactError(f"{FILE} has no entry {name!r}. Reinstall epochcast.") from None


@dataclass(frozen=True, slots=True)
class Change:
    """Change of an iteration of one CNN on one GPU from the known mode to the derived one.

    `gpu`: GPU time over the known one, of all classes but those of `classes`. `classes`, shape (n_batches,): the same
    by class of operators or kernels. `host`: host time over the known one. `spread`, `host_spread`: half widths of the
    90 % interval that the ratios add to ln of GPU and host time. `reasons`: what was not measured, at each batch size;
    they widen these two.
    """

    gpu: float
    classes: Mapping[str, float | Array]
    host: float
    spread: float
    host_spread: float
    reasons: tuple[tuple[Reason, ...], ...]


@dataclass(frozen=True, slots=True)
class DerivedMode:
    """A mode whose iterations are predicted from those of another mode by ratios, as Chainer's from PyTorch's.

    `known_mode`: (table, gpu, mode) -> the mode to start from. `own_mode`: mode -> the known one that is most like it,
    for the host. `change`: (known iteration, table, gpu, mode, batch sizes, ratios) -> what changes. `entry`: its name
    in ``ratios.json``.
    """

    entry: str
    known_mode: Callable[[LayerTable, Gpu, Mode], Mode]
    own_mode: Callable[[Mode], Mode]
    change: Callable[[IterationForecast, LayerTable, Gpu, Mode, Array, Ratios], Change]

    def forecast(
        self,
        base: IterationForecast,
        table: LayerTable,
        gpu: Gpu,
        mode: Mode,
        batch_sizes: Array,
        host_share: float = 1.0,
        ratios: Ratios | None = None,
        uncorrected: IterationForecast | None = None,
    ) -> IterationForecast:
        """Forecast of an iteration in `mode` from that in `known_mode`.

        `base`: with GPU time apart from host time; corrected by runs of the CNN in this way if there are any.
        `batch_sizes`: shape (n_batches,). `host_share`: known host time in `own_mode` over that of `base`. `ratios`:
        the shipped ones by default. `uncorrected`: what changes is computed from it: the known one before runs
        corrected it, by default `base`.
        """
        ratios = ratios or ratios_of(self.entry)
        change = self.change(uncorrected or base, table, gpu, mode, batch_sizes, ratios)
        return scale_by_ratios(base, replace(change, host=change.host * host_share))


def scale_by_ratios(base: IterationForecast, change: Change) -> IterationForecast:
    """Forecast of an iteration from that of the same iteration in a known mode.

    Its interval is that of the known one with what the ratios may err; runs of the CNN hold that error already.
    """
    class_ms = base.class_ms
    apart = [(ratio, class_ms[name]) for name, ratio in change.classes.items() if name in class_ms]
    nothing = np.zeros_like(base.gpu_time_ms)
    of_rest = change.gpu * (base.gpu_time_ms - sum((ms for _, ms in apart), nothing))
    busy = of_rest + sum((ratio * ms for ratio, ms in apart), nothing)
    host = change.host * base.host_time_ms
    sharpness = base.sharpness
    time_ms, by_gpu = join_host(busy, host, sharpness), join_shares(busy, host, sharpness)[0]
    wider = np.array(widening(change.reasons))
    if "anchored" in base.method:
        gpu_low, gpu_high = _half_widths(base.gpu_low_ms, base.gpu_time_ms, base.gpu_high_ms)
        low, high = _half_widths(base.low_ms, base.iteration_time_ms, base.high_ms)
    else:
        own = _half_widths(base.gpu_low_ms, base.gpu_time_ms, base.gpu_high_ms)
        gpu_low, gpu_high = np.hypot(own, wider * change.spread)
        slower = np.hypot(base.host_spread, wider * change.host_spread)
        low, high = (
            np.hypot(by_gpu * width, np.log(join_host(busy, host * np.exp(end), sharpness) / time_ms))
            for width, end in ((gpu_low, -slower[0]), (gpu_high, slower[1]))
        )

    def scaled(class_ms: dict[str, Array]) -> dict[str, Array]:
        return {name: ms * change.classes.get(name, change.gpu) for name, ms in class_ms.items()}

    def split() -> GpuTimeSplit:
        return scaled(base.class_ms), {rung: scaled(ms) for rung, ms in base.rung_ms.items()}

    pairs = zip(base.extrapolates, change.reasons, strict=True)
    return replace(
        base,
        iteration_time_ms=time_ms,
        gpu_time_ms=busy,
        host_time_ms=host,
        low_ms=time_ms * np.exp(-low),
        high_ms=time_ms * np.exp(high),
        gpu_low_ms=busy * np.exp(-gpu_low),
        gpu_high_ms=busy * np.exp(gpu_high),
        split=split,
        extrapolates=tuple((*at_size, *added) for at_size, added in pairs),
    )


def _half_widths(low_ms: Array, middle_ms: Array, high_ms: Array) -> tuple[Array, Array]:
    """Half widths of ln time below and above."""
    return np.log(middle_ms / low_ms), np.log(high_ms / middle_ms)
