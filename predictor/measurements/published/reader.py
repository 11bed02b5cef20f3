"""The reader of published tables: a data set maps its columns to ours; the report of an import."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.cnns.layer_table import LayerTable
from predictor.errors import DataError, SchemaError, UnknownGpuError
from predictor.files import data_file
from predictor.measurements.published.convolutions import operator_columns
from predictor.measurements.table import canonical_gpu_name, check_measurements

if TYPE_CHECKING:
    import pandas as pd

LayerTables = dict[tuple[str, int], LayerTable]
"""By CNN name, as in the measurement table, and image size."""


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


Column = str | Callable[["pd.DataFrame"], Any]
"""A column of a published table, taken as it is, or a function of its rows."""

Layers = Callable[[str, int], LayerTable | None]
"""Layer table of a CNN by its name and image size; None if its structure is not known."""

_ALWAYS = ("gpu", "framework", "precision", "batch_size")


@dataclass(frozen=True, slots=True)
class DataSet:
    """A published table as a map of our columns (`predictor.measurements.schema`) to those of its project.

    Every table has `gpu`, `framework` (``name-version``), `precision`, `batch_size` and, but for bare convolutions,
    `cnn` and `image_size`, which mean what ours do.

    Parameters
    ----------
    name : str
        The `source` of its rows.
    table : str
        File name, with its ``.csv.gz``.
    holds : mapping
        What all its iterations hold and share, by column: `kind`, `pass`, `optimizer`, whether an iteration copies its
        images from the host (`copies_input`), whether it waits for a loader (`waits_for_loader`). What is left out is
        unknown, or differs by row and is computed.
    times : tuple of str
        Its columns that must be times above 0; rows where one is not are rejected.
    columns : mapping
        Our column -> its column or a function of its arranged rows.
    oddities : callable
        What a user of the data should know, from the rows that are kept.
    prefix : str
        Begins the names of its CNNs: ``prefix/cnn``. Empty for bare convolutions, which are named by their shapes.
    aliases : mapping
        Its names of CNNs -> ours, without prefix.
    shapes : callable, optional
        Shapes of bare convolutions, for `operator_columns`.
    optional_times : tuple of str
        Times that may be missing, but not wrong.
    needed : tuple of str
        Columns that functions read besides.
    arranged : callable
        One row per measurement from the rows that are kept.
    layers : callable, optional
        Layer tables of its CNNs, by its name and image size.
    read_layers : callable, optional
        Layer tables of its CNNs that a file of their own lists, from the folder of published tables.
    """

    name: str
    table: str
    holds: Mapping[str, object]
    times: tuple[str, ...]
    columns: Mapping[str, Column]
    oddities: Callable[[pd.DataFrame], list[str]]
    prefix: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    shapes: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    optional_times: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    arranged: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table
    layers: Layers | None = None
    read_layers: Callable[[Path], LayerTables] | None = None

    @property
    def provenance(self) -> Provenance:
        """Source and licence of the data set, a row of ``published_sources.csv``."""
        return provenances()[self.name]

    @property
    def has_layers(self) -> bool:
        """Whether the layers of the data set's CNNs are known."""
        return self.layers is not None or self.read_layers is not None

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that the published table must have."""
        names = dict.fromkeys((*_ALWAYS, "cnn", "image_size") if self.prefix else _ALWAYS)
        taken = [column for column in self.columns.values() if isinstance(column, str)]
        same = (name for name in names if not isinstance(self.columns.get(name), str))
        return tuple(dict.fromkeys((*same, *taken, *self.times, *self.optional_times, *self.needed)))

    def read(self, path: Path) -> tuple[pd.DataFrame, ImportReport]:
        """Make the measurement table of a file, and a report of what became of each row.

        DataError if the file cannot be read as CSV; SchemaError if it lacks a column, or no usable row is left.
        """
        import pandas as pd

        report = ImportReport(self.name)
        table = _usable(read_published(path, self.required), self.times, self.optional_times, report)
        report.oddities += self.oddities(table)
        rows = self.arranged(table)
        versions = rows["framework"].str.partition("-")
        columns: dict[str, Any] = {"source": self.name, "n_gpus": 1, **self.holds}
        columns |= {"framework": versions[0], "framework_version": versions[2]}
        own = {name: name for name in ("gpu", "precision", "batch_size")} | dict(self.columns)
        for name, taken in own.items():
            columns[name] = rows[taken] if isinstance(taken, str) else taken(rows)
        if self.prefix:
            names = rows["cnn"].replace(dict(self.aliases))
            columns |= {"cnn": f"{self.prefix}/" + names, "image_size": rows["image_size"]}
        if self.shapes is not None:
            columns |= operator_columns(self.name, self.shapes(rows))
        frame = check_measurements(pd.DataFrame(columns), f"published {self.name}")
        report.n_measurements = len(frame)
        return frame, report

    def layer_tables(self, folder: Path) -> LayerTables:
        """Layer tables of the data set's CNNs, from the folder of published tables; empty if the file is missing."""
        if self.read_layers is not None:
            return self.read_layers(folder)
        path = find_published(folder, self.table)
        if path is None or self.layers is None:
            return {}
        rows = read_published(path, ("cnn", "image_size"))[["cnn", "image_size"]].drop_duplicates()
        names = rows["cnn"].replace(dict(self.aliases))
        tables = {}
        for cnn, size in zip(names.astype(str), rows["image_size"].astype(int), strict=True):
            table = self.layers(cnn, size)
            if table is not None:
                tables[f"{self.prefix}/{cnn}", size] = replace(table, cnn=f"{self.prefix}/{cnn}")
        return tables


