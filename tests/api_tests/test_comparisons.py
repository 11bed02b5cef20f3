"""`/v1/comparisons` gives what `epochcast.compare` gives, field by field."""

import json
from dataclasses import asdict

import pytest

from predictor.answers.compare import compare
from predictor.answers.question import Plan, Question

ASKED = {"cnn": "resnet50", "batch_sizes": [32, 64], "data_set": "imagenet"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"epochs": 90, "budget_usd": 400.0, "deadline_h": 24.0, "setup_minutes": 10.0, "relative_to": "T4"},
        {"rank_by": "time", "all_offers": True, "precision": "amp_fp16", "memory_format": "channels_last"},
        {"spot": True, "data_set": None, "samples": 1_000, "validation_samples": 10},
        {"anchors": [{"gpu": "T4", "batch_size": 32, "throughput_samples_per_s": 100.0}]},
    ],
)
def test_answers_are_those_of_the_core(client, options):
    response = client.post("/v1/comparisons", json=ASKED | options)
    assert response.status_code == 200, response.text
    plan, options_of_question = Plan.of({"data_set": "imagenet"} | options)
    expected = compare(Question("resnet50", None, [32, 64], **options_of_question), plan)
    assert response.json()["rows"] == json.loads(json.dumps([asdict(row) for row in expected.rows]))
    assert response.json()["verdict"] == json.loads(json.dumps(asdict(expected.verdict)))
    assert response.json()["covers"] == expected.scope


def test_a_machine_of_ones_own_may_cost_nothing(client):
    question = ASKED | {"gpus": ["T4"], "epochs": 1, "usd_per_hour": 0}
    rows = client.post("/v1/comparisons", json=question).json()["rows"]
    assert {row["total_cost_usd"] for row in rows} == {0}


def test_without_batch_sizes_gpus_are_compared_at_a_common_one(client):
    question = {"cnn": "resnet50", "data_set": "imagenet", "gpus": ["T4", "V100-SXM2-16GB"]}
    rows = client.post("/v1/comparisons", json=question).json()["rows"]
    assert {row["batch_size"] for row in rows} == {128}


@pytest.mark.parametrize(
    "wishes", [{"budget_usd": "$150", "deadline_h": "2d"}, {"budget_usd": "150", "deadline_h": "48"}]
)
def test_wishes_are_texts_as_commands_take_them(client, wishes):
    question = ASKED | {"epochs": 90}
    texts, numbers = (
        client.post("/v1/comparisons", json=question | limits)
        for limits in (wishes, {"budget_usd": 150, "deadline_h": 48})
    )
    assert texts.status_code == 200, texts.text
    assert texts.json()["verdict"] == numbers.json()["verdict"]
    plan = Plan(epochs=90, **wishes)
    assert (plan.budget_usd, plan.deadline_h) == (150, 48)


def test_the_same_comparison_is_the_same_until_another_model_is_served(client, another_model):
    first = client.post("/v1/comparisons", json=ASKED)
    assert client.post("/v1/comparisons", json=ASKED).content == first.content
    another_model(trained_on="something else")
    assert "something else" in client.post("/v1/comparisons", json=ASKED).json()["covers"]
