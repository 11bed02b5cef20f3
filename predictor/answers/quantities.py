"""Times, money and shares in words, as every face prints them."""

from __future__ import annotations

import math

_SHARP = 1.05  # upper / lower end of an interval up to which a third digit means something


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits, without exponent; empty for None and NaN."""
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


def _by_thousands(value: float | None, one: str, thousand: str, million: str) -> str:
    if value is None:
        return ""
    unit, size = (one, 1.0) if value < 1e3 else (thousand, 1e3) if value < 1e6 else (million, 1e6)
    return f"{number(value / size)} {unit}"


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
