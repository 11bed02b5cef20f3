"""The answers as tools of the Model Context Protocol, for agents: what `epochcast mcp` serves.

A tool is a function: its docstring tells an agent what it does, its annotations are the JSON schemas of its arguments,
and the core's declarations are those of its options. Answers are JSON of four digits without empty fields, which a
language model reads in a hundred lines.
"""
# ruff: noqa: D205

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

from epochcast.tables import json_ready
from predictor.answers.check import Speed
from predictor.answers.options import KINDS, Option, check_known, options_of
from predictor.answers.question import ANCHOR_FIELDS, Plan, Question, check_names
from predictor.checks import whole_number
from predictor.errors import EpochcastError, SchemaError

if TYPE_CHECKING:
    from mcp.server import Server

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
_DIGITS = 4
_MOST_LAYERS = 12


def _argument(
    description: str, kind: str = "string", *, several: bool = False, **limits: Any
) -> dict[str, Any]:
    """JSON schema of an argument, of one value or of `several`."""
    types = {"type": [kind, "array"], "items": {"type": kind}} if several else {"type": kind}
    return {**types, "description": description, **limits}


_CNN_HELP = (
    "A CNN of the zoo (resnet50, vgg16, efficientnet_b0, ...), timm:NAME, torchvision:NAME, or the path "
    "of a layer table (.csv), an ONNX or a Keras file; @SIZE after it for images of SIZE pixels."
)
_GPUS_HELP = "One or several GPUs by any of their names (T4, H100 SXM, RTX 4090), or all."
_SIZES_HELP = "Images per mini-batch, one or several. By default those that suit each GPU are searched."
Cnn = Annotated[str, _argument(_CNN_HELP)]
Gpu = Annotated[str, _argument("A GPU by any of its names: T4, H100 SXM, RTX 4090.")]
Gpus = Annotated[Any, _argument(_GPUS_HELP, several=True)]
GpusOnOffer = Annotated[Any, _argument(f"{_GPUS_HELP} By default every GPU on offer.", several=True)]
BatchSize = Annotated[Any, _argument("Images per mini-batch, of all GPUs together.", "integer")]
BatchSizes = Annotated[Any, _argument(_SIZES_HELP, "integer", several=True)]
BatchSizesExplained = Annotated[
    Any, _argument("Images per mini-batch; by default 1, 2, 4, ... 512.", "integer", several=True)
]
Rows = Annotated[int, _argument("Most rows to return.", "integer", minimum=1, default=10)]
Log = Annotated[
    str | None, _argument("Instead of its speed, the path of a file with what the training printed.")
]
Epochs = Annotated[int, _argument("Epochs of the training, for what mending saves.", "integer")]


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool: a function that answers with data for JSON, and the options that its answer reads.

    `kinds` are the dataclasses that declare its options, `answer` is a word of `predictor.answers.options.ANSWERS`.
    """

    function: Callable[..., Any]
    kinds: tuple[type[Any], ...]
    answer: str

    @property
    def description(self) -> str:
        """Docstring of the function as one line."""
        return " ".join(str(self.function.__doc__).split())

    @property
    def options(self) -> dict[str, Option]:
        """Options by name."""
        return {name: option for kind in self.kinds for name, option in options_of(kind, self.answer).items()}

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON schema of all arguments."""
        own = {
            name: parameter
            for name, parameter in inspect.signature(self.function).parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        schemas = {name: parameter.annotation.__metadata__[0] for name, parameter in own.items()}
        options = {name: _schema(option) for name, option in self.options.items() if name not in own}
        required = [name for name, parameter in own.items() if parameter.default is inspect.Parameter.empty]
        return {"type": "object", "properties": {**schemas, **options}, "required": required}

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Answer with data for JSON.

        EpochcastError if an argument is missing, unknown or makes no sense; the message says what would be right.
        """
        from proxy_cnns.user_cnns import names_a_file

        values = {name: value for name, value in arguments.items() if value is not None}
        schema = self.input_schema
        for name in values.keys() - schema["properties"].keys():
            if name in options_of(Plan):
                check_names([name], self.options)
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
        return _short(json_ready(self.function(**values)))


TOOLS: dict[str, AgentTool] = {}


def _tool(*kinds: type[Any], answer: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the tool of its name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        TOOLS[function.__name__] = AgentTool(function, kinds, answer)
        return function

    return register


@_tool(Question, answer="predict")
def predict(cnn: Cnn, gpu: Gpus, batch_size: BatchSizes = None, most_rows: Rows = 10, **options: Any) -> Any:
    """How long an iteration and an epoch of training a CNN take on GPUs, what they cost, and whether they fit in
    memory, with 90 % intervals. Give data_set or samples for epochs and costs. To choose a GPU, call compare.
    """
    from predictor.answers.answer import answer

    prediction = answer(Question.of(cnn, gpu, batch_size, options))
    return {"covers": prediction.scope, **_first(prediction.records(), most_rows)}


@_tool(Question, Plan, answer="compare")
def compare(
    cnn: Cnn, gpu: GpusOnOffer = None, batch_size: BatchSizes = None, most_rows: Rows = 10, **options: Any
) -> Any:
    """Which GPU to rent for a training: time and cost on each GPU on offer, ranked, with a verdict. Needs data_set
    or samples; epochs, budget_usd and deadline_h are those of the whole training.
    """
    from predictor.answers.compare import compare

    plan, of_question = Plan.of(options)
    comparison = compare(Question.of(cnn, gpu, batch_size, of_question), plan)
    verdict = comparison.verdict
    hints = [note.text for note in verdict.hints]
    rows = _first(comparison.records(), most_rows)
    return {"verdict": verdict.sentence, "hints": hints, "covers": comparison.scope, **rows}


@_tool(Speed, Question, answer="predict")
def check(
    cnn: Cnn, gpu: Gpu, batch_size: BatchSize, log: Log = None, epochs: Epochs = 1, **options: Any
) -> Any:
    """Whether the measured speed of a training is normal, and if not its likeliest causes, each with what mends it
    and what that saves. Give one speed or a log, and the options as the training runs (precision, workers, ...).
    """
    from epochcast.api import check

    checkup = check(cnn, gpu, batch_size, log=log, epochs=epochs, **options)
    return {"sentence": checkup.sentence, **asdict(checkup)}


@_tool(Question, answer="explain")
def explain(cnn: Cnn, gpu: Gpus, batch_size: BatchSizesExplained = None, **options: Any) -> Any:
    """What the time of an iteration is made of (milliseconds by class of operators), what bounds it (host, compute,
    memory, launch), and the factor that other precisions and memory formats would give. Lists go by batch_sizes.
    """
    from epochcast.api import explanations

    rows, scope = explanations(cnn, gpu, batch_size, options)
    return {"covers": scope, "rows": [_only(asdict(explanation), _EXPLAINED) for explanation in rows]}


@_tool(Question, answer="predict")
def diff(before: Cnn, after: Cnn, gpu: Gpus, batch_size: BatchSize, **options: Any) -> Any:
    """What a change of a CNN costs: time, memory and the layers that differ, before and after, with an interval of
    the ratio that is narrower than those of the times.
    """
    from epochcast.api import diff

    rows = []
    for change in diff(before, after, gpu, batch_size, **options):
        row = {"sentence": change.sentence, **asdict(change)}
        sides = {side: _only(row[side], _COMPARED) for side in ("before", "after")}
        rows.append({**row, **sides, "layers": row["layers"][:_MOST_LAYERS]})
    return {"rows": rows}


def _only(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: record[name] for name in names}


def _first(records: Sequence[Mapping[str, Any]], most: int) -> dict[str, Any]:
    """The first rows, and how many more there are."""
    shown = records[: whole_number("most_rows", most, low=1, high=1000)]
    left_out = len(records) - len(shown)
    more = f"{left_out:,} more rows: ask about fewer GPUs and batch sizes, or raise most_rows."
    return {"rows": shown, **({"left_out": more} if left_out else {})}


def _schema(option: Option) -> dict[str, Any]:
    """JSON schema of an option; anchors are objects."""
    file = " The path of a file." if option.kind == "file" else ""
    usual = f" By default {option.usual}." if option.usual else ""
    types = KINDS[option.kind].json
    schema: dict[str, Any] = {
        "type": types[0] if len(types) == 1 else list(types),
        "description": f"{option.help}{file}{usual}",
    }
    if option.choices:
        schema["enum"] = list(option.choices)
    if option.kind == "anchors":
        fields = {name: _schema(field) for name, field in ANCHOR_FIELDS.items()}
        schema["items"] = {"type": "object", "properties": fields, "required": ["gpu", "batch_size"]}
    return schema


def _short(value: Any) -> Any:
    """`value` with floats of four digits and without empty fields."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, list):
        return [_short(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _short(entry) for name, entry in value.items() if entry not in (None, [], {}, "")}
    return value


def build_server() -> "Server[Any]":
    """A server of the tools, for any transport of the `mcp` package."""
    from mcp import types
    from mcp.server import Server

    hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        types.Tool(name=name, description=tool.description, input_schema=tool.input_schema, annotations=hints)
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
    return Server("epochcast", version=version("epochcast"), instructions=INSTRUCTIONS, **handlers)


async def serve() -> None:
    """Serve the tools on standard input and output until the client ends it."""
    from mcp.server.stdio import stdio_server

    server = build_server()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
