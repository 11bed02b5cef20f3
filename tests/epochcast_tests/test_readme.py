"""README.md and docs/tour.md are what a newcomer types: their blocks run, and what they name exists."""

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
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tour.md")}
README = PAGES["README.md"]
BLOCKS = [
    block
    for text in PAGES.values()
    for block in re.findall(r"^```(sh|python|json|console)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
]
SHELL = [code for language, code in BLOCKS if language == "sh"]
PYTHON = [code for language, code in BLOCKS if language == "python"]
CONSOLE = [text.removeprefix("$ ").split("\n", 1) for language, text in BLOCKS if language == "console"]
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


@pytest.mark.parametrize(("line", "text"), CONSOLE, ids=[line for line, _ in CONSOLE])
def test_a_command_prints_the_columns_that_are_shown(line, text, epochcast, monkeypatch):
    if line == "make predict":
        line = "epochcast " + re.search(r"^DEMO := (.*)$", MAKEFILE.replace("\\\n", " "), re.MULTILINE)[1]
        assert "$(BIN)/epochcast $(DEMO)" in MAKEFILE
    monkeypatch.delenv("COLUMNS")
    run = epochcast(*shlex.split(line)[1:])
    assert [each.split() for each in run.out.splitlines()[:2]] == [
        each.split() for each in text.splitlines()[:2]
    ]


def test_the_readme_has_at_most_700_words_beside_its_examples():
    assert len(re.sub(r"```.*?```", "", README, flags=re.DOTALL).split()) <= 700


def test_the_answer_comes_first_and_fits_half_a_screen():
    assert CONSOLE[0][0] == "make predict"
    assert len(CONSOLE[0][1].splitlines()) <= 22


def test_every_command_named_exists():
    command = typer.main.get_command(build_app())
    named = set(re.findall(r"\bepochcast ([a-z]+)\b(?!\w)", "\n".join([*SHELL, *_inline()])))
    assert sorted(named - set(command.commands)) == []


def test_every_make_target_named_exists():
    named = set(re.findall(r"\bmake ([a-z]+)", "\n".join([*SHELL, *_inline()])))
    assert sorted(target for target in named if f"\n{target}:" not in MAKEFILE) == []


def test_every_file_named_exists():
    linked = [
        (ROOT / page).parent / name
        for page, text in PAGES.items()
        for name in re.findall(r"\]\(([^)#]+)\)", text)
    ]
    named = [ROOT / word for word in _inline() if word.startswith(("benchmarks/", "datasets/"))]
    assert [path for path in [*linked, *named] if not path.exists()] == []


def _inline():
    """Code within sentences."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", "".join(PAGES.values()))
