"""A run: a request measured on this machine's devices or on the workers of a cluster, into one table.

It consists of jobs, each measured by one process: every n-th series on one of several devices here, or about a minute's
work on a worker of a cluster, in a process of its own as `epochcast profile` would there. A job whose worker dies is
measured again by another. What is on disk already is skipped, so a killed run goes on where it stopped.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from predictor.errors import EpochcastError, ProfilingError, SchemaError
from proxy_cnns import rows_file
from proxy_cnns.configuration import Configuration
from proxy_cnns.device import name_of_device
from proxy_cnns.estimates import estimated_seconds
from proxy_cnns.jobs import Job, Progress, Report, Request, measure_job, modes_of, remaining

GPU_RESOURCE, CPU_RESOURCE = "GPU", "profile"
"""What a worker that measures GPUs, and one that measures its processor, must offer one of."""

_JOB_S = 60.0
"""Estimated seconds of a worker's job: many times what starting its process takes, and all that a dead worker loses."""

_CHILD = "import sys; from proxy_cnns.runs import measure_in; measure_in(*sys.argv[1:])"
_REQUEST, _RESULT = "request.pickle", "result.pickle"

Measure = Callable[[Request, float, Report], dict[str, Any]]
"""Measures a request until a reading of `time.perf_counter` (inf: to its end), and returns the environment."""

Result = dict[str, Any] | EpochcastError
"""The environment in which a process measured, or the error that ended it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run: rows in the table, how many of them are new and disturbed, and what is missing from it.

    `interrupted` says whether Ctrl-C ended it.
    """

    out: Path
    gpu: str
    rows: int
    new: int
    disturbed: int
    left: int
    ended: tuple[str, ...]
    failed: tuple[str, ...]
    interrupted: bool


def measure_here(request: Request, deadline: float, report: Report) -> dict[str, Any]:
    """Measure a request on its devices, and return the environment of the first.

    One device is measured in this process, several in a process each. EpochcastError: the first that a process raised,
    once all have ended; ProfilingError if a process was killed.
    """
    devices = request.devices
    jobs = [Job(request, device, device, deadline, n, len(devices)) for n, device in enumerate(devices)]
    if len(jobs) == 1:
        return measure_job(jobs[0], report)
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    parent = os.getpid()
    processes = [context.Process(target=_process, args=(job, messages, parent), daemon=True) for job in jobs]
    for process in processes:
        process.start()
    results = _collect(processes, messages, report)
    for process in processes:
        process.join()
    environments = []
    for _, result in sorted(results.items()):
        if isinstance(result, EpochcastError):
            raise result
        environments.append(result)
    return environments[0] | {"gpus": len(jobs)}


def _collect(processes: Sequence[Any], messages: Any, report: Report) -> dict[int, Result]:
    """Pass progress on until every process has sent its result or is gone."""
    results: dict[int, Result] = {}
    progress: dict[int, Progress] = {}
    while len(results) < len(processes):
        try:
            number, message = messages.get(timeout=0.5)
        except queue.Empty:
            gone = [n for n, process in enumerate(processes) if n not in results and not process.is_alive()]
            if gone and messages.empty():
                results |= {number: _ended(processes[number].exitcode) for number in gone}
            continue
        if isinstance(message, Progress):
            progress[number] = message
            latest = list(progress.values())
            last = max(latest, key=lambda job_progress: job_progress.seconds_left)
            done, total = (sum(getattr(of_job, name) for of_job in latest) for name in ("done", "total"))
            report(Progress(done, total, last.seconds_left, latest[-1].now, last.limited))
        else:
            results[number] = message
    return results


def _ended(exit_code: int, last_words: str = "") -> ProfilingError:
    words = f": {last_words}" if last_words else ""
    return ProfilingError(
        f"a measuring process ended by itself (exit code {exit_code}{words}). Its measurements are kept; repeat the "
        "command to go on."
    )


def _process(job: Job, messages: Any, parent: int) -> None:
    """Measure on the one GPU that this process sees, and send the result or the error."""
    end_with(parent)
    shown = replace(job, device=_show_only(job.device))
    result = _result_of(measure_job, shown, lambda progress: messages.put((job.number, progress)))
    messages.put((job.number, result))


def _result_of(measure: Callable[..., dict[str, Any]], *arguments: Any) -> Result:
    """Environment that `measure` returns for these arguments, or the error that it raises."""
    try:
        return measure(*arguments)
    except EpochcastError as error:
        return error


def _show_only(device: str) -> str:
    if device == "cpu":
        return device
    os.environ["CUDA_VISIBLE_DEVICES"] = name_of_device(int(device.partition(":")[2]))
    return "cuda:0"


