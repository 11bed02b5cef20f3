"""The reader of published tables: a data set maps its columns to ours; reports of imports, and what was released."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.catalogue.rows import read_rows
from predictor.cnns.layer_table import LayerTable
from predictor.errors import DataError, SchemaError, UnknownGpuError
from predictor.files import data_file
from predictor.measurements.table import canonical_gpu_name, check_measurements

if TYPE_CHECKING:
    import pandas as pd

_GIVEN = (
    "in_channels", "in_height", "in_width", "out_channels", "out_height", "out_width", "kernel_height",
    "kernel_width", "stride_height", "stride_width", "padding_height", "padding_width", "parameters",
)  # fmt: skip
_NAMED_BY = (
    "in_height", "in_width", "in_channels", "out_channels", "kernel_height", "kernel_width", "stride_height",
    "stride_width",
)  # fmt: skip


def operator_columns(prefix: str, shapes: pd.DataFrame) -> dict[str, Any]:
    """Columns of bare convolutions: cnn, image_size, type, and the layer table's columns.

    `prefix`: the source, which begins every name. `shapes`: sizes of input, output, kernel and stride; paddings that it
    lacks are worked out (`smallest_padding`), and missing where no symmetric padding fits.
    """
    columns: dict[str, Any] = {name: shapes[name] for name in _GIVEN if name in shapes}
    for side in ("height", "width"):
        if f"padding_{side}" not in shapes:
            sizes = [shapes[f"{of}_{side}"].tolist() for of in ("in", "out", "kernel", "stride")]
            columns[f"padding_{side}"] = list(map(smallest_padding, *sizes))
    rows = zip(*(shapes[name].tolist() for name in _NAMED_BY), strict=True)
    columns["cnn"] = [f"{prefix}/{_name(*row)}" for row in rows]
    return columns | {"image_size": shapes["in_height"], "type": "conv2d", "dilation": 1, "groups": 1}


def forward_algorithms(names: pd.Series) -> pd.Series:
    """Algorithm of each row's forward pass, as the JSON of `conv_algorithms`."""
    return names.map({name: json.dumps({"conv": {"forward": name}}) for name in names.unique()})


def square_shapes(rows: pd.DataFrame, out_size: pd.Series) -> pd.DataFrame:
    """Channels, and height and width of input, output, kernel and stride, from rows that name each side once."""
    sizes = {"in": rows["in_size"], "out": out_size, "kernel": rows["kernel_size"], "stride": rows["stride"]}
    both = {f"{name}_{side}": size for name, size in sizes.items() for side in ("height", "width")}
    return rows[["in_channels", "out_channels"]].assign(**both)


def smallest_padding(size_in: int, size_out: int, kernel: int, stride: int) -> int | None:
    """Return the smallest symmetric padding that turns `size_in` into `size_out`, or None if there is none.

    Solves size_out = floor((size_in + 2 padding - kernel) / stride) + 1. TensorFlow's "same" padding is sometimes one
    larger at the end than at the start, which no symmetric padding reproduces.
    """
    padding = max(0, -(-((size_out - 1) * stride + kernel - size_in) // 2))
    return padding if (size_in + 2 * padding - kernel) // stride + 1 == size_out else None


def _name(height: int, width: int, c_in: int, c_out: int, kh: int, kw: int, sh: int, sw: int) -> str:
    """H_CIN_COUT, with kernel and stride where they are not 3 and 1, as proxies are named."""
    kernel = "" if (kh, kw) == (3, 3) else f"_k{_pair(kh, kw)}"
    stride = "" if (sh, sw) == (1, 1) else f"_s{_pair(sh, sw)}"
    return f"{_pair(height, width)}_{c_in}_{c_out}{kernel}{stride}"


def _pair(height: int, width: int) -> str:
    return str(height) if height == width else f"{height}x{width}"


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


_TABLES = "published_tables.csv"
_MOST_BYTES = 1 << 27  # of a table's text: seven times the largest


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """A table that the default was fitted on or that scenarios read, a row of ``published_tables.csv``.

    `sha256` is that of the text, whatever gzip made of it.
    """

    data_set: str
    table: str
    rows: int
    sha256: str

    def check(self, content: bytes) -> None:
        """Raise DataError, with both checksums, if `content`, plain or gzipped, is not the released table."""
        text = _unzipped(content, self.table)
        rows = max(0, text.count(b"\n") - 1)
        if rows != self.rows:
            raise DataError(f"{self.table} has {rows:,} rows; the released figures come from {self.rows:,}.")
        sha256 = hashlib.sha256(text).hexdigest()
        if sha256 != self.sha256:
            raise DataError(
                f"{self.table} has the SHA-256 {sha256} (of its text); the released figures come from {self.sha256}."
            )

    def state(self, folder: Path) -> str:
        """State of the table in a folder: ``there``, ``missing``, or ``differs`` from the released one."""
        path = find_published(folder, self.table)
        if path is None:
            return "missing"
        try:
            self.check(path.read_bytes())
        except DataError:
            return "differs"
        return "there"


def released_tables() -> list[ReleasedTable]:
    """Return the tables of all data sets."""
    return list(read_rows(ReleasedTable, data_file(_TABLES)))


def _unzipped(content: bytes, name: str) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is a damaged gzip file: {error}.") from error
    if len(text) > _MOST_BYTES:
        raise DataError(f"{name} unzips to more than {_MOST_BYTES:,} bytes, which no published table has.")
    return text


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
