"""`/v1/predictions` gives what `epochcast.predict` gives, field by field."""

import csv
import json
import re
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest
from case_tables import table
from fastapi.testclient import TestClient

import epochcast
from api.main import create_app
from api.settings import Settings
from predictor.answers.answer import PredictionRow, predict
from predictor.cnns.zoo import zoo_cnn
from predictor.files import data_root
from predictor.measurements.table import read_measurements

ASKED = {"cnn": "resnet50", "gpus": ["T4", "H200"], "batch_sizes": [32, 64], "data_set": "imagenet"}


def ask(client, expected=200, **question):
    response = client.post("/v1/predictions", json=ASKED | question)
    assert response.status_code == expected, response.text
    return response.json()


def rows_of_columns(answer):
    columns = {
        name: [values["values"][code] for code in values["codes"]] if isinstance(values, dict) else values
        for name, values in answer["columns"].items()
    }
    return [{name: values[i] for name, values in columns.items()} for i in range(answer["n_rows"])]


def assert_same(rows, expected):
    assert [set(row) for row in rows] == [set(PredictionRow.__slots__)] * len(expected)
    core_rows = json.loads(json.dumps([asdict(prediction) for prediction in expected]))
    for row, core_row in zip(rows, core_rows, strict=True):
        assert row == {
            name: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            for name, value in core_row.items()
        }


OPTIONS = table(__file__, "options of predictions")


@pytest.mark.parametrize("form", ["rows", "columns"])
@pytest.mark.parametrize("options", OPTIONS)
def test_answers_are_those_of_the_core(client, options, form):
    core = {"data_set": "imagenet"} | options
    question = {"data_set": "imagenet", "form": form} | options
    for option, listed in (("precision", "precisions"), ("memory_format", "memory_formats")):
        if option in question:
            question[listed] = [question.pop(option)]
    answer = ask(client, **question)
    rows = answer["rows"] if form == "rows" else rows_of_columns(answer)
    assert_same(rows, predict("resnet50", ["T4", "H200"], [32, 64], **core))


def test_the_second_time_is_as_the_first_until_another_model_is_served(client, another_model):
    question = {"gpus": ["P100-PCIE-16GB"], "batch_sizes": [7, 5, 7]}
    first = ask(client, **question)
    assert [row["batch_size"] for row in first["rows"]] == [5, 7]
    assert ask(client, **question) == first
    assert ask(client, **question, data_set=None, samples=1_281_167)["rows"] == first["rows"]
    before = ask(client)["rows"][0]["trained_on"]
    previous = client.app.state.serving.model.current
    another_model(trained_on="something else")
    assert ask(client)["rows"][0]["trained_on"] == "something else"
    client.app.state.serving.model.serve(previous)
    assert ask(client)["rows"][0]["trained_on"] == before


def test_rows_run_over_precisions_formats_gpus_batch_sizes_and_leave_out_a_gpu_that_lacks_one(client):
    answer = ask(
        client, gpus=["H200", "A100-SXM4-40GB"], precisions=["fp32", "tf32"], memory_formats=["nchw", "channels_last"]
    )  # fmt: skip
    modes = [(r["precision"], r["memory_format"], r["gpu"][7:11], r["batch_size"]) for r in answer["rows"]]
    precisions, formats, gpus = ("fp32", "tf32"), ("nchw", "channels_last"), ("H200", "A100")
    assert modes == [*product(precisions, formats, gpus, (32, 64))]
    assert len(answer["covers"]) == 4
    answer = ask(client, precisions=["fp32", "amp_bf16"], batch_sizes=[32])
    both = [("Tesla T4", "fp32"), ("NVIDIA H200", "fp32"), ("NVIDIA H200", "amp_bf16")]
    assert [(r["gpu"], r["precision"]) for r in answer["rows"]] == both
    why = "the GPU has fp32, fp16, amp_fp16"
    assert answer["left_out"] == [{"gpu": "Tesla T4", "precision": "amp_bf16", "why": why}]
    problem = ask(client, 422, gpus=["T4"], precisions=["amp_bf16"])
    assert "Tesla T4 (compute capability 7.5) has no amp_bf16. It has: fp32" in problem["detail"]


def test_several_trainings_beside_it_are_a_list_or_one_text(client):
    listed, text = (
        ask(client, gpus=["H200"], batch_sizes=[8], beside=b)
        for b in (["lenet5:8", "vgg16:4"], "lenet5:8,vgg16:4")
    )
    assert listed["rows"] == text["rows"]


