"""Tests of how the accuracy benchmark is called; its figures need the published measurements."""

import os
import subprocess
import sys
from pathlib import Path

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
