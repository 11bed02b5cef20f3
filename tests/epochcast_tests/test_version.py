"""The command says which version it is."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

import epochcast
from epochcast.command import build_app
from epochcast.installation import shadowed


def test_version_is_that_of_the_installed_package_for_command_and_python():
    answer = CliRunner().invoke(build_app(), ["--version"])
    assert (answer.exit_code, answer.output.strip()) == (0, f"epochcast {version('epochcast')}")
    assert epochcast.__version__ == version("epochcast")


def run_beside(folder, package, *words):
    """Run Python in a folder that holds somebody's package of this name."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").touch()
    ours = str(Path(epochcast.__file__).parents[1])
    path = {"PYTHONPATH": f"{folder}{os.pathsep}{ours}"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_package_that_hides_ours_is_named_by_python_and_by_the_doctor(tmp_path):
    run = run_beside(tmp_path, "api", "-m", "epochcast", "--version")
    assert run.returncode == 0
    assert f"the package 'api' is {tmp_path / 'api'}, not epochcast's" in run.stderr
    assert shadowed() == []
    run = run_beside(
        tmp_path / "core", "predictor", "-c", "import epochcast; epochcast.predict('resnet50', 'T4')"
    )
    assert (
        f"ImportError: the package 'predictor' is {tmp_path / 'core' / 'predictor'}, not epochcast's"
        in run.stderr
    )
    run = run_beside(tmp_path / "doctor", "api", "-m", "epochcast", "profile", "doctor", "--format", "csv")
    assert "2 of 3 are epochcast's own" in run.stdout
    assert f"the package 'api' is {tmp_path / 'doctor' / 'api'}, not epochcast's" in run.stdout


@pytest.mark.parametrize("words", [("--version",), ("predict", "resnet50", "--gpu", "T4")])
def test_without_the_core_the_command_names_what_hides_it(tmp_path, words):
    run = run_beside(tmp_path, "predictor", "-m", "epochcast", *words)
    assert run.returncode == 1
    assert f"Error: the package 'predictor' is {tmp_path / 'predictor'}, not epochcast's" in run.stderr
    assert "Traceback" not in run.stderr
