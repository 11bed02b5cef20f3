"""Times, money and shares in words, as every face prints them."""

from __future__ import annotations

import math

__all__ = ["duration", "energy", "number", "percent", "span", "usd"]


def number(value: float | None, digits: int = 3) -> str:
    """`value` with so many significant digits, without exponent; empty for None and NaN."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def duration(seconds: float | None) -> str:
    """Seconds as ``12.3 s``, ``4.56 min`` or ``7.89 h``; empty for None."""
    if seconds is None:
        return ""
    unit, size = _unit(seconds)
    return f"{number(seconds / size)} {unit}"


def span(low: float | None, high: float | None, like: float | None) -> str:
    """Write an interval in seconds in the unit that `duration` gives `like`; empty for None."""
    if low is None or high is None or like is None:
        return ""
    unit, size = _unit(like)
    return f"{number(low / size)}-{number(high / size)} {unit}"


def energy(watt_hours: float | None) -> str:
    """Watt-hours as ``12.3 Wh``, ``4.56 kWh`` or ``7.89 MWh``; empty for None."""
    if watt_hours is None:
        return ""
    unit, size = ("Wh", 1.0) if watt_hours < 1e3 else ("kWh", 1e3) if watt_hours < 1e6 else ("MWh", 1e6)
    return f"{number(watt_hours / size)} {unit}"


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
