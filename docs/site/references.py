"""References made when the site is built: commands, `import epochcast`, the service, measurement tables."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer

import epochcast
from epochcast.command import build_app
from predictor.measurements.schema import COLUMNS

_COMMANDS = """# Commands

Made from the parser when this site is built, so that it says what `--help` says. [Every command](../commands.md) shows
examples with what they print.
"""
_PYTHON = """# Python

`import epochcast` has these names. Everything loads when it is first used. A question that makes no sense raises an
`EpochcastError`, whose message says what would be right.
"""
_REST = """# REST

Made from the OpenAPI document when this site is built. A running service has it at `/openapi.json`, and a page to
try it at `/docs`. [The service](../api.md) says what for, with examples.
"""
_FIRST = (
    "compare", "predict", "largest_batch_size", "explain", "load_measurements", "profile", "fit", "evaluate",
)  # fmt: skip
_PROBLEM = "Problem"


def commands_page() -> str:
    """Every command, argument and option with its help and default, in Markdown."""
    parts = [_COMMANDS]
    for words, command in _commands_of(typer.main.get_command(build_app())):
        context = typer.Context(command)
        parts += [f"## epochcast {' '.join(words)}\n", f"{_prose(command.help)}\n"]
        panels: dict[str, list[str]] = {}
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                parts.append(f"`{parameter.make_metavar(context)}`: {_prose(parameter.help)}\n")
            elif not parameter.hidden:
                names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
                names += "" if parameter.is_flag else f" {_cell(parameter.make_metavar(context))}"
                row = f"| {names} | {_cell(parameter.help)} | {_cell(_default(parameter))} |"
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or "Options", []).append(row)
        for panel, rows in panels.items():
            parts += _table((panel, "", "by default"), rows)
    return "\n".join(parts)


def python_page() -> str:
    """Every public name, which mkdocstrings documents from its docstring; what people use most stands first."""
    parts = [_PYTHON]
    for name in dict.fromkeys([*_FIRST, *epochcast.__all__]):
        module = str(getattr(epochcast, name).__module__)  # of the public face as people write it
        parts.append(f"::: {'epochcast' if module.startswith('epochcast') else module}.{name}")
    return "\n".join([*parts, ""])


def rest_page() -> str:
    """Every route, parameter, field and answer of the service, in Markdown."""
    from api.main import create_app
    from api.settings import Settings

    document = create_app(Settings(store="")).openapi()
    parts = [_REST]
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            parts += _route(f"{method.upper()} {path}", route)
    parts.append("## Fields\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += _schema(name, schema)
    return "\n".join(parts)


def measurements_page() -> str:
    """Columns of a measurement table with unit, meaning and words, in Markdown."""
    rows = []
    for column in COLUMNS:
        words = f": {', '.join(f'`{word}`' for word in column.words)}" if column.words else ""
        required = "; **required**" if column.required else ""
        rows.append(f"| `{column.name}` | {column.unit} | {_cell(column.about)}{required}{words} |")
    return "\n".join(["# Measurement tables", "", *_table(("column", "unit", "meaning"), rows)]).rstrip("\n")


def _commands_of(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that can be called, with its words, depth first."""
    below = getattr(command, "commands", {})
    if words and (not below or command.invoke_without_command):
        yield words, command
    for name, sub in below.items():
        yield from _commands_of(sub, (*words, name))


def _default(option: Any) -> str:
    """What holds without the option."""
    if isinstance(option.show_default, str):
        return option.show_default
    value = option.default() if callable(option.default) else option.default
    if value is None or value == () or value == [] or option.show_default is False or "UNSET" in repr(value):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(getattr(value, "value", value))


def _route(title: str, route: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {title.replace('{', '&#123;').replace('}', '&#125;')}\n"
    yield f"**{route['summary']}.** {_prose(route.get('description'))}\n"
    if parameters := route.get("parameters"):
        yield from _table(
            ("parameter", "type", ""),
            (
                f"| `{parameter['name']}` | {_type(parameter['schema'])} | {_cell(parameter.get('description'))} |"
                for parameter in parameters
            ),
        )
    for kind, content in route.get("requestBody", {}).get("content", {}).items():
        yield f"Takes `{kind}`: {_type(content.get('schema', {}))}.\n"
    good, refusals = [], []  # refusals together, since all are problem documents
    for status, response in route["responses"].items():
        contents = response.get("content", {}).items()
        kinds = [_type(content.get("schema", {})) or f"`{kind}`" for kind, content in contents]
        if status >= "400":
            refusals.append(status)
        else:
            good.append(f"{status} {' or '.join(kinds) or response['description'].rstrip('.')}")
    yield f"Answers {', '.join(good)}; {_link(_PROBLEM)} with {', '.join(sorted(refusals))}.\n"


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{_prose(schema.get('description'))}\n"
    if fields := schema.get("properties"):
        needed = schema.get("required", []) if "Question" in name else []
        yield from _table(
            ("field", "type", ""),
            (
                f"| `{field}`{' (needed)' * (field in needed)} | {_type(of_field)} | {_cell(_bounds(of_field))} |"
                for field, of_field in fields.items()
            ),
        )


def _bounds(schema: Mapping[str, Any]) -> str:
    """Description, range and default of a field."""
    parts = [_prose(schema.get("description")).rstrip(".")]
    inner = [schema, *schema.get("anyOf", [])]
    low, high = (
        next((str(bounds[end]) for bounds in inner if end in bounds), "") for end in ("minimum", "maximum")
    )
    parts += [f"{low} to {high}".strip()] if low or high else []
    if schema.get("default") not in (None, [], ""):
        parts.append(f"by default {schema['default']}")
    return "; ".join(bound for bound in parts if bound)


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words, with links to what is described below."""
    if "$ref" in schema:
        return _link(schema["$ref"].rsplit("/", 1)[-1])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(alternative) for alternative in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'values'}"
    return str(schema.get("type", ""))


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _table(headers: tuple[str, ...], rows: Iterable[str]) -> list[str]:
    return [f"| {' | '.join(headers)} |".replace("  ", " "), "|---" * len(headers) + "|", *rows, ""]


def _prose(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str | None) -> str:
    return _prose(text).replace("|", "\\|").replace("<", "&lt;")
