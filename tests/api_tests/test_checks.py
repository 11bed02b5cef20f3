"""`POST /v1/checks`: the core's check, and what it refuses."""

from dataclasses import asdict

from pydantic_core import from_json, to_json

from predictor.answers.check import Speed, check
from predictor.answers.question import Question

ASKED = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [64], "data_set": "imagenet", "images_per_s": 40}


def test_a_check_is_the_cores(client):
    checkup = check(Question("resnet50", "T4", [64], data_set="imagenet"), Speed(images_per_s=40), epochs=90)
    answer = client.post("/v1/checks", json=ASKED | {"epochs": 90}).json()
    assert answer == {"sentence": checkup.sentence, "checkup": from_json(to_json(asdict(checkup)))}
