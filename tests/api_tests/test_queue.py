"""A queue runs a few calls, lets some wait, refuses the others at once, and gives each client its turn."""

import asyncio
import contextlib
import threading
import time

import pytest
from case_tables import each_row
from fastapi import HTTPException
from starlette.requests import ClientDisconnect, Request
from waiting import PATIENCE_S, work

from api.queues import MaybeQuick, Queue
from api.serving import in_turn
from predictor.errors import OutOfRangeError


@contextlib.asynccontextmanager
async def held(queue, client="holder"):
    """A queue whose only thread is busy with a call of this client until the block ends."""
    ended = threading.Event()
    call = asyncio.create_task(queue.run(client, ended.wait))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        ended.set()
        await call


async def send(queue, clients):
    """Send a call of each client at once; tasks, each of which has run, waits or was refused."""
    tasks = [asyncio.create_task(queue.run(client, str)) for client in clients]
    await asyncio.sleep(0)
    return tasks


async def refused(tasks):
    """Of each call, whether it was refused, once all have ended."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [isinstance(result, HTTPException) for result in results]


def in_loop(ask):
    """Run a test's coroutine function."""
    return lambda: asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))


@each_row
def test_more_than_may_wait_are_refused_and_leave_their_places(options, clients, expected):
    async def ask():
        queue = Queue(at_once=1, **options)
        async with held(queue, "a"):
            waiting = await send(queue, clients)
        first = await refused(waiting)
        async with held(queue, "a"):
            waiting = await send(queue, clients[:2])
        return first, await refused(waiting)

    assert asyncio.run(ask()) == (expected, [False, False])


@in_loop
async def test_a_call_whose_turn_or_end_does_not_come_in_time_is_refused():
    queue = Queue(at_once=1, waiting=5, most_wait_s=0.01)
    async with held(queue):
        assert await refused(await send(queue, "abcde")) == [True] * 5
    assert await refused(await send(queue, "a")) == [False]
    with pytest.raises(OutOfRangeError, match=r"more than 0\.01 s of a processor"):
        await Queue(most_work_s=0.01).run("a", work, PATIENCE_S)


@in_loop
async def test_a_full_queue_says_so_before_any_work_and_a_failed_call_leaves_its_place():
    queue = Queue(at_once=1, waiting=0)
    queue.check("a")
    async with held(queue):
        with pytest.raises(HTTPException) as refusal:
            queue.check("b")
    await asyncio.sleep(0)
    queue.check("b")
    assert (refusal.value.status_code, refusal.value.headers) == (503, {"Retry-After": "1"})
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await queue.run("a", divmod, 1, 0)
        await asyncio.sleep(0)


@in_loop
async def test_a_refusal_says_when_those_who_wait_will_have_run():
    queue = Queue(waiting=6, per_client_waiting=6)
    for _ in range(3):
        await queue.run("a", time.sleep, 0.4)
    async with held(queue):
        tasks = await send(queue, "aaaaaa")
        with pytest.raises(HTTPException) as refusal:
            queue.check("a")
    await asyncio.gather(*tasks)
    assert refusal.value.headers == {"Retry-After": "3"}  # 6 x 0.4 s


@in_loop
async def test_clients_take_turns_however_much_one_of_them_asks():
    ran, queue = [], Queue(at_once=1, waiting=10)
    await asyncio.gather(*(queue.run(client, ran.append, client) for client in "aaaaab"))
    assert "".join(ran) == "abaaaa"  # the first a ran at once


@in_loop
async def test_quick_calls_run_on_the_event_loop_in_turn_and_leave_it_to_others_in_between():
    queue, ran = Queue(waiting=10), []

    def call(client):
        asyncio.get_running_loop().call_soon(ran.append, "-")
        ran.append(client)

    quick = MaybeQuick(call)
    quick.is_quick = lambda: True
    await asyncio.gather(*(queue.run(client, quick, client) for client in "aaaaab"))
    assert "".join(ran)[:11] == "a-b-a-a-a-a"


@in_loop
async def test_one_client_runs_no_more_than_its_share_and_a_free_place_waits_for_nobody_who_has_his():
    running, most, both = [], [], threading.Barrier(2)

    def call(client):
        running.append(client)
        both.wait(PATIENCE_S)  # until the other client's call runs, too
        most.append(running.count(client))
        running.remove(client)

    queue = Queue(at_once=2, per_client_running=1)
    await asyncio.gather(*(queue.run(client, call, client) for client in "aabb"))
    assert max(most) == 1
    async with held(queue, "a"):
        (waiting,) = await send(queue, "a")
        await queue.run("b", str)
    await waiting


@in_loop
async def test_a_call_that_nobody_waits_for_keeps_its_place_until_it_ends_and_ends():
    ended, queue = threading.Event(), Queue(at_once=1, waiting=0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await queue.run("a", ended.wait)
    assert queue.full_for("b")
    ended.set()
    while queue.full_for("b"):
        await asyncio.sleep(0.01)
    queue = Queue(at_once=1, most_work_s=PATIENCE_S)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await queue.run("a", work, 10 * PATIENCE_S)
    assert await queue.run("b", str) == ""
    queue = Queue(at_once=1, waiting=1)
    async with held(queue):
        (waiting,) = await send(queue, "b")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        (following,) = await send(queue, "c")
    await following


@in_loop
async def test_work_and_turns_of_a_client_that_went_end():
    messages = [{"type": "http.request"}, {"type": "http.disconnect"}]

    def request():
        left = iter(messages)

        async def receive():
            await asyncio.sleep(0.01)
            return next(left)

        return Request({"type": "http", "client": ("a", 1)}, receive)

    queue, began = Queue(at_once=1, most_work_s=PATIENCE_S), time.monotonic()
    calls = (in_turn(request(), queue, work, PATIENCE_S) for _ in range(3))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ClientDisconnect] * 3
    assert await in_turn(Request({"type": "http"}, asyncio.Event().wait), queue, str) == ""
    assert time.monotonic() - began < PATIENCE_S / 2


@in_loop
async def test_a_turn_that_is_given_up_as_another_call_ends_is_forgotten_once():
    for _ in range(10):
        queue = Queue(at_once=1, waiting=10, most_wait_s=0.02)
        calls = (queue.run(f"client {i % 3}", time.sleep, 0.02) for i in range(9))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), HTTPException}


@in_loop
async def test_who_has_taken_much_of_the_processor_waits_for_who_has_taken_little():
    queue, order = Queue(at_once=1, waiting=20), []

    async def one(client, seconds):
        await queue.run(client, work, seconds)
        order.append(client)

    async with held(queue):
        calls = [asyncio.create_task(one("large", 0.2)) for _ in range(3)]
        calls += [asyncio.create_task(one("small", 0.001)) for _ in range(9)]
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    assert order.index("large") == 0
    assert order[1:10] == ["small"] * 9
