"""`epochcast mcp` as an agent meets it: the SDK's client starts the command and calls its tools over stdio."""

import asyncio
import json
import sys

import pytest
from case_tables import table

import epochcast as face
from epochcast.agent_tools import TOOLS
from epochcast.command import COMMANDS
from predictor.answers.options import options_of
from predictor.answers.question import Plan, Question

ASKED = {"cnn": "resnet50", "gpu": "T4", "batch_size": 64}
CALLS = table(__file__, "calls of an agent")
REFUSED = table(__file__, "refused calls of an agent")
for _, arguments, _ in REFUSED.values():
    if isinstance(arguments.get("batch_size"), str) and ".." in arguments["batch_size"]:
        arguments["batch_size"] = [*range(1, int(arguments["batch_size"].removeprefix("1..")) + 1)]


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Tools as listed, and the result of every call, in one session."""
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    touching = tmp_path_factory.mktemp("agent") / "net.py"
    touching.write_text("import pathlib\npathlib.Path(__file__).with_name('was_run').touch()\n")
    calls = {
        **CALLS,
        **{name: (tool, arguments) for name, (tool, arguments, _) in REFUSED.items()},
        "python file": ("predict", ASKED | {"cnn": f"{touching}:make_model"}),
    }

    async def ask():
        server = StdioServerParameters(command=sys.executable, args=["-m", "epochcast", "mcp"])
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
            answers = {name: await client.call_tool(*call) for name, call in calls.items()}
        return {tool.name: tool for tool in tools}, answers, touching

    return asyncio.run(ask())


def answered(session, name):
    result = session[1][name]
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def test_every_tool_says_what_it_does_and_takes_the_options_that_its_answer_reads(session):
    assert list(session[0]) == list(TOOLS)
    for name, tool in session[0].items():
        properties = tool.input_schema["properties"]
        kinds = (Question, Plan) if name == "compare" else (Question,)
        assert properties.keys() >= {
            option for kind in kinds for option in options_of(kind, TOOLS[name].answer)
        }
        assert [option for option, schema in properties.items() if not schema["description"]] == []
        whole = [schema for schema in properties.values() if "integer" in schema["type"]]
        assert all(schema["minimum"] <= 1 <= schema["maximum"] for schema in whole)
        assert tool.description == COMMANDS[name]
        assert tool.annotations.read_only_hint


def test_predict_and_compare_give_the_numbers_of_python_in_four_digits_and_the_best_rows(session):
    [row] = answered(session, "predict")["rows"]
    [same] = face.predict("resnet50", "T4", 64, data_set="imagenet").to_dict("records")
    for name in ("iteration_time_ms", "low_ms", "high_ms", "epoch_time_s", "cost_usd", "peak_memory_gib"):
        assert row[name] == pytest.approx(same[name], rel=1e-3)
    assert "loading_time_ms" not in row  # empty
    answer = answered(session, "many")
    assert len(answer["rows"]) == 3
    rows = len(face.predict("resnet18", "all", [1, 2]))
    assert answer["left_out"].startswith(f"{rows - 3} more rows")
    answer = answered(session, "compare")
    same = face.compare("resnet50", data_set="imagenet", epochs=90, budget_usd=150)
    assert answer["verdict"] == same.attrs["verdict"].sentence
    assert [row["offer"] for row in answer["rows"]] == list(same["offer"][:10])


def test_check_explain_and_diff_answer_and_a_python_file_is_not_run(session):
    assert answered(session, "check")["causes"][0]["name"] == "loading"
    [explained] = answered(session, "explain")["rows"]
    total_ms = sum(ms for [ms] in explained["classes"].values())
    assert total_ms == pytest.approx(explained["gpu_time_ms"][0], rel=0.01)
    [change] = answered(session, "diff")["rows"]
    assert change["sentence"] == face.diff("vgg16", "vgg16_bn", "T4", 64)[0].sentence
    _, answers, file = session
    assert answers["python file"].is_error
    assert "epochcast cnn show" in answers["python file"].content[0].text
    assert not file.with_name("was_run").exists()


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_says_what_would_be_right(session, name):
    result = session[1][name]
    assert result.is_error
    assert REFUSED[name][2] in result.content[0].text
