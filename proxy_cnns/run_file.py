"""The rows of a run as they are measured: a line for each, on disk before the next one starts.

While a run goes on, `OUT.rows.jsonl` (one for each process) grows; killing the run loses nothing but the
configuration under way.
"""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from predictor.errors import ProfilingError, SchemaError
from proxy_cnns.rows import Key, key_of, series_of

__all__ = ["Run", "RunFile", "check_identity", "compact", "read_rows", "rows_paths", "unwritable"]


@dataclass(slots=True)
class Run:
    """What a run has on disk: rows with their repeats by key, ended series, failures and readings of the device."""

    identity: dict[str, Any] | None = None
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    repeats: dict[Key, dict[str, Any]] = field(default_factory=dict)
    ended: dict[Key, dict[str, Any]] = field(default_factory=dict)
    failed: dict[Key, str] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def take(self, entry: Mapping[str, Any], recent: list[Key]) -> None:
        """Take one line of a rows file. `recent`: keys of the rows since the device's last clean reading."""
        if "row" in entry:
            key = key_of(entry["row"])
            self.rows[key], self.repeats[key] = dict(entry["row"]), entry.get("repeats", {})
            recent.append(key)
        elif "ended" in entry:
            self._end(entry["ended"])
        elif "failed" in entry:
            self.failed[tuple(entry["failed"])] = entry["reason"]
        elif "device" in entry:
            if entry.get("disturbed"):
                self._disturbed(entry, recent)
            recent.clear()
            self.events.append(dict(entry))

    def ends(self, key: Key) -> dict[str, Any] | None:
        """Why this configuration is not to be measured: its series ended at its batch size or a smaller one."""
        end = self.ended.get(series_of(key))
        return end if end is not None and int(key[-1]) >= int(end["batch_size"]) else None

    def _end(self, end: Mapping[str, Any]) -> None:
        series = tuple(end["series"])
        if series not in self.ended or int(end["batch_size"]) < int(self.ended[series]["batch_size"]):
            self.ended[series] = dict(end)

    def _disturbed(self, entry: Mapping[str, Any], recent: list[Key]) -> None:
        """Mark the rows since the last clean reading, or take them away."""
        note = "disturbed: " + "; ".join(entry["disturbed"])
        for key in recent:
            if not entry["kept"]:
                self.rows.pop(key, None)
                self.repeats.pop(key, None)
            elif key in self.rows:
                self.rows[key]["notes"] = "; ".join(
                    each for each in (self.rows[key].get("notes"), note) if each
                )


class RunFile:
    """Append lines to a rows file; holds its lock, so that no other run writes to it.

    `sync_each`: bring every row to the disk before the next is measured, else once a second. Either way a row
    outlives the process that wrote it.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], *, sync_each: bool = True) -> None:
        self.path, self._sync_each = path, sync_each
        self._file = _opened(path)
        self._synced = time.monotonic()
        self._end = _drop_torn_line(self._file)
        if self._end == 0:
            self.append({"run": dict(identity)})

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line.

        Raises
        ------
        ProfilingError
            If the disk is full or fails; the file then ends with the line before.
        """
        line = compact(entry).encode() + b"\n"
        try:
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(28, os.strerror(28))
            self._end += written
            if self._sync_each or time.monotonic() - self._synced >= 1:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            os.ftruncate(self._file, self._end)
            raise unwritable(self.path, error) from error

    def close(self) -> None:
        """Bring everything to the disk, and let others write."""
        os.fsync(self._file)
        os.close(self._file)


def rows_paths(out: Path) -> list[Path]:
    """Rows files of a run, one for each process that measured."""
    return sorted(out.parent.glob(f"{_escaped(out.name)}.rows*.jsonl"))


def read_rows(path: Path, run: Run, identity: Mapping[str, Any] | None, out: Path) -> None:
    """Add what one rows file holds to `run`; a line that a killed run did not end is left out.

    Raises
    ------
    SchemaError
        If it belongs to a run of another identity (None: any will do), or is damaged.
    """
    recent: list[Key] = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):  # what follows the last is torn
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise SchemaError(
                f"{path}, line {number} is not JSON: {error}. Move the file away to measure anew."
            ) from error
        if "run" in entry:
            check_identity(entry["run"], identity, out)
            run.identity = dict(entry["run"])
        else:
            run.take(entry, recent)


def check_identity(found: Mapping[str, Any], wanted: Mapping[str, Any] | None, out: Path) -> None:
    """Refuse what another run left, saying what differs."""
    if wanted is None:
        return
    differs = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    if differs:
        what = "; ".join(f"{name} {found.get(name)!r} there, {wanted.get(name)!r} now" for name in differs)
        raise SchemaError(
            f"{out} belongs to another run: {what}. Give another --out, or repeat that run's options."
        )


def compact(value: Any) -> str:
    """JSON on one line, without blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def unwritable(path: Path, error: OSError) -> ProfilingError:
    """Error of a full or failing disk."""
    return ProfilingError(
        f"{path} cannot be written: {error.strerror}. What was measured before is kept; make room, then repeat "
        "the same command to go on."
    )


def _opened(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise SchemaError(f"another run is writing {path}. Wait for it, or give another --out.") from None
    return file


def _drop_torn_line(file: int) -> int:
    """Cut a line that a killed run began and did not end; return the file's size."""
    size = os.fstat(file).st_size
    end = size
    while end > 0:
        start = max(0, end - 65536)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)
    return end


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
