"""A user's editor knows the functions: pyright and mypy --strict pass five right calls and refuse five wrong ones."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from epochcast.signatures import typed_options

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """# pyright: standard
import pandas as pd

import epochcast

answer: pd.DataFrame = epochcast.predict("resnet50", gpu=["T4", "H200"], batch_size=[16, 64], precision="tf32")
ranking: pd.DataFrame = epochcast.compare(epochcast.NetBuilder("mine", 32).table(), epochs=10, samples=500)
made_of: pd.DataFrame = epochcast.explain(["vgg16", "mine.onnx"], "H200", 64, capture="compile")
largest: int = epochcast.largest_batch_size("resnet50", "T4", optimizer="adam")
for batch in epochcast.watch([1, 2], "resnet18", epochs=3, usd_per_hour=2.0):
    print(batch)
epochcast.predict("resnet50", gpu=3)  # wrong
epochcast.predict("resnet50", "T4", batchsize=4)  # wrong
epochcast.compare("resnet50", precision="fp31", samples=100)  # wrong
epochcast.explain("resnet50", "T4", batch_size=4.5)  # wrong
epochcast.largest_batch_size(17, "T4")  # wrong
"""
WRONG = [number for number, line in enumerate(SCRIPT.splitlines(), start=1) if line.endswith("# wrong")]


@pytest.fixture
def script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def checked(*command, folder):
    run = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    return run.stdout


def test_pyright_refuses_the_wrong_calls_alone(script):
    found = json.loads(
        checked("basedpyright", "--outputjson", "--pythonpath", sys.executable, script, folder=script.parent)
    )
    errors = [each for each in found["generalDiagnostics"] if each["severity"] == "error"]
    assert sorted({error["range"]["start"]["line"] + 1 for error in errors}) == WRONG, errors


def test_mypy_refuses_the_wrong_calls_alone(script):
    """In the checkout's folder, where the cache of `make lint` spares reading epochcast again."""
    found = checked("mypy", "--strict", script, folder=ROOT)
    assert sorted({int(line) for line in re.findall(r"script\.py:(\d+): error", found)}) == WRONG, found


def test_the_types_of_options_are_those_that_are_declared():
    written = (ROOT / "epochcast" / "typed_options.py").read_text("utf-8")
    assert written == typed_options(), "python -m epochcast.signatures > epochcast/typed_options.py"
