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
def test_a_plain_body_is_itself(step):
    assert read(b"a,b\n1,2\n", step) == b"a,b\n1,2\n"


@pytest.mark.parametrize("step", [1, 7, 1 << 16])
def test_a_gzipped_body_is_unpacked_member_by_member(step):
    packed = gzip.compress(b"a" * 50_000) + gzip.compress(b"b" * 40_000)
    assert read(packed, step, content_encoding="gzip") == b"a" * 50_000 + b"b" * 40_000


def test_an_empty_body_is_empty_packed_or_not():
    assert read(b"") == b""
    assert read(b"", content_encoding="gzip") == b""


def test_a_body_above_the_limit_is_refused_as_announced_and_as_it_comes():
    assert refused(b"", content_length=str(LIMIT + 1)) == 413
    assert refused(b"x" * (LIMIT + 1)) == 413


def test_a_bomb_is_stopped_at_the_limit():
    bomb = gzip.compress(b"0" * 50_000_000)
    tracemalloc.start()
    assert refused(bomb, content_encoding="gzip") == 413
    assert tracemalloc.get_traced_memory()[1] < 10 * LIMIT + 2_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    "body",
    [
        b"no gzip",
        gzip.compress(b"a" * 1000, mtime=0)[:-4],
        gzip.compress(b"a" * 1000, mtime=0)[:20] + b"x" * 40,
    ],
)
def test_damaged_gzip_is_refused(body):
    assert refused(body, content_encoding="gzip") == 400


def test_gzip_of_many_members_is_refused_before_they_cost_time():
    assert refused(gzip.compress(b"") * 1_001, content_encoding="gzip") == 400
    assert read(gzip.compress(b"") * 1_000, content_encoding="gzip") == b""


def test_another_packing_is_refused():
    assert refused(b"x", content_encoding="br") == 415
