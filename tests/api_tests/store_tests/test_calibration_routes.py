"""`/v1/calibrations`: a GPU that nobody profiled is answered for as soon as somebody has."""

import json
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from api.store.keys import add_key, find_key
from api.store.measurements import delete_upload, store_rows
from api.store.uploads import rows_of, table_of_rows
from predictor.answers.answer import predict
from predictor.cnns.zoo import zoo_cnn
from predictor.operators.operators import operator_row, operators_of

GPU = "NVIDIA L40S"
QUESTION = {"cnn": "resnet18", "batch_sizes": [32, 64], "data_set": "imagenet", "precisions": ["fp32"]}
REFUSALS = json.loads(Path(__file__).with_name("refusals.json").read_text(encoding="utf-8"))
"""Changes of `QUESTION` with the status and words of their refusal."""

one_database = pytest.mark.parametrize("database", ["sqlite"])
"""For what is decided before the store is asked."""


@pytest.fixture(scope="module")
def profile():
    """What `epochcast profile --preset quick` might write: every operator of two CNNs at two batch sizes."""
    operators = {**operators_of(zoo_cnn("resnet18", 224)), **operators_of(zoo_cnn("vgg11", 224))}
    run = {"source": "quick", "framework": "pytorch", "gpu": GPU, "host": "desk", "host_time_ms": 0.02}
    run |= {"precision": "fp32", "memory_format": "nchw"}
    rows = []
    for (i, operator), batch_size in product(enumerate(operators), (16, 128)):
        times = dict.fromkeys(("iteration_time_ms", "gpu_time_ms"), (0.01 + 0.001 * i) * batch_size / 32)
        sizes = {"image_size": operator.in_height or 1, "batch_size": batch_size}
        rows.append(operator_row(operator) | run | sizes | times)
    return rows


@pytest.fixture
def stored(store, profile, key_id):
    """The profile, uploaded by alice."""
    store_rows(store, rows_of(table_of_rows(profile))[1], key_id)


def local(profile):
    options = {"data_set": "imagenet", "precision": "fp32", "measurements": pd.DataFrame(profile)}
    rows = predict("resnet18", GPU, [32, 64], **options)
    return [asdict(row) | {"extrapolates": [asdict(reason) for reason in row.extrapolates]} for row in rows]


def test_rows_sent_along_answer_at_once_as_the_core_does_and_are_not_stored(http, profile):
    answer = http.post("/v1/calibrations", json=QUESTION | {"measurements": profile})
    assert answer.status_code == 200
    assert answer.json()["rows"] == local(profile)
    assert [row["method"] for row in answer.json()["rows"]] == ["layer-times"] * 2
    assert answer.json()["measured"]["operators"] == len(profile)
    assert http.get("/v1/measurements").json()["rows"] == []


def test_stored_rows_answer_as_the_same_rows_sent_along(http, profile, stored):
    answer = http.post("/v1/calibrations", json=QUESTION | {"stored": {"gpu": "l40s"}}).json()
    assert [row["iteration_time_ms"] for row in answer["rows"]] == pytest.approx(
        [row["iteration_time_ms"] for row in local(profile)], rel=1e-6
    )
    assert answer["measured"]["keys"] == {"alice": len(profile)}


def test_rows_of_a_key_that_one_trusts_are_chosen_by_its_name(http, store, profile, stored):
    bob = find_key(store, add_key(store, "bob"))
    wrong = [row | {"iteration_time_ms": 1e6, "gpu_time_ms": 1e6} for row in profile]
    store_rows(store, rows_of(table_of_rows(wrong))[1], bob.id)
    question = QUESTION | {"stored": {"gpu": GPU, "key": "alice"}}
    assert http.post("/v1/calibrations", json=question).json()["measured"]["keys"] == {"alice": len(profile)}


@one_database
def test_another_question_about_the_same_rows_needs_no_other_fit(http, app, profile, monkeypatch):
    from predictor.answers.resolved import OwnMeasurements

    first = http.post("/v1/calibrations", json=QUESTION | {"measurements": profile})
    monkeypatch.setattr(OwnMeasurements, "of", lambda *_: pytest.fail("fitted again"))
    second = http.post("/v1/calibrations", json=QUESTION | {"measurements": profile[::-1], "cnn": "vgg11"})
    assert (first.status_code, second.status_code) == (200, 200)


@one_database
@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: str(row["change"]))
def test_a_question_that_makes_no_sense_is_refused_by_its_field(http, stored, row):
    answer = http.post("/v1/calibrations", json=QUESTION | row["change"])
    assert answer.status_code == row["status"]
    assert row["words"] in answer.json()["detail"]


@one_database
@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"{", b"\xff", b'{"measurements": NaN}', b"[" * 100_000])
def test_a_body_that_is_no_question_is_refused(http, body):
    answer = http.post("/v1/calibrations", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


@one_database
def test_any_precision_and_form_may_be_asked_as_for_predictions(http, profile):
    question = QUESTION | {"measurements": profile, "precisions": ["fp32", "tf32"], "form": "columns"}
    answer = http.post("/v1/calibrations", json=question).json()
    assert answer["n_rows"] == 4
    assert len(answer["covers"]) == 2


@one_database
def test_a_cnn_of_ones_own_may_be_asked_about(http, profile):
    layers = http.get("/v1/cnns/vgg11").json()["layers"]
    question = {"layer_table": {"name": "vgg11", "layers": layers}, "measurements": profile}
    question |= {"batch_sizes": [32], "precisions": ["fp32"]}
    assert http.post("/v1/calibrations", json=question).json()["rows"][0]["method"] == "layer-times"


def test_a_deleted_upload_is_used_by_no_calibration_any_longer(http, store, stored):
    question = QUESTION | {"stored": {"gpu": GPU}}
    assert http.post("/v1/calibrations", json=question).status_code == 200
    delete_upload(store, 1)
    answer = http.post("/v1/calibrations", json=question)
    assert (answer.status_code, "no measurement of NVIDIA L40S is stored" in answer.text) == (422, True)


@one_database
@pytest.mark.parametrize("time", [1e-320, 1e-7, 1e300])
def test_times_that_nothing_takes_are_refused_and_never_answered_with_infinity(http, profile, time):
    rows = [row | {"iteration_time_ms": time, "gpu_time_ms": time} for row in profile]
    answer = http.post("/v1/calibrations", json=QUESTION | {"measurements": rows})
    assert answer.status_code == 422
    assert "Infinity" not in answer.text
