"""GPUs, offers, CNNs, data sets and models: what can be asked about."""

import json
from dataclasses import asdict

from case_tables import each_row

from api.questions import LISTED, ComparisonQuestion, ExplanationQuestion, PredictionQuestion
from predictor.answers.options import options_of
from predictor.answers.question import Plan, Question
from predictor.catalogue.data_sets import training_sets
from predictor.catalogue.devices import all_gpus, precisions_of
from predictor.catalogue.offers import load_offers
from predictor.cnns.proxies import FOUNDING_PROXIES
from predictor.cnns.zoo import zoo_cnn, zoo_names

KNOWN = {**options_of(Question), **options_of(Plan)}


def answer_of(client, path):
    response = client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


def test_gpus_offers_and_cnns_are_listed_and_shown_and_can_be_asked_about(client):
    listed = answer_of(client, "/v1/gpus")
    assert [gpu_row["gpu"]["name"] for gpu_row in listed] == [gpu.name for gpu in all_gpus()]
    assert [tuple(gpu_row["precisions"]) for gpu_row in listed] == [precisions_of(gpu) for gpu in all_gpus()]
    assert {gpu_row["measured"] for gpu_row in listed} == {True, False}
    turing = answer_of(client, "/v1/gpus?generation=Turing")
    assert {gpu_row["gpu"]["generation"] for gpu_row in turing} == {"turing"}
    assert client.get("/v1/gpus?generation=x").status_code == 422
    assert answer_of(client, "/v1/gpus/rtx-3090")["gpu"]["name"] == "GeForce RTX 3090"
    assert answer_of(client, "/v1/gpus/Tesla%20T4")["gpu"]["memory_gib"] == 16
    listed = answer_of(client, "/v1/offers")
    assert len(listed) == sum(not offer.historic for offer in load_offers())
    assert [offer["usd_per_hour"] for offer in listed] == sorted(offer["usd_per_hour"] for offer in listed)
    assert len(answer_of(client, "/v1/offers?historic=true")) == len(load_offers())
    assert {offer["gpu"] for offer in answer_of(client, "/v1/offers?gpu=T4")} == {"Tesla T4"}
    assert client.get("/v1/offers?gpu=T5").status_code == 404
    assert [cnn_row["cnn"] for cnn_row in answer_of(client, "/v1/cnns")] == [*zoo_names(), *FOUNDING_PROXIES]
    shown = answer_of(client, "/v1/cnns/resnet18?image_size=64")
    assert shown["layers"] == json.loads(json.dumps([asdict(layer) for layer in zoo_cnn("resnet18", 64)]))
    shown = answer_of(client, "/v1/cnns/mobilenet_v2")
    table = {"name": shown["cnn"], "image_size": shown["image_size"], "layers": shown["layers"]}
    question = {"gpus": ["T4"], "batch_sizes": [8]}
    sent = client.post("/v1/predictions", json=question | {"layer_table": table}).json()["rows"]
    assert sent == client.post("/v1/predictions", json=question | {"cnn": "mobilenet_v2"}).json()["rows"]


def test_options_are_listed_with_the_questions_that_take_them_data_sets_and_the_model_s_card_too(client):
    """A question takes an option if and only if the list says so."""
    questions = {"predictions": PredictionQuestion, "comparisons": ComparisonQuestion}
    questions |= {"explanations": ExplanationQuestion}
    listed = {option["name"]: option for option in answer_of(client, "/v1/options")}
    assert {name for name, option in listed.items() if option["kind"] == "choice"} == {
        name for name, option in KNOWN.items() if option.kind == "choice"
    }
    for path, question in questions.items():
        taken = {
            option["listed"] if path == "predictions" and option["listed"] else name
            for name, option in listed.items()
            if path in option["answers"]
        }
        options = {LISTED.get(name, name) if path == "predictions" else name for name in KNOWN}
        assert taken == options & set(question.model_fields) - {"measurements"}
    assert (listed["epochs"]["default"], listed["precision"]["default"]) == (1, None)
    assert listed["method"]["needs"]["anchored"] == "anchors"
    assert [data_set["name"] for data_set in answer_of(client, "/v1/data_sets")] == list(training_sets())
    (model,) = answer_of(client, "/v1/models")
    assert model["card"]["accuracy"]
    assert model["trained_on"] in client.post(
        "/v1/predictions", json={"cnn": "resnet18", "gpus": ["T4"], "batch_sizes": [8]}
    ).json()["covers"][0]  # fmt: skip
    assert "Tesla T4" in model["measured_gpus"]


@each_row
def test_what_changes_rarely_is_kept_by_clients_and_a_refusal_is_not(client, path):
    first = client.get(f"/v1/{path}")
    assert first.headers["cache-control"] == "public, max-age=60"
    again = client.get(f"/v1/{path}", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "etag" not in client.get("/v1/gpus/T5").headers


def test_a_proxy_is_a_cnn_of_every_shape_that_its_name_can_say(client):
    assert answer_of(client, "/v1/cnns/16_128_128")["image_size"] == 16
    question = {"cnn": "56_64_256_k1_s1_g1", "gpus": ["T4"], "batch_sizes": [32]}
    assert client.post("/v1/predictions", json=question).json()["rows"][0]["iteration_time_ms"] > 0
    refused = client.post("/v1/predictions", json=question | {"cnn": "56_64_256_k1_s1_g3"})
    assert (refused.status_code, "3 groups do not divide" in refused.json()["detail"]) == (422, True)
