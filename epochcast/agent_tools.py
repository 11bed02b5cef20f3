"""Commands as tools of the Model Context Protocol, for agents: what `epochcast mcp` serves.

A tool has the help of the command of its name, the options that its answer reads, and the arguments of its function,
which `agent_arguments.json` describes. Answers are JSON of four digits without empty fields, which a language model
reads in a hundred lines.
"""

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from epochcast import api
from epochcast.command import COMMANDS
from epochcast.tables import json_ready
from predictor.answers.check import Speed
from predictor.answers.options import KINDS, Option, check_known, options_of
from predictor.answers.question import ANCHOR_FIELDS, Plan, Question, check_names
from predictor.answers.resolved import ResolvedQuestion
from predictor.checks import whole_number
from predictor.errors import EpochcastError, OutOfRangeError, SchemaError
from predictor.stopping import stopped_by

INSTRUCTIONS = (
    "epochcast predicts time, cost and memory of training CNNs on GPUs, before a GPU is rented. Start with compare to "
    "choose a GPU, predict for a GPU that is known. Times come with 90 % intervals (low, high): report them. "
    "`extrapolates` says what was never measured and how to narrow it. An error says what would be right: "
    "correct the argument and call again; do not guess numbers."
)
_EXPLAINED = (
    *("cnn", "gpu", "precision", "memory_format", "batch_sizes", "iteration_time_ms", "low_ms", "high_ms"),
    *("gpu_time_ms", "host_time_ms", "bound", "classes", "bound_ms", "other_modes"),
)
_COMPARED = ("cnn", "iteration_time_ms", "low_ms", "high_ms", "peak_memory_gib", "fits_in_memory", "cost_usd")
_MOST_LAYERS = 12
_MOST_WORK_S = 8.0  # of a processor for one call, as the service gives a question
_ARGUMENTS = json.loads(Path(__file__).with_name("agent_arguments.json").read_text(encoding="utf-8"))
"""JSON schema of each argument, by name or by tool and name."""


def _predict(cnn: str, gpu: Any, batch_size: Any = None, most_rows: int = 10, **options: Any) -> Any:
    from predictor.answers.answer import answer

    prediction = answer(Question.of(cnn, gpu, batch_size, options))
    return {"covers": prediction.scope, **_first(prediction.records(), most_rows)}


def _compare(cnn: str, gpu: Any = None, batch_size: Any = None, most_rows: int = 10, **options: Any) -> Any:
    from predictor.answers.compare import compare

    plan, of_question = Plan.of(options)
    comparison = compare(Question.of(cnn, gpu, batch_size, of_question), plan)
    hints = [note.text for note in comparison.verdict.hints]
    about = {"verdict": comparison.verdict.sentence, "hints": hints, "covers": comparison.scope}
    return about | _first(comparison.records(), most_rows)


def _check(
    cnn: str, gpu: str, batch_size: Any = None, log: Any = None, epochs: int = 1, **options: Any
) -> Any:
    checkup = api.check(cnn, gpu, batch_size, log=log, epochs=epochs, **options)
    return {"sentence": checkup.sentence, **asdict(checkup)}


def _explain(cnn: str, gpu: Any, batch_size: Any = None, **options: Any) -> Any:
    explanations, scope = api.explanations(cnn, gpu, batch_size, options)
    rows = [{name: row[name] for name in _EXPLAINED} for row in map(asdict, explanations)]
    return {"covers": scope, "rows": rows}


def _diff(before: str, after: str, gpu: Any, batch_size: Any = None, **options: Any) -> Any:
    rows = []
    for change in api.diff(before, after, gpu, batch_size, **options):
        row = {"sentence": change.sentence, **asdict(change)}
        sides = {side: {name: row[side][name] for name in _COMPARED} for side in ("before", "after")}
        rows.append({**row, **sides, "layers": row["layers"][:_MOST_LAYERS]})
    return {"rows": rows}


