"""Errors as answers: every refusal is a problem document (RFC 9457) that names what is wrong and what would be right.

Used by `api.main` for everything that routes and limits raise; calls the error tree. What the client sent is quoted in
short and made printable, since it may be anything.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.bodies import LARGER_TABLES
from api.known_names import fields_at, methods_of, nearest_paths
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

__all__ = [
    "PROBLEM_JSON",
    "STATUS_OF",
    "TITLES",
    "InvalidFieldsError",
    "Problem",
    "add_problem_handlers",
    "problem",
]

PROBLEM_JSON = "application/problem+json"

STATUS_OF: dict[type[EpochcastError], int] = {
    UnknownGpuError: 404,
    UnknownCnnError: 404,
    ArtifactError: 503,
    NotFittedError: 503,
    StoreError: 503,
    ServiceError: 503,
    BackendUnavailableError: 503,
    EpochcastError: 422,
}
"""Status of each error; the first class that fits counts."""

TITLES: dict[int, str] = {
    400: "The request cannot be read",
    401: "An API key is needed",
    403: "The API key is refused",
    404: "Not found",
    405: "Method not allowed",
    408: "The request took too long to arrive",
    413: "The request is too large",
    415: "Media type not supported",
    422: "The question makes no sense",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available now",
    504: "The answer took too long",
}
"""What each status means here, in few words."""

_WHOLE = "body"  # what no field alone is at fault for
_MOST_QUOTED = 2000
_KINDS = ("constrained-str", "str", "int", "float", "bool")  # where a value may be of several kinds
_FORMS = ("list[", "dict[", "constrained-list", "constrained-dict")  # of measurements
_MOST_ERRORS = 20
_NEXT_STEPS = {
    ("batch_sizes", "too_short"): "give one or several, such as [32, 64]",
    (
        "gpus",
        "too_short",
    ): 'give one or several, such as ["T4", "H200"], or ["all"]; `GET /v1/gpus` lists them',
    ("layers", "too_short"): "give a CNN's layers, as `GET /v1/cnns/resnet18` shows them",
    ("precisions", "too_short"): 'give one or several, such as ["fp32"], or leave it out',
    ("memory_formats", "too_short"): 'give one or several, such as ["nchw"], or leave it out',
    (
        "measurements",
        "too_long",
    ): f'send more as columns, {{"gpu": [...], "batch_size": [...]}}. {LARGER_TABLES}',
}
"""What to do where the name of a field and the kind of error say it."""


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
        first, others = errors[0], max(count, len(errors)) - 1
        more = f" (and {others} more)" if others else ""
        where = f"{first['field']}: " if first["field"] != _WHOLE else ""
        super().__init__(f"{where}{first['detail']}{more}")
        self.errors = [dict(each) for each in errors[:_MOST_ERRORS]]

    @classmethod
    def of(
        cls, found: Sequence[Mapping[str, Any]], count: int = 1, kind: type[BaseModel] | None = None
    ) -> "InvalidFieldsError":
        """From what pydantic found in a question of this kind, which may be the first of `count` errors."""
        said: dict[str, list[str]] = {}
        for each in _of_the_form_sent(found):
            location = each["loc"][:-1] if each["loc"] and each["loc"][-1] in _KINDS else each["loc"]
            said.setdefault(_path(location), []).append(_detail(each) + _meant(each, kind))
        return cls(
            [{"field": field, "detail": ", or: ".join(details)} for field, details in said.items()], count
        )


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> Response:
    """A problem document as an answer.

    Parameters
    ----------
    status : int
    detail : str
        What is wrong, what would be right, the next step.
    headers : mapping, optional
    **more
        Further members, such as `errors` with the fields at fault.
    """
    content = {"type": "about:blank", "title": TITLES.get(status, "Refused"), "status": status}
    content |= {"detail": _printable(detail), **more}
    return Response(to_json(content), status, dict(headers or {}), PROBLEM_JSON)


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error that a route raises with a problem document."""
    app.add_exception_handler(EpochcastError, _epochcast_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)


async def _epochcast_error(_: Request, error: Exception) -> Response:
    status = next(status for kind, status in STATUS_OF.items() if isinstance(error, kind))
    headers = {"Retry-After": "5"} if status == 503 else {}
    if isinstance(error, InvalidFieldsError):
        return problem(status, str(error), headers, error="SchemaError", errors=error.errors)
    return problem(status, str(error), headers, error=type(error).__name__)


async def _invalid(request: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    return await _epochcast_error(request, InvalidFieldsError.of(found))


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if (error.status_code, error.detail) == (404, "Not Found"):
        return problem(404, _no_path(request), error.headers)
    if error.status_code == 405:
        allowed = methods_of(request.app.routes, {**request.scope})
        taken = f"{request.url.path[:200]} takes {' and '.join(allowed)}, not {request.method[:20]}."
        return problem(405, f"{taken} /docs shows what each path takes.", {"Allow": ", ".join(allowed)})
    return problem(error.status_code, str(error.detail), error.headers)


def _no_path(request: Request) -> str:
    path = request.url.path[:200]
    near = nearest_paths(request.app.routes, path)
    return f"this service has no path {path!r}. Nearest: {near}. /docs shows all."


def _of_the_form_sent(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Errors of measurements by rows or by columns, whichever was sent; else both forms would be named."""
    plain, other_form = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    for each in found:
        location = each["loc"]
        if len(location) > 1 and location[0] == "measurements" and str(location[1]).startswith(_FORMS):
            short = {**each, "loc": (location[0], *location[2:])}
            is_other = len(location) == 2 and each["type"] in ("list_type", "dict_type")
            (other_form if is_other else plain).append(short)
        else:
            plain.append(each)
    sent = any(each["loc"][:1] == ("measurements",) for each in plain)
    return plain if sent else plain + other_form


def _path(location: Sequence[object]) -> str:
    """Write a place in a request as ``anchors[0].gpu``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return _printable(text) or _WHOLE


def _detail(found: Mapping[str, Any]) -> str:
    said = str(found["msg"]).removeprefix("Value error, ")
    value = found.get("input")
    if isinstance(value, bool | int | float) or (isinstance(value, str) and value):
        said = f"{said}; given: {_short(value)}"
    step = _NEXT_STEPS.get((found["loc"][-1] if found["loc"] else "", found["type"]))
    return _printable(f"{said}; {step}" if step else said)


def _meant(found: Mapping[str, Any], kind: type[BaseModel] | None) -> str:
    """The fields that a name nobody knows is nearest to."""
    known = fields_at(kind, found["loc"]) if kind is not None and found["type"] == "extra_forbidden" else []
    return f". Nearest: {nearest(str(found['loc'][-1])[:100], known)}" if known else ""


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return "a number too large to write"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _printable(text: str) -> str:
    """`text` cut to a sensible length, without what UTF-8 cannot hold."""
    return text[:_MOST_QUOTED].encode("utf-8", "backslashreplace").decode()
