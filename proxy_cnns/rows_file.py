"""The rows of a run: each on disk before the next is measured, and in the end a table with its sidecar.

While a run goes on, `OUT.rows.jsonl` (one for each process) grows. Killing the run loses the configuration under way
and nothing else.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from predictor.errors import BackendUnavailableError, ProfilingError, SchemaError
from predictor.files import replace_file
from predictor.measurements.schema import COLUMNS, FORMAT_VERSION
from predictor.operators.operators import operator_row
from predictor.table_files import SUFFIXES, check_writable, open_table, writing_table
from proxy_cnns.configuration import Configuration
from proxy_cnns.profiler import Measured

try:
    import fcntl
except ModuleNotFoundError as error:
    raise BackendUnavailableError(
        "measuring needs Linux or macOS, and this Python runs on Windows. Run it in WSL (wsl --install), which sees "
        "NVIDIA's GPUs, too; predictions work here."
    ) from error

Key = tuple[str, ...]
"""Identity of a row within a run."""

_KEYS = ("kind", "cnn", "image_size", "precision", "memory_format", "autotune", "capture")
_PARALLEL_KEYS = ("n_gpus", "bucket_mib", "bucket_view")
_TYPES = {
    "count": "int64", "flag": "bool", "amount": "float64", "time": "float64", "text": "string", "word": "string",
}  # fmt: skip
"""By `Column.form`: how Parquet holds a column."""
_DIGITS = 6
_MOST_REPEATS = 30


def configuration_key(configuration: Configuration) -> Key:
    """Key of the row that a configuration ends in."""
    subject = configuration.subject
    row = asdict(configuration.mode) | _replica_columns(configuration)
    row |= {"kind": subject.kind, "cnn": subject.name, "image_size": subject.image_size}
    return key_of(row | {"batch_size": configuration.global_batch_size})


def key_of(row: Mapping[str, Any]) -> Key:
    """Key of a row; columns that tell rows of several GPUs apart are left out for one GPU."""
    named = [row[name] for name in _KEYS]
    if int(row.get("n_gpus", 1)) != 1:
        named += [row.get(name, "") for name in _PARALLEL_KEYS]
        named += ["sync_batch_norm"] if str(row.get("sync_batch_norm")) == "True" else []
    return tuple(str(value) for value in (*named, row["batch_size"]))


def series_of(key: Key) -> Key:
    """Key without its batch size: rows that differ in nothing else are a series."""
    return key[:-1]


def measurement_row(
    configuration: Configuration, measured: Measured, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Columns of the measurement table; unknown values are left out.

    `about`: columns that all rows of the run share: ``gpu``, ``framework_version``, ``host``, ...
    """
    subject, mode_columns = configuration.subject, asdict(configuration.mode)
    if (configuration.mode.framework, configuration.mode.precision) != ("pytorch", "tf32"):
        del mode_columns["float32_matmul_precision"]  # which does nothing there
    more = {"pass": "training"} if subject.message_bytes is None else {"message_bytes": subject.message_bytes}
    of_cnn = {"kind": subject.kind, "cnn": subject.name, **more}
    wall, gpu, host = measured.iteration_times_ms, measured.gpu_times_ms, measured.host_times_ms
    lower, upper = np.quantile(wall, [0.25, 0.75])
    row = {
        "format_version": FORMAT_VERSION,
        "source": "epochcast",
        **about,
        **(operator_row(subject.operator) if subject.operator is not None else of_cnn),
        "image_size": subject.image_size,
        "batch_size": configuration.global_batch_size,
        **mode_columns,
        **_replica_columns(configuration),
        "loader_workers": 0,
        "iteration_time_ms": _rounded(np.median(wall)),
        "gpu_time_ms": _rounded(np.median(gpu)) if gpu else None,
        "host_time_ms": _rounded(np.median(host)) if host else None,
        "peak_memory_mib": _rounded(measured.peak_memory_mib),
        "compile_s": _rounded(measured.compile_s),
        "conv_algorithms": measured.conv_algorithms,
        "n_warmup": measured.n_warmup,
        "n_repeats": len(wall),
        "iteration_time_ms_iqr": _rounded(upper - lower),
        "median_precision": _rounded(measured.precision),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "notes": "; ".join(measured.notes),
    }
    return {name: value for name, value in row.items() if value not in (None, "")}


