"""Measurement tables: read, checked on entry, written; the border behind which every time is trusted.

Called by the importers, features, evaluation and the public face; calls measurement_columns and gpus. pandas is
imported inside the functions, so that predicting need not load it.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.errors import DataError, SchemaError, UnknownGpuError, nearest
from predictor.measurement_columns import COLUMNS, FORMAT_VERSION, SYNONYMS, Column, column

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS",
    "FORMAT_VERSION",
    "REQUIRED",
    "Column",
    "canonical_gpu_name",
    "check_measurements",
    "read_measurements",
    "summary",
    "write_measurements",
]

REQUIRED = tuple(entry.name for entry in COLUMNS if entry.required)
_TRUE, _FALSE = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no")


def read_measurements(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a measurement table from a CSV file, plain or gzipped, and check it.

    Parameters
    ----------
    path : path
        A file with at least the columns gpu, cnn, image_size, batch_size, precision and iteration_time_ms.

    Returns
    -------
    DataFrame
        Every column of `COLUMNS` in that order (what is unknown is missing), then the file's own further columns.

    Raises
    ------
    DataError
        If the file does not exist or is not a CSV.
    SchemaError
        If it is empty, lacks a column, or holds a value that cannot be right; the message names the line.
    UnknownGpuError
        If a GPU's name is unknown or fits several.
    """
    import pandas as pd

    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no measurement table at {path}. Pass the path of a .csv or .csv.gz file.")
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, skip_blank_lines=False)
    except pd.errors.EmptyDataError:
        raise SchemaError(
            f"{path} is empty. A measurement table needs the columns {', '.join(REQUIRED)}."
        ) from None
    except (pd.errors.ParserError, UnicodeDecodeError, EOFError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as CSV: {error}. Is it a damaged or another kind of file?"
        ) from error
    return check_measurements(frame, str(path), _place="line", _first=2)


def check_measurements(
    frame: pd.DataFrame, source_label: str, *, _place: str = "row", _first: int = 0
) -> pd.DataFrame:
    """Check a measurement table, fill what it leaves out, and normalise its words and GPU names.

    Parameters
    ----------
    frame : DataFrame
        One row per measurement; at least the required columns.
    source_label : str
        What error messages call the table, such as its path.

    Returns
    -------
    DataFrame
        A new table: all columns of `COLUMNS`, then unknown ones untouched. Text is `object` with None where
        missing, flags are `boolean`, required counts `int64`, all other numbers `float64` with NaN where missing.

    Raises
    ------
    SchemaError
        Naming the column, the row, the value and what would be right.
    UnknownGpuError
        As `predictor.gpus.find_gpu`.
    """
    import pandas as pd

    where = _Where(source_label, _place, _first)
    _check_columns(frame, source_label)
    frame = frame.reset_index(drop=True)
    checked: dict[str, Any] = {}
    for entry in COLUMNS:
        given = frame[entry.name] if entry.name in frame else pd.Series([None] * len(frame), dtype=object)
        checked[entry.name] = _CHECKS[entry.form](given, entry, where)
    _check_version(checked, where)
    _canonical_gpus(checked, where)
    own = {name: frame[name] for name in frame.columns if column(str(name)) is None}
    return pd.DataFrame({**checked, **own})


