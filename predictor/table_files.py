"""Tables by their suffix: ``.parquet`` is Parquet, ``.gz`` gzipped CSV, ``-`` standard input or output, all else CSV.

Cells are text, in which commands have always read and written them; Parquet's columns get their types when they are
written. Tables are read and written in batches, so that their length does not matter.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

from predictor.errors import BackendUnavailableError, DataError, SchemaError
from predictor.files import replacing

if TYPE_CHECKING:
    import pandas as pd

STANDARD = "-"
"""Standard input or output in place of a file's name: CSV."""

SUFFIXES = (".csv", ".csv.gz", ".parquet")

_ROWS_OF_A_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class TableReader:
    """An open table.

    `header`: names of its columns, without the white space around them; empty if the file is. `rows`: each row's cells
    as text, an unknown one empty; a CSV's row may be longer or shorter than the header. `types`: of Parquet's columns;
    empty for CSV.
    """

    header: list[str]
    rows: Iterator[list[str]]
    types: Mapping[str, Any] = field(default_factory=dict)

    def batches(self, size: int = _ROWS_OF_A_BATCH) -> Iterator[list[list[str]]]:
        """The rows that are not read yet, without the header, in lists of at most `size`."""
        while batch := list(islice(self.rows, size)):
            yield batch


class TableWriter(ABC):
    """An open table; `write(rows)` adds a batch of rows."""

    @abstractmethod
    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows, with as many cells as the table has columns."""

    def write_beside(
        self, rows: Sequence[Sequence[Any]], which: Sequence[int], cells: Sequence[Sequence[Any]]
    ) -> None:
        """Add rows, row i followed by `cells[which[i]]`."""
        self.write((*row, *cells[i]) for row, i in zip(rows, which, strict=True))


def is_parquet(path: str | PathLike[str]) -> bool:
    """Whether a file is Parquet by its suffix."""
    return Path(path).suffix.casefold() == ".parquet"


@contextmanager
def open_table(path: str | PathLike[str]) -> Iterator[TableReader]:
    """Read a table row by row.

    `path`: a file of `SUFFIXES`; one with another suffix is read as CSV; ``-`` is standard input. SchemaError if it
    cannot be read, or is not what its suffix says; BackendUnavailableError for Parquet without pyarrow.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = path.write_text("cnn,batch_size" + chr(10) + "resnet50,64" + chr(10))
    >>> with open_table(path) as table:
    ...     print(table.header, list(table.rows))
    ['cnn', 'batch_size'] [['resnet50', '64']]
    """
    with _binary(path) as file:
        if not is_parquet(path):
            lines = _csv_lines(path, file)
            yield TableReader([name.strip() for name in next(lines, [])], lines)
            return
        table = _parquet_file(path, file)
        header, types = [name.strip() for name in table.schema_arrow.names], table.schema_arrow.types
        batches = parquet_batches(path, table, _ROWS_OF_A_BATCH)
        rows = (list(row) for batch in batches for row in zip(*map(as_text, batch.columns), strict=True))
        yield TableReader(header, rows, dict(zip(header, types, strict=True)))


def check_writable(path: str | PathLike[str]) -> None:
    """Raise BackendUnavailableError if `path` is Parquet, and pyarrow is not installed."""
    if is_parquet(path):
        load_pyarrow()


@contextmanager
def writing_table(
    path: str | PathLike[str], header: Sequence[str], types: Mapping[str, Any] | None = None
) -> Iterator[TableWriter]:
    """Write a table batch by batch; it replaces an old one when the block ends, and not if the block raises.

    `path`: a file of `SUFFIXES`; one with another suffix is written as CSV; ``-`` is standard output. `types`: of
    Parquet's columns, such as ``float64`` and ``bool``; text by default. A CSV has none. OSError as
    `predictor.files.replacing`; SchemaError if a cell does not have the type of its column; BackendUnavailableError for
    Parquet without pyarrow.
    """
    if str(path) == STANDARD:
        yield _CsvWriter(sys.stdout.buffer, header)
        sys.stdout.buffer.flush()
        return
    check_writable(path)
    with replacing(path) as file:
        if is_parquet(path):
            with closing(_ParquetWriter(file, path, _schema(header, types or {}))) as writer:
                yield writer
        elif _is_zipped(path):
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as zipped:
                yield _CsvWriter(zipped, header)
        else:
            yield _CsvWriter(file, header)


def read_frame(path: str | PathLike[str]) -> pd.DataFrame:
    """Read a table into a data frame: a CSV's cells as text, Parquet's columns with their types.

    An empty file has no columns. DataError if it cannot be read, or is not what its suffix says. A row with more cells
    than the header is an error. BackendUnavailableError for Parquet without pyarrow.
    """
    if not is_parquet(path):
        return _csv_frame(path)
    pyarrow = load_pyarrow()
    try:
        with _binary(path) as file:
            frame: pd.DataFrame = pyarrow.parquet.read_table(file).to_pandas()
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet: {_first_line(error)}. Is it damaged?") from error
    return frame.reset_index(drop=True)


def write_frame(frame: pd.DataFrame, path: str | PathLike[str]) -> None:
    """Write a data frame by the suffix of `path`, without its index; ``-`` is standard output.

    OSError as `predictor.files.replacing`; BackendUnavailableError for Parquet without pyarrow.
    """
    if str(path) == STANDARD:
        sys.stdout.buffer.write(_csv_bytes(frame))
        sys.stdout.buffer.flush()
        return
    if is_parquet(path):
        pyarrow, buffer = load_pyarrow(), io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame, preserve_index=False), buffer)
        data = buffer.getvalue()
    else:
        data = _csv_bytes(frame)
    with replacing(path) as file:
        file.write(gzip.compress(data, mtime=0) if _is_zipped(path) else data)


def _is_zipped(path: str | PathLike[str]) -> bool:
    return Path(path).suffix.casefold() == ".gz"


@contextmanager
def _binary(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """The file, opened, or standard input for ``-``."""
    if str(path) == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 (closed below; errors of the block are not ours)
    except OSError as error:
        raise _unreadable(path, error) from None
    with file:
        yield file


def _unreadable(path: str | PathLike[str], error: OSError) -> SchemaError:
    return SchemaError(f"{path} cannot be read: {error.strerror or _first_line(error)}. Check the path.")


def _csv_lines(path: str | PathLike[str], file: BinaryIO) -> Iterator[list[str]]:
    """Lines of cells, without empty lines."""
    source = gzip.GzipFile(fileobj=file) if _is_zipped(path) else file
    text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
    try:
        yield from (line for line in csv.reader(text) if line)
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"{path} is not a CSV file in UTF-8: {error}.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SchemaError(f"{path} is not a gzipped CSV file: {error}.") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        if not file.closed:
            text.detach()  # who opened the file closes it


class _CsvWriter(TableWriter):
    def __init__(self, file: BinaryIO | gzip.GzipFile, header: Sequence[str]) -> None:
        self._file = file
        self.write([header])

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.write(text.getvalue().encode())

    def write_beside(
        self, rows: Sequence[Sequence[Any]], which: Sequence[int], cells: Sequence[Sequence[Any]]
    ) -> None:
        """As the general one; shared cells are formatted once."""
        starts, ends = _csv_texts(rows), _csv_texts(cells)
        lines = [f"{start},{ends[i]}\n" for start, i in zip(starts, which, strict=True)]
        self._file.write("".join(lines).encode())


def _csv_texts(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Each row as a line of CSV without its end."""
    lines: list[str] = []
    csv.writer(SimpleNamespace(write=lines.append), lineterminator="").writerows(rows)
    return lines


