"""What the running service holds: the model, its replacement, the prices, kept answers, and its queues.

`epochcast fit --out` replaces the model's file last, in one step, with the digests of the files beside it. A model is
read whole, or not at all; a request keeps the one that it began with, and answers are kept with the model that gave
them. A model that cannot be read is reported, and the one before it goes on answering.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from cachetools import LRUCache
from fastapi import Request
from starlette.requests import ClientDisconnect

from api.caching import KEPT_ANSWER_BYTES, File
from api.queues import Queue
from predictor.catalogue.offers import load_offers
from predictor.errors import ModelError
from predictor.files import data_file
from predictor.models.served import Model

if TYPE_CHECKING:
    from api.settings import Settings
    from predictor.answers.resolved import OwnMeasurements

_LOG = logging.getLogger("epochcast.model")
_QUICK_S = 0.005  # of processor time, in which the event loop may do nothing else
_UNWATCHED_S = 0.1  # in which most calls end: a task that watches the client costs more than a tenth of one
_KEPT_FITS = 8  # of measurements that came with questions, each some megabytes
_Stamp = tuple[int, int, int]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A model with its kept answers and fits.

    `fits`: models that know the operators of someone's own measurements, by the rows: fitting takes longer than the
    questions that follow. Used by one thread at a time, behind `upload_queue`. `_kinds_s`: processor time of the kinds
    of questions that take about as long, each the slowest lately.
    """

    model: Model
    kept_bytes: int
    fits: LRUCache[str, OwnMeasurements] = field(default_factory=lambda: LRUCache(_KEPT_FITS))
    _answers: LRUCache[bytes, File] = field(init=False)
    _kinds_s: LRUCache[bytes | None, float] = field(default_factory=lambda: LRUCache(100))
    _clients: Counter[bytes] = field(default_factory=Counter)
    _large: dict[bytes, File] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_answers", LRUCache(self.kept_bytes, attrgetter("kept_size")))

    def kept(self, key: bytes, *, packed: bool) -> File | None:
        """The answer kept by this key; None if there is none, or `packed` is asked and the answer has no gzip yet."""
        with self._lock:
            file = self._answers.get(key) or self._large.get(key)
        return file if file is None or file.is_packed or not packed else None

    def answer(self, key: bytes, compute: Callable[[], bytes], kind: bytes | None, *, packed: bool) -> File:
        """The kept answer, else the result of `compute`, kept from now on; call it in turn, in a thread unless quick.

        Of clients that ask the same at once, the first has it computed: it is kept when the turns of the others come.
        A refusal ends what is known of its `kind`, which a kept answer does not change.
        """
        began, file = time.thread_time(), self.kept(key, packed=False)
        with self._lock:
            slowest_s = None if file else self._kinds_s.pop(kind, 0.0)
        file = file or File(compute())
        file = file.with_gzip() if packed else file
        with self._lock:
            if kind is not None and slowest_s is not None:
                self._kinds_s[kind] = max(time.thread_time() - began, 0.9 * slowest_s)
            if file.kept_size <= self.kept_bytes // 8:  # one answer does not drive out all others
                self._answers[key] = file
            elif self._clients[key] > 1:
                self._large[key] = file
        return file

    def is_quick(self, kind: bytes | None) -> bool:
        """Whether the slowest recent answer of a kind took so little that the event loop may compute the next one."""
        with self._lock:
            return self._kinds_s.get(kind, _QUICK_S) < _QUICK_S

    @contextmanager
    def awaited(self, key: bytes) -> Iterator[None]:
        """Share an answer that is too large to keep with the clients that wait for it now."""
        with self._lock:
            self._clients[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._clients[key] -= 1
                if not self._clients[key]:
                    del self._clients[key]
                    self._large.pop(key, None)


class ServedModel:
    """A model file, the default's if none is named, and what was last read from it; ArtifactError if there is none.

    `snapshot`: what answers; take it once per request. Kept answers take at most `kept_bytes`. `problem`: why the file
    as it is now is not served.
    """

    def __init__(self, path: str | PathLike[str] | None = None, kept_bytes: int = KEPT_ANSWER_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self.path = Path(path) if path is not None else data_file("models/default.json")
        self.problem: str | None = None
        self._stamp = self._file_stamp()
        self.serve(Model.load(self.path))

    @property
    def current(self) -> Model:
        """The model that answers."""
        return self.snapshot.model

    def reload_if_changed(self) -> bool:
        """Read the file if it has changed; returns whether another model answers now.

        A file that is missing or damaged raises nothing and becomes `problem`.
        """
        stamp = self._file_stamp()
        if stamp == self._stamp:
            self.problem = None
            return False
        try:
            model = Model.load(self.path)
        except ModelError as error:  # it is read again at the next look: its files may still be on their way
            if str(error) != self.problem:
                self.problem = str(error)
                _LOG.error("the new model is not served: %s", error)
            return False
        self._stamp, self.problem = stamp, None
        self.serve(model)
        _LOG.info("serving another model: %s", model.card.get("trained_on"))
        return True

    def serve(self, model: Model) -> None:
        """Answer with another model from the next request on."""
        self.snapshot = Snapshot(model, self._kept_bytes)

    async def watch(self, every_s: float = 1.0) -> None:
        """Check the file again and again, in a thread, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            await asyncio.to_thread(self.reload_if_changed)

    def _file_stamp(self) -> _Stamp | None:
        """Time, inode and size of the file, which a replacement changes; None if there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size


class ServingState:
    """Everything that requests share, apart from the store.

    `model_queue`, `onnx_queue`, `upload_queue`, `download_queue`, `unpacking_queue`: before the model, the reader of
    ONNX files, the check of measurements, reading the store, and unpacking bodies.
    """

    def __init__(self, settings: Settings) -> None:
        self.model = ServedModel(settings.model, settings.kept_answer_bytes)
        self.offers = load_offers(settings.offers)
        queue = partial(Queue, most_wait_s=settings.queue_wait_s)
        self.model_queue = queue(waiting=64)
        self.onnx_queue = queue(at_once=2, per_client_running=1)
        self.upload_queue = queue()
        self.download_queue = queue()
        self.unpacking_queue = queue(waiting=64)


def serving_of(request: Request) -> ServingState:
    """Give the application's shared state."""
    state: ServingState = request.app.state.serving
    return state


async def in_turn(
    request: Request, queue: Queue, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a call in its turn, once the body is read; it ends, with ClientDisconnect, soon after its client goes."""
    loop, watching = asyncio.get_running_loop(), list[asyncio.Task[None]]()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        waiting.reschedule(loop.time())

    begin = loop.call_later(_UNWATCHED_S, lambda: watching.append(loop.create_task(watch())))
    try:
        async with asyncio.timeout(None) as waiting:
            return await queue.run(address_of(request.client), call, *args, **kwargs)
    except TimeoutError:
        if waiting.expired():
            raise ClientDisconnect from None
        raise
    finally:
        begin.cancel()
        for watcher in watching:
            watcher.cancel()


def address_of(client: tuple[str, int] | None) -> str:
    """Address by which queues count a client: the IPv4 address, or the /64 network of an IPv6 address."""
    host = client[0] if client else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host
