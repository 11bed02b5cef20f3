"""`epochcast profile input` prints rates by workers, and writes the file that questions take as --loader."""

import json

import pytest

from predictor.measurements.inputs import InputMeasurement, WorkerRate, read_input
from proxy_cnns import input_pipeline

MEASURED = InputMeasurement(
    "a host, 4 cores", 4, "torchvision", 224, 200, 0.106, 0.19,
    (WorkerRate(0, 90.0), WorkerRate(1, 100.0), WorkerRate(4, 320.0)),
    read_us=12.0, decode_us=2000.0, augment_us=900.0,
)  # fmt: skip


@pytest.fixture
def measurement_arguments(monkeypatch):
    """What was measured, without measuring."""
    calls = []

    def measure(*arguments, stored):
        calls.extend((*arguments, stored))
        return MEASURED

    monkeypatch.setattr(input_pipeline, "measure_input", measure)
    return calls


def test_it_prints_rates_and_the_parts_of_an_image_of_the_machine(epochcast, measurement_arguments):
    run = epochcast("profile", "input")
    assert run.code == 0
    assert "3.20" in run.out
    assert "reading 12.0, decoding 2,000, augmenting 900" in " ".join(run.out.split())
    assert measurement_arguments == [None, 224, [], None, 3.0, "jpeg"]
    answer = json.loads(epochcast("profile", "input", "--format", "json").out)
    assert [row["workers"] for row in answer["rows"]] == [0, 1, 4]
    assert (answer["vcpus"], answer["decode_us"]) == (4, 2000.0)


def test_options_reach_the_measurement(epochcast, measurement_arguments, tmp_path):
    epochcast(
        "profile", "input", tmp_path, "--image-size", 64, "--workers", "0,1", "--workers", 8,
        "--loader", "pillow", "--seconds", "1min", "--arrays",
    )  # fmt: skip
    assert measurement_arguments == [tmp_path, 64, [0, 1, 8], "pillow", 60.0, "array"]


def test_the_file_that_it_writes_answers_questions(epochcast, measurement_arguments, tmp_path):
    path = tmp_path / "input.json"
    run = epochcast("profile", "input", "--out", path)
    assert f"--loader {path}" in " ".join(run.out.split()).replace("\n", "")
    assert read_input(path) == MEASURED
    question = ("predict", "resnet50", "-g", "H200", "-b", 256, "--samples", 50_000, "--workers", 2)
    answer = epochcast(*question, "--loader", path, "--json")
    [row] = json.loads(answer.out)["rows"]
    rate = 100 + (320 / 4 - 100) / 3  # between the rate of 1 worker and that of each of 4
    assert (row["loading_time_ms"], row["bottleneck"]) == (pytest.approx(256_000 / (2 * rate)), "loading")


def test_a_folder_without_images_is_refused_in_one_line(epochcast, tmp_path):
    pytest.importorskip("PIL", reason="Pillow is not installed: no image is loaded")
    run = epochcast("profile", "input", tmp_path)
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "holds no image" in run.err
