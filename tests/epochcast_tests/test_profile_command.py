"""`epochcast profile` from a user's side, with the fake framework in the place of PyTorch."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from case_tables import each_row

import epochcast as face
from epochcast.commands.profile import shown_progress
from epochcast.profiling import ProfileRequest, default_words, request_for, seconds
from predictor.errors import SchemaError
from proxy_cnns.device import Monitor
from proxy_cnns.jobs import Progress

QUICKLY = ("--preset", "cnn:lenet5", "--device", "cpu", "--limit", "3", "--allow-noise")


def test_a_table_is_written_that_data_show_reads_and_a_repetition_measures_nothing_again(
    epochcast, fake_framework, tmp_path
):
    out = tmp_path / "x.csv.gz"
    run = epochcast("profile", *QUICKLY, "--out", out, "--format", "json")
    assert (run.code, json.loads(run.out)["rows"][0]["new"]) == (0, 3)
    run = epochcast("profile", *QUICKLY, "--out", out)
    assert "x.csv.gz: 3 measurements, 0 of them new." in run.out
    assert "epochcast data show" in run.out
    assert "3 measurements" in epochcast("data", "show", out).out
    frame = face.profile(out, "cnn:lenet5", device="cpu", limit=3, allow_noise=True)
    assert frame.attrs["outcome"]["new"] == 0
    assert frame["cnn"].tolist() == face.load_measurements(out)["cnn"].tolist()


def test_after_measuring_the_next_question_is_said_of_a_gpu_and_of_a_cpu(
    epochcast, fake_framework, monkeypatch, tmp_path
):
    monkeypatch.setattr("proxy_cnns.jobs.open_monitor", lambda _device: Monitor(dict))
    run = epochcast("profile", "--preset", "cnn:lenet5", "--limit", "2", "--out", tmp_path / "gpu.csv")
    question = 'predict lenet5 --gpu "NVIDIA H200" --precision tf32 --batch-size 64 --measurements'
    assert question in run.out
    run = epochcast("profile", "--device", "cpu", "--out", tmp_path / "x.csv")
    assert "the operators of ResNet-18 at 32 px, batch 32; --preset names others." in run.err
    with (tmp_path / "x.csv").open() as file:
        assert {row["batch_size"] for row in csv.DictReader(file)} == {"32"}
    assert "epochcast predict resnet18 --image-size 32 --gpu" in run.out
    assert "--precision fp32 --batch-size 32 --measurements" in run.out


def test_every_combination_of_modes_and_sizes_asked_for_is_measured_else_the_presets_or_a_cpus_or_frameworks():
    on_cpu = ProfileRequest(device="cpu", batch_sizes=["8,16"])
    configurations = request_for(on_cpu, "x.csv")[0].configurations
    assert {configuration.batch_size for configuration in configurations} == {8, 16}
    assert "batch 8,16;" in default_words(on_cpu)
    assert request_for(ProfileRequest(), "x.csv")[0].name == "quick"
    assert default_words(ProfileRequest()) == ""
    assert modes_of() == [("tf32", "nchw")]
    assert modes_of(device="cpu") == [("fp32", "nchw")]
    assert len(modes_of(precisions=["tf32,amp_bf16"], memory_formats=["nchw", "channels_last"])) == 4
    in_nchw = ProfileRequest("founding", framework="chainer", memory_formats=["nchw"])
    request, _ = request_for(in_nchw, "x.csv")
    assert {configuration.mode.precision for configuration in request.configurations} == {"fp32"}
    targets, _ = request_for(ProfileRequest("targets", framework="chainer", batch_sizes=["4"]), "x.csv")
    assert {
        (configuration.mode.precision, configuration.mode.memory_format)
        for configuration in targets.configurations
    } == {("tf32", "nchw"), ("fp32", "nchw")}


def test_progress_says_whether_the_time_limit_ends_the_run(capsys):
    for limited in (False, True):
        with shown_progress() as report:
            report(Progress(1, 2, 30.0, "conv", limited))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["1 of 2, about 30.0 s left: conv", "1 of 2, the time limit ends it in 30.0 s: conv"]


def test_stopping_it_leaves_a_table_of_what_is_measured(epochcast, fake_framework, monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_ORDERS", '{"interrupted_after": 2}')
    run = epochcast("profile", *QUICKLY, "--out", tmp_path / "x.csv")
    assert run.code == 130  # a script does not take it for finished
    assert "x.csv: 2 measurements, 2 of them new." in run.out
    assert "1 configuration is left: the same command continues" in run.out


def test_a_busy_cpu_is_measured_and_noted_and_one_measurement_is_singular(
    epochcast, fake_framework, monkeypatch, tmp_path
):
    busy = iter(range(0, 10**6, 100))
    monkeypatch.setattr("proxy_cnns.device._cpu_seconds", lambda: (next(busy), next(busy)))
    words = [word for word in QUICKLY if word != "--allow-noise"]
    run = epochcast("profile", *words, "--out", tmp_path / "x.csv")
    assert run.code == 0, run.err
    assert "3 measurements were disturbed by other work on this machine" in run.out
    run = epochcast("profile", *QUICKLY, "--limit", "1", "--out", tmp_path / "y.csv")
    assert "y.csv: 1 measurement, 1 of them new." in run.out
    assert "1 measurement was disturbed by other work on this machine" in run.out
    assert "y.csv: 1 measurement\n" in epochcast("data", "show", tmp_path / "y.csv").out
    predicted = epochcast("predict", "lenet5", "--gpu", "T4", "--batch-size", "1", "--samples", "1")
    assert "1 sample" in predicted.out
    assert "1 samples" not in predicted.out


def test_on_windows_measuring_says_where_it_works():
    code = (
        "import sys\nsys.modules['fcntl'] = None\nsys.argv = 'epochcast profile --device cpu --out x.csv'.split()\n"
        "from epochcast.command import main\nmain()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "measuring needs Linux or macOS" in run.stderr
    assert "WSL" in run.stderr


def test_a_dry_run_lists_its_configurations_and_the_doctor_names_every_missing_piece(
    epochcast, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    command = ("profile", "--preset", "founding", "--dry-run")
    assert len(epochcast(*command, "--format", "csv", "-b", "8,16").out.splitlines()) == 1 + 14 * 2
    assert list(tmp_path.iterdir()) == []
    rows = json.loads(epochcast("profile", "doctor", "--format", "json").out)["rows"]
    assert {row["what"] for row in rows} >= {"processor", "PyTorch", "chainer", "CuPy", "nvidia-ml-py"}
    assert all(row["next_step"] for row in rows if row["found"] is None)


def test_where_every_configuration_fails_no_table_stays(epochcast, fake_framework, tmp_path, monkeypatch):
    names = [
        configuration.subject.name
        for configuration in request_for(ProfileRequest("cnn:lenet5", device="cpu"), "x.csv")[
            0
        ].configurations
    ]
    monkeypatch.setenv("FAKE_ORDERS", json.dumps({"cannot": names}))
    run = epochcast("profile", *QUICKLY, "--out", tmp_path / "x.csv")
    assert run.code == 2
    assert "nothing was measured" in run.err
    assert "cannot be built" in run.err
    assert list(tmp_path.iterdir()) == []


def test_layers_of_no_known_type_are_pointed_to_whole_cnns(epochcast, torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("odd.py").write_text(
        "from torch import nn\n\ndef make_model():\n    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Hardshrink())\n"
    )
    command = (
        "profile",
        "--preset",
        "cnn:odd.py:make_model@32",
        "--device",
        "cpu",
        "--allow-noise",
        "-b",
        "2",
    )
    advice = "Measure the CNN whole: --preset targets:FILE.py:make_model"
    before = " ".join(epochcast(*command, "--dry-run").out.split())
    assert "Operators of no known type, which will fail: 1." in before
    assert advice in before
    assert advice in " ".join(epochcast(*command, "--out", "x.csv").out.split())


def test_without_a_gpu_it_says_how_to_measure_without(epochcast, tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    run = epochcast("profile", "--preset", "founding", "--out", tmp_path / "x.csv")
    assert run.code == 2
    assert "Pass --device cpu" in run.err


@each_row
def test_times_are_read_in_their_units(text, expected):
    assert seconds(text, "--time-limit") == expected


@pytest.mark.parametrize("text", ["", "0s", "-3s", "3 weeks", "1e3"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(SchemaError, match="--time-limit"):
        seconds(text, "--time-limit")


def modes_of(**options):
    request, _ = request_for(ProfileRequest("cnn:lenet5", **options), "x.csv")
    return sorted(
        {
            (configuration.mode.precision, configuration.mode.memory_format)
            for configuration in request.configurations
        }
    )
