"""A body is read under a limit, whatever it is packed in."""

import asyncio
import gzip
import tracemalloc
from types import SimpleNamespace

import pytest
from fastapi import HTTPException, Request

from api.bodies import read_body
from api.queues import Queue

LIMIT = 100_000


def read(body, step=1 << 16, **headers):
    """Read a body that arrives in steps."""
    parts = [body[i : i + step] for i in range(0, len(body), step)] or [b""]

    async def receive():
        if not parts:
            await asyncio.Event().wait()  # the client stays
        chunk = parts.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(parts)}

    names = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    serving = SimpleNamespace(unpacking_queue=Queue())
    app = SimpleNamespace(state=SimpleNamespace(serving=serving))
    request = Request({"type": "http", "headers": names, "app": app, "client": ("192.0.2.1", 1)}, receive)
    return asyncio.run(read_body(request, LIMIT))


def refused(*arguments, **headers):
    with pytest.raises(HTTPException) as error:
        read(*arguments, **headers)
    return error.value.status_code


@pytest.mark.parametrize("step", [1, 7, 1 << 16])
def test_a_body_is_itself_and_a_gzipped_one_is_unpacked_member_by_member(step):
    assert read(b"a,b\n1,2\n", step) == b"a,b\n1,2\n"
    packed = gzip.compress(b"a" * 50_000) + gzip.compress(b"b" * 40_000)
    assert read(packed, step, content_encoding="gzip") == b"a" * 50_000 + b"b" * 40_000


@pytest.mark.parametrize("packed", [b"", gzip.compress(b"") * 1_000])
def test_an_empty_body_is_empty_packed_or_not(packed):
    assert read(b"") == read(packed, content_encoding="gzip") == b""


def test_a_bomb_is_stopped_at_the_limit():
    bomb = gzip.compress(b"0" * 50_000_000)
    tracemalloc.start()
    assert refused(bomb, content_encoding="gzip") == 413
    assert tracemalloc.get_traced_memory()[1] < 10 * LIMIT + 2_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {"content_length": str(LIMIT + 1)}, 413),  # as announced
        (b"x" * (LIMIT + 1), {}, 413),  # as it comes
        (b"no gzip", {"content_encoding": "gzip"}, 400),
        (gzip.compress(b"a" * 1000, mtime=0)[:-4], {"content_encoding": "gzip"}, 400),
        (gzip.compress(b"a" * 1000, mtime=0)[:20] + b"x" * 40, {"content_encoding": "gzip"}, 400),
        (gzip.compress(b"") * 1_001, {"content_encoding": "gzip"}, 400),  # before they cost time
        (b"x", {"content_encoding": "br"}, 415),
    ],
)
def test_a_body_that_is_too_large_damaged_or_packed_otherwise_is_refused(body, headers, status):
    assert refused(body, **headers) == status
