"""`epochcast profile` without its options: a preset on one device or several, into one table.

What is on disk already is skipped, so a killed run goes on where it stopped.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from predictor.errors import EpochcastError, ProfilingError
from proxy_cnns.campaign import Progress, pending
from proxy_cnns.rows_file import Run, read_run, reopen, rows_paths, write_table
from proxy_cnns.shards import Measure, Request, measure_shards

__all__ = ["Outcome", "Request", "profile"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run: rows in the table, how many of them are new and disturbed, and what is missing from it."""

    out: Path
    gpu: str
    rows: int
    new: int
    disturbed: int
    left: int
    ended: tuple[str, ...]
    failed: tuple[str, ...]


def profile(
    request: Request,
    report: Callable[[Progress], None] = lambda _: None,
    measure: Measure = measure_shards,
) -> Outcome:
    """Measure the configurations of a request that are not on disk yet, and write the table.

    Parameters
    ----------
    request : Request
    report : callable
        Called with the progress after each configuration.
    measure : callable, optional
        What measures: this machine's devices, or a cluster (`proxy_cnns.parts.measured_by`).

    Raises
    ------
    BackendUnavailableError
        If the framework is not installed, or there is no such device.
    NoisyMeasurementError
        If the device is not free, or was disturbed, and noise is not allowed.
    SchemaError
        If `out` belongs to another run, or is being written by one.
    ProfilingError
        If the disk is full, or every configuration failed.
    """
    start = time.perf_counter()
    deadline = None if request.budget_s is None else start + request.budget_s
    before = read_run(request.out, None)
    unfinished = pending(request.configurations, before, refine=request.refine)
    reopened = reopen(request.out) if unfinished else None
    try:
        environment = measure(request, deadline, report)
    except EpochcastError:
        if reopened is not None:
            _drop_unchanged(request.out, before)
        raise
    run = read_run(request.out, None)
    if run.failed and not (
        run.rows or run.ended or pending(request.configurations, run, refine=request.refine)
    ):
        _refuse_nothing(request, run)
    if rows_paths(request.out):
        write_table(run, request.out, environment)
        for path in rows_paths(request.out):
            path.unlink()
    return _outcome(request, run, before)


def _drop_unchanged(out: Path, before: Run) -> None:
    """Remove the rows files of a finished table to which nothing was added; the table itself stays."""
    run = read_run(out, None)
    if all(getattr(run, name).keys() == getattr(before, name).keys() for name in ("rows", "ended", "failed")):
        for path in rows_paths(out):
            path.unlink()


def _refuse_nothing(request: Request, run: Run) -> None:
    """Remove the rows files of a run without rows: an empty table would stop the next run."""
    for path in rows_paths(request.out):
        path.unlink()
    key, reason = next(iter(run.failed.items()))
    raise ProfilingError(
        f"nothing was measured, and {request.out} was not written: {_name(key)} and all other configurations "
        f"failed. {reason}"
    )


def _outcome(request: Request, run: Run, before: Run) -> Outcome:
    return Outcome(
        request.out,
        str((run.identity or {}).get("gpu", "")),
        len(run.rows),
        len(run.rows.keys() - before.rows.keys()),
        sum(str(row.get("disturbed")) == "True" for row in run.rows.values()),
        len(pending(request.configurations, run, refine=request.refine)),
        tuple(
            f"{_name(end['series'])} from batch {end['batch_size']}: {end['reason']}"
            for end in run.ended.values()
        ),
        tuple(f"{_name(key)}: {reason}" for key, reason in run.failed.items()),
    )


def _name(key: Sequence[str]) -> str:
    return f"{key[1]} {key[3]} {key[4]}"
