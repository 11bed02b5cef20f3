"""The application: `uvicorn api.main:create_app --factory`, or `epochcast serve`."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from api import docs_page, metrics, web_page
from api.answering import Answering
from api.limits import Limits, watch_lag
from api.logs import logging_json
from api.metrics import Metrics
from api.observed import Observed
from api.openapi import document
from api.packing import Packing
from api.predicting import warm_up
from api.problems import add_problem_handlers
from api.routes import (
    calibrations,
    catalogue,
    cnns,
    comparisons,
    explanations,
    health,
    measurements,
    predictions,
)
from api.served_model import ServedModel
from api.settings import Settings
from predictor.catalogue.offers import load_offers

__all__ = ["ROUTERS", "create_app"]

ROUTERS: dict[str, APIRouter] = {
    "predictions": predictions.router,
    "comparisons": comparisons.router,
    "explanations": explanations.router,
    "calibrations": calibrations.router,
    "measurements": measurements.router,
    "catalogue": catalogue.router,
    "cnns": cnns.router,
    "health": health.router,
    "metrics": metrics.router,
    "docs": docs_page.router,
    "web": web_page.router,
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
    app = FastAPI(
        title="epochcast",
        version=_version(),
        description="How long one epoch of your CNN takes on a GPU, what it costs, and how sure the answer is.",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours is in api.metrics and api.logs
    )
    app.state.settings = settings or Settings()
    app.state.served = ServedModel(app.state.settings.model)
    app.state.offers = load_offers(app.state.settings.offers)
    app.state.answering = Answering(app.state.served.current, app.state.offers)
    app.state.store = _store(app.state.settings.store)
    app.state.metrics = Metrics()
    add_problem_handlers(app)
    _add_layers(app)
    for router in ROUTERS.values():
        app.include_router(router)
    app.openapi = document(app)  # type: ignore[method-assign]
    return app


def _version() -> str:
    """Ours; "unknown" where epochcast runs from its sources without being installed."""
    try:
        return version("epochcast")
    except PackageNotFoundError:
        return "unknown"


def _store(url: str) -> object:
    if not url:
        return None
    from api.store.engine import open_store

    return open_store(url)


def _add_layers(app: FastAPI) -> None:
    """What every request passes through, from the inside out."""
    settings: Settings = app.state.settings
    app.add_middleware(Packing)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
        )
    app.add_middleware(Limits, settings=settings, metrics=app.state.metrics)
    app.add_middleware(Observed, metrics=app.state.metrics)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Watch the model's file and the event loop while the service runs; let go of the store at its end."""
    with logging_json(app.state.settings.log_level):
        await asyncio.to_thread(warm_up, app.state.answering)
        gc.freeze()  # what is loaded by now stays: the collector need not look at it again and again
        watches = [
            asyncio.create_task(app.state.served.watch()),
            asyncio.create_task(watch_lag(app.state.metrics)),
        ]
        yield
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        if app.state.store is not None:
            app.state.store.dispose()
