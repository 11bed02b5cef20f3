"""Tests of how the benchmarks of accuracy are called; the figures of one need the published measurements."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from predictor.files import data_root
from predictor.models.served import Model

CHECKOUT = Path(__file__).resolve().parents[3]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "EPOCHCAST_PUBLISHED_DATA"}
    environment["PYTHONPATH"] = str(CHECKOUT)
    command = [sys.executable, str(CHECKOUT / "benchmarks" / "accuracy.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_without_published_measurements_it_says_what_is_missing_and_does_not_fail():
    done = _run()
    assert done.returncode == 0
    assert "accuracy: not run: the published measurements are not part of epochcast" in done.stdout


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    done = _run("--published", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "is not a folder" in done.stdout


def test_a_folder_without_tables_is_an_error_that_names_the_table(tmp_path):
    done = _run("--published", str(tmp_path))
    assert done.returncode == 1
    assert "profet_target_cnns.csv" in done.stderr


def test_judging_specifications_leaves_the_model_as_others_load_it(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(CHECKOUT / "benchmarks"))
    table = "h200_pytorch_fp16_fp32_held_out_targets.csv.gz"
    shutil.copyfile(data_root() / "measurements" / table, tmp_path / table)
    layers = Model.load().layers
    held_out = importlib.import_module("held_out")
    assert held_out.main(["--specifications", "--measurements", str(tmp_path)]) == 0
    assert "NVIDIA H200" in capsys.readouterr().out
    assert Model.load().layers is layers
