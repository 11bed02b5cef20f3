"""The table that a run ends in, and its sidecar: written, read back and opened again without pandas.

A measuring machine may lack pandas, so the csv module writes what `predictor.measurements.table` reads.
"""

import csv
import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from predictor.errors import SchemaError
from predictor.files import replace_file
from predictor.measurements.schema import COLUMNS
from proxy_cnns.rows import Key, key_of, series_of, sort_key
from proxy_cnns.run_file import Run, check_identity, compact, read_rows, rows_paths, unwritable

__all__ = ["read_run", "reopen", "sidecar_path", "write_table"]


def sidecar_path(out: Path) -> Path:
    """Where the repeats, the environment and the device's states are: ``x.json`` beside ``x.csv``."""
    name = out.name.removesuffix(".gz")
    return out.with_name(name.removesuffix(".csv") + ".json" + (".gz" if out.name.endswith(".gz") else ""))


def read_run(out: Path, identity: Mapping[str, Any] | None) -> Run:
    """What a run of this identity (None: of any) has already measured; an empty run if there is none.

    Raises
    ------
    SchemaError
        If `out` belongs to another run, saying what differs, or is no table of this command.
    """
    if not out.name.endswith((".csv", ".csv.gz")):
        raise SchemaError(
            f"--out {out} is neither .csv nor .csv.gz. Try: --out {out.name.split('.')[0]}.csv.gz"
        )
    if not out.parent.is_dir():
        raise SchemaError(f"--out {out}: there is no folder {out.parent}. Make it, or write elsewhere.")
    run = Run()
    for path in rows_paths(out):
        read_rows(path, run, identity, out)
    if run.identity is None and out.exists():
        _read_finished(out, run, identity)
    return run


def reopen(out: Path) -> Path | None:
    """Turn a finished table back into a rows file, to be added to; None where there is none, or already one.

    Raises
    ------
    SchemaError
        If `out` is no table of this command.
    """
    if rows_paths(out) or not out.exists():
        return None
    run = read_run(out, None)
    entries: list[dict[str, Any]] = [{"run": run.identity}]
    entries += [{"row": row, "repeats": run.repeats[key]} for key, row in run.rows.items()]
    entries += [{"ended": end} for end in run.ended.values()]
    entries += [{"failed": key, "reason": reason} for key, reason in run.failed.items()]
    entries += run.events
    path = out.with_name(f"{out.name}.rows.jsonl")
    _replace(path, "".join(compact(entry) + "\n" for entry in entries))
    return path


def write_table(run: Run, out: Path, environment: Mapping[str, Any]) -> None:
    """Write the table and its sidecar, each in one step, the same bytes for the same run.

    Raises
    ------
    ProfilingError
        If they cannot be written; the rows files are untouched.
    """
    ordered = sorted(run.rows.values(), key=sort_key)
    used = {name for row in ordered for name in row}
    names = [column.name for column in COLUMNS if column.name in used]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(ordered)
    sidecar = {
        "run": run.identity,
        "environment": dict(environment),
        "events": run.events,
        "ended": list(run.ended.values()),
        "failed": [{"failed": list(key), "reason": reason} for key, reason in run.failed.items()],
        "largest_batch_sizes": _largest(run),
        "repeats": [run.repeats.get(key_of(row), {}) for row in ordered],
    }
    _replace(sidecar_path(out), _lines(sidecar))
    _replace(out, text.getvalue())


def _largest(run: Run) -> list[dict[str, Any]]:
    """The largest batch size that was measured of each series that ended before its grid did."""
    largest: dict[Key, int] = {}
    for key in run.rows:
        largest[series_of(key)] = max(largest.get(series_of(key), 0), int(key[-1]))
    return [{"series": list(series), "batch_size": largest.get(series)} for series in run.ended]


def _read_finished(out: Path, run: Run, identity: Mapping[str, Any] | None) -> None:
    """Read a table and its sidecar back, to add to them."""
    beside = sidecar_path(out)
    if not beside.is_file():
        raise SchemaError(
            f"{out} exists, and without {beside.name} it is no table of this command. Give another --out."
        )
    try:
        sidecar = json.loads(_text(beside))
        rows = list(csv.DictReader(io.StringIO(_text(out))))
        check_identity(sidecar["run"], identity, out)
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
            entries = ",\n".join(compact(each) for each in value)
            parts.append(f"{json.dumps(name)}: [\n{entries}\n]" if value else f"{json.dumps(name)}: []")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(value, indent=1, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.name.endswith(".gz") else data).decode()


def _replace(path: Path, text: str) -> None:
    """As `replace_file`, gzipped where the name says so."""
    data = text.encode()
    try:
        replace_file(path, gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)
    except OSError as error:
        raise unwritable(path, error) from error
