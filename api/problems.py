"""Errors as answers: every refusal is a problem document (RFC 9457) that names what is wrong and what would be right.

An unknown name of a field, parameter or path is refused with the nearest, never left out in silence. What the client
sent is quoted in short and made printable, since it may be anything.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from api.bodies import LARGER_TABLES
from api.store.uploads import shortened
from api.words import WORDS
from predictor.answers.options import options_of
from predictor.answers.question import Plan
from predictor.errors import (
    ArtifactError,
    BackendUnavailableError,
    EpochcastError,
    NotFittedError,
    ServiceError,
    StoreError,
    UnknownCnnError,
    UnknownGpuError,
    nearest,
)

PROBLEM_JSON = "application/problem+json"

STATUS_OF: dict[type[EpochcastError], int] = {
    **dict.fromkeys((UnknownGpuError, UnknownCnnError), 404),
    **dict.fromkeys((ArtifactError, NotFittedError, StoreError, ServiceError, BackendUnavailableError), 503),
    EpochcastError: 422,
}
"""Status of each error; the first class that fits counts."""

TITLES: dict[int, str] = {int(status): title for status, title in WORDS["titles"].items()}
"""What each status means here, in few words."""

_LOG = logging.getLogger("epochcast.store")
_NO_STORE = (
    "the measurement store does not answer as it should. Nothing was stored. Send it again in a few seconds."
)
_UNSEEN = ("/web/", "/docs/")  # files of pages
_WHOLE = "body"  # where no single field is at fault
_MOST_QUOTED = 2000
_KINDS = ("constrained-str", "str", "int", "float", "bool")  # where a value may be of several kinds
_FORMS = ("rows", "columns")  # of measurements
_MOST_ERRORS = 20


class FieldError(BaseModel):
    """A field at fault, such as ``anchors[0].gpu``."""

    field: str
    detail: str


class Problem(BaseModel):
    """A refusal (RFC 9457): the value at fault, the valid range or the nearest valid names, and the next step."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    error: str | None = Field(None, description="What `epochcast` would raise, for clients that raise it.")
    errors: list[FieldError] = Field([], description="Fields at fault, where the request has any.")


class InvalidFieldsError(EpochcastError):
    """Fields of a request are wrong; `errors` names each, with what is wrong with it."""

    def __init__(self, errors: Sequence[Mapping[str, str]], count: int = 1) -> None:
        first, n_others = errors[0], max(count, len(errors)) - 1
        more = f" (and {n_others} more)" if n_others else ""
        where = f"{first['field']}: " if first["field"] != _WHOLE else ""
        super().__init__(f"{where}{first['detail']}{more}")
        self.errors = [dict(error) for error in errors[:_MOST_ERRORS]]

    @classmethod
    def of(
        cls, errors: Sequence[Mapping[str, Any]], count: int = 1, kind: type[BaseModel] | None = None
    ) -> "InvalidFieldsError":
        """From the errors of pydantic in a question of this kind, which may be the first of `count` errors."""
        details: dict[str, list[str]] = {}  # by field
        for error in errors:
            details.setdefault(_path(_location(error)), []).append(_detail(error) + _meant(error, kind))
        fields = [{"field": field, "detail": ", or: ".join(of_field)} for field, of_field in details.items()]
        return cls(fields, count)


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> Response:
    """A problem document as an answer, with further members such as `errors`, the fields at fault."""
    content = {"type": "about:blank", "title": TITLES.get(status, "Refused"), "status": status}
    content |= {"detail": _printable(detail), **more}
    return Response(to_json(content), status, dict(headers or {}), PROBLEM_JSON)


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error that a route raises with a problem document."""
    app.add_exception_handler(EpochcastError, _epochcast_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)


async def _epochcast_error(request: Request, error: Exception) -> Response:
    status = next(status for kind, status in STATUS_OF.items() if isinstance(error, kind))
    headers = {"Retry-After": "5"} if status == 503 else {}
    if isinstance(error, StoreError):
        _LOG.error("%s", error)  # its address is the operator's business
        return problem(status, _NO_STORE, headers, error="StoreError")
    if isinstance(error, InvalidFieldsError):
        return problem(status, str(error), headers, error="SchemaError", errors=error.errors)
    option, detail = error.option if isinstance(error, EpochcastError) else None, str(error)
    for words, here in WORDS["in_rest"].items():
        detail = detail.replace(words, here)
    if request.method == "GET" and request.path_params and option not in request.query_params:
        option = None  # what a path names is no field
    at_fault = {"errors": [{"field": option, "detail": detail}]} if option and status < 500 else {}
    return problem(status, detail, headers, error=type(error).__name__, **at_fault)


async def _invalid(request: Request, error: Exception) -> Response:
    errors = error.errors() if isinstance(error, RequestValidationError) else []
    return await _epochcast_error(request, InvalidFieldsError.of(errors))


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    path, routes = request.url.path[:200], list(_leaves(request.app.routes))
    if (error.status_code, error.detail) == (404, "Not Found"):
        paths = {str(route.path) for route in routes if not route.path.startswith(_UNSEEN)}
        near = nearest(path, sorted(paths))
        return problem(404, f"this service has no path {path!r}. Nearest: {near}. /docs shows all.")
    if error.status_code == 405:
        matching = [route for route in routes if route.matches({**request.scope})[0] is not Match.NONE]
        taken = sorted({method for route in matching for method in route.methods or ()} - {"HEAD"})
        allow = {"Allow": ", ".join(sorted({*taken, "OPTIONS", *(["HEAD"] if "GET" in taken else [])}))}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=allow)
        detail = f"{path} takes {' and '.join(taken)}, not {request.method[:20]}."
        return problem(405, f"{detail} /docs shows what each path takes.", allow)
    return problem(error.status_code, str(error.detail), error.headers)


def _leaves(routes: Sequence[BaseRoute]) -> Iterator[Any]:
    for route in routes:
        inner = getattr(route, "original_router", None)  # as FastAPI keeps what is included
        if inner is not None:
            yield from _leaves(inner.routes)
        elif hasattr(route, "path") and hasattr(route, "methods"):
            yield route


async def only_known_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not have, as a dependency of its router; InvalidFieldsError."""
    names = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    valid = f"Valid: {', '.join(names)}." if names else "There are none here."
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in names]
    if unknown:
        raise InvalidFieldsError(
            [{"field": name[:100], "detail": f"Extra inputs are not permitted. {valid}"} for name in unknown]
        )


