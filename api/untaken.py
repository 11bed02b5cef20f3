"""Answers on their way to clients that may read slowly: counted, so that nobody's take all memory.

An answer is sent in pieces, each after the one before it was taken. What one address leaves untaken holds back the
computation of its next answers and not those that are on their way; what all leave together ends answers that nobody
reads.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

PIECE_BYTES = 64 * 2**10
"""Of an answer, sent at once."""

MOST_OF_ADDRESS = 64 * 2**20
"""Bytes that one address may leave untaken before its next answer is computed."""

MOST_OF_ALL = 256 * 2**20
"""Bytes that all addresses may leave untaken; above it an address with any waits, and unread answers end."""


class Untaken:
    """Bytes of answers that clients have not taken.

    `patience_s`: an answer of which nothing was taken for this long ends where memory is short.
    """

    def __init__(self, patience_s: float = 5.0) -> None:
        self._patience_s = patience_s
        self._of_address: Counter[str] = Counter()
        self._taken_at: dict[asyncio.Timeout, float] = {}
        self._watchers: list[Callable[[], None]] = []

    def holds_back(self, address: object) -> bool:
        """Whether an address has to take what it has before it gets more."""
        own = self._of_address.get(str(address), 0)
        return own >= MOST_OF_ADDRESS or (own > 0 and self._of_address.total() >= MOST_OF_ALL)

    def call_when_taken(self, watcher: Callable[[], None]) -> None:
        """Call whenever an answer was taken, or ended."""
        self._watchers.append(watcher)

    @asynccontextmanager
    async def sending(self, address: str, size: int) -> AsyncIterator[Callable[[], None]]:
        """Count an answer while it is sent; call what this gives after each piece; TimeoutError where it has to end."""
        loop = asyncio.get_running_loop()
        self._of_address[address] += size
        try:
            async with asyncio.timeout(None) as ending:
                self._end_unread(loop.time())
                self._taken_at[ending] = loop.time()

                def taken() -> None:
                    self._taken_at[ending] = loop.time()

                yield taken
        finally:
            self._taken_at.pop(ending, None)
            self._of_address[address] -= size
            if not self._of_address[address]:
                del self._of_address[address]
            for watcher in self._watchers:
                watcher()

    def _end_unread(self, now: float) -> None:
        if self._of_address.total() > MOST_OF_ALL:
            for ending, taken_at in self._taken_at.items():
                if now - taken_at > self._patience_s and not ending.expired():
                    ending.reschedule(now)
