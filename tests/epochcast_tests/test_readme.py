"""README.md is what a newcomer types: its blocks run, and what it names exists."""

import functools
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from epochcast.command import build_app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(sh|python|text|json)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
SHELL = [code for language, code in BLOCKS if language == "sh"]
PYTHON = [code for language, code in BLOCKS if language == "python"]
OUTPUT = [text for language, text in BLOCKS if language == "text"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PUBLISHED = "EPOCHCAST_PUBLISHED_DATA"


def _title(code):
    return code.split("\n", 1)[0][:60]


def _run(arguments, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        arguments, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )


def _elsewhere(code):
    """The same on a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return code.replace("8000", str(probe.getsockname()[1]))


@pytest.fixture(scope="module")
def run_block(tmp_path_factory):
    """Run a shell block, once for all tests that ask for it, in a folder of its own."""

    @functools.cache
    def run(code):
        return _run(["bash", "-e", "-c", _elsewhere(code)], tmp_path_factory.mktemp("block"))

    return run


@pytest.mark.parametrize("code", SHELL, ids=_title)
def test_a_shell_block_runs(code, run_block):
    if code.startswith("make "):
        pytest.skip("make sets up an environment of its own, which takes minutes; CI runs it")
    if PUBLISHED in code and PUBLISHED not in os.environ:
        pytest.skip(f"${PUBLISHED} is not set: the published tables are not part of epochcast")
    if "epochcast profile" in code and shutil.which("nvidia-smi") is None:
        pytest.skip("this machine has no NVIDIA GPU to profile")
    run = run_block(code)
    assert run.returncode == 0, run.stderr


def test_the_service_answers_as_the_readme_shows(run_block):
    (code,) = [code for code in SHELL if "curl" in code]
    answer = json.loads(run_block(code).stdout)
    (shown,) = [json.loads(text) for language, text in BLOCKS if language == "json"]
    (row,), (shown_row,) = answer["rows"], shown["rows"]
    assert answer["covers"][0].startswith(shown["covers"][0].removesuffix("..."))
    assert list(row) == list(shown_row)
    for name in ("cnn", "gpu", "batch_size", "iterations_per_epoch", "peak_memory_gib", "offer"):
        assert row[name] == shown_row[name]
    for name in ("iteration_time_ms", "epoch_time_s", "cost_usd"):  # every fit moves them a little
        assert row[name] == pytest.approx(shown_row[name], rel=0.3)


@pytest.mark.parametrize("code", PYTHON, ids=_title)
def test_a_python_block_runs(code, tmp_path, monkeypatch):
    for module in ("torch", "onnx"):
        if f"{module}." in code or f"from {module} " in code:
            pytest.importorskip(module, reason=f"{module} is not installed here")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102


def test_the_excerpt_has_the_columns_that_make_predict_prints(epochcast):
    gpus = re.search(r"^DEMO_GPUS := (.*)$", MAKEFILE.replace("\\\n", " "), re.MULTILINE)
    command = re.search(r"/epochcast (predict resnet50 .*)$", MAKEFILE, re.MULTILINE)
    run = epochcast(*shlex.split(command[1].replace("$(DEMO_GPUS)", gpus[1])))
    titles = run.out.splitlines()[1].split()
    assert OUTPUT[0].splitlines()[1].split() == titles


def test_every_command_named_exists():
    command = typer.main.get_command(build_app())
    named = set(re.findall(r"\bepochcast ([a-z]+)\b(?!\w)", "\n".join([*SHELL, *_inline()])))
    assert sorted(named - set(command.commands)) == []


def test_every_make_target_named_exists():
    named = set(re.findall(r"\bmake ([a-z]+)", "\n".join([*SHELL, *_inline()])))
    assert sorted(target for target in named if f"\n{target}:" not in MAKEFILE) == []


def test_every_file_named_exists():
    linked = re.findall(r"\]\(([^)#]+)\)", README)
    benchmarks = [word for word in _inline() if word.startswith(("benchmarks/", "datasets/"))]
    assert [name for name in [*linked, *benchmarks] if not (ROOT / name).exists()] == []


def test_both_commands_of_a_newcomer_are_shown():
    assert [code.strip() for code in SHELL[:2]] == ["make predict", "make test"]


def _inline():
    """Code within sentences."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", README)
