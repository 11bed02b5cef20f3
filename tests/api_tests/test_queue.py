"""A queue runs a few calls, lets some wait, refuses the others at once, and gives each client its turn."""

import asyncio
import contextlib
import threading
import time

import pytest
from fastapi import HTTPException
from waiting import PATIENCE_S

from api.queues import Queue
from predictor.errors import OutOfRangeError
from predictor.stopping import check_stop


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


def test_more_than_may_wait_are_refused():
    async def ask():
        queue = Queue(at_once=1, waiting=2)
        async with held(queue):
            waiting = await send(queue, "abcd")
        first = await refused(waiting)
        async with held(queue):
            waiting = await send(queue, "ab")
        return first, await refused(waiting)

    assert asyncio.run(ask()) == ([False, False, True, True], [False, False])


def test_a_call_whose_turn_does_not_come_in_time_is_refused():
    async def ask():
        queue = Queue(at_once=1, waiting=5, most_wait_s=0.01)
        async with held(queue):
            late = await refused(await send(queue, "abcde"))
        return late, await refused(await send(queue, "a"))

    assert asyncio.run(ask()) == ([True] * 5, [False])


def test_a_full_queue_says_so_before_any_work():
    async def ask():
        queue = Queue(at_once=1, waiting=0)
        queue.check("a")
        async with held(queue):
            with pytest.raises(HTTPException) as refused:
                queue.check("b")
        await asyncio.sleep(0)
        queue.check("b")
        return refused.value

    refusal = asyncio.run(ask())
    assert (refusal.status_code, refusal.headers) == (503, {"Retry-After": "10"})


def test_a_call_that_fails_leaves_its_place():
    async def ask():
        queue = Queue(at_once=1, waiting=0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await queue.run("a", divmod, 1, 0)
            await asyncio.sleep(0)

    asyncio.run(ask())


def test_clients_take_turns_however_much_one_of_them_asks():
    ran = []

    async def ask():
        queue = Queue(at_once=1, waiting=10)
        calls = [queue.run(client, ran.append, client) for client in "aaaaab"]
        await asyncio.gather(*calls)

    asyncio.run(ask())
    assert "".join(ran) == "abaaaa"  # the first a ran at once


def test_one_client_cannot_take_all_places():
    async def ask():
        queue = Queue(at_once=1, waiting=4, per_client_waiting=2)
        async with held(queue, "a"):
            waiting = await send(queue, "aaaab")
        return await refused(waiting)

    assert asyncio.run(ask()) == [False, False, True, True, False]


def test_one_client_runs_as_many_calls_as_are_its_share():
    running, most, both = [], [], threading.Barrier(2)

    def call(client):
        running.append(client)
        both.wait(PATIENCE_S)  # until the other client's call runs, too
        most.append(running.count(client))
        running.remove(client)

    async def ask():
        queue = Queue(at_once=2, per_client_running=1)
        await asyncio.gather(*(queue.run(client, call, client) for client in "aabb"))

    asyncio.run(ask())
    assert max(most) == 1


def test_a_free_place_does_not_wait_for_a_client_that_has_its_share():
    async def ask():
        queue = Queue(at_once=2, per_client_running=1)
        async with held(queue, "a"):
            (waiting,) = await send(queue, "a")
            await queue.run("b", str)
        await waiting

    asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))


def test_a_call_that_nobody_waits_for_keeps_its_place_until_it_ends():
    ended = threading.Event()

    async def ask():
        queue = Queue(at_once=1, waiting=0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await queue.run("a", ended.wait)
        full = queue.full_for("b")
        ended.set()
        while queue.full_for("b"):
            await asyncio.sleep(0.01)
        return full

    assert asyncio.run(ask())


def test_a_client_that_goes_while_it_waits_leaves_its_place():
    async def ask():
        queue = Queue(at_once=1, waiting=1)
        async with held(queue):
            (waiting,) = await send(queue, "b")
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            (following,) = await send(queue, "c")
        await following

    asyncio.run(ask())


def test_a_turn_that_is_given_up_as_another_call_ends_is_forgotten_once():
    async def ask():
        queue = Queue(at_once=1, waiting=10, most_wait_s=0.02)
        calls = (queue.run(f"client {i % 3}", time.sleep, 0.02) for i in range(9))
        return await asyncio.gather(*calls, return_exceptions=True)

    for _ in range(10):
        assert {type(result) for result in asyncio.run(ask())} <= {type(None), HTTPException}


def test_where_all_places_are_taken_a_newcomer_takes_one_of_who_has_most():
    async def ask():
        queue = Queue(at_once=1, waiting=5, per_client_waiting=3)
        async with held(queue):
            waiting = await send(queue, "aaabbcc")
        return await refused(waiting)

    assert asyncio.run(ask()) == [False, False, True, False, False, False, True]


def work(seconds):
    """Use a processor for some time."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        check_stop()


def test_who_has_taken_much_of_the_processor_waits_for_who_has_taken_little():
    async def ask():
        queue, order = Queue(at_once=1, waiting=20), []

        async def one(client, seconds):
            await queue.run(client, work, seconds)
            order.append(client)

        async with held(queue):
            calls = [asyncio.create_task(one("large", 0.2)) for _ in range(3)]
            calls += [asyncio.create_task(one("small", 0.001)) for _ in range(9)]
            await asyncio.sleep(0)
        await asyncio.gather(*calls)
        return order

    order = asyncio.run(ask())
    assert order.index("large") == 0
    assert order[1:10] == ["small"] * 9


def test_a_call_that_takes_too_long_ends_and_says_so():
    async def ask():
        await Queue(most_work_s=0.01).run("a", work, PATIENCE_S)

    with pytest.raises(OutOfRangeError, match=r"more than 0\.01 s of a processor"):
        asyncio.run(ask())


def test_a_call_that_nobody_waits_for_ends():
    async def ask():
        queue = Queue(at_once=1, most_work_s=PATIENCE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await queue.run("a", work, 10 * PATIENCE_S)
        return await queue.run("b", str)

    assert asyncio.run(ask()) == ""
