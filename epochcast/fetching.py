"""Brings published tables from upstream, or from a folder that has them, and checks them by their checksums.

Files of upstream stay in ``FOLDER/upstream/OWNER/REPOSITORY/COMMIT/PATH``, so that a second call needs no network.
Nothing is replaced by what was not checked.
"""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from epochcast.addresses import checked_address
from predictor.errors import DataError
from predictor.files import replace_file
from predictor.measurements.published.upstream import PublishedTable, UpstreamFile, published_tables

UPSTREAM = "https://raw.githubusercontent.com"

_CHUNK_BYTES = 1 << 16
_MOST_BYTES = 1 << 27  # of a file: ten times the largest
_PASSING = (408, 429, 500, 502, 503, 504)  # statuses after which a second try may succeed
_RANGE_NOT_SATISFIABLE = 416


@dataclass(frozen=True, slots=True)
class Source:
    """Where to ask, and how patiently.

    Parameters
    ----------
    upstream : str
        Address in place of `UPSTREAM`, which serves ``OWNER/REPOSITORY/COMMIT/PATH``.
    tables : str, optional
        Address of a folder that has finished tables; they are asked for before upstream.
    tries : int
        Of each file.
    pause_s : float
        Before the second try, twice that before the third, and so on.
    timeout_s : float
        Without a byte.
    """

    upstream: str = UPSTREAM
    tables: str | None = None
    tries: int = 4
    pause_s: float = 1.0
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        for address in (self.upstream, *([self.tables] if self.tables else [])):
            checked_address(address, "published tables")


@dataclass(frozen=True, slots=True)
class Fetched:
    """What became of one table: `is_there` with the released rows or not, and `text` says how or why."""

    table: PublishedTable
    is_there: bool
    text: str


class _NotThereError(DataError):
    """The server has no such file."""


def fetch_published(
    names: Sequence[str] = (),
    folder: str | PathLike[str] = ".",
    source: Source | None = None,
    report: Callable[[Fetched], None] = lambda _: None,
) -> list[Fetched]:
    """Bring published tables into a folder.

    Parameters
    ----------
    names : sequence of str
        Data sets or tables; all by default.
    folder : path
        Made if it is not there. A table in it that is the released one is kept as it is.
    source : Source, optional
    report : callable
        Called with every table as soon as it is done.

    Returns
    -------
    list of Fetched
        One per table. A table that cannot be brought is in it with the reason, and the others are brought.

    Raises
    ------
    DataError
        If a name is unknown.
    """
    tables, source = published_tables(names), source or Source()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for table in tables:
        try:
            outcome = Fetched(table, True, _bring(table, folder, source))
        except DataError as error:
            outcome = Fetched(table, False, str(error))
        outcomes.append(outcome)
        report(outcome)
    return outcomes


def _bring(table: PublishedTable, folder: Path, source: Source) -> str:
    """Bring one table and say how."""
    if table.state(folder) == "there":
        return "is there already"
    if source.tables:
        try:
            return _bring_finished(table, folder, source)
        except _NotThereError:
            if not table.files:
                raise
    if not table.files:
        raise DataError(
            f"cannot be fetched: {table.missing}. Ask somebody who has it for the table with SHA-256 {table.sha256} "
            "(of its text), put it into the folder, or pass --from URL of a folder that has it"
        )
    contents = {file.path: _bring_file(file, folder, source) for file in table.files}
    table.write(table.made_from(contents), folder)
    size = sum(file.n_bytes for file in table.files)
    repository = table.files[0].repository
    return f"made from {len(table.files)} files ({size:,} bytes) of github.com/{repository}"


def _bring_finished(table: PublishedTable, folder: Path, source: Source) -> str:
    url = f"{(source.tables or '').rstrip('/')}/{table.table}"
    path = folder / "upstream" / table.table
    content = download(url, path, table.check, source)
    replace_file(folder / table.table, content)
    path.unlink()
    return f"brought from {url}"


def _bring_file(file: UpstreamFile, folder: Path, source: Source) -> bytes:
    url = f"{source.upstream.rstrip('/')}/{file.place}"
    return download(url, folder / "upstream" / file.repository / file.commit / file.path, file.check, source)


def download(url: str, path: Path, check: Callable[[bytes], None], source: Source) -> bytes:
    """Content of a file at an address, kept at `path`, whose content is used where it passes the check.

    A transfer that was cut goes on, in this call or the next, from ``path.part``. What was put together from parts and
    fails the check is asked for again as a whole; what fails as a whole is refused and not kept.

    Raises
    ------
    DataError
        If the server has no such file, cannot be reached or does not send all of it, or the content fails the check.
    """
    if path.is_file():
        content = path.read_bytes()
        if _passes(content, check):
            return content
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    was_resumed = _transfer(url, part, source)
    if was_resumed and not _passes(part.read_bytes(), check):
        part.unlink()
        _transfer(url, part, source)
    content = part.read_bytes()
    try:
        check(content)
    except DataError as error:
        part.unlink()
        raise DataError(f"{url} was refused: {error}") from None
    part.replace(path)
    return content


def _passes(content: bytes, check: Callable[[bytes], None]) -> bool:
    try:
        check(content)
    except DataError:
        return False
    return True


def _transfer(url: str, part: Path, source: Source) -> bool:
    """Bring all of a file to `part`, going on with what is there; return whether it was put together from parts."""
    was_resumed, reason = False, ""
    for attempt in range(source.tries):
        if attempt:
            time.sleep(source.pause_s * attempt)
        try:
            was_resumed = _request(url, part, source.timeout_s) or was_resumed
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _RANGE_NOT_SATISFIABLE and part.exists():
                part.unlink()
            elif error.code not in _PASSING:
                raise _NotThereError(f"{url} is not there: HTTP {error.code} {error.reason}.") from None
            reason = f"HTTP {error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        else:
            return was_resumed
    raise DataError(
        f"{url} could not be read in {source.tries} tries: {reason}. Check network and disk; the same command goes on "
        "with what it has. --upstream URL names a mirror of upstream's files, --from URL a folder of finished tables"
    )


def _request(url: str, part: Path, timeout_s: float) -> bool:
    """Ask once for what `part` lacks, and return whether it goes on with it; an OSError if too few bytes come."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url)  # noqa: S310 - Source has checked the scheme
    if start:
        request.add_header("Range", f"bytes={start}-")
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
        ranged = f"bytes {start}-"
        told = str(answer.headers.get("Content-Range", ""))
        goes_on = bool(answer.status == http.client.PARTIAL_CONTENT) and told.startswith(ranged)
        expected = answer.headers.get("Content-Length")
        received = 0
        with part.open("ab" if goes_on else "wb") as file:
            while chunk := answer.read(_CHUNK_BYTES):
                file.write(chunk)
                received += len(chunk)
                if received > _MOST_BYTES:
                    raise DataError(
                        f"{url} sends more than {_MOST_BYTES:,} bytes, which no published file has."
                    )
    if expected is not None and received < int(expected):
        raise OSError(f"the connection ended after {received:,} of {int(expected):,} bytes")
    return goes_on
