"""No admitted question works longer than about a second; every usual one is admitted."""

import random

import pytest

from api.questions import check_work
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.catalogue.devices import all_gpus
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import OutOfRangeError

MODES = {
    "precisions": ["fp32", "tf32", "fp16", "amp_fp16", "amp_bf16"],
    "memory_formats": ["nchw", "channels_last"],
}
SIZES = random.Random(1).sample(range(1, 60_000), 150)  # noqa: S311 - no secret


def table_of(n):
    """A chain of convolutions, no two alike."""
    conv = {"type": "conv2d", "in_height": 8, "in_width": 8, "out_height": 8, "out_width": 8}
    conv |= {"kernel_height": 3, "kernel_width": 3, "padding_height": 1, "padding_width": 1}
    conv |= {"stride_height": 1, "stride_width": 1, "groups": 1, "dilation": 1}
    channels = [(3 + i, 4 + i) for i in range(n)]
    layers = [
        conv | {"in_channels": n_in, "out_channels": n_out, "parameters": n_in * n_out * 9}
        for n_in, n_out in channels
    ]
    return {"layer_table": {"name": f"chain of {n}", "image_size": 8, "layers": layers}}


RUN = {"cnn": "resnet18", "image_size": 224, "precision": "fp32", "gpu": "T4"}


def runs(n, **more):
    """Columns of a table of n runs of a CNN at n batch sizes."""
    columns = {name: [value] * n for name, value in (RUN | more).items()}
    sizes = list(range(1, n + 1))
    return columns | {"batch_size": sizes, "iteration_time_ms": [9.0 * size for size in sizes]}


@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("predictions", {"cnn": "densenet201", "gpus": ["all"], "batch_sizes": SIZES[:15]} | MODES),
        ("predictions", table_of(4000) | {"gpus": ["all"], "batch_sizes": SIZES[:20]}),
        ("predictions", table_of(4000) | {"gpus": ["H200"], "batch_sizes": [1]} | MODES),
        ("comparisons", table_of(4000) | {"batch_sizes": SIZES, "samples": 1000}),
        ("explanations", table_of(2000) | {"gpus": ["H200"], "batch_sizes": [1]}),
        (
            "calibrations",
            table_of(4000) | {"gpus": ["all"], "batch_sizes": SIZES[:20], "measurements": runs(1)},
        ),
    ],
)
def test_a_question_that_would_work_for_seconds_is_refused_with_how_to_ask(client, path, question):
    answer = client.post(f"/v1/{path}", json=question)
    assert answer.status_code == 422, answer.text
    assert "Ask in several parts: fewer GPUs, precisions or batch sizes" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["predictions", "calibrations", "comparisons", "explanations"])
def test_more_runs_of_a_cnn_than_are_used_are_refused_by_their_number(client, path):
    question = {"cnn": "resnet18", "gpus": ["T4"], "batch_sizes": [8], "measurements": runs(501)}
    answer = client.post(f"/v1/{path}", json=question | ({"samples": 1} if path == "comparisons" else {}))
    assert answer.status_code == 422
    assert "501 runs of resnet18 at image size 224 in fp32; at most 500" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["predictions", "calibrations"])
def test_measured_runs_and_anchors_that_correct_many_gpus_count_as_work(client, path):
    question = {"cnn": "resnet18", "gpus": ["all"], "batch_sizes": [8], "measurements": runs(400)}
    answer = client.post(f"/v1/{path}", json=question)
    assert (answer.status_code, "corrected by 400 runs" in answer.json()["detail"]) == (422, True)


def test_anchors_of_many_gpus_count_as_work_and_layers_of_one_shape_once(client):
    anchors = [{"gpu": "T4", "batch_size": size, "iteration_time_ms": 9.0 * size} for size in range(1, 201)]
    question = {"cnn": "resnet18", "gpus": ["all"], "batch_sizes": [8], "anchors": anchors}
    assert client.post("/v1/predictions", json=question).status_code == 200
    answer = client.post("/v1/predictions", json=question | {"memory_formats": ["nchw", "channels_last"]})
    assert (answer.status_code, "corrected by 200 runs" in answer.json()["detail"]) == (422, True)
    deep = {"layer_table": zoo_cnn("resnet152").document(), "gpus": ["all"], "batch_sizes": SIZES[:60]}
    answer = client.post("/v1/predictions", json=deep)
    assert answer.status_code == 200, answer.text


def test_more_inputs_of_layers_than_are_looked_at_in_a_second_are_refused(client):
    question = table_of(2000) | {"gpus": ["T4"], "batch_sizes": [1]}
    for position, row in enumerate(question["layer_table"]["layers"]):
        row["inputs"] = list(range(max(0, position - 60), position))
    answer = client.post("/v1/predictions", json=question)
    assert answer.status_code == 422
    assert "name 118,170 rows; at most 100,000" in answer.json()["detail"]


def admitted(model, name, sizes, **extent):
    try:
        check_work(ResolvedQuestion(Question(name, "T4", SIZES[:sizes], model=model)), **extent)
    except OutOfRangeError:
        return False
    return True


def test_every_cnn_of_the_zoo_is_answered_on_all_gpus_and_explained_on_eight(client):
    model, gpus = client.app.state.serving.model.current, len(all_gpus())
    on_all = {"gpus": gpus, "modes": 1, "sizes": 20, "rows": 20 * gpus}
    explained = {"gpus": 8, "modes": 10, "sizes": 10, "repeats": 2}
    refused = [
        name for name in zoo_names() for extent in (on_all, explained) if not admitted(model, name, **extent)
    ]
    assert not refused
