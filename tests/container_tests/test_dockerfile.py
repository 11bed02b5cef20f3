"""The Dockerfile copies what the wheel needs; its pins are those of Makefile, docs and lock."""

import fnmatch
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COPIED = [
    name
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    for name in sources.split()
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()


def test_what_is_copied_is_there_is_sent_to_the_builder_and_is_all_that_the_wheel_needs():
    """.dockerignore lets through what a COPY names, and nothing else."""
    assert [name for name in COPIED if not (ROOT / name).exists()] == []
    assert IGNORED[0] == "*"
    assert {name[1:] for name in IGNORED if name.startswith("!")} == set(COPIED)
    hatch = PROJECT["tool"]["hatch"]
    target, hooks = hatch["build"]["targets"]["wheel"], hatch["metadata"]["hooks"]
    needed = [
        *target["only-include"],
        *(hook["path"] for hook in hooks["fancy-pypi-readme"]["fragments"]),
        *PROJECT["project"]["license-files"],
        "pyproject.toml",
    ]
    assert [name for name in needed if not any(f"{name}/".startswith(f"{own}/") for own in COPIED)] == []
    patterns = [name.removeprefix("**/") for name in IGNORED if not name.startswith("!") and name != "*"]
    folders = ["api", "predictor", "proxy_cnns", "epochcast", "datasets"]
    run = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    parts = {file_name for path in run.stdout.splitlines() for file_name in path.split("/")}
    assert [name for name in parts for pattern in patterns if fnmatch.fnmatch(name, pattern)] == []


@pytest.mark.parametrize("pin", [r"TORCH \?= (.*)", "(chainer==[0-9.]+)", "('setuptools[^']+')"])
def test_both_ways_to_install_the_frameworks_agree(pin):
    (version,) = set(re.findall(pin, (ROOT / "Makefile").read_text(encoding="utf-8")))
    assert version in DOCKERFILE


def test_images_are_pinned_by_the_digests_that_the_docs_give_two_sources_of():
    (python,) = re.findall(r"^ARG PYTHON=(.*)$", DOCKERFILE, re.MULTILINE)
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"].values()
    pulled = {f"python:{python}", *(service["image"] for service in compose if "image" in service)}
    page = (ROOT / "docs" / "containers.md").read_text("utf-8")
    row = r"^\| `(\w+:[\d.]+-[\w-]+)` \| `(sha256:[0-9a-f]{64})` \| .*https://.*, .*https://.* \|$"
    assert {f"{tag}@{digest}" for tag, digest in re.findall(row, page, re.MULTILINE)} == pulled


def test_the_lock_names_each_package_that_the_service_needs_with_hashes_and_no_framework():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = {name.lower(): number for name, number in re.findall(r"^([\w.-]+)==([\w.]+)", text, re.M)}
    lines = [line for name in ("api", "client", "postgresql") for line in EXTRAS[name]]
    needs = map(Requirement, [*lines, *PROJECT["project"]["dependencies"]])
    unmet = [str(need) for need in needs if locked.get(need.name.lower(), "") not in need.specifier]
    assert unmet == []
    assert text.count("--hash=sha256:") > len(locked)
    assert re.findall(r"^(?:torch|cupy|chainer|nvidia).*", text, re.MULTILINE) == []
