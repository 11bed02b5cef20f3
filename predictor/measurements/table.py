"""Reads, checks, writes and summarises measurement tables."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.catalogue.devices import find_gpu, is_cpu
from predictor.errors import DataError, SchemaError, UnknownGpuError, nearest
from predictor.files import data_root
from predictor.measurements.groups import is_set
from predictor.measurements.schema import (
    CHECKS,
    COLUMNS,
    FORMAT_VERSION,
    RowNames,
    column,
    missing_column,
    text_column,
)
from predictor.table_files import STANDARD, SUFFIXES, is_parquet, read_frame, write_frame

if TYPE_CHECKING:
    import pandas as pd


_WIDE = 0.1  # median_precision above which a time is called noisy; a prediction's interval is as wide
_DISTURBED = 0.3  # ln time that other work may add


def disturbed_rows(rows: pd.DataFrame) -> int:
    """Number of rows of a checked table measured while other work disturbed the machine."""
    return int(is_set(rows, "disturbed").sum())


def noise_of(rows: pd.DataFrame) -> float:
    """Noise of a checked table: a 90 % half width of ln time that all rows share; 0 if all rows are quiet.

    Root mean square over the rows of `median_precision` where that is above 10 %, and of 0.3 where other work disturbed
    the machine: then all times are too long by a factor that the repeats do not show. The 0.3 is a judgement.
    """
    precision = rows["median_precision"].fillna(0.0).to_numpy(dtype=float)
    wide = precision**2 * (precision > _WIDE)
    return float((wide + _DISTURBED**2 * is_set(rows, "disturbed")).mean() ** 0.5) if len(rows) else 0.0


def noise_by_batch_size(rows: pd.DataFrame) -> dict[int, tuple[str, ...]]:
    """Reasons to doubt the times of a checked series, by batch size; batch sizes without a reason are left out."""
    disturbed = is_set(rows, "disturbed")
    precision = rows["median_precision"].fillna(0.0).to_numpy(dtype=float)
    wide = precision > _WIDE
    reasons = {
        f"{disturbed.sum()} of {len(rows)} measurements were disturbed by other work": disturbed,
        f"{wide.sum()} of {len(rows)} measured times are uncertain by more than {100 * _WIDE:g} %, "
        f"at worst by {100 * precision.max(initial=0.0):g} %": wide,
    }
    reasons_by_size: dict[int, tuple[str, ...]] = {}
    for reason, marks in reasons.items():
        for size in dict.fromkeys(rows["batch_size"][marks].tolist()):
            reasons_by_size[int(size)] = (*reasons_by_size.get(int(size), ()), reason)
    return reasons_by_size


# What tables written before there were columns for it say in their notes.
_OLD_DISTURBED = "disturbed:"
_OLD_PRECISION = re.compile(r"(\w+) time's median known to (\d+(?:\.\d+)?) %")


def _noise_of_old_notes(checked: dict[str, pd.Series]) -> dict[str, pd.Series]:
    """`median_precision` and `disturbed`, from the notes of old tables where the columns are empty."""
    import pandas as pd

    notes = checked["notes"]
    marks = _OLD_DISTURBED, "known to"
    telling = [(i, note) for i, note in enumerate(notes) if note and any(mark in note for mark in marks)]
    if not telling:
        return {}
    precision, disturbed = checked["median_precision"].tolist(), checked["disturbed"].tolist()
    for i, note in telling:
        # The host's time spreads by itself, and is left out.
        percents = [float(value) for name, value in _OLD_PRECISION.findall(note) if name != "host"]
        if percents and precision[i] != precision[i]:
            precision[i] = max(percents) / 100
        if _OLD_DISTURBED in note and disturbed[i] is pd.NA:
            disturbed[i] = True
    return {"median_precision": pd.Series(precision), "disturbed": pd.Series(disturbed, dtype="boolean")}


REQUIRED = tuple(entry.name for entry in COLUMNS if entry.required)
"""The columns that no measurement can do without."""


def read_measurements(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a measurement table from a file by its suffix (`predictor.table_files`), and check it.

    `path`: a file with at least the columns gpu, cnn, image_size, batch_size, precision and iteration_time_ms. Gives
    rows as `check_measurements`. DataError if the file does not exist or is not what its suffix says. SchemaError if it
    is empty, lacks a column, or holds a value that cannot be right; the message names the line. UnknownGpuError if a
    GPU's name is unknown or fits several.
    """
    path = Path(path)
    if str(path) != STANDARD and not path.is_file():
        raise DataError(
            f"there is no measurement table at {path}. "
            + (_unfinished(path) or f"Pass the path of a {', '.join(SUFFIXES)} file.")
        )
    frame = read_frame(path)
    if not len(frame.columns):
        raise SchemaError(f"{path} is empty. A measurement table needs {', '.join(REQUIRED)}.")
    frame.columns = [str(name).strip() for name in frame.columns]
    if is_parquet(path):
        return _check(frame, RowNames(str(path), "row", range(1, len(frame) + 1)))
    frame = frame[(frame.fillna("") != "").any(axis="columns")]  # an empty line is no measurement
    return _check(frame, RowNames(str(path), "line", [int(position) + 2 for position in frame.index]))


