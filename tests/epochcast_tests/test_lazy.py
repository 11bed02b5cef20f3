"""Heavy packages wait: what is loaded when, and what is said where one is missing."""

import os
import subprocess
import sys
from dataclasses import is_dataclass
from importlib import import_module

import pytest
from case_tables import each_row

import epochcast
from predictor.errors import BackendUnavailableError

HEAVY = (
    "numpy", "pandas", "sklearn", "scipy", "torch", "chainer", "onnx", "matplotlib", "joblib", "pyarrow",
    "distributed", "keras", "cupy",
)  # fmt: skip
PREDICT = "predict', 'resnet18', '-g', 'T4', '-b', '8"


def loaded_after(code):
    """Heavy packages in `sys.modules` after this code has run in a fresh interpreter."""
    check = f"import sys\n{code}\nprint('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split()[1:])


def after_command(arguments):
    return (
        f"sys.argv = ['epochcast', '{arguments}']\n"
        "from epochcast.command import main\n"
        "try:\n    main()\nexcept SystemExit as error:\n    assert not error.code, error.code"
    )


@pytest.mark.parametrize("arguments", ["--help", "predict', '--help"])
def test_helping_loads_nothing_heavy(arguments):
    assert loaded_after(after_command(arguments)) == set()


@each_row
def test_a_module_loads_no_more_than_it_needs(code, loaded):
    assert loaded_after(code) == set(loaded)


def test_predicting_loads_numpy_alone():
    assert loaded_after(after_command(PREDICT)) == {"numpy"}


@each_row
def test_a_missing_package_is_named_with_what_installs_it(
    package, function, arguments, extra, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    for name in ("any.onnx", "any.keras"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    module, name = function.split(":")
    with pytest.raises(BackendUnavailableError, match=rf"pip install .*'epochcast\[{extra}\]'"):
        getattr(import_module(module), name)(*arguments)


@pytest.mark.parametrize("code", [after_command(PREDICT), "import api.main"])
def test_linear_algebra_takes_one_thread_in_the_command_and_in_the_service(code):
    check = (
        "from threadpoolctl import threadpool_info\n"
        "pools = [each['num_threads'] for each in threadpool_info() if each['user_api'] == 'blas']\n"
        "assert pools and set(pools) == {1}, pools"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    code = f"import sys\n{code}\nimport numpy\n{check}"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize("name", epochcast.__all__)
def test_every_public_name_is_there_and_documented(name):
    public = getattr(epochcast, name)
    assert is_dataclass(public) or ">>> " in public.__doc__


def test_public_names_are_listed_before_they_are_loaded_and_an_unknown_one_lists_the_known():
    assert [name for name in dir(epochcast) if not name.startswith("__")] == sorted(epochcast.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'forecast'; it has AnswerFrame, Cause, "):
        epochcast.forecast  # noqa: B018