@cache
def provenances() -> dict[str, Provenance]:
    """Cards of the published data sets, by their names."""
    with data_file("published_sources.csv").open(newline="", encoding="utf-8") as file:
        return {row.pop("data_set"): Provenance(**row) for row in csv.DictReader(file)}


def find_published(folder: Path, table: str) -> Path | None:
    """Path of a table, plain or gzipped, in a folder; None if it is not there."""
    candidates = (folder / table, folder / table.removesuffix(".gz"))
    return next((path for path in candidates if path.is_file()), None)


def published_file(path: Path, table: str) -> Path:
    """Find a published table: `path` itself if it is a file, else `table`, plain or gzipped, in that folder.

    DataError if it is not there.
    """
    if path.is_file():
        return path
    file = find_published(path, table)
    if file is None:
        raise DataError(f"there is no {table} at {path}. Pass the file, or the folder that holds it.")
    return file


def read_published(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """Read a published table whose index is then the line in its file.

    DataError if the file cannot be read as CSV; SchemaError if it is empty or lacks one of `columns`.
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


def _usable(
    table: pd.DataFrame, times: tuple[str, ...], optional: tuple[str, ...], report: ImportReport
) -> pd.DataFrame:
    """Keep the rows that can be used, and put the others into the report with their line and the reason.

    A row is refused when a time in `times` is not a finite number above 0, or when its GPU's name means none or several
    of the catalogue. Times in `optional` may be missing, but not wrong. SchemaError if no row is left.
    """
    report.n_read = len(table)
    why = {name: _why_unknown(str(name)) for name in table["gpu"].unique()}
    reasons = {
        line: why[name] for line, name in zip(table.index.tolist(), table["gpu"], strict=True) if why[name]
    }
    for name in (*times, *optional):
        reasons = _bad_times(table[name].dropna() if name in optional else table[name]) | reasons
    report.rejected += sorted(reasons.items())
    kept = table.drop(index=list(reasons)).astype(dict.fromkeys((*times, *optional), float))
    report.n_kept = len(kept)
    if kept.empty:
        line, reason = report.rejected[0]
        raise SchemaError(f"no usable row is left of {report.source!r}. Line {line}: {reason}")
    return kept


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
    return {line: f"{times.name} is {value}, not a time above 0." for line, value in bad.to_dict().items()}
