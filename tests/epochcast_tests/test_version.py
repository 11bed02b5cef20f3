"""The command says which version it is."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from typer.testing import CliRunner

import epochcast
from epochcast.command import build_app
from epochcast.installation import shadowed


def test_version_is_that_of_the_installed_package():
    answer = CliRunner().invoke(build_app(), ["--version"])
    assert (answer.exit_code, answer.output.strip()) == (0, f"epochcast {version('epochcast')}")


def test_python_knows_the_version_too():
    assert epochcast.__version__ == version("epochcast")


def test_a_package_of_the_same_name_that_hides_ours_is_named(tmp_path):
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "__init__.py").touch()
    ours = str(Path(epochcast.__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-m", "epochcast", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ours}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"the package 'api' is {tmp_path / 'api'}, not epochcast's" in run.stderr
    assert shadowed() == []


def test_one_cnn_on_one_gpu_is_refused_with_what_to_add(tmp_path):
    rows = [f"T4,resnet18,224,{2**k},fp32,{10 + 3 * 2**k}" for k in range(10)]
    table = tmp_path / "m.csv"
    table.write_text("\n".join(["gpu,cnn,image_size,batch_size,precision,iteration_time_ms", *rows]))
    answer = CliRunner().invoke(build_app(), ["fit", str(table), "--out", str(tmp_path / "model.json")])
    assert "Add measurements of another CNN or GPU" in str(answer.exception)
    assert not (tmp_path / "model.json").exists()
