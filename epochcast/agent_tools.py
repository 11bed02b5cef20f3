"""The answers as tools of the Model Context Protocol, for agents: what `epochcast mcp` serves.

A tool is one entry of `TOOLS`. Its options are those that the core declares, and its answer is what the core gives,
as JSON of four digits without empty fields, which a language model reads in a hundred lines.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

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

_CNN = {
    "type": "string",
    "description": "A CNN of the zoo (resnet50, vgg16, efficientnet_b0, ...), timm:NAME, torchvision:NAME, or the path "
    "of a layer table (.csv), an ONNX or a Keras file; @SIZE after it for images of SIZE pixels.",
}
_GPU = {"type": "string", "description": "A GPU by any of its names: T4, H100 SXM, RTX 4090."}
_GPUS = {
    "type": ["string", "array"],
    "items": {"type": "string"},
    "description": "One or several GPUs by any of their names (T4, H100 SXM, RTX 4090), or all.",
}
_BATCH_SIZES = {
    "type": ["integer", "array"],
    "items": {"type": "integer"},
    "description": "Images per mini-batch, one or several. By default those that suit each GPU are searched.",
}
_BATCH_SIZE = {"type": "integer", "description": "Images per mini-batch, of all GPUs together."}
_MOST = {"type": "integer", "minimum": 1, "default": 10, "description": "Most rows to return."}
_LOG = {
    "type": "string",
    "description": "Instead of its speed, the path of a file with what the training printed.",
}
_EPOCHS = {"type": "integer", "description": "Epochs of the training, for what mending saves."}
_OF_EXPLANATION = (
    *("cnn", "gpu", "precision", "memory_format", "batch_sizes", "iteration_time_ms", "low_ms", "high_ms"),
    *("gpu_time_ms", "host_time_ms", "bound", "classes", "bound_ms", "other_modes"),
)
_OF_SIDE = ("cnn", "iteration_time_ms", "low_ms", "high_ms", "peak_memory_gib", "fits_in_memory", "cost_usd")
_DIGITS = 4
_MOST_LAYERS = 12


def _predict(cnn: str, gpu: Any, batch_size: Any = None, most_rows: int = 10, **options: Any) -> Any:
    from predictor.answers.answer import answer

    found = answer(Question.of(cnn, gpu, batch_size, options))
    return {"covers": found.scope, **_first(found.records(), most_rows)}


def _compare(cnn: str, gpu: Any = None, batch_size: Any = None, most_rows: int = 10, **options: Any) -> Any:
    from predictor.answers.compare import compare

    plan, others = Plan.of(options)
    found = compare(Question.of(cnn, gpu, batch_size, others), plan)
    hints = [note.text for note in found.verdict.hints]
    said = {"verdict": found.verdict.sentence, "hints": hints, "covers": found.scope}
    return said | _first(found.records(), most_rows)


def _check(cnn: str, gpu: str, batch_size: Any, **options: Any) -> Any:
    from epochcast.api import check

    found = check(cnn, gpu, batch_size, **options)
    return {"sentence": found.sentence, **asdict(found)}


def _explain(cnn: str, gpu: Any, batch_size: Any = None, **options: Any) -> Any:
    from epochcast.api import explanations

    found, scope = explanations(cnn, gpu, batch_size, options)
    return {"covers": scope, "rows": [_only(asdict(each), _OF_EXPLANATION) for each in found]}


def _diff(before: str, after: str, gpu: Any, batch_size: Any, **options: Any) -> Any:
    from predictor.answers.diff import diff

    found = diff(*(Question.of(cnn, gpu, batch_size, options) for cnn in (before, after)))
    return {"rows": [_short_difference(each) for each in found]}


def _short_difference(found: Any) -> dict[str, Any]:
    sides = {side: _only(asdict(getattr(found, side)), _OF_SIDE) for side in ("before", "after")}
    return {
        "sentence": found.sentence,
        **asdict(found),
        **sides,
        "layers": [asdict(each) for each in found.layers[:_MOST_LAYERS]],
    }


def _only(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: record[name] for name in names}


def _first(records: Sequence[Mapping[str, Any]], most: int) -> dict[str, Any]:
    """The first rows, and how many more there are."""
    shown = records[: whole_number("most_rows", most, low=1, high=1000)]
    left_out = len(records) - len(shown)
    more = f"{left_out:,} more rows: ask about fewer GPUs and batch sizes, or raise most_rows."
    return {"rows": shown, **({"left_out": more} if left_out else {})}


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool: its description, its arguments, and the function that answers with data for JSON.

    `own` are JSON schemas of arguments that are no options, of which those in `needed` must be given. Its options are
    those of `kinds` that `answer`, a word of `predictor.answers.options.ANSWERS`, reads.
    """

    description: str
    own: Mapping[str, Mapping[str, Any]]
    needed: tuple[str, ...]
    answer: str
    function: Callable[..., Any]
    kinds: tuple[type[Any], ...] = (Question,)

    @property
    def options(self) -> dict[str, Option]:
        """Its options by name."""
        return {name: each for kind in self.kinds for name, each in options_of(kind, self.answer).items()}

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON schema of its arguments."""
        options = {name: _schema(each) for name, each in self.options.items() if name not in self.own}
        return {"type": "object", "properties": {**self.own, **options}, "required": list(self.needed)}

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Answer with data for JSON.

        Raises
        ------
        EpochcastError
            If an argument is missing, unknown or makes no sense; the message says what would be right.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        known = {**self.own, **self.options}
        for name in given.keys() - known.keys():
            if name in options_of(Plan):
                check_names([name], self.options)
            check_known(name, known)
        for name in self.needed:
            if name not in given:
                raise SchemaError(f"{name} is missing. {self.own[name]['description']}")
        for name in ("cnn", "before", "after"):
            _check_runs_nothing(given.get(name))
        return _short(json_ready(self.function(**given)))


def _check_runs_nothing(cnn: object) -> None:
    from proxy_cnns.user_cnns import names_a_file

    if isinstance(cnn, str) and names_a_file(cnn):
        raise SchemaError(
            f"{cnn} is a Python file, which a tool does not run. Write its layers with "
            f"`epochcast cnn show {cnn} --format csv > layers.csv`, and pass the path of layers.csv."
        )


TOOLS: dict[str, AgentTool] = {
    "predict": AgentTool(
        "How long an iteration and an epoch of training a CNN take on GPUs, what they cost, and whether they fit in "
        "memory, with 90 % intervals. Give data_set or samples for epochs and costs. To choose a GPU, call compare.",
        {"cnn": _CNN, "gpu": _GPUS, "batch_size": _BATCH_SIZES, "most_rows": _MOST},
        ("cnn", "gpu"),
        "predict",
        _predict,
    ),
    "compare": AgentTool(
        "Which GPU to rent for a training: time and cost on each GPU on offer, ranked, with a verdict. Needs data_set "
        "or samples; epochs, budget_usd and deadline_h are those of the whole training.",
        {
            "cnn": _CNN,
            "gpu": {**_GPUS, "description": f"{_GPUS['description']} By default every GPU on offer."},
            "batch_size": _BATCH_SIZES,
            "most_rows": _MOST,
        },
        ("cnn",),
        "compare",
        _compare,
        (Question, Plan),
    ),
    "check": AgentTool(
        "Whether the measured speed of a training is normal, and if not its likeliest causes, each with what mends it "
        "and what that saves. Give one speed or a log, and the options as the training runs (precision, workers, ...).",
        {"cnn": _CNN, "gpu": _GPU, "batch_size": _BATCH_SIZE, "log": _LOG, "epochs": _EPOCHS},
        ("cnn", "gpu", "batch_size"),
        "predict",
        _check,
        (Speed, Question),
    ),
    "explain": AgentTool(
        "What the time of an iteration is made of (milliseconds by class of operators), what bounds it (host, compute, "
        "memory, launch), and the factor that other precisions and memory formats would give. Lists go by batch_sizes.",
        {
            "cnn": _CNN,
            "gpu": _GPUS,
            "batch_size": {
                **_BATCH_SIZES,
                "description": "Images per mini-batch; by default 1, 2, 4, ... 512.",
            },
        },
        ("cnn", "gpu"),
        "explain",
        _explain,
    ),
    "diff": AgentTool(
        "What a change of a CNN costs: time, memory and the layers that differ, before and after, with an interval of "
        "the ratio that is narrower than those of the times.",
        {"before": _CNN, "after": _CNN, "gpu": _GPUS, "batch_size": _BATCH_SIZE},
        ("before", "after", "gpu", "batch_size"),
        "predict",
        _diff,
    ),
}


def _schema(known: Option) -> dict[str, Any]:
    """JSON schema of an option; anchors are objects."""
    file = " The path of a file." if known.kind == "file" else ""
    usual = f" By default {known.usual}." if known.usual else ""
    types = KINDS[known.kind].json
    schema: dict[str, Any] = {
        "type": types[0] if len(types) == 1 else list(types),
        "description": f"{known.help}{file}{usual}",
    }
    if known.choices:
        schema["enum"] = list(known.choices)
    if known.kind == "anchors":
        fields = {name: _schema(each) for name, each in ANCHOR_FIELDS.items()}
        schema["items"] = {"type": "object", "properties": fields, "required": ["gpu", "batch_size"]}
    return schema


def _short(value: Any) -> Any:
    """`value` with floats of four digits and without empty fields."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, list):
        return [_short(each) for each in value]
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items() if each not in (None, [], {}, "")}
    return value


def _tool(name: str) -> AgentTool:
    if name not in TOOLS:
        raise SchemaError(f"no tool is called {name!r}. The tools are {', '.join(TOOLS)}.")
    return TOOLS[name]


def build_server() -> Server[Any]:
    """A server of the tools, for any transport of the `mcp` package."""
    from mcp import types
    from mcp.server import Server

    tools = [
        types.Tool(
            name=name,
            description=tool.description,
            input_schema=tool.input_schema,
            annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )
        for name, tool in TOOLS.items()
    ]

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            answered = await asyncio.to_thread(_tool(params.name).call, params.arguments or {})
        except EpochcastError as error:
            return _said(" ".join(str(error).split()), is_error=True)
        except OSError as error:
            return _said(f"{error.filename or 'a file'}: {error.strerror}. Check the path.", is_error=True)
        return _said(json.dumps(answered, allow_nan=False), structured_content=answered)

    def _said(text: str, **more: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], **more)

    return Server(
        "epochcast",
        version=version("epochcast"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve() -> None:
    """Serve the tools on standard input and output until the client ends it."""
    from mcp.server.stdio import stdio_server

    server = build_server()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
