"""`POST /v1/explanations`: the core's explanations, field by field; its bounds and refusals."""

from dataclasses import asdict

import pytest
from pydantic_core import from_json, to_json

from predictor.answers.explain import explain
from predictor.answers.question import Question

ASKED = {"cnn": "resnet50", "gpus": ["H200", "T4"], "batch_sizes": [64, 1], "data_set": "imagenet"}


def ask(client, **change):
    return client.post("/v1/explanations", json=ASKED | change)


def test_explanations_are_the_cores(client):
    explanations, scope = explain(Question("resnet50", ["H200", "T4"], [1, 64], data_set="imagenet"))
    answer = ask(client).json()
    assert answer["explanations"] == from_json(to_json([asdict(explanation) for explanation in explanations]))
    assert answer["covers_together"] == scope


def test_each_gpu_has_its_own_paragraph_of_what_is_covered(client):
    assert len(ask(client).json()["covers"]) == 2


def test_one_mode_is_asked_and_all_others_are_answered(client):
    [explanation] = ask(client, gpus=["T4"], precision="fp16", memory_format="channels_last").json()[
        "explanations"
    ]
    assert (explanation["precision"], explanation["memory_format"]) == ("fp16", "channels_last")
    assert len(explanation["other_modes"]) == 5
    assert all(
        len(mode["factor"]) == len(explanation["batch_sizes"]) == 2 for mode in explanation["other_modes"]
    )


def test_a_layer_table_of_ones_own_is_explained(client):
    layers = client.get("/v1/cnns/lenet5").json()["layers"]
    names = set(client.get("/openapi.json").json()["components"]["schemas"]["LayerIn"]["properties"])
    table = {"name": "mine", "layers": [{k: v for k, v in layer.items() if k in names} for layer in layers]}
    [explanation] = ask(client, cnn=None, data_set=None, layer_table=table, gpus=["T4"]).json()[
        "explanations"
    ]
    assert explanation["cnn"] == "mine"
    assert sum(ms[0] for ms in explanation["classes"].values()) == pytest.approx(
        explanation["gpu_time_ms"][0]
    )


def test_the_same_explanation_is_the_same_until_another_model_is_served(client, another_model):
    first = ask(client, gpus=["T4"])
    assert ask(client, gpus=["T4"]).content == first.content
    another_model(trained_on="something else")
    explained = ask(client, gpus=["T4"]).json()["explanations"]
    assert explained[0]["trained_on"] == "something else"
