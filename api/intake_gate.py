"""A gate before expensive work: few at once, some waiting, the rest told to come back.

Called by the routes that take measurements; calls nothing of ours. Checking an upload holds Python's interpreter for
up to a second; without a gate, a burst of uploads would starve every prediction.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fastapi import HTTPException
from fastapi.concurrency import run_in_threadpool

__all__ = ["Gate"]

P = ParamSpec("P")
T = TypeVar("T")


class Gate:
    """Lets `at_once` calls run in threads while at most `waiting` more queue; belongs to one event loop."""

    def __init__(self, at_once: int = 1, waiting: int = 16) -> None:
        self._free, self._room = asyncio.Semaphore(at_once), at_once + waiting

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `call` in a thread when it is its turn; HTTPException 503 where too many wait already."""
        if self._room == 0:
            raise HTTPException(
                503,
                "too much waits for its turn already. Send it again in a few seconds.",
                {"Retry-After": "5"},
            )
        self._room -= 1
        try:
            async with self._free:
                return await run_in_threadpool(call, *args, **kwargs)
        finally:
            self._room += 1
