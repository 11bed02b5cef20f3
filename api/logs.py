"""Logs as one JSON object a line, with the request they belong to.

Used by `api.main` while the service runs; calls the standard library alone.
"""

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["REQUEST_ID", "logging_json"]

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the request that is being answered."""

_LOGGERS = ("epochcast", "uvicorn.error")


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        request_id = REQUEST_ID.get()
        if request_id:
            line["request_id"] = request_id
        more = getattr(record, "fields", None)
        if more is None:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | (more or {}), default=str)


@contextmanager
def logging_json(level: str) -> Iterator[None]:
    """Write the service's logs to standard error, from `level` up; as before afterwards."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLine())
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).propagate) for name in _LOGGERS}
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level.upper())
        logger.propagate = False
    try:
        yield
    finally:
        for name, (old_level, propagate) in before.items():
            logger = logging.getLogger(name)
            logger.removeHandler(handler)
            logger.setLevel(old_level)
            logger.propagate = propagate
