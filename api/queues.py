"""Queues before threads and the event loop: a few calls run at once, clients take turns, and nobody holds all places.

A call that a client no longer waits for keeps its place until it ends by itself, at its next `check_stop`: Python
cannot stop a thread.
"""

import asyncio
import contextvars
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from cachetools import LRUCache
from fastapi import HTTPException

from predictor.errors import OutOfRangeError
from predictor.stopping import stopped_by

_MOST_CLIENTS = 20_000  # whose time is remembered
_LAST_CALLS = 16  # whose mean time says how long others will take

P = ParamSpec("P")
T = TypeVar("T")
_Step = Callable[[], None]


class MaybeQuick(partial[T]):
    """A call that says in its turn whether it is known to be quick."""

    is_quick: Callable[[], bool]


class Queue:
    """Threads for calls that take long, shared fairly between clients.

    The next call is that of the client which has taken least processor time, however many calls each of them has
    waiting: one client's burst delays another's call by one call and not by the burst, and whoever asks for much waits
    while others ask for little. Time taken while nobody else waited is forgotten. Where all places are taken, a client
    with fewer calls waiting takes the newest of who has most. `at_once`, `waiting`: calls that run, and calls that wait
    for them. `most_wait_s`: a call that has waited this long is refused. A refusal says to come back
    when the calls that wait now will have run, by the mean time of the last calls.
    `per_client_running`, `per_client_waiting`: of these, how many one client may have; all that run, and half of those
    that wait. `most_work_s`: processor time of one call: one that takes longer is refused, and one that nobody waits
    for any more ends, at its next `predictor.stopping.check_stop`.

    A call that is quick runs on the event loop in its turn, between others of which the loop does what waits: a thread
    and the loop wait for Python's lock again and again and move from core to core, which takes half as long as a call.
    """

    def __init__(
        self,
        at_once: int = 1,
        waiting: int = 16,
        most_wait_s: float = 10.0,
        per_client_running: int | None = None,
        per_client_waiting: int | None = None,
        most_work_s: float = 8.0,
    ) -> None:
        self._at_once, self._waiting, self._most_wait_s = at_once, waiting, most_wait_s
        self._most_work_s = most_work_s
        self._per_client_running = per_client_running or at_once
        self._per_client_waiting = per_client_waiting or max(1, waiting // 2)
        self._threads = ThreadPoolExecutor(at_once, "epochcast-queue")
        self._last_s: deque[float] = deque(maxlen=_LAST_CALLS)
        self._running: Counter[Hashable] = Counter()
        self._turns: OrderedDict[Hashable, dict[asyncio.Future[Any], _Step]] = OrderedDict()
        self._taken_s: LRUCache[Hashable, float] = LRUCache(_MOST_CLIENTS)
        self._least_s = 0.0  # taken by whoever had the last turn: others count as having taken as much

    def full_for(self, client: Hashable) -> bool:
        """Whether a call of this client would be refused now."""
        mine, most = len(self._turns.get(client, ())), max(map(len, self._turns.values()), default=0)
        has_no_place = mine >= self._per_client_waiting or (self._is_full() and most <= mine + 1)
        return has_no_place and not self._runs_at_once(client)

    def _is_full(self) -> bool:
        return sum(map(len, self._turns.values())) >= self._waiting

    def check(self, client: Hashable) -> None:
        """Refuse a call before its body is read; HTTPException 503 if the queue is full for this client."""
        if self.full_for(client):
            raise self._refusal()

    async def run(self, client: Hashable, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call in its turn; HTTPException 503 if the queue is full or the turn does not come."""
        self.check(client)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        bounded = partial(self._bounded, client, answer, partial(call, *args, **kwargs))
        work = partial(contextvars.copy_context().run, bounded)

        def in_thread() -> None:
            hand_over = work()
            if not loop.is_closed():  # it is once the server has ended
                loop.call_soon_threadsafe(hand_over)

        def start() -> None:
            if isinstance(call, MaybeQuick) and call.is_quick():
                loop.call_soon(lambda: work()())  # when others that came at the same time are in the queue
            else:
                self._threads.submit(in_thread)

        if self._is_full() and not self._runs_at_once(client):
            busiest = max(self._turns, key=lambda client: len(self._turns[client]))
            self._refuse(busiest, next(reversed(self._turns[busiest])))  # the newest call
        self._turns.setdefault(client, {})[answer] = start
        late = loop.call_later(self._most_wait_s, self._refuse, client, answer)
        self._give_turns()
        try:
            return await answer
        finally:
            late.cancel()
            self._forget(client, answer)  # if it still waits, the client went

    def _bounded(self, client: Hashable, answer: "asyncio.Future[T]", call: Callable[[], T]) -> _Step:
        """Make a call, which ends early if its time is over or nobody waits for it; what hands its result over."""
        began, began_s = time.thread_time(), time.monotonic()

        def check() -> None:
            if answer.done():
                raise asyncio.CancelledError
            if time.thread_time() - began > self._most_work_s:
                raise OutOfRangeError(
                    f"the question takes more than {self._most_work_s:g} s of a processor. Ask in several parts, or "
                    "with fewer measurements."
                )

        give: _Step
        try:
            with stopped_by(check):
                give = partial(answer.set_result, call())
        except BaseException as error:  # noqa: BLE001 - whoever asked gets it
            give = partial(answer.set_exception, error)
        took_s = time.thread_time() - began
        self._last_s.append(time.monotonic() - began_s)

        def hand_over() -> None:
            """Give the result to its request and the place to the next call, in one wake of the event loop."""
            if not answer.done():  # else the client went
                give()
            self._taken_s[client] = self._share_s(client) + took_s
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]
            self._give_turns()

        return hand_over

    def _runs_at_once(self, client: Hashable) -> bool:
        return self._may_run(client) and not any(map(self._may_run, self._turns))

    def _may_run(self, client: Hashable) -> bool:
        return self._running.total() < self._at_once and self._running[client] < self._per_client_running

    def _give_turns(self) -> None:
        """Give all free places to the next clients in turn."""
        while clients := [*filter(self._may_run, self._turns)]:
            client = min(clients, key=self._share_s)
            self._least_s = self._share_s(client)
            answer = next(iter(self._turns[client]))
            start = self._forget(client, answer)
            if client in self._turns:
                self._turns.move_to_end(client)
            if start and not answer.done():
                self._running[client] += 1
                start()

    def _share_s(self, client: Hashable) -> float:
        """Processor time that a client counts as having taken."""
        return max(self._least_s, self._taken_s.get(client, 0.0))

    def _refuse(self, client: Hashable, answer: "asyncio.Future[Any]") -> None:
        if self._forget(client, answer) and not answer.done():
            answer.set_exception(self._refusal())

    def _refusal(self) -> HTTPException:
        last_s = [*self._last_s]
        waiting = sum(map(len, self._turns.values())) / self._at_once
        wait_s = max(1, math.ceil(waiting * sum(last_s) / max(1, len(last_s))))
        detail = f"too many requests wait for their turn. Send it again in {wait_s} s."
        return HTTPException(503, detail, {"Retry-After": str(wait_s)})

    def _forget(self, client: Hashable, answer: "asyncio.Future[Any]") -> _Step | None:
        """Take a call out of those that wait; gives what starts it, None if it does not wait."""
        calls = self._turns.get(client, {})
        start = calls.pop(answer, None)
        if not calls:
            self._turns.pop(client, None)
        return start
