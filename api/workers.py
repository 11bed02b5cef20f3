"""Work that takes long, in threads, a little at a time; the rest is told to come back.

Called by the routes; calls the gate and the reader of ONNX files.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fastapi import Request

from api.intake_gate import Gate
from api.onnx_reader import read_onnx
from predictor.layers import LayerTable

__all__ = ["read_apart", "run_apart"]

P = ParamSpec("P")
T = TypeVar("T")


async def run_apart(request: Request, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call in a thread when it is its turn; HTTPException 503 where too many wait already."""
    state = request.app.state
    if not hasattr(state, "answer_gate"):
        state.answer_gate = Gate(at_once=1, waiting=64)
    gate: Gate = state.answer_gate
    return await gate.run(call, *args, **kwargs)


async def read_apart(request: Request, content: bytes, name: str, image_size: int | None) -> LayerTable:
    """Read an ONNX file when it is its turn, two at a time; HTTPException 503 where too many wait already."""
    state = request.app.state
    if not hasattr(state, "onnx_gate"):
        state.onnx_gate = Gate(at_once=2, waiting=16)
    gate: Gate = state.onnx_gate
    return await gate.run(read_onnx, content, name, image_size)