def end_with(parent: int) -> None:
    """End this process when its parent is killed: nobody else collects its measurements."""

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Cluster(Protocol):
    """Where jobs run."""

    def places(self, resource: str) -> int:
        """Jobs that can run at once, each on a worker that offers the resource."""

    def run(
        self, function: Callable[..., Any], arguments: Iterator[tuple[Any, ...]], resource: str
    ) -> Iterator[Any]:
        """Run a job for each arguments, which are drawn when there is a place; results come as jobs end."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What one process measured: the lines of its rows file, and its environment or the error that ended it."""

    worker: str
    entries: list[dict[str, Any]]
    result: Result


def measured_by(cluster: Cluster) -> Measure:
    """Function that measures a request on a cluster: the argument `measure` of `profile`."""

    def measure(request: Request, deadline: float, report: Report) -> dict[str, Any]:
        resource = CPU_RESOURCE if request.devices == ("cpu",) else GPU_RESOURCE
        subjects = (configuration.subject for configuration in request.configurations)
        files = {str(subject.builder.path) for subject in subjects if subject.builder}
        if files:
            raise SchemaError(
                f"{', '.join(sorted(files))} is code of this machine, which workers are not sent. Measure its "
                "operators (--preset cnn:FILE.py:make_model), or leave --scheduler out."
            )
        gathered = _Gathered(request, rows_file.read_run(request.out, None))
        try:
            while left := gathered.left(deadline):
                jobs = gathered.requests(left, cluster.places(resource), deadline)
                for result in cluster.run(measure_request, jobs, resource):
                    gathered.take(result)
                    report(gathered.progress(len(left), result.worker))
        finally:
            if gathered.file is not None:
                gathered.file.close()
        return gathered.environment()

    return measure


@dataclass(slots=True)
class _Gathered:
    """The rows that workers send, appended to the file of a run."""

    request: Request
    run: rows_file.Run
    started: float = field(default_factory=time.perf_counter)
    n_done: int = 0
    file: rows_file.RunFile | None = None
    error: EpochcastError | None = None
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    _idle: bool = False

    def left(self, deadline: float) -> list[Configuration]:
        """Configurations to measure in the next round; none after an error, the deadline, or a round without rows."""
        if self.error is not None or time.perf_counter() >= deadline or self._idle:
            return []
        self._idle = True
        return remaining(self.request.configurations, self.run)

    def requests(
        self, left: Sequence[Configuration], places: int, deadline: float
    ) -> Iterator[tuple[Request]]:
        """The request of each job, as long as there is time; a series that ended meanwhile is left out."""
        seconds = [estimated_seconds(configuration) for configuration in left]
        for share in _shares(left, seconds, min(_JOB_S, sum(seconds) / max(1, places))):
            budget_s = deadline - time.perf_counter()
            unfinished = tuple(
                config for config in share if self.run.ends(rows_file.configuration_key(config)) is None
            )
            if unfinished and self.error is None and budget_s > 0:
                yield (replace(self.request, configurations=unfinished, budget_s=budget_s),)

    def take(self, job: JobResult) -> None:
        """Write what a worker sent; SchemaError if its device is not that of the other rows."""
        entries = job.entries[1:]
        if entries:
            file = self._opened(job.entries[0]["run"] | {"modes": modes_of(self.request)}, job.worker)
            recent: list[Any] = []
            for entry in entries:
                file.append(entry)
                self.run.take(entry, recent)
        done = sum("row" in entry or "failed" in entry or "ended" in entry for entry in entries)
        self.n_done, self._idle = self.n_done + done, self._idle and not done
        if isinstance(job.result, EpochcastError):
            self.error = self.error or type(job.result)(f"worker {job.worker}: {job.result}")
        else:
            self.environments[job.worker] = job.result

    def _opened(self, identity: dict[str, Any], worker: str) -> rows_file.RunFile:
        """The run's file, into which rows of this identity belong."""
        if self.file is None:
            self.run = rows_file.read_run(self.request.out, identity)
            self.file = rows_file.RunFile(rows_file.rows_path(self.request.out), identity)
            self.run.identity = identity
        run_identity = self.run.identity or {}
        differences = rows_file.differing(run_identity, identity, "{name} {second!r}, not {first!r}")
        if differences:
            raise SchemaError(
                f"worker {worker} differs from the first: {differences}. A table holds one kind of machine: start a "
                "scheduler for each kind. Rows of the other workers are kept; repeat the command to go on."
            )
        return self.file

    def progress(self, n_left: int, worker: str) -> Progress:
        elapsed = time.perf_counter() - self.started
        seconds_left = elapsed * (n_left - self.n_done) / max(1, self.n_done)
        return Progress(self.n_done, n_left, max(0.0, seconds_left), f"worker {worker}")

    def environment(self) -> dict[str, Any]:
        """Environment of the first worker; raises the first error that ended a job."""
        if self.error is not None:
            raise self.error
        first: dict[str, Any] = next(iter(self.environments.values()), {})
        return first | {"workers": sorted(self.environments)}


