"""torchvision is imported beside any build of PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
_WITH_OPERATORS = """
import torch

library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
_WITHOUT_OPERATORS = """
import torch

@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold): ...
"""


def _imported_by_conftest(folder: Path, torchvision: str) -> subprocess.CompletedProcess[str]:
    """A test run of its own that takes `torchvision_models`, with a torchvision that consists of this text."""
    package = folder / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(torchvision)
    (package / "models.py").write_text("NAME = 'a stand-in'\n")
    test = folder / "tests" / "test_stand_in.py"
    test.parent.mkdir()
    test.write_text("def test_it(torchvision_models):\n    assert torchvision_models.NAME == 'a stand-in'\n")
    (test.parent / "conftest.py").write_text(
        f"import sys\nsys.path[:0] = [{str(folder)!r}, {str(_TESTS)!r}]\n"
        f"exec(compile(open({str(_TESTS / 'conftest.py')!r}).read(), {str(_TESTS / 'conftest.py')!r}, 'exec'))\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        str(test),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("torchvision", [_WITH_OPERATORS, _WITHOUT_OPERATORS], ids=["compiled", "missing"])
def test_operators_are_declared_only_where_torchvision_has_none(torch, tmp_path, torchvision):
    run = _imported_by_conftest(tmp_path, torchvision)
    assert run.returncode == 0, run.stdout + run.stderr
