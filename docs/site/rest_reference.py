"""The reference of the service, made from its OpenAPI document: every route, parameter, field and answer."""

from collections.abc import Iterator, Mapping
from typing import Any

_INTRODUCTION = """# REST

Made from the OpenAPI document when this site is built. A running service has it at `/openapi.json`, and a page to
try it at `/docs`. [The service](../api.md) says what for, with examples.
"""
_PROBLEM = "Problem"


def rest_page() -> str:
    """The page in Markdown."""
    from api.main import create_app
    from api.settings import Settings

    document = create_app(Settings(store="")).openapi()
    parts = [_INTRODUCTION]
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            parts += _route(f"{method.upper()} {path}", route)
    parts.append("## Fields\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += _schema(name, schema)
    return "\n".join(parts)


def _route(title: str, route: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {title.replace('{', '&#123;').replace('}', '&#125;')}\n"
    yield f"**{route['summary']}.** {_prose(route.get('description'))}\n"
    if parameters := route.get("parameters"):
        yield "| parameter | type | |\n|---|---|---|"
        for parameter in parameters:
            about = _cell(parameter.get("description", ""))
            yield f"| `{parameter['name']}` | {_type(parameter['schema'])} | {about} |"
        yield ""
    for kind, content in route.get("requestBody", {}).get("content", {}).items():
        yield f"Takes `{kind}`: {_type(content.get('schema', {}))}.\n"
    yield f"Answers {_answers(route['responses'])}.\n"


def _answers(responses: Mapping[str, Any]) -> str:
    """Answers of a route; refusals together, since all are problem documents."""
    good, refusals = [], []
    for status, response in responses.items():
        kinds = [
            _type(content.get("schema", {})) or f"`{kind}`"
            for kind, content in response.get("content", {}).items()
        ]
        if status >= "400":
            refusals.append(status)
        else:
            good.append(f"{status} {' or '.join(kinds) or response['description'].rstrip('.')}")
    return f"{', '.join(good)}; [{_PROBLEM}](#{_anchor(_PROBLEM)}) with {', '.join(sorted(refusals))}"


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{_prose(schema.get('description'))}\n"
    if fields := schema.get("properties"):
        needed = schema.get("required", [])
        yield "| field | type | |\n|---|---|---|"
        for field, schema_of_field in fields.items():
            mark = " (needed)" if field in needed and "Question" in name else ""
            yield f"| `{field}`{mark} | {_type(schema_of_field)} | {_cell(_bounds(schema_of_field))} |"
        yield ""


def _bounds(schema: Mapping[str, Any]) -> str:
    """Description, range and default of a field."""
    parts = [_prose(schema.get("description")).rstrip(".")]
    inner = [schema, *schema.get("anyOf", [])]
    low = next((bounds["minimum"] for bounds in inner if "minimum" in bounds), None)
    high = next((bounds["maximum"] for bounds in inner if "maximum" in bounds), None)
    if low is not None or high is not None:
        parts.append(f"{'' if low is None else low} to {'' if high is None else high}".strip())
    if schema.get("default") not in (None, [], ""):
        parts.append(f"by default {schema['default']}")
    return "; ".join(bound for bound in parts if bound)


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words, with links to what is described below."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{_anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(alternative) for alternative in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'values'}"
    return str(schema.get("type", ""))


def _anchor(name: str) -> str:
    return name.lower()


def _prose(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|").replace("<", "&lt;")
