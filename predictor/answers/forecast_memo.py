"""Forecasts that were made before, by CNN, mode, GPU and batch size: what lets a service answer without the model.

Numbers are kept as the model gave them; a memo belongs to one model and is thrown away with it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.operators.memory import peak_memories_gib

if TYPE_CHECKING:
    from predictor.models.served import IterationForecast, Model

__all__ = ["TIMES", "ForecastMemo", "Grid"]

Array = NDArray[np.float64]

TIMES = ("iteration_time_ms", "low_ms", "high_ms", "gpu_time_ms", "host_time_ms")
"""What a memo keeps of each forecast, in the order of the first axis of `Grid.times`."""

_MOST_NUMBERS = 6_000_000  # of all sheets together: 48 MB
_MOST_OF_AXIS = 512
_Key = tuple[str, int, Mode, str, str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Forecasts of one CNN in one mode: `times` has shape (5, n_gpus, n_batches), in ms.

    `reasons[why[i, j]]` is why GPU i at batch size j extrapolates; `told[i]` is the host, the method and the training
    data of GPU i; `memory_gib` has shape (n_batches,).
    """

    times: Array
    why: NDArray[np.int64]
    reasons: Sequence[tuple[str, ...]]
    told: list[tuple[str, str, str]]
    memory_gib: Array


@dataclass(slots=True, eq=False)
class _Sheet:
    """What is known of one CNN in one mode: arrays over GPUs and batch sizes, with room to grow; NaN is unknown."""

    gpus: dict[str, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    times: Array = field(default_factory=lambda: np.full((len(TIMES), 8, 16), np.nan))
    why: NDArray[np.int64] = field(default_factory=lambda: np.zeros((8, 16), dtype=np.int64))
    reasons: dict[tuple[str, ...], int] = field(default_factory=dict)
    told: list[tuple[str, str, str]] = field(default_factory=list)
    memory: dict[int, float] = field(default_factory=dict)

    def unknown(self, gpu: Gpu, sizes: Sequence[int]) -> list[int]:
        """Batch sizes at which nothing is known of this GPU."""
        times = self.times[0, self.gpus[gpu.name]]
        return [size for size in sizes if np.isnan(times[self.sizes[size]])]

    def places(self, gpus: Sequence[Gpu], sizes: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns of GPUs and batch sizes that are all known here."""
        rows = np.array([self.gpus[gpu.name] for gpu in gpus])
        return rows[:, None], np.array([self.sizes[size] for size in sizes])

    def make_room(self, gpus: Sequence[Gpu], sizes: Sequence[int]) -> None:
        """Give every GPU and batch size a place."""
        for gpu in gpus:
            self.gpus.setdefault(gpu.name, len(self.gpus))
        for size in sizes:
            self.sizes.setdefault(size, len(self.sizes))
        self.told += [("", "", "")] * (len(self.gpus) - len(self.told))
        needs = (len(self.gpus), len(self.sizes))
        more = [(0, _doubled(room, need)) for room, need in zip(self.why.shape, needs, strict=True)]
        if any(add for _, add in more):
            self.times = np.pad(self.times, [(0, 0), *more], constant_values=np.nan)
            self.why = np.pad(self.why, more)

    def keep(self, gpu: Gpu, sizes: Sequence[int], forecast: IterationForecast) -> None:
        """Write a forecast down."""
        row, columns = self.gpus[gpu.name], [self.sizes[size] for size in sizes]
        for number, name in enumerate(TIMES):
            self.times[number, row, columns] = getattr(forecast, name)
        self.why[row, columns] = [
            self.reasons.setdefault(tuple(each), len(self.reasons)) for each in forecast.extrapolates
        ]
        self.told[row] = (forecast.host, forecast.method, forecast.trained_on)


class ForecastMemo:
    """Forecasts of one model, made when first asked for; the oldest sheets go when there are too many numbers."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._sheets: OrderedDict[_Key, _Sheet] = OrderedDict()
        self._lock = threading.Lock()

    def find(
        self,
        table: LayerTable,
        gpus: Sequence[Gpu],
        sizes: Sequence[int],
        mode: Mode,
        method: str = "auto",
        host: str | None = None,
    ) -> Grid | None:
        """What is known already, if all of it is; never calls the model.

        Parameters
        ----------
        table : LayerTable
            One of the zoo, which its name and image size tell.
        """
        with self._lock:
            sheet = self._sheets.get((table.cnn, table.image_size, mode, method, host))
            try:
                found = None if sheet is None else _read(sheet, gpus, sizes)
            except KeyError:  # a GPU or batch size that nobody asked about yet
                return None
        return None if found is None or np.isnan(found.times[0]).any() else found

    def grid(
        self,
        table: LayerTable,
        gpus: Sequence[Gpu],
        sizes: Sequence[int],
        mode: Mode,
        method: str = "auto",
        host: str | None = None,
    ) -> Grid:
        """Forecasts for every GPU at every batch size; errors as of `predictor.models.served.Model.forecast`."""
        sheet = self._sheet((table.cnn, table.image_size, mode, method, host), gpus, sizes)
        with self._lock:
            unknown = [(gpu, sheet.unknown(gpu, sizes)) for gpu in gpus]
            heavy = [size for size in sizes if size not in sheet.memory]
        made = [
            (
                gpu,
                some,
                _checked(self.model.forecast(table, gpu, mode, some, (), method, host), table, gpu, some),
            )
            for gpu, some in unknown
            if some
        ]
        memory = dict(zip(heavy, peak_memories_gib(table, heavy, mode), strict=True))
        with self._lock:
            sheet.memory |= memory
            for gpu, some, forecast in made:
                sheet.keep(gpu, some, forecast)
            return _read(sheet, gpus, sizes)

    def _sheet(self, key: _Key, gpus: Sequence[Gpu], sizes: Sequence[int]) -> _Sheet:
        with self._lock:
            sheet = self._sheets.pop(key, None) or _Sheet()
            if max(len({*sheet.gpus, *(g.name for g in gpus)}), len({*sheet.sizes, *sizes})) > _MOST_OF_AXIS:
                sheet = _Sheet()
            sheet.make_room(gpus, sizes)
            self._sheets[key] = sheet
            while len(self._sheets) > 1 and sum(s.times.size for s in self._sheets.values()) > _MOST_NUMBERS:
                self._sheets.popitem(last=False)
            return sheet


def _read(sheet: _Sheet, gpus: Sequence[Gpu], sizes: Sequence[int]) -> Grid:
    rows, columns = sheet.places(gpus, sizes)
    return Grid(
        sheet.times[:, rows, columns],
        sheet.why[rows, columns],
        list(sheet.reasons),
        [sheet.told[row] for row in rows[:, 0]],
        np.array([sheet.memory[size] for size in sizes]),
    )


def _checked(
    forecast: IterationForecast, table: LayerTable, gpu: Gpu, sizes: Sequence[int]
) -> IterationForecast:
    """Rule one: a model that answers nonsense is an error, not an answer, and is not kept."""
    for time_ms, size in zip(forecast.iteration_time_ms, sizes, strict=True):
        if not (np.isfinite(time_ms) and time_ms > 0):
            raise OutOfRangeError(
                f"the model gives {time_ms} ms for {table.cnn} on {gpu.name} at batch_size {size}, which is no time. "
                "Try a batch size nearer to 64, or another method."
            )
    return forecast


def _doubled(room: int, need: int) -> int:
    """How much room to add so that it suffices."""
    size = room
    while size < need:
        size *= 2
    return size - room