def _unfinished(table: Path) -> str:
    """What to do about the run that has not yet written a table; empty if there is none."""
    rows = table.with_name(f"{table.name}.rows.jsonl")
    if not rows.is_file():
        return ""
    with suppress(ModuleNotFoundError), rows.open("rb") as lines:  # on Windows nothing is measured
        import fcntl

        try:
            fcntl.flock(lines, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # a run holds the lock while it measures
            return "Its run goes on: the table comes at its end, or when Ctrl-C ends it."
    again = "repeat the command that measured, with --time-limit 1s to write what there is."
    return f"Its run was stopped: {again}"


def read_own_tables(kind: str, command: str) -> pd.DataFrame:
    """The project's own tables whose names end in a kind, such as ``ddp``.

    DataError if there are none; the message names the `command` that measures one.
    """
    import pandas as pd

    root = data_root() / "measurements"
    paths = sorted(root.glob(f"*_{kind}.csv.gz"))
    if not paths:
        raise DataError(f"{root} has no *_{kind}.csv.gz. Measure one with `{command}`.")
    return pd.concat([read_measurements(path) for path in paths], ignore_index=True)


def check_measurements(
    frame: pd.DataFrame, source_label: str, place: str = "row", numbers: Sequence[int] | None = None
) -> pd.DataFrame:
    """Check a measurement table, add the columns that it lacks, and normalise its words and GPU names.

    `frame`: one row per measurement; at least the required columns. `source_label`: what error messages call the table,
    such as its path. `place`, `numbers`: how error messages name rows, such as ``line`` and each row's line; by default
    rows from 0. Gives a new table: all columns of `COLUMNS`, then unknown ones untouched. Text is `object` with None
    where missing, flags are `boolean`, required counts `int64`, other numbers `float64` with NaN where missing.
    SchemaError naming the column, the row, the value and what would be right; UnknownGpuError as
    `predictor.catalogue.devices.find_gpu`.
    """
    return _check(frame, RowNames(source_label, place, range(len(frame)) if numbers is None else numbers))


def write_measurements(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Check `frame` and write it by the suffix of `path` (`predictor.table_files`), without its unknown columns.

    OSError as `predictor.files.replacing`.
    """
    checked = check_measurements(frame, "the table to write").dropna(axis="columns", how="all")
    counts = [entry.name for entry in COLUMNS if entry.form == "count" and entry.name in checked]
    write_frame(checked.astype(dict.fromkeys(counts, "Int64")), path)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Count the rows of a measurement table, one row per (source, framework, kind, pass, precision, gpu).

    Columns: these six; the counts `measurements`, `cnns` and `image_sizes`; `smallest_batch_size`,
    `largest_batch_size`, `shortest_iteration_time_ms` and `longest_iteration_time_ms`.
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
    """Give a GPU the catalogue's name; a CPU (`cpu:<model>`) keeps its own.

    UnknownGpuError if the name is unknown or fits several GPUs.
    """
    return name if is_cpu(name) else find_gpu(name).name


def _check(frame: pd.DataFrame, rows: RowNames) -> pd.DataFrame:
    import pandas as pd

    frame = frame.reset_index(drop=True)
    # The version first, since another version may have other columns.
    for position, cell in enumerate(frame.get("format_version", ())):
        version = str(cell).strip().removesuffix(".0")
        if version not in ("", "nan", "None", "<NA>", "1", str(FORMAT_VERSION)):
            raise SchemaError(
                f"{rows.name(position)}: a measurement table of format version {version!r}; this epochcast "
                f"reads version {FORMAT_VERSION}. Install the epochcast that wrote it, or import again."
            )
    _check_columns(frame, rows.label)
    checked: dict[str, pd.Series] = {}
    for entry in COLUMNS:
        if entry.name in frame:
            checked[entry.name] = CHECKS[entry.form](frame[entry.name], entry, rows)
        else:
            checked[entry.name] = missing_column(entry, len(frame))
    checked |= _upgraded(checked) | _devices(checked, rows) | _noise_of_old_notes(checked)
    own = {str(name): frame[name] for name in frame.columns if column(str(name)) is None}
    return pd.DataFrame(checked | own)


def _upgraded(checked: dict[str, pd.Series]) -> dict[str, pd.Series]:
    """Rows of version 1 as rows of this version; a row without a version is of this one."""
    old = checked["format_version"] == 1
    of_pytorch = checked["framework"].fillna("pytorch") == "pytorch"
    setting = checked["float32_matmul_precision"]
    both_tf32 = old & of_pytorch & (checked["precision"] == "tf32") & setting.isna()
    return {
        "format_version": old.astype("int64") * 0 + FORMAT_VERSION,
        "float32_matmul_precision": setting.mask(both_tf32, "high"),
    }


def _check_columns(frame: pd.DataFrame, label: str) -> None:
    names = [str(name) for name in frame.columns]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise SchemaError(
            f"{label} lacks the column {missing[0]!r}. Needed: {', '.join(REQUIRED)}; "
            f"it has: {', '.join(names)}. Nearest: {nearest(missing[0], names)}."
        )
    if len(frame) == 0:
        raise SchemaError(f"{label} has column names but no measurement. Add at least one row.")
    for name in names:
        # a column of your own, unless its name is a misspelling of one of ours, or occurs twice
        if names.count(name) > 1 or (name.endswith(".1") and name.removesuffix(".1") in names):
            raise SchemaError(f"{label} has the column {name.removesuffix('.1')!r} twice. Remove one.")
        near = get_close_matches(name, [entry.name for entry in COLUMNS], n=1, cutoff=0.82)
        if column(name) is None and near:
            raise SchemaError(
                f"{label} has a column {name!r}: did you mean {near[0]!r}? Rename it, or remove it."
            )


def _devices(checked: dict[str, pd.Series], rows: RowNames) -> dict[str, pd.Series]:
    """Canonical GPU names, and the kind of each device."""
    names: list[str] = checked["gpu"].tolist()
    canonical: dict[str, str] = {}
    for position, name in enumerate(names):
        if name not in canonical:
            try:
                canonical[name] = canonical_gpu_name(name)
            except UnknownGpuError as error:
                raise UnknownGpuError(f"{rows.name(position)}: {error}") from None
    kinds = zip(checked["device_kind"], names, strict=True)
    return {
        "gpu": text_column([canonical[name] for name in names]),
        "device_kind": text_column([kind or ("cpu" if is_cpu(name) else "gpu") for kind, name in kinds]),
    }
