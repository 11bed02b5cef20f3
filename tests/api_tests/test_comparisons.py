"""`/v1/comparisons` gives what `epochcast.compare` gives, field by field."""

import json
from dataclasses import asdict

from case_tables import each_row

from predictor.answers.compare import compare
from predictor.answers.question import Plan, Question

ASKED = {"cnn": "resnet50", "batch_sizes": [32, 64], "data_set": "imagenet"}


@each_row
def test_answers_are_those_of_the_core(client, options):
    response = client.post("/v1/comparisons", json=ASKED | options)
    assert response.status_code == 200, response.text
    plan, options_of_question = Plan.of({"data_set": "imagenet"} | options)
    expected = compare(Question("resnet50", None, [32, 64], **options_of_question), plan)
    assert response.json()["rows"] == json.loads(json.dumps([asdict(row) for row in expected.rows]))
    assert response.json()["verdict"] == json.loads(json.dumps(asdict(expected.verdict)))
    assert response.json()["covers"] == expected.scope


def test_free_machines_and_common_batch_sizes_are_compared_alike_until_another_model_is_served(
    client, another_model
):
    question = ASKED | {"gpus": ["T4"], "epochs": 1, "usd_per_hour": 0}
    rows = client.post("/v1/comparisons", json=question).json()["rows"]
    assert {row["total_cost_usd"] for row in rows} == {0}
    question = {"cnn": "resnet50", "data_set": "imagenet", "gpus": ["T4", "V100-SXM2-16GB"]}
    rows = client.post("/v1/comparisons", json=question).json()["rows"]
    assert {row["batch_size"] for row in rows} == {128}
    first = client.post("/v1/comparisons", json=ASKED)
    assert client.post("/v1/comparisons", json=ASKED).content == first.content
    another_model(trained_on="something else")
    assert "something else" in client.post("/v1/comparisons", json=ASKED).json()["covers"]


@each_row
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
