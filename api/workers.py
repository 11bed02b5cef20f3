"""Work that takes long, in threads, a little at a time; the rest is told to come back."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fastapi import Request

from api.intake_gate import Gate
from api.onnx_reader import read_onnx
from predictor.cnns.layer_table import LayerTable

__all__ = ["answer_gate", "onnx_gate", "read_apart", "run_apart", "shared_turn"]

P = ParamSpec("P")
T = TypeVar("T")


def answer_gate(request: Request) -> Gate:
    """The application's gate before its model: one at a time, as many waiting as are answered in `max_lag_s`."""
    state = request.app.state
    if not hasattr(state, "answer_gate"):
        state.answer_gate = Gate(at_once=1, waiting=64, most_wait_s=state.settings.max_lag_s)
    gate: Gate = state.answer_gate
    return gate


def onnx_gate(request: Request) -> Gate:
    """The application's gate before the reader of ONNX files: two at a time."""
    state = request.app.state
    if not hasattr(state, "onnx_gate"):
        state.onnx_gate = Gate(at_once=2, waiting=16)
    gate: Gate = state.onnx_gate
    return gate


def shared_turn(request: Request) -> asyncio.Lock:
    """What the model and small uploads take in turn: two threads that compute at once only hold each other up."""
    state = request.app.state
    if not hasattr(state, "shared_turn"):
        state.shared_turn = asyncio.Lock()
    turn: asyncio.Lock = state.shared_turn
    return turn


async def run_apart(request: Request, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call in a thread when it is its turn; HTTPException 503 where too many wait already."""
    return await answer_gate(request).run_in(shared_turn(request), call, *args, **kwargs)


async def read_apart(request: Request, content: bytes, name: str, image_size: int | None) -> LayerTable:
    """Read an ONNX file when it is its turn, two at a time; HTTPException 503 where too many wait already."""
    return await onnx_gate(request).run(read_onnx, content, name, image_size)
