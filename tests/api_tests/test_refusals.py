"""Every refusal is a problem document that says the field, the value and what would be right."""

import pytest

from api.problems import STATUS_OF, TITLES
from predictor import errors
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import EpochcastError

GOOD = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [32], "data_set": "imagenet"}
LAYER = {"type": "linear", "in_channels": 3072, "out_channels": 10, "parameters": 30730}


def refused(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["status"] == status
    assert found["title"] == TITLES[status]
    return found


def refusal(client, status=422, **changes):
    question = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    return refused(client.post("/v1/predictions", json=question), status)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"batch_sizes": [32, 0]}, "batch_sizes[1]", "of at least 1; given: 0"),
        ({"batch_sizes": [65537]}, "batch_sizes[0]", "of at most 65536"),
        ({"batch_sizes": []}, "batch_sizes", "at least 1 item"),
        ({"batch_sizes": ["32"]}, "batch_sizes[0]", "whole number; given: '32'"),
        ({"batch_sizes": [32.5]}, "batch_sizes[0]", "whole number"),
        ({"gpus": ...}, "gpus", "required"),
        ({"image_size": 16385}, "image_size", "16384"),
        ({"samples": 10**12, "data_set": None}, "samples", "of at most 100000000000"),
        ({"samples": 10**400, "data_set": None}, "samples", "of at most"),
        ({"precisions": ["fp8"]}, "precisions[0]", "'fp32', 'tf32', 'fp16', 'amp_fp16' or 'amp_bf16'"),
        ({"framework": "jax"}, "framework", "'pytorch', 'tensorflow' or 'chainer'"),
        ({"cnn": 5}, "cnn", "valid string; given: 5"),
        ({"gpu": ["T4"]}, "gpu", "Extra inputs are not permitted"),
        ({"anchors": [{"gpu": "T4", "batch_size": 1, "epoch_time_s": 1e300}]}, "anchors[0].epoch_time_s", "1e+300"),
        ({"validation_samples": -1}, "validation_samples", "of at least 0"),
        ({"spot": "yes"}, "spot", "valid boolean"),
        ({"cnn": None, "layer_table": {"layers": [{"type": "conv"}]}}, "layer_table.layers[0].type", "'conv2d'"),
    ],
)  # fmt: skip
def test_the_field_at_fault_is_named(client, changes, field, said):
    found = refusal(client, **changes)
    assert [each["field"] for each in found["errors"]] == [field]
    assert said in found["errors"][0]["detail"]
    assert found["detail"].startswith(f"{field}: ")


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
    found = refusal(client, **{"cnn": None, "gpus": ["H200"], "layer_table": table} | changes)
    assert [each["field"] for each in found["errors"]] == [field]


