"""The commands that `epochcast profile` names in the end: each works on the table that it has just written."""

import shlex
from functools import partial
from pathlib import Path

import pytest
from case_tables import each_row
from typer.core import TyperCommand

from proxy_cnns import jobs
from proxy_cnns.device import Monitor

CODE = """
from torch import nn

def make_model():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
"""
PRESETS = ("quick", "founding", "targets", "cnn:lenet5", "cnn:alexnet@128")
PRESETS += (
    "targets:lenet5,alexnet@128",
    "targets:alexnet@128",
    "cnn:mine.py:make_model@65",
    "targets:mine.py:make_model",
)


def commands_of(steps):
    commands = [step for step in steps if step.startswith("epochcast ")]
    assert commands
    return commands


@pytest.fixture
def measured(epochcast, fake_framework, monkeypatch, tmp_path):
    """Profile with the fake framework, by its own clock; gives the lines after "Next:"."""
    monkeypatch.chdir(tmp_path)
    import fake_backend

    clock = fake_backend.Clock()
    monkeypatch.setattr(fake_backend, "Clock", lambda: clock)
    monkeypatch.setattr(jobs, "Session", partial(jobs.Session, clock=clock))
    monkeypatch.setattr(jobs, "open_monitor", lambda _device: Monitor(dict))
    Path("mine.py").write_text(CODE)

    def profile(*options):
        for earlier in Path().glob("my table*"):
            earlier.unlink()
        run = epochcast("profile", *options, "--out", "my table.csv.gz")
        assert run.code == 0, run.err
        return [line.strip() for line in run.out.partition("Next: ")[2].splitlines()]

    return profile


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_command_named_after_measuring_is_one(measured, epochcast, monkeypatch, preset, device):
    if "mine.py" in preset:
        pytest.importorskip("torch")
    commands = commands_of(measured("--preset", preset, "--device", device, "--limit", 30))
    requests = []
    monkeypatch.setattr(TyperCommand, "invoke", lambda _self, context: requests.append(context.params))
    for command in commands:
        run = epochcast(*shlex.split(command)[1:])
        assert run.code == 0, command + "\n" + run.err
    assert len(requests) == len(commands)
    for command, options in zip(commands, requests, strict=True):
        assert "my table.csv.gz" in str(options), command


@each_row
def test_every_command_named_after_measuring_works(measured, epochcast, preset, device):
    if "mine.py" in preset:
        pytest.importorskip("torch")
    for command in commands_of(measured("--preset", preset, "--device", device, "--limit", 30)):
        run = epochcast(*shlex.split(command)[1:])
        assert run.code == 0, command + "\n" + run.err


def test_what_was_measured_is_asked_about_and_what_predictions_lack_is_said(measured):
    assert measured("--preset", "cnn:lenet5@32", "-b", "4,8")[1] == (
        'epochcast predict lenet5 --image-size 32 --gpu "NVIDIA H200" --precision tf32 --batch-size 4 '
        '--measurements "my table.csv.gz"'
    )
    steps = measured("--preset", "targets:lenet5", "--device", "cpu")
    assert steps[2].startswith("Predictions need operators, not whole CNNs of a CPU")
    assert not any("fit" in step or "predict " in step for step in steps[:2])
    steps = measured("--preset", "quick", "--device", "cpu", "--limit", 6)
    assert not any("predict " in step for step in steps)
    assert steps[1] == (
        "On a CPU predictions need the operators of the CNN itself: measure them with --preset cnn:NAME."
    )
