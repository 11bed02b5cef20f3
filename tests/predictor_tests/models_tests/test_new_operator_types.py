"""A type of operator that was entered later: it changes no other CNN, or the trees that do not know it are refused."""

import json
import subprocess
import sys

import numpy as np

ASKED = """
import json, sys, types
from importlib.util import find_spec
from pathlib import Path

NAME = "predictor.operator_types"
source = Path(find_spec(NAME).origin).read_text(encoding="utf-8")
first = "OPERATOR_TYPES: dict[str, OperatorType] = {"
assert source.count(first) == 1
module = sys.modules[NAME] = types.ModuleType(NAME)
exec(source.replace(first, first + sys.argv[1]), module.__dict__)

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.models.served import Model

devices = [(find_gpu(gpu), Mode(precision=precision)) for gpu, precision in
           (("H200", "tf32"), ("H100 SXM", "amp_fp16"), ("T4", "fp32"))]
found = {cnn: [answer.iteration_time_ms.tolist() for answer in Model.load().forecasts(zoo_cnn(cnn), devices, [8, 48])]
         for cnn in ("convnext_tiny", "mobilenet_v3_large", "resnet50")}
json.dump(found, sys.stdout)
"""
NEW = (
    '"swirl": OperatorType(operator_class="activation", kernel_class="activation", work=_POINTWISE, '
    "element_passes=(5.0, 0.0), same_shape=True{}),"
)


def asked(entry: str = "") -> subprocess.CompletedProcess[str]:
    """Forecasts of a process whose registry begins with this entry."""
    return subprocess.run([sys.executable, "-c", ASKED, entry], capture_output=True, text=True, check=False)


def test_a_type_that_does_not_say_that_it_was_measured_changes_no_other_cnn():
    before, after = asked(), asked(NEW.format(""))
    assert (before.returncode, after.returncode) == (0, 0), before.stderr + after.stderr
    old, new = json.loads(before.stdout), json.loads(after.stdout)
    for cnn in old:
        np.testing.assert_allclose(new[cnn], old[cnn], rtol=1e-12)


def test_trees_that_never_saw_a_measured_type_are_refused_and_it_is_named():
    process = asked(NEW.format(", is_measured=True"))
    assert process.returncode == 1
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("predictor.errors.ArtifactError")
    assert "nvidia_h200-pytorch-tf32-nchw.npz: its trees have other features" in last
    assert "'type swirl' lacks" in last