@pytest.mark.parametrize(
    ("status", "changes", "said"),
    [
        (404, {"gpus": ["T5"]}, "no GPU is called 'T5'. Nearest: 'Tesla T4'"),
        (404, {"gpus": ["V100"]}, "fits several GPUs"),
        (404, {"cnn": "resnet51"}, "no CNN is called 'resnet51'. Nearest: 'resnet50'"),
        (422, {"data_set": "imagnet"}, "no known data set is called 'imagnet'. Nearest: 'imagenet'"),
        (422, {"samples": 2_000_000}, "samples 2,000,000 lies outside 1..1,281,167, the training images of imagenet"),
        (422, {"cnn": None}, "Give one CNN"),
        (422, {"onnx": "AAAA"}, "onnx: Extra inputs are not permitted"),
        (422, {"layer_table": {"layers": [{"type": "add"}]}}, "cnn and layer_table are given"),
        (422, {"data_set": None, "validation_samples": 5}, "validation_samples 5 needs an epoch"),
        (422, {"cnn": "alexnet", "image_size": 5}, "image_size 5 is below"),
        (422, {"host": "my desk"}, "host 'my desk' is not known"),
        (422, {"method": "anchored"}, "'anchored' needs a measurement"),
        (422, {"anchors": [{"gpu": "T4", "batch_size": 1}]}, "the anchor has 0 times"),
        (422, {"measurements": [{"gpu": "T4"}]}, "cnn"),
        (422, {"gpus": ["all"], "batch_sizes": list(range(1, 201))}, "rows are asked for; at most 20,000"),
        (422, {"cnn": None, "layer_table": {"layers": [LAYER]}}, "layer_table.image_size: it is missing"),
        (422, {"cnn": None, "image_size": 9, "layer_table": {"image_size": 8, "layers": [LAYER]}}, "for 8 pixels"),
        (422, {"cnn": None, "layer_table": {"layers": [LAYER | {"index": 3}]}}, "layers[0]: index is 3"),
        (422, {"cnn": None, "layer_table": {"layers": [LAYER | {"inputs": [0]}]}}, "inputs names row 0"),
        (422, {"cnn": None, "layer_table": {"layers": [LAYER | {"kind": "relu"}]}}, "an activation has a kind"),
        (422, {"cnn": None, "layer_table": {"layers": [LAYER | {"parameters": None}]}}, "parameters is missing"),
        (422, {"cnn": None, "layer_table": {"layers": [LAYER | {"in_channels": 0}]}}, "in_channels is 0"),
        (422, {"cnn": None, "layer_table": {"image_size": 8, "layers": [{"type": "pad"}, LAYER]}}, "has no"),
    ],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_told_what_would(client, status, changes, said):
    assert said in refusal(client, status, **changes)["detail"]


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "datasets/cnns/resnet50.csv", "../x.onnx", "resnet50.csv", "x.ONNX"]
)
def test_a_name_is_never_a_path_on_the_server(client, name, tmp_path):
    assert f"no CNN is called '{name}'" in refusal(client, 404, cnn=name)["detail"]


@pytest.mark.parametrize("name", ["host.json", "/etc/host.csv", "x.csv.gz", "x.PARQUET"])
def test_a_host_is_never_a_file_of_the_server(client, name):
    assert "is a file, which a service does not read" in refusal(client, host=name)["detail"]


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
    found = refused(client.post("/v1/predictions", content=b"x", headers={"Content-Type": "text/csv"}), 415)
    assert "Valid: application/json. `POST /v1/cnns` takes an ONNX file" in found["detail"]


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
    ("boundary", "content", "said"),
    [
        ("", b"x", "No boundary"),
        ("; boundary=b", _ONNX_FIELD + b"x\r\n--b\r\n", "does not end with its boundary"),
        ("; boundary=b", b"--b\r\nnonsense\r\n--b--", "header"),
        ("; boundary=b", b"--b\r\nX: y\r\n\r\n\r\n--b--", "name not found"),
        ("; boundary=b", b"\r\n--c" * 1_000_000, "damaged"),
    ],
)
def test_a_damaged_form_is_refused(client, boundary, content, said):
    headers = {"Content-Type": f"multipart/form-data{boundary}"}
    found = refused(client.post("/v1/cnns", content=content, headers=headers), 400)
    assert said in found["detail"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_sizes": []}, "after validation, not 0; give one or several, such as [32, 64]"),
        ({"gpus": []}, "`GET /v1/gpus` lists them"),
        ({"samples": 2_000_000}, "images of imagenet. Pass fewer, or leave the data set out."),
        ({"batchsizes": [1]}, "batchsizes: Extra inputs are not permitted. Nearest: 'batch_sizes'"),
        ({"epochs": 90}, "epochs: Extra inputs are not permitted; given: 90. POST /v1/comparisons takes it"),
        ({"anchor": []}, "anchor: Extra inputs are not permitted. Nearest: 'anchors'"),
    ],
)  # fmt: skip
def test_a_refusal_says_the_next_step(client, changes, said):
    found = refusal(client, **changes)["detail"]
    assert said in found
    assert not found.startswith("body")


@pytest.mark.parametrize(
    "changes", [{"gpus": ["T5"]}, {"gpus": ["MI300X"]}, {"cnn": "resnet17"}, {"host": "xeon"}]
)
def test_an_unknown_name_is_refused_without_a_command(client, changes):
    question = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [64]}
    said = client.post("/v1/predictions", json=question | changes).json()["detail"]
    assert "epochcast" not in said
    assert "GET /v1/" in said or "Leave it out" in said


