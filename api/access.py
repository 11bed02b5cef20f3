"""Who is asking: API keys of requests that write.

A key is looked up in each request, so that a revoked one is refused at once.
"""

from typing import Annotated

from fastapi import HTTPException, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Engine

from api.store.keys import ApiKey, find_key

__all__ = ["Uploader", "store_of", "uploader"]

_BEARER = HTTPBearer(
    auto_error=False,
    description="An API key that `epochcast keys add` made: `Authorization: Bearer epochcast_...`",
)


def store_of(request: Request) -> Engine:
    """Give the application's store.

    Raises
    ------
    HTTPException
        503 if it runs without one.
    """
    store: Engine | None = getattr(request.app.state, "store", None)
    if store is None:
        raise HTTPException(503, "this service runs without a measurement store. Set EPOCHCAST_STORE.")
    return store


async def uploader(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
) -> ApiKey:
    """Find the key of a request that writes.

    Raises
    ------
    HTTPException
        401 without a key or with one that nobody made, 403 with a revoked one.
    """
    found = None if given is None else await run_in_threadpool(find_key, store_of(request), given.credentials)
    if found is None:
        asked = "no API key is given" if given is None else "this API key is not known"
        raise HTTPException(
            401,
            f"{asked}. Send 'Authorization: Bearer KEY'; whoever runs the service makes keys: `epochcast keys add`.",
            {"WWW-Authenticate": "Bearer"},
        )
    if found.revoked_at is not None:
        raise HTTPException(403, f"the API key of {found.name!r} was revoked on {found.revoked_at[:10]}.")
    request.state.api_key = found.name
    return found


Uploader = Annotated[ApiKey, Security(uploader)]
"""The key of a request that writes, as a parameter of a route."""
