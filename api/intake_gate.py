"""A gate before expensive work: few at once, some waiting, the rest told to come back.

Checking an upload holds Python's interpreter for up to a second; without a gate, a burst of uploads would
starve every prediction. How many may wait depends on how long calls took lately, so that what is let in is
answered in time.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import ParamSpec, TypeVar

from fastapi import HTTPException
from fastapi.concurrency import run_in_threadpool

__all__ = ["Gate"]

P = ParamSpec("P")
T = TypeVar("T")


_WEIGHT = 0.1  # of the last call in the mean


class Gate:
    """Lets `at_once` calls run in threads while at most `waiting` more queue; belongs to one event loop.

    Parameters
    ----------
    at_once, waiting : int
    most_wait_s : float
        Whoever would wait longer than this, by what calls took lately, is refused, too.
    """

    def __init__(self, at_once: int = 1, waiting: int = 16, most_wait_s: float = float("inf")) -> None:
        self._free, self._at_once = asyncio.Semaphore(at_once), at_once
        self._most, self._most_wait_s = at_once + waiting, most_wait_s
        self._inside, self._mean_s = 0, 0.0

    @property
    def full(self) -> bool:
        """Whether a call would be refused now."""
        wait_s = (self._inside - self._at_once) * self._mean_s / self._at_once
        return self._inside >= self._at_once and (self._inside >= self._most or wait_s > self._most_wait_s)

    def check(self) -> None:
        """Refuse before any work what would be refused after it; HTTPException 503 where too many wait already."""
        if self.full:
            raise HTTPException(
                503,
                "too much waits for its turn already. Send it again in a few seconds.",
                {"Retry-After": "5"},
            )

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `call` in a thread when it is its turn; HTTPException 503 where too many wait already."""
        return await self.run_in(nullcontext(), call, *args, **kwargs)

    async def run_in(
        self, turn: AbstractAsyncContextManager[None], call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `run`, within `turn` besides: gates that share a lock run one after the other, each in its turn."""
        self.check()
        self._inside += 1
        try:
            async with self._free:
                began = time.perf_counter()
                try:
                    async with turn:
                        return await run_in_threadpool(call, *args, **kwargs)
                finally:
                    self._mean_s += _WEIGHT * (time.perf_counter() - began - self._mean_s)
        finally:
            self._inside -= 1
