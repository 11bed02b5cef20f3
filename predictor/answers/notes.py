"""Words of answers: quantities as every face prints them, reasons for caution with remedies, and notes by priority.

Faces choose reasons and notes by kind and priority, and never read a text.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal

from predictor.models import forecast
from predictor.models.forecast import Kind

REMEDIES: dict[str, str | None] = {
    kind: remedy or None
    for remedy, kinds in json.loads(Path(__file__).with_name("remedies.json").read_text("utf-8")).items()
    for kind in kinds
}
"""What to do about each kind of reason; None where nothing but the reason itself helps."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an answer extrapolates, and what would narrow its interval; `remedy` is None where only the text helps."""

    kind: Kind
    text: str
    remedy: str | None

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def reason_of(kind: Kind, text: str) -> Reason:
    """A reason with the remedy of its kind."""
    return Reason(kind, text, REMEDIES[kind])


def as_answered(reasons: Iterable[forecast.Reason]) -> tuple[Reason, ...]:
    """The reasons of a forecast as answers show them: those first that widen the interval most."""
    widest_first = sorted(reasons, key=lambda reason: -reason.widens - reason.spread)
    return tuple(reason_of(reason.kind, reason.text) for reason in widest_first)


def remedy_of(reasons: Iterable[Reason]) -> str | None:
    """Remedy of the first reason that has one, widest first; None if no reason has one."""
    return next((reason.remedy for reason in reasons if reason.remedy is not None), None)


@dataclass(frozen=True, slots=True)
class EnergyBasis:
    """What the energy on a GPU rests on, or why it is unknown."""

    kind: Literal["measured", "estimated", "unknown"]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Co2Basis:
    """The grid that CO2 is counted of, with its grams a kilowatt-hour, or why it is unknown."""

    kind: Literal["published", "unknown"]
    text: str

    def __str__(self) -> str:
        return self.text


class Priority(IntEnum):
    """How much a note matters: the lowest number comes first."""

    CHANGE = 0
    """What another line of the user's code would give; shown beside the verdict."""
    BEWARE = 1
    """The answer may be wrong: a broken CNN, an anchor far from the model."""
    LIMIT = 2
    """What limits the training or rules better offers out."""
    REMEDY = 3
    """What would narrow the interval."""
    DETAIL = 4
    """What is paid for, counted or assumed."""
    VERBOSE = 5
    """Shown only to those who ask for everything."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence or two, and how much they matter."""

    priority: Priority
    text: str

    def __str__(self) -> str:
        return self.text


def batch_in_words(batch_size: int, *, is_usual: bool) -> str:
    """``batch 256``, and that it is the usual one where none was given."""
    return f"batch {batch_size:,}" + " (the usual one, since none is given)" * is_usual


def sharing_in_words(per_gpu: int, beside: str | None) -> str:
    """With whom a training shares its GPU: ``one of 4 trainings on the GPU``; empty if with none."""
    return f"beside {beside}" if beside else f"one of {per_gpu} trainings on the GPU" * (per_gpu > 1)


def notes_of(priority: Priority, *texts: str) -> list[Note]:
    """A note of this priority for each text that is not empty."""
    return [Note(priority, text) for text in texts if text]


_SHARP = 1.05  # upper / lower end of an interval up to which a third digit means something


class Spoken:
    """Base of answers that Python and notebooks show by their `sentence` and what belongs to it."""

    __slots__ = ()

    def lines(self) -> list[str]:
        """What belongs to the sentence, a line each."""
        return []

    def __repr__(self: Any) -> str:
        return "\n".join([self.sentence, *self.lines()])

    def _repr_html_(self: Any) -> str:
        from html import escape  # for notebooks alone

        lines = "".join(f"<li>{escape(line)}</li>" for line in self.lines())
        return f"<p><strong>{escape(self.sentence)}</strong></p>" + f"<ul>{lines}</ul>" * bool(lines)


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits or more, as in ``1,234``; empty for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def rounded(value: float, digits: int = 2) -> str:
    """`value` rounded to `digits` significant digits: ``120`` for 123.4."""
    return number(float(f"{value:.{digits}g}"), digits)


def duration(seconds: float | None) -> str:
    """Seconds as ``12.3 s``, ``4.56 min`` or ``7.89 h``; empty for None."""
    if seconds is None:
        return ""
    unit, size = _unit(seconds)
    return f"{number(seconds / size)} {unit}"


def rounded_duration(seconds: float) -> str:
    """Seconds with two significant digits, in the unit of `duration`."""
    unit, size = _unit(seconds)
    return f"{rounded(seconds / size)} {unit}"


def duration_estimate(seconds: float, low: float, high: float) -> str:
    """Seconds with their interval in one unit, with as many digits as the interval gives meaning to.

    >>> duration_estimate(61_900.0, 58_000.0, 69_100.0)
    '17 h (16-19)'
    """
    unit, size = _unit(seconds)
    middle, *ends = _meant(low, high, seconds / size, low / size, high / size)
    return f"{middle} {unit} ({'-'.join(ends)})"


def estimate(value: float, low: float, high: float) -> str:
    """A quantity with its interval, as `duration_estimate`: ``120 (94-160)``."""
    middle, *ends = _meant(low, high, value, low, high)
    return f"{middle} ({'-'.join(ends)})"


def _meant(low: float, high: float, *values: float) -> list[str]:
    """Values with two significant digits; with three where the interval is sharp."""
    digits = 3 if high <= _SHARP * low else 2
    return [rounded(value, digits) for value in values]


def co2(grams: float | None) -> str:
    """Grams of CO2 equivalent in g, kg or t; empty where they are not known."""
    return _by_thousands(grams, "g", "kg", "t")


def energy(watt_hours: float | None) -> str:
    """Watt-hours as ``12.3 Wh``, ``4.56 kWh`` or ``7.89 MWh``; empty for None."""
    return _by_thousands(watt_hours, "Wh", "kWh", "MWh")


def _by_thousands(value: float | None, unit: str, thousands: str, millions: str) -> str:
    if value is None:
        return ""
    scaled, size = (unit, 1.0) if value < 1e3 else (thousands, 1e3) if value < 1e6 else (millions, 1e6)
    return f"{number(value / size)} {scaled}"


def usd(value: float) -> str:
    """US$ with three digits: ``US$ 85.5``."""
    return f"US$ {number(value)}"


def percent(probability: float) -> str:
    """A probability in whole percent; ``under 1 %`` and ``over 99 %`` at the ends, which no data can tell apart."""
    if probability < 0.01:
        return "under 1 %"
    return "over 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"


def _unit(seconds: float) -> tuple[str, float]:
    return ("s", 1.0) if seconds < 120 else ("min", 60.0) if seconds < 7200 else ("h", 3600.0)