@contextmanager
def open_parquet(path: str | PathLike[str]) -> Iterator[Any]:
    """Open a Parquet file as a `pyarrow.parquet.ParquetFile`; errors are those of `open_table`."""
    with _binary(path) as file:
        yield _parquet_file(path, file)


def _parquet_file(path: str | PathLike[str], file: BinaryIO) -> Any:
    pyarrow = load_pyarrow()
    try:
        return pyarrow.parquet.ParquetFile(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise SchemaError(f"{path} is not a Parquet file: {_first_line(error)}.") from None


def parquet_batches(path: str | PathLike[str], table: Any, size: int) -> Iterator[Any]:
    """Record batches of at most `size` rows of an open Parquet file; SchemaError if it is damaged."""
    batches = table.iter_batches(size)
    while True:
        try:
            batch = next(batches, None)
        except (OSError, load_pyarrow().ArrowException) as error:
            raise SchemaError(f"{path} is a damaged Parquet file: {_first_line(error)}.") from None
        if batch is None:
            return
        yield batch


def as_text(column: Any) -> list[str]:
    """Cells of an Arrow column as text: unknown cells empty, 64.0 as ``64``, flags as ``True`` and ``False``."""
    pyarrow = load_pyarrow()
    if pyarrow.types.is_boolean(column.type):
        return ["" if cell is None else str(cell) for cell in column.to_pylist()]
    if pyarrow.types.is_floating(column.type):
        column = pyarrow.compute.if_else(pyarrow.compute.is_nan(column), None, column)
    try:
        text = pyarrow.compute.cast(column, pyarrow.string()).to_pylist()
    except pyarrow.ArrowNotImplementedError:  # lists and structures
        text = [None if cell is None else str(cell) for cell in column.to_pylist()]
    return ["" if cell is None else cell for cell in text]


class _ParquetWriter(TableWriter):
    def __init__(self, file: BinaryIO, path: str | PathLike[str], schema: Any) -> None:
        self._path, self._schema = path, schema
        self._writer = load_pyarrow().parquet.ParquetWriter(file, schema)

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        cells = list(zip(*rows, strict=True)) or [()] * len(self._schema)
        columns = [self._column(field, texts) for field, texts in zip(self._schema, cells, strict=True)]
        self._writer.write_table(load_pyarrow().Table.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()

    def _column(self, about: Any, texts: Sequence[Any]) -> Any:
        pyarrow = load_pyarrow()
        column = pyarrow.array([text or None for text in texts], pyarrow.string())
        try:
            return pyarrow.compute.cast(column, about.type)
        except pyarrow.ArrowException as error:
            raise SchemaError(f"{self._path}, column {about.name}: {_first_line(error)}.") from None


def _schema(header: Sequence[str], types: Mapping[str, Any]) -> Any:
    return load_pyarrow().schema([(name, _arrow_type(types.get(name, "string"))) for name in header])


def _arrow_type(type_: Any) -> Any:
    """The type of a column to be written: text for what text cannot be turned into again."""
    pyarrow = load_pyarrow()
    if isinstance(type_, str):
        return pyarrow.type_for_alias(type_)
    castable = pyarrow.types.is_primitive(type_) or pyarrow.types.is_boolean(type_)
    return type_ if castable else pyarrow.string()


def _csv_frame(path: str | PathLike[str]) -> pd.DataFrame:
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            source = sys.stdin.buffer if str(path) == STANDARD else path
            return pd.read_csv(
                source, dtype=str, keep_default_na=False, skip_blank_lines=False, index_col=False
            )
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeDecodeError, EOFError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as CSV: {error}. Is it damaged, or another kind of file?"
        ) from error


def _csv_bytes(frame: pd.DataFrame) -> bytes:
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text.encode()


def load_pyarrow() -> Any:
    """Import pyarrow with its compute and Parquet modules; BackendUnavailableError if it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise BackendUnavailableError(
            "pyarrow is not installed, which Parquet needs: pip install 'epochcast[parquet]', or use a .csv file."
        ) from None
    return pyarrow


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
