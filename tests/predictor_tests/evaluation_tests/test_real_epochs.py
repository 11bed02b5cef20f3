"""The benchmark of whole epochs: forecasts are those of `compare`, epochs are trained whole, its table adds up."""

import csv
import importlib
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import epochcast
from predictor.catalogue.offers import Offer
from predictor.errors import SchemaError
from predictor.models.input_pipeline import workers_start_s

CHECKOUT = Path(__file__).resolve().parents[3]
BENCHMARKS = CHECKOUT / "benchmarks"
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("real_epochs")


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_epoch_that_was_trained_is_a_case_by_its_name(benchmark):
    for path in BENCHMARKS.glob("real_epochs_*.csv"):
        for name in {row["case"] for row in rows_of(path)}:
            case = benchmark.Case.named(name)
            assert name.startswith(f"{case.cnn}_{case.mode.framework}_{case.n_gpus}x{case.local_batch_size}_")
            assert benchmark.table_of(case.cnn).image_size == case.task.image_size


def test_what_is_no_case_is_refused(benchmark):
    for name, why in (("resnet50", "is no case"), ("vgg_cifar_chainer_1x128_amp", "by PyTorch alone")):
        with pytest.raises(SchemaError, match=why):
            benchmark.main(["train", "--cases", name])


def test_strangers_were_forecast_before_they_were_trained():
    for forecasts, measured in (
        ("3", "h100_3"),
        ("4", "h200_4"),
        ("5", "h200_5"),
        ("6", "h100_6"),
        ("7", "h100_7"),
    ):
        forecast = {
            (row["case"], row["gpu"]): row["forecast_at"]
            for row in rows_of(BENCHMARKS / f"real_epochs_forecast_{forecasts}.csv")
        }
        for row in rows_of(BENCHMARKS / f"real_epochs_{measured}.csv"):
            assert row["error"] or forecast[row["case"], row["gpu"]] < row["started_at"]


def test_a_forecast_is_what_compare_says_for_as_many_iterations(benchmark):
    case = benchmark.Case.named("resnet50_pytorch_2x128_tf32")
    found = benchmark.forecast_of(case, H100)
    machine = Offer("mine", "machine", H100, 2, 1.0, vcpus=32, link="nvlink4")
    answer = epochcast.compare(
        "resnet50", H100, 256, data_set="imagenet", n_gpus=2, workers=16, precision="tf32", offers=[machine]
    ).iloc[0]
    assert found["iterations"] == 196
    assert found["iteration_time_ms"] == pytest.approx(answer["iteration_time_ms"], rel=1e-4)
    wait_s = found["epoch_time_s"] - 0.196 * answer["iteration_time_ms"]
    assert workers_start_s() < wait_s < 2
    assert found["validation_s"] > 0


def test_a_start_is_added_to_the_forecast_of_the_first_epoch_alone(benchmark):
    judges = importlib.import_module("judges")
    measured = {"iterations": "10", "epoch_s": "4", "second_epoch_s": "2", "middle_ms": "150"}
    epoch = {"epoch_time_s": "2", "epoch_low_s": "1.5", "epoch_high_s": "2.5"}
    start = {"start_s": "1", "start_low_s": "0.1", "start_high_s": "2"}
    assert judges.forecast_and_measured(epoch | start, measured, later=False) == ([3, 1.6, 4.5], 4)
    assert judges.forecast_and_measured(epoch | start, measured, later=True) == ([2, 1.5, 2.5], 2)
    assert judges.forecast_and_measured(epoch, measured, later=False) == ([2, 1.5, 2.5], 4)
    once = measured | {"second_epoch_s": ""}
    assert judges.forecast_and_measured(epoch, once, later=True) == ([2, 1.5, 2.5], 1.5)
    anew = once | {"anew_whole_s": "3", "iterations": "", "middle_ms": ""}
    assert judges.forecast_and_measured(epoch, anew, later=True) == ([2, 1.5, 2.5], 3)


def test_pictures_are_copied_until_there_are_enough(benchmark, tmp_path, monkeypatch, capsys):
    pytest.importorskip("PIL", reason="Pillow is not installed: no image is made")
    monkeypatch.setattr(benchmark, "_DISTINCT_PICTURES", 2)
    benchmark.main(["pictures", "--folder", str(tmp_path), "--number", "5"])
    assert "5 pictures, 2 distinct" in capsys.readouterr().out
    pictures = [path.read_bytes() for path in sorted(tmp_path.rglob("*.jpg"))]
    assert (len(pictures), len(set(pictures))) == (5, 2)


def test_an_epoch_is_timed_from_before_its_first_mini_batch_to_its_end(benchmark, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: float(next(clock)))
    trained = []
    marks = iter((10.0, 18.0))
    found = benchmark._epoch(
        iter(range(8)), 8, trained.append, lambda: None, lambda: next(marks), lambda early, late: late - early
    )
    assert trained == list(range(8))
    assert found["iterations"] == 8
    assert found["epoch_s"] == 18  # two looks for each mini-batch, one more after the first, one at each end
    assert (found["first_wait_s"], found["first_iteration_s"], found["waited_s"]) == (2, 3, 7)
    assert found["middle_ms"] == 2000


def test_two_processes_train_an_epoch_together_and_a_second_run_repeats_nothing(
    benchmark, tmp_path, torch, capsys
):
    out = tmp_path / "measured.csv"
    asked = ["train", "--dry-run", "--cases", "resnet18_cifar_pytorch_2x32_tf32", "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(BENCHMARKS / "real_epochs.py"), *asked]
    first = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    [row] = rows_of(out)
    assert (row["error"], row["iterations"], row["gpu"]) == ("", "4", "cpu"), first.stderr
    assert float(row["epoch_s"]) > float(row["first_iteration_s"]) > 0
    benchmark.main(asked)
    assert (capsys.readouterr().out, rows_of(out)) == ("", [row])


def test_what_fails_is_a_row_that_says_so_and_does_not_count_as_done(benchmark, tmp_path, monkeypatch):
    def failing(_job):
        raise MemoryError("too large")

    monkeypatch.setattr(benchmark, "train", failing)
    out = tmp_path / "measured.csv"
    for _ in range(2):
        benchmark.main(
            ["train", "--dry-run", "--cases", "resnet18_cifar_pytorch_1x32_tf32", "--out", str(out)]
        )
    assert [row["error"] for row in rows_of(out)] == ["MemoryError: too large"] * 2