@pytest.mark.parametrize("route", ["comparisons", "explanations"])
def test_other_answers_leave_a_gpu_out_as_predictions_do(client, route):
    question = {"cnn": "resnet18", "gpus": ["T4", "H200"], "batch_sizes": [32], "precision": "amp_bf16"}
    question |= {"data_set": "imagenet"} if route == "comparisons" else {}
    answer = client.post(f"/v1/{route}", json=question).json()
    assert {row["gpu"] for row in answer["rows" if "rows" in answer else "explanations"]} == {"NVIDIA H200"}
    assert [(left["gpu"], left["precision"]) for left in answer["left_out"]] == [("Tesla T4", "amp_bf16")]


def test_a_layer_table_and_a_name_with_an_image_size_are_answered_like_the_cnn_that_they_are(client):
    table = json.loads(json.dumps(asdict(zoo_cnn("resnet18", 64))))
    sent = {"name": "resnet18", "image_size": 64, "layers": table["layers"]}
    answer = ask(client, cnn=None, layer_table=sent, data_set="cifar10")
    expected = predict("resnet18", ["T4", "H200"], [32, 64], image_size=64, data_set="cifar10")
    assert_same(answer["rows"], expected)
    row = {"gpu": "T4", "cnn": "resnet50", "image_size": 224, "batch_size": 32, "precision": "fp32"}
    answer = ask(client, measurements=[row | {"iteration_time_ms": 300.0}])
    anchored = ask(client, anchors=[{"gpu": "T4", "batch_size": 32, "iteration_time_ms": 300.0}])
    assert answer["rows"] == anchored["rows"]
    assert answer["rows"][0]["method"] == "anchored"
    assert ask(client, cnn="resnet18@32")["rows"] == ask(client, cnn="resnet18", image_size=32)["rows"]


def test_proxies_among_the_measurements_answer_a_gpu_that_no_model_knows(client):
    rows = read_measurements(data_root() / "measurements" / "h200_pytorch_founding_more_proxies.csv.gz")
    columns = ["cnn", "image_size", "batch_size", "kind", "iteration_time_ms", "gpu_time_ms", "host_time_ms"]
    proxies = rows[columns].assign(gpu="Tesla K80", precision="fp32").to_dict("records")
    question = {"cnn": "resnet18@32", "gpus": ["K80"], "batch_sizes": [64], "method": "proxy-times"}
    assert client.post("/v1/predictions", json=question).status_code == 422
    answer = client.post("/v1/predictions", json=question | {"measurements": proxies}).json()
    [row] = answer["rows"]
    assert (row["method"], row["gpu"]) == ("proxy-times", "Tesla K80")
    assert row["high_ms"] / row["low_ms"] > 3.0  # another chip than those of the fit


def test_the_study_s_question_is_answered_by_a_model_fitted_on_tables_of_a_processor(tmp_path):
    folder = data_root() / "measurements"
    tables = [folder / f"cpu_chainer_{name}.csv.gz" for name in ("founding_proxies", "cnns")]
    epochcast.fit(tables, methods=["proxy-times"], out=tmp_path / "model.json")
    page = Path(__file__).parents[2] / "docs" / "study.md"
    [question] = re.findall("--json '(.+)'", page.read_text(encoding="utf-8"))
    settings = Settings(store="", model=str(tmp_path / "model.json"), log_level="error")
    with TestClient(create_app(settings)) as service:
        [row] = service.post("/v1/predictions", json=json.loads(question)).json()["rows"]
    assert (row["method"], row["batch_size"], row["low_ms"] > 0) == ("proxy-times", 24, True)


def test_rows_come_as_csv_where_that_alone_is_accepted(client):
    question = {"cnn": "resnet18", "gpus": ["T4", "H200"], "batch_sizes": [8], "samples": 1000}
    for path in ("predictions", "comparisons"):
        rows = client.post(f"/v1/{path}", json=question).json()["rows"]
        answer = client.post(f"/v1/{path}", json=question, headers={"Accept": "text/csv"})
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        lines = list(csv.DictReader(answer.text.splitlines()))
        assert [line["gpu"] for line in lines] == [row["gpu"] for row in rows]
        times = [float(line["iteration_time_ms"]) for line in lines]
        assert times == [row["iteration_time_ms"] for row in rows]
    columns = client.post(
        "/v1/predictions", json=question | {"form": "columns"}, headers={"Accept": "text/csv"}
    )
    assert (columns.status_code, "no rows" in columns.json()["detail"]) == (422, True)
