"""The routes of the store alone, as an application that uvicorn runs."""

import os

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from api.routes.measurements import router
from api.store.engine import open_store
from predictor.errors import EpochcastError


def create_app() -> FastAPI:
    app = FastAPI()
    app.state.store = open_store(os.environ["EPOCHCAST_STORE"])
    app.include_router(router)

    @app.exception_handler(EpochcastError)
    async def refuse(_: Request, error: EpochcastError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    return app
