"""Explanations, differences, checks and memory plans of the service are the core's, field by field."""

from dataclasses import asdict, replace

import pytest
from pydantic_core import from_json, to_json

import epochcast
from predictor.answers.check import Speed, check
from predictor.answers.diff import diff
from predictor.answers.explain import explain
from predictor.answers.fit_memory import fit_memory
from predictor.answers.question import Plan, Question

TRAINING = {"data_set": "imagenet"}
CHECK = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [64], "images_per_s": 40} | TRAINING
EXPLANATION = {"cnn": "resnet50", "gpus": ["H200", "T4"], "batch_sizes": [64, 1]} | TRAINING
DIFFERENCE = {"cnn": "vgg16", "after": {"cnn": "vgg16_bn"}, "gpus": ["T4", "H200"], "batch_sizes": [64]}
PLAN = {"cnn": "resnet50", "gpus": ["L4"], "batch_sizes": [256], "memory_gib": 8, "epochs": 90} | TRAINING


def in_json(value):
    return from_json(to_json(value))


def explained(client, **change):
    return client.post("/v1/explanations", json=EXPLANATION | change).json()


@pytest.fixture
def own_table(client):
    """A layer table of one's own: lenet5 as the service shows it, by another name."""
    layers = client.get("/v1/cnns/lenet5").json()["layers"]
    names = set(client.get("/openapi.json").json()["components"]["schemas"]["LayerIn"]["properties"])
    return {"name": "mine", "layers": [{k: v for k, v in layer.items() if k in names} for layer in layers]}


def test_checks_plans_and_differences_are_the_cores(client):
    checkup = check(Question("resnet50", "T4", [64], **TRAINING), Speed(images_per_s=40), epochs=90)
    answer = client.post("/v1/checks", json=CHECK | {"epochs": 90}).json()
    assert answer == {"sentence": checkup.sentence, "checkup": in_json(asdict(checkup))}
    plans = fit_memory(Question("resnet50", ["L4"], [256], **TRAINING), Plan(90), 8)
    expected = {"sentence": plans.sentence, "lines": plans.lines(), "best": asdict(plans.best)}
    answer = client.post("/v1/memory_plans", json=PLAN).json()
    assert answer == in_json(expected | {"without": asdict(plans)["without"]})
    answer = client.post(
        "/v1/memory_plans", json={k: PLAN[k] for k in PLAN if k not in ("epochs", *TRAINING)}
    ).json()
    assert answer["sentence"] == fit_memory(Question("resnet50", ["L4"], [256]), memory_gib=8).sentence
    before = Question("vgg16", ["T4", "H200"], [64], **TRAINING)
    differences = diff(before, replace(before, cnn="vgg16_bn"))
    answer = client.post("/v1/differences", json=DIFFERENCE | TRAINING).json()
    expected = [{"sentence": row.sentence, **in_json(asdict(row))} for row in differences]
    assert answer == {"differences": expected}
    assert answer["differences"][0]["after"]["cost_usd"] > 0


def test_without_a_batch_size_checks_and_differences_take_the_usual_one_and_say_so(client):
    checkup = epochcast.check("resnet50", "T4", images_per_s=40)
    assert checkup.batch_size == 128
    assert "at batch 128 (the usual one, since none is given) on Tesla T4" in checkup.sentence
    posted = {"cnn": "resnet50", "gpu": "T4", "images_per_s": 40}
    assert client.post("/v1/checks", json=posted).json()["sentence"] == checkup.sentence
    [change] = epochcast.diff("vgg16", "vgg16_bn", "T4")
    assert change.batch_size == 64
    assert change.sentence.startswith("Tesla T4, batch 64 (the usual one, since none is given): ")
    posted = {"cnn": "vgg16", "after": {"cnn": "vgg16_bn"}, "gpus": ["T4"]}
    [answered] = client.post("/v1/differences", json=posted).json()["differences"]
    assert answered["sentence"] == change.sentence
    assert answered["usual_batch_size"]
    [asked] = epochcast.diff("vgg16", "vgg16_bn", "T4", 64)
    assert asked == replace(change, usual_batch_size=False)


def test_either_cnn_of_a_difference_may_be_layers_and_measurements_count_for_both(client, own_table):
    question = {"cnn": "lenet5", "after": {"layer_table": own_table}, "gpus": ["T4"], "batch_sizes": [64]}
    [change] = client.post("/v1/differences", json=question).json()["differences"]
    assert (change["ratio"], change["changed_share"], change["after"]["cnn"]) == (1.0, 0.0, "mine")
    row = {"gpu": "T4", "image_size": 224, "batch_size": 64, "precision": "fp32"}
    rows = [row | {"cnn": cnn, "iteration_time_ms": ms} for cnn, ms in (("vgg16", 700), ("vgg16_bn", 840))]
    question = DIFFERENCE | {"gpus": ["T4"], "measurements": rows}
    [change] = client.post("/v1/differences", json=question).json()["differences"]
    assert abs(change["ratio"] - 1.2) < 0.01


def test_explanations_are_the_cores_in_one_mode_beside_all_others_and_of_ones_own_layers(client, own_table):
    explanations, scope = explain(Question("resnet50", ["H200", "T4"], [1, 64], **TRAINING))
    answer = explained(client)
    assert answer["explanations"] == in_json([asdict(explanation) for explanation in explanations])
    assert (answer["covers_together"], len(answer["covers"])) == (scope, 2)
    mode = {"precision": "fp16", "memory_format": "channels_last"}
    [explanation] = explained(client, gpus=["T4"], **mode)["explanations"]
    assert {name: explanation[name] for name in mode} == mode
    assert [len(other["factor"]) for other in explanation["other_modes"]] == [2] * 5
    assert len(explanation["batch_sizes"]) == 2
    answer = explained(client, cnn=None, data_set=None, layer_table=own_table, gpus=["T4"])
    [explanation] = answer["explanations"]
    assert explanation["cnn"] == "mine"
    total_ms = sum(ms[0] for ms in explanation["classes"].values())
    assert total_ms == pytest.approx(explanation["gpu_time_ms"][0])


def test_the_same_explanation_is_the_same_until_another_model_is_served(client, another_model):
    first = explained(client, gpus=["T4"])
    assert explained(client, gpus=["T4"]) == first
    another_model(trained_on="something else")
    assert explained(client, gpus=["T4"])["explanations"][0]["trained_on"] == "something else"
