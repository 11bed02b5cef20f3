"""A published data set: its table, which columns are ours, what its iterations hold; the report of an import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError, OutOfRangeError, SchemaError, UnknownGpuError
from predictor.measurements.table import canonical_gpu_name, check_measurements

if TYPE_CHECKING:
    import pandas as pd

    from predictor.cnns.layer_table import LayerTable

LayerTables = dict[tuple[str, int], "LayerTable"]
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


def _unchanged(table: pd.DataFrame) -> pd.DataFrame:
    return table


def _nothing(_table: pd.DataFrame) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class DataSet:
    """A published table and its card; columns are those of the measurement table (`predictor.measurements.schema`).

    Every table has `gpu`, `framework` (``name-version``), `precision` and `batch_size`, which mean what ours do; they
    may be `renamed`.

    Parameters
    ----------
    name : str
        The `source` of its rows.
    table : str
        File name, with its ``.csv.gz``.
    provenance : Provenance
    holds : mapping
        What all its iterations hold and share, by column: `kind`, `pass`, `optimizer`, whether an iteration copies its
        images from the host (`copies_input`), whether it waits for a loader (`waits_for_loader`). What is left out is
        unknown, or differs by row and is computed.
    times : tuple of str
        Its columns that must be times above 0; rows where one is not are rejected.
    optional_times : tuple of str
        Those that may be missing, but not wrong.
    renamed : mapping
        Our column -> its column, taken as it is.
    needed : tuple of str
        Columns that `computed`, `arranged` and `oddities` read besides.
    arranged : callable
        One row per measurement from the rows that are kept.
    computed : callable
        Columns that follow from the arranged rows.
    oddities : callable
        What a user of the data should know, from the rows that are kept.
    layer_tables : callable, optional
        Layer tables of its CNNs, from the folder of published tables; empty if their file is not there.
    """

    name: str
    table: str
    provenance: Provenance
    holds: Mapping[str, object]
    times: tuple[str, ...]
    renamed: Mapping[str, str]
    oddities: Callable[[pd.DataFrame], list[str]]
    optional_times: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    arranged: Callable[[pd.DataFrame], pd.DataFrame] = _unchanged
    computed: Callable[[pd.DataFrame], dict[str, Any]] = _nothing
    layer_tables: Callable[[Path], LayerTables] | None = None

    def columns(self) -> tuple[str, ...]:
        """Columns that its table must have."""
        always = (self.renamed.get(name, name) for name in _ALWAYS)
        taken = (*always, *self.renamed.values(), *self.times, *self.optional_times, *self.needed)
        return tuple(dict.fromkeys(taken))

    def read(self, path: Path) -> tuple[pd.DataFrame, ImportReport]:
        """Make the measurement table of a file, and a report of what became of each row.

        DataError if the file cannot be read as CSV; SchemaError if it lacks a column, or no usable row is left.
        """
        import pandas as pd

        report = ImportReport(self.name)
        table = _usable(read_published(path, self.columns()), self.times, self.optional_times, report)
        report.oddities += self.oddities(table)
        rows = self.arranged(table)
        versions = rows["framework"].str.partition("-")
        columns = {
            "source": self.name,
            "framework": versions[0],
            "framework_version": versions[2],
            "n_gpus": 1,
            **{name: rows[self.renamed.get(name, name)] for name in ("gpu", "precision", "batch_size")},
            **self.holds,
            **{ours: rows[theirs] for ours, theirs in self.renamed.items()},
            **self.computed(rows),
        }
        frame = check_measurements(pd.DataFrame(columns), f"published {self.name}")
        report.n_measurements = len(frame)
        return frame, report


_ALWAYS = ("gpu", "framework", "precision", "batch_size")


def layer_tables_of(
    table: str,
    prefix: str,
    build: Callable[[str, int], LayerTable | None],
    aliases: Mapping[str, str] | None = None,
) -> Callable[[Path], LayerTables]:
    """Make `DataSet.layer_tables` of a table whose CNNs can be built by name and image size.

    `table`: file name of the published table, whose `cnn` and `image_size` are built. `prefix`: begins the CNNs' names:
    ``prefix/cnn``. `build`: gives None where the structure of a CNN is not known. `aliases`: names of the published
    table -> names of the measurement table, without prefix.
    """

    def read(folder: Path) -> LayerTables:
        path = find_published(folder, table)
        if path is None:
            return {}
        rows = read_published(path, ("cnn", "image_size"))[["cnn", "image_size"]].drop_duplicates()
        names = rows["cnn"].replace(dict(aliases or {}))
        cells = [(str(cnn), int(size)) for cnn, size in zip(names, rows["image_size"], strict=True)]
        found = {(cnn, size): build(cnn, size) for cnn, size in cells}
        return {
            (f"{prefix}/{cnn}", size): replace(layers, cnn=f"{prefix}/{cnn}")
            for (cnn, size), layers in found.items()
            if layers is not None
        }

    return read


def zoo_layers(name: str, image_size: int) -> LayerTable | None:
    """Layer table of a CNN of the zoo; None if the zoo lacks it, or not at this image size."""
    try:
        return zoo_cnn(name, image_size)
    except (LookupError, OutOfRangeError):
        return None


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
    found = find_published(path, table)
    if found is None:
        raise DataError(f"there is no {table} at {path}. Pass the file, or the folder that holds it.")
    return found


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
