"""The application: `uvicorn api.main:create_app --factory`, or `epochcast serve`."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import parent_process
from threading import Thread
from typing import Any

from fastapi import APIRouter, FastAPI
from pydantic_core import from_json
from starlette.middleware.cors import CORSMiddleware

from api import observability, pages
from api.hosts import KnownHosts, warn_of_unused_settings
from api.observability import Metrics, Observed, logging_json
from api.openapi import Examples, document
from api.parsing import Answering, Q, Questions, example_answer
from api.problems import add_problem_handlers
from api.questions import PredictionQuestion
from api.routes import advice, calibrations, catalogue, cnns, health, measurements, predictions
from api.serving import ServingState
from api.settings import Settings
from api.words import WORDS
from predictor.answers.answer import answer
from predictor.answers.question import Question

ROUTERS: dict[str, APIRouter] = {
    "predictions": predictions.router,
    "advice": advice.router,
    "calibrations": calibrations.router,
    "measurements": measurements.router,
    "catalogue": catalogue.router,
    "cnns": cnns.router,
    "health": health.router,
    "metrics": observability.router,
    "pages": pages.router,
}
"""Every resource of the service; one more is one line, a question that one call answers a function of `advice`."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Make the service, with settings of the environment if none are given.

    ArtifactError, SchemaError or StoreError if there is no model, no prices or no store to begin with.
    """
    try:
        installed = version("epochcast")
    except PackageNotFoundError:  # it runs from its sources
        installed = "unknown"
    app = FastAPI(
        title="epochcast",
        version=installed,
        description="How long one epoch of your CNN takes on a GPU, what it costs, and how sure the answer is.",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        openapi_tags=WORDS["tags"],
        servers=[{"url": "/", "description": "This service."}],
        openapi_url=None,  # api.pages has it: FastAPI makes and writes it on the event loop
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # to the Host that a client sent
        lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours is api.observability
    )
    app.state.settings = settings = settings or Settings()
    app.state.serving = ServingState(settings)
    app.state.store = None
    if settings.store:
        from api.store.engine import open_store

        app.state.store = open_store(settings.store)
    app.state.metrics = Metrics()
    app.state.ready = health.Readiness()
    add_problem_handlers(app)
    app.add_middleware(KnownHosts, names=settings.hosts)  # layers, from the inside out
    if settings.cors_origins:  # pages may read refusals, too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("Retry-After", "X-Request-ID", "Link", "ETag"),
        )
    app.add_middleware(Observed, metrics=app.state.metrics)
    app.router.routes.append(Questions([*predictions.router.routes, *advice.router.routes]))
    for router in ROUTERS.values():
        app.include_router(router)
    examples = {name: cache(example) for name, example in _examples(app).items()}
    app.openapi = document(app, examples)  # type: ignore[method-assign]
    app.state.document = pages.Document(app.openapi, examples, app.state.serving.model_queue)
    return app


def _examples(app: FastAPI) -> Examples:
    """Functions that answer the example of each operation outside the catalogue, by operation."""
    serving: ServingState = app.state.serving

    def of(kind: type[Q], answer: Answering[Q]) -> Callable[[], Any]:
        return partial(example_answer, kind, answer, serving)

    return {
        "create_prediction": of(PredictionQuestion, partial(predictions.answer_in_json, max_rows=1000)),
        **{operation: of(*answering) for operation, answering in advice.ANSWERING.items()},
        "create_calibration": partial(calibrations.example, app.state),
        "create_cnn": cnns.example,
        "get_cnn": lambda: from_json(catalogue.cnn_in_json("lenet5")),
        "get_readiness": partial(health.ready, app.state),
        **{name: partial(dict, shown) for name, shown in measurements.EXAMPLES.items()},
        "get_health": lambda: health.ALIVE,
        "get_metrics": lambda: observability.EXAMPLE,
    }


def _warm_up(serving: ServingState) -> None:
    """Answer a question before the first request, which then need not wait for modules, catalogues and operators."""
    question = Question("resnet50", "all", 32, samples=1, offers=serving.offers, model=serving.model.current)
    answer(question).records()


def _end_with_parent() -> None:
    """End this worker, and free its port, when the process that started the worker was killed."""
    parent = parent_process()
    if parent is None:
        return

    def end() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=end, name="epochcast-parent", daemon=True).start()


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Watch the model's file while the service runs; close the store at its end."""
    with logging_json(app.state.settings.log_level), ExitStack() as at_end:
        at_end.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(0.0005)  # of a thread while the event loop waits: a tenth of usual
        warn_of_unused_settings()
        await asyncio.to_thread(_warm_up, app.state.serving)
        _end_with_parent()
        gc.freeze()  # what is loaded by now stays: the collector need not look at it again and again
        watch = asyncio.create_task(app.state.serving.model.watch())
        yield
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        if app.state.store is not None:
            app.state.store.dispose()