def repeats_of(measured: Measured, kind: str) -> dict[str, Any]:
    """Every repeat in ms; of an operator the minimum, the quartiles and the maximum."""
    if kind == "operator":
        return {"quantiles_ms": list(map(_rounded, np.quantile(measured.times_ms, [0, 0.25, 0.5, 0.75, 1])))}
    names = ("iteration_times_ms", "gpu_times_ms", "host_times_ms")
    repeats = {name: list(map(_rounded, (getattr(measured, name) or ())[:_MOST_REPEATS])) for name in names}
    kept = {name: times_ms for name, times_ms in repeats.items() if times_ms}
    return kept | {"iterations_per_wall_time": measured.chunk}


def _replica_columns(configuration: Configuration) -> dict[str, Any]:
    """Number of GPUs, and how gradients are added up where there are several, and gradients."""
    replicas = configuration.replicas
    trains_together = replicas.n_gpus > 1 and configuration.subject.message_bytes is None
    return asdict(replicas) if trains_together else {"n_gpus": replicas.n_gpus}


def _rounded(value: float | np.floating[Any] | None) -> float | None:
    """Six significant digits: finer than any clock, in a third of the file."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")


@dataclass(slots=True)
class Run:
    """The contents of a run on disk: rows and repeats by key, ended series, failures, readings of the device."""

    identity: dict[str, Any] | None = None
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    repeats: dict[Key, dict[str, Any]] = field(default_factory=dict)
    ended: dict[Key, dict[str, Any]] = field(default_factory=dict)
    failed: dict[Key, str] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def take(self, entry: Mapping[str, Any], recent: list[Key]) -> None:
        """Add one line of a rows file. `recent`: keys of the rows since the device's last clean reading."""
        if "row" in entry:
            key = key_of(entry["row"])
            self.rows[key], self.repeats[key] = dict(entry["row"]), entry.get("repeats", {})
            recent.append(key)
        elif "ended" in entry:
            end, series = entry["ended"], tuple(entry["ended"]["series"])
            if series not in self.ended or int(end["batch_size"]) < int(self.ended[series]["batch_size"]):
                self.ended[series] = dict(end)
        elif "failed" in entry:
            self.failed[tuple(entry["failed"])] = entry["reason"]
        elif "device" in entry or "host" in entry:
            if entry.get("disturbed"):
                note = "disturbed: " + "; ".join(entry["disturbed"])
                for key in recent:  # the rows since the last clean reading are marked, or removed
                    if not entry["kept"]:
                        self.rows.pop(key, None)
                        self.repeats.pop(key, None)
                    elif row := self.rows.get(key):
                        row |= {"disturbed": True, "notes": "; ".join(filter(None, (row.get("notes"), note)))}
            if "device" in entry:
                recent.clear()
            self.events.append(dict(entry))

    def ends(self, key: Key) -> dict[str, Any] | None:
        """The end of a configuration's series, if the series ended at its batch size or a smaller one; else None."""
        end = self.ended.get(series_of(key))
        return end if end is not None and int(key[-1]) >= int(end["batch_size"]) else None


class RunFile:
    """Appends lines to a rows file, under a lock that keeps other runs from writing to it.

    `sync_each`: sync every row to disk before the next is measured, else once a second. A row outlives its process
    either way, and with `sync_each` also a crash of the machine.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], *, sync_each: bool = True) -> None:
        self.path, self._sync_each = path, sync_each
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise SchemaError(f"another run is writing {path}. Wait for it, or give another --out.") from None
        self._synced = time.monotonic()
        self._end = _drop_torn_line(self._file)
        if self._end == 0:
            self.append({"run": dict(identity)})

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line.

        ProfilingError if the disk is full or fails; the file then ends with the line before.
        """
        line = _compact(entry).encode() + b"\n"
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
            raise _unwritable(self.path, error) from error

    def close(self) -> None:
        """Sync to disk, and release the lock."""
        os.fsync(self._file)
        os.close(self._file)