def _location(error: Mapping[str, Any]) -> tuple[object, ...]:
    """Location of an error in the request, without the names of types that pydantic tried."""
    location = tuple(error["loc"])
    location = location[:-1] if location and location[-1] in _KINDS else location
    measured = len(location) > 1 and location[0] == "measurements" and location[1] in _FORMS
    return (location[0], *location[2:]) if measured else location


def _path(location: Sequence[object]) -> str:
    """Write a place in a request as ``anchors[0].gpu``."""
    text = ""
    for key in location:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return _printable(text) or _WHOLE


def _detail(error: Mapping[str, Any]) -> str:
    detail = WORDS["given"].get(error["type"], str(error["msg"]).removeprefix("Value error, "))
    for words, plain in WORDS["plain"].items():
        detail = re.sub(words, plain, detail)
    value = error.get("input")
    is_scalar = isinstance(value, bool | int | float) or (isinstance(value, str) and value)
    if is_scalar and not re.search(rf"(?<![\w.,-]){re.escape(repr(value))}(?![\w,])", detail):
        detail = f"{detail}; given: {shortened(value)}"
    step = WORDS["next_steps"].get(str((_location(error) or ("",))[-1]), {}).get(error["type"])
    return _printable(f"{detail}; {step.replace('{larger_tables}', LARGER_TABLES)}" if step else detail)


def _meant(error: Mapping[str, Any], kind: type[BaseModel] | None) -> str:
    """Hint for an unknown field: the nearest names, or the route that takes the field; empty for other errors."""
    model = kind if error["type"] == "extra_forbidden" else None
    for key in error["loc"][:-1]:  # of the objects that enclose the field
        if not isinstance(key, int):
            field = model.model_fields.get(str(key)) if model is not None else None
            model = None if field is None else next(_models(field.annotation), None)
    if model is None or not model.model_fields:
        return ""
    name = error["loc"][-1]
    if name in options_of(Plan):
        return ". POST /v1/comparisons takes it and answers for a whole training"
    return f". Nearest: {nearest(str(name)[:100], list(model.model_fields))}"


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _printable(text: str) -> str:
    """`text` cut to a sensible length, without what UTF-8 cannot hold."""
    return text[:_MOST_QUOTED].encode("utf-8", "backslashreplace").decode()
