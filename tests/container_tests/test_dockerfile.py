"""The Dockerfile copies what the wheel needs, serves as nobody in particular, and checks its own health."""

import fnmatch
import http.server
import re
import subprocess
import sys
import threading
import tomllib

import pytest
import yaml
from dockerfile import ROOT
from packaging.requirements import Requirement
from waiting import PATIENCE_S

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()


def test_without_a_target_the_service_is_built(stages):
    assert list(stages)[-1] == "service"


def test_every_copy_has_its_source(stages):
    for stage in stages.values():
        for origin, sources, _ in stage.copies():
            if origin is not None:
                assert origin in stages
            else:
                assert [source for source in sources if not (ROOT / source).exists()] == []


def test_what_is_copied_is_what_is_sent_to_the_builder(stages):
    """.dockerignore lets through what a COPY names, and nothing else."""
    assert IGNORED[0] == "*"
    assert {name[1:] for name in IGNORED if name.startswith("!")} == set(_files_of(stages))


def test_the_wheel_needs_nothing_that_is_not_copied(stages):
    copied = _files_of(stages)
    hatch = PROJECT["tool"]["hatch"]
    target, hooks = hatch["build"]["targets"]["wheel"], hatch["metadata"]["hooks"]
    needed = [
        *target["packages"],
        *target["force-include"],
        *(each["path"] for each in hooks["fancy-pypi-readme"]["fragments"]),
        *PROJECT["project"]["license-files"],
        "pyproject.toml",
    ]
    assert [name for name in needed if not any(f"{name}/".startswith(f"{each}/") for each in copied)] == []


def test_no_file_of_the_wheel_is_kept_from_the_builder():
    patterns = [name.removeprefix("**/") for name in IGNORED if not name.startswith("!") and name != "*"]
    run = subprocess.run(
        ["git", "ls-files", "api", "predictor", "proxy_cnns", "epochcast", "datasets"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    parts = {part for path in run.stdout.splitlines() for part in path.split("/")}
    assert [part for part in parts for pattern in patterns if fnmatch.fnmatch(part, pattern)] == []


@pytest.mark.parametrize("name", ["service", "profile"])
def test_an_image_runs_as_a_user_by_number_that_is_not_root(stages, name):
    (user,) = stages[name].all("USER")
    assert int(user) > 0
    assert f"--uid {user} " in " ".join(stages[name].all("RUN"))


@pytest.mark.parametrize("name", ["service", "profile"])
def test_an_image_keeps_files_in_a_volume_that_its_user_may_write(stages, name):
    (user,), (folder,) = stages[name].all("USER"), stages[name].all("VOLUME")
    assert stages[name].all("WORKDIR") == [folder]
    assert f"install --directory --owner={user} --group={user} {folder}" in " ".join(stages[name].all("RUN"))


def test_the_service_has_no_framework(stages):
    packages = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert re.findall(r"^(?:torch|cupy|chainer|nvidia).*", packages, re.MULTILINE) == []
    assert [origin for origin, *_ in stages["service"].copies()] == ["packages"]


def test_the_store_lies_in_the_volume(stages):
    (folder,) = stages["service"].all("VOLUME")
    assert stages["service"].environment()["EPOCHCAST_STORE"].startswith(f"sqlite:///{folder}/")


def test_the_image_serves_every_address_of_its_own(stages, epochcast, monkeypatch):
    import uvicorn

    asked = {}
    monkeypatch.setenv("EPOCHCAST_STORE", "")
    monkeypatch.setattr(uvicorn, "run", lambda _, **options: asked.update(options))
    assert stages["service"].words("ENTRYPOINT") == ["epochcast"]
    assert epochcast(*stages["service"].words("CMD")).exit_code == 0
    assert [asked["host"], str(asked["port"])] == ["0.0.0.0", *stages["service"].all("EXPOSE")]  # noqa: S104


def test_the_profile_image_first_says_what_a_machine_lacks(stages, epochcast):
    assert stages["profile"].words("ENTRYPOINT") == ["epochcast"]
    assert "GPU" in epochcast(*stages["profile"].words("CMD")).output


@pytest.mark.parametrize("pin", [r"TORCH \?= (.*)", "(chainer==[0-9.]+)", "('setuptools[^']+')"])
def test_both_ways_to_install_the_frameworks_agree(stages, pin):
    (version,) = set(re.findall(pin, MAKEFILE))
    stage = stages["profile"]
    assert version in " ".join([*stage.all("RUN"), *stage.all("ARG")])


def test_the_profile_image_knows_every_cuda_that_there_is_an_extra_for(stages):
    assert "[client,cuda${CUDA},onnx]" in " ".join(stages["profile"].all("RUN"))
    assert {"cuda12", "cuda13"} <= set(EXTRAS)


def test_the_images_python_is_one_that_is_supported(stages):
    assert {stage.base for stage in stages.values()} == {"python:${PYTHON}"}
    default = re.match(r"\d+\.\d+", _default_python())
    assert default is not None
    assert f"Programming Language :: Python :: {default[0]}" in PROJECT["project"]["classifiers"]


def test_images_are_pinned_by_the_digests_that_the_docs_give_two_sources_of():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"].values()
    pulled = {f"python:{_default_python()}", *(each["image"] for each in compose if "image" in each)}
    told = (ROOT / "docs" / "containers.md").read_text("utf-8")
    row = r"^\| `(\w+:[\d.]+-[\w-]+)` \| `(sha256:[0-9a-f]{64})` \| .*https://.*, .*https://.* \|$"
    assert {f"{tag}@{digest}" for tag, digest in re.findall(row, told, re.MULTILINE)} == pulled


def _default_python() -> str:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    return next(iter(re.findall(r"^ARG PYTHON=(.*)$", text, re.MULTILINE)))


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (None, False)])
def test_health_is_what_the_service_says_of_itself(stages, status, healthy):
    """The check's own words, run by this Python against a server that answers so, or none."""
    command = stages["service"].words("HEALTHCHECK")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _answering(status or 200)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        if status is None:
            server.shutdown()
            server.socket.close()
        assert "timeout=4" in command[2]
        code = (
            command[2]
            .replace("8000", str(server.server_port))
            .replace("timeout=4", f"timeout={PATIENCE_S:g}")
        )
        run = subprocess.run([sys.executable, *command[1:2], code], capture_output=True, check=False)
        server.shutdown() if status else None
    assert (run.returncode == 0) is healthy


def _files_of(stages):
    copies = [*stages["wheel"].copies(), *stages["packages"].copies()]
    return [source for origin, sources, _ in copies if origin is None for source in sources]


def _answering(status):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            assert self.path == "/healthz"
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    return Handler


def test_the_lock_names_each_package_that_the_service_needs_with_hashes():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = {
        name.lower(): version for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE)
    }
    wanted = [Requirement(each) for name in ("api", "client", "postgresql") for each in EXTRAS[name]]
    wanted += [Requirement(each) for each in PROJECT["project"]["dependencies"]]
    unmet = [str(each) for each in wanted if locked.get(each.name.lower(), "") not in each.specifier]
    assert unmet == []
    assert text.count("--hash=sha256:") > len(locked)
