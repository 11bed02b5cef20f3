"""Around every request: an id, a line in the log, Prometheus metrics, safe headers, and an answer to every failure.

`Observed` is the outermost layer and pure ASGI, because a layer that wraps requests and answers in objects costs more
than a prediction.
"""

import itertools
import json
import logging
import os
import re
import secrets
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
    multiprocess,
)
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import problem
from api.words import WORDS

SECURITY_HEADERS = tuple((name.encode(), value.encode()) for name, value in WORDS["security_headers"].items())
"""Headers of every answer; docs/security.md says what each prevents."""

EXAMPLE = """# HELP epochcast_requests_total Requests answered.
# TYPE epochcast_requests_total counter
epochcast_requests_total{method="GET",route="/v1/gpus",status="200"} 1.0
"""
"""The first lines of the metrics of a service that answered one request."""

WATCHING = ("/healthz", "/readyz", "/metrics")
"""Paths of whoever watches the service."""

_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}", re.ASCII)
_KEY = re.compile(r"epochcast_[A-Za-z0-9_-]{16,}", re.IGNORECASE)
_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ("method", "route", "status")

_REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
_ACCESS = logging.getLogger("epochcast.access")
_LOG = logging.getLogger("epochcast")
_LOGGERS = ("epochcast", "uvicorn.error", "asyncio", "py.warnings")

router = APIRouter(tags=["health"])


class Metrics:
    """Prometheus metrics of one application.

    Paths are counted by their route, so that the number of series does not grow with what clients send. Several
    processes of one service keep their numbers in the folder `PROMETHEUS_MULTIPROC_DIR`, and each tells those of all.
    `in_work`: requests begun and not ended, but for those of `WATCHING`.
    """

    def __init__(self) -> None:
        self.in_work = 0
        self._folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self.registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter("epochcast_requests", "Requests answered.", _LABELS, registry=self.registry)
        self._seconds = Histogram(
            "epochcast_request_seconds", "Time from a request to its answer.", _LABELS,
            buckets=_BOUNDS_S, registry=self.registry,
        )  # fmt: skip
        self._in_work = Gauge(
            "epochcast_requests_in_work", "Requests begun and not ended.",
            multiprocess_mode="livesum", registry=self.registry,
        )  # fmt: skip
        if self._folder is None:
            ProcessCollector(registry=self.registry)

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route, status).observe(seconds)

    def add_in_work(self, count: int) -> None:
        """Count requests that have come in, or, if negative, that have ended."""
        self.in_work += count
        self._in_work.set(self.in_work)

    def text(self) -> bytes:
        """Metrics of all processes in the text format of Prometheus."""
        if self._folder is None:
            return generate_latest(self.registry)
        for file in Path(self._folder).glob("gauge_live*_*.db"):
            process = int(file.stem.rpartition("_")[2])
            try:
                os.kill(process, 0)
            except ProcessLookupError:  # it was killed: its gauges go
                multiprocess.mark_process_dead(process, self._folder)  # type: ignore[no-untyped-call]
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together, self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(together)


@router.get(
    "/metrics",
    operation_id="get_metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Requests by route and status, their times, those in work, the process's memory and CPU time."""
    content = await run_in_threadpool(request.app.state.metrics.text)
    return Response(content, media_type=_CONTENT_TYPE)


class Observed:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._begin, self._count = secrets.token_hex(6), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, method = time.perf_counter(), scope["method"]
        request_id = self._id(scope)
        inner = {**scope, "method": "GET"} if method == "HEAD" else scope  # GET's answer, without its body
        token = _REQUEST_ID.set(request_id)
        common = (*SECURITY_HEADERS, (b"x-request-id", request_id.encode()))
        status, counted = 0, int(scope["path"] not in WATCHING)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"] = [*message.get("headers", ()), *common]
                if not any(name == b"content-security-policy" for name, _ in headers):
                    headers.append(_POLICY)
            elif method == "HEAD" and "body" in message:
                message["body"] = b""
            await send(message)

        self._metrics.add_in_work(counted)
        try:
            await self._app(inner, receive, send_with_headers)
        except ClientDisconnect:
            pass  # the client went: no failure of the service
        except Exception:  # noqa: BLE001 - the last resort: a line in the log, and an answer
            _LOG.exception("the service failed")
            if not status:
                detail = f"the service failed. Report it to its operator with the id {request_id}."
                answer = problem(500, detail)
                await answer(scope, receive, send_with_headers)
        finally:
            self._metrics.add_in_work(-counted)
            self._note(scope, inner, status or 499, time.perf_counter() - started)
            _REQUEST_ID.reset(token)

    def _id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _ID.fullmatch(value) and not _KEY.search(str(value, "ascii")):
                return str(value, "ascii")
        return f"{self._begin}-{next(self._count):x}"

    def _note(self, scope: Scope, inner: Scope, status: int, seconds: float) -> None:
        """Count the request and, if access is logged, write its line."""
        route = getattr(inner.get("route"), "path", "other")
        self._metrics.add(scope["method"] if route != "other" else "any", route, status, seconds)
        if _ACCESS.isEnabledFor(logging.INFO):
            client, key = scope.get("client"), inner.get("state", {}).get("api_key")
            fields: dict[str, Any] = {
                "method": scope["method"],
                "path": _KEY.sub("epochcast_...", scope["path"][:200]),  # a key sent in the wrong place
                "status": status,
                "ms": round(seconds * 1000, 3),
                "client": client[0] if client else None,
            }
            _ACCESS.info("request", extra={"fields": fields | ({"key": key} if key else {})})


class JsonLine(logging.Formatter):
    """Formatter of a record as one JSON object, with the id of the request."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        request_id = _REQUEST_ID.get()
        if request_id:
            line["request_id"] = request_id
        fields = getattr(record, "fields", None)
        if fields is None:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | (fields or {}), default=str)


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": JsonLine}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {name: {"handlers": ["stderr"], "level": "INFO", "propagate": False} for name in _LOGGERS},
}
"""For uvicorn, whose processes log before and after the application does."""


@contextmanager
def logging_json(level: str) -> Iterator[None]:
    """Write the service's logs, warnings too, to standard error as JSON, from `level` up; restore them afterwards."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine())
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger, logger.level, logger.propagate, logger.handlers) for logger in loggers]
    for logger in loggers:
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    show_warning = warnings.showwarning
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        if warnings.showwarning is not show_warning:  # else an outer block captures them
            logging.captureWarnings(capture=False)
        for logger, old_level, propagate, handlers in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(old_level)
