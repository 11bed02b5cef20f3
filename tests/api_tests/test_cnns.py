"""`POST /v1/cnns`: a file becomes the layer table that questions take, which gets the file's answers."""

import asyncio
import json
import signal
import subprocess
import sys
from itertools import pairwise

import pytest
from fastapi import HTTPException
from pydantic_core import to_json

from api.layer_tables import LayerTableIn, inline_table
from api.onnx_process import read_onnx
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.onnx_file import from_onnx
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.errors import SchemaError
from predictor.operators.work import cnn_flops

onnx = pytest.importorskip("onnx")


def onnx_of(image=(1, 3, 8, 8)):
    helper = onnx.helper
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    weights = helper.make_tensor("w", 1, [8, 3, 3, 3], [0.5] * 216)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, image)],
        [helper.make_tensor_value_info("y", 1, None)], [weights],
    )  # fmt: skip
    return helper.make_model(graph).SerializeToString()


def activations(n):
    """A file of so many activations, one after the other."""
    helper = onnx.helper
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(n)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("v0", 1, (1, 3, 8, 8))],
        [helper.make_tensor_value_info(f"v{n}", 1, None)],
    )  # fmt: skip
    return helper.make_model(graph).SerializeToString()


def read(client, content, image_size=None, name="my net.onnx"):
    data = {} if image_size is None else {"image_size": str(image_size)}
    return client.post("/v1/cnns", data=data, files={"onnx": (name, content)})


def test_a_file_is_summed_up(client):
    answer = read(client, onnx_of()).json()
    table = from_onnx("my_net.onnx", None, onnx_of())
    assert (answer["cnn"], answer["image_size"], answer["parameters"]) == ("my_net", 8, 216)
    assert answer["forward_flops_per_image"] == cnn_flops(table, 1, ("forward",))
    assert answer["training_flops_per_image"] == cnn_flops(table, 1)
    assert [layer["type"] for layer in answer["layer_table"]["layers"]] == [layer.type for layer in table]


def test_its_layers_are_taken_as_they_are_given(client):
    table = read(client, onnx_of()).json()["layer_table"] | {
        "warnings": [{"kind": "cnn", "about": "inference export"}]
    }
    read_again = inline_table(LayerTableIn.model_validate(table))
    assert json.loads(to_json(read_again.document())) == table


def test_an_image_size_that_the_file_leaves_open_is_asked_for_and_taken(client):
    open_file = onnx_of((1, 3, "h", "w"))
    refused = read(client, open_file)
    assert refused.status_code == 422
    assert "image_size" in refused.json()["detail"]
    assert read(client, open_file, 32).json()["image_size"] == 32


@pytest.mark.parametrize("size", ["0", "-1", "x", "1e3", "9" * 30, "", "32.0"])
def test_an_image_size_that_is_none_is_refused(client, size):
    answer = read(client, onnx_of((1, 3, "h", "w")), size)
    assert answer.status_code == 422
    assert "image_size is " in answer.json()["detail"]


def test_another_image_size_than_the_file_s_is_refused(client):
    assert read(client, onnx_of(), 9).status_code == 422


def test_layers_are_told_to_go_with_a_question(client):
    answer = client.post("/v1/cnns", json={"layer_table": {"layers": [{"type": "add"}]}})
    assert answer.status_code == 415
    assert "as its layer_table" in answer.json()["detail"]


def test_a_damaged_file_is_refused(client):
    assert read(client, onnx_of()[:-20]).status_code == 422


def test_a_table_read_stays_a_table_of_the_core():
    table = from_onnx("x.onnx", None, onnx_of())
    again = inline_table(LayerTableIn.model_validate_json(to_json(table.document())))
    assert isinstance(again, LayerTable)
    assert again.layers == table.layers


