"""Bodies of requests read under a limit, however they are packed.

The limit holds for what a body becomes, not only for what is sent: a gzip bomb is stopped when it reaches the
limit, whatever it would have grown to.
"""

import zlib
from collections.abc import AsyncIterator
from contextlib import suppress

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

__all__ = ["DRAINED_BYTES", "LARGER_TABLES", "discard_body", "read_body"]

DRAINED_BYTES = 64 * 2**20
"""Of a body that is refused: read and thrown away, since whoever is still sending would see a broken connection."""

LARGER_TABLES = (
    "Larger tables of measurements: `epochcast data push FILE URL` stores them, and `POST /v1/calibrations` with "
    "`stored` answers from them."
)
"""The next step where measurements are too many for one body."""

_STEP = 1 << 16


async def read_body(request: Request, limit: int) -> bytes:
    """Read and, if the request says gzip, unpack its body.

    Parameters
    ----------
    limit : int
        Bytes, packed and unpacked.

    Raises
    ------
    HTTPException
        413 above the limit, 415 for another packing than gzip, 400 for damaged gzip.
    """
    packing = request.headers.get("content-encoding", "identity").strip().casefold()
    if packing not in ("identity", "gzip"):
        raise HTTPException(
            415, f"Content-Encoding is {packing[:80]!r}. Valid: gzip, identity.", {"Accept-Encoding": "gzip"}
        )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        await _discard(request.stream())
        raise _too_large(limit)
    unpacked = _Unpacked(limit) if packing == "gzip" else _Plain(limit)
    stream = request.stream()
    async for chunk in stream:
        try:
            unpacked.add(chunk)
        except HTTPException:
            await _discard(stream)
            raise
    return unpacked.whole()


async def discard_body(scope: Scope, receive: Receive) -> None:
    """Read a body of which nothing was read, and keep nothing, up to `DRAINED_BYTES`."""
    await _discard(Request(scope, receive).stream())


async def _discard(stream: AsyncIterator[bytes]) -> None:
    found = 0
    with suppress(ClientDisconnect):
        async for chunk in stream:
            found += len(chunk)
            if found > DRAINED_BYTES:
                return


class _Plain:
    def __init__(self, limit: int) -> None:
        self._limit, self._found = limit, bytearray()

    def add(self, chunk: bytes) -> None:
        if len(self._found) + len(chunk) > self._limit:
            raise _too_large(self._limit)
        self._found += chunk

    def whole(self) -> bytes:
        return bytes(self._found)


class _Unpacked(_Plain):
    """What gzip members, one after another, unpack to; never more than the limit and one step in memory."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._unpacker, self._begun = _gzip(), False

    def add(self, chunk: bytes) -> None:
        while chunk:
            if self._unpacker.eof:
                self._unpacker = _gzip()
            self._begun = True
            try:
                found = self._unpacker.decompress(chunk, _STEP)
            except zlib.error as error:
                raise HTTPException(400, f"the body is damaged gzip ({error}). Send it again.") from None
            super().add(found)
            chunk = self._unpacker.unused_data if self._unpacker.eof else self._unpacker.unconsumed_tail

    def whole(self) -> bytes:
        if self._begun and not self._unpacker.eof:
            raise HTTPException(400, "the body is gzip that ends too early. Send it again.")
        return super().whole()


def _gzip() -> "zlib._Decompress":
    return zlib.decompressobj(wbits=31)


def _too_large(limit: int) -> HTTPException:
    return HTTPException(
        413,
        f"the body is larger than {limit:,} bytes. Send it in several parts, or fewer rows. {LARGER_TABLES}",
    )
