"""Heavy packages wait: what is loaded when, seen from a fresh interpreter."""

import os
import subprocess
import sys
from dataclasses import is_dataclass

import pytest

import epochcast

HEAVY = (
    "numpy", "pandas", "sklearn", "scipy", "torch", "chainer", "onnx", "matplotlib", "joblib", "pyarrow",
    "distributed", "keras",
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


@pytest.mark.parametrize(
    "code", ["import epochcast", after_command("--help"), after_command("predict', '--help")]
)
def test_importing_and_helping_load_nothing_heavy(code):
    assert loaded_after(code) == set()


def test_predicting_loads_numpy_alone():
    assert loaded_after(after_command(PREDICT)) == {"numpy"}


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
