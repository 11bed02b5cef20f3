"""`POST /v1/checks`: the core's check, and what it refuses."""

from dataclasses import asdict

from pydantic_core import from_json, to_json

from predictor.answers.check import Speed, check
from predictor.answers.question import Question

ASKED = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [64], "data_set": "imagenet", "images_per_s": 40}


def test_a_check_is_the_cores(client):
    found = check(Question("resnet50", "T4", [64], data_set="imagenet"), Speed(images_per_s=40), epochs=90)
    answer = client.post("/v1/checks", json=ASKED | {"epochs": 90}).json()
    assert answer == {"sentence": found.sentence, "checkup": from_json(to_json(asdict(found)))}


def test_a_speed_that_is_none_or_two_is_refused(client):
    for change in ({"images_per_s": None}, {"iteration_time_ms": 10}):
        answer = client.post("/v1/checks", json=ASKED | change)
        assert (answer.status_code, "Give one" in answer.json()["detail"]) == (422, True)


def test_one_gpu_and_one_batch_size_are_checked(client):
    for change in ({"gpus": ["T4", "L4"]}, {"batch_sizes": [1, 2]}):
        assert client.post("/v1/checks", json=ASKED | change).status_code == 422
