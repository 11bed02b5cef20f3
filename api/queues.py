"""Queues before threads: a few calls run at once, clients take turns, and nobody holds all places.

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
from typing import ParamSpec, TypeVar

from cachetools import LRUCache
from fastapi import HTTPException

from predictor.errors import OutOfRangeError
from predictor.stopping import stopped_by

_MOST_CLIENTS = 20_000  # whose time is remembered
_LAST_CALLS = 16  # whose mean time says how long others will take

P = ParamSpec("P")
T = TypeVar("T")


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
        self._turns: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._taken_s: LRUCache[Hashable, float] = LRUCache(_MOST_CLIENTS)
        self._least_s = 0.0  # taken by whoever had the last turn: others count as having taken as much

    def full_for(self, client: Hashable) -> bool:
        """Whether a call of this client would be refused now."""
        if self._runs_at_once(client):
            return False
        mine = len(self._turns.get(client, ()))
        if mine >= self._per_client_waiting:
            return True
        return self._is_full() and max(map(len, self._turns.values()), default=0) <= mine + 1

    def _is_full(self) -> bool:
        return sum(map(len, self._turns.values())) >= self._waiting

    def check(self, client: Hashable) -> None:
        """Refuse a call before its body is read; HTTPException 503 if the queue is full for this client."""
        if self.full_for(client):
            raise self._refusal()

    async def run(self, client: Hashable, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call in a thread in its turn; HTTPException 503 if the queue is full or the turn does not come."""
        self.check(client)
        if self._runs_at_once(client):
            self._running[client] += 1
        else:
            await self._turn(client)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        context = contextvars.copy_context()
        self._threads.submit(context.run, self._bounded, client, answer, partial(call, *args, **kwargs))
        return await answer

    def _bounded(self, client: Hashable, answer: "asyncio.Future[T]", call: Callable[[], T]) -> None:
        """Run a call and hand its result over; it ends early if its time is over or nobody waits for the answer."""
        began, began_s = time.thread_time(), time.monotonic()

        def check() -> None:
            if answer.done():
                raise asyncio.CancelledError
            if time.thread_time() - began > self._most_work_s:
                raise OutOfRangeError(
                    f"the question takes more than {self._most_work_s:g} s of a processor. Ask in several parts, or "
                    "with fewer measurements."
                )

        give: Callable[[], None]
        try:
            with stopped_by(check):
                give = partial(answer.set_result, call())
        except BaseException as error:  # noqa: BLE001 - whoever asked gets it
            give = partial(answer.set_exception, error)
        took_s, loop = time.thread_time() - began, answer.get_loop()
        self._last_s.append(time.monotonic() - began_s)
        if not loop.is_closed():  # it is once the server has ended
            loop.call_soon_threadsafe(self._hand_over, client, took_s, answer, give)

    def _hand_over(
        self, client: Hashable, took_s: float, answer: "asyncio.Future[T]", give: Callable[[], None]
    ) -> None:
        """Give a call's result to its request and its place to the next call, in one wake of the event loop."""
        self._taken_s[client] = self._share_s(client) + took_s
        self._ended(client)
        if not answer.done():  # else the client went
            give()

    def _runs_at_once(self, client: Hashable) -> bool:
        return self._may_run(client) and not any(map(self._may_run, self._turns))

    def _may_run(self, client: Hashable) -> bool:
        return self._running.total() < self._at_once and self._running[client] < self._per_client_running

    async def _turn(self, client: Hashable) -> None:
        if self._is_full():  # the newest call of who has most of them waiting is refused
            busiest = max(self._turns, key=lambda client: len(self._turns[client]))
            newest = self._turns[busiest][-1]
            self._forget(busiest, newest)
            if not newest.done():
                newest.set_exception(self._refusal())
        turn = asyncio.get_running_loop().create_future()
        self._turns.setdefault(client, deque()).append(turn)
        try:
            async with asyncio.timeout(self._most_wait_s):
                await turn
        except (asyncio.CancelledError, TimeoutError) as error:
            if turn.done() and not turn.cancelled():  # the turn came as the client went
                self._ended(client)
            elif turn in self._turns.get(client, ()):  # else `_ended` came by between the two
                self._forget(client, turn)
            raise (self._refusal() if isinstance(error, TimeoutError) else error) from None

    def _ended(self, client: Hashable) -> None:
        """Free the place of a call that has ended, and give all free places to the next clients in turn."""
        self._running[client] -= 1
        self._running += Counter()  # clients without a call are forgotten
        while clients := [*filter(self._may_run, self._turns)]:
            following = min(clients, key=self._share_s)
            self._least_s = self._share_s(following)
            turn = self._turns[following][0]
            self._forget(following, turn)
            if following in self._turns:
                self._turns.move_to_end(following)
            if not turn.done():
                self._running[following] += 1
                turn.set_result(None)

    def _share_s(self, client: Hashable) -> float:
        """Processor time that a client counts as having taken."""
        return max(self._least_s, self._taken_s.get(client, 0.0))

    def _refusal(self) -> HTTPException:
        last_s = [*self._last_s]
        waiting = sum(map(len, self._turns.values())) / self._at_once
        wait_s = max(1, math.ceil(waiting * sum(last_s) / max(1, len(last_s))))
        detail = f"too many requests wait for their turn. Send it again in {wait_s} s."
        return HTTPException(503, detail, {"Retry-After": str(wait_s)})

    def _forget(self, client: Hashable, turn: "asyncio.Future[None]") -> None:
        self._turns[client].remove(turn)
        if not self._turns[client]:
            del self._turns[client]
