"""The application: `uvicorn api.main:create_app --factory`, or `epochcast serve`.

Called by an ASGI server; calls the routes, the limits around them and what they share: the model, loaded once, the
prices and the store.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import APIRouter, FastAPI

from api.openapi import document
from api.problems import add_problem_handlers
from api.routes import calibrations, catalogue, comparisons, health, measurements, predictions
from api.served_model import ServedModel
from api.settings import Settings
from predictor.offers import load_offers

__all__ = ["ROUTERS", "create_app"]

ROUTERS: dict[str, APIRouter] = {
    "calibrations": calibrations.router,
    "predictions": predictions.router,
    "comparisons": comparisons.router,
    "catalogue": catalogue.router,
    "health": health.router,
    "measurements": measurements.router,
}
"""Every resource of the service; one more is one line."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Make the service.

    Parameters
    ----------
    settings : Settings, optional
        Read from the environment by default.

    Raises
    ------
    ArtifactError, SchemaError, StoreError
        If there is no model, no prices or no store to begin with.
    """
    app = FastAPI(title="epochcast", docs_url=None, redoc_url=None, lifespan=_lifespan)
    app.state.settings = settings or Settings()
    app.state.served = ServedModel(app.state.settings.model)
    app.state.offers = load_offers(app.state.settings.offers)
    app.state.store = _store(app.state.settings.store)
    add_problem_handlers(app)
    for router in ROUTERS.values():
        app.include_router(router)
    app.openapi = document(app)  # type: ignore[method-assign]
    return app


def _store(url: str) -> object:
    if not url:
        return None
    from api.store.engine import open_store

    return open_store(url)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Watch the model's file while the service runs; let go of the store at its end."""
    watch = asyncio.create_task(app.state.served.watch())
    yield
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    if app.state.store is not None:
        app.state.store.dispose()
