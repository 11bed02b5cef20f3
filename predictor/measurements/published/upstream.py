"""Where published tables come from: files of other projects at pinned commits, and the checksums of both.

`epochcast.fetching` brings the files; this module says which, checks them, and makes the tables.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from predictor.errors import DataError, SchemaError, nearest
from predictor.files import data_file, replace_file
from predictor.measurements.published import DATA_SETS
from predictor.measurements.published.data_set import find_published

_TABLES = "published_tables.csv"
_FILES = "published_files.csv"
_MOST_BYTES = 1 << 27  # of a table's text: seven times the largest


@dataclass(frozen=True, slots=True)
class UpstreamFile:
    """A file of another project at a commit, a row of ``published_files.csv``.

    `sha256` is empty where the whole file was not at hand when it was pinned: then its size is checked, and the table
    that it becomes.
    """

    repository: str
    commit: str
    path: str
    n_bytes: int
    sha256: str

    @property
    def place(self) -> str:
        """``owner/repository/commit/path``, as GitHub's server of raw files and a mirror of it arrange them."""
        return quote(f"{self.repository}/{self.commit}/{self.path}")

    def check(self, content: bytes) -> None:
        """Raise a DataError, with both values, if this is not the content of the file."""
        if len(content) != self.n_bytes:
            raise DataError(
                f"{self.path} has {len(content):,} bytes; at commit {self.commit} it has {self.n_bytes:,}."
            )
        found = hashlib.sha256(content).hexdigest()
        if self.sha256 and found != self.sha256:
            raise DataError(
                f"{self.path} has the SHA-256 {found}; at commit {self.commit} it is {self.sha256}."
            )


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table that the default was fitted on or that scenarios read, a row of ``published_tables.csv``.

    `rows` and `sha256` (of the text, whatever gzip made of it) are those of the table behind the released figures;
    `files` are what it is made from, none where `missing` says why it cannot be fetched.
    """

    data_set: str
    table: str
    rows: int
    sha256: str
    missing: str
    files: tuple[UpstreamFile, ...]

    def check(self, content: bytes) -> None:
        """Raise a DataError, with both values, if this, plain or gzipped, is not the table."""
        text = _unzipped(content, self.table)
        rows = max(0, text.count(b"\n") - 1)
        if rows != self.rows:
            raise DataError(f"{self.table} has {rows:,} rows; the released figures come from {self.rows:,}.")
        found = hashlib.sha256(text).hexdigest()
        if found != self.sha256:
            raise DataError(
                f"{self.table} has the SHA-256 {found} (of its text); the released figures come from {self.sha256}."
            )

    def state(self, folder: Path) -> str:
        """Return ``there``, ``missing`` or ``differs``: how the table in a folder stands to the released one."""
        path = find_published(folder, self.table)
        if path is None:
            return "missing"
        try:
            self.check(path.read_bytes())
        except DataError:
            return "differs"
        return "there"

    def made_from(self, contents: Mapping[str, bytes]) -> bytes:
        """Text of the table from the contents of its files, by path.

        Raises
        ------
        SchemaError
            If they have not upstream's form.
        DataError
            If what comes out is not the table.
        """
        convert = DATA_SETS[self.data_set].from_upstream
        if convert is None:
            raise DataError(f"{self.table} cannot be made from upstream's files: {self.missing}")
        try:
            text = _csv(convert({path: content.decode() for path, content in contents.items()}))
        except (KeyError, ValueError, AttributeError) as error:
            raise SchemaError(f"upstream's files of {self.table} have another form: {error!r}.") from error
        self.check(text)
        return text

    def write(self, text: bytes, folder: Path) -> Path:
        """Write the table into a folder, gzipped the same way each time, in place of one that was there."""
        path = folder / self.table
        replace_file(path, gzip.compress(text, mtime=0))
        return path


def published_tables(names: Iterable[str] = ()) -> list[PublishedTable]:
    """Return the tables of these data sets or of these file names, all by default.

    Raises
    ------
    DataError
        If a name is unknown.
    """
    files: dict[str, list[UpstreamFile]] = {}
    for row in _rows_of(_FILES):
        file = UpstreamFile(row["repository"], row["commit"], row["path"], int(row["bytes"]), row["sha256"])
        files.setdefault(row["table"], []).append(file)
    tables = [
        PublishedTable(
            row["data_set"],
            row["table"],
            int(row["rows"]),
            row["sha256"],
            row["missing"],
            tuple(files.get(row["table"], ())),
        )
        for row in _rows_of(_TABLES)
    ]
    wanted = list(names)
    known = {name for each in tables for name in (each.data_set, each.table)}
    for name in wanted:
        if name not in known:
            all_names = ", ".join(dict.fromkeys(each.data_set for each in tables))
            raise DataError(
                f"there is no published data set {name!r}. Nearest: {nearest(name, known)}; all: {all_names}."
            )
    return [each for each in tables if not wanted or {each.data_set, each.table} & set(wanted)]


def _rows_of(name: str) -> list[dict[str, str]]:
    with data_file(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _csv(rows: Iterable[dict[str, str]]) -> bytes:
    listed = list(rows)
    if not listed:
        raise SchemaError("upstream's files hold no rows.")
    text = io.StringIO()
    writer = csv.DictWriter(text, listed[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return text.getvalue().encode()


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
