"""The OpenAPI document: what FastAPI finds, with the bodies that routes read themselves and the refusals of all."""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.measurement_rows import FoundMeasurements, MeasurementRows
from api.problems import PROBLEM_JSON, TITLES, Problem
from api.questions import (
    CalibrationQuestion,
    ComparisonQuestion,
    ExplanationQuestion,
    PredictionQuestion,
)

__all__ = ["TAGS", "Examples", "document", "question_body"]

_REF = "#/components/schemas/{model}"
_MODELS: tuple[type[BaseModel], ...] = (
    PredictionQuestion,
    ComparisonQuestion,
    CalibrationQuestion,
    ExplanationQuestion,
    Problem,
    MeasurementRows,
    FoundMeasurements,
)
_ALWAYS = (429, 500, 503, 504)
_WITH_BODY = (400, 408, 413, 415, 422)

TAGS = [
    {"name": "predictions", "description": "What training takes, costs, and is made of."},
    {"name": "measurements", "description": "What was measured: stored, found again, and answered from."},
    {"name": "catalogue", "description": "What a question may name, and the model that answers."},
    {"name": "health", "description": "For whoever runs the service."},
]
"""Groups of routes."""

Examples = Mapping[str, tuple[str, Callable[[], Any]]]
"""By path: the name of a request's example, and what answers it."""


def question_body(model: type[BaseModel]) -> dict[str, Any]:
    """The request body of a route that takes a question as JSON."""
    ref = {"$ref": _REF.format(model=model.__name__)}
    extra = model.model_config.get("json_schema_extra")
    shown = extra.get("examples") if isinstance(extra, dict) else None
    names = getattr(model, "example_names", ())
    examples = {
        name: {"summary": name.replace("_", " "), "value": example}
        for name, example in zip(names, shown if isinstance(shown, list) else (), strict=True)
    }
    content = {"application/json": {"schema": ref, "examples": examples}}
    return {"required": True, "content": content}


def document(app: FastAPI, examples: Examples) -> Callable[[], dict[str, Any]]:
    """A function that makes the document when it is first asked for; answers in it are those of the model served."""

    def make() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
                servers=app.servers,
            )
            _, definitions = models_json_schema(
                [(model, "validation") for model in _MODELS], ref_template=_REF
            )
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            schemas |= definitions["$defs"]
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            for path, operations in made["paths"].items():
                for operation in operations.values():
                    _add_refusals(operation)
                    if "catalogue" in operation["tags"] and "requestBody" not in operation:
                        operation["responses"]["304"] = {
                            "description": "As the client has it (If-None-Match)"
                        }
                    _add_example(operation, examples.get(path) if "requestBody" in operation else None)
            app.openapi_schema = made
        return app.openapi_schema

    return make


def _add_example(operation: dict[str, Any], example: tuple[str, Callable[[], Any]] | None) -> None:
    """Show what the first example of a question is answered with."""
    if example is not None:
        name, answer = example
        content = operation["responses"]["200"]["content"]["application/json"]
        content["examples"] = {name: {"summary": f"to {name.replace('_', ' ')}", "value": answer()}}


def _add_refusals(operation: dict[str, Any]) -> None:
    """Say which refusals an operation may answer with, each a problem document."""
    codes = set(_ALWAYS)
    codes |= set(_WITH_BODY) if "requestBody" in operation else set()
    codes |= {404, 422} if operation.get("parameters") else set()
    codes |= {404} if "requestBody" in operation else set()
    codes |= {401, 403} if operation.get("security") else set()
    for code in sorted(codes | {int(known) for known in operation["responses"] if known in ("404", "422")}):
        operation["responses"][str(code)] = {
            "description": TITLES[code],
            "content": {PROBLEM_JSON: {"schema": {"$ref": _REF.format(model="Problem")}}},
        }