def write_measurements(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Check `frame` and write it as CSV (gzipped if the name ends in .gz), without columns that are all unknown."""
    checked = check_measurements(frame, str(path))
    checked["format_version"] = FORMAT_VERSION
    known = checked.dropna(axis="columns", how="all").copy()
    for name in known.columns:
        entry = column(str(name))
        if entry is not None and entry.form == "count":
            known[name] = known[name].astype("Int64")
    known.to_csv(path, index=False)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """What a measurement table holds, one row per (source, framework, kind, pass, precision, gpu).

    Columns: these six, then `measurements`, `cnns`, `image_sizes`, `batch_sizes` (counts, and the range of batch
    sizes as text) and the range of `iteration_time_ms`.
    """
    keys = ["source", "framework", "kind", "pass", "precision", "gpu"]
    return (
        frame.groupby(keys, dropna=False, sort=True)
        .agg(
            measurements=("iteration_time_ms", "size"),
            cnns=("cnn", "nunique"),
            image_sizes=("image_size", "nunique"),
            smallest_batch_size=("batch_size", "min"),
            largest_batch_size=("batch_size", "max"),
            shortest_iteration_time_ms=("iteration_time_ms", "min"),
            longest_iteration_time_ms=("iteration_time_ms", "max"),
        )
        .reset_index()
    )


def canonical_gpu_name(name: str) -> str:
    """The catalogue's name of a GPU; a CPU (`cpu:<model>`) keeps its own.

    Raises
    ------
    UnknownGpuError
        If the name is unknown or fits several GPUs.
    """
    from predictor.gpus import find_gpu

    return name if name.startswith("cpu:") else find_gpu(name).name


class _Where:
    """Names rows in error messages: a file's lines from its header on, a frame's rows from 0."""

    def __init__(self, label: str, place: str, first: int) -> None:
        self.label, self.place, self.first = label, place, first

    def refuse(self, given: pd.Series, bad: pd.Series, entry: Column, valid: str) -> None:
        """Raise for the first row where `bad` holds, if there is one, saying how many there are."""
        if not bad.any():
            return
        position = int(bad.to_numpy().argmax())
        value, more = given.iloc[position], int(bad.sum()) - 1
        shown = "is missing" if _is_blank(value) else f"is {str(value)!r}"
        others = f" ({more} further rows have the same fault)" if more else ""
        raise SchemaError(
            f"{self.label}, {self.place} {position + self.first}: {entry.name} {shown}{others}. Valid: {valid}."
        )


def _check_columns(frame: pd.DataFrame, label: str) -> None:
    names = [str(name) for name in frame.columns]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise SchemaError(
            f"{label} lacks the column {missing[0]!r}. Needed: {', '.join(REQUIRED)}; "
            f"it has: {', '.join(names) or 'none'}. Nearest: {nearest(missing[0], names)}."
        )
    if len(frame) == 0:
        raise SchemaError(f"{label} has column names but no measurement. Add at least one row.")
    known = [entry.name for entry in COLUMNS]
    for name in names:
        near = get_close_matches(name, known, n=1, cutoff=0.88)
        if column(name) is None and near:
            raise SchemaError(
                f"{label} has a column {name!r}: did you mean {near[0]!r}? Rename it, or remove it."
            )


def _is_blank(value: object) -> bool:
    return value is None or value != value or str(value).strip() in ("", "<NA>")


def _blank(given: pd.Series) -> pd.Series:
    return (
        given.isna() | (given.astype(str).str.strip() == "")
        if given.dtype.kind not in "iufb"
        else given.isna()
    )


def _text(given: pd.Series, entry: Column, where: _Where) -> pd.Series:
    blank = _blank(given)
    if entry.required:
        where.refuse(given, blank, entry, "any text")
    stripped = given.astype(object).where(~blank, None)
    return stripped.map(lambda value: None if value is None or value != value else str(value).strip()).astype(
        object
    )


def _word(given: pd.Series, entry: Column, where: _Where) -> pd.Series:
    text = _text(given, entry, where)
    ours = {value: _our_word(value) for value in text.dropna().unique()}
    words = text.map(lambda value: None if value is None or value != value else ours[value]).astype(object)
    unknown = words.notna() & ~words.isin(entry.words)
    valid = ", ".join(entry.words)
    where.refuse(given, unknown, entry, valid)
    return words


def _our_word(value: str) -> str:
    word = value.casefold()
    return SYNONYMS.get(word, word)


def _flag(given: pd.Series, entry: Column, where: _Where) -> pd.Series:
    import pandas as pd

    text = _text(given, entry, where)
    lower = text.map(lambda value: "" if value is None or value != value else value.casefold())
    where.refuse(given, ~lower.isin((*_TRUE, *_FALSE, "")), entry, "true or false")
    flags = lower.map(lambda value: True if value in _TRUE else False if value in _FALSE else pd.NA)
    return flags.astype("boolean")


def _number(given: pd.Series, entry: Column, where: _Where, valid: str) -> pd.Series:
    import numpy as np
    import pandas as pd

    blank = _blank(given)
    numbers = pd.to_numeric(given.where(~blank), errors="coerce").astype("float64")
    bad = ~np.isfinite(numbers) & ~blank
    where.refuse(given, bad | blank if entry.required else bad, entry, valid)
    return numbers


def _count(given: pd.Series, entry: Column, where: _Where) -> pd.Series:
    valid = f"a whole number of at least {entry.least}" + (f", in {entry.unit}" if entry.unit else "")
    numbers = _number(given, entry, where, valid)
    where.refuse(given, (numbers < entry.least) | (numbers.notna() & (numbers % 1 != 0)), entry, valid)
    return numbers.astype("int64") if entry.required else numbers


def _amount(given: pd.Series, entry: Column, where: _Where) -> pd.Series:
    valid = f"a number of at least 0, in {entry.unit}"
    numbers = _number(given, entry, where, valid)
    where.refuse(given, numbers < 0, entry, valid)
    return numbers


def _time(given: pd.Series, entry: Column, where: _Where) -> pd.Series:
    valid = f"a number above 0, in {entry.unit} (wrong unit, or a failed measurement?)"
    numbers = _number(given, entry, where, valid)
    where.refuse(given, numbers <= 0, entry, valid)
    return numbers


_CHECKS = {"text": _text, "word": _word, "flag": _flag, "count": _count, "amount": _amount, "time": _time}


def _check_version(checked: dict[str, Any], where: _Where) -> None:
    versions = checked["format_version"]
    other = versions.notna() & (versions != FORMAT_VERSION)
    if other.any():
        found = int(versions[other].iloc[0])
        raise SchemaError(
            f"{where.label} is a measurement table of format version {found}; this epochcast reads version "
            f"{FORMAT_VERSION}. Install the epochcast that wrote it, or import the data again."
        )
    checked["format_version"] = versions.fillna(FORMAT_VERSION).astype("int64")


def _canonical_gpus(checked: dict[str, Any], where: _Where) -> None:
    names = checked["gpu"]
    canonical: dict[str, str] = {}
    for name in names.unique():
        try:
            canonical[name] = canonical_gpu_name(name)
        except UnknownGpuError as error:
            line = int((names == name).to_numpy().argmax()) + where.first
            raise UnknownGpuError(f"{where.label}, {where.place} {line}: {error}") from None
    checked["gpu"] = names.map(canonical).astype(object)
    kind = names.map(lambda name: "cpu" if name.startswith("cpu:") else "gpu")
    checked["device_kind"] = checked["device_kind"].where(checked["device_kind"].notna(), kind).astype(object)
