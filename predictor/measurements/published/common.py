"""What every importer of published measurements shares: its card, its report, and the gate for bad rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.errors import DataError, SchemaError, UnknownGpuError
from predictor.measurements.table import canonical_gpu_name, check_measurements

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ImportReport",
    "Importer",
    "Provenance",
    "finish",
    "published_file",
    "read_published",
    "reject",
]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a published data set comes from, for documentation and model cards."""

    project: str
    repository: str
    licence: str
    citation: str
    measured: str


@dataclass(slots=True)
class ImportReport:
    """What became of every row of a published table.

    `n_read` rows were in the file; `n_kept` of them stand behind the `n_measurements` rows of the result
    (repeats are summarised, and one row may hold several passes); `rejected` are (line of the file, reason);
    `oddities` are what a user of the data should know.
    """

    source: str
    n_read: int = 0
    n_kept: int = 0
    n_measurements: int = 0
    rejected: list[tuple[int, str]] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.source}: {self.n_read} rows read, {self.n_kept} kept "
            f"as {self.n_measurements} measurements, {len(self.rejected)} rejected",
            *(f"  line {line}: {reason}" for line, reason in self.rejected),
            *(f"  note: {oddity}" for oddity in self.oddities),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Importer:
    """One source of published measurements: its table's file name, its reader, and where it is from."""

    table: str
    read: Callable[[Path], tuple[pd.DataFrame, ImportReport]]
    provenance: Provenance


def published_file(path: Path, table: str) -> Path:
    """Find a published table: `path` itself if it is a file, else `table`, plain or gzipped, in that folder.

    Raises
    ------
    DataError
        If it is not there.
    """
    if path.is_file():
        return path
    for candidate in (path / table, path / table.removesuffix(".gz")):
        if candidate.is_file():
            return candidate
    raise DataError(f"there is no {table} at {path}. Pass the file, or the folder that holds it.")


def read_published(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """Read a published table whose index is then the line in its file.

    Raises
    ------
    DataError
        If the file cannot be read as CSV.
    SchemaError
        If it is empty or lacks one of `columns`.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path)
    except pd.errors.EmptyDataError:
        raise SchemaError(f"{path} is empty. Its columns should be {', '.join(columns)}.") from None
    except (pd.errors.ParserError, UnicodeDecodeError, EOFError, OSError) as error:
        raise DataError(f"{path} cannot be read as CSV: {error}. Is it damaged?") from error
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise SchemaError(f"{path} lacks the column {missing[0]!r}; it has: {', '.join(table.columns)}.")
    if table.empty:
        raise SchemaError(f"{path} has column names but no rows.")
    table.index = pd.RangeIndex(2, len(table) + 2, name="line")
    return table


def reject(
    table: pd.DataFrame, times: tuple[str, ...], report: ImportReport, optional: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Keep the rows that can be used, and put the others into the report with their line and the reason.

    A row is refused when a time in `times` is not a finite number above 0, or when its GPU's name means none
    or several of the catalogue. Times in `optional` may be missing, but not wrong.

    Raises
    ------
    SchemaError
        If no row is left.
    """
    report.n_read = len(table)
    reasons = _unknown_gpus(table)
    for name in (*times, *optional):
        given = table[name].dropna() if name in optional else table[name]
        reasons = _bad_times(given) | reasons
    report.rejected += sorted(reasons.items())
    kept = table.drop(index=list(reasons)).astype(dict.fromkeys((*times, *optional), float))
    report.n_kept = len(kept)
    if kept.empty:
        line, reason = report.rejected[0]
        raise SchemaError(f"no usable row is left of {report.source!r}. Line {line}: {reason}")
    return kept


def _unknown_gpus(table: pd.DataFrame) -> dict[int, str]:
    why = {name: _why_unknown(str(name)) for name in table["gpu"].unique()}
    return {line: why[name] for line, name in zip(_lines(table), table["gpu"], strict=True) if why[name]}


def _lines(table: pd.DataFrame | pd.Series) -> list[int]:
    return [int(line) for line in table.index]


def _why_unknown(name: str) -> str:
    if "radeon" in name.casefold():
        return f"{name!r} is not an NVIDIA GPU."
    try:
        canonical_gpu_name(name)
    except UnknownGpuError as error:
        return str(error)
    return ""


def _bad_times(times: pd.Series) -> dict[int, str]:
    import numpy as np
    import pandas as pd

    values = pd.to_numeric(times, errors="coerce").to_numpy(dtype=float)
    bad = times[~(np.isfinite(values) & (values > 0))]
    given = zip(_lines(bad), bad.tolist(), strict=True)
    return {line: f"{times.name} is {value}, not a time above 0." for line, value in given}


def finish(columns: dict[str, object], report: ImportReport) -> tuple[pd.DataFrame, ImportReport]:
    """Make the measurement table of these columns (a scalar stands for a whole column), checked."""
    import pandas as pd

    frame = check_measurements(pd.DataFrame(columns), f"published {report.source}")
    report.n_measurements = len(frame)
    return frame, report
