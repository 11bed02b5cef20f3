"""Every refusal is a problem document that says the field, the value and what would be right."""

import json
from pathlib import Path

import pytest

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


def refusal(client, status=422, **changes):
    question = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    return refused(client.post("/v1/predictions", json=question), status)


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


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"precisions": ["fp32"]}, "precision"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"batch_sizes": [33]}, "batch_sizes"),
        ({"float32_matmul_precision": "high"}, "float32_matmul_precision"),
    ],
)
def test_what_a_recorded_step_contradicts_is_named_as_a_field(client, changes, field):
    step = {"batch_size": 32, "parts": 2, "precision": "amp_bf16", "optimizer": "sgd"}
    table = zoo_cnn("lenet5").document() | {"step": step}
    document = refusal(client, **{"cnn": None, "gpus": ["H200"], "layer_table": table} | changes)
    assert [error["field"] for error in document["errors"]] == [field]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"nonsense", 422),
        (b"[1]", 422),
        (b"null", 422),
        (b'{"cnn": "resnet50"', 422),
        (b'{"cnn": "\xff"}', 422),
        (b'{"cnn": "\\ud800", "gpus": ["T4"], "batch_sizes": [1]}', 422),
        (b'{"cnn": "resnet50", "gpus": ["\\u0000"], "batch_sizes": [1]}', 404),
        (b'{"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [NaN]}', 422),
        (b'{"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [1e400]}', 422),
        (b'{"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [' + b"9" * 10_000 + b"]}", 422),
        (b"[" * 100_000, 422),
        (b'{"a":' * 100_000, 422),
    ],
)
def test_what_is_no_question_is_refused(client, content, status):
    headers = {"Content-Type": "application/json"}
    refused(client.post("/v1/predictions", content=content, headers=headers), status)


def test_other_types_of_body_are_refused_with_those_that_are_taken(client):
    document = refused(
        client.post("/v1/predictions", content=b"x", headers={"Content-Type": "text/csv"}), 415
    )
    assert "Valid: application/json. `POST /v1/cnns` takes an ONNX file" in document["detail"]


@pytest.mark.parametrize(
    ("form", "files"),
    [
        ({}, {"onnx": b"x"}),
        ({"image_size": "32", "more": "x"}, {"onnx": b"x"}),
        ({"image_size": "x"}, {"onnx": b"x"}),
        ({}, {"other": b"x"}),
        ({"onnx": "text"}, {"image_size": b"32"}),
    ],
)
def test_a_form_that_makes_no_sense_is_refused(client, form, files):
    refused(client.post("/v1/cnns", data=form, files=files), 422)


_ONNX_FIELD = b'--b\r\nContent-Disposition: form-data; name="onnx"; filename="x.onnx"\r\n\r\n'


@pytest.mark.parametrize(
    ("boundary", "content", "words"),
    [
        ("", b"x", "No boundary"),
        ("; boundary=b", _ONNX_FIELD + b"x\r\n--b\r\n", "does not end with its boundary"),
        ("; boundary=b", b"--b\r\nnonsense\r\n--b--", "header"),
        ("; boundary=b", b"--b\r\nX: y\r\n\r\n\r\n--b--", "name not found"),
        ("; boundary=b", b"\r\n--c" * 1_000_000, "damaged"),
    ],
)
def test_a_damaged_form_is_refused(client, boundary, content, words):
    headers = {"Content-Type": f"multipart/form-data{boundary}"}
    document = refused(client.post("/v1/cnns", content=content, headers=headers), 400)
    assert words in document["detail"]


def test_a_path_that_is_not_there_is_told_the_nearest(client):
    document = refused(client.post("/v1/prediction", json=GOOD), 404)
    assert "no path '/v1/prediction'. Nearest: '/v1/predictions'" in document["detail"]


def test_a_wrong_method_is_told_the_right_one(client):
    answer = client.get("/v1/predictions")
    assert "/v1/predictions takes POST, not GET." in refused(answer, 405)["detail"]
    assert answer.headers["allow"] == "POST"
    assert "takes GET and POST, not DELETE" in refused(client.delete("/v1/cnns"), 405)["detail"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/gpus?generaton=turing", "generaton: Extra inputs are not permitted. Valid: generation."),
        ("/v1/offers?gpus=T4", "Valid: gpu, historic."),
        ("/v1/cnns?image_size=64", "There are none here."),
        ("/v1/cnns/resnet50?size=64", "Valid: image_size."),
        ("/v1/gpus/T4?x=1&x=2", "x: Extra inputs"),
        ("/v1/data_sets?a=1&b=2", "(and 1 more)"),
        ("/v1/models?x=", "x: Extra inputs"),
    ],
)
def test_a_parameter_that_nobody_knows_is_refused(client, path, words):
    assert words in refused(client.get(path), 422)["detail"]


def test_every_error_of_the_tree_has_a_status():
    kinds = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, EpochcastError)
    ]
    for kind in kinds:
        status = next(status for error_class, status in STATUS_OF.items() if issubclass(kind, error_class))
        assert status in TITLES


def test_a_damaged_new_model_is_reported_while_the_old_one_answers(client, monkeypatch):
    assert client.get("/readyz").json()["model_problem"] is None
    monkeypatch.setattr(client.app.state.serving.model, "problem", "the file is damaged. Refit it.")
    readiness = client.get("/readyz")
    assert (readiness.status_code, readiness.json()["model_problem"]) == (
        200,
        "the file is damaged. Refit it.",
    )
    assert client.get("/healthz").text == "ok\n"


@pytest.mark.parametrize("path", ["/v1/gpus/T5", "/v1/cnns/resnet51"])
def test_what_a_path_names_is_no_field(client, path):
    assert "errors" not in refused(client.get(path), 404)
