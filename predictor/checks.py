"""Checks of what people type: whole numbers, positive times, yes-or-no words, each with a helpful message."""

import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from predictor.errors import OutOfRangeError, SchemaError

MAX_BATCH_SIZE = 65_536
MAX_IMAGE_SIZE = 16_384
LONGEST_MS = 86_400_000
"""A day: no iteration takes as long, so a longer time has another unit."""
MAX_SAMPLES = 10**11
SMALLEST, LARGEST = 1e-6, 1e12
"""Of times, prices and rates: what lies outside has another unit, or is a slip."""

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})

_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
_SUFFIXED = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<suffix>[kKM])")
_LEADING_ZERO = re.compile(r"0\d+")
_FACTORS = {"k": 1000, "K": 1000, "M": 1_000_000}
_TWO_READINGS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")


def whole_number(name: str, value: object, low: int = 1, high: int = MAX_SAMPLES) -> int:
    """Read a whole number.

    `name`: the quantity, for messages. `value`: a number, or text such as ``"64"``, ``"1,000"`` or ``"50k"``; an
    integral float counts. `low`, `high`: smallest and largest valid value. SchemaError if it is not a whole number, or
    a text such as ``"1.000"``, which may mean 1000; the message names the quantity. OutOfRangeError if it lies outside
    the range.
    """
    if isinstance(value, str) and _TWO_READINGS.fullmatch(value.strip()):
        meant = value.strip().replace(".", "")
        raise SchemaError(
            f"{name} {value!r} may mean two things: a dot can part thousands or decimals. Write {meant}, or the whole "
            "number without a dot."
        )
    number = value if type(value) is int else _as_integer(plain_number(value))
    if number is None:
        raise SchemaError(f"{name} {value!r} is not a whole number. Give one from {low} to {high:,}.")
    if not low <= number <= high:
        raise OutOfRangeError(
            f"{name} {number} lies outside {low}..{high:,}. Give a whole number in that range."
        )
    return number


def number_within(name: str, value: object, low: float = SMALLEST, high: float = LARGEST) -> float:
    """`value` as a float, `low` to `high`, 0 (never -0.0) only where `low` is; SchemaError for all else, NaN too."""
    valid = f"Give {'0, or ' * (low == 0)}one from {max(low, SMALLEST):g} to {high:,.10g}"
    try:
        number = float(plain_number(value))  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        raise SchemaError(f"{name} {value!r} is not a number. {valid}.") from None
    if isinstance(value, bool) or not low <= number <= high or 0 < number < SMALLEST:
        is_positive = not isinstance(value, bool) and 0 < number < math.inf
        wrong = ("too large" if number > high else "too small") if is_positive else "not a positive number"
        raise SchemaError(f"{name} {value!r} is {wrong}. {valid}; check its unit.")
    return number or 0.0


def plain_number(value: object) -> object:
    """A text such as ``1,281,167``, ``50k`` or ``1.2M`` without separators and suffix; everything else as it is.

    >>> [plain_number(text) for text in ("1,281,167", "50k", "1.2M", 64)]
    ['1281167', '50000', '1200000', 64]
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if _THOUSANDS.fullmatch(text):
        return text.replace(",", "")
    suffixed = _SUFFIXED.fullmatch(text)
    if suffixed is None:
        return value
    return format((Decimal(suffixed["number"]) * _FACTORS[suffixed["suffix"]]).normalize(), "f")


def yes_or_no(name: str, text: str) -> bool:
    """True for a cell such as ``true`` or ``1``, False for ``no`` or an empty one; SchemaError for anything else."""
    word = text.strip().casefold()
    if word not in _YES and word not in _NO:
        raise SchemaError(f"{name} {text!r} is neither true nor false. Write true or false.")
    return word in _YES


def batch_sizes_of(values: int | str | Iterable[object], name: str = "batch_size") -> list[int]:
    """Distinct checked batch sizes in ascending order, from one or many; a text may hold several.

    SchemaError if none is given, or one is not a whole number; OutOfRangeError if one lies outside 1 to
    `MAX_BATCH_SIZE`.
    """
    sizes_given = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    parts = [
        size for value in sizes_given for size in (value.split(",") if isinstance(value, str) else (value,))
    ]
    for size in parts:
        if isinstance(size, str) and _LEADING_ZERO.fullmatch(size.strip()):
            reason = f"a comma parts sizes, and {size.strip()!r} is none"
            raise SchemaError(f"{name}: {reason}. Write 1024 without a comma.")
    for value in sizes_given:
        if isinstance(value, str) and not all(map(str.strip, value.split(","))):
            raise SchemaError(f"{name} {value!r} has a comma with nothing beside it. Write sizes as 4,8.")
    if not parts:
        raise SchemaError(f"no {name} is given. Pass at least one, such as 64.")
    return sorted({whole_number(name, size, high=MAX_BATCH_SIZE) for size in parts})


def of_kind(name: str, value: Any, kinds: type | tuple[type, ...], right: str) -> Any:
    """`value` if it is of these types; else a SchemaError that names the argument and says what it takes: `right`."""
    if isinstance(value, kinds):
        return value
    raise SchemaError(f"{name} is {shown_value(value)}, and takes {right}.")


def shown_value(value: object) -> str:
    """A value of a wrong type in a message: None, a truth value, a number or bytes as it is, all else by its type."""
    plain = value is None or isinstance(value, bool | int | float | bytes)
    return repr(value) if plain else f"of type {type(value).__name__}"


def as_list(values: object) -> list[object]:
    """Members of a sequence or set as a list; another value, also None, as its only member."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | set | frozenset):
        return [values]
    return list(values)


def _as_integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    # int() of the text itself, so that large numbers keep every digit
    return int(value) if isinstance(value, int) else int(number) if number.is_integer() else None
