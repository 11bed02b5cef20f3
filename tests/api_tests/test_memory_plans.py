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