def test_a_change_is_refused_with_an_example(client):
    question = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [64]}
    for change in ({}, {"after": "vgg16"}):
        found = refused(client.post("/v1/differences", json=question | change), 422)
        assert 'such as {"cnn": "vgg16_bn"}' in found["detail"]


def test_an_unknown_key_of_stored_is_told_the_nearest(client):
    question = {"cnn": "resnet50", "batch_sizes": [1], "stored": {"gpu": "L40S", "hosts": "desk"}}
    found = refused(client.post("/v1/calibrations", json=question), 422)
    assert "stored.hosts: Extra inputs are not permitted; given: 'desk'. Nearest: 'host'" in found["detail"]


def test_a_path_that_is_not_there_is_told_the_nearest(client):
    found = refused(client.post("/v1/prediction", json=GOOD), 404)
    assert "no path '/v1/prediction'. Nearest: '/v1/predictions'" in found["detail"]


def test_a_wrong_method_is_told_the_right_one(client):
    answer = client.get("/v1/predictions")
    assert "/v1/predictions takes POST, not GET." in refused(answer, 405)["detail"]
    assert answer.headers["allow"] == "POST"
    assert "takes GET and POST, not DELETE" in refused(client.delete("/v1/cnns"), 405)["detail"]


@pytest.mark.parametrize(
    ("path", "said"),
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
def test_a_parameter_that_nobody_knows_is_refused(client, path, said):
    assert said in refused(client.get(path), 422)["detail"]


def test_what_is_not_there_and_wrong_methods_are_problems_too(client):
    refused(client.get("/v1/nothing"), 404)
    refused(client.get("/v1/predictions"), 405)
    refused(client.get("/v1/gpus/T5"), 404)
    refused(client.get("/v1/cnns/resnet51"), 404)
    refused(client.get("/v1/cnns/resnet50?image_size=x"), 422)


def test_every_error_of_the_tree_has_a_status():
    kinds = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, EpochcastError)
    ]
    for kind in kinds:
        status = next(status for known, status in STATUS_OF.items() if issubclass(kind, known))
        assert status in TITLES


def test_a_damaged_new_model_is_reported_while_the_old_one_answers(client, monkeypatch):
    assert client.get("/readyz").json()["model_problem"] is None
    monkeypatch.setattr(client.app.state.serving.model, "problem", "the file is damaged. Refit it.")
    found = client.get("/readyz")
    assert (found.status_code, found.json()["model_problem"]) == (200, "the file is damaged. Refit it.")
    assert client.get("/healthz").text == "ok\n"


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({"gpus": ["T5"]}, "gpus"),
        ({"cnn": "resnet51"}, "cnn"),
        ({"precisions": ["tf32"]}, "precision"),
        ({"data_set": "imagenit"}, "data_set"),
        ({"data_set": "mnist", "samples": 10**6}, "samples"),
        ({"host": "8088"}, "host"),
        ({"method": "proxy-times"}, "method"),
        ({"n_gpus": 4, "batch_sizes": [6]}, "batch_sizes"),
        ({"n_gpus": 4, "link": "rope"}, "link"),
        ({"validation_samples": 5}, "validation_samples"),
        ({"layer_table": {"layers": [{"type": "activation"}]}, "cnn": None}, "layer_table"),
    ],
)
def test_a_refusal_of_the_core_names_the_field_at_fault_as_data(client, question, field):
    asked = {"cnn": "resnet18", "gpus": ["T4"], "batch_sizes": [8], **question}
    refusal = client.post("/v1/predictions", json=asked).json()
    assert refusal["errors"] == [{"field": field, "detail": refusal["detail"]}]


@pytest.mark.parametrize("path", ["/v1/gpus/T5", "/v1/cnns/resnet51"])
def test_what_a_path_names_is_no_field(client, path):
    assert "errors" not in refused(client.get(path), 404)
