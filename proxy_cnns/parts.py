"""A run in parts, each measured where a cluster has a place for it, gathered in one table.

A part is a minute's work of consecutive configurations. A worker measures it in a process of its own, as `epochcast
profile` would there, and sends the lines of its rows file, which are appended to this machine's. A part whose worker
dies is measured again by another.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from predictor.errors import EpochcastError, ProfilingError, SchemaError
from proxy_cnns.campaign import Progress, pending
from proxy_cnns.configuration import Configuration
from proxy_cnns.estimates import estimated_seconds
from proxy_cnns.rows_file import Run, RunFile, configuration_key, read_run, rows_paths
from proxy_cnns.shards import Measure, Request, end_with, measure_shards, modes_of

__all__ = ["CPU_RESOURCE", "GPU_RESOURCE", "Cluster", "Part", "measured_by", "resource_of"]

GPU_RESOURCE, CPU_RESOURCE = "GPU", "profile"
"""What a worker that measures GPUs, and one that measures its processor, must offer one of."""

_PART_S = 60.0
"""Estimated seconds of a part: many times what starting its process takes, and all that a dead worker loses."""

_CHILD = "import sys; from proxy_cnns.parts import measure_in; measure_in(*sys.argv[1:])"
_ASKED, _ANSWER = "request.pickle", "answer.pickle"

Report = Callable[[Progress], None]


class Cluster(Protocol):
    """Where jobs run."""

    def places(self, resource: str) -> int:
        """Jobs that can run at once, each on a worker that offers the resource."""

    def run(
        self, function: Callable[..., Any], arguments: Iterator[tuple[Any, ...]], resource: str
    ) -> Iterator[Any]:
        """Run a job for each arguments, which are drawn when there is a place; results come as jobs end."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one process measured: the lines of its rows file, and its environment or the error that ended it."""

    where: str
    entries: list[dict[str, Any]]
    result: dict[str, Any] | EpochcastError


def resource_of(request: Request) -> str:
    """What a worker must offer to measure a request."""
    return CPU_RESOURCE if request.devices == ("cpu",) else GPU_RESOURCE


def measured_by(cluster: Cluster) -> Measure:
    """What `proxy_cnns.runs.profile` measures with, in place of this machine."""

    def measure(request: Request, deadline: float | None, report: Report) -> dict[str, Any]:
        resource = resource_of(request)
        _refuse_own_files(request)
        gathered = _Gathered(request, read_run(request.out, None))
        try:
            while left := gathered.left(deadline):
                parts = gathered.requests(left, cluster.places(resource), deadline)
                for part in cluster.run(measure_part, parts, resource):
                    gathered.take(part)
                    report(gathered.progress(left, part))
        finally:
            gathered.close()
        return gathered.environment()

    return measure


def _refuse_own_files(request: Request) -> None:
    """Refuse CNNs that a Python file makes: workers are sent layers, not code."""
    files = {str(each.subject.builder.path) for each in request.configurations if each.subject.builder}
    if files:
        raise SchemaError(
            f"{', '.join(sorted(files))} is code of this machine, which workers are not sent. Measure its operators "
            "(--preset cnn:FILE.py:make_model), or leave --scheduler out."
        )


