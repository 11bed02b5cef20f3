"""`/healthz` and `/readyz`: whether the process lives, and whether it can answer."""

import asyncio
import math
import time
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from sqlalchemy import Engine, text

from api.store.engine import reading
from api.words import described
from predictor.errors import StoreError

ALIVE = "ok\n"
"""What a process that lives says."""

router = APIRouter(tags=["health"])


class Ready(BaseModel):
    """What the service answers with."""

    model: str
    trained_on: str
    store: bool
    model_problem: str | None = described("Ready.model_problem")


@router.get(
    "/healthz",
    operation_id="get_health",
    summary="Whether the process lives",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    response_class=Response,
)
async def healthz() -> Response:
    """Answers at once, whatever else works."""
    return Response(ALIVE, media_type="text/plain")


@router.get("/readyz", operation_id="get_readiness", summary="Whether it can answer")
async def readyz(request: Request) -> Ready:
    """Answers 503 while the store cannot be reached; a damaged new model is reported, for the old one answers."""
    if request.app.state.store is not None:
        await request.app.state.ready.check(request.app.state.store)
    return Ready(**ready(request.app.state))


def ready(state: Any) -> dict[str, Any]:
    """Fields of `Ready`."""
    served = state.serving.model
    card = served.current.card
    return {
        "model": str(card.get("name")),
        "trained_on": str(card.get("trained_on")),
        "store": state.store is not None,
        "model_problem": served.problem,
    }


class Readiness:
    """Whether the store answers, asked once a second at most, however often clients ask."""

    def __init__(self) -> None:
        self._lock, self._asked_at, self._problem = asyncio.Lock(), -math.inf, ""

    async def check(self, store: Engine) -> None:
        """Raise StoreError while the store does not answer."""
        async with self._lock:
            if time.monotonic() - self._asked_at > 1.0:
                self._problem = await run_in_threadpool(_problem_of, store)
                self._asked_at = time.monotonic()
        if self._problem:
            raise StoreError(self._problem)


def _problem_of(store: Engine) -> str:
    try:
        with reading(store) as connection:
            connection.execute(text("SELECT 1"))
    except StoreError as error:
        return str(error)
    return ""
