"""Forecasts on several devices as one array, apart from `forecast`, which questions import without numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.models.forecast import TIMES, IterationForecast

_WORDS = [field.name for field in fields(IterationForecast) if field.name not in TIMES]
_times_of, _words_of = attrgetter(*TIMES), attrgetter(*_WORDS)


@dataclass(frozen=True, slots=True, eq=False)
class Forecasts(Sequence[IterationForecast]):
    """Forecasts of iterations on several devices at the same batch sizes, whose times are one array.

    `times`, (n_times, n_devices, n_batches), has them in the order of `TIMES`; `words` the other fields of each device.
    """

    times: Array
    words: Sequence[tuple[Any, ...]]

    @classmethod
    def of(cls, forecasts: Sequence[IterationForecast]) -> Forecasts:
        """Forecasts of devices as one array; what is one already stays as it is."""
        if isinstance(forecasts, Forecasts):
            return forecasts
        return cls(np.array(list(map(_times_of, forecasts))).swapaxes(0, 1), list(map(_words_of, forecasts)))

    @classmethod
    def joined(cls, parts: Iterable[tuple[Sequence[int], Sequence[IterationForecast]]]) -> Forecasts:
        """Forecasts of all devices, from those of some of them and their positions, ascending."""
        of_places = [(own, cls.of(part)) for own, part in parts if own]
        forecasts = [part for _, part in of_places]
        if not forecasts:
            return cls(np.empty((len(TIMES), 0, 0)), [])
        if len(forecasts) == 1:
            return forecasts[0]
        order = np.argsort(np.concatenate([own for own, _ in of_places]))
        words = [words for part in forecasts for words in part.words]
        return cls(
            np.concatenate([part.times for part in forecasts], axis=1)[:, order],
            [words[i] for i in order.tolist()],
        )

    def column(self, name: str) -> list[Any]:
        """A field that is no time, of each device."""
        column = _WORDS.index(name)
        return [words[column] for words in self.words]

    def changed(self, change: Callable[[int, IterationForecast], IterationForecast]) -> Forecasts:
        """Forecasts after a change of each one, given its position."""
        return self.of([change(position, forecast) for position, forecast in enumerate(self)])

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return Forecasts(self.times[:, at], self.words[at])
        times = zip(TIMES, self.times[:, at], strict=True)
        return IterationForecast(**dict(times), **dict(zip(_WORDS, self.words[at], strict=True)))


def positions_of_modes(devices: Sequence[tuple[Gpu, Mode]]) -> dict[Mode, list[int]]:
    """Positions of the devices in each mode, ascending; devices share few modes, each of which is looked at once."""
    if len(devices) == 1:
        return {devices[0][1]: [0]}
    of_objects: dict[int, list[int]] = {}
    for position, (_, mode) in enumerate(devices):
        of_objects.setdefault(id(mode), []).append(position)
    of_modes: dict[Mode, list[int]] = {}
    for positions in of_objects.values():
        of_modes.setdefault(devices[positions[0]][1], []).extend(positions)
    return {mode: sorted(positions) for mode, positions in of_modes.items()}
