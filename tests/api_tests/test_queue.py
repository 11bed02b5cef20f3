"""A queue runs a few calls, lets some wait, and refuses the others at once."""

import asyncio
import time

import pytest
from fastapi import HTTPException

from api.serving import Queue


async def crowd(queue, calls, seconds):
    """Send that many calls at once; how many were refused."""
    runs = [queue.run(time.sleep, seconds) for _ in range(calls)]
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
        queue.check()
        running = asyncio.create_task(queue.run(time.sleep, 0.05))
        while not queue.full:
            await asyncio.sleep(0)
        with pytest.raises(HTTPException) as refused:
            queue.check()
        await running
        queue.check()
        return refused.value

    found = asyncio.run(ask())
    assert (found.status_code, found.headers) == (503, {"Retry-After": "5"})


def test_a_call_that_fails_leaves_its_place():
    async def ask():
        queue = Queue(at_once=1, waiting=0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await queue.run(divmod, 1, 0)

    asyncio.run(ask())