@dataclass(slots=True)
class _Gathered:
    """The rows that workers send, appended to the file of a run."""

    request: Request
    run: Run
    started: float = field(default_factory=time.perf_counter)
    n_done: int = 0
    file: RunFile | None = None
    error: EpochcastError | None = None
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    _idle: bool = False

    def left(self, deadline: float | None) -> list[Configuration]:
        """Configurations to measure in the next round; none after an error, the deadline, or a round without rows."""
        late = deadline is not None and time.perf_counter() >= deadline
        if self.error is not None or late or self._idle:
            return []
        self._idle = True
        return pending(self.request.configurations, self.run, refine=self.request.refine)

    def requests(
        self, left: Sequence[Configuration], places: int, deadline: float | None
    ) -> Iterator[tuple[Request]]:
        """The request of each part, as long as there is time; a series that ended meanwhile is left out."""
        weights = [estimated_seconds(each) for each in left]
        enough = min(_PART_S, sum(weights) / max(1, places))
        part: list[Configuration] = []
        weight = 0.0
        for configuration, seconds in zip(left, weights, strict=True):
            if part and weight + seconds > enough:
                yield from self._request(part, deadline)
                part, weight = [], 0.0
            part.append(configuration)
            weight += seconds
        if part:
            yield from self._request(part, deadline)

    def _request(self, part: Sequence[Configuration], deadline: float | None) -> Iterator[tuple[Request]]:
        budget_s = None if deadline is None else deadline - time.perf_counter()
        there = tuple(each for each in part if self.run.ends(configuration_key(each)) is None)
        if there and self.error is None and (budget_s is None or budget_s > 0):
            yield (replace(self.request, configurations=there, budget_s=budget_s, refine=False),)

    def take(self, part: Part) -> None:
        """Write what a worker sent; SchemaError if its device is not that of the other rows."""
        entries = part.entries[1:]
        if entries:
            file = self._opened(part.entries[0]["run"] | {"modes": modes_of(self.request)}, part.where)
            recent: list[Any] = []
            for entry in entries:
                file.append(entry)
                self.run.take(entry, recent)
        done = sum("row" in entry or "failed" in entry or "ended" in entry for entry in entries)
        self.n_done, self._idle = self.n_done + done, self._idle and not done
        if isinstance(part.result, EpochcastError):
            self.error = self.error or type(part.result)(f"worker {part.where}: {part.result}")
        else:
            self.environments[part.where] = part.result

    def _opened(self, identity: dict[str, Any], where: str) -> RunFile:
        """The run's file, into which rows of this identity belong."""
        if self.file is None:
            self.run = read_run(self.request.out, identity)
            path = self.request.out.with_name(f"{self.request.out.name}.rows.jsonl")
            self.file, self.run.identity = RunFile(path, identity), identity
        known = self.run.identity or {}
        differs = [name for name in {**known, **identity} if known.get(name) != identity.get(name)]
        if differs:
            what = "; ".join(f"{name} {identity.get(name)!r}, not {known.get(name)!r}" for name in differs)
            raise SchemaError(
                f"worker {where} is unlike those before it: {what}. One table is of one kind of machine: start a "
                "scheduler for each kind. Rows of the others are kept; repeat the command to go on."
            )
        return self.file

    def progress(self, left: Sequence[Configuration], part: Part) -> Progress:
        elapsed = time.perf_counter() - self.started
        seconds_left = elapsed * (len(left) - self.n_done) / max(1, self.n_done)
        return Progress(self.n_done, len(left), max(0.0, seconds_left), f"worker {part.where}")

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def environment(self) -> dict[str, Any]:
        """That of the first worker, once all have ended without an error."""
        if self.error is not None:
            raise self.error
        first: dict[str, Any] = next(iter(self.environments.values()), {})
        return first | {"workers": sorted(self.environments)}


def measure_part(request: Request) -> Part:
    """Measure a request in a process of its own, on the machine that calls this.

    A process of its own has its device, its memory and its interpreter for itself, as one that a person starts.
    """
    where = f"{socket.gethostname()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}".strip()
    with TemporaryDirectory(prefix="epochcast-") as name:
        folder = Path(name)
        asked = replace(request, out=folder / "part.csv")
        (folder / _ASKED).write_bytes(pickle.dumps(asked))
        command = [sys.executable, "-c", _CHILD, name, str(os.getpid())]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)  # noqa: S603
        lines = [line for path in rows_paths(asked.out) for line in path.read_text().split("\n")[:-1]]
        return Part(where, [json.loads(line) for line in lines], _answer(folder, process))


def _answer(folder: Path, process: subprocess.CompletedProcess[bytes]) -> dict[str, Any] | EpochcastError:
    if (folder / _ANSWER).exists():
        found: dict[str, Any] | EpochcastError = pickle.loads((folder / _ANSWER).read_bytes())  # noqa: S301 - our own
        return found
    last = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return ProfilingError(
        f"a measuring process ended by itself (exit code {process.returncode}{f': {last}' if last else ''}). Its "
        "measurements are kept; repeat the command to go on."
    )


def measure_in(folder: str, parent: str) -> None:
    """Measure the request that lies in a folder, and leave environment or error there; a process's only work."""
    end_with(int(parent))
    request: Request = pickle.loads((Path(folder) / _ASKED).read_bytes())  # noqa: S301 - written by `measure_part`
    deadline = None if request.budget_s is None else time.perf_counter() + request.budget_s
    try:
        result: dict[str, Any] | EpochcastError = measure_shards(request, deadline, lambda _: None)
    except EpochcastError as error:
        result = error
    (Path(folder) / _ANSWER).write_bytes(pickle.dumps(result))
