"""Bodies of requests read under a limit, however they are packed.

The limit holds for what a body becomes, not only for what is sent: a gzip bomb is stopped when it reaches the
limit, whatever it would have grown to.
"""

import zlib
from collections.abc import Iterator

from fastapi import HTTPException, Request

from api.serving import in_turn, serving_of
from predictor.stopping import check_stop

DRAINED_BYTES = 64 * 2**20
"""Of a refused body: read and thrown away, since a client that is still sending would see a broken connection."""

LARGER_TABLES = (
    "Larger tables of measurements: `epochcast data push FILE URL` stores them, and `POST /v1/calibrations` with "
    "`stored` answers from them."
)
"""The next step where measurements are too many for one body."""

_STEP = 1 << 16
_MOST_MEMBERS = 1_000  # of gzip in one body: packers that write blocks need one for 64 KiB
_GZIP = 31  # wbits: gzip with its header, and the largest window


async def read_body(request: Request, limit: int, next_step: str = "") -> bytes:
    """Read and, if the request says gzip, unpack its body of at most `limit` bytes, packed and unpacked.

    HTTPException 413 above it, with what whoever sends more can do (`next_step`), 415 for another packing than gzip,
    400 for damaged gzip.
    """
    packing = request.headers.get("content-encoding", "identity").strip().casefold()
    if packing not in ("identity", "gzip"):
        raise HTTPException(
            415, f"Content-Encoding is {packing[:80]!r}. Valid: gzip, identity.", {"Accept-Encoding": "gzip"}
        )
    announced = request.headers.get("content-length", "")
    too_large = announced.isdecimal() and int(announced) > limit
    content, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        too_large = too_large or size > limit
        if not too_large:
            content += chunk
        elif size > DRAINED_BYTES:
            break
    if too_large:
        raise _too_large(limit, next_step)
    if packing == "identity":
        return bytes(content)
    queue = serving_of(request).unpacking_queue
    return await in_turn(request, queue, _unpacked, bytes(content), limit, next_step)


def _unpacked(packed: bytes, limit: int, next_step: str) -> bytes:
    unpacker, content = _Gzip(), bytearray()
    for chunk in unpacker.unpacked(packed):
        check_stop()
        if len(content) + len(chunk) > limit:
            raise _too_large(limit, next_step)
        content += chunk
    if not unpacker.complete:
        raise HTTPException(400, "the body is gzip that ends too early. Send it again.")
    return bytes(content)


class _Gzip:
    """Gzip members, one after another, unpacked in steps, so that no chunk takes more than a step in memory."""

    def __init__(self) -> None:
        self._unpacker, self.complete = zlib.decompressobj(wbits=_GZIP), True
        self._members = 1

    def unpacked(self, chunk: bytes) -> Iterator[bytes]:
        """Unpacked content of a chunk, piece by piece; HTTPException 400 if the gzip is damaged."""
        while chunk:
            if self._unpacker.eof:  # the next member begins; each costs time, however short
                self._members += 1
                if self._members > _MOST_MEMBERS:
                    raise HTTPException(
                        400,
                        f"the body is gzip of more than {_MOST_MEMBERS:,} members. Pack it as one: gzip does.",
                    )
                self._unpacker = zlib.decompressobj(wbits=_GZIP)
            try:
                yield self._unpacker.decompress(chunk, _STEP)
            except zlib.error as error:
                raise HTTPException(400, f"the body is damaged gzip ({error}). Send it again.") from None
            self.complete = self._unpacker.eof
            chunk = self._unpacker.unused_data if self.complete else self._unpacker.unconsumed_tail


def _too_large(limit: int, next_step: str) -> HTTPException:
    step = next_step or f"Send it in several parts, or fewer rows. {LARGER_TABLES}"
    return HTTPException(413, f"the body is larger than {limit:,} bytes. {step}")