def rows_path(out: Path, number: int | None = None) -> Path:
    """The rows file of a run, or of one of several processes that measure it."""
    return out.with_name(f"{out.name}.rows{'' if number is None else f'.{number}'}.jsonl")


def rows_paths(out: Path) -> list[Path]:
    """Rows files of a run, one for each process that measured."""
    return sorted(out.parent.glob(f"{escape(out.name)}.rows*.jsonl"))


def remove_rows(out: Path) -> None:
    """Remove the rows files of a run."""
    for path in rows_paths(out):
        path.unlink()


def _check_identity(on_disk: Mapping[str, Any], identity: Mapping[str, Any] | None, out: Path) -> None:
    """Refuse the files of another run; the message says what differs."""
    words = "{name} {second!r} there, {first!r} now"
    differences = "" if identity is None else differing(identity, on_disk, words)
    if differences:
        raise SchemaError(
            f"{out} belongs to another run: {differences}. Give another --out, or repeat that run's options."
        )


def differing(first: Mapping[str, Any], second: Mapping[str, Any], words: str) -> str:
    """Names in which two runs' identities differ, written as `words` says; empty if they are equal."""
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    pairs = ((name, first.get(name), second.get(name)) for name in names)
    return "; ".join(words.format(name=name, first=own, second=stored) for name, own, stored in pairs)


def _compact(value: Any) -> str:
    """JSON on one line, without blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _unwritable(path: Path, error: OSError) -> ProfilingError:
    """Error of a full or failing disk."""
    return ProfilingError(
        f"{path} cannot be written: {error.strerror}. Earlier measurements are kept; make room, then repeat the "
        "same command to go on."
    )


def sidecar_path(out: Path) -> Path:
    """Path of the sidecar of a table: ``x.json`` of ``x.csv`` or ``x.parquet``, ``x.json.gz`` of ``x.csv.gz``."""
    name, zipped = out.name.removesuffix(".gz"), ".gz" if out.name.endswith(".gz") else ""
    return out.with_name(name.removesuffix(".csv").removesuffix(".parquet") + ".json" + zipped)


def read_run(out: Path, identity: Mapping[str, Any] | None) -> Run:
    """The run of this identity (None: of any) that is on disk; an empty run if there is none.

    A line that a killed run did not finish is left out. SchemaError if `out` belongs to another run, saying what
    differs, is damaged, or is no table of this command.
    """
    if not out.name.endswith(SUFFIXES):
        raise SchemaError(
            f"--out {out} is none of {', '.join(SUFFIXES)}. Try: --out {out.name.split('.')[0]}.csv.gz"
        )
    check_writable(out)
    if not out.parent.is_dir():
        raise SchemaError(f"--out {out}: there is not a folder {out.parent}. Make it, or write elsewhere.")
    run = Run()
    for path in rows_paths(out):
        recent: list[Key] = []
        lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last is torn
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
            except ValueError as error:
                words = f"{path}, line {number} is not JSON: {error}. Move the file away to start again."
                raise SchemaError(words) from error
            if "run" in entry:
                _check_identity(entry["run"], identity, out)
                run.identity = dict(entry["run"])
            else:
                run.take(entry, recent)
    if run.identity is None and out.exists():
        _read_finished(out, run, identity)
    return run


def reopen(out: Path) -> Path | None:
    """Turn a finished table back into a rows file, to be added to; None where there is none, or already one.

    SchemaError if `out` is no table of this command.
    """
    if rows_paths(out) or not out.exists():
        return None
    run = read_run(out, None)
    entries: list[dict[str, Any]] = [{"run": run.identity}]
    entries += [{"row": row, "repeats": run.repeats[key]} for key, row in run.rows.items()]
    entries += [{"ended": end} for end in run.ended.values()]
    entries += [{"failed": key, "reason": reason} for key, reason in run.failed.items()]
    entries += run.events
    path = rows_path(out)
    _replace(path, "".join(_compact(entry) + "\n" for entry in entries))
    return path


def write_table(run: Run, out: Path, environment: Mapping[str, Any]) -> None:
    """Write the table and its sidecar, each in one step, the same bytes for the same run.

    ProfilingError if they cannot be written; the rows files are untouched.
    """

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Order of the rows, the same however and by how many processes they were measured."""
        *words, batch_size = key_of(row)
        return (*words[3:], *words[:2], int(words[2]), int(batch_size))

    ordered = sorted(run.rows.values(), key=place)
    largest: dict[Key, int] = {}  # measured batch size of each series
    for key in run.rows:
        largest[series_of(key)] = max(largest.get(series_of(key), 0), int(key[-1]))
    used = {name for row in ordered for name in row}
    columns = {column.name: _TYPES[column.form] for column in COLUMNS if column.name in used}
    sidecar = {
        "run": run.identity,
        "environment": dict(environment),
        "events": run.events,
        "ended": list(run.ended.values()),
        "failed": [{"failed": list(key), "reason": reason} for key, reason in run.failed.items()],
        "largest_batch_sizes": [{"series": [*key], "batch_size": largest.get(key)} for key in run.ended],
        "repeats": [run.repeats.get(key_of(row), {}) for row in ordered],
    }
    _replace(sidecar_path(out), _lines(sidecar))
    try:
        with writing_table(out, list(columns), columns) as writer:
            writer.write([str(row.get(name, "")) for name in columns] for row in ordered)
    except OSError as error:
        raise _unwritable(out, error) from error


