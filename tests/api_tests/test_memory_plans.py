"""`POST /v1/memory_plans`: the core's plans, and what it refuses."""

from dataclasses import asdict

from pydantic_core import from_json, to_json

from predictor.answers.fit_memory import fit_memory
from predictor.answers.question import Plan, Question

ASKED = {"cnn": "resnet50", "gpus": ["L4"], "batch_sizes": [256], "data_set": "imagenet", "memory_gib": 8}


def test_plans_are_the_cores(client):
    plans = fit_memory(Question("resnet50", ["L4"], [256], data_set="imagenet"), Plan(90), 8)
    answer = client.post("/v1/memory_plans", json=ASKED | {"epochs": 90}).json()
    expected = {"sentence": plans.sentence, "lines": plans.lines()}
    expected |= {"best": asdict(plans.best), "without": asdict(plans)["without"]}
    assert answer == from_json(to_json(expected))


def test_what_cannot_fit_or_is_too_much_work_is_refused(client):
    for change, says in (
        ({"memory_gib": 0.5}, "needs"),
        ({"batch_sizes": [1, 2]}, "batch_sizes"),
        ({"allow": ["precision"]}, "allow"),
        ({"cnn": "densenet201", "gpus": ["T4", "L4", "V100-SXM2-16GB", "A10G"]}, "fewer GPUs"),
    ):
        answer = client.post("/v1/memory_plans", json=ASKED | change)
        assert (answer.status_code, says in answer.text) == (422, True), answer.text
