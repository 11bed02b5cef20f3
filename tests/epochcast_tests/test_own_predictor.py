"""A predictor is one class in a file of its own and one line of the registry; every face can ask it then."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import predictor.models.registry
from predictor.files import data_file

CLASS = '''
import numpy as np
from predictor.models.base import WholePredictor, times_of


class PerImage(WholePredictor):
    """Every image takes as long, whatever the CNN and the GPU."""

    def fit(self, X, y):
        times = times_of(y, len(self._checked(X, ("gpu", "cnn", "batch_size"))), "iteration_time_ms")
        self.ms_ = float(np.median(times / X["batch_size"]))
        return self

    def parts(self, case):
        return {"images": self.ms_ * case.batch_sizes}

    def _learned(self):
        return {"ms": self.ms_}

    def _restore(self, learned):
        self.ms_ = float(learned["ms"])
'''
LINE = '    "per-image": Registered("per_image:PerImage"),\n'

REGISTER = """
import importlib.util, sys
source = open({registry!r}, encoding="utf-8").read()
where = source.index("= {{\\n", source.index("PREDICTORS: ")) + 4
spec = importlib.util.spec_from_file_location("predictor.models.registry", {registry!r})
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
exec(compile(source[:where] + {line!r} + source[where:], {registry!r}, "exec"), vars(module))
import predictor.models
predictor.models.registry = module
"""

FIT = """
import epochcast
epochcast.fit("runs.csv", out="mine.json", methods_only=True)
"""

FACES = {
    "python": """
import epochcast
(row,) = epochcast.predict("resnet50", "T4", 10, model="mine.json", method="per-image").to_dict("records")
""",
    "command": """
import contextlib, io, json, sys
from epochcast.command import main
sys.argv = "epochcast predict resnet50 --gpu T4 --batch-size 10 --model mine.json --method per-image --json".split()
out = io.StringIO()
with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
    main()
(row,) = json.loads(out.getvalue())["rows"]
""",
    "rest": """
from fastapi.testclient import TestClient
from api.main import create_app
from api.settings import Settings
with TestClient(create_app(Settings(store="", log_level="warning", model="mine.json"))) as client:
    question = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [10], "method": "per-image"}
    (row,) = client.post("/v1/predictions", json=question).json()["rows"]
""",
    "bulk": """
import csv
from predictor.answers.bulk import predict_rows
open("rows.csv", "w").write("cnn,gpu,batch_size\\nresnet50,T4,10\\n")
predict_rows("rows.csv", "answers.csv", method="per-image", model="mine.json")
(row,) = csv.DictReader(open("answers.csv"))
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The class in its file, a model with it fitted beside, and runs of 20 ms an image."""
    checkout = tmp_path_factory.mktemp("own_predictor")
    (checkout / "per_image.py").write_text(CLASS)
    model = json.loads(data_file("models/default.json").read_text(encoding="utf-8"))
    (checkout / "mine.json").write_text(json.dumps(model | {"files": {"methods": None, "operators": {}}}))
    rows = [
        f"{gpu},{cnn},{size},fp32,pytorch,{20.0 * size}\n"
        for gpu in ("T4", "V100-SXM2-16GB")
        for cnn in ("resnet18", "resnet50", "vgg16")
        for size in (8, 16, 32, 64)
    ]
    header = "gpu,cnn,batch_size,precision,framework,iteration_time_ms,image_size\n"
    (checkout / "runs.csv").write_text(header + "".join(row.replace("\n", ",224\n") for row in rows))
    _run(checkout, FIT)
    return checkout


def _run(folder: Path, code: str) -> str:
    registry = predictor.models.registry.__file__
    script = REGISTER.format(registry=registry, line=LINE) + code
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_predictor_of_one_file_and_one_line_is_asked_through_every_face(folder):
    printing = "\nimport json\nprint(json.dumps(['{}', row['method'], float(row['iteration_time_ms'])]))\n"
    lines = _run(folder, "".join(code + printing.format(face) for face, code in FACES.items())).splitlines()
    answers: list[Any] = [json.loads(line) for line in lines if line.startswith("[")]
    assert answers == [[face, "per-image", pytest.approx(200.0)] for face in FACES]