def _read_finished(out: Path, run: Run, identity: Mapping[str, Any] | None) -> None:
    """Read a table and its sidecar back, to add to them."""
    beside = sidecar_path(out)
    if not beside.is_file():
        raise SchemaError(
            f"{out} exists, and without {beside.name} it is no table of `epochcast profile`. Give another --out."
        )
    try:
        data = beside.read_bytes()
        sidecar = json.loads(gzip.decompress(data) if beside.name.endswith(".gz") else data)
        with open_table(out) as table:
            rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
        _check_identity(sidecar["run"], identity, out)
        run.identity = dict(sidecar["run"])
        for row, repeats in zip(rows, sidecar["repeats"], strict=True):
            run.take({"row": {key: value for key, value in row.items() if value}, "repeats": repeats}, [])
        for entry in [*({"ended": end} for end in sidecar["ended"]), *sidecar["failed"]]:
            run.take(entry, [])
        run.events += sidecar["events"]
    except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(
            f"{out} and {beside.name} do not belong together: {error}. Give another --out."
        ) from error


def _lines(sidecar: Mapping[str, Any]) -> str:
    """JSON with a line for each entry of a list: small, and readable in a difference."""
    parts = []
    for name, value in sidecar.items():
        if isinstance(value, list):
            entries = ",\n".join(_compact(entry) for entry in value)
            parts.append(f"{json.dumps(name)}: [\n{entries}\n]" if value else f"{json.dumps(name)}: []")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(value, indent=1, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _replace(path: Path, text: str) -> None:
    data = text.encode()
    try:
        replace_file(path, gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)
    except OSError as error:
        raise _unwritable(path, error) from error


def _drop_torn_line(file: int) -> int:
    """Cut off a line that a killed run did not finish; return the file's size."""
    end = size = os.fstat(file).st_size
    newline = -1
    while end > 0 and newline < 0:
        start = max(0, end - 65536)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        end = start + newline + 1
    if end < size:
        os.ftruncate(file, end)
    return end
