"""`epochcast explain` as a user meets it: tables, JSON, CSV, pictures, refusals; the same numbers from Python."""

import csv
import io
import json
from dataclasses import replace

import pytest

import epochcast as face
from predictor.cnns.layer_table import Step
from predictor.cnns.zoo import zoo_cnn

ASKED = ("resnet50", "-g", "H200", "--precision", "tf32", "-b", "1,64")
HEADER = (
    "gpu,cnn,image_size,batch_size,precision,samples_per_epoch,iteration_time_ms,gpu_time_ms,host_time_ms"
)


@pytest.fixture
def table(tmp_path):
    """Two modes of ResNet-50, one of LeNet-5."""
    path = tmp_path / "mine.csv"
    rows = [
        "H200,resnet50,224,4,tf32,1000,11.6,4.6,11.5",
        "H200,resnet50,224,8,tf32,1000,11.7,6.2,11.5",
        "H200,resnet50,224,64,tf32,1000,32.2,31.0,12.0",
        "H200,resnet50,224,64,amp_bf16,1000,28.8,27.5,13.2",
        "H200,lenet5,28,64,tf32,1000,1.8,0.2,1.7",
    ]
    path.write_text("\n".join([HEADER, *rows]))
    return path


def test_json_has_the_whole_explanation_and_csv_the_numbers_of_python(epochcast):
    [row] = json.loads(epochcast("explain", *ASKED, "--format", "json").out)["rows"]
    assert row["batch_sizes"] == [1, 64]
    assert sum(ms[0] for ms in row["classes"].values()) == pytest.approx(row["gpu_time_ms"][0])
    assert len(row["other_modes"]) == 10
    assert row["small_batch_law"]["k_s"] is None
    rows = list(csv.DictReader(io.StringIO(epochcast("explain", *ASKED, "--format", "csv").out)))
    assert [row["batch_size"] for row in rows] == ["1", "64"]
    assert float(rows[0]["launch_bound_ms"]) > 0
    frame = face.explain("resnet50", "H200", [1, 64], precision="tf32")
    assert list(frame["convolution_ms"]) == [float(row["convolution_ms"]) for row in rows]


def test_batch_sizes_are_the_usual_ones_those_of_a_part_or_those_of_a_step_and_ways_to_share_are_shown(
    epochcast, tmp_path
):
    step = Step(32, parts=4, optimizer="sgd")
    replace(zoo_cnn("lenet5"), step=step).to_csv(tmp_path / "step.csv")
    run = epochcast("explain", str(tmp_path / "step.csv"), "--gpu", "H200", "--format", "csv")
    assert [row["batch_size"] for row in csv.DictReader(io.StringIO(run.out))] == ["32"]
    question = ("explain", "lenet5", "--gpu", "H200", "--format", "csv", "--gradient-accumulation", "4")
    sizes = [int(row["batch_size"]) for row in csv.DictReader(io.StringIO(epochcast(*question).out))]
    assert sizes
    assert all(size % 4 == 0 for size in sizes)
    answer = json.loads(epochcast("explain", "lenet5", "-g", "T4", "--format", "json").out)
    assert answer["rows"][0]["batch_sizes"] == [2**i for i in range(10)]
    question = ("explain", "lenet5", "-g", "H200", "-b", "64", "--parallel", "4")
    rows = json.loads(epochcast(*question, "--format", "json").out)["rows"]
    assert [row["way"] for row in rows] == ["one", "data", "channels", "rows", "layers"]


def test_cnns_and_options_choose_from_a_table_or_data_frame_whose_noise_is_said(epochcast, table):
    notes = [
        "notes",
        "disturbed: other processes used 51 %",
        "",
        "wall time's median known to 55.7 %",
        "",
        "",
    ]
    lines = [f"{line},{note}" for line, note in zip(table.read_text().splitlines(), notes, strict=True)]
    table.write_text("\n".join(lines))
    output = " ".join(epochcast("explain", table, "resnet50", "--precision", "tf32").out.split())
    assert "noise: 1 of 3 measurements were disturbed by other work" in output
    assert "noise: 1 of 3 measured times are uncertain by more than 10 %, at worst by 55.7 %" in output
    question = ("explain", table, "resnet50", "--format", "json")
    [row] = json.loads(epochcast(*question, "--precision", "tf32", "-b", "64").out)["rows"]
    assert (row["iteration_time_ms"], row["low_ms"], row["bound"]) == ([32.2], [None], ["memory"])
    rows = json.loads(epochcast(*question).out)["rows"]
    assert {row["precision"]: row["other_modes"][0]["factor"] for row in rows} == {
        "amp_bf16": [pytest.approx(32.2 / 28.8)],
        "tf32": [None, None, pytest.approx(28.8 / 32.2)],
    }
    frame = face.explain([face.load_measurements(table), "lenet5"])
    assert list(frame["bound"]) == ["host"]
    assert "Nothing is predicted" in frame.attrs["covers"]


def test_backward_stands_beside_forward_in_a_hundred_columns(epochcast, monkeypatch, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: no module is frozen")
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\n"
        "def cnn():\n"
        "    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).requires_grad_(False)\n"
        "    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))\n"
    )
    run = epochcast("explain", f"{file}:cnn", "-g", "T4", "-b", "64", "--image-size", "32")
    assert run.code == 0, run.err
    assert max(map(len, run.out.splitlines())) <= 100
    assert "forward %  back %" in run.out
    assert "Frozen parts: -" in run.out
