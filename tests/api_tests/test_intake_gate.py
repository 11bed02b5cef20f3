"""A gate lets a few in, makes some wait, and refuses at once what would wait too long."""

import asyncio
import threading
import time

import pytest
from fastapi import HTTPException

from api.intake_gate import Gate


async def crowd(gate, calls, seconds, turn=None):
    """Send that many calls at once; how many were refused."""
    runs = [
        gate.run(time.sleep, seconds) if turn is None else gate.run_in(turn, time.sleep, seconds)
        for _ in range(calls)
    ]
    found = await asyncio.gather(*runs, return_exceptions=True)
    return sum(isinstance(each, HTTPException) for each in found)


def test_more_than_may_wait_are_refused_with_when_to_come_back():
    async def ask():
        gate = Gate(at_once=1, waiting=2)
        return await crowd(gate, 5, 0.01), await crowd(gate, 3, 0.01)

    assert asyncio.run(ask()) == (2, 0)


def test_fewer_may_wait_when_calls_take_long():
    async def ask():
        gate = Gate(at_once=1, waiting=50, most_wait_s=0.02)
        first = await crowd(gate, 20, 0.02)
        return first, await crowd(gate, 20, 0.02)

    first, later = asyncio.run(ask())
    assert first == 0  # nobody knew yet
    assert 10 <= later < 20


def test_whoever_need_not_wait_is_let_in_however_long_calls_take():
    async def ask():
        gate = Gate(at_once=1, waiting=50, most_wait_s=1e-6)
        return [await crowd(gate, 1, 0.005) for _ in range(5)]

    assert asyncio.run(ask()) == [0] * 5


def test_a_full_gate_says_so_before_any_work():
    async def ask():
        gate = Gate(at_once=1, waiting=0)
        gate.check()
        end = threading.Event()
        running = asyncio.create_task(gate.run(end.wait))
        await asyncio.sleep(0)  # it takes its place at once, and keeps it until the end is told
        try:
            with pytest.raises(HTTPException) as refused:
                gate.check()
        finally:
            end.set()
            await running
        gate.check()
        return refused.value

    found = asyncio.run(ask())
    assert (found.status_code, found.headers) == (503, {"Retry-After": "5"})


def test_gates_with_one_turn_alternate():
    order = []

    async def ask():
        turn, left, right = asyncio.Lock(), Gate(), Gate()
        calls = [
            gate.run_in(turn, order.append, name)
            for gate, name in ((left, "l"), (right, "r"))
            for _ in range(4)
        ]
        await asyncio.gather(*calls)

    asyncio.run(ask())
    assert "".join(order) in ("lrlrlrlr", "rlrlrlrl")


def test_a_call_that_fails_leaves_its_place():
    async def ask():
        gate = Gate(at_once=1, waiting=0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await gate.run(divmod, 1, 0)

    asyncio.run(ask())