def _first(records: Sequence[Mapping[str, Any]], most: int) -> dict[str, Any]:
    """The first rows, and how many more there are."""
    shown = records[: whole_number("most_rows", most, low=1, high=1000)]
    left_out = len(records) - len(shown)
    more = f"{left_out:,} more rows: ask about fewer GPUs and batch sizes, or raise most_rows."
    return {"rows": shown, **({"left_out": more} if left_out else {})}


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool: a function that answers with data, and the declarations of the options that its answer reads."""

    name: str
    function: Callable[..., Any]
    kinds: tuple[type[Any], ...] = (Question,)
    answer: str = "predict"

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON schema of all arguments."""
        *own, _ = inspect.signature(self.function).parameters.values()
        declared = [option for kind in self.kinds for option in options_of(kind, self.answer).items()]
        schemas = {name: _schema(option) for name, option in declared}
        for name in (argument.name for argument in own):
            schemas[name] = _ARGUMENTS.get(f"{self.name}.{name}") or _ARGUMENTS[name]
        required = [argument.name for argument in own if argument.default is inspect.Parameter.empty]
        return {"type": "object", "properties": schemas, "required": required}

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Answer with data for JSON.

        EpochcastError if an argument is missing, unknown or makes no sense; the message says what would be right.
        """
        from proxy_cnns.user_cnns import names_a_file

        values = {name: value for name, value in arguments.items() if value is not None}
        schema = self.input_schema
        for name in values.keys() - schema["properties"].keys():
            if name in options_of(Plan):
                check_names([name], schema["properties"])
            check_known(name, schema["properties"])
        for name in schema["required"]:
            if name not in values:
                raise SchemaError(f"{name} is missing. {schema['properties'][name]['description']}")
        for cnn in map(values.get, ("cnn", "before", "after")):
            if isinstance(cnn, str) and names_a_file(cnn):
                raise SchemaError(
                    f"{cnn} is a Python file, which a tool does not run. Write its layers with "
                    f"`epochcast cnn show {cnn} --format csv > layers.csv`, and pass the path of layers.csv."
                )
        _check_extent(values)
        began = time.thread_time()

        def check() -> None:
            if time.thread_time() - began > _MOST_WORK_S:
                raise OutOfRangeError(
                    f"the call takes more than {_MOST_WORK_S:g} s of a processor. {_IN_PARTS}"
                )

        with stopped_by(check):
            return _short(json_ready(self.function(**values)))


_IN_PARTS = "Ask in several parts: fewer GPUs or batch sizes."


def _check_extent(values: Mapping[str, Any]) -> None:
    """OutOfRangeError if a call names more than the service takes: layers x GPUs x batch sizes count together."""
    from api.questions import MAX_BATCHES, MAX_GPUS, check_work

    for name, most in (("batch_size", MAX_BATCHES), ("gpu", MAX_GPUS)):
        if isinstance(values.get(name), list) and len(values[name]) > most:
            raise OutOfRangeError(
                f"{len(values[name]):,} values of {name} are given; at most {most}. {_IN_PARTS}"
            )
    options = {name: values[name] for name in options_of(Question) if name in values}
    for cnn in filter(None, map(values.get, ("cnn", "before", "after"))):
        question = Question.of(cnn, values.get("gpu", "all"), values.get("batch_size"), options)
        resolved = ResolvedQuestion(question)
        check_work(resolved, len(resolved.devices), repeats=2)


TOOLS = {
    "predict": AgentTool("predict", _predict),
    "compare": AgentTool("compare", _compare, (Question, Plan), "compare"),
    "check": AgentTool("check", _check, (Speed, Question)),
    "explain": AgentTool("explain", _explain, answer="explain"),
    "diff": AgentTool("diff", _diff),
}


def _schema(option: Option) -> dict[str, Any]:
    """JSON schema of an option; anchors are objects."""
    file = " The path of a file." if option.kind == "file" else ""
    usual = f" By default {option.usual}." if option.usual else ""
    types = KINDS[option.kind].json
    schema: dict[str, Any] = {"type": types[0] if len(types) == 1 else list(types)}
    schema["description"] = f"{option.help}{file}{usual}"
    if types[0] == "integer":
        schema |= {"minimum": int(option.low), "maximum": int(option.high)}
    if option.kind == "choice":
        schema["enum"] = list(option.choices)
    if option.kind == "anchors":
        fields = {name: _schema(field) for name, field in ANCHOR_FIELDS.items() if not field.now}
        schema["items"] = {"type": "object", "properties": fields, "required": ["gpu", "batch_size"]}
    return schema


def _short(value: Any) -> Any:
    """`value` with floats of four digits and without empty fields."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list):
        return [_short(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _short(entry) for name, entry in value.items() if entry not in (None, [], {}, "")}
    return value


async def serve() -> None:
    """Serve the tools on standard input and output until the client ends it."""
    from mcp import types
    from mcp.server import Server
    from mcp.server.stdio import stdio_server

    hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        types.Tool(name=name, description=COMMANDS[name], input_schema=tool.input_schema, annotations=hints)
        for name, tool in TOOLS.items()
    ]

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if params.name not in TOOLS:
                raise SchemaError(f"no tool is called {params.name!r}. The tools are {', '.join(TOOLS)}.")
            answer = await asyncio.to_thread(TOOLS[params.name].call, params.arguments or {})
        except EpochcastError as error:
            return result(" ".join(str(error).split()), is_error=True)
        except OSError as error:
            return result(f"{error.filename or 'a file'}: {error.strerror}. Check the path.", is_error=True)
        return result(json.dumps(answer, allow_nan=False), structured_content=answer)

    def result(text: str, **more: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], **more)

    handlers: dict[str, Any] = {"on_list_tools": list_tools, "on_call_tool": call_tool}
    server = Server("epochcast", version=version("epochcast"), instructions=INSTRUCTIONS, **handlers)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
