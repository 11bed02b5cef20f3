"""Heavy packages wait: what is loaded when, seen from a fresh interpreter."""

import subprocess
import sys

import pytest

import epochcast

HEAVY = (
    "numpy",
    "pandas",
    "sklearn",
    "scipy",
    "torch",
    "chainer",
    "onnx",
    "matplotlib",
    "joblib",
    "pyarrow",
    "distributed",
    "keras",
)
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


@pytest.mark.parametrize("name", epochcast.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert ">>> " in getattr(epochcast, name).__doc__


def test_the_public_face_is_these_names():
    verbs = [
        "compare",
        "evaluate",
        "explain",
        "fit",
        "largest_batch_size",
        "parallel_ways",
        "load_measurements",
        "predict",
        "profile",
        "record",
    ]
    watches = ["lightning_callback", "trainer_callback", "watch"]
    assert sorted(epochcast.__all__) == sorted(["Client", "NetBuilder", *verbs, *watches])


def test_public_names_are_listed_before_they_are_loaded():
    assert [name for name in dir(epochcast) if not name.startswith("__")] == sorted(epochcast.__all__)


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known():
    with pytest.raises(
        AttributeError, match="has no attribute 'forecast'; it has Client, NetBuilder, compare"
    ):
        epochcast.forecast  # noqa: B018
