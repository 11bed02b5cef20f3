"""The OpenAPI document: what FastAPI finds, with the bodies that routes read themselves and the refusals of all."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.problems import PROBLEM_JSON, TITLES, Problem
from api.questions import (
    CalibrationQuestion,
    ComparisonQuestion,
    ExplanationQuestion,
    OwnCnn,
    PredictionQuestion,
)

__all__ = ["document", "question_body"]

_REF = "#/components/schemas/{model}"
_MODELS: tuple[type[BaseModel], ...] = (
    PredictionQuestion,
    ComparisonQuestion,
    CalibrationQuestion,
    ExplanationQuestion,
    OwnCnn,
    Problem,
)
_ALWAYS = (429, 500, 503, 504)
_WITH_BODY = (400, 408, 413, 415, 422)
_NOT_LIMITED = ("/healthz",)


def question_body(model: type[BaseModel], with_file: bool = False) -> dict[str, Any]:
    """The request body of a route that takes a question as JSON, or `with_file` a form with an ONNX file."""
    ref = {"$ref": _REF.format(model=model.__name__)}
    extra = model.model_config.get("json_schema_extra")
    found = extra.get("examples") if isinstance(extra, dict) else None
    examples = (
        {f"example {i + 1}": {"value": each} for i, each in enumerate(found)}
        if isinstance(found, list)
        else {}
    )
    form = {
        "type": "object",
        "required": ["onnx"],
        "additionalProperties": False,
        "properties": {
            "question": {"type": "string", "contentMediaType": "application/json", "contentSchema": ref},
            "onnx": {"type": "string", "format": "binary"},
        },
    }
    content: dict[str, Any] = {"application/json": {"schema": ref, "examples": examples}}
    content |= {"multipart/form-data": {"schema": form}} if with_file else {}
    return {"required": True, "content": content}


def document(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """A function that makes the document when it is first asked for."""

    def made() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
            )
            _, definitions = models_json_schema(
                [(model, "validation") for model in _MODELS], ref_template=_REF
            )
            schemas = found.setdefault("components", {}).setdefault("schemas", {})
            schemas |= definitions["$defs"]
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            for path, operations in found["paths"].items():
                for operation in operations.values():
                    _add_refusals(path, operation)
            app.openapi_schema = found
        return app.openapi_schema

    return made


def _add_refusals(path: str, operation: dict[str, Any]) -> None:
    """Say which refusals an operation may answer with, each a problem document."""
    codes = set(_ALWAYS if path not in _NOT_LIMITED else ())
    codes |= set(_WITH_BODY) if "requestBody" in operation else set()
    codes |= {404, 422} if operation.get("parameters") else set()
    codes |= {404} if "requestBody" in operation else set()
    codes |= {401, 403} if operation.get("security") else set()
    for code in sorted(codes | {int(known) for known in operation["responses"] if known in ("404", "422")}):
        operation["responses"][str(code)] = {
            "description": TITLES[code],
            "content": {PROBLEM_JSON: {"schema": {"$ref": _REF.format(model="Problem")}}},
        }
