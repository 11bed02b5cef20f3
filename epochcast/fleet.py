"""Work on a Dask cluster: a connection, jobs that go where there is a place, and answers to rows.

Workers run the same epochcast, which every job checks; a job whose worker dies is run again by another.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.errors import BackendUnavailableError, SchemaError, ServiceError

if TYPE_CHECKING:
    from predictor.answers.bulk import Answers, BulkAnswers, Columns

_FILES = {"model": (), "measurements": (), "offers": (), "loader": (".json",), "host": (".json",)}
"""Options that name files, and suffixes that tell their names from others; () where any text is a file's."""

_FILE_CELLS = {"cnn": (".csv", ".onnx"), "host": (".json",), "loader": (".json",), "input": ("",)}
"""Columns of rows that may name a file, by the end of the text."""

_MOST_AHEAD = 8
"""Batches of rows in flight: more would only wait in this machine's memory."""

_CONNECT_S = 10.0
_LOOK_S = 1.0
_PATIENCE_S = 60.0
"""How long no worker may offer a place: one that has died is started again within seconds, if it is."""


class Fleet:
    """A connection to a Dask scheduler (``tcp://10.0.0.5:8786``, ``10.0.0.5:8786``), for a `with` block.

    BackendUnavailableError if Dask is not installed, ServiceError if no scheduler answers there within ten seconds.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            import distributed
        except ModuleNotFoundError:
            message = "Dask is not installed, which --scheduler needs: pip install 'epochcast[fleet]'."
            raise BackendUnavailableError(message) from None
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised, once
        self._dask: Any = distributed
        try:
            self._client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ServiceError(
                f"no Dask scheduler answers at {address} ({error}). "
                "Start one with `dask scheduler`, or check the address."
            ) from None

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(TimeoutError):  # of a farewell that nobody answers
            self._client.close(timeout=_CONNECT_S)

    def places(self, resource: str = "") -> int:
        """Jobs that can run at once: the workers' threads, or what they offer of a resource.

        ServiceError if there is none for a minute, or the scheduler is gone.
        """
        end = time.monotonic() + _PATIENCE_S
        while not (places := self._places(resource)):
            if time.monotonic() >= end:
                offering = f" --nthreads 1 --resources {resource}=1" if resource else ""
                missing = f"no worker that offers {resource}" if resource else "no worker"
                raise ServiceError(
                    f"the scheduler at {self.address} has {missing}. Start some: dask worker {self.address}{offering}. "
                    "Measurements that have arrived here are kept: then repeat the command."
                )
            time.sleep(_LOOK_S)
        return places

    def run(
        self,
        function: Callable[..., Any],
        arguments: Iterator[tuple[Any, ...]],
        resource: str = "",
        *,
        in_order: bool = False,
    ) -> Iterator[Any]:
        """Run a job for each arguments, and give their results as they end, or in order.

        Arguments are drawn when there is a place for a job; of jobs that need no resource two for each place, up to
        eight, so that no worker waits for this machine and its memory is bounded. The first error that a job raises is
        raised; ServiceError if the scheduler or all workers are gone, or a job ends its workers.
        """
        jobs, more = list[Any](), True
        try:
            while jobs or more:
                places = self.places(resource)
                most = places if resource else min(2 * places, _MOST_AHEAD)
                room = max(0, most - len(jobs)) if more else 0
                drawn = list(islice(arguments, room))
                more = more and len(drawn) == room
                jobs += [self._started(function, job_arguments, resource) for job_arguments in drawn]
                for job in self._ended(jobs[:1] if in_order else jobs):
                    jobs.remove(job)
                    yield self._result(job)
        finally:
            if jobs and self._client.status == "running":
                self._client.cancel(jobs)

    def answered(self, defaults: dict[str, Any], batches: Iterator[Columns]) -> Iterator[Answers]:
        """Answer batches of rows there (`predictor.answers.bulk.Spread`)."""
        options = {  # with the places of files for a process that runs in another folder
            name: str(Path(value).resolve()) if _names_a_file(name, value) else value
            for name, value in defaults.items()
        }
        named = pickle.dumps(options), digest_of(options)
        return self.run(_answers, ((*named, batch) for batch in map(_without_files, batches)), in_order=True)

    def _places(self, resource: str) -> int:
        with self._explained():
            info = self._client.scheduler_info(n_workers=-1)
        with self._explained():  # a scheduler that does not answer is no error there
            workers = info["workers"].values()
        offered = (w["resources"].get(resource, 0) if resource else w["nthreads"] for w in workers)
        return int(sum(offered))

    def _started(self, function: Callable[..., Any], arguments: tuple[Any, ...], resource: str) -> Any:
        needs = {"resources": {resource: 1} if resource else None, "pure": False}
        with self._explained():
            return self._client.submit(_checked, fingerprint(), function, *arguments, **needs)

    def _ended(self, jobs: list[Any]) -> list[Any]:
        """Jobs that have ended; empty after a second of waiting, since workers may have come or gone."""
        if not jobs:
            return []
        with self._explained(), self._client.as_current(), suppress(TimeoutError):
            ended = self._dask.wait(jobs, timeout=_LOOK_S, return_when="FIRST_COMPLETED").done
            return [job for job in jobs if job in ended]
        return []

    def _result(self, job: Any) -> Any:
        with self._explained():
            error = job.exception() if job.status == "error" else None
            if error is None:
                return job.result()
        if isinstance(error, self._dask.scheduler.KilledWorker):
            raise ServiceError(
                f"several workers died of the same job, one after the other, at last {error.last_worker.address}. "
                "See its log."
            ) from error
        if isinstance(error, ModuleNotFoundError):
            raise ServiceError(
                f"a worker lacks {error.name!r}. Install the same epochcast there, and what it measures with."
            ) from error
        raise error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what a lost connection means: Dask has forgotten the jobs by then, also where it connects again."""
        gone = ServiceError(
            f"the scheduler at {self.address} is gone. Start it again (dask scheduler) with its workers, and repeat "
            "the command: measurements that have arrived here are kept, answers to rows start again."
        )
        if self._client.status != "running":
            raise gone
        try:
            yield
        except (CancelledError, OSError) as error:
            raise gone from error


