"""Evenly spread numbers, from which the designed libraries draw their shapes, and the order to measure them in.

Every function gives the same numbers on every machine, so the code defines the library.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from typing import TypeVar

_T = TypeVar("_T")

_USUAL_SIDES = (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224)
_SHARE_OF_USUAL_SIDES = 0.55
_GOLDEN = 0.6180339887498949


class Draw:
    """One point of the space of shapes: its first coordinates fill the space evenly, the rest are random.

    `point`: coordinates in 0..1, taken one by one by `between`. `random`: seeded; decides kinds, such as a bias or
    none, rather than sizes.
    """

    def __init__(self, point: Sequence[float], random: Random) -> None:
        self._left = iter(point)
        self._random = random

    def between(self, low: float, high: float) -> float:
        """Return a number of low..high; equal steps of the coordinate are equal ratios."""
        return float(low * (high / low) ** next(self._left))

    def side(self, low: int, high: int) -> int:
        """Height and width of a feature map: any, and half the time one that image sizes halve to."""
        side = self.between(low, high)
        usual = [usual_side for usual_side in _USUAL_SIDES if low <= usual_side <= high]
        if usual and self.happens(_SHARE_OF_USUAL_SIDES):
            return min(usual, key=lambda usual_side: max(usual_side / side, side / usual_side))
        return round(side)

    def channels(self, width: float) -> int:
        """Round to a number of channels: mostly multiples of 8 (above 256 of 32), some of 2, some odd."""
        kind = self._random.random()
        step = 8 if kind < 0.72 and width >= 12 else 2 if kind < 0.88 else 1
        if width > 256 and kind < 0.4:
            step = 32
        return max(step, round(width / step) * step) if step > 1 else max(1, round(width) // 2 * 2 + 1)

    def happens(self, share: float) -> bool:
        """Return True in this share of the draws."""
        return self._random.random() < share

    def one_of(self, choices: Sequence[_T]) -> _T:
        """Return one of the choices, each as likely."""
        return choices[int(self._random.random() * len(choices))]


def draws(seed: str, dimensions: int = 3) -> Iterator[Draw]:
    """Endless draws; the first n of them fill the space about as evenly as n points can.

    Additive recurrence with the generalized golden ratio, x^(d+1) = x + 1 (M. Roberts, "The unreasonable effectiveness
    of quasirandom sequences", 2018), shifted by the seed.
    """
    random = Random(seed)  # noqa: S311 - shapes, no secrets
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    steps = [ratio ** -(axis + 1) for axis in range(dimensions)]
    starts = [random.random() for _ in steps]
    for number in count():
        point = [(start + number * step) % 1 for start, step in zip(starts, steps, strict=True)]
        yield Draw(point, random)


def spread_order(values: Sequence[_T]) -> list[_T]:
    """Reorder by golden-ratio steps: every first part of the list is then spread over the whole of it."""
    ranks = [(position * _GOLDEN) % 1 for position in range(len(values))]
    return [values[position] for position in sorted(range(len(values)), key=ranks.__getitem__)]
