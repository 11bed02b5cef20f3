"""A queue runs a few calls, lets some wait, refuses the others at once, and gives each client its turn."""

import asyncio
import threading
import time

import pytest
from fastapi import HTTPException

from api.queues import Queue


async def crowd(queue, calls, seconds):
    """Send that many calls at once; how many were refused."""
    runs = [queue.run(f"client {i}", time.sleep, seconds) for i in range(calls)]
    found = await asyncio.gather(*runs, return_exceptions=True)
    return sum(isinstance(each, HTTPException) for each in found)


def test_more_than_may_wait_are_refused():
    async def ask():
        queue = Queue(at_once=1, waiting=2)
        return await crowd(queue, 5, 0.01), await crowd(queue, 3, 0.01)

    assert asyncio.run(ask()) == (2, 0)


def test_a_call_whose_turn_does_not_come_in_time_is_refused():
    async def ask():
        queue = Queue(at_once=1, waiting=5, most_wait_s=0.01)
        return await crowd(queue, 6, 0.2), await crowd(queue, 1, 0.0)

    assert asyncio.run(ask()) == (5, 0)


def test_a_full_queue_says_so_before_any_work():
    async def ask():
        queue = Queue(at_once=1, waiting=0)
        queue.check("a")
        running = asyncio.create_task(queue.run("a", time.sleep, 0.05))
        while not queue.full_for("b"):
            await asyncio.sleep(0)
        with pytest.raises(HTTPException) as refused:
            queue.check("b")
        await running
        await asyncio.sleep(0)
        queue.check("b")
        return refused.value

    found = asyncio.run(ask())
    assert (found.status_code, found.headers) == (503, {"Retry-After": "2"})


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
    assert "".join(ran) == "aabaaa"  # the first a ran at once, and a waited before b


def test_one_client_cannot_take_all_places():
    async def ask():
        queue = Queue(at_once=1, waiting=4, waiting_each=2)
        runs = [queue.run(client, time.sleep, 0.01) for client in "aaaaab"]
        found = await asyncio.gather(*runs, return_exceptions=True)
        return [isinstance(each, HTTPException) for each in found]

    assert asyncio.run(ask()) == [False, False, False, True, True, False]


def test_one_client_runs_as_many_calls_as_are_its_share():
    running, most = [], []

    def call(client):
        running.append(client)
        most.append(running.count(client))
        time.sleep(0.02)
        running.remove(client)

    async def ask():
        queue = Queue(at_once=2, running_each=1)
        await asyncio.gather(*(queue.run(client, call, client) for client in "aabb"))

    asyncio.run(ask())
    assert max(most) == 1


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
        running = asyncio.create_task(queue.run("a", time.sleep, 0.05))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(queue.run("b", time.sleep, 0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.gather(running, queue.run("c", time.sleep, 0))

    asyncio.run(ask())


def test_a_turn_that_is_given_up_as_another_call_ends_is_forgotten_once():
    async def ask():
        queue = Queue(at_once=1, waiting=10, most_wait_s=0.02)
        calls = (queue.run(f"client {i % 3}", time.sleep, 0.02) for i in range(9))
        return await asyncio.gather(*calls, return_exceptions=True)

    for _ in range(10):
        assert {type(each) for each in asyncio.run(ask())} <= {type(None), HTTPException}


def test_a_call_that_will_hardly_get_its_turn_is_refused_at_once():
    async def ask():
        queue = Queue(at_once=1, waiting=10, most_wait_s=0.2)
        for _ in range(25):  # calls took 0.03 s of late
            await queue.run("a", time.sleep, 0.03)
            await asyncio.sleep(0)
        running = [asyncio.create_task(queue.run(client, time.sleep, 0.03)) for client in "acde"]
        await asyncio.sleep(0.01)
        full = queue.full_for("b")
        await asyncio.gather(*running, return_exceptions=True)
        return full

    assert asyncio.run(ask())
