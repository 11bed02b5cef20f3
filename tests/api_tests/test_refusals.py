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
    question = GOOD | {"cnn": None, "gpus": ["H200"], "layer_table": table} | changes
    document = refused(client.post("/v1/predictions", json=question), 422)
    assert [error["field"] for error in document["errors"]] == [field]


_JSON, _FORM = "application/json", "multipart/form-data; boundary=b"
_SIZES = b'{"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": ['
_ONNX_FIELD = b'--b\r\nContent-Disposition: form-data; name="onnx"; filename="x.onnx"\r\n\r\n'
_BODIES = [
    ("predictions", _JSON, body, 422, "")
    for body in (b"", b"nonsense", b"[1]", b"null", b'{"cnn": "resnet50"', b'{"cnn": "\xff"}', b"[" * 100_000)
]
_BODIES += [
    ("predictions", _JSON, b'{"a":' * 100_000, 422, ""),
    ("predictions", _JSON, b'{"cnn": "\\ud800", "gpus": ["T4"], "batch_sizes": [1]}', 422, ""),
    ("predictions", _JSON, b'{"cnn": "resnet50", "gpus": ["\\u0000"], "batch_sizes": [1]}', 404, ""),
    ("predictions", _JSON, _SIZES + b"NaN]}", 422, ""),
    ("predictions", _JSON, _SIZES + b"1e400]}", 422, ""),
    ("predictions", _JSON, _SIZES + b"9" * 10_000 + b"]}", 422, ""),
    ("predictions", _JSON, _SIZES + b'8], "measurements": {"gpu": [NaN]}}', 422, "NaN, which JSON does not"),
    ("predictions", "text/csv", b"x", 415, "Valid: application/json. `POST /v1/cnns` takes an ONNX file"),
    ("cnns", "multipart/form-data", b"x", 400, "No boundary"),
    ("cnns", _FORM, _ONNX_FIELD + b"x\r\n--b\r\n", 400, "does not end with its boundary"),
    ("cnns", _FORM, b"--b\r\nnonsense\r\n--b--", 400, "header"),
    ("cnns", _FORM, b"--b\r\nX: y\r\n\r\n\r\n--b--", 400, "name not found"),
    ("cnns", _FORM, b"\r\n--c" * 1_000_000, 400, "damaged"),
]


@pytest.mark.parametrize(
    ("path", "kind", "content", "status", "words"), _BODIES, ids=lambda value: str(value)[:30]
)
def test_a_body_that_is_no_question_and_no_form_is_refused(client, path, kind, content, status, words):
    answer = client.post(f"/v1/{path}", content=content, headers={"Content-Type": kind})
    assert words in refused(answer, status)["detail"]


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


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "prediction", 404, "no path '/v1/prediction'. Nearest: '/v1/predictions'"),
        ("GET", "predictions", 405, "/v1/predictions takes POST, not GET."),
        ("DELETE", "cnns", 405, "takes GET and POST, not DELETE"),
        ("GET", "gpus/T5", 404, "no GPU is called"),
        ("GET", "cnns/resnet51", 404, "no CNN of the zoo is called"),
        ("GET", "gpus?generaton=t", 422, "generaton: Extra inputs are not permitted. Valid: gen"),
        ("GET", "offers?gpus=T4", 422, "Valid: gpu, historic."),
        ("GET", "cnns?image_size=64", 422, "There are none here."),
        ("GET", "cnns/resnet50?size=64", 422, "Valid: image_size."),
        ("GET", "gpus/T4?x=1&x=2", 422, "x: Extra inputs"),
        ("GET", "data_sets?a=1&b=2", 422, "(and 1 more)"),
        ("GET", "models?x=", 422, "x: Extra inputs"),
    ],
)
def test_a_path_method_or_parameter_that_nobody_knows_is_told_the_right_one(
    client, method, path, status, words
):
    answer = client.request(method, f"/v1/{path}")
    document = refused(answer, status)
    assert words in document["detail"]
    assert "errors" not in document or status == 422  # what a path names is no field
    assert answer.headers.get("allow") == {"predictions": "POST", "cnns": "GET, POST"}.get(path)


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
