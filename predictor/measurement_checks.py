"""One check per form of column: from whatever a table holds to typed values, or an error that names the row.

Called by measurements; calls measurement_columns and the error tree. pandas is imported inside the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from predictor.errors import SchemaError
from predictor.measurement_columns import SYNONYMS, Column

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHECKS", "Rows", "missing_column", "text_column"]

_FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": None}

_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Rows:
    """Names rows in error messages: ``table.csv, line 3``."""

    label: str
    place: str
    numbers: Sequence[int]

    def name(self, position: int) -> str:
        """Where the row at this position stands."""
        return f"{self.label}, {self.place} {self.numbers[position]}"

    def refuse(self, given: pd.Series, bad: pd.Series, entry: Column, valid: str) -> None:
        """Raise a SchemaError for the first row where `bad` holds, if any, saying how many there are."""
        if not bad.any():
            return
        position, more = int(bad.to_numpy().argmax()), int(bad.sum()) - 1
        value = given.iloc[position]
        text = str(value)
        missing = text.strip() in ("", "None", "<NA>")
        shown = "is missing" if missing else f"is {text if len(text) <= 80 else text[:77] + '...'!r}"
        others = f" (as in {more} more rows)" if more else ""
        raise SchemaError(f"{self.name(position)}: {entry.name} {shown}{others}. Valid: {valid}.")


def text_column(values: Sequence[str | None]) -> pd.Series:
    """Make a text column in which missing is None, whatever this version of pandas would make of it."""
    import pandas as pd

    return pd.Series(list(values), dtype=object)


def missing_column(entry: Column, n_rows: int) -> pd.Series:
    """Make what a check makes of a column in which nothing is given, without checking: tables lack most columns."""
    import pandas as pd

    if entry.form in ("text", "word"):
        return text_column([None] * n_rows)
    if entry.form == "flag":
        return pd.Series([None] * n_rows, dtype="boolean")
    return pd.Series([float("nan")] * n_rows, dtype="float64")


def _blank(given: pd.Series) -> pd.Series:
    if given.dtype.kind in "iufb":
        return given.isna()
    return given.isna() | (given.astype(str).str.strip() == "")


def _text(given: pd.Series, entry: Column, rows: Rows) -> pd.Series:
    blank = _blank(given)
    if entry.required:
        rows.refuse(given, blank, entry, "any text")
    values = zip(given.tolist(), blank.tolist(), strict=True)
    return text_column([None if missing else str(value).strip() for value, missing in values])


def _word(given: pd.Series, entry: Column, rows: Rows) -> pd.Series:
    text = _text(given, entry, rows)
    ours = {value: _our_word(value) for value in text.dropna().unique()}
    words = text_column([None if value is None else ours[value] for value in text])
    rows.refuse(given, words.notna() & ~words.isin(entry.words), entry, ", ".join(entry.words))
    return words


def _our_word(value: str) -> str:
    word = value.casefold()
    return SYNONYMS.get(word, word)


def _flag(given: pd.Series, entry: Column, rows: Rows) -> pd.Series:
    import pandas as pd

    lower = [(value or "").casefold() for value in _text(given, entry, rows)]
    rows.refuse(given, pd.Series([value not in _FLAGS for value in lower]), entry, "true or false")
    return pd.Series([_FLAGS[value] for value in lower], dtype="boolean")


def _number(given: pd.Series, entry: Column, rows: Rows, valid: str) -> pd.Series:
    import numpy as np
    import pandas as pd

    blank = _blank(given)
    numbers = pd.to_numeric(given.where(~blank), errors="coerce").astype("float64")
    bad = pd.Series(~np.isfinite(numbers.to_numpy())) & (~blank | entry.required)
    rows.refuse(given, bad, entry, valid)
    return numbers


def _count(given: pd.Series, entry: Column, rows: Rows) -> pd.Series:
    valid = f"a whole number of at least {entry.least}" + (f", in {entry.unit}" if entry.unit else "")
    numbers = _number(given, entry, rows, valid)
    rows.refuse(given, (numbers < entry.least) | (numbers.notna() & (numbers % 1 != 0)), entry, valid)
    rows.refuse(given, numbers > _EXACT, entry, f"at most {_EXACT:,}, up to which whole numbers are exact")
    return numbers.astype("int64") if entry.required else numbers


def _amount(given: pd.Series, entry: Column, rows: Rows) -> pd.Series:
    valid = f"a number of at least 0, in {entry.unit}"
    numbers = _number(given, entry, rows, valid)
    rows.refuse(given, numbers < 0, entry, valid)
    return numbers


def _time(given: pd.Series, entry: Column, rows: Rows) -> pd.Series:
    valid = f"a number above 0, in {entry.unit} (wrong unit, or a failed measurement?)"
    numbers = _number(given, entry, rows, valid)
    rows.refuse(given, numbers <= 0, entry, valid)
    return numbers


CHECKS: dict[str, Callable[[pd.Series, Column, Rows], pd.Series]] = {
    "text": _text,
    "word": _word,
    "flag": _flag,
    "count": _count,
    "amount": _amount,
    "time": _time,
}
"""By `Column.form`: each returns the checked column, or raises a SchemaError that names the row."""
