"""The OpenAPI document: what FastAPI finds, with the bodies that routes read themselves, refusals, words and examples.

Rows of a measurement table are described from the columns' own declaration. Examples of answers are what the service
answers now: a route without one fails a test.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, create_model
from pydantic.json_schema import models_json_schema

from api.problems import PROBLEM_JSON, TITLES, Problem
from api.questions import (
    EXAMPLES,
    CalibrationQuestion,
    CheckQuestion,
    CnnQuestion,
    ComparisonQuestion,
    DifferenceQuestion,
    ExplanationQuestion,
    MemoryPlanQuestion,
    PredictionQuestion,
)
from api.words import WORDS
from predictor.answers.bounds import BOUNDS
from predictor.answers.fit_memory import CONCESSIONS
from predictor.answers.options import options_of
from predictor.answers.question import Question
from predictor.measurements.schema import COLUMNS, Column

_TYPES: dict[str, type] = {"count": int, "amount": float, "time": float, "flag": bool}


def _field(column: Column) -> tuple[Any, Any]:
    kind: Any = Literal[column.words] if column.words else _TYPES.get(column.form, str)
    about = f"{column.about}, {column.unit}" if column.unit else column.about
    if column.required:
        return kind, Field(description=about)
    return kind | None, Field(None, description=about)


_COLUMNS: dict[str, Any] = {column.name: _field(column) for column in COLUMNS}

MeasurementRow = create_model(
    "MeasurementRow", __doc__="A measurement; what is unknown is left out.", **_COLUMNS
)


class MeasurementRows(BaseModel):
    """Measurements to be stored."""

    rows: list[MeasurementRow]  # type: ignore[valid-type]


StoredMeasurement = create_model(
    "StoredMeasurement",
    __base__=MeasurementRow,
    __doc__="A measurement in the store, with who sent it first.",
    id=(int, ...),
    upload=(int, Field(description="Number of the upload that brought it.")),
    key=(str, Field(description="Name of the API key that sent it.")),
    received_at=(str, Field(description="ISO 8601 in UTC.")),
)


class FoundMeasurements(BaseModel):
    """A page of stored measurements."""

    rows: list[StoredMeasurement]  # type: ignore[valid-type]
    next: str | None = Field(description="The address of the next page; null on the last.")


_REF = "#/components/schemas/{model}"
_MODELS: tuple[type[BaseModel], ...] = (
    PredictionQuestion, ComparisonQuestion, CalibrationQuestion, ExplanationQuestion, CheckQuestion,
    DifferenceQuestion, MemoryPlanQuestion, Problem, MeasurementRows, FoundMeasurements,
)  # fmt: skip
_ALWAYS = (429, 500, 503, 504)
_WITH_BODY = (400, 408, 413, 415, 422)

Examples = Mapping[str, Callable[[], Any]]
"""By operation: what answers it, where asking its route for its own example would not do."""

_MOST_SHOWN = 2  # of a list
_OTHER_WORDS = {**WORDS["words"], "bound": BOUNDS, "because": BOUNDS, "concessions": CONCESSIONS}
"""Words of fields that are no options."""


def question_body(model: type[CnnQuestion]) -> dict[str, Any]:
    """The request body of a route that takes a question as JSON."""
    ref = {"$ref": _REF.format(model=model.__name__)}
    examples = {
        name: {"summary": name.replace("_", " "), "value": example}
        for name, example in EXAMPLES[model.__name__].items()
    }
    content = {"application/json": {"schema": ref, "examples": examples}}
    return {"required": True, "content": content}


def document(app: FastAPI, examples: Examples) -> Callable[[], dict[str, Any]]:
    """A function that makes the document when it is first asked for; call it in a thread without an event loop."""

    def make() -> dict[str, Any]:
        if app.openapi_schema is None:
            options = ("title", "version", "description", "license_info", "routes", "servers")
            own = {name: getattr(app, name) for name in options}
            made = get_openapi(tags=app.openapi_tags, **own)
            made["security"] = []  # of all that does not say otherwise
            _, definitions = models_json_schema(
                [(model, "validation") for model in _MODELS], ref_template=_REF
            )
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            schemas |= definitions["$defs"]
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            _add_words(schemas)
            routers = [getattr(route, "original_router", None) for route in app.routes]
            routes = {route.operation_id: route for router in routers if router for route in router.routes}
            for operations in made["paths"].values():
                for operation in operations.values():
                    _add_refusals(operation)
                    if "catalogue" in operation["tags"] and "requestBody" not in operation:
                        kept = {"description": "As the client has it (If-None-Match)"}
                        operation["responses"]["304"] = kept
                    name = operation["operationId"]
                    shown = examples[name]() if name in examples else _own_example(app, routes[name])
                    _add_example(operation, shown)
            app.openapi_schema = made
        return app.openapi_schema

    return make


def _add_words(schemas: dict[str, Any]) -> None:
    """Name the words that fields of answers may have, by the name of the field, where these are few."""
    names = ("framework", "capture", "optimizer", "precision", "memory_format")
    words = {name: option.choices for name, option in options_of(Question).items() if name in names}
    words |= {f"fast_{name}": words[name] for name in ("precision", "memory_format")} | _OTHER_WORDS
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            for kind in (field, field.get("items", {}), *field.get("anyOf", ())):
                if name in words and kind.get("type") == "string":
                    kind.setdefault("enum", list(words[name]))


def _own_example(app: FastAPI, route: APIRoute) -> Any:
    """Answer of a catalogue's route to its own example parameters; of a list, the first entries."""
    scope = {
        "type": "http", "method": "GET", "path": route.path, "headers": [], "query_string": b"", "app": app,
    }  # fmt: skip
    parameters: dict[str, Any] = {
        field.name: (field.field_info.examples or [None])[0] for field in route.dependant.path_params
    }
    if route.dependant.request_param_name:
        parameters[route.dependant.request_param_name] = Request(scope)
    answer = jsonable_encoder(asyncio.run(route.endpoint(**parameters)))
    return answer[:_MOST_SHOWN] if isinstance(answer, list) else answer


def _add_example(operation: dict[str, Any], shown: Any) -> None:
    """Add the example of an operation's answer: to a question, the answer to its first example."""
    body = operation.get("requestBody", {}).get("content", {})
    questions = body.get("application/json", {}).get("examples")
    name = next(iter(questions)) if questions else "answer"
    status = next(code for code in operation["responses"] if code.startswith("2"))
    content = next(iter(operation["responses"][status]["content"].values()))
    summary = {"summary": f"to {name.replace('_', ' ')}"} if questions else {}
    content["examples"] = {name: summary | {"value": shown}}


def _add_refusals(operation: dict[str, Any]) -> None:
    """Say which refusals an operation may answer with, each a problem document."""
    codes = set(_ALWAYS)
    codes |= {404, *_WITH_BODY} if "requestBody" in operation else set()
    codes |= {404, 422} if operation.get("parameters") else set()
    codes |= {401, 403} if operation.get("security") else set()
    for code in sorted(codes | {int(code) for code in operation["responses"] if code in ("404", "422")}):
        operation["responses"][str(code)] = {
            "description": TITLES[code],
            "content": {PROBLEM_JSON: {"schema": {"$ref": _REF.format(model="Problem")}}},
        }
