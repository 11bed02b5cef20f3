"""Every refusal is a problem document that says the field, the value and what would be right."""

import json
from pathlib import Path

import pytest
from case_tables import each_row, table

from api.problems import STATUS_OF, TITLES
from predictor import errors
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import EpochcastError

GOOD = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [32], "data_set": "imagenet"}
REFUSALS = json.loads(Path(__file__).with_name("refusals.json").read_text(encoding="utf-8"))
"""Changes of `GOOD`, posted to a path, with the status, words of the detail and the field at fault, if any."""


def refused(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["title"] == TITLES[status]
    return document


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: f"{row['path']} {str(row['change'])[:60]}")
def test_a_question_that_makes_no_sense_is_told_the_field_and_what_would(client, row):
    question = {
        name: value for name, value in (GOOD | row["change"]).items() if name not in row.get("without", ())
    }
    if question.get("batch_sizes") == "1..200":
        question["batch_sizes"] = list(range(1, 201))
    answer = refused(client.post(f"/v1/{row['path']}", json=question), row["status"])
    assert row["words"] in answer["detail"]
    assert not answer["detail"].startswith("body")
    if row["status"] == 404:
        assert "epochcast" not in answer["detail"]
    if "field" in row:
        assert [error["field"] for error in answer["errors"]] == [row["field"]]


def test_a_number_out_of_its_range_is_told_both_ends_as_the_document_has_them(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name, path in (("PredictionQuestion", "predictions"), ("ComparisonQuestion", "comparisons")):
        for field, about in schemas[name]["properties"].items():
            for kind in (about, *about.get("anyOf", ())):
                if kind.get("type") in ("integer", "number"):
                    change = {field: kind["minimum"] - 1}
                    document = refused(client.post(f"/v1/{path}", json=GOOD | change), 422)
                    most = f"{kind['maximum']:{',' if kind['type'] == 'integer' else ',.10g'}}"
                    ends = f"from {kind['minimum']:g} to {most}; given: {change[field]}"
                    assert document["errors"][0]["detail"].endswith(ends), document


@each_row
def test_what_a_recorded_step_contradicts_is_named_as_a_field(client, changes, field):
    step = {"batch_size": 32, "parts": 2, "precision": "amp_bf16", "optimizer": "sgd"}
    table = zoo_cnn("lenet5").document() | {"step": step}
    question = GOOD | {"cnn": None, "gpus": ["H200"], "layer_table": table} | changes
    document = refused(client.post("/v1/predictions", json=question), 422)
    assert [error["field"] for error in document["errors"]] == [field]


_JSON = "application/json"
_BODIES = [
    *table(__file__, "damaged bodies"),
    ("predictions", _JSON, "[" * 100_000, 422, ""),
    ("predictions", _JSON, '{"a":' * 100_000, 422, ""),
    ("predictions", _JSON, f'{{"cnn": "vgg16", "gpus": ["T4"], "batch_sizes": [{"9" * 10_000}]}}', 422, ""),
    ("cnns", "multipart/form-data; boundary=b", "\r\n--c" * 1_000_000, 400, "damaged"),
]


@pytest.mark.parametrize(
    ("path", "kind", "content", "status", "words"), _BODIES, ids=lambda value: str(value)[:30]
)
def test_a_body_that_is_no_question_and_no_form_is_refused(client, path, kind, content, status, words):
    answer = client.post(f"/v1/{path}", content=content.encode("latin-1"), headers={"Content-Type": kind})
    assert words in refused(answer, status)["detail"]


@each_row
def test_a_form_that_makes_no_sense_is_refused(client, form, files):
    refused(client.post("/v1/cnns", data=form, files=files), 422)


@each_row
def test_a_path_method_or_parameter_that_nobody_knows_is_told_the_right_one(
    client, method, path, status, words
):
    answer = client.request(method, f"/v1/{path}")
    document = refused(answer, status)
    assert words in document["detail"]
    assert "errors" not in document or status == 422  # what a path names is no field
    allow = {"predictions": "OPTIONS, POST", "cnns": "GET, HEAD, OPTIONS, POST"}.get(path)
    assert answer.headers.get("allow") == allow
    options = client.options(f"/v1/{path}")
    if allow is not None:
        assert (options.status_code, options.headers["allow"], options.content) == (204, allow, b"")


@pytest.mark.parametrize("cnns", [{"cnn": None}, {"cnn": "lenet5", "layer_table": {"name": "x"}}])
def test_the_document_forbids_what_is_refused_no_cnn_and_two(client, cnns):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for kind in ("PredictionQuestion", "ComparisonQuestion", "ExplanationQuestion", "CheckQuestion"):
        neither, both = schemas[kind]["not"]["anyOf"]
        assert neither == {"properties": {"cnn": {"type": "null"}, "layer_table": {"type": "null"}}}
        assert both["required"] == ["cnn", "layer_table"]
    refused(client.post("/v1/predictions", json=GOOD | cnns), 422)


def test_every_error_of_the_tree_has_a_status():
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, EpochcastError):
            assert next(STATUS_OF[base] for base in STATUS_OF if issubclass(kind, base)) in TITLES


def test_a_damaged_new_model_is_reported_while_the_old_one_answers(client, monkeypatch):
    assert client.get("/readyz").json()["model_problem"] is None
    monkeypatch.setattr(client.app.state.serving.model, "problem", "the file is damaged. Refit it.")
    readiness = client.get("/readyz")
    assert readiness.status_code == 200
    assert readiness.json()["model_problem"] == "the file is damaged. Refit it."
    assert client.get("/healthz").text == "ok\n"
