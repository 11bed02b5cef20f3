"""`POST /v1/cnns`: a file becomes the layer table that questions take, which gets the file's answers."""

import asyncio
import json
import signal
import subprocess
import sys
from itertools import pairwise

import pytest
from fastapi import HTTPException
from onnx_files import conv_file, node, onnx_file
from pydantic_core import to_json

from api.layer_tables import LayerTableIn, inline_table
from api.onnx_process import read_onnx
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.onnx_file import from_onnx
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.errors import SchemaError
from predictor.operators.work import cnn_flops

onnx = pytest.importorskip("onnx")
AFTER = ("Relu", "GlobalAveragePool")


def read(client, content, image_size=None, name="my net.onnx"):
    data = {} if image_size is None else {"image_size": str(image_size)}
    return client.post("/v1/cnns", data=data, files={"onnx": (name, content)})


def test_a_file_is_summed_up_and_its_layers_are_taken_as_they_are_given(client):
    answer = read(client, conv_file(after=AFTER)).json()
    table = from_onnx("my_net.onnx", None, conv_file(after=AFTER))
    assert (answer["cnn"], answer["image_size"], answer["parameters"]) == ("my_net", 8, 216)
    assert answer["forward_flops_per_image"] == cnn_flops(table, 1, ("forward",))
    assert answer["training_flops_per_image"] == cnn_flops(table, 1)
    assert [layer["type"] for layer in answer["layer_table"]["layers"]] == [layer.type for layer in table]
    table = read(client, conv_file(after=AFTER)).json()["layer_table"] | {
        "warnings": [{"kind": "cnn", "about": "inference export"}]
    }
    read_again = inline_table(LayerTableIn.model_validate(table))
    assert json.loads(to_json(read_again.document())) == table
    answer = read(client, functions_in_functions(2, 2)).json()
    assert [layer["type"] for layer in answer["layer_table"]["layers"]] == ["activation"] * 8
    table = from_onnx("x.onnx", None, conv_file(after=AFTER))
    again = inline_table(LayerTableIn.model_validate_json(to_json(table.document())))
    assert isinstance(again, LayerTable)
    assert again.layers == table.layers


@pytest.mark.parametrize("size", [None, "0", "-1", "x", "1e3", "9" * 30, "", "32.0"])
def test_an_image_size_that_the_file_leaves_open_is_asked_for_and_taken(client, size):
    open_file = conv_file((1, 3, "h", "w"), AFTER)
    refused = read(client, open_file, size)
    assert (refused.status_code, "image_size" in refused.json()["detail"]) == (422, True)
    assert read(client, open_file, 32).json()["image_size"] == 32


def test_another_image_size_a_damaged_file_and_layers_without_a_question_are_refused(client):
    assert read(client, conv_file(), 9).status_code == 422
    assert read(client, conv_file()[:-20]).status_code == 422
    answer = client.post("/v1/cnns", json={"layer_table": {"layers": [{"type": "add"}]}})
    assert (answer.status_code, "as its layer_table" in answer.json()["detail"]) == (415, True)


def test_every_cnn_of_the_zoo_is_taken_as_it_is_shown():
    for name in ZOO:
        shown = zoo_cnn(name)
        read_again = inline_table(LayerTableIn.model_validate_json(json.dumps(shown.document())))
        assert read_again.layers == shown.layers, name


def functions_in_functions(depth, width):
    """A file of some hundred bytes whose functions call each other, each several times."""
    helper = onnx.helper
    domains = [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]
    names = ["a", *(f"v{i}" for i in range(width - 1)), "b"]
    functions = []
    for level in range(depth + 1):
        operator, domain = (f"F{level + 1}", "own") if level < depth else ("Relu", "")
        nodes = [node(operator, *ends, domain=domain) for ends in pairwise(names)]
        functions.append(helper.make_function("own", f"F{level}", ["a"], ["b"], nodes, domains))
    return onnx_file([node("F0", "x", "y", domain="own")], functions=functions, opset_imports=domains)


@pytest.mark.parametrize("depth", [5, 60])
def test_functions_that_unfold_to_very_many_operators_are_refused_unread(client, depth):
    answer = read(client, functions_in_functions(depth, 10))
    words = "more than 20,000 operators, its functions unfolded"
    assert (answer.status_code, words in answer.json()["detail"]) == (422, True)


@pytest.mark.parametrize(("count", "words"), [(20_001, "more than 20,000 operators"), (10_001, "")])
def test_a_file_of_very_many_operators_is_told_so_and_not_that_it_is_damaged(client, count, words):
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    answer = read(client, onnx_file([node("Relu", *ends) for ends in pairwise(names)]))
    assert (answer.status_code, words in answer.json()["detail"]) == (422, True)
    assert "damaged" not in answer.json()["detail"]


@pytest.mark.parametrize("ended_by", ["processor", "clock"])
def test_reading_ends_with_its_time(monkeypatch, ended_by):
    def ended(command, timeout, **options):
        if ended_by == "clock":
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, -signal.SIGXCPU, b"", b"")

    monkeypatch.setattr("api.onnx_process.subprocess.run", ended)
    with pytest.raises(SchemaError, match="slow takes longer than 2 s to read"):
        read_onnx(conv_file(after=AFTER), "slow", None)


def doubling(operator, n=30):
    """A file of a kilobyte in which each operator's result has twice the dimensions, or the numbers, of the last."""
    options = {"axis": 0} if operator == "Concat" else {}
    nodes = [node(operator, f"v{i} v{i}", f"v{i + 1}", **options) for i in range(n)]
    nodes = [node("Shape", "x", "v0"), *nodes, node("Reshape", f"x v{n}", "y")]
    return onnx_file(nodes, opset_imports=[onnx.helper.make_opsetid("", 17)])


READING = """
import resource, sys
from api.onnx_process import read_onnx
from predictor.errors import SchemaError
try:
    read_onnx(sys.stdin.buffer.read(), "hostile", None)
except SchemaError:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_maxrss, used.ru_utime + used.ru_stime)
"""


@pytest.mark.parametrize("operator", ["Concat", "Gather"])
def test_a_file_whose_shapes_double_ends_within_a_gib_and_two_seconds_of_a_processor(operator):
    run = subprocess.run(
        [sys.executable, "-c", READING], input=doubling(operator), capture_output=True, check=True
    )
    memory_kib, cpu_s = map(float, run.stdout.split())
    assert memory_kib < 2**20
    assert cpu_s < 3.5  # the second more after which the system kills what goes on


def test_another_address_has_its_file_read_while_one_sends_hostile_ones(client):
    limits = client.app.state.serving.onnx_queue
    hostile = doubling("Gather")

    async def ask():
        sent = [limits.run("attacker", read_onnx, hostile, "hostile", None) for _ in range(4)]
        calls = [asyncio.ensure_future(call) for call in sent]
        await asyncio.sleep(0)
        table = await limits.run("other", read_onnx, conv_file(after=AFTER), "good", None)
        return table, await asyncio.gather(*calls, return_exceptions=True)

    table, refusals = asyncio.run(ask())
    assert table.cnn == "good"
    assert {type(refusal) for refusal in refusals} <= {SchemaError, HTTPException}
