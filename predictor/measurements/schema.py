"""The columns of a measurement table, and the checks that every table passes before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from predictor.catalogue import modes
from predictor.catalogue.rows import read_rows
from predictor.checks import LONGEST_MS
from predictor.errors import SchemaError
from predictor.files import data_file
from predictor.operator_types import ACTIVATION_KINDS, OPERATOR_TYPES

if TYPE_CHECKING:
    import pandas as pd

FORMAT_VERSION = 2
"""Version of the measurement table; rows of version 1 are read, too, and rows of another one refused.

Version 1 lacks `float32_matmul_precision`: its profiler computed matrix products of PyTorch's TF32 in TF32."""

KINDS = ("proxy", "operator", "target", "all_reduce")
PASSES = ("training", "forward_backward", "forward", "backward_input", "backward_weight")

SYNONYMS = {
    "amp": "amp_fp16",
    "fp16_mixed": "amp_fp16",
    "nhwc": "channels_last",
    "float32": "fp32",
    "float16": "fp16",
}
"""Synonyms in published tables -> our words; `fp32_or_tf32` (the source does not state which) stays."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the measurement table.

    `form` is one of text, word (of `words`), flag (true or false), count (a whole number of at least
    `least`), amount (a finite number of at least 0) and time (a finite number above 0).
    """

    name: str
    form: str
    about: str
    unit: str = ""
    required: bool = False
    least: int = 1

    @property
    def words(self) -> tuple[str, ...]:
        """Words that a column of words may hold; none of another form."""
        return _WORDS.get(self.name, ()) if self.form == "word" else ()


_WORDS: dict[str, tuple[str, ...]] = {
    "framework": (*modes.FRAMEWORKS, "cudnn"),
    "device_kind": ("gpu", "cpu"),
    "kind": KINDS,
    "pass": PASSES,
    "optimizer": modes.OPTIMIZERS,
    "precision": (*modes.PRECISIONS, "fp32_or_tf32"),
    "float32_matmul_precision": modes.FLOAT32_MATMUL_PRECISIONS,
    "memory_format": modes.MEMORY_FORMATS,
    "capture": modes.CAPTURES,
    "type": tuple(OPERATOR_TYPES),
    "activation_kind": ACTIVATION_KINDS,
}

COLUMNS = read_rows(Column, data_file("measurement_columns.csv"))
"""Columns of a measurement table in their order.

An operator's shape has the layer table's columns; `kind` is taken, so its activation is `activation_kind`."""

_BY_NAME = {entry.name: entry for entry in COLUMNS}


def column(name: str) -> Column | None:
    """Find the column of this name; None where the schema has none."""
    return _BY_NAME.get(name)


_FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": None}

_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class RowNames:
    """Names of rows in error messages: ``table.csv, line 3``."""

    label: str
    place: str
    numbers: Sequence[int]

    def name(self, position: int) -> str:
        """Name of the row at this position."""
        return f"{self.label}, {self.place} {self.numbers[position]}"

    def refuse(self, values: pd.Series, bad: pd.Series, entry: Column, valid: str) -> None:
        """Raise a SchemaError that names the first row where `bad` is true, if any, and counts the others."""
        if not bad.any():
            return
        position, more = int(bad.to_numpy().argmax()), int(bad.sum()) - 1
        value = values.iloc[position]
        text = str(value)
        missing = text.strip() in ("", "None", "<NA>")
        shown = "is missing" if missing else f"is {text if len(text) <= 80 else text[:77] + '...'!r}"
        more_rows = f" (as in {more} more rows)" if more else ""
        raise SchemaError(f"{self.name(position)}: {entry.name} {shown}{more_rows}. Valid: {valid}.")


def text_column(values: Sequence[str | None]) -> pd.Series:
    """Text column (dtype object) of `values` as they are: None stays None in every version of pandas."""
    import pandas as pd

    return pd.Series(list(values), dtype=object)


def missing_column(entry: Column, n_rows: int) -> pd.Series:
    """Column of `n_rows` unknown values in the checked form of `entry`, for a table that lacks the column."""
    import pandas as pd

    if entry.form in ("text", "word"):
        return text_column([None] * n_rows)
    if entry.form == "flag":
        return pd.Series([None] * n_rows, dtype="boolean")
    return pd.Series([float("nan")] * n_rows, dtype="float64")


def _blank(values: pd.Series) -> pd.Series:
    if values.dtype.kind in "iufb":
        return values.isna()
    return values.isna() | (values.astype(str).str.strip() == "")


def _text(given: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    blank = _blank(given)
    if entry.required:
        rows.refuse(given, blank, entry, "any text")
    values = zip(given.tolist(), blank.tolist(), strict=True)
    return text_column([None if missing else str(value).strip() for value, missing in values])


def _word(values: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    text = _text(values, entry, rows)
    ours = {value: SYNONYMS.get(value.casefold(), value.casefold()) for value in text.dropna().unique()}
    words = text_column([ours.get(value) for value in text])
    rows.refuse(values, words.notna() & ~words.isin(entry.words), entry, ", ".join(entry.words))
    return words


def _flag(values: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    import pandas as pd

    lower = [(value or "").casefold() for value in _text(values, entry, rows)]
    rows.refuse(values, pd.Series([value not in _FLAGS for value in lower]), entry, "true or false")
    return pd.Series([_FLAGS[value] for value in lower], dtype="boolean")


_VALID = {
    "count": "a whole number of at least {least}{unit}",
    "amount": "a number of at least 0{unit}",
    "time": "a number above 0{unit} (wrong unit, or a failed measurement?)",
}


def _number(values: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    """A count, an amount or a time."""
    import numpy as np
    import pandas as pd

    valid = _VALID[entry.form].format(least=entry.least, unit=f", in {entry.unit}" if entry.unit else "")
    blank = _blank(values)
    numbers = pd.to_numeric(values.where(~blank), errors="coerce").astype("float64")
    bad = pd.Series(~np.isfinite(numbers.to_numpy())) & (~blank | entry.required)
    rows.refuse(values, bad, entry, valid)
    bad = numbers <= 0 if entry.form == "time" else numbers < 0
    if entry.form == "count":
        bad = (numbers < entry.least) | (numbers.notna() & (numbers % 1 != 0))
    rows.refuse(values, bad, entry, valid)
    if entry.form == "count":
        rows.refuse(
            values, numbers > _EXACT, entry, f"at most {_EXACT:,}, up to which whole numbers are exact"
        )
    if entry.form == "time" and entry.unit == "ms":
        rows.refuse(values, numbers > LONGEST_MS, entry, f"at most {LONGEST_MS:,} ms, a day (wrong unit?)")
    return numbers.astype("int64") if entry.form == "count" and entry.required else numbers


CHECKS: dict[str, Callable[[pd.Series, Column, RowNames], pd.Series]] = {
    "text": _text,
    "word": _word,
    "flag": _flag,
    **dict.fromkeys(_VALID, _number),
}
"""By `Column.form`: each returns the checked column, or raises a SchemaError that names the row."""
