"""What the service does not take on, it refuses at once, with when to come back."""

import asyncio
import json

import httpx
import pytest
from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from waiting import PATIENCE_S

from api.limits import Limits
from api.observability import Metrics
from api.problems import problem
from api.queues import Queue
from api.settings import Settings
from api.untaken import PIECE_BYTES, Untaken


def settings(**changes):
    return Settings(**{"store": "", "rate_per_s": 0.0} | changes)


async def echo(scope, receive, send):
    """An application that reads its body and says how long it was."""
    size = 0
    while True:
        try:
            message = await receive()
        except HTTPException as error:  # as the application's own handlers do
            await problem(error.status_code, error.detail)(scope, receive, send)
            return
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def through(app, *requests, metrics=None, **changes):
    """Send requests one after another through the limits; their answers."""
    limits = Limits(app, settings(**changes), metrics or Metrics())

    async def ask():
        transport = httpx.ASGITransport(limits, client=("192.0.2.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return [await client.request(**{"method": "POST", "url": "/"} | request) for request in requests]

    return asyncio.run(ask())


async def chunks(*parts, pause_s=0.0):
    for part in parts:
        yield part
        await asyncio.sleep(pause_s)


def test_a_body_within_the_limit_passes():
    (answer,) = through(echo, {"content": b"x" * 1024}, max_body_bytes=1024)
    assert answer.text == "1024"


def test_a_body_that_says_it_is_larger_is_refused_unread():
    (answer,) = through(echo, {"content": b"x" * 1025}, max_body_bytes=1024)
    assert answer.status_code == 413
    assert "larger than 1,024 bytes" in answer.json()["detail"]


@pytest.mark.parametrize("length", ["9" * 30, "-1", "x", "1e3"])
def test_a_length_that_is_none_is_refused(length):
    (answer,) = through(echo, {"content": b"x", "headers": {"Content-Length": length}})
    assert answer.status_code == 413


def test_a_body_that_does_not_say_how_long_it_is_is_stopped_at_the_limit():
    (answer,) = through(echo, {"content": chunks(*[b"x" * 300] * 4)}, max_body_bytes=1024)
    assert answer.status_code == 413


def test_all_bodies_together_are_bounded_and_forgotten_when_they_are_answered():
    requests = [{"content": b"x" * 2**20}] * 3
    answers = through(echo, *requests, max_bytes_in_work=2**20)
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    (answer,) = through(echo, {"content": chunks(*[b"x" * 2**19] * 3)}, max_bytes_in_work=2**20)
    assert answer.status_code == 503


def beside(*requests, **changes):
    """Send requests of one address, each while those before are in work; their answers, refused ones first."""
    enough = asyncio.Event()

    async def slow(scope, receive, send):
        await enough.wait()
        await echo(scope, receive, send)

    limits = Limits(slow, settings(**changes), Metrics())

    async def ask():
        transport = httpx.ASGITransport(limits, client=("192.0.2.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            tasks = []
            for each in requests:
                tasks.append(asyncio.create_task(client.request(**{"method": "POST", "url": "/"} | each)))
                for _ in range(20):
                    await asyncio.sleep(0)
            enough.set()
            return await asyncio.gather(*tasks)

    return asyncio.run(ask())


def test_one_question_after_another_is_never_too_fast():
    answers = through(echo, *[{}] * 50, rate_per_s=0.001, rate_burst=1)
    assert {answer.status_code for answer in answers} == {200}


def test_who_asks_too_often_beside_its_own_questions_is_told_when_to_come_back():
    answers = beside(*[{}] * 4, rate_per_s=0.001, rate_burst=2)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert 900 < int(answers[3].headers["retry-after"]) <= 1000
    assert answers[3].json()["title"] == "Too many requests"


def test_a_key_has_a_bucket_of_its_own_beside_its_address():
    keys = [{"headers": {"Authorization": f"Bearer {i}"}} for i in (1, 2, 1, 1)]
    answers = beside(*keys, rate_per_s=0.001, rate_burst=1)
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]


def test_health_is_told_while_questions_are_refused_and_has_a_rate_of_its_own():
    asked = [{}, {}, {}, {"url": "/healthz"}, {"url": "/metrics"}]
    answers = beside(*asked, rate_per_s=0.001, rate_burst=1)
    assert [answer.status_code for answer in answers] == [200, 200, 429, 200, 429]


def test_files_of_pages_cost_a_tenth_of_a_question():
    answers = beside(*[{"url": "/web/main.js"}] * 12, rate_per_s=0.001, rate_burst=1)
    assert [answer.status_code for answer in answers] == [200] * 11 + [429]


def test_a_service_with_too_much_in_work_takes_nothing_more():
    metrics = Metrics()
    metrics.in_work = 3
    (answer,) = through(echo, {}, metrics=metrics, max_concurrent=2)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


def test_a_body_that_arrives_too_slowly_is_given_up():
    (answer,) = through(echo, {"content": chunks(b"a", b"b", pause_s=5)}, body_timeout_s=0.1)
    assert answer.status_code == 408


def test_a_large_body_has_more_time_to_arrive_than_a_small_one():
    parts = chunks(b"x" * 2**24, b"y", pause_s=0.1)  # 2**24 bytes give it 256 s
    (answer,) = through(echo, {"content": parts}, body_timeout_s=0.01, timeout_s=PATIENCE_S)
    assert answer.status_code == 200


def together(*requests, slow, **changes):
    """Send requests of (client, body) at once; their answers.

    Bodies that are lists come slowly: they end once all but `slow` requests are answered.
    """
    limits = Limits(echo, settings(body_timeout_s=PATIENCE_S, **changes), Metrics())

    async def ask():
        enough = asyncio.Event()

        async def slowly(parts):
            for part in parts:
                yield part
            await enough.wait()
            yield b"the end"

        async def one(client, body):
            transport = httpx.ASGITransport(limits, client=(f"192.0.2.{client}", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                return await http.post("/", content=slowly(body) if isinstance(body, list) else body)

        waiting = answers = [asyncio.create_task(one(client, body)) for client, body in requests]
        async with asyncio.timeout(PATIENCE_S):
            while len(waiting) > slow:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        enough.set()
        return [(await answer).status_code for answer in answers]

    return asyncio.run(ask())


def test_slow_bodies_of_one_address_keep_no_other_out():
    assert together(*[(1, [b"a"])] * 5, (2, b"x"), slow=5, max_concurrent=2) == [200] * 6


def test_bodies_of_one_address_take_half_of_the_memory_for_bodies_at_most():
    part = b"x" * 2**20
    found = together(
        *[(1, [part])] * 3, (2, part), slow=2, max_body_bytes=2**20 + 7, max_bytes_in_work=2**22 + 28
    )
    assert found == [200, 200, 429, 200]


def test_an_answer_that_takes_too_long_is_given_up():
    async def slow(scope, receive, send):
        await receive()
        await asyncio.sleep(5)

    (answer,) = through(slow, {"content": b"x"}, timeout_s=0.1)
    assert answer.status_code == 504
    assert json.loads(answer.content)["detail"].startswith("the answer took longer than 0.1 s")


class Reader:
    """A client of an answer of many pieces, which takes one whenever it is told to."""

    def __init__(self, limits, address):
        self.pieces, self._next = [], asyncio.Semaphore(0)
        scope = {
            "type": "http", "path": "/", "http_version": "1.1", "method": "GET", "client": (address, 1),
            "headers": [(b"host", b"127.0.0.1")],
        }  # fmt: skip
        self.task = asyncio.create_task(limits(scope, self._nothing, self._take))

    async def _nothing(self):
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _take(self, message):
        if message["type"] == "http.response.body":
            await self._next.acquire()
            self.pieces.append(message["body"])

    def take(self, pieces):
        for _ in range(pieces):
            self._next.release()


async def three_pieces(scope, receive, send):
    """An application whose answer has two pieces and a half."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * (PIECE_BYTES * 5 // 2)})


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_large_answer_is_sent_in_pieces_and_whole():
    async def ask():
        reader = Reader(Limits(three_pieces, settings(), Metrics()), "192.0.2.1")
        reader.take(3)
        await reader.task
        return [len(piece) for piece in reader.pieces]

    assert asyncio.run(ask()) == [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES // 2]


def test_an_answer_that_is_taken_slowly_is_not_in_work_and_never_late():
    async def ask():
        metrics = Metrics()
        reader = Reader(Limits(three_pieces, settings(timeout_s=0.01), metrics), "192.0.2.1")
        await asyncio.sleep(0.05)
        in_work = metrics.in_work
        reader.take(3)
        await reader.task
        return in_work, len(reader.pieces)

    assert asyncio.run(ask()) == (0, 3)


def test_untaken_answers_hold_back_the_next_ones_of_their_address_until_they_are_taken(monkeypatch):
    monkeypatch.setattr("api.untaken.MOST_OF_ADDRESS", PIECE_BYTES)

    async def ask():
        untaken = Untaken()
        queue = Queue(untaken=untaken)
        reader = Reader(Limits(three_pieces, settings(), Metrics(), untaken), "192.0.2.1")
        await settle()
        mine, other = (asyncio.create_task(queue.run(each, str)) for each in ("192.0.2.1", "192.0.2.2"))
        await other
        waited = not mine.done()
        reader.take(3)
        await mine
        return waited

    assert asyncio.run(ask())


def test_answers_that_nobody_reads_end_where_memory_is_short(monkeypatch):
    monkeypatch.setattr("api.untaken.MOST_OF_ALL", 4 * PIECE_BYTES)

    async def ask():
        limits = Limits(three_pieces, settings(), Metrics(), Untaken(patience_s=0.0))
        unread = Reader(limits, "192.0.2.1")
        await settle()
        reading = Reader(limits, "192.0.2.2")
        await asyncio.wait([unread.task])
        reading.take(3)
        await reading.task
        return type(unread.task.exception()), len(reading.pieces)

    assert asyncio.run(ask()) == (ClientDisconnect, 3)
