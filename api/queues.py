"""Queues before threads: a few calls run at once, clients take turns, and nobody holds all places.

A call that a client no longer waits for keeps its place until it has ended, since Python cannot stop a thread.
"""

import asyncio
import contextvars
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from fastapi import HTTPException

P = ParamSpec("P")
T = TypeVar("T")


class Queue:
    """Threads for calls that take long, shared fairly between clients.

    Clients take turns, however many calls each of them has waiting, so that one client's burst delays another's call by
    one call and not by the burst.

    Parameters
    ----------
    at_once, waiting : int
        Calls that run, and calls that wait for them.
    most_wait_s : float
        A call that has waited this long is refused, and a refusal says to come back after as long.
    per_client_running, per_client_waiting : int, optional
        Of these, how many one client may have; all that run, and half of those that wait.
    """

    def __init__(
        self,
        at_once: int = 1,
        waiting: int = 16,
        most_wait_s: float = 10.0,
        per_client_running: int | None = None,
        per_client_waiting: int | None = None,
    ) -> None:
        self._at_once, self._waiting, self._most_wait_s = at_once, waiting, most_wait_s
        self._per_client_running = per_client_running or at_once
        self._per_client_waiting = per_client_waiting or max(1, waiting // 2)
        self._threads = ThreadPoolExecutor(at_once, "epochcast-queue")
        self._running: Counter[Hashable] = Counter()
        self._turns: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    def full_for(self, client: Hashable) -> bool:
        """Whether a call of this client would be refused now."""
        if self._runs_at_once(client):
            return False
        waiting, mine = sum(map(len, self._turns.values())), len(self._turns.get(client, ()))
        return waiting >= self._waiting or mine >= self._per_client_waiting

    def check(self, client: Hashable) -> None:
        """Refuse before any work what `run` would refuse after it; HTTPException 503 if the queue is full."""
        if self.full_for(client):
            raise self._refusal()

    async def run(self, client: Hashable, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call in a thread in its turn; HTTPException 503 if the queue is full or the turn does not come."""
        self.check(client)
        if self._runs_at_once(client):
            self._running[client] += 1
        else:
            await self._turn(client)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        running = self._threads.submit(partial(context.run, partial(call, *args, **kwargs)))
        running.add_done_callback(lambda done: _soon(loop, partial(self._hand_over, client, done, answer)))
        return await answer

    def _hand_over(self, client: Hashable, done: "Future[T]", answer: "asyncio.Future[T]") -> None:
        """Give a call's result to its request, and its place to the next: one wake of the event loop for both."""
        self._ended(client)
        if answer.done():
            return  # the client went
        if (error := done.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(done.result())

    def _runs_at_once(self, client: Hashable) -> bool:
        return self._may_run(client) and not any(map(self._may_run, self._turns))

    def _may_run(self, client: Hashable) -> bool:
        return self._running.total() < self._at_once and self._running[client] < self._per_client_running

    async def _turn(self, client: Hashable) -> None:
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
        """A call has ended: the next client's turn."""
        self._running[client] -= 1
        self._running += Counter()  # clients without a call are forgotten
        while (following := next(filter(self._may_run, self._turns), None)) is not None:
            turn = self._turns[following][0]
            self._forget(following, turn)
            if following in self._turns:
                self._turns.move_to_end(following)
            if not turn.done():
                self._running[following] += 1
                turn.set_result(None)

    def _refusal(self) -> HTTPException:
        wait_s = math.ceil(self._most_wait_s)
        return HTTPException(
            503,
            f"too many requests wait for their turn. Send it again in {wait_s} s.",
            {"Retry-After": str(wait_s)},
        )

    def _forget(self, client: Hashable, turn: "asyncio.Future[None]") -> None:
        self._turns[client].remove(turn)
        if not self._turns[client]:
            del self._turns[client]


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], Any]) -> None:
    """Call in the loop's thread, unless the loop has ended with its server."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