def _shares(
    configurations: Sequence[Configuration], seconds: Sequence[float], most_s: float
) -> Iterator[list[Configuration]]:
    """Consecutive configurations of at most `most_s` seconds together, at least one at a time."""
    share: list[Configuration] = []
    total_s = 0.0
    for configuration, own_s in zip(configurations, seconds, strict=True):
        if share and total_s + own_s > most_s:
            yield share
            share, total_s = [], 0.0
        share.append(configuration)
        total_s += own_s
    if share:
        yield share


def measure_request(request: Request) -> JobResult:
    """Measure a request in a process of its own, on the machine that calls this.

    Device, memory and interpreter are its own, as in a process that a person starts.
    """
    worker = f"{socket.gethostname()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}".strip()
    with TemporaryDirectory(prefix="epochcast-") as name:
        folder = Path(name)
        own = replace(request, out=folder / "job.csv")
        (folder / _REQUEST).write_bytes(pickle.dumps(own))
        command = [sys.executable, "-c", _CHILD, name, str(os.getpid())]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)  # noqa: S603
        lines = [line for path in rows_file.rows_paths(own.out) for line in path.read_text().split("\n")[:-1]]
        result: Result
        if (folder / _RESULT).exists():
            result = pickle.loads((folder / _RESULT).read_bytes())  # noqa: S301 - our own
        else:
            words = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            result = _ended(process.returncode, words)
        return JobResult(worker, [json.loads(line) for line in lines], result)


def measure_in(folder: str, parent: str) -> None:
    """Measure the request that lies in a folder, and leave environment or error there; a process's only work."""
    end_with(int(parent))
    request: Request = pickle.loads((Path(folder) / _REQUEST).read_bytes())  # noqa: S301 - of `measure_request`
    result = _result_of(measure_here, request, _deadline(request), lambda _: None)
    (Path(folder) / _RESULT).write_bytes(pickle.dumps(result))


def _deadline(request: Request) -> float:
    """Reading of the clock at which a request that starts now ends; inf without a budget."""
    return inf if request.budget_s is None else time.perf_counter() + request.budget_s


def profile(request: Request, report: Report = lambda _: None, measure: Measure = measure_here) -> Outcome:
    """Measure the configurations of a request that are not on disk yet, and write the table.

    `report`: called with the progress after each configuration. `measure`: what measures: this machine's devices, or a
    cluster (`measured_by`). BackendUnavailableError if the framework is not installed, or there is no such device;
    NoisyMeasurementError if the device is not free, or was disturbed, and noise is not allowed; SchemaError if `out`
    belongs to another run, or is being written by one; ProfilingError if the disk is full, or every configuration
    failed.
    """
    deadline = _deadline(request)
    before = rows_file.read_run(request.out, None)
    unfinished = remaining(request.configurations, before)
    reopened = rows_file.reopen(request.out) if unfinished else None
    try:
        environment = measure(request, deadline, report)
    except EpochcastError:
        if reopened is not None:
            run = rows_file.read_run(request.out, None)
            parts = ((getattr(run, name), getattr(before, name)) for name in ("rows", "ended", "failed"))
            if all(after.keys() == earlier.keys() for after, earlier in parts):
                rows_file.remove_rows(request.out)  # nothing was added to the finished table, which stays
        raise
    interrupted = environment.pop("interrupted", False)
    run = rows_file.read_run(request.out, None)
    if run.failed and not (run.rows or run.ended or remaining(request.configurations, run)):
        rows_file.remove_rows(request.out)  # an empty table would stop the next run
        key, reason = next(iter(run.failed.items()))
        raise ProfilingError(
            f"nothing was measured, and {request.out} was not written: {_name(key)} and all other configurations "
            f"failed. {reason}"
        )
    if rows_file.rows_paths(request.out):
        rows_file.write_table(run, request.out, environment)
        rows_file.remove_rows(request.out)
    return Outcome(
        request.out,
        str((run.identity or {}).get("gpu", "")),
        len(run.rows),
        len(run.rows.keys() - before.rows.keys()),
        sum(str(row.get("disturbed")) == "True" for row in run.rows.values()),
        len(remaining(request.configurations, run)),
        tuple(
            f"{_name(end['series'])} from batch {end['batch_size']}: {end['reason']}"
            for end in run.ended.values()
        ),
        tuple(f"{_name(key)}: {reason}" for key, reason in run.failed.items()),
        interrupted,
    )


def _name(key: Sequence[str]) -> str:
    return f"{key[1]} {key[3]} {key[4]}"