@cache
def fingerprint() -> str:
    """Digest of epochcast's code and shipped data: equal where answers and measurements are made alike."""
    from predictor import files
    from proxy_cnns import configuration

    digest, data = hashlib.sha256(), files.data_root()
    for module in (files, configuration):
        folder = Path(str(module.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    for path in (*sorted(data.glob("*.csv")), *sorted((data / "models").rglob("*"))):
        if path.is_file():
            digest.update(str(path.relative_to(data)).encode() + path.read_bytes())
    return digest.hexdigest()


def _checked(asker: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a job, on a worker whose epochcast is the asker's."""
    if fingerprint() != asker:
        import socket

        raise SchemaError(
            f"the epochcast of the worker on {socket.gethostname()} is not this machine's: its code or data differ. "
            "Install the same version there."
        )
    return function(*arguments)


def _names_a_file(name: str, value: Any) -> bool:
    names_text = name in _FILES and isinstance(value, str | PathLike)
    return names_text and str(value).casefold().endswith(_FILES[name] or "")


def digest_of(options: Mapping[str, Any]) -> str:
    """Digest of the files that options name, which must be the same on every worker: those of a shared folder are."""
    digest = hashlib.sha256()
    for name in (name for name in _FILES if options.get(name) and _names_a_file(name, options[name])):
        path = Path(options[name])
        libraries = sorted(path.with_name(f"{path.stem}_operators").glob("*")) if name == "model" else []
        for file in (path, *libraries):
            digest.update(name.encode() + (file.read_bytes() if file.is_file() else b""))
    return digest.hexdigest()


def _without_files(batch: Columns) -> Columns:
    """Refuse rows that name a file: it lies on this machine."""
    for name, ends in _FILE_CELLS.items():
        words = [word.strip() for word in batch[name].words] if name in batch else []
        files = [word for word in words if word and word.casefold().endswith(ends)]
        if files:
            raise SchemaError(
                f"{name} {files[0]!r} in the rows is a file of this machine, which workers do not have. Leave "
                "--scheduler out."
            )
    return batch


def _answers(options: bytes, digest: str, batch: Columns) -> Answers:
    """Answer a batch of rows, on a worker."""
    return _answers_of(options, digest).of(batch)


@lru_cache(maxsize=2)
def _answers_of(options: bytes, digest: str) -> BulkAnswers:
    from predictor.answers.bulk import BulkAnswers

    defaults: dict[str, Any] = pickle.loads(options)  # noqa: S301 - a job of Dask is a pickle anyway
    if digest_of(defaults) != digest:
        names = ", ".join(f"--{name}" for name, value in defaults.items() if _names_a_file(name, value))
        raise SchemaError(
            f"the file of {names} is not the same on every worker. Put it into a folder that all of them share."
        )
    return BulkAnswers(defaults)
