"""A user's editor knows the functions: pyright passes the right calls of `typed_calls` and refuses the wrong ones.

`make lint` holds the same of mypy --strict, whose cache is warm there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from epochcast.signatures import typed_options

ROOT = Path(__file__).resolve().parents[2]
CALLS = Path(__file__).with_name("typed_calls.py")


def test_pyright_refuses_the_wrong_calls_alone(tmp_path):
    lines = [line.partition("  # type: ignore") for line in CALLS.read_text().splitlines()]
    script = tmp_path / "script.py"
    script.write_text("\n".join(call for call, _, _ in lines))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        str(script),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    errors = [
        diagnostic
        for diagnostic in json.loads(run.stdout)["generalDiagnostics"]
        if diagnostic["severity"] == "error"
    ]
    refused = {error["range"]["start"]["line"] for error in errors}
    assert refused == {number for number, (_, ignored, _) in enumerate(lines) if ignored}, errors


def test_the_types_of_options_are_those_that_are_declared():
    written = (ROOT / "epochcast" / "typed_options.pyi").read_text("utf-8")
    assert written == typed_options(), "python -m epochcast.signatures > epochcast/typed_options.pyi"
