"""What every importer of published measurements shares: its card, its report, and the gate for bad rows.

Called by the importers alone; calls measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.errors import DataError, SchemaError, UnknownGpuError
from predictor.measurements import canonical_gpu_name, check_measurements

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
    "single_convolution_name",
    "smallest_padding",
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

    `n_read` rows were in the file, `n_kept` of them stand behind the `n_measurements` rows of the result (repeats
    are summarised, one row may hold several passes); `rejected` are (line of the file, reason).
    """

    source: str
    n_read: int = 0
    n_kept: int = 0
    n_measurements: int = 0
    rejected: list[tuple[int, str]] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.source}: {self.n_read} rows read, {self.n_kept} kept as {self.n_measurements} measurements, "
            f"{len(self.rejected)} rejected"
        ]
        lines += [f"  line {line}: {reason}" for line, reason in self.rejected]
        lines += [f"  note: {oddity}" for oddity in self.oddities]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Importer:
    """One source of published measurements: its table's file name, its reader, and where it is from."""

    table: str
    read: Callable[[Path], tuple[pd.DataFrame, ImportReport]]
    provenance: Provenance


def published_file(path: Path, table: str) -> Path:
    """The file itself, or the file named `table` (plain or gzipped) in the folder given; DataError if missing."""
    if path.is_file():
        return path
    for candidate in (path / table, path / table.removesuffix(".gz")):
        if candidate.is_file():
            return candidate
    raise DataError(f"there is no {table} at {path}. Pass the file, or the folder that holds it.")


def read_published(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """Read a published table; its index is the line in the file. SchemaError if it is empty or lacks a column."""
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


def reject(table: pd.DataFrame, times: tuple[str, ...], report: ImportReport) -> pd.DataFrame:
    """Rows that can be used; the others go to the report, with their line and the reason.

    A row is refused when a time in `times` is not a finite number above 0, or when its GPU is not in the catalogue.
    """
    import numpy as np
    import pandas as pd

    report.n_read = len(table)
    reasons: dict[int, str] = {}
    unknown = {name: _why_unknown(str(name)) for name in table["gpu"].unique()}
    for name, reason in unknown.items():
        if reason:
            reasons.update(dict.fromkeys(table.index[table["gpu"] == name], reason))
    for column in times:
        values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=float)
        for line in table.index[~(np.isfinite(values) & (values > 0))]:
            reasons.setdefault(int(line), f"{column} is {table.at[line, column]!r}, not a time above 0")
    report.rejected += sorted((int(line), reason) for line, reason in reasons.items())
    kept = table.drop(index=list(reasons))
    report.n_kept = len(kept)
    if kept.empty:
        raise SchemaError(
            f"no usable row is left for {report.source!r}. First reason: {report.rejected[0][1]}"
        )
    return kept


def _why_unknown(name: str) -> str | None:
    if "radeon" in name.casefold():
        return f"{name!r} is not an NVIDIA GPU"
    try:
        canonical_gpu_name(name)
    except UnknownGpuError as error:
        return str(error)
    return None


def finish(columns: dict[str, object], report: ImportReport) -> tuple[pd.DataFrame, ImportReport]:
    """Make the measurement table of these columns (scalars stand for whole columns) and check it."""
    import pandas as pd

    frame = check_measurements(pd.DataFrame(columns), f"published {report.source}")
    report.n_measurements = len(frame)
    return frame, report


def smallest_padding(size_in: int, size_out: int, kernel: int, stride: int) -> int | None:
    """The smallest symmetric padding that turns `size_in` into `size_out`; None if none does.

    Solves size_out = floor((size_in + 2 padding - kernel) / stride) + 1; TensorFlow's "same" padding is sometimes
    one larger at the end than at the start, which no symmetric padding reproduces.
    """
    padding = max(0, -(-((size_out - 1) * stride + kernel - size_in) // 2))
    return padding if (size_in + 2 * padding - kernel) // stride + 1 == size_out else None


def single_convolution_name(prefix: str, row: dict[str, int]) -> str:
    """Name of a bare convolution, H_CIN_COUT with kernel and stride where they are not 3 and 1."""
    name = f"{prefix}/{_pair(row['in_height'], row['in_width'])}_{row['in_channels']}_{row['out_channels']}"
    if (row["kernel_height"], row["kernel_width"]) != (3, 3):
        name += f"_k{_pair(row['kernel_height'], row['kernel_width'])}"
    if (row["stride_height"], row["stride_width"]) != (1, 1):
        name += f"_s{_pair(row['stride_height'], row['stride_width'])}"
    return name


def _pair(height: int, width: int) -> str:
    return str(height) if height == width else f"{height}x{width}"


def operator_columns(prefix: str, shapes: pd.DataFrame) -> dict[str, object]:
    """Columns of bare convolutions from their shapes: name, image size, and the layer table's columns.

    Paddings that `shapes` lacks are worked out from the sizes (`smallest_padding`), and are missing where no
    symmetric padding fits.
    """
    columns: dict[str, object] = {name: shapes[name] for name in _SHAPE_COLUMNS if name in shapes}
    for side in ("height", "width"):
        if f"padding_{side}" not in shapes:
            columns[f"padding_{side}"] = _paddings(shapes, side)
    columns |= {"cnn": _names(prefix, shapes), "image_size": shapes["in_height"], "type": "conv2d"}
    return columns | {"dilation": 1, "groups": 1}


_SHAPE_COLUMNS = (
    "in_channels", "in_height", "in_width", "out_channels", "out_height", "out_width", "kernel_height",
    "kernel_width", "stride_height", "stride_width", "padding_height", "padding_width", "parameters",
)  # fmt: skip


def _paddings(shapes: pd.DataFrame, side: str) -> pd.Series:
    needed = (
        (shapes[f"out_{side}"] - 1) * shapes[f"stride_{side}"]
        + shapes[f"kernel_{side}"]
        - shapes[f"in_{side}"]
    )
    padding = (-(-needed // 2)).clip(lower=0)
    reached = (shapes[f"in_{side}"] + 2 * padding - shapes[f"kernel_{side}"]) // shapes[f"stride_{side}"] + 1
    return padding.where(reached == shapes[f"out_{side}"])


def _names(prefix: str, shapes: pd.DataFrame) -> list[str]:
    keys = ("in_height", "in_width", "in_channels", "out_channels", "kernel_height", "kernel_width", "stride_height",
            "stride_width")  # fmt: skip
    values = zip(*(shapes[key].tolist() for key in keys), strict=True)
    return [single_convolution_name(prefix, dict(zip(keys, row, strict=True))) for row in values]
