"""The published tables behind the released figures: their rows and checksums, and whether a folder has them."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

from predictor.catalogue.rows import read_rows
from predictor.errors import DataError
from predictor.files import data_file
from predictor.measurements.published.reader import find_published

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
