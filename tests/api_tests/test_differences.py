"""`POST /v1/differences`: the core's difference of two CNNs, and what it refuses."""

from dataclasses import asdict, replace

from pydantic_core import from_json, to_json

from predictor.answers.diff import diff
from predictor.answers.question import Question

ASKED = {"cnn": "vgg16", "after": {"cnn": "vgg16_bn"}, "gpus": ["T4", "H200"], "batch_sizes": [64]}


def test_differences_are_the_cores(client):
    before = Question("vgg16", ["T4", "H200"], [64], data_set="imagenet")
    differences = diff(before, replace(before, cnn="vgg16_bn"))
    answer = client.post("/v1/differences", json=ASKED | {"data_set": "imagenet"}).json()
    expected = [{"sentence": row.sentence, **from_json(to_json(asdict(row)))} for row in differences]
    assert answer == {"differences": expected}
    assert answer["differences"][0]["after"]["cost_usd"] > 0


def test_either_cnn_may_be_layers(client):
    layers = client.get("/v1/cnns/lenet5").json()["layers"]
    names = set(client.get("/openapi.json").json()["components"]["schemas"]["LayerIn"]["properties"])
    table = {"name": "mine", "layers": [{k: v for k, v in layer.items() if k in names} for layer in layers]}
    question = {"gpus": ["T4"], "batch_sizes": [64]}
    by_name = client.post(
        "/v1/differences", json=question | {"cnn": "lenet5", "after": {"layer_table": table}}
    )
    [change] = by_name.json()["differences"]
    assert (change["ratio"], change["changed_share"], change["after"]["cnn"]) == (1.0, 0.0, "mine")


def test_measurements_count_for_both(client):
    row = {"gpu": "T4", "image_size": 224, "batch_size": 64, "precision": "fp32"}
    rows = [row | {"cnn": cnn, "iteration_time_ms": ms} for cnn, ms in (("vgg16", 700), ("vgg16_bn", 840))]
    [change] = client.post("/v1/differences", json=ASKED | {"gpus": ["T4"], "measurements": rows}).json()[
        "differences"
    ]
    assert abs(change["ratio"] - 1.2) < 0.01