def test_layers_that_cannot_follow_one_another_are_refused_by_their_field(client):
    layers = [
        {"type": "conv2d", "inputs": [-1], "in_channels": 3, "out_channels": 128, "parameters": 0},
        {"type": "conv2d", "inputs": [0], "in_channels": 64, "out_channels": 64, "parameters": 0},
    ]
    question = {"gpus": ["T4"], "batch_sizes": [32], "layer_table": {"image_size": 8, "layers": layers}}
    answer = client.post("/v1/predictions", json=question)
    assert answer.status_code == 422
    assert "layer_table.layers[1].in_channels: conv2d '' reads 64, but row 0" in answer.json()["detail"]


def test_every_cnn_of_the_zoo_is_taken_as_it_is_shown():
    shown = {name: zoo_cnn(name) for name in ZOO}
    read = {
        name: inline_table(LayerTableIn.model_validate_json(json.dumps(table.document())))
        for name, table in shown.items()
    }
    assert [name for name in ZOO if read[name].layers != shown[name].layers] == []


def functions_in_functions(depth, width):
    """A file of some hundred bytes whose functions call each other, each several times."""
    helper = onnx.helper
    domains = [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]

    def function(level):
        name, operator = f"F{level}", f"F{level + 1}" if level < depth else "Relu"
        domain = "own" if level < depth else ""
        values = ["a", *(f"v{i}" for i in range(width - 1)), "b"]
        nodes = [
            helper.make_node(operator, [source], [target], domain=domain)
            for source, target in pairwise(values)
        ]
        return helper.make_function("own", name, ["a"], ["b"], nodes, domains)

    graph = helper.make_graph(
        [helper.make_node("F0", ["x"], ["y"], domain="own")], "g",
        [helper.make_tensor_value_info("x", 1, (1, 3, 8, 8))], [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    functions = [function(level) for level in range(depth + 1)]
    return helper.make_model(graph, functions=functions, opset_imports=domains).SerializeToString()


def test_functions_that_unfold_to_a_few_operators_are_read(client):
    answer = read(client, functions_in_functions(2, 2)).json()
    assert [layer["type"] for layer in answer["layer_table"]["layers"]] == ["activation"] * 8


@pytest.mark.parametrize("depth", [5, 60])
def test_functions_that_unfold_to_very_many_operators_are_refused_unread(client, depth):
    answer = read(client, functions_in_functions(depth, 10))
    assert answer.status_code == 422
    assert "more than 20,000 operators, its functions unfolded" in answer.json()["detail"]


def test_a_file_of_very_many_operators_is_told_so_and_not_that_it_is_damaged(client):
    answer = read(client, activations(20_001))
    assert "more than 20,000 operators" in answer.json()["detail"]


def test_a_table_of_more_layers_than_are_taken_is_told_so(client):
    answer = read(client, activations(10_001))
    assert answer.status_code == 422
    assert "damaged" not in answer.json()["detail"]


@pytest.mark.parametrize("ended_by", ["processor", "clock"])
def test_reading_ends_with_its_time(monkeypatch, ended_by):
    def ended(command, timeout, **options):
        if ended_by == "clock":
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, -signal.SIGXCPU, b"", b"")

    monkeypatch.setattr("api.onnx_process.subprocess.run", ended)
    with pytest.raises(SchemaError, match="slow takes longer than 2 s to read"):
        read_onnx(onnx_of(), "slow", None)


def doubling(operator, n=30):
    """A file of a kilobyte in which each operator's result has twice the dimensions, or the numbers, of the last."""
    helper = onnx.helper
    nodes = [helper.make_node("Shape", ["x"], ["v0"])]
    options = {"axis": 0} if operator == "Concat" else {}
    nodes += [helper.make_node(operator, [f"v{i}", f"v{i}"], [f"v{i + 1}"], **options) for i in range(n)]
    nodes.append(helper.make_node("Reshape", ["x", f"v{n}"], ["y"]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


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
        table = await limits.run("other", read_onnx, onnx_of(), "good", None)
        return table, await asyncio.gather(*calls, return_exceptions=True)

    table, refusals = asyncio.run(ask())
    assert table.cnn == "good"
    assert {type(refusal) for refusal in refusals} <= {SchemaError, HTTPException}
