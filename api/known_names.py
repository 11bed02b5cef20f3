"""Names that were meant: fields of a question, parameters of an address, paths of the service.

A name that nobody knows is refused with the nearest, never left out in silence.
"""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from fastapi import Request
from pydantic import BaseModel
from starlette.routing import BaseRoute, Match

from predictor.errors import nearest

__all__ = ["fields_at", "methods_of", "nearest_paths", "unknown_parameters"]

_UNSEEN = ("/web/", "/docs/")  # files of pages


def fields_at(kind: type[BaseModel], location: Sequence[object]) -> list[str]:
    """Fields of the object within a question that a location's last name stands in; none if it is no such object."""
    model: type[BaseModel] | None = kind
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(str(part)) if model is not None else None
        model = None if field is None else next(_models(field.annotation), None)
    return [] if model is None else list(model.model_fields)


def unknown_parameters(request: Request) -> list[dict[str, str]]:
    """Query parameters that the route does not have, as errors of fields; each once."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    known = [parameter.alias for parameter in dependant.query_params] if dependant is not None else []
    valid = f"Valid: {', '.join(known)}." if known else "There are none here."
    return [
        {"field": name[:100], "detail": f"Extra inputs are not permitted. {valid}"}
        for name in dict.fromkeys(request.query_params)
        if name not in known
    ]


def nearest_paths(routes: Sequence[BaseRoute], path: str) -> str:
    """The paths of the service most like one that it has not, quoted."""
    paths = {str(each.path) for each in _leaves(routes) if not each.path.startswith(_UNSEEN)}
    return nearest(path[:200], sorted(paths))


def methods_of(routes: Sequence[BaseRoute], scope: dict[str, Any]) -> list[str]:
    """Methods that a path takes."""
    matching = [each for each in _leaves(routes) if each.matches(scope)[0] is not Match.NONE]
    return sorted({method for each in matching for method in each.methods or ()} - {"HEAD"})


def _leaves(routes: Sequence[BaseRoute]) -> Iterator[Any]:
    for each in routes:
        inner = getattr(each, "original_router", None)  # as FastAPI keeps what is included
        if inner is not None:
            yield from _leaves(inner.routes)
        elif hasattr(each, "path") and hasattr(each, "methods"):
            yield each


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)
